"""Shapes, operations and outcomes as text."""

from collections.abc import Iterator, Sequence
from dataclasses import fields

from ...model.cause import Cause
from ...model.ops import Done, Failed, Group, Operation, Outcome, Shape


def operation_text(operation: Operation) -> str:
    """An operation with the fields that are not at their default.

    >>> operation_text(Allocate("a", 3, hit=True))
    'Allocate a, new_tokens=3, hit'
    """
    head = f"{type(operation).__name__} {getattr(operation, 'request', '')}".rstrip()
    return ", ".join([head, *_changed(operation, "request")])


def shape_text(shape: Shape) -> str:
    """A shape with the fields that are not at their default."""
    groups = (f"{group.kind}({', '.join(_changed(group, 'kind'))})" for group in shape.groups)
    return ", ".join([f"shape: {' + '.join(groups) or 'no groups'}", *_changed(shape, "groups")])


def _changed(record: Operation | Group | Shape, *without: str) -> Iterator[str]:
    """`name=value` of the fields that are not at their default; just the name where the value is True."""
    for field in fields(record):
        value = getattr(record, field.name)
        if field.name not in without and value != field.default:
            yield field.name if value is True else f"{field.name}={value}"


def outcome_text(outcome: Outcome) -> str:
    """The value of a call that returned one; else `done`, `refused` or `fails with ...`."""
    if isinstance(outcome, Done):
        return "done" if outcome.value is None else f"{outcome.value}"
    if not isinstance(outcome, Failed):
        return "refused"
    message = f": {outcome.cause.message}" if outcome.cause is not None and outcome.cause.message else ""
    return f"fails with {outcome.error}{message}"


def cause_lines(cause: Cause | None) -> list[str]:
    """Type and message of an exception, and the places it came through, innermost last, a line each."""
    if cause is None:
        return []
    places = [("adapter" if frame.adapter else "core", f"{frame.file}:{frame.line}", frame) for frame in cause.frames]
    said = f"{cause.type}: {cause.message}" if cause.message else cause.type
    return [said, *(f"  {side:7}  {place}, in {frame.function}" for side, place, frame in places)]


def trace_lines(shape: Shape, operations: Sequence[Operation]) -> list[str]:
    """A shape and numbered operations, a line each."""
    steps = (f"{number:4}  {operation_text(operation)}" for number, operation in enumerate(operations))
    return [f"      {shape_text(shape)}", *steps]


def plural(number: int, noun: str, several: str = "") -> str:
    """A number with its noun; `several` is the plural of a noun that does not just take an s.

    >>> plural(1, "run"), plural(2_000, "run"), plural(0, "reply", "replies")
    ('1 run', '2,000 runs', '0 replies')
    """
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"
