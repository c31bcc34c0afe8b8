"""One run of a target under the oracles: after every operation it is judged, and the first finding ends the run.

The lockstep oracle demands that model and target agree exactly (properties.md §1): compared are the outcome and the
whole snapshot. A difference is shown with the operation, both outcomes and what it changed on either side. The shadow
memory (§3, `shadow`) demands that what the target's tables lead to is what was written there.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ..model.legal import allows, misuse
from ..model.ops import Done, Operation, Outcome, Shape
from ..model.snapshot import Snapshot, difference, first_difference
from .deviations import MisuseUnchecked, corrupting, model_for
from .shadow import Corruption, ListMemory, Memory, Shadow, demand_blocks
from .targets.answers import misfit
from .targets.base import Target, TargetLostError, TargetUnavailableError
from .words import operation_text, outcome_text

LOCKSTEP, SHADOW = "lockstep", "shadow"
ORACLES: tuple[str, ...] = (LOCKSTEP, SHADOW)
"""What judges a target. Without lockstep the model still says which operations make sense, as long as both agree."""
Asked = TypeVar("Asked", Shape, Operation)
CORRUPTION = "corruption"


@dataclass(frozen=True)
class Trace:
    """A shape and the operations applied to it, in order."""

    shape: Shape
    operations: tuple[Operation, ...]


@dataclass(frozen=True)
class Finding:
    """The first place where model and target part, or where the target was lost."""

    observable: str
    """`outcome` or a field of `Snapshot`; `corruption` if the shadow memory found it; or how the target was lost:
    `crash`, `hang`, `memory`, `protocol`."""
    operation: Operation | None
    """The operation after which it showed; None if it was the construction."""
    step: int
    """Index of the operation in the trace; -1 for the construction."""
    expected: Outcome | None
    """The model's outcome."""
    actual: Outcome | None
    """The target's outcome; None if it was lost."""
    expected_changes: tuple[str, ...] = ()
    actual_changes: tuple[str, ...] = ()
    detail: str = ""

    @property
    def kind(self) -> tuple[str, str]:
        """What shrinking must keep: the observable and the kind of operation."""
        return (self.observable, type(self.operation).__name__ if self.operation else "start")

    def __str__(self) -> str:
        """The text diff shown to a person; what only one side shows is marked with `!`."""
        where = f"operation {self.step}: {operation_text(self.operation)}" if self.operation else "construction"
        lines = [f"lockstep: model and target differ in `{self.observable}` at {where}"]
        if self.observable == CORRUPTION:
            return "\n".join([f"shadow memory: wrong content at {where}", f"  {self.detail}", *self._target_changes()])
        ours, theirs = self.expected_changes, self.actual_changes
        for side, outcome, changes, others in (
            ("model ", self.expected, ours, theirs),
            ("target", self.actual, theirs, ours),
        ):
            mark = " " if self.expected == self.actual else "!"
            lines.append(f"{mark} {side} outcome: {outcome_text(outcome) if outcome is not None else 'none'}")
            lines += [f"{' ' if change in others else '!'} {side}   {change}" for change in changes]
        if self.detail:
            lines += [f"  {line}" for line in self.detail.splitlines()]
        return "\n".join(lines)

    def _target_changes(self) -> list[str]:
        outcome = outcome_text(self.actual) if self.actual is not None else "none"
        return [f"  target outcome: {outcome}", *(f"  target   {change}" for change in self.actual_changes)]


@dataclass
class Lockstep:
    """Runs one core beside the model; `start` begins a run, `step` goes on with it."""

    target: Target
    without: Collection[str] = ()
    """Known deviations that count as findings all the same."""
    oracles: Collection[str] = ORACLES
    new_memory: Callable[[Shape], Memory] = ListMemory
    """What the shadow memory keeps its tags in."""
    operations: list[Operation] = field(default_factory=list)
    """What has been applied in this run."""
    outcomes: list[Outcome] = field(default_factory=list)
    """The model's outcome of each."""
    misuse: Counter[str] = field(default_factory=Counter)
    """What a target that is known not to check it made of misuse."""
    seen: Counter[str] = field(default_factory=Counter)
    """What the shadow memory made of this run, besides a finding."""
    found: Finding | None = None
    """What this run has found; nothing is applied after it."""
    in_step: bool = False
    """Has one side perhaps made a step that the other has not? It stays so where Ctrl-C breaks a step off."""

    @property
    def trace(self) -> Trace:
        """This run so far."""
        return Trace(self.shape, tuple(self.operations))

    def start(self, shape: Shape) -> Finding | None:
        """Build both sides. A finding if one of them cannot be built or they differ at once."""
        self.shape = shape
        self.operations = []
        self.outcomes = []
        self.found = None
        self.in_step = False
        self.model = model_for(self.target.name, shape, self.without if LOCKSTEP in self.oracles else ())
        self.misuse = Counter()
        self.shadow = Shadow(shape, self.new_memory) if SHADOW in self.oracles else None
        self.seen = Counter() if self.shadow is None else self.shadow.reached
        self._ours: Snapshot | None = None
        self._theirs: Snapshot | None = None
        expected, ours = self.model.construction, self.model.snapshot()
        self.built = False
        try:
            actual, theirs = _ask(self.target.start, shape)
            if theirs is None and isinstance(actual, Done):
                raise TargetLostError("protocol", "the target says that it has built a core, but shows no state of it")
            self.built = theirs is not None and expected == actual
            finding = self._compare(None, expected, actual, ours, ours if theirs is None else theirs)
        except TargetLostError as lost:
            return self._lost(lost, None, expected)
        if LOCKSTEP not in self.oracles:
            finding = self.found = None  # what differs beside the content is not the shadow memory's business
        return finding

    def step(self, operation: Operation) -> Finding | None:
        """Apply one operation to both sides and compare all that can be seen."""
        self.in_step = True
        finding = self._step(operation)
        self.in_step = False
        return finding

    def _step(self, operation: Operation) -> Finding | None:
        self.operations.append(operation)
        misused = misuse(self.model, operation)
        expected, ours = self.model.step(operation)
        self.outcomes.append(expected)
        try:
            actual, theirs = _ask(self.target.step, operation)
            if self.model.undefined:
                return None
            before = self._theirs
            finding = self._compare(operation, expected, actual, ours, theirs)
            if finding is not None and misused:
                finding = self._excused(operation, finding)
        except TargetLostError as lost:
            return self._lost(lost, operation, expected)
        if finding is not None and LOCKSTEP in self.oracles:
            return finding
        self.found = None
        corruption = None
        if not (self.model.dead or misused or theirs is None):  # misuse is no step of an engine
            corruption = self._corruption(operation, actual, before, theirs, parted=finding is not None)
        if finding is not None and corruption is None:
            self.seen["shadow: run ended where model and target parted"] += not self.model.dead
            self.model.dead = True
        return corruption

    def _corruption(
        self, operation: Operation, actual: Outcome, before: Snapshot | None, theirs: Snapshot, parted: bool
    ) -> Finding | None:
        """What the shadow memory finds; after a deviation that is known to corrupt it is counted, and the run ends."""
        if self.shadow is None:
            return None
        try:
            if parted:
                demand_blocks(theirs, self.shape)
            self.shadow.step(operation, actual, theirs)
            return None
        except Corruption as corruption:
            what = str(corruption)
        for deviation in corrupting(self.model):
            if deviation.id not in self.without:
                self.seen[f"shadow: corruption after {deviation.id}"] += 1
                self.model.dead = True
                return None
        changes = tuple(difference(before or theirs, theirs))
        step = len(self.operations) - 1
        self.found = Finding(CORRUPTION, operation, step, actual, actual, (), changes, detail=what)
        return self.found

    def _lost(self, lost: TargetLostError, operation: Operation | None, expected: Outcome) -> Finding:
        self.found = Finding(lost.kind, operation, len(self.operations) - 1, expected, None, detail=lost.detail)
        return self.found

    def _excused(self, operation: Operation, finding: Finding) -> Finding | None:
        """A difference at a misuse that the target is known not to check is counted, and the run ends."""
        if not isinstance(self.model, MisuseUnchecked):
            return finding
        results = [getattr(side, "error", type(side).__name__) for side in (finding.actual, finding.expected)]
        what = f"{type(operation).__name__}: {finding.observable} differs, {results[0]} instead of {results[1]}"
        self.model.deviated[MisuseUnchecked.id] += 1
        self.misuse[what] += 1
        self.model.dead, self.found = True, None
        return None

    def _compare(
        self, operation: Operation | None, expected: Outcome, actual: Outcome, ours: Snapshot, theirs: Snapshot | None
    ) -> Finding | None:
        """The difference, if any. TargetLostError if the target's answer is none that can be compared."""
        try:
            if expected == actual and ours == theirs:
                self._ours, self._theirs = ours, theirs
                return None
        except Exception as error:
            detail = f"the answer cannot be compared: {type(error).__name__}: {error}"
            raise TargetLostError("protocol", misfit(actual, theirs, len(self.shape.groups)) or detail) from error
        problem = misfit(actual, theirs, len(self.shape.groups))
        if theirs is None or problem:
            raise TargetLostError("protocol", problem or "")
        observable = "outcome" if expected != actual else first_difference(ours, theirs) or ""
        self.found = Finding(
            observable,
            operation,
            len(self.operations) - 1,
            expected,
            actual,
            tuple(difference(self._ours or ours, ours)),
            tuple(difference(self._theirs or ours, theirs)),
        )
        return self.found


def _ask(call: Callable[[Asked], tuple[Outcome, Snapshot | None]], about: Asked) -> tuple[Outcome, Snapshot | None]:
    """The target's answer. TargetLostError if it raises or returns anything else: a target may be a user's own code."""
    try:
        outcome, snapshot = call(about)
    except (TargetLostError, TargetUnavailableError):
        raise
    except SystemExit as end:
        raise TargetLostError("crash", f"the target ended the process (SystemExit: {end})") from end
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}, line {last.lineno}"
        what = f"the target raised {type(error).__name__}: {error} ({place}); an exception of the core is an outcome"
        raise TargetLostError("protocol", f"{what}: return Failed") from error
    return outcome, snapshot


def replay(
    trace: Trace,
    target: Target,
    without: Collection[str] = (),
    oracles: Collection[str] = ORACLES,
    new_memory: Callable[[Shape], Memory] = ListMemory,
) -> tuple[Finding | None, Trace]:
    """Run a trace again; operations whose precondition does not hold (`legal.allows`) are left out.

    Returns the finding, if any, and the trace actually applied, ending with the operation that showed the finding.
    """
    lockstep = Lockstep(target, without, oracles, new_memory)
    finding = lockstep.start(trace.shape)
    if finding is None and lockstep.built:
        finding = _apply(lockstep, trace.operations)
    return finding, lockstep.trace


def _apply(lockstep: Lockstep, operations: Iterable[Operation]) -> Finding | None:
    for operation in operations:
        if lockstep.model.dead:
            break
        if allows(lockstep.model, operation):
            finding = lockstep.step(operation)
            if finding is not None:
                return finding
    return None
