"""The pool keeps its invariants (S1, S4) in any state, for batches of any length: induction over its own loops.

From any pool, of any number of blocks, in which exactly what nobody holds is free, the null block is neither free nor
named, and exactly what carries an identity is registered, every operation leads to such a pool. What the free queue
does is taken from T25, which proves it of its links for any length.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import z3

from ...impl import BlockPool
from ..heap_theorem import HeapTheorem
from ..invariants.induction import Batch, Loop, Operation, claim
from ..invariants.pool import Fields, Gathered, Indices, Listing, Moment, Table
from ..invariants.rounds import Range
from ..invariants.small_pools import PoolState, batches, everywhere, key, real_pool, require
from ..symbolic import SymbolicBool, SymbolicInt, running, term
from ..theorem import NegativeControl, UnavailableError
from .wrong_loops import changed

_PARTS = {
    "size": "blocks of the pool",
    "part": "0 before the first loop, 2k + 1 a round of loop k, 2k + 2 what comes behind it",
    "i": "rounds before",
}
_BATCH = {**_PARTS, "m": "blocks in the batch"}


class _Start:
    """A pool of any size: how many references each block has, and which carry an identity."""

    def __init__(self, f: Any, v: Any, caching: Any = True) -> None:
        count, named = (
            z3.Function("count", z3.IntSort(), z3.IntSort()),
            z3.Function("named", z3.IntSort(), z3.BoolSort()),
        )
        self.size = term(v.size)
        known: dict[int, Any] = {}

        def facts(x: Any) -> None:
            if x.get_id() in known:
                return
            known[x.get_id()] = x
            inside = z3.And(x >= 1, x < self.size)
            running().assume(z3.Implies(inside, count(x) >= 0))
            running().assume(z3.Implies(z3.Or(x == 0, z3.Not(term(caching))), z3.Not(named(x))))

        self.fields = Fields(count, lambda x: count(x) == 0, named)
        self.moment = Moment(f, "start", v.size, caching, self.fields, facts)

    def holds(self, x: Any) -> Any:
        """Is it a block of the pool, the null block left out?"""
        return z3.And(x >= 1, x < self.size)


def _symbolic(v: Any) -> bool:
    return isinstance(v.size, SymbolicInt)


def _wrong(role: str, what: str, line: str, instead: str) -> NegativeControl:
    """Our core's method with one line changed."""
    return NegativeControl(what, {role: changed(getattr(BlockPool, role), line, instead)})


def _bounds(v: Any, loops: int) -> list[Any]:
    return [v.size >= 1, v.part >= 0, v.part <= 2 * loops]


def _own_code(f: Any, role: str) -> Any:
    """The method; only of a pool whose loops are written so that they can be cut."""
    method = getattr(f, role)
    if not f.pool_kind.__module__.startswith("blockproof."):
        raise UnavailableError("the induction is written for the loops of our core's pool")
    return method


def _expect(counts: Sequence[int], times: Iterable[int], sign: int) -> list[int]:
    changes = Counter(times)
    return [count + sign * changes[block] * (block != 0) for block, count in enumerate(counts)]


# `touch`.


def _touched(f: Any, v: Any) -> Any:
    touch = _own_code(f, "touch")
    if not _symbolic(v):
        return everywhere(f, lambda state: _touch_small(f, touch, state))
    start = _Start(f, v)
    batch = Batch(v.m, v.size)
    count, _, named, _ = start.fields

    def held(i: Any) -> Fields:
        def now(x: Any) -> Any:
            return count(x) + batch.times(x, i)

        return Fields(now, lambda x: now(x) == 0, named)

    loops = (Loop(v.m, lambda i: start.fields, batch), Loop(v.m, held, batch))
    return claim(Operation(touch, start.moment, (batch,), loops, held(batch.length)), _plain(v.part), v.i)


def _touch_small(f: Any, touch: Any, state: PoolState) -> None:
    for ids in batches(len(state.counts) - 1):
        pool = real_pool(f, state)
        touch(pool, [pool.blocks[block] for block in ids])
        require(pool, _expect(state.counts, ids, 1), state.named, f"touch({list(ids)}) in {state}")


def _plain(part: Any) -> int:
    """The part, on the path that is about it."""
    number = 0
    while part != number:
        number += 1
    return number


TOUCH = HeapTheorem(
    id="S1.touch",
    sentence="`touch` keeps S1 and S4 in a pool of any size, for a batch of any length, whatever stands in it twice.",
    formal="count'(x) = count(x) + entries of x; free' = {x : count'(x) = 0}; identities as before",
    variables=_BATCH,
    assume=lambda v: [*_bounds(v, 2), v.m >= 0],
    claim=_touched,
    meaning="A hit cannot be handed out, however many blocks and references there are.",
    controls=(
        _wrong("touch", "what is free stays in the queue", "remove(block)", "pass"),
        _wrong("touch", "a block that stands in it twice counts once", "block.ref_cnt += 1", "block.ref_cnt = 1"),
        _wrong("touch", "the null block is treated like any other", "if block is not null:", "if True:"),
    ),
)


# `free_blocks`.


def _freed(f: Any, v: Any) -> Any:
    free_blocks = _own_code(f, "free_blocks")
    if not _symbolic(v):
        return everywhere(f, lambda state: _free_small(f, free_blocks, state))
    start = _Start(f, v)
    batch = Batch(v.m, v.size)
    count, free, named, _ = start.fields

    def enough(x: Any) -> Any:
        """What is given back is held: assumed of each block that is met."""
        running().assume(z3.Implies(start.holds(x), batch.times(x, batch.length) <= count(x)))
        return x

    def held(i: Any) -> Fields:
        return Fields(lambda x: count(enough(x)) - batch.times(x, i), free, named)

    def let_go(i: Any, x: Any) -> Any:
        """Blocks that had references, and all of them are given back by now."""
        gone = z3.And(count(x) > 0, count(x) == batch.times(x, i))
        return z3.And(start.holds(enough(x)), gone)

    def in_the_end(x: Any) -> Any:
        return count(enough(x)) == batch.times(x, batch.length)

    loop = Loop(v.m, held, batch, {"freed": Gathered("freed", let_go)})
    end = Fields(lambda x: count(x) - batch.times(x, batch.length), in_the_end, named)
    return claim(Operation(free_blocks, start.moment, (batch, v.front), (loop,), end), _plain(v.part), v.i)


def _free_small(f: Any, free_blocks: Any, state: PoolState) -> None:
    for ids in batches(len(state.counts) - 1, 3):
        expected = _expect(state.counts, ids, -1)
        if min(expected[1:], default=0) < 0:
            continue
        for front in (False, True):
            pool = real_pool(f, state)
            free_blocks(pool, [pool.blocks[block] for block in ids], front)
            require(pool, expected, state.named, f"free_blocks({list(ids)}, {front}) in {state}")


FREE = HeapTheorem(
    id="S1.free",
    sentence="`free_blocks` keeps S1 and S4 in a pool of any size, for a batch of any length in which no block stands "
    "more often than it is held.",
    formal="count'(x) = count(x) - entries of x; free' = {x : count'(x) = 0}; identities as before",
    variables={**_BATCH, "front": "whether they go to the front"},
    assume=lambda v: [*_bounds(v, 1), v.m >= 0],
    claim=_freed,
    meaning="What several groups give up in one call is freed when the last reference goes, and once.",
    controls=(
        _wrong("free_blocks", "what is still held is freed", "if references == 1:", "if references >= 1:"),
        _wrong("free_blocks", "the last reference is not given back", "block.ref_cnt = references - 1", "pass"),
        _wrong("free_blocks", "the null block is freed like any other", "if block is null:", "if False:"),
        _wrong("free_blocks", "the front is forgotten", "self.free_block_queue.prepend_n(freed)", "pass"),
    ),
)


# `get_new_blocks`.


def _taken(f: Any, v: Any) -> Any:
    get_new_blocks = _own_code(f, "get_new_blocks")
    if not _symbolic(v):
        return everywhere(f, lambda state: _take_small(f, get_new_blocks, state))
    start = _Start(f, v, v.caching)
    order, k = start.moment.order, term(v.k)
    running().assume(k <= order.length)
    front = Listing(k, order.at, order.place)
    count, free, named, _ = start.fields

    def handed(t: Any) -> Fields:
        """After `t` rounds: all of the front have left the queue, the first `t` are held and have no identity."""

        def done(x: Any) -> Any:
            return z3.And(front.holds(x), front.place(x) < t)

        return Fields(
            lambda x: z3.If(done(x), z3.IntVal(1), count(x)),
            lambda x: z3.And(free(x), z3.Not(front.holds(x))),
            lambda x: z3.And(named(x), z3.Not(done(x))),
        )

    def right(value: Any) -> Any:
        return isinstance(value, Listing) and value.at is order.at and SymbolicBool(value.length == k)

    operation = Operation(get_new_blocks, start.moment, (v.k,), (Loop(v.k, handed, front),), handed(k), right)
    return claim(operation, _plain(v.part), v.i)


def _take_small(f: Any, get_new_blocks: Any, state: PoolState) -> None:
    for k in range(state.counts[1:].count(0) + 1):
        pool = real_pool(f, state)
        front = pool.free_block_queue.get_all_free_blocks()[:k]
        taken = get_new_blocks(pool, k)
        what = f"get_new_blocks({k}) in {state}"
        if list(taken) != front:
            raise AssertionError(f"{what}: {taken}, not the front {front}")
        ids = [block.block_id for block in front]
        named = [name and block not in ids for block, name in enumerate(state.named)]
        require(pool, _expect(state.counts, ids, 1), named, what)


TAKE = HeapTheorem(
    id="S1.take",
    sentence="`get_new_blocks` keeps S1 and S4 in a pool of any size, for any number of blocks: it hands out the front "
    "of the queue, nobody holds it already, and nobody finds it any more.",
    formal="taken = order[:k]; count'(x in taken) = 1, identity'(x in taken) = none; free' = free - taken",
    variables={**_PARTS, "k": "blocks asked for", "caching": "whether caching is on"},
    assume=lambda v: [*_bounds(v, 1), v.k >= 0],
    claim=_taken,
    meaning="No block that is handed out is held, or found as a hit of what was in it before.",
    controls=(
        _wrong("get_new_blocks", "nobody is said to hold them", "block.ref_cnt = 1", "block.ref_cnt = 0"),
        _wrong("get_new_blocks", "they keep their identity", "self._forget_identity(block)", "pass"),
    ),
)


# `evict_blocks`.


def _evicted(f: Any, v: Any) -> Any:
    evict_blocks = _own_code(f, "evict_blocks")
    if not _symbolic(v):
        return everywhere(f, lambda state: _evict_small(f, evict_blocks, state))
    start = _Start(f, v)
    batch = Batch(v.m, v.size, ids=True)
    count, free, named, _ = start.fields

    def forgotten(i: Any) -> Fields:
        return Fields(count, free, lambda x: z3.And(named(x), batch.times(x, i) == 0))

    loops = (Loop(v.m, lambda i: start.fields, batch), Loop(v.m, forgotten, batch))
    return claim(Operation(evict_blocks, start.moment, (batch,), loops, forgotten(batch.length)), _plain(v.part), v.i)


def _evict_small(f: Any, evict_blocks: Any, state: PoolState) -> None:
    for ids in batches(len(state.counts) - 1):
        pool = real_pool(f, state)
        evict_blocks(pool, ids)
        named = [name and block not in ids for block, name in enumerate(state.named)]
        require(pool, state.counts, named, f"evict_blocks({list(ids)}) in {state}")


EVICT = HeapTheorem(
    id="S1.evict",
    sentence="`evict_blocks` takes the identity of any number of blocks, held or free, and moves no block.",
    formal="identity'(x in ids) = none; count' = count; free' = free",
    variables={**_PARTS, "m": "ids in the batch"},
    assume=lambda v: [*_bounds(v, 2), v.m >= 0],
    claim=_evicted,
    meaning="Eviction by id takes no block from who holds it.",
    controls=(
        _wrong("evict_blocks", "nothing is forgotten", "self._forget_identity(self.blocks[block_id])", "pass"),
        _wrong(
            "evict_blocks",
            "the map goes on to find them",
            "self._forget_identity(self.blocks[block_id])",
            "self.blocks[block_id].reset_hash()",
        ),
    ),
)


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
    cache_full_blocks = _own_code(f, "cache_full_blocks")
    if not _symbolic(v):
        return everywhere(f, lambda state: _register_small(f, cache_full_blocks, state))
    start = _Start(f, v)
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
        Operation(cache_full_blocks, start.moment, arguments, loops, after(indices.length)), _plain(v.part), v.i
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
    formal="identity'(table[i]) = content(i) for wanted i with table[i] not null; count' = count; free' = free",
    variables={
        **_PARTS,
        "first": "entries registered before",
        "end": "full entries",
        "hashes": "contents that the request knows",
        "masked": "whether some blocks are not wanted",
    },
    assume=lambda v: [*_bounds(v, 2), v.first >= 0, v.hashes >= v.end],
    claim=_registered,
    meaning="A later hit finds the content that it asks for.",
    controls=(
        _wrong("cache_full_blocks", "it is not registered", "insert(key, block)", "pass"),
        _wrong(
            "cache_full_blocks",
            "a block is named after the entry before its own",
            "key = block._block_hash = make_block_hash_with_group_id(hashes[i], kv_cache_group_id)",
            "key = block._block_hash = make_block_hash_with_group_id(hashes[i - 1], kv_cache_group_id)",
        ),
        _wrong(
            "cache_full_blocks",
            "the null block is named, too",
            "if block.is_null or (block_mask is not None and not block_mask[i - num_cached_blocks]):",
            "if block_mask is not None and not block_mask[i - num_cached_blocks]:",
        ),
    ),
)


# `reset_prefix_cache`.


def _reset(f: Any, v: Any) -> Any:
    reset_prefix_cache = _own_code(f, "reset_prefix_cache")
    if not _symbolic(v):
        return everywhere(f, lambda state: _reset_small(f, reset_prefix_cache, state))
    start = _Start(f, v)
    count, free, named, _ = start.fields
    running().assume(start.moment.order.length == start.size - 1)

    def nothing(x: Any) -> Any:
        return z3.BoolVal(False)

    def forgotten(i: Any) -> Fields:
        return Fields(count, free, lambda x: z3.And(named(x), x >= i), nothing)

    loop = Loop(v.size, forgotten)
    end = Fields(count, free, nothing)
    operation = Operation(reset_prefix_cache, start.moment, (), (loop,), end, lambda value: value is True)
    return claim(operation, _plain(v.part), v.i)


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
    formal="identity' = none; count' = count; free' = free",
    variables=_PARTS,
    assume=lambda v: _bounds(v, 1),
    claim=_reset,
    meaning="After a reset nothing that was cached is found.",
    controls=(
        _wrong("reset_prefix_cache", "blocks keep their identity", "block.reset_hash()", "pass"),
        _wrong(
            "reset_prefix_cache",
            "the map goes on to find them",
            "self.cached_block_hash_to_block = BlockHashToBlockMap()",
            "pass",
        ),
    ),
)

THEOREMS = (TOUCH, FREE, TAKE, EVICT, REGISTER, RESET)
