"""How a fault is planted: what is named by it, the small scopes for it, and ways to make a method do otherwise."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...model.ops import Group
from .expansion import Expansion
from .scope import Scope, shape_of


@dataclass(frozen=True)
class PlantedMistake:
    """One planted mistake."""

    name: str
    describe: str
    found_by: str
    """Id of the property that says what is wrong."""
    scope: Scope
    plant: Callable[[Expansion], None]


FAULTS: dict[str, PlantedMistake] = {}
"""All planted faults by name."""
SMALL = Scope(
    "small",
    shape_of([Group("full", 2)], blocks=5, max_len=5, batched=5),
    requests=2,
    prompts=((0, 0, 0), (0, 1, 0), (0, 0)),
    outputs=1,
    chunks=(2,),
)
ALONE = Scope(
    "alone",
    shape_of([Group("full", 2)], blocks=5, max_len=6, batched=6),
    requests=1,
    prompts=((0, 0, 0, 1), (0, 1)),
    outputs=2,
    chunks=(2,),
    abort=False,
)
STEPS = replace(
    ALONE,
    name="steps",
    requests=2,
    prompts=((0, 1),),
    abort=True,
    shape=replace(ALONE.shape, num_blocks=4),
)
TINY = replace(SMALL, name="tiny", shape=replace(SMALL.shape, num_blocks=4))
CROWDED = replace(SMALL, name="crowded", shape=replace(SMALL.shape, num_blocks=3))
WINDOW = replace(
    SMALL,
    name="window",
    shape=shape_of([Group("sliding", 2, window=2)], blocks=5, max_len=7, batched=7),
    prompts=((0, 0, 0, 1), (0, 1)),
    outputs=2,
)
STATES = replace(
    SMALL,
    name="states",
    shape=shape_of([Group("mamba", 2, mamba_mode="align")], blocks=5, max_len=7, batched=7),
    prompts=((0, 0, 0, 1), (0, 1)),
    chunks=(4,),
)


def fault(found_by: str, describe: str, scope: Scope) -> Callable[[Callable[[Expansion], None]], Callable[..., None]]:
    """Marks a function that plants a fault; its name is the fault's."""

    def add(plant: Callable[[Expansion], None]) -> Callable[[Expansion], None]:
        name = plant.__name__.strip("_").replace("_", "-")
        FAULTS[name] = PlantedMistake(name, describe, found_by, scope, plant)
        return plant

    return add


def wrap(owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace a method of one object: `change` gets the original and the call's arguments."""
    setattr(owner, name, partial(change, getattr(owner, name)))


def wrap_giving_back(expansion: Expansion, change: Callable[..., Any]) -> None:
    """Replace both ways in which our core's pool is given blocks back: one by one, and all of a table."""
    for name in ("free_blocks", "release"):
        wrap(core_of(expansion).block_pool, name, change)


def wrap_taking(expansion: Expansion, change: Callable[..., Any]) -> None:
    """Replace both ways in which our core's pool hands out blocks: several, and one."""
    pool = core_of(expansion).block_pool
    wrap(pool, "get_new_blocks", change)
    pool.get_new_block = lambda: pool.get_new_blocks(1)[0]


def without_short_steps(expansion: Expansion) -> None:
    """Let every step of our core go the long way, on which it asks what the fault answers."""
    core_of(expansion)._begins = False
    core_of(expansion).coordinator.steps.note = lambda request, settled: None


def decide(expansion: Expansion, **decisions: Any) -> None:
    """Let the model decide otherwise."""
    model = expansion.pair.model
    model.policy = replace(model.policy, **decisions)


def core_of(expansion: Expansion) -> Any:
    """The manager of our core."""
    return expansion.pair.core.manager
