"""The pool keeps its invariants (S4) when blocks are named, for any number of them: induction over its own loops."""

from typing import Any

import z3

from ..heap_theorem import HeapTheorem
from ..invariants.induction import Loop, Operation, claim
from ..invariants.listings import Gathered, Indices
from ..invariants.pool import Fields, Table
from ..invariants.rounds import Range
from ..invariants.small_pools import PoolState, batches, everywhere, key, real_pool, require
from ..symbolic import SymbolicBool, SymbolicInt, running, term
from .invariants_pool import PARTS, Start, is_symbolic, own_code, parts_of, plain_part, wrong

# `cache_full_blocks`.


class _Content:
    """The content of a request up to the end of one of its blocks."""

    def __init__(self, index: Any) -> None:
        self.index = index

    def __add__(self, group: bytes) -> "_Content":
        """The key of a group, which is the same for all of a call."""
        return self


class _Contents:
    """The contents of a request's blocks: as many as the call needs."""

    any_length = True

    def __init__(self, length: Any) -> None:
        self._length = length

    def symbolic_len(self) -> Any:
        """How many."""
        return self._length

    def __getitem__(self, index: Any) -> _Content:
        return _Content(index)


class _Mask:
    """Which blocks of the range a later hit can want."""

    def __init__(self) -> None:
        self.wanted = z3.Function("wanted", z3.IntSort(), z3.BoolSort())

    def __getitem__(self, index: Any) -> SymbolicBool:
        return SymbolicBool(self.wanted(term(index)))


class FakeRequest:
    """A request with its contents."""

    def __init__(self, block_hashes: Any) -> None:
        self.block_hashes, self.request_id = block_hashes, "request"


def _registered(f: Any, v: Any) -> Any:
    cache_full_blocks = own_code(f, "cache_full_blocks")
    if not is_symbolic(v):
        return everywhere(f, lambda state: _register_small(f, cache_full_blocks, state))
    start = Start(f, v)
    count, free, named, _ = start.fields
    entry, stands = (z3.Function(name, z3.IntSort(), z3.IntSort()) for name in ("entry", "stands"))
    mask, first, end = _Mask(), term(v.first), term(v.end)

    def at(i: Any) -> Any:
        """The block in an entry: of the pool, in no other entry unless it is null (S2). Entries behind the registered
        ones have no identity yet: that is what the count of registered ones means."""
        block = entry(i)
        running().assume(z3.And(block >= 0, block < start.size, z3.Implies(block != 0, stands(block) == i)))
        running().assume(z3.Implies(z3.And(i >= first, i < end, block != 0), z3.Not(named(block))))
        return block

    def chosen(rounds: Any, i: Any) -> Any:
        inside = z3.And(i >= first, i < first + rounds)
        wanted = z3.Or(z3.Not(term(v.masked)), mask.wanted(i - first))
        return z3.And(inside, wanted, at(i) != 0)

    gathered = Gathered("chosen", chosen, Indices)
    indices = gathered.after(z3.simplify(end - first))

    def after(t: Any) -> Fields:
        def now(x: Any) -> Any:
            i = stands(x)
            return z3.Or(named(x), z3.And(at(i) == x, indices.holds(i), indices.place(i) < t))

        return Fields(count, free, now)

    def right(key: Any, block: Any) -> Any:
        return isinstance(key, _Content) and SymbolicBool(at(term(key.index)) == block.reference)

    loops = (
        Loop(
            SymbolicInt(z3.simplify(end - first)), lambda i: start.fields, Range(v.first, v.end), {"chosen": gathered}
        ),
        Loop(SymbolicInt(indices.length), after, indices, inserts=right),
    )
    contents = _Contents(v.hashes)
    arguments = (FakeRequest(contents), Table(start.moment, at), v.first, v.end, 1, 0, mask if v.masked else None)
    return claim(
        Operation(cache_full_blocks, start.moment, arguments, loops, after(indices.length)), plain_part(v.part), v.i
    )


def _register_small(f: Any, cache_full_blocks: Any, state: PoolState) -> None:
    own = len(state.counts) - 1
    for entries in batches(own):
        real = [block for block in entries if block]
        if len(real) != len(set(real)):
            continue
        for first in range(len(entries) + 1):
            if any(state.named[block] for block in entries[first:]):
                continue
            for mask in (None, [number % 2 == 0 for number in range(len(entries) - first)]):
                pool = real_pool(f, state)
                request = FakeRequest([key(100 + number) for number in range(len(entries))])
                table = [pool.blocks[block] for block in entries]
                cache_full_blocks(pool, request, table, first, len(entries), 1, 0, mask)
                what = f"cache_full_blocks({list(entries)}, {first}, {mask}) in {state}"
                named = list(state.named)
                for number, block in enumerate(entries[first:]):
                    if block and (mask is None or mask[number]):
                        named[block] = True
                        if pool.blocks[block].block_hash != key(100 + first + number) + bytes(4):
                            raise AssertionError(f"{what}: block {block} is named {pool.blocks[block].block_hash!r}")
                require(pool, state.counts, named, what)


REGISTER = HeapTheorem(
    id="S4.register",
    sentence="`cache_full_blocks` names any number of blocks, each after the content of its own entry, never the null "
    "block, registers exactly what it names, and moves no block.",
    variables={
        **PARTS,
        "first": "entries registered before",
        "end": "full entries",
        "hashes": "contents that the request knows",
        "masked": "whether some blocks are not wanted",
    },
    assume=lambda v: [*parts_of(v, 2), v.first >= 0, v.hashes >= v.end],
    claim=_registered,
    meaning="A later hit finds the content that it asks for.",
    controls=(
        wrong("cache_full_blocks", "it is not registered", "insert(key, block)", "pass"),
        wrong(
            "cache_full_blocks",
            "a block is named after the entry before its own",
            "key = block._block_hash = make_block_hash_with_group_id(hashes[i], kv_cache_group_id)",
            "key = block._block_hash = make_block_hash_with_group_id(hashes[i - 1], kv_cache_group_id)",
        ),
        wrong(
            "cache_full_blocks",
            "the null block is named, too",
            "if block.is_null or (block_mask is not None and not block_mask[i - num_cached_blocks]):",
            "if block_mask is not None and not block_mask[i - num_cached_blocks]:",
        ),
    ),
)


# `reset_prefix_cache`.


def _reset(f: Any, v: Any) -> Any:
    reset_prefix_cache = own_code(f, "reset_prefix_cache")
    if not is_symbolic(v):
        return everywhere(f, lambda state: _reset_small(f, reset_prefix_cache, state))
    start = Start(f, v)
    count, free, named, _ = start.fields
    running().assume(start.moment.order.length == start.size - 1)

    def nothing(x: Any) -> Any:
        return z3.BoolVal(False)

    def forgotten(i: Any) -> Fields:
        return Fields(count, free, lambda x: z3.And(named(x), x >= i), nothing)

    loop = Loop(v.size, forgotten)
    end = Fields(count, free, nothing)
    operation = Operation(reset_prefix_cache, start.moment, (), (loop,), end, lambda value: value is True)
    return claim(operation, plain_part(v.part), v.i)


def _reset_small(f: Any, reset_prefix_cache: Any, state: PoolState) -> None:
    if any(state.counts[1:]):
        return
    pool = real_pool(f, state)
    what = f"reset_prefix_cache() in {state}"
    if reset_prefix_cache(pool) is not True:
        raise AssertionError(f"{what}: refused, and nothing is held")
    require(pool, state.counts, [False] * len(state.counts), what)


RESET = HeapTheorem(
    id="S4.reset",
    sentence="`reset_prefix_cache`, with all blocks free, takes every identity and moves no block.",
    variables=PARTS,
    assume=lambda v: parts_of(v, 1),
    claim=_reset,
    meaning="After a reset nothing that was cached is found.",
    controls=(
        wrong("reset_prefix_cache", "blocks keep their identity", "block.reset_hash()", "pass"),
        wrong(
            "reset_prefix_cache",
            "the map goes on to find them",
            "self.cached_block_hash_to_block = BlockHashToBlockMap()",
            "pass",
        ),
    ),
)

THEOREMS = (REGISTER, RESET)
