"""Trace files: a shape, the operations applied to it, and what came of it, as JSON with a schema number.

A trace is data only. Its parts are read one by one, each with limits of its own.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from ...model.attention import RULES
from ...model.ops import Item, Kind, Operation, Shape, Submit
from ..findings.cause import Cause
from ..findings.finding import LOST, Finding, Trace
from ..findings.ops_json import cause_from_json, operation_from_json, shape_from_json, to_json
from ..findings.oracle_names import ADDITIONS, EVERY
from ..findings.reading import MAX_FILE_BYTES
from ..findings.visible import whole
from ..findings.writing import write_file
from ..kinds import KINDS
from .files import Form, TraceError, decode, envelope, read_file

SCHEMA = 1
MAX_PART_BYTES = 2**20
"""Longest shape or single operation, in bytes of JSON."""
MAX_OPERATIONS = 1_000_000
MAX_NUMBER = 2**31
MAX_NUM_BLOCKS = 2**20
MAX_MODEL_LEN = 2**20
"""In tokens. Tables are padded up to it, so this bounds the memory of a run."""
MAX_GROUPS = 32
MAX_POOL_TOKENS = 2**26
"""Blocks times tokens of the largest: the shadow memory has a place for each, so this bounds the memory of a run."""
MAX_BLOCK_OPERATIONS = 2**28
"""Blocks times operations: each block is looked at after each operation, so this bounds the time of a run."""
MAX_RANKS = 1024
_SIZE, _COUNT = (1, MAX_NUMBER), (0, MAX_NUMBER)
SHAPE_LIMITS: Mapping[str, tuple[int, int]] = {
    "num_blocks": (1, MAX_NUM_BLOCKS),
    "max_model_len": (1, MAX_MODEL_LEN),
    "hash_block_size": _SIZE,
    "scheduler_block_size": _SIZE,
    "max_num_batched_tokens": _SIZE,
    "decode_parallel": (1, MAX_RANKS),
    "prefill_parallel": (1, MAX_RANKS),
    "sampling": _COUNT,
    "reads_ahead": _SIZE,
    "host_blocks": (0, MAX_NUM_BLOCKS),
}
"""Least and most of the fields of a shape."""
GROUP_LIMITS: Mapping[str, tuple[int, int]] = {
    "block_size": _SIZE,
    "speculative_blocks": (0, MAX_NUM_BLOCKS),
    "num_heads": _SIZE,
    **{name: _COUNT for kind in KINDS.values() for name in kind.needs},
}
"""The same of a group."""
POSITIVE_FOR: Mapping[str, frozenset[Kind]] = {
    name: kinds
    for name in GROUP_LIMITS
    if (kinds := frozenset(kind.name for kind in KINDS.values() if kind.needs.get(name)))
}
"""Fields of a group that must be at least 1 in groups of these kinds."""
FORM = Form("trace", "`blockproof fuzz` or `shrink`", "schema", SCHEMA)

MAX_ITEMS = 1024
"""Items of a prompt: each block looks at each of them."""
MAX_ITEM_TOKENS = 2**20
"""Tokens of all items of a trace: each block names every item that overlaps it, so this bounds the memory of a run."""


class FoundBy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which run found it."""

    engine: str
    seed: int
    version: str
    """Of blockproof."""


class FoundWhat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a trace shows, as it was when the file was written."""

    observable: str
    operation: str
    """Name of the kind of operation, or `start`."""
    text: str
    identity: tuple[str, ...] = ()
    """`Finding.identity`; empty in files of old."""
    cause: Cause | None = None
    """The exception that the finding is about."""
    manner: tuple[str, ...] = ()
    """`Finding.manner`; empty in files of old."""

    @classmethod
    def of(cls, finding: Finding) -> "FoundWhat":
        """The stored form of a finding."""
        return cls(*finding.kind, str(finding), finding.identity, finding.cause, finding.manner)

    def is_shown_by(self, finding: Finding) -> bool:
        """True if this, or what else is objected to at the operation, is what the file was written for; files of old
        say no more than the kind of finding. A function may stand on another line since."""
        identity = _without_lines(self.identity)
        return any(
            (self.observable, self.operation) == one.kind
            and identity in ((), _without_lines(one.identity))
            and self.manner in ((), one.manner)
            for one in finding.every
        )


def _without_lines(identity: tuple[str, ...]) -> tuple[str, ...]:
    """An identity in which places in the code are files and functions only."""
    return tuple(re.sub(r":\d+ in ", " in ", part) for part in identity)


@dataclass(frozen=True)
class TraceFile:
    """What a trace file holds."""

    trace: Trace
    target: str = "impl"
    """Which target the trace was made with."""
    finding: FoundWhat | None = None
    found_by: FoundBy | None = None
    oracles: tuple[str, ...] | None = None
    """What judged when it was found; None in files of old."""
    tensors: str | None = None
    """Where the shadow memory kept its tags, as `opening.oracles.memory_named` takes it; None for lists."""
    compared_with: str | None = None
    """The first of two targets, of which `target` is the second, where the trace shows how they differ."""

    @property
    def lost_its_target(self) -> bool:
        """True if the target crashed or hung in it: whoever runs it again does so in another process."""
        return self.finding is not None and self.finding.observable in LOST


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """`FoundWhat` with its cause still raw: msgspec would leave out unknown fields of the records in it."""

    observable: str
    operation: str
    text: str
    identity: tuple[str, ...] = ()
    manner: tuple[str, ...] = ()
    cause: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))


class Envelope(msgspec.Struct, forbid_unknown_fields=True):
    """The outer layer. The parts stay raw until each is read for itself, so that depth and memory stay bounded."""

    schema: int
    shape: msgspec.Raw
    operations: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MAX_OPERATIONS)]
    target: Annotated[str, msgspec.Meta(max_length=1000)] = "impl"
    finding: _Stored | None = None
    found_by: FoundBy | None = None
    oracles: Annotated[tuple[str, ...], msgspec.Meta(max_length=100)] | None = None
    tensors: Annotated[str, msgspec.Meta(max_length=1000)] | None = None
    compared_with: Annotated[str, msgspec.Meta(max_length=1000)] | None = None


def read_trace(path: Path, max_bytes: int = MAX_FILE_BYTES) -> TraceFile:
    """Read a trace file of at most `max_bytes` bytes. TraceError if that is not possible."""
    return load_trace(read_file(path, FORM, max_bytes), str(path))


def load_trace(data: bytes | str, source: str = "trace") -> TraceFile:
    """Read a trace from its text; `source` stands for the file name in errors. TraceError if it is none."""
    outer = envelope(data.encode() if isinstance(data, str) else data, Envelope, FORM, source)
    shape = _shape(_part(outer.shape, source, "shape"), source)
    if (work := shape.num_blocks * len(outer.operations)) > MAX_BLOCK_OPERATIONS:
        problem = f"{work} blocks times operations, more than {MAX_BLOCK_OPERATIONS}; use fewer of either"
        raise TraceError(source, "operations", problem)
    operations = tuple(
        _operation(_part(part, source, f"operations[{i}]"), source, f"operations[{i}]")
        for i, part in enumerate(outer.operations)
    )
    if (tokens := sum(map(_item_tokens, operations))) > MAX_ITEM_TOKENS:
        problem = f"items of {tokens} tokens, more than {MAX_ITEM_TOKENS}; use fewer or shorter ones"
        raise TraceError(source, "operations", problem)
    if unknown := [name for name in outer.oracles or () if name not in (*EVERY, *ADDITIONS)]:
        problem = f"{unknown[0]!r} is unknown; write some of {', '.join(EVERY)}, or use a newer blockproof"
        raise TraceError(source, "oracles", problem)
    trace, finding = Trace(shape, operations), _found(outer.finding, source)
    said = (outer.target, finding, outer.found_by, outer.oracles or None, outer.tensors, outer.compared_with)
    return TraceFile(trace, *said)


def dump_trace(file: TraceFile | Trace) -> str:
    """The text of a trace file: the same for the same trace, one operation a line, ASCII only."""
    if isinstance(file, Trace):
        file = TraceFile(file)
    judged_by = {"compared_with": file.compared_with, "oracles": file.oracles, "tensors": file.tensors}
    head = (
        ("schema", SCHEMA),
        ("target", file.target),
        *((name, value) for name, value in judged_by.items() if value is not None),
        ("found_by", msgspec.to_builtins(file.found_by)),
        ("finding", msgspec.to_builtins(file.finding)),
        ("shape", to_json(file.trace.shape)),
    )
    lines = [f'  "{name}": {_text(value)},' for name, value in head]
    operations = ",\n".join(f"    {_text(to_json(operation))}" for operation in file.trace.operations)
    return "\n".join(["{", *lines, '  "operations": [', *([operations] if operations else []), "  ]", "}", ""])


def _text(value: object) -> str:
    """JSON that can be read again: half a character, as an error text may have it, becomes its escape."""
    text = json.dumps(value)
    return json.dumps(_whole(value)) if "\\ud" in text else text


def _whole(value: object) -> object:
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, dict):
        return {_whole(name): _whole(part) for name, part in value.items()}
    return [_whole(part) for part in value] if isinstance(value, list | tuple) else value


def write_trace(file: TraceFile, path: Path) -> None:
    """Write a trace file in one piece: an interruption leaves either the old file or the new one."""
    write_file(path, dump_trace(file))


def _part(raw: msgspec.Raw, source: str, place: str) -> object:
    size = len(bytes(raw))
    if size > MAX_PART_BYTES:
        problem = f"{size} bytes, more than the {MAX_PART_BYTES} that a part may have; shorten it"
        raise TraceError(source, place, problem)
    return decode(raw, object, FORM, source, place)


def _found(stored: _Stored | None, source: str) -> FoundWhat | None:
    if stored is None:
        return None
    raw = decode(stored.cause, object, FORM, source, "finding.cause")
    try:
        cause = None if raw is None else cause_from_json(raw, "finding.cause")
    except ValueError as error:
        raise TraceError(source, "", f"{error}; correct or remove it") from None
    return FoundWhat(stored.observable, stored.operation, stored.text, stored.identity, cause, stored.manner)


def _operation(raw: object, source: str, place: str) -> Operation:
    try:
        operation = operation_from_json(raw, place)
    except ValueError as error:
        raise TraceError(source, "", f"{error}; correct or remove it") from None
    check_numbers(operation, source, place)
    if isinstance(operation, Submit):
        check_items(operation.items, source, place)
    return operation


def _item_tokens(operation: Operation) -> int:
    """Tokens of the prompt that its items overlap, each item counted for itself."""
    if not isinstance(operation, Submit):
        return 0
    return sum(min(item.length, len(operation.prompt)) for item in operation.items)


def _shape(raw: object, source: str) -> Shape:
    try:
        shape = shape_from_json(raw)
    except ValueError as error:
        raise TraceError(source, "", f"{error}; correct it") from None
    check_shape(shape, source)
    return shape


def check_shape(shape: Shape, source: str, place: str = "shape") -> None:
    """TraceError for what no file of a finding may have as the shape of a core; `place` is where it has it."""
    check_numbers(shape, source, place)
    for where, problem in shape_problems(shape):
        raise TraceError(source, f"{place}{where.removeprefix('shape')}", f"{problem}; correct it")


def check_items(items: Sequence[Item], source: str, place: str) -> None:
    """TraceError if a prompt has too many."""
    if len(items) > MAX_ITEMS:
        raise TraceError(source, place, f"{len(items)} items, more than {MAX_ITEMS}; use fewer")


def shape_problems(shape: Shape) -> Iterator[tuple[str, str]]:
    """Places and descriptions of what no trace may have: sizes that are not positive, or too large for the machine.

    What else a shape must fulfil, the core's constructor says as its outcome.
    """
    for place, value, least, most in _limits(shape):
        if not least <= value <= most:
            yield place, f"is {value}, must be from {least} to {most}"
    tokens = shape.num_blocks * shape.parallel * max((group.block_size for group in shape.groups), default=0)
    if tokens > MAX_POOL_TOKENS:
        yield (
            "shape.num_blocks",
            f"has room for {tokens} tokens, more than {MAX_POOL_TOKENS}; use fewer or smaller blocks",
        )
    full_only = len(shape.groups) == 1 and RULES[shape.groups[0].kind].is_full
    if shape.parallel > 1 and not full_only:
        # The model has no rules for it: the releases build some of these cores, and refuse or corrupt later.
        yield "shape.decode_parallel", "context parallelism is modelled for one group of full attention only; use 1"


def _limits(shape: Shape) -> Iterator[tuple[str, int, int, int]]:
    """Place, value, least and most."""
    yield "shape.groups", len(shape.groups), 0, MAX_GROUPS
    for name, (least, most) in SHAPE_LIMITS.items():
        yield f"shape.{name}", getattr(shape, name), least, most
    for i, group in enumerate(shape.groups):
        for name, (least, most) in GROUP_LIMITS.items():
            positive = group.kind in POSITIVE_FOR.get(name, ())
            yield f"shape.groups[{i}].{name}", getattr(group, name), max(least, positive), most


def check_numbers(value: object, source: str, place: str) -> None:
    """TraceError if one of the numbers in it is too large, either way."""
    if isinstance(value, int) and abs(value) > MAX_NUMBER:
        raise TraceError(source, place, f"is {value}, beyond {MAX_NUMBER} either way; use a smaller number")
    if isinstance(value, tuple):
        for i, element in enumerate(value):
            check_numbers(element, source, f"{place}[{i}]")
    elif is_dataclass(value):
        for field in fields(value):
            check_numbers(getattr(value, field.name), source, f"{place}.{field.name}")
