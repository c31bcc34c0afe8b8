"""Traces and steps in words, for a person at a terminal."""

from collections.abc import Iterator
from dataclasses import dataclass

from ..model.ops import Done, Failed, Operation, Outcome, Shape, to_json
from ..model.snapshot import difference
from .deviations import model_for
from .lockstep import Trace


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


def operation_text(operation: Operation) -> str:
    """An operation with the fields that are not at their default.

    >>> from ..model.ops import Allocate
    >>> operation_text(Allocate("a", 3, hit=True))
    'Allocate a, new_tokens=3, hit'
    """
    return _fields_text(operation, type(operation).__name__)


def shape_text(shape: Shape) -> str:
    """A shape with the fields that are not at their default."""
    return _fields_text(shape, "shape")


def _fields_text(record: Operation | Shape, name: str) -> str:
    content = to_json(record)
    assert isinstance(content, dict)
    content.pop("op", None)
    head = f"{name} {content.pop('request', '')}".rstrip()
    words = (key if value is True else f"{key}={value}" for key, value in content.items())
    return ", ".join([head, *words])


def outcome_text(outcome: Outcome) -> str:
    """An outcome in a word, with its value."""
    if isinstance(outcome, Done):
        return "done" if outcome.value is None else f"{outcome.value}"
    return f"fails with {outcome.error}" if isinstance(outcome, Failed) else "refused"
