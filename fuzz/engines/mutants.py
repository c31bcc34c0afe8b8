"""Checks the harness by planted faults: an engine hunts each, and what it finds is shrunk."""

import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ..faults import MADE_UP, Fault, Part
from ..findings.finding import Finding
from ..opening.targets import open_target
from ..reports.progress import OnStep
from ..reports.summary import Summary
from ..traces.shrink import shrink
from .plan import Plan
from .seeded import run_random

MUTANTS = {name: fault for name, fault in MADE_UP.items() if fault.part != Part.CONFIGURATION}
"""The faults that runs of operations can find, by name. Those of configuration answers are `fuzz-config`'s."""


@dataclass(frozen=True)
class Hunt:
    """What became of one planted fault."""

    fault: str
    expected: tuple[str, ...]
    """Observables in one of which it should show."""
    found: bool
    """Whether the mistake was found; an error of the code that plants it is none."""
    observable: str | None = None
    operation: str | None = None
    operations: int = 0
    """Operations until it was found."""
    seconds: float = 0.0
    """Until it was found, shrinking not counted."""
    shrunk_to: int | None = None
    """Operations of the reduced trace."""
    shrink_seconds: float = 0.0
    broken: str = ""
    """How the code that plants the fault failed, if it did."""
    oracle: str = ""
    """Which oracle has found it."""


def can_be_tried(fault: Fault) -> bool:
    """False for a fault in tensors where torch is not installed."""
    return fault.part != Part.TENSORS or find_spec("torch") is not None


def hunt_all(
    faults: Iterable[Fault],
    seconds: float | None,
    seed: int,
    oracles: tuple[str, ...] | None = None,
    on_step: OnStep = lambda done, now: None,
    core: str = "impl",
    operations: int | None = None,
) -> Iterator[Hunt]:
    """Hunt one fault after the other (`hunt`). `on_step` is told how many are done and which is hunted now."""
    for done, fault in enumerate(faults):
        on_step(done, fault.name)
        yield hunt(fault, seconds, seed, oracles, core, operations)


def hunt(
    fault: Fault,
    seconds: float | None,
    seed: int,
    oracles: tuple[str, ...] | None = None,
    core: str = "impl",
    operations: int | None = None,
) -> Hunt:
    """Fuzz our core with this fault of `MUTANTS` for at most so many seconds or operations, and shrink what comes up.

    By operations alone (`seconds` is None) the same is found on every machine. `oracles` judge, by default those that
    must find the fault; `core` is the target with our core that is broken.
    TargetUnavailableError for a fault in tensors without torch, and where the core is not built.
    """
    named, judges = f"fault:{fault.name}", oracles or fault.oracles
    broken = named if core == "impl" else f"{named}@{core}"
    target = open_target(broken if fault.part == Part.CORE else core)
    plan = Plan(seed, seconds, operations, oracles=judges, tensors=None if fault.part == Part.CORE else named)
    done = Summary(target.name, "random", seed)
    try:
        run_random(target, plan, done)
        if done.finding is None or done.trace is None:
            return Hunt(fault.name, fault.observables, False, operations=done.operations, seconds=done.seconds)
        broken = own_mistake(fault, done.finding)
        if broken:
            return Hunt(fault.name, fault.observables, False, operations=done.operations, broken=broken)
        start = time.monotonic()
        shrunk = shrink(done.trace, done.finding.kind, target, plan.judging())
        if shrunk.interrupted:
            raise KeyboardInterrupt  # the reducer has kept its best; here the whole hunt is to end
    finally:
        target.close()
    return Hunt(
        fault.name,
        fault.observables,
        True,
        *done.finding.kind,
        done.operations,
        round(done.seconds, 2),
        len(shrunk.trace.operations),
        round(time.monotonic() - start, 2),
        oracle=done.finding.oracle,
    )


def own_mistake(fault: Fault, finding: Finding) -> str:
    """How the code that plants a fault failed, if that is what was found: it then plants nothing, and anybody would
    find it. Empty if not."""
    cause = finding.cause
    if cause is None or not cause.frames:
        return ""
    place = cause.frames[-1]
    module = sys.modules[fault.plant.__module__]
    if place.file != Path(str(module.__file__)).name or place.function.partition(".")[0] not in vars(module):
        return ""
    return f"{cause.type}: {cause.message} ({place.file} line {place.line})"


def missed(hunts: Iterable[Hunt]) -> list[str]:
    """Names of the faults that were not found. If there is one, the oracles are not to be trusted."""
    return [hunt.fault for hunt in hunts if not hunt.found]
