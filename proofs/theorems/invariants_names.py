"""The pool keeps its invariants (S4) when blocks are named, for any number of them: induction over its own loops."""

from collections.abc import Callable
from typing import Any

import z3

from ..claims import FailedError
from ..heap_theorem import HeapTheorem
from ..invariants.induction import Loop, Operation, claim
from ..invariants.listings import ANY_PLACE, Gathered, Indices, Listing, OfBlock
from ..invariants.pool import Moment
from ..invariants.pool_parts import Fields
from ..invariants.small_pools import PoolState, batches, everywhere, key, real_pool, require
from ..invariants.start import PARTS, Start, is_symbolic, own_code, parts_of, plain_part, wrong
from ..solver import ProofError
from ..symbolic import SymbolicInt, running, term

# `cache_full_blocks`.


class _Contents:
    """The contents of a request's blocks: as many as the call needs."""

    any_length = True

    def __init__(self, length: Any) -> None:
        self._length = length

    def symbolic_len(self) -> Any:
        """How many."""
        return self._length

    def __getitem__(self, part: slice) -> "_Some":
        start = term(part.start)
        return _Some(lambda j: start + j, term(part.stop) - start)


class _Some:
    """Some of these contents: which one stands at each place, by its index."""

    any_length = True

    def __init__(self, index: Callable[[Any], Any], length: Any) -> None:
        self.index, self.length = index, length

    def any_compressed(self, mask: "_Mask") -> "_Some":
        """Those that the mask wants."""
        chosen = mask.chosen
        return _Some(lambda j: self.index(chosen.at(j)), chosen.length)


class _Mask:
    """Which blocks of the range are to be registered: their places in the range, one behind the other."""

    def __init__(self, chosen: Listing) -> None:
        self.chosen = chosen


class _Range(Listing):
    """A range of a table: the block at each place of it, as a `Listing` where none of them is null."""

    def any_compressed(self, mask: _Mask) -> Listing:
        """Those that the mask wants."""
        chosen = mask.chosen
        return Listing(chosen.length, lambda j: self.at(chosen.at(j)), lambda x: chosen.place(self.place(x)))


class _Table:
    """A table of a request: a block in each of any number of entries. `at` gives their ids, `stands` where each is."""

    any_length = True

    def __init__(self, moment: Moment, at: OfBlock, stands: OfBlock) -> None:
        self._moment, self._at, self._stands = moment, at, stands

    def at_moment(self, moment: Moment) -> "_Table":
        """The same table, its blocks as they are at another moment."""
        return _Table(moment, self._at, self._stands)

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return self._moment.heap.block(self._at(term(index)))
        start = term(index.start)
        return _Range(term(index.stop) - start, lambda j: self._at(start + j), lambda x: self._stands(x) - start)


class FakeRequest:
    """A request with its contents."""

    def __init__(self, block_hashes: Any) -> None:
        self.block_hashes, self.request_id = block_hashes, "request"


def _registered(f: Any, v: Any) -> Any:
    cache_full_blocks = own_code(f, "cache_full_blocks")
    if not is_symbolic(v):
        return everywhere(f, lambda state: _register_small(f, cache_full_blocks, state))
    start = Start(f, v)
    count, free, named, _, shared = start.fields
    entry, stands = (z3.Function(name, z3.IntSort(), z3.IntSort()) for name in ("entry", "stands"))
    wanted, nulls = z3.Function("wanted", z3.IntSort(), z3.BoolSort()), z3.Bool("nulls")
    first, end = term(v.first), term(v.end)

    def at(i: Any) -> Any:
        """The block in an entry: of the pool, in no other entry unless it is null (S2). Entries behind the registered
        ones have no identity yet: that is what the count of registered ones means."""
        block = entry(i)
        inside = z3.And(i >= first, i < end)
        running().assume(z3.And(block >= 0, block < start.made, z3.Implies(block != 0, stands(block) == i)))
        running().assume(z3.Implies(z3.And(inside, block != 0), z3.Not(named(block))))
        running().assume(z3.Implies(z3.And(inside, z3.Not(nulls)), block != 0))
        return block

    def stands_at(x: Any) -> Any:
        at(stands(x))
        return stands(x)

    def chosen(rounds: Any, j: Any) -> Any:
        inside = z3.And(j >= 0, j < end - first)
        return z3.And(inside, z3.Or(z3.Not(term(v.masked)), wanted(j)), at(first + j) != 0)

    table = _Table(start.moment, at, stands_at)
    places = Gathered("chosen", chosen, Indices).after(z3.IntVal(0))
    whole = table[v.first : v.end]
    masked = bool(v.masked) or running().decide(nulls)
    listing = whole.any_compressed(_Mask(places)) if masked else whole
    given = object()

    def mask(blocks: Any, asked: Any) -> Any:
        """What `_mask` says, which the tests hold it to: None for all, else what is wanted and not null."""
        if asked is not (given if v.masked else None) or not isinstance(blocks, _Range):
            raise ProofError("the mask is asked about something else")
        inside = z3.And(ANY_PLACE >= 0, blocks.length > ANY_PLACE)
        same = z3.And(blocks.length == whole.length, z3.Implies(inside, blocks.at(ANY_PLACE) == whole.at(ANY_PLACE)))
        start.moment.owe(same)
        return _Mask(places) if masked else None

    def pairs(moment: Moment, contents: Any, blocks: Listing) -> None:
        if not isinstance(contents, _Some):
            raise ProofError("blocks are registered under something else than contents")
        inside = z3.And(ANY_PLACE >= 0, blocks.length > ANY_PLACE)
        moment.owe(contents.length == blocks.length)
        moment.owe(z3.Implies(inside, at(contents.index(ANY_PLACE)) == blocks.at(ANY_PLACE)))

    start.moment.pool._mask, start.moment.pairs = mask, pairs
    after = Fields(count, free, lambda x: z3.Or(named(x), listing.holds(x)), None, shared)
    loop = Loop(SymbolicInt(z3.simplify(listing.length)), lambda i: start.fields, listing)
    arguments = (FakeRequest(_Contents(v.hashes)), table, v.first, v.end, 1, 0, given if v.masked else None)
    unchanged = running().decide(first >= end)
    operation = Operation(cache_full_blocks, start.moment, arguments, (loop,), start.fields if unchanged else after)
    return claim(operation, plain_part(v.part), v.i)


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
                            raise FailedError(f"{what}: block {block} is named {pool.blocks[block].block_hash!r}")
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
    assume=lambda v: [*parts_of(v, 1), v.first >= 0, v.hashes >= v.end],
    claim=_registered,
    meaning="A later hit finds the content that it asks for.",
    controls=(
        wrong(
            "cache_full_blocks",
            "it is not registered",
            "self.cached_block_hash_to_block.register(group_id, contents, chosen, row)",
            "pass",
        ),
        wrong(
            "cache_full_blocks",
            "a block is named after the entry before its own",
            "chosen, contents = list(blocks[first:end]), hashes[first:end]",
            "chosen, contents = list(blocks[first:end]), hashes[first - 1:end - 1]",
            raises="ValueError",  # at the first entry there are none, and the core counts them
        ),
        wrong(
            "cache_full_blocks",
            "the null block is named, too",
            "mask = self._mask(chosen, block_mask)",
            "mask = block_mask",
        ),
    ),
)


# `reset_prefix_cache`.


def _reset(f: Any, v: Any) -> Any:
    reset_prefix_cache = own_code(f, "reset_prefix_cache")
    if not is_symbolic(v):
        return everywhere(f, lambda state: _reset_small(f, reset_prefix_cache, state))
    start = Start(f, v)
    count, free, named, _, shared = start.fields
    running().assume(start.moment.order.length == start.size - 1)

    def nothing(x: Any) -> Any:
        return z3.BoolVal(False)

    listing = start.moment.registry.all_blocks()
    start.moment.registry.all_blocks = lambda: listing  # type: ignore[method-assign]

    def forgotten(i: Any) -> Fields:
        def waits(x: Any) -> Any:
            return z3.And(named(x), z3.Not(z3.And(listing.holds(x), listing.place(x) < i)))

        return Fields(count, free, waits, nothing, shared)

    loop = Loop(SymbolicInt(z3.simplify(listing.length)), forgotten, listing)
    end = Fields(count, free, nothing, None, shared)
    operation = Operation(reset_prefix_cache, start.moment, (), (loop,), end, lambda value: value is True)
    return claim(operation, plain_part(v.part), v.i)


def _reset_small(f: Any, reset_prefix_cache: Any, state: PoolState) -> None:
    if any(state.counts[1:]):
        return
    pool = real_pool(f, state)
    what = f"reset_prefix_cache() in {state}"
    if reset_prefix_cache(pool) is not True:
        raise FailedError(f"{what}: refused, and nothing is held")
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
            "self.cached_block_hash_to_block = self._new_names()",
            "pass",
        ),
    ),
)

THEOREMS = (REGISTER, RESET)
