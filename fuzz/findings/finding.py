"""The result of a run: the trace of operations that were applied, and the finding, the first thing that was wrong."""

from dataclasses import dataclass

from ...model.ops import Operation, Outcome, Shape
from .oracle_names import CONTRACT, DIFFERENCE, LIVENESS, LOCKSTEP, SHADOW
from .words import operation_text, outcome_text

CORRUPTION = "corruption"


@dataclass(frozen=True)
class Trace:
    """A shape and the operations applied to it, in order."""

    shape: Shape
    operations: tuple[Operation, ...]


@dataclass(frozen=True)
class Finding:
    """The first place where an oracle objects, or where the target was lost."""

    observable: str
    """Lockstep: `outcome` or a field of `Snapshot`. Shadow memory: `corruption`. Contract and liveness: the id of the
    property, such as `S7`. A pair of targets: the difference in words. A target that was lost: how (`LOST`)."""
    operation: Operation | None
    """The operation after which it was seen; None if it was seen at the construction."""
    step: int
    """Index of the operation in the trace; -1 for the construction."""
    expected: Outcome | None
    """The model's outcome; the target's own where there is no model."""
    actual: Outcome | None
    """The target's outcome; None if it was lost."""
    expected_changes: tuple[str, ...] = ()
    actual_changes: tuple[str, ...] = ()
    detail: str = ""
    oracle: str = LOCKSTEP
    sides: tuple[str, str] = ("model", "target")
    """Names of the two sides that are compared."""

    @property
    def kind(self) -> tuple[str, str]:
        """The observable and the kind of operation; both must stay the same while the trace is shrunk."""
        return (self.observable, type(self.operation).__name__ if self.operation else "start")

    def __str__(self) -> str:
        """The finding as text, several lines; `!` marks a line in which the two sides differ."""
        where = f"operation {self.step}: {operation_text(self.operation)}" if self.operation else "construction"
        head = _HEADS[self.oracle].format(what=self.observable, where=where)
        if self.oracle not in (LOCKSTEP, DIFFERENCE):
            return "\n".join([head, *(f"  {line}" for line in self.detail.splitlines()), *self._target_changes()])
        lines = [head]
        ours, theirs = self.expected_changes, self.actual_changes
        for side, outcome, changes, others in (
            (self.sides[0].ljust(len(self.sides[1])), self.expected, ours, theirs),
            (self.sides[1].ljust(len(self.sides[0])), self.actual, theirs, ours),
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


_HEADS = {
    LOCKSTEP: "lockstep: model and target differ in `{what}` at {where}",
    SHADOW: "shadow memory: wrong content at {where}",
    CONTRACT: "contract: {what} is violated at {where}",
    LIVENESS: "liveness: {what} is violated at {where}",
    DIFFERENCE: "difference: {what} at {where}",
}
"""First line of the text, by oracle."""
