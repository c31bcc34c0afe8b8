"""The result of a run: the trace of operations that were applied, and the finding, the first thing that was wrong."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ...model.ops import Done, Failed, Operation, Outcome, Shape
from .cause import Cause, cause_of
from .ops_json import to_json
from .oracle_names import BLOCKPROOF, CONTRACT, DIFFERENCE, LIVENESS, LOCKSTEP, SHADOW, TARGET
from .words import cause_lines, operation_text, outcome_text

CORRUPTION = "corruption"
BUG = "bug"
"""The observable of what is no finding about the target: blockproof's own code has failed (`our_bug`)."""
LOST = frozenset({"crash", "hang", "memory", "protocol"})
"""The ways in which a target can be lost: then these are the observable of a finding."""


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
    raised: Cause | None = field(default=None, compare=False)
    """The exception through which the target was lost, if that is known."""
    said: str = ""
    """Which of the oracle's sentences it is, the same for all operands: `Violation.kind`, `Corruption.kind`,
    `Violated.kind`; of a difference from the model how the two differ (`difference.kind_of`)."""
    misuse: bool = False
    """True if the operation breaks a precondition on purpose (`model.legal.misuse`)."""
    also: tuple["Finding", ...] = field(default=(), compare=False)
    """What other oracles object to at the same operation, the worst first; this one is the worst of all
    (`severity.worst_of`)."""

    @property
    def kind(self) -> tuple[str, str]:
        """The observable and the kind of operation."""
        return (self.observable, type(self.operation).__name__ if self.operation else "start")

    @property
    def cause(self) -> Cause | None:
        """The exception that the finding is about: the one of the target's outcome, unless the model expects the same
        error; else the one through which the target was lost."""
        if self.raised is not None or not isinstance(self.actual, Failed):
            return self.raised
        return None if self.oracle == LOCKSTEP and self.expected == self.actual else self.actual.cause

    @property
    def is_our_bug(self) -> bool:
        """True if blockproof itself has failed there: nothing is said of the target."""
        return self.oracle == BLOCKPROOF

    @property
    def exit_code(self) -> int:
        """The exit code of a command with nothing worse than this: 1, or 70 for a bug of blockproof."""
        return 70 if self.is_our_bug else 1

    def without_cause(self) -> "Finding":
        """The same without the exception behind it: its words and lines are those of one release."""
        actual = replace(self.actual, cause=None) if isinstance(self.actual, Failed) else self.actual
        return replace(self, actual=actual, raised=None)

    @property
    def identity(self) -> tuple[str, ...]:
        """What two findings of the same cause have in common, whatever the trace: the oracle, the observable, the kind
        of operation; for an exception its type and innermost place, or message; for an answer of the wrong form what is
        wrong.
        """
        return (self.oracle, *self.kind, *self._problem())

    @property
    def manner(self) -> tuple[str, str, str, str]:
        """In what way it is wrong: which sentence it is, whether the call was misuse, what the model says of the call,
        and what the target says. Two findings that differ in it have two causes."""
        says = ("", "") if self.oracle == LIVENESS else (_word(self.expected), _word(self.actual))
        return (self.said, "misuse" if self.misuse else "", *says)

    @property
    def key(self) -> tuple[str, ...]:
        """Identity and manner: what findings have in common that are counted as one, and that shrinking keeps."""
        return (*self.identity, *self.manner)

    def shows(self, identity: Sequence[str], manner: Sequence[str] = ()) -> bool:
        """True if this is what is described by an identity, or by the first part of one, and by a manner; an empty
        manner is any."""
        same = self.identity[: len(identity)] == tuple(identity)
        return same and (not manner or self.manner == tuple(manner))

    @property
    def every(self) -> tuple["Finding", ...]:
        """All that is objected to at the operation, the worst first."""
        return (self, *self.also)

    def _problem(self) -> tuple[str, ...]:
        if self.cause is not None:
            places = [f"{place.file}:{place.line} in {place.function}" for place in self.cause.frames[-1:]]
            return (self.cause.type, *(places or [problem_of(self.cause.message)]))
        return (problem_of(self.detail),) if self.observable == "protocol" else ()

    def as_json(self) -> dict[str, object]:
        """What it is, JSON-ready."""
        what, where = self.kind
        document: dict[str, object] = {"observable": what, "operation": where, "step": self.step, "text": self.text()}
        cause = {"cause": to_json(self.cause)} if self.cause is not None else {}
        document |= {"oracle": self.oracle, "identity": list(self.identity), "manner": list(self.manner)} | cause
        return document | ({"also": [one.as_json() for one in self.also]} if self.also else {})

    def __str__(self) -> str:
        """The finding as text, several lines. Of two sides that are compared only what differs, marked with `!`."""
        return self.text()

    def text(self, *, verbose: bool = False) -> str:
        """The finding as text, several lines; `!` marks a line in which the two sides differ.

        `verbose`: with the changes that both sides have made alike.
        """
        where = f"operation {self.step}: {operation_text(self.operation)}" if self.operation else "construction"
        head = _HEADS[self.oracle].format(what=self.observable, where=where)
        told = [f"  {line}" for line in (*self.detail.splitlines(), *cause_lines(self.cause))]
        if self.oracle in (TARGET, BLOCKPROOF):
            lines = [head, *told]
        elif self.oracle in (LOCKSTEP, DIFFERENCE):
            lines = [head, *self._both_sides(verbose), *told]
        else:
            lines = [head, *told, *self._target_changes()]
        return "\n".join([*lines, *(f"  also: {one.in_short()}" for one in self.also)])

    def in_short(self) -> str:
        """One line: the oracle, and what it objects to."""
        first = self.detail.partition("\n")[0]
        head = _HEADS[self.oracle].format(what=self.observable, where="").removesuffix(" at ")
        return f"{head}: {first}" if first else head

    def _both_sides(self, verbose: bool) -> list[str]:
        lines, alike = [], 0
        ours, theirs = self.expected_changes, self.actual_changes
        for side, outcome, changes, others in (
            (self.sides[0].ljust(len(self.sides[1])), self.expected, ours, theirs),
            (self.sides[1].ljust(len(self.sides[0])), self.actual, theirs, ours),
        ):
            mark = " " if self.expected == self.actual else "!"
            lines.append(f"{mark} {side} outcome: {outcome_text(outcome) if outcome is not None else 'none'}")
            shown = [change for change in changes if verbose or change not in others]
            lines += [f"{' ' if change in others else '!'} {side}   {change}" for change in shown]
            alike = len(changes) - len(shown)
        what = "1 change that both made is" if alike == 1 else f"{alike} changes that both made are"
        return [*lines, *([f"  {what} shown by --verbose"] if alike else [])]

    def _target_changes(self) -> list[str]:
        outcome = outcome_text(self.actual) if self.actual is not None else "none"
        return [f"  target outcome: {outcome}", *(f"  target   {change}" for change in self.actual_changes)]


def our_bug(error: Exception, operation: Operation | None, step: int) -> Finding:
    """What is told of an exception of blockproof's own code at an operation; to be called where it was caught."""
    asks = "what was found before stands; please report this with the trace"
    return Finding(BUG, operation, step, None, None, detail=asks, oracle=BLOCKPROOF, raised=cause_of(error))


def _word(outcome: Outcome | None) -> str:
    """What kind of answer it is."""
    if outcome is None:
        return ""
    if isinstance(outcome, Failed):
        return f"failure {outcome.error}"
    return "value" if isinstance(outcome, Done) else "refusal"


def problem_of(detail: str) -> str:
    """What is wrong, from the first line of its description, without the values of the moment: numbers, what is
    quoted, what stands in brackets.

    >>> problem_of("Snapshot.free is (3, 1), a tuple; expected a list of block ids")
    'Snapshot.free is a tuple; expected a list of block ids'
    """
    first = detail.partition("\n")[0]
    if match := re.fullmatch(r"(.*Snapshot\.\w+ is ).*, (an? \w+; expected .*)", first):
        first = match[1] + match[2]
    return re.sub(r"\d+", "N", re.sub(r"'[^']*'|\"[^\"]*\"|\[[^][]*\]", "...", first))


_HEADS = {
    LOCKSTEP: "lockstep: model and target differ in `{what}` at {where}",
    SHADOW: "shadow memory: wrong content at {where}",
    CONTRACT: "contract: {what} is violated at {where}",
    LIVENESS: "liveness: {what} is violated at {where}",
    DIFFERENCE: "difference: {what} at {where}",
    TARGET: "the target was lost ({what}) at {where}",
    BLOCKPROOF: "a bug of blockproof, which says nothing of the target, at {where}",
}
"""First line of the text, by oracle."""
