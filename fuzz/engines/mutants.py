"""Checks the harness by planted faults: an engine hunts each, and what it finds is shrunk.

Over several seeds, and by each detector alone, if that is asked for.
"""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..configuration.check import CheckLimits, Judge, run
from ..configuration.findings import ConfigurationFinding
from ..configuration.reach import Reach
from ..configuration.shrink import shrink_finding
from ..faults import CATALOGUED, MADE_UP, Fault, Part
from ..faults.real_bugs import planted_bugs
from ..findings.finding import Finding
from ..findings.oracle_names import CONTRACT, LIVENESS, LOCKSTEP, SHADOW
from ..opening.targets import open_calculator, open_target
from ..reports.faults import HuntRow
from ..reports.progress import OnStep
from ..reports.summary import Summary
from ..targets.base import Target
from ..traces.shrink import shrink
from ..traces.trace_file import FoundBy, FoundWhat, TraceFile
from .plan import SHRINK_SECONDS, Plan
from .seeded import run_engine

FUZZ_CONFIG = "fuzz-config"
"""Who finds faults in configuration answers."""
MUTANTS = {name: fault for name, fault in MADE_UP.items() if fault.part != Part.CONFIGURATION}
"""The faults that were made up and that runs of operations can find, by name. Those of configuration answers are
`fuzz-config`'s."""


def known_faults(real: bool) -> dict[str, Fault]:
    """What is hunted, by name: the catalogue of real bugs, or `MUTANTS`."""
    return dict(CATALOGUED) if real else MUTANTS


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
    """Operations until it was found; of a fault in configuration answers, questions."""
    seconds: float = 0.0
    """Until it was found, shrinking not counted."""
    shrunk_to: int | None = None
    """Operations of the reduced trace; None for a fault in configuration answers."""
    shrink_seconds: float = 0.0
    broken: str = ""
    """How the code that plants the fault failed, if it did."""
    oracle: str = ""
    """Which oracle has found it."""
    processor_seconds: float = field(default=0.0, compare=False)
    """Of this process, until it was found."""
    seed: int = field(default=0, compare=False)


@dataclass(frozen=True)
class FaultSearch:
    """How a fault is looked for."""

    seconds: float | None
    operations: int | None = None
    """Of a fault in configuration answers, configurations."""
    seed: int = 0
    oracles: tuple[str, ...] | None = None
    """None for those that the fault is meant for."""
    core: str = "impl"
    """The target with our core that is broken."""
    engine: str = "random"
    shrink_seconds: float = SHRINK_SECONDS
    """How long what comes up is reduced at most; 0 for not at all."""


@dataclass(frozen=True)
class Caught:
    """A hunt, and the smallest thing that shows its fault: a trace, or a question; neither if it was not found."""

    hunt: Hunt
    trace: TraceFile | None = None
    question: ConfigurationFinding | None = None


def can_be_tried(fault: Fault) -> bool:
    """False for a fault in tensors where torch is not installed."""
    return fault.part != Part.TENSORS or find_spec("torch") is not None


def hunt(
    fault: Fault,
    seconds: float | None,
    seed: int,
    oracles: tuple[str, ...] | None = None,
    operations: int | None = None,
) -> Hunt:
    """As `catch`: what became of the fault."""
    return catch(fault, FaultSearch(seconds, operations, seed, oracles)).hunt


def catch(fault: Fault, search: FaultSearch) -> Caught:
    """Fuzz our core with this fault for at most so many seconds or operations, and shrink what comes up.

    By operations alone the same is found on every machine. A fault in configuration answers is hunted by
    `fuzz-config`.
    TargetUnavailableError for a fault in tensors without torch, and where the core is not built.
    """
    named = f"fault:{fault.name}"
    broken = named if search.core == "impl" else f"{named}@{search.core}"
    if fault.part == Part.CONFIGURATION:
        return _caught_by_questions(fault, broken, search)
    target = open_target(broken if fault.part == Part.CORE else search.core)
    tensors = None if fault.part == Part.CORE else named
    judges = search.oracles or fault.oracles
    plan = Plan(search.seed, search.seconds, search.operations, chaos=fault.chaos, oracles=judges, tensors=tensors)
    try:
        return _caught(fault, target, plan, search)
    finally:
        target.close()


def _caught(fault: Fault, target: Target, plan: Plan, search: FaultSearch) -> Caught:
    done, start = Summary(target.name, search.engine, search.seed), time.process_time()
    run_engine(target, plan, done)
    hunt = Hunt(
        fault.name,
        fault.observables,
        False,
        operations=done.operations,
        seconds=round(done.seconds, 2),
        processor_seconds=round(time.process_time() - start, 2),
        seed=plan.seed,
    )
    if done.finding is None or done.trace is None:
        return Caught(hunt)
    if broken := own_mistake(fault, done.finding):
        return Caught(replace(hunt, broken=broken))
    observable, operation = done.finding.kind
    hunt = replace(hunt, found=True, observable=observable, operation=operation, oracle=done.finding.oracle)
    if not search.shrink_seconds:
        return Caught(hunt)
    start = time.monotonic()
    shrunk = shrink(done.trace, done.finding.kind, target, plan.judging(), max_seconds=search.shrink_seconds)
    if shrunk.interrupted:
        raise KeyboardInterrupt  # the reducer has kept its best; here the whole hunt is to end
    size, took = len(shrunk.trace.operations), round(time.monotonic() - start, 2)
    by = FoundBy(done.engine, plan.seed, version("blockproof"))
    what = FoundWhat.of(shrunk.finding)
    file = TraceFile(shrunk.trace, target.name, what, by, tuple(plan.oracles), plan.tensors)
    return Caught(replace(hunt, shrunk_to=size, shrink_seconds=took), file)


def _caught_by_questions(fault: Fault, spec: str, search: FaultSearch) -> Caught:
    start, calculator = time.process_time(), open_calculator(spec)
    reach = Reach(calculator.name, search.seed)
    run(calculator, reach, CheckLimits(search.operations, search.seconds))
    hunt = Hunt(
        fault.name,
        fault.observables,
        bool(reach.findings),
        operations=reach.questions,
        seconds=round(reach.seconds, 2),
        processor_seconds=round(time.process_time() - start, 2),
        seed=search.seed,
    )
    if not reach.findings:
        return Caught(hunt)
    (found,) = reach.findings
    if search.shrink_seconds:
        found = shrink_finding(found, Judge(calculator), search.shrink_seconds).finding
    return Caught(replace(hunt, observable=found.oracle, operation=found.op, oracle=FUZZ_CONFIG), question=found)


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


DETECTORS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "lockstep": ((LOCKSTEP,), "random"),
    SHADOW: ((SHADOW,), "random"),
    CONTRACT: ((CONTRACT,), "random"),
    LIVENESS: ((LIVENESS,), "random"),
    FUZZ_CONFIG: ((), ""),
}
"""What can be asked about each fault, by name: the oracles and the engine. The last one is for faults in configuration
answers, the others for all other faults."""
NOT_RUN: Mapping[str, str] = {
    "explore": "it plants faults of its own, each in the scope that reaches it (`explore --fault`)",
    "prove": "it proves rules of the model, and sees no core",
    "unit tests": "they come with the sources, not with the package",
}
"""Other detectors, and why they are not asked here: shown as not run, never as missed."""


@dataclass(frozen=True)
class FaultResult:
    """What became of one fault."""

    caught: Sequence[Caught]
    """One for each seed."""
    detectors: Mapping[str, Sequence[Hunt]] = field(default_factory=dict)
    """What each detector that was asked has come to, one hunt for each seed."""
    bug: str = ""
    """Id of the entry in the catalogue of real bugs, if the fault stands for one."""
    link: str = ""

    @property
    def median(self) -> Hunt:
        """The hunt in the middle, by operations; those that found nothing come last. With the size of the trace, from
        whichever seed that is."""
        found, shown = middle([caught.hunt for caught in self.caught]), self.shown.hunt
        return replace(found, shrunk_to=shown.shrunk_to, shrink_seconds=shown.shrink_seconds)

    @property
    def shown(self) -> Caught:
        """The first that found something, and was reduced; the first of all if none did."""
        return next((caught for caught in self.caught if caught.hunt.found), self.caught[0])

    def row(self, matrix: bool) -> HuntRow:
        """The median hunt, what it stands for, each seed if there are several, and the detectors."""
        row = HuntRow(**asdict(self.median))
        if self.bug:
            row.bug, row.link = self.bug, self.link
        if len(self.caught) > 1:
            names = ("seed", "found", "operations", "processor_seconds")
            row.seeds = [{name: getattr(one.hunt, name) for name in names} for one in self.caught]
        if matrix:
            row.detectors = {name: cell_of(self.detectors.get(name)) for name in (*DETECTORS, *NOT_RUN)}
        return row


def middle(hunts: Sequence[Hunt]) -> Hunt:
    """The one in the middle, by operations; those that found nothing come last. Of an even number the later one."""
    return sorted(hunts, key=lambda hunt: (not hunt.found, hunt.operations))[len(hunts) // 2]


def results(
    faults: Sequence[Fault],
    search: FaultSearch,
    seeds: int = 1,
    matrix: bool = False,
    on_step: OnStep = lambda done, now: None,
) -> Iterator[FaultResult]:
    """One fault after the other, each with so many seeds from that of `search` on.

    With `matrix` every detector is asked that can be, each with the whole budget. Errors as from `catch`. `on_step` is
    told how many faults are done and which is hunted now.
    """
    bugs = {name: (bug_id, bug.link) for bug_id, bug, name in planted_bugs()}
    searches = [replace(search, seed=search.seed + number) for number in range(seeds)]
    for done, fault in enumerate(faults):
        on_step(done, fault.name)
        caught: list[Caught] = []
        for one in searches:
            again = any(earlier.hunt.found for earlier in caught)  # one trace is enough, and reducing takes longest
            caught.append(catch(fault, replace(one, shrink_seconds=0.0) if again else one))
        asked = dict(detected(fault, searches, [one.hunt for one in caught])) if matrix else {}
        yield FaultResult(caught, asked, *bugs.get(fault.name, ("", "")))


def detected(
    fault: Fault, searches: Sequence[FaultSearch], known: Sequence[Hunt] = ()
) -> Iterator[tuple[str, Sequence[Hunt]]]:
    """What each detector comes to that can see a fault of this part, one hunt for each search.

    `known` is what searching with the oracles of the first search came to: that is not done again.
    """
    if fault.part == Part.CONFIGURATION:
        yield FUZZ_CONFIG, known or [catch(fault, replace(one, shrink_seconds=0.0)).hunt for one in searches]
        return
    for name, (oracles, engine) in DETECTORS.items():
        if known and (oracles, engine) == (searches[0].oracles or fault.oracles, searches[0].engine):
            yield name, known
        elif engine:
            how = [replace(one, oracles=oracles, engine=engine, shrink_seconds=0.0) for one in searches]
            yield name, [catch(fault, one).hunt for one in how]


def cell_of(hunts: Sequence[Hunt] | None) -> dict[str, Any] | None:
    """What a detector has come to, JSON-ready; None if it was not run."""
    if not hunts:
        return None
    found = middle(hunts)
    return {name: getattr(found, name) for name in ("found", "operations", "processor_seconds", "observable")}
