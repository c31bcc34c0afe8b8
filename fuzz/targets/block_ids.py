"""Block ids that a target names: each must be one of the pool's. Asked once, before an oracle or a reader of the state
sees an answer; nobody behind that asks again.

An engine that names another block makes its kernels read or write memory that is not the cache's. What a target hides
means nothing, so it is not asked of, and nobody else may read it either (`without_hidden`).
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias, TypeVar, cast

from ...model import ops
from ...model.ops import Done, Operation, Outcome
from ...model.snapshot import Snapshot

STRAY_ID = "S4"
"""The property of the contract that an id outside of the pool violates."""
_TELLS = frozenset({ops.Lookup, ops.Allocate, ops.ReadTable, ops.Free, ops.Take, ops.TakeNewBlockIds})
"""Operations whose answers name blocks."""
_TELLS_ALL = frozenset({ops.Free, ops.Take, ops.TakeNewBlockIds})
"""Those that name them without a row for each group. The end of a request names those that are kept, if any."""
Id = TypeVar("Id")
Named: TypeAlias = tuple[str, Sequence[Id]]
"""Who names blocks, in words that go before a verb, and the ids."""


def stray_id(
    operation: Operation | None,
    outcome: Outcome,
    shown: Snapshot,
    num_blocks: int,
    hidden: Collection[str] = (),
    known: Snapshot | None = None,
) -> str | None:
    """A sentence about the first id that is no block of the pool, and who names it; None if there is none.

    `shown` has the right types (`answers.problem_with_answer`); of the outcome's value nothing is taken for granted. In
    what is an object of the snapshot `known`, too, there is none (`answers.kept`).
    """
    if type(operation) in _TELLS and not _tells_blocks(operation, outcome, num_blocks):
        for who, told in _in_outcome(operation, outcome):
            for one in told:
                if problem := _problem(one, num_blocks):
                    return f"{who} {problem}"
    if shown is known or _are_blocks(_all_ids(shown, hidden, known), num_blocks):
        return None
    for who, ids in _in_state(shown, hidden):
        if not _are_blocks(ids, num_blocks):
            return f"{who} {next(filter(None, (_problem(one, num_blocks) for one in ids)))}"
    return None


def stray_copy(copies: object, num_blocks: int) -> str | None:
    """The same of the copies between blocks that a target asks for: pairs of source and destination."""
    if not isinstance(copies, Sequence):
        return f"the copies are a {type(copies).__name__}; expected pairs of source and destination"
    for copy in copies:
        if not isinstance(copy, Sequence) or isinstance(copy, str) or len(copy) != 2:
            return f"the copies hold {_short(copy)}; expected a pair of source and destination"
        for block in copy:
            if problem := _problem(block, num_blocks):
                return f"a copy from {_short(copy[0])} to {_short(copy[1])} {problem}"
    return None


def without_hidden(shown: Snapshot, num_blocks: int, hidden: Collection[str]) -> Snapshot:
    """The snapshot with empty values for what is hidden. Tables and references stay: they are completed elsewhere."""
    if not hidden:
        return shown
    nothing: list[int | None] = [None] * num_blocks
    none_in_groups: list[dict[str, int]] = [{} for _ in shown.tables]
    pending: list[list[int]] = [[] for _ in shown.tables]
    ref_cnt, tables = shown.ref_cnt, shown.tables
    empty = Snapshot([], 0, 0.0, ref_cnt, tables, none_in_groups, nothing, nothing, 0, (), pending, None)
    return shown._replace(**{name: getattr(empty, name) for name in Snapshot._fields if name in hidden})


def _all_ids(shown: Snapshot, hidden: Collection[str], known: Snapshot | None) -> Collection[int]:
    """All that `_in_state` yields of what is not in `known`, at once: that nothing is wrong is asked after every
    operation."""
    ids: set[int] = set()
    if "free" not in hidden and (known is None or shown.free is not known.free):
        ids.update(shown.free)
    if "tables" not in hidden and (known is None or shown.tables is not known.tables):
        for tables in shown.tables:
            ids.update(*tables.values())
    if "new_block_ids" not in hidden and (known is None or shown.new_block_ids is not known.new_block_ids):
        ids.update(*shown.new_block_ids)
    if "earliest" not in hidden and (known is None or shown.earliest is not known.earliest):
        ids |= cast("set[int]", {*shown.earliest} - {None})
    return ids


def _are_blocks(ids: Collection[int], num_blocks: int) -> bool:
    """True if these integers are all blocks of the pool: the quick way to ask."""
    return not ids or (min(ids) >= 0 and max(ids) < num_blocks)


def _tells_blocks(operation: Operation | None, outcome: Outcome, num_blocks: int) -> bool:
    """True if an answer of the usual form names blocks of the pool only: the quick way to ask, as above."""
    value: Any = (outcome.value or ()) if isinstance(outcome, Done) else ()
    if type(operation) is ops.Lookup and value:
        value = value[1] if isinstance(value, tuple) and len(value) == 2 else None
    if not isinstance(value, tuple):
        return False
    if type(operation) not in _TELLS_ALL:
        value = [*chain.from_iterable([row for row in value if isinstance(row, tuple)])]
    return {int}.issuperset(map(type, value)) and _are_blocks(value, num_blocks)


def _problem(one: object, num_blocks: int) -> str | None:
    if type(one) is not int:
        return f"names {_short(one)}, a {type(one).__name__}, where the id of a block has to stand"
    if not 0 <= one < num_blocks:
        return f"names block {one}, the pool has 0 .. {num_blocks - 1}"
    return None


def _short(one: object) -> str:
    text = repr(one)
    return text if len(text) <= 60 else f"{text[:56]} ..."


def _in_state(shown: Snapshot, hidden: Collection[str]) -> Iterator[Named[int]]:
    if "free" not in hidden:
        yield "the free list", shown.free
    if "tables" not in hidden:
        for group, tables in enumerate(shown.tables):
            for name, table in tables.items():
                yield f"the table of {name} in group {group}", table
    if "earliest" not in hidden:
        yield "`earliest`, the block that a lookup yields,", [one for one in shown.earliest if one is not None]
    if "new_block_ids" not in hidden:
        for group, new in enumerate(shown.new_block_ids):
            yield f"the pending list of new blocks of group {group}", new


def _in_outcome(operation: Operation | None, outcome: Outcome) -> Iterator[Named[object]]:
    if not isinstance(outcome, Done):
        return
    value: object = outcome.value
    kind = type(operation).__name__
    match operation, value:
        case ops.Lookup(), (_, tuple(rows)):
            yield from _by_group(f"the hit of {kind} {operation.request}", rows)
        case ops.Allocate() | ops.ReadTable(), tuple(rows):
            told = "new blocks" if isinstance(operation, ops.Allocate) else "table"
            yield from _by_group(f"the answer of {kind} {operation.request}, its {told},", rows)
        case ops.Free() | ops.Take() | ops.TakeNewBlockIds(), tuple(blocks):
            yield f"the answer of {kind}", blocks


def _by_group(who: str, rows: Sequence[object]) -> Iterator[Named[object]]:
    """The rows, one for each group; whether there are as many is for others to say."""
    for group, row in enumerate(rows):
        if isinstance(row, tuple):
            yield f"{who} in group {group}", row
