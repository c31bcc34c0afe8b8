"""What a planted fault is, the decorator that makes one, and how a fault replaces methods of what it breaks."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, NoReturn, TypeAlias

from ..findings.oracle_names import ORACLES

Plant: TypeAlias = Callable[[Any], None]
"""Changes one object that was just made, and neither its class nor any other object."""


class Part(StrEnum):
    """What a fault breaks, which is what `fault:NAME` opens."""

    CORE = "core"
    """A target: our core; a fault changes its `KVCacheManager`."""
    TENSORS = "tensors"
    """Tensors for the shadow memory of a run whose core is right; a fault changes the `TensorMemory`."""
    CONFIGURATION = "configuration"
    """A calculator: the configuration arithmetic of our core; a fault changes its answers."""


@dataclass(frozen=True)
class Fault:
    """One mistake made on purpose, and who must find it."""

    name: str
    describe: str
    """What is wrong, in words."""
    part: Part
    plant: Plant
    observables: tuple[str, ...]
    """Where it may show first; which of them depends on the run. Fields of a snapshot or `outcome` for lockstep,
    properties for contract and liveness, invariants that it breaks for configuration."""
    oracles: tuple[str, ...]
    """Those that must find it."""
    chaos: bool = False
    """Whether it shows only in runs that break preconditions on purpose."""


def fault(
    describe: str,
    *observables: str,
    part: Part = Part.CORE,
    oracles: tuple[str, ...] = ORACLES,
    chaos: bool = False,
) -> Callable[[Plant], Fault]:
    """Make a fault of the function below, named after it. For the arguments see `Fault`."""

    def made(plant: Plant) -> Fault:
        name = plant.__name__.strip("_").replace("_", "-")
        return Fault(name, describe, part, plant, observables, oracles, chaos)

    return made


def wrap(owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace a method of one object: `change` gets the original and the call's arguments."""
    setattr(owner, name, partial(change, getattr(owner, name)))


def wrap_giving_back(manager: Any, change: Callable[..., Any]) -> None:
    """Replace both ways in which blocks are given back: one by one, and all of a table."""
    for name in ("free_blocks", "release"):
        wrap(manager.block_pool, name, change)


def wrap_taking(manager: Any, change: Callable[..., Any]) -> None:
    """Replace both ways in which new blocks are taken: several, and one."""
    pool = manager.block_pool
    wrap(pool, "get_new_blocks", change)
    pool.get_new_block = lambda: pool.get_new_blocks(1)[0]


def wrap_each(manager: Any, name: str, change: Callable[..., Any], having: str = "block_size") -> None:
    """Replace a method of every group's manager that has the attribute `having`; `change` gets the manager first."""
    for single in manager.coordinator.single_type_managers:
        if hasattr(single, having):
            wrap(single, name, partial(change, single))


def the_long_way(manager: Any) -> None:
    """From now on each step of each request goes through the calls of the coordinator, which a fault can replace."""
    manager.coordinator.steps.known = manager._begins = False


def crash(message: str) -> NoReturn:
    """Fail as an assertion of the broken code would. Raised here, it is not taken for a failure to plant."""
    raise AssertionError(message)
