"""Shapes, operations and outcomes as text."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields
from difflib import SequenceMatcher, get_close_matches

from ...model.ops import AllocateBatch, Done, Failed, Group, OnRequest, Operation, Outcome, Shape
from .cause import Cause
from .visible import visible_name


def operation_text(operation: Operation) -> str:
    """An operation with the fields that are not at their default.

    >>> operation_text(Allocate("a", 3, hit=True))
    'Allocate a, new_tokens=3, hit'
    """
    named = ", ".join(map(visible_name, requests_of(operation)))
    head = f"{type(operation).__name__} {named}".rstrip()
    return ", ".join([head, *_changed(operation, "request", "requests")])


def shape_text(shape: Shape) -> str:
    """A shape with the fields that are not at their default."""
    groups = (f"{group.kind}({', '.join(_changed(group, 'kind'))})" for group in shape.groups)
    return ", ".join([f"shape: {' + '.join(groups) or 'no groups'}", *_changed(shape, "groups")])


def _changed(record: Operation | Group | Shape, *without: str) -> Iterator[str]:
    """`name=value` of the fields that are not at their default; just the name where the value is True."""
    for field in fields(record):
        value = getattr(record, field.name)
        if field.name not in without and value != field.default:
            yield field.name if value is True else visible_name(f"{field.name}={value}")


def outcome_text(outcome: Outcome) -> str:
    """The value of a call that returned one; else `done`, `refused` or `fails with ...`."""
    if isinstance(outcome, Done):
        return "done" if outcome.value is None else visible_name(f"{outcome.value}")
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


def did_you_mean(name: str, known: Collection[str], see: str = "") -> str:
    """What to do about a name that is not known: the names that it resembles, whatever its case; else `see`, or
    all of them if that is empty.

    >>> did_you_mean("Slidng", ["full", "sliding", "mamba"])
    "did you mean 'sliding'?"
    >>> did_you_mean("x", ["full", "sliding", "mamba"])
    'choose from full, sliding, mamba'
    """
    folded = {one.lower(): one for one in known}
    best = [SequenceMatcher(None, one, name.lower()).ratio() for one in get_close_matches(name.lower(), folded, 1)]
    if best:
        close = get_close_matches(name.lower(), folded, 2, best[0] - 0.01)  # another one may be as close
        return f"did you mean {' or '.join(repr(folded[one]) for one in close)}?"
    return see or f"choose from {', '.join(known)}"


def requests_of(operation: Operation) -> tuple[str, ...]:
    """The requests that an operation names."""
    if isinstance(operation, OnRequest):
        return (operation.request,)
    return operation.requests if isinstance(operation, AllocateBatch) else ()
