"""The steps of a trace: noted as a target takes them, and in lines for a person at a terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...model.ops import Done, Operation, Outcome, Shape
from ...model.snapshot import Snapshot
from ..findings.difference import difference
from ..findings.finding import Trace
from ..findings.words import operation_text, outcome_text
from ..opening.known_deviations import model_for
from ..targets.base import Target, is_told
from ..targets.rule import model_answer


@dataclass(frozen=True)
class TraceStep:
    """One operation, with what it does to the model or to the target."""

    number: int
    """From 0, as in a finding."""
    operation: Operation
    outcome: Outcome | None
    """None if there was none: the target was lost."""
    changes: tuple[str, ...]
    """The difference that it makes to the state, a line each."""


class Recording:
    """A target that forwards everything to another one and keeps what its answers change.

    The states themselves are not kept: each is as large as the pool, and there is one for every operation.
    """

    def __init__(self, target: Target, keep: bool = True) -> None:
        """`keep`: False if nobody will ask for the steps."""
        self._target, self._keep = target, keep
        self.name = target.name
        self._asked: list[tuple[Operation, Outcome | None, tuple[str, ...]]] = []
        self._last: Snapshot | None = None
        self.shape: Shape | None = None
        """The shape of the last start."""
        self.construction: Outcome | None = None
        """The outcome of the last start; None before it, or if the target was lost over it."""

    def __getattr__(self, name: str) -> Any:
        """What the target says about itself, as far as it says something."""
        return getattr(self._target, name)

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """Start the target; what was kept before is forgotten."""
        self._asked, self._last, self.shape, self.construction = [], None, shape, None
        outcome, snapshot = self._target.start(shape)
        self._last, self.construction = snapshot, outcome
        return outcome, snapshot

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """Ask the target."""
        if not self._keep:
            return self._target.step(operation)
        self._asked.append((operation, None, ()))
        outcome, snapshot = self._target.step(operation)
        self._asked[-1] = (operation, outcome, _changes(self._last, snapshot))
        self._last = snapshot or self._last
        return outcome, snapshot

    def close(self) -> None:
        """Close the target."""
        self._target.close()

    def steps(self, operations: Sequence[Operation]) -> Sequence[TraceStep]:
        """What was asked since the last start, and what it changed in the target's state; `operations` are those of the
        run, of which some may be no calls on a target (`targets.base.is_told`)."""
        untold = {number: one for number, one in enumerate(operations) if not is_told(self._target, one)}
        steps: list[TraceStep] = []
        for operation, outcome, changes in self._asked:
            while one := untold.get(len(steps)):
                steps.append(TraceStep(len(steps), one, Done(), ()))
            steps.append(TraceStep(len(steps), operation, outcome, changes))
        return steps


def _changes(before: Snapshot | None, after: Snapshot | None) -> tuple[str, ...]:
    """The difference between two states; of answers that are no states, that they are none."""
    if before is None or after is None:
        return ()
    try:
        return tuple(difference(before, after))
    except Exception as error:  # a target may show anything
        return (f"its state cannot be compared with the one before: {type(error).__name__}: {error}",)


def why_unbuilt(target_name: str, shape: Shape) -> str:
    """Why the model that this target is held against has no core of this shape; empty if it has one."""
    construction = model_for(target_name, shape).construction
    return "" if isinstance(construction, Done) else outcome_text(construction)


def model_steps(trace: Trace, target_name: str) -> Iterator[TraceStep]:
    """Apply a trace to the model that this target is held against, which must have a core of its shape. Every operation
    must be allowed where it stands."""
    model = model_for(target_name, trace.shape)
    before = model.snapshot()
    for number, operation in enumerate(trace.operations):
        outcome, after = model_answer(model, operation), model.snapshot()
        yield TraceStep(number, operation, outcome, tuple(difference(before, after)))
        before = after


def step_lines(step: TraceStep) -> list[str]:
    """A numbered step as lines of text."""
    outcome = "no answer" if step.outcome is None else outcome_text(step.outcome)
    head = f"{step.number:4}  {operation_text(step.operation)}  ->  {outcome}"
    return [head, *(f"        {change}" for change in step.changes)]
