"""The lockstep oracle: after every operation, model and target must agree exactly (properties.md §1).

Compared are the outcome and the whole snapshot. The first difference ends the run as a `Finding`, which shows the
operation, both outcomes and what the operation changed on either side.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from ..model.legal import allows, misuse
from ..model.ops import Operation, Outcome, Shape
from ..model.snapshot import Snapshot, difference, first_difference
from .deviations import MisuseUnchecked, model_for
from .targets.base import Target, TargetLostError
from .words import operation_text, outcome_text


@dataclass(frozen=True)
class Trace:
    """A shape and the operations applied to it, in order."""

    shape: Shape
    operations: tuple[Operation, ...]


@dataclass(frozen=True)
class Finding:
    """The first place where model and target part, or where the target was lost."""

    observable: str
    """`outcome`, a field of `Snapshot`, or how the target was lost: `crash`, `hang`, `memory`, `protocol`."""
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


@dataclass
class Lockstep:
    """Runs one core beside the model; `start` begins a run, `step` goes on with it."""

    target: Target
    without: Collection[str] = ()
    """Known deviations that count as findings all the same."""
    operations: list[Operation] = field(default_factory=list)
    """What has been applied in this run."""
    outcomes: list[Outcome] = field(default_factory=list)
    """The model's outcome of each."""
    misuse: Counter[str] = field(default_factory=Counter)
    """What a target that is known not to check it made of misuse."""
    found: Finding | None = None
    """What this run has found; nothing is applied after it."""

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
        self.model = model_for(self.target.name, shape, self.without)
        self.misuse = Counter()
        self._misused: Operation | None = None
        self._ours: Snapshot | None = None
        self._theirs: Snapshot | None = None
        try:
            actual, theirs = self.target.start(shape)
        except TargetLostError as lost:
            self.found = Finding(lost.kind, None, -1, self.model.construction, None, detail=lost.detail)
            return self.found
        ours = self.model.snapshot()
        self.built = self.model.construction == actual and theirs is not None
        return self._compare(None, self.model.construction, actual, ours, theirs or ours)

    def step(self, operation: Operation) -> Finding | None:
        """Apply one operation to both sides and compare all that can be seen."""
        self.operations.append(operation)
        if misuse(self.model, operation):
            self._misused = operation
        expected, ours = self.model.step(operation)
        self.outcomes.append(expected)
        try:
            actual, theirs = self.target.step(operation)
        except TargetLostError as lost:
            step = len(self.operations) - 1
            self.found = Finding(lost.kind, operation, step, expected, None, detail=lost.detail)
            return self.found
        if self.model.undefined:
            return None
        finding = self._compare(operation, expected, actual, ours, theirs)
        return self._excused(operation, finding) if finding is not None else None

    def _excused(self, operation: Operation, finding: Finding) -> Finding | None:
        """A difference after misuse that the target is known not to check is counted, and the run ends."""
        if not (isinstance(self.model, MisuseUnchecked) and self._misused):
            return finding
        results = [getattr(side, "error", type(side).__name__) for side in (finding.actual, finding.expected)]
        what = f"{type(self._misused).__name__}: {finding.observable} differs, {results[0]} instead of {results[1]}"
        self.model.deviated[MisuseUnchecked.id] += 1
        self.misuse[what] += 1
        self.model.dead, self.found = True, None
        return None

    def _compare(
        self, operation: Operation | None, expected: Outcome, actual: Outcome, ours: Snapshot, theirs: Snapshot
    ) -> Finding | None:
        if expected == actual and ours == theirs:
            self._ours, self._theirs = ours, theirs
            return None
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


def replay(trace: Trace, target: Target, without: Collection[str] = ()) -> tuple[Finding | None, Trace]:
    """Run a trace again; operations whose precondition does not hold (`legal.allows`) are left out.

    Returns the finding, if any, and the trace actually applied, ending with the operation that showed the finding.
    """
    lockstep = Lockstep(target, without)
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
