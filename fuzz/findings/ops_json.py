"""JSON of shapes, operations and outcomes, read strictly: what a field may hold is what its annotation says."""

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from ...model.ops import Done, Failed, Group, Item, Operation, Outcome, Shape, Value
from .cause import Cause, Frame
from .starved import EVERY_OPERATION

T = TypeVar("T")

OUTCOMES: Mapping[str, type[Outcome]] = {kind.__name__: kind for kind in get_args(Outcome)}
Record: TypeAlias = Group | Shape | Item | Operation | Frame | Cause | Outcome


@cache
def _hints(kind: Any) -> Mapping[str, object]:
    """Of the fields of a record."""
    return {"error": str, "cause": Cause | None} if kind is Failed else get_type_hints(kind)


@cache
def _required(kind: Any) -> list[str]:
    """Those that have no default."""
    return [field.name for field in fields(kind) if field.default is field.default_factory is MISSING]


_VALUE = _hints(Done)["value"]


def to_json(data: object) -> object:
    """JSON-ready form of a shape, an operation or an outcome; fields at their default are left out.

    >>> from blockproof.model.ops import Allocate
    >>> to_json(Allocate("a", 3, hit=True))
    {'op': 'Allocate', 'request': 'a', 'new_tokens': 3, 'hit': True}
    """
    if isinstance(data, tuple):
        return [to_json(element) for element in data]
    if not isinstance(data, Record):
        return data
    name = type(data).__name__
    tag: dict[str, object] = {"op": name} if name in EVERY_OPERATION else {"outcome": name} if name in OUTCOMES else {}
    values = {field: getattr(data, field.name) for field in fields(data)}
    return tag | {field.name: to_json(value) for field, value in values.items() if value != field.default}


def shape_from_json(raw: object) -> Shape:
    """The shape that `to_json` wrote. ValueError says what is wrong and where in the document."""
    return _record(Shape, raw, "shape")


def operation_from_json(raw: object, where: str = "operation") -> Operation:
    """The operation that `to_json` wrote. ValueError says what is wrong and where.

    >>> operation_from_json({"op": "Reset"})
    Reset()
    """
    return _tagged("op", EVERY_OPERATION, raw, where)


def outcome_from_json(raw: object, where: str = "outcome") -> Outcome:
    """The outcome that `to_json` wrote. ValueError says what is wrong and where."""
    return _tagged("outcome", OUTCOMES, raw, where)


def cause_from_json(raw: object, where: str = "cause") -> Cause:
    """The cause that `to_json` wrote. ValueError says what is wrong and where."""
    return _record(Cause, raw, where)


def record_from_json(kind: type[T], raw: object, where: str) -> T:
    """A dataclass of ours that was written field by field. ValueError says what is wrong and where."""
    return _record(kind, raw, where)


def _wrong(where: str, expected: str, raw: object) -> ValueError:
    return ValueError(f"{where}: expected {expected}, got {type(raw).__name__}")


def _tagged(tag: str, kinds: Mapping[str, type[T]], raw: object, where: str) -> T:
    """The record whose kind stands in its field `tag`."""
    if not isinstance(raw, dict):
        raise _wrong(where, "an object", raw)
    name = raw.get(tag)
    if not isinstance(name, str) or name not in kinds:
        raise ValueError(f"{where}.{tag}: expected one of {', '.join(kinds)}, got {name!r}")
    return _record(kinds[name], {key: value for key, value in raw.items() if key != tag}, where)


def _record(kind: type[T], raw: object, where: str) -> T:
    if not isinstance(raw, dict):
        raise _wrong(where, "an object", raw)
    record: Any = kind
    hints, required = _hints(record), _required(record)
    for name in raw:
        if name not in hints:
            raise ValueError(f"{where}: unknown field {name!r}; {kind.__name__} has {', '.join(hints) or 'none'}")
    for name in required:
        if name not in raw:
            raise ValueError(f"{where}: field {name!r} of {kind.__name__} is missing")
    return kind(**{name: _typed(hints[name], value, f"{where}.{name}") for name, value in raw.items()})


def _typed(hint: object, raw: object, where: str) -> object:
    """`raw` as the annotated type, or ValueError; a bool is no int."""
    origin, choices = get_origin(hint), get_args(hint)
    if hint is _VALUE:
        return _value(raw, where)
    if origin is Mapping:  # always of values, by name
        if not isinstance(raw, dict):
            raise _wrong(where, "an object", raw)
        return {name: _value(value, f"{where}.{name}") for name, value in raw.items()}
    if origin is types.UnionType:  # always "… or None"
        return None if raw is None else _typed(choices[0], raw, where)
    if origin is tuple:
        if not isinstance(raw, list):
            raise _wrong(where, "an array", raw)
        if {*map(type, raw)} <= {choices[0]}:  # such as the tokens of a prompt, of which there may be many thousand
            return tuple(raw)
        return tuple(_typed(choices[0], element, f"{where}[{i}]") for i, element in enumerate(raw))
    if isinstance(hint, type) and is_dataclass(hint):
        return _record(hint, raw, where)
    if origin is Literal:
        if raw not in choices:
            raise ValueError(f"{where}: expected one of {', '.join(choices)}, got {raw!r}")
    elif type(raw) is not hint:
        raise _wrong(where, getattr(hint, "__name__", str(hint)), raw)
    return raw


def _value(raw: object, where: str) -> Value:
    if isinstance(raw, list):
        return tuple(_value(element, f"{where}[{i}]") for i, element in enumerate(raw))
    if raw is None or isinstance(raw, bool | int | float | str):
        return raw
    raise _wrong(where, "a number, a text, a truth value, null or an array", raw)
