"""The steps of a trace, for a person at a terminal."""

from collections.abc import Iterator

from ...model.ops import Done, Shape
from ..findings.difference import difference
from ..findings.finding import Trace
from ..findings.words import operation_text, outcome_text
from ..opening.known_deviations import model_for
from .recording import Step


def why_unbuilt(target_name: str, shape: Shape) -> str:
    """Why the model that this target is held against has no core of this shape; empty if it has one."""
    construction = model_for(target_name, shape).construction
    return "" if isinstance(construction, Done) else outcome_text(construction)


def model_steps(trace: Trace, target_name: str) -> Iterator[Step]:
    """Apply a trace to the model that this target is held against, which must have a core of its shape. Every operation
    must be allowed where it stands."""
    model = model_for(target_name, trace.shape)
    before = model.snapshot()
    for number, operation in enumerate(trace.operations):
        outcome, after = model.step(operation)
        yield Step(number, operation, outcome, tuple(difference(before, after)))
        before = after


def step_lines(step: Step) -> list[str]:
    """A numbered step as lines of text."""
    outcome = "no answer" if step.outcome is None else outcome_text(step.outcome)
    head = f"{step.number:4}  {operation_text(step.operation)}  ->  {outcome}"
    return [head, *(f"        {change}" for change in step.changes)]
