"""The steps of a trace, for a person at a terminal."""

from collections.abc import Iterator
from dataclasses import dataclass

from ...model.ops import Operation, Outcome
from ...model.snapshot import difference
from ..findings.finding import Trace
from ..findings.words import operation_text, outcome_text
from ..opening.known_deviations import model_for


@dataclass(frozen=True)
class Step:
    """One operation of a trace, with what it does to the model."""

    number: int
    """From 0, as in a finding."""
    operation: Operation
    outcome: Outcome
    changes: tuple[str, ...]
    """The difference that it makes to the state, a line each."""


def steps(trace: Trace, target_name: str) -> Iterator[Step]:
    """Apply a trace to the model that this target is held against. Every operation must be allowed where it stands."""
    model = model_for(target_name, trace.shape)
    before = model.snapshot()
    for number, operation in enumerate(trace.operations):
        outcome, after = model.step(operation)
        yield Step(number, operation, outcome, tuple(difference(before, after)))
        before = after


def step_lines(step: Step) -> list[str]:
    """A numbered step as lines of text."""
    head = f"{step.number:4}  {operation_text(step.operation)}  ->  {outcome_text(step.outcome)}"
    return [head, *(f"        {change}" for change in step.changes)]
