"""Simpler relatives of a trace: what the reducer tries on its operations (`shrink`).

Each function yields candidates that look simpler; whether one still shows the finding, and is simpler by measure, the
reducer finds out. Candidates may hold operations that make no sense any more: replaying leaves those out. Everything is
yielded in a fixed order, the boldest step first, so that reducing is deterministic.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from itertools import chain, combinations
from typing import TypeAlias, TypeVar, cast, get_args

from ...model.ops import Advance, Allocate, AllocateBatch, Group, Kind, Operation, Submit
from ..findings.finding import Trace
from ..findings.starved import Starved
from ..findings.words import requests_of
from ..kinds import SIMPLEST
from ..workload.bounds import without_rows

Knob: TypeAlias = Callable[[Trace, int], Trace]
"""Lowers one quantity of a trace by an amount."""

SIMPLE_FIRST: tuple[Kind, ...] = (*SIMPLEST, *get_args(Kind))
"""Kinds of attention, the simplest first."""
MODES = ("none", "all", "align")
T = TypeVar("T")
TOKENS = frozenset(("prompt", "sampled", "embeds"))
EXHAUSTIVE = 12
"""Numbers up to this are lowered to every smaller one, larger ones in strides."""


@cache
def _defaults_of(kind: Hashable) -> dict[str, object]:
    return {field.name: field.default for field in fields(kind)}  # type: ignore[arg-type]  # only dataclasses come here


def _defaults(value: object) -> dict[str, object]:
    return _defaults_of(cast(Hashable, type(value)))


def weight(value: object) -> int:
    """How much there is to read in a value: its numbers, lengths and fields that are not at their default, summed."""
    if isinstance(value, int):
        return abs(value) + (value < 0)
    if isinstance(value, tuple):
        return len(value) + sum(map(weight, value))
    if not is_dataclass(value):
        return 0
    defaults = _defaults(value)
    total = SIMPLE_FIRST.index(value.kind) if isinstance(value, Group) else int(isinstance(value, Starved))
    for name, default in defaults.items():
        content = getattr(value, name)
        if content != default:
            total += 1 + weight(content) + (MODES.index(content) if name == "mamba_mode" else 0)
    return total


def request_of(operation: Operation) -> str | None:
    """The request that an operation names, if any."""
    return getattr(operation, "request", None)


def with_changes(trace: Trace, changes: dict[int, Operation], gone: frozenset[int] = frozenset()) -> Trace:
    """The trace with operations replaced and removed, by index."""
    kept = (changes.get(i, op) for i, op in enumerate(trace.operations) if i not in gone)
    return Trace(trace.shape, tuple(kept))


def put(value: T, path: tuple[str | int, ...], new: object) -> T:
    """A copy of a trace or of a part of it, with the value at `path` in it replaced."""
    return cast(T, _put(value, path, new))


def _put(value: object, path: tuple[str | int, ...], new: object) -> object:
    if not path:
        return new
    step, rest = path[0], path[1:]
    if isinstance(value, tuple) and isinstance(step, int):
        return (*value[:step], _put(value[step], rest, new), *value[step + 1 :])
    return replace(value, **{str(step): _put(getattr(value, str(step)), rest, new)})  # type: ignore[type-var]


def numbers(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], int]]:
    """Every number in a value, with the path to it; truth values are none."""
    if isinstance(value, tuple):
        for i, element in enumerate(value):
            yield from numbers(element, (*path, i))
    elif is_dataclass(value):
        for name in _defaults(value):
            yield from numbers(getattr(value, name), (*path, name))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield path, value


def smaller(number: int) -> Iterator[int]:
    """Numbers to try instead, the boldest first."""
    if number < 0:
        yield from (-number, -1)
        yield from range(-EXHAUSTIVE, 0)
    elif number <= EXHAUSTIVE:
        yield from range(number)
    else:
        yield from (0, 1, 2, number // 4, number // 2, number * 3 // 4, number * 7 // 8, number - 2, number - 1)


def variants(value: object) -> Iterator[object]:
    """Simpler values of the same type: fewer elements, smaller numbers, fields at their default."""
    if isinstance(value, bool):
        if value:
            yield False
    elif isinstance(value, int):
        yield from smaller(value)
    elif isinstance(value, tuple):
        yield from _shorter(value)
        for i, element in enumerate(value):
            yield from ((*value[:i], other, *value[i + 1 :]) for other in variants(element))
    elif is_dataclass(value):
        if isinstance(value, Starved):
            yield value.allocation
        for name, default in _defaults(value).items():
            content = getattr(value, name)
            if content == default or name == "request":
                continue
            if default is not MISSING:
                yield replace(value, **{name: default})  # type: ignore[type-var]
            yield from (replace(value, **{name: other}) for other in variants(content))  # type: ignore[type-var]


def _shorter(elements: tuple[object, ...]) -> Iterator[tuple[object, ...]]:
    """Fewer elements: all gone, then ever smaller pieces from the end and from the start, then single ones."""
    if elements:
        yield ()
    size = len(elements) // 2
    while size:
        yield elements[:-size]
        yield elements[size:]
        size //= 2
    for i in range(1, len(elements) - 1):
        yield elements[:i] + elements[i + 1 :]


def simpler_operations(trace: Trace) -> Iterator[Trace]:
    """One operation simpler."""
    for i, operation in enumerate(trace.operations):
        for other in variants(operation):
            yield put(trace, ("operations", i), other)


def plain_everywhere(trace: Trace) -> Iterator[Trace]:
    """One field at its default in all operations of a kind: two requests may only agree because both set it."""
    kinds = {type(op): op for op in trace.operations}
    for kind, example in kinds.items():
        for name, default in _defaults(example).items():
            if default is not MISSING:
                plain = {
                    i: put(op, (name,), default)
                    for i, op in enumerate(trace.operations)
                    if type(op) is kind and getattr(op, name) != default
                }
                if plain:
                    yield with_changes(trace, plain)


def plain_tokens(trace: Trace) -> Iterator[Trace]:
    """The same token everywhere, or tokens numbered in the order in which they come up; embeddings as tokens."""
    yield _map_tokens(trace, lambda tokens: (0,) * len(tokens))
    numbering: dict[int, int] = {}
    yield _map_tokens(trace, lambda tokens: tuple(numbering.setdefault(token, len(numbering)) for token in tokens))
    for i, op in enumerate(trace.operations):
        if isinstance(op, Submit) and any(op.prompt):
            yield put(trace, ("operations", i, "prompt"), (0,) * len(op.prompt))
        if isinstance(op, Submit) and op.embeds is not None:
            yield put(trace, ("operations", i), replace(op, prompt=_rows(op), embeds=None))


def _rows(op: Submit) -> tuple[int, ...]:
    """The row at each position; the token where there is none."""
    rows = zip(op.prompt, op.embeds or (), strict=False)
    return tuple(token if row is None else row for token, row in rows)


def _map_tokens(trace: Trace, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Trace:
    changed: list[Operation] = []
    for op in trace.operations:
        if isinstance(op, Submit):
            embeds = op.embeds and tuple(
                None if old is None else new for old, new in zip(op.embeds, change(_rows(op)), strict=True)
            )
            op = replace(op, prompt=without_rows(change(op.prompt), embeds), embeds=embeds)
        elif isinstance(op, Advance):
            op = replace(op, sampled=change(op.sampled))
        changed.append(op)
    return Trace(trace.shape, tuple(changed))


def plain_names(trace: Trace) -> Iterator[Trace]:
    """Requests called a, b, c in the order in which they come up."""
    names = dict.fromkeys(chain.from_iterable(map(requests_of, trace.operations)))
    plain = {name: _letters(i) for i, name in enumerate(names)}
    yield Trace(trace.shape, tuple(renamed(op, plain) for op in trace.operations))


def renamed(operation: Operation, names: Mapping[str, str]) -> Operation:
    """The operation on the requests of other names."""
    if isinstance(operation, AllocateBatch):
        return replace(operation, requests=tuple(names.get(name, name) for name in operation.requests))
    name = request_of(operation)
    return operation if name is None else put(operation, ("request",), names.get(name, name))


def _letters(number: int) -> str:
    """a .. z, aa, ab ..."""
    head, tail = divmod(number, 26)
    return (_letters(head - 1) if head else "") + chr(ord("a") + tail)


# Several values at once.


def shorter_prompts(trace: Trace) -> Iterator[Trace]:
    """Prompts lose tokens in front or at the end, and allocations ask for as many less."""
    longest = max((len(op.prompt) for op in trace.operations if isinstance(op, Submit)), default=0)
    unit = trace.shape.hash_block_size
    names: list[str | None] = [None, *dict.fromkeys(filter(None, map(request_of, trace.operations)))]
    for cut in sorted({longest // 2, longest // 4, 4 * unit, 2 * unit, unit, 2, 1}, reverse=True):
        for name in names if 0 < cut < longest else ():
            for front in (True, False):
                for lower in (True, False):
                    yield _cut_prompts(trace, name, cut, front, lower)


def _cut_prompts(trace: Trace, name: str | None, cut: int, front: bool, lower: bool) -> Trace:
    """Without `cut` tokens of the prompt of one request, or of all; `lower` takes them off the allocations too."""
    changed: list[Operation] = []
    for op in trace.operations:
        if name is None or request_of(op) == name:
            if isinstance(op, Submit) and len(op.prompt) > cut:
                kept = slice(cut, None) if front else slice(None, -cut)
                op = replace(op, prompt=op.prompt[kept], embeds=op.embeds and op.embeds[kept])
            elif isinstance(op, Allocate) and lower and op.new_tokens > cut:
                op = replace(op, new_tokens=op.new_tokens - cut)
        changed.append(op)
    return Trace(trace.shape, tuple(changed))


def lowered_together(trace: Trace) -> Iterator[Trace]:
    """Two quantities lower by the same amount: a smaller pool *and* a request for fewer blocks."""
    knobs = list(_knobs(trace))
    for amount in dict.fromkeys((trace.shape.hash_block_size, 1)):
        for first, second in combinations(knobs, 2):
            yield second(first(trace, amount), amount)
    unit = trace.shape.hash_block_size
    fewer_blocks = _lower(("shape", "num_blocks"))
    for knob in knobs if unit > 1 else ():
        yield fewer_blocks(knob(trace, unit), 1)


def _knobs(trace: Trace) -> Iterator[Knob]:
    for path, value in numbers(trace):
        if value > 0 and not TOKENS.intersection(path):
            yield _lower(path)
    for i, op in enumerate(trace.operations):
        if isinstance(op, Submit) and len(op.prompt) > 1:
            yield _shorten(i, op.request, True)
            yield _shorten(i, op.request, False)


def _lower(path: tuple[str | int, ...]) -> Knob:
    def turn(trace: Trace, amount: int) -> Trace:
        value: object = trace
        for step in path:
            value = value[step] if isinstance(value, tuple) and isinstance(step, int) else getattr(value, str(step))
        return put(trace, path, max(0, value - amount)) if isinstance(value, int) else trace

    return turn


def _shorten(index: int, name: str, lower: bool) -> Knob:
    return lambda trace, amount: _cut_prompts(trace, name, amount, False, lower)
