"""The pool keeps its invariants (S4) when blocks are named, for any number of them: induction over its own loops."""

from collections.abc import Callable
from functools import partial
from itertools import product
from sys import maxsize
from types import SimpleNamespace
from typing import Any

import z3

from ..claims import FailedError, refuses
from ..heap_theorem import HeapTheorem
from ..invariants.induction import Loop, Operation, claim
from ..invariants.listings import ANY_BLOCK, ANY_PLACE, Gathered, Indices, Listing, OfBlock, Picked, picked
from ..invariants.pool import Moment
from ..invariants.pool_parts import Fields
from ..invariants.rounds import without_filters
from ..invariants.small_pools import PoolState, batches, everywhere, key, real_pool, require
from ..invariants.start import (
    PARTS,
    Start,
    around,
    is_around,
    is_symbolic,
    own_code,
    parts_of,
    plain_part,
    wrong,
    wrong_around,
)
from ..solver import ProofError
from ..symbolic import SymbolicBool, SymbolicInt, running, term
from ..symbolic_bytes import globals_of, seeing

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

    def __init__(self, heap: Any, length: Any, at: OfBlock, place: OfBlock) -> None:
        super().__init__(length, at, place)
        self.heap = heap

    def one(self, x: Any) -> Any:
        """The block with this id."""
        return self.heap.block(x)

    def any_filtered(self, wanted: Callable[[Any], Any]) -> Picked:
        """Those of them that are wanted."""
        return picked(self, self, wanted, "of_a_part")

    def any_compressed(self, mask: _Mask) -> Listing:
        """Those that the mask wants."""
        chosen = mask.chosen
        return Listing(chosen.length, lambda j: self.at(chosen.at(j)), lambda x: chosen.place(self.place(x)))


class _Table:
    """A table of a request: a block in each of any number of entries. `at` gives their ids, `stands` where each is."""

    any_length = True

    def __init__(self, moment: Moment, at: OfBlock, stands: OfBlock) -> None:
        self._moment, self._at, self._stands, self.origin = moment, at, stands, self

    def at_moment(self, moment: Moment) -> "_Table":
        """The same table, its blocks as they are at another moment."""
        moved = _Table(moment, self._at, self._stands)
        moved.origin = self.origin
        return moved

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return self._moment.heap.block(self._at(term(index)))
        start = term(index.start)
        return _Range(
            self._moment.heap,
            term(index.stop) - start,
            lambda j: self._at(start + j),
            lambda x: self._stands(x) - start,
        )


class _Asked:
    """The mask that is handed over."""

    def __init__(self, wanted: Callable[[Any], Any]) -> None:
        self._wanted = wanted

    def __getitem__(self, j: Any) -> SymbolicBool:
        return SymbolicBool(self._wanted(term(j)))


class _PartNames:
    """By the rule of today: which blocks have a name of a part only, and up to which token that goes. Where the whole
    gets a name, it goes first."""

    def __init__(self, start: Start) -> None:
        self.start, self.some = start, z3.Bool("partial")
        self._has = z3.Function("has_part", z3.IntSort(), z3.BoolSort())
        self._covers = z3.Function("covers", z3.IntSort(), z3.IntSort())
        start.also.append(lambda x: z3.Implies(self._has(x), z3.And(self.some, start.fields.named(x))))
        start.moment.heap.meet(ANY_BLOCK)
        start.moment.pool.partial, start.moment.pool.further = self, _Nothing()

    def ends_before(self, block: Any, i: Any) -> Any:
        """Its name is that of a part of entry `i`, of one token."""
        return z3.And(self._has(block), self._covers(block) < i + 1)

    def __bool__(self) -> bool:
        return running().decide(self.some)

    def get(self, block: Any, default: Any) -> Any:
        """Up to where the name of a block goes."""
        x = term(block)
        return SymbolicInt(self._covers(x)) if running().decide(self._has(x)) else default

    def claim(self, cache_full_blocks: Any, v: Any, arguments: tuple[Any, ...], wanted: Callable[[Any], Any]) -> Any:
        """That such names go, and no others; then all is as the pool under this one needs it, and that is asked."""
        count, free, named, _, shared = self.start.fields
        table, first, asked = arguments[1], term(v.first), list[Any]()
        part = table[v.first : v.end]
        more = z3.And(self.some, z3.Bool("some_of_a_part"), part.length > 0)
        rounds = z3.If(more, part.length, z3.IntVal(0))

        def after(i: Any) -> Fields:
            def goes(x: Any) -> Any:
                j = part.place(x)
                inside = z3.And(part.holds(x), j < i, x != 0)
                return z3.And(inside, wanted(j), self.ends_before(x, first + j))

            return Fields(count, free, lambda x: z3.And(named(x), z3.Not(goes(x))), None, shared)

        def right(value: Any) -> bool:
            ((name, *given),) = asked
            same = all(
                one is other or getattr(one, "origin", 0) is other for one, other in zip(given, arguments, strict=True)
            )
            return value is None and name == "cache_full_blocks" and same

        self.start.moment.inherited = lambda *told: asked.append(told)
        loop, end = Loop(SymbolicInt(rounds), after, part), after(rounds)
        new = z3.And(part.holds(ANY_BLOCK), ANY_BLOCK != 0, wanted(part.place(ANY_BLOCK)))
        claims = claim(
            Operation(cache_full_blocks, self.start.moment, arguments, (loop,), end, right), plain_part(v.part), v.i
        )
        return [SymbolicBool(z3.Implies(new, z3.Not(end.named(ANY_BLOCK)))), *claims]


class _Nothing:
    """No block has further names."""

    def get(self, block: Any, default: Any) -> Any:
        """Those of a block."""
        return default


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
    outside = is_around(f, "cache_full_blocks")
    names = _PartNames(start) if outside else None
    entry, stands = (z3.Function(name, z3.IntSort(), z3.IntSort()) for name in ("entry", "stands"))
    wanted, nulls = z3.Function("wanted", z3.IntSort(), z3.BoolSort()), z3.Bool("nulls")
    first, end = term(v.first), term(v.end)

    def is_wanted(j: Any) -> Any:
        return z3.Or(z3.Not(term(v.masked)), wanted(j))

    def at(i: Any) -> Any:
        """The block in an entry: of the pool, in no other entry unless it is null (S2). Entries behind the registered
        ones have no identity yet: that is what the count of registered ones means. By the rule of today they may have
        one of a part."""
        block = entry(i)
        inside = z3.And(i >= first, i < end)
        running().assume(z3.And(block >= 0, block < start.made, z3.Implies(block != 0, stands(block) == i)))
        new = z3.Not(named(block)) if names is None else z3.Or(z3.Not(named(block)), names.ends_before(block, i))
        running().assume(z3.Implies(z3.And(inside, block != 0, is_wanted(i - first)), new))
        running().assume(z3.Implies(z3.And(inside, z3.Not(nulls)), block != 0))
        return block

    def stands_at(x: Any) -> Any:
        at(stands(x))
        return stands(x)

    def chosen(rounds: Any, j: Any) -> Any:
        inside = z3.And(j >= 0, j < end - first)
        return z3.And(inside, is_wanted(j), at(first + j) != 0)

    table = _Table(start.moment, at, stands_at)
    given = _Asked(wanted)
    arguments = (FakeRequest(_Contents(v.hashes)), table, v.first, v.end, 1, 0, given if v.masked else None)
    if names is not None:
        return names.claim(around(f, "cache_full_blocks"), v, arguments, is_wanted)
    places = Gathered("chosen", chosen, Indices).after(z3.IntVal(0))
    whole = table[v.first : v.end]
    masked = bool(v.masked) or running().decide(nulls)
    listing = whole.any_compressed(_Mask(places)) if masked else whole

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
    for block in range(1, own + 1) if around(f, "cache_full_blocks") is not None and not any(state.named) else ():
        _register_over_part(f, block, state)


def _register_over_part(f: Any, block: int, state: PoolState) -> None:
    """A block that has a name of a part gets one of the whole, where that is wanted."""
    for mask, covers in product((None, [True], [False]), (0, 1)):
        pool = real_pool(f, state)
        one, request = pool.blocks[block], FakeRequest([key(100)])
        pool.add_name(one, 0, key(200), covers)
        what = f"cache_full_blocks([{block}], {mask}) over a name of {covers} tokens in {state}"
        wanted = mask != [False]
        again = partial(pool.cache_full_blocks, request, [one], 0, 1, 1, 0, mask)
        if refuses(AssertionError, again) != (wanted and covers > 0):
            raise FailedError(f"{what}: it should {'' if wanted and covers else 'not '}be refused")
        if one.block_hash != key(100 if wanted and not covers else 200) + bytes(4):
            raise FailedError(f"{what}: it is named {one.block_hash!r}")
        require(pool, state.counts, [other is one for other in pool.blocks], what)


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
        wrong_around("cache_full_blocks", "names of parts stay", "self.unname(block)", "pass"),
    ),
)


# `reset_prefix_cache`.


def _reset(f: Any, v: Any) -> Any:
    reset_prefix_cache = own_code(f, "reset_prefix_cache")
    if not is_symbolic(v):
        return everywhere(f, lambda state: _reset_small(f, reset_prefix_cache, state))
    start = Start(f, v)
    if is_around(f, "reset_prefix_cache"):
        return _reset_and_asleep(f, start)
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


def _reset_and_asleep(f: Any, start: Start) -> list[Any]:
    """By the rule of today: where it succeeds, the old map is given up, and free blocks may be forgotten, of which the
    trial below says that they stand where they stood."""
    pool, done, told = start.moment.pool, SymbolicBool(z3.Bool("reset")), list[Any]()
    old, new = start.moment.registry, object()

    def inherited(name: str) -> SymbolicBool:
        told.append(name)
        if running().decide(done.term):
            pool.cached_block_hash_to_block = new
        return done

    def put_to_sleep(made: Any) -> bool:
        told.append(made)
        return True

    start.moment.inherited = inherited
    pool._slept, pool._queue, pool._know = False, SimpleNamespace(put_to_sleep=put_to_sleep), told.append
    setattr(old, "dissolve", lambda: told.append(old))  # noqa: B010  # not for a type checker
    value = without_filters(around(f, "reset_prefix_cache"))(pool)
    pool.cached_block_hash_to_block = old
    if not running().decide(done.term):
        return [value is False, told == ["reset_prefix_cache"], *start.moment.shows(start.fields)]
    right = told == ["reset_prefix_cache", old, new, start.moment.own]
    return [value is True, right, *start.moment.shows(start.fields)]


def _reset_small(f: Any, reset_prefix_cache: Any, state: PoolState) -> None:
    own, what = around(f, "reset_prefix_cache"), f"reset_prefix_cache() in {state}"
    ways = [(reset_prefix_cache, maxsize), *((own, awake) for awake in (maxsize, 1, 0) if own is not None)]
    for way, awake in ways if not any(state.counts[1:]) else ():
        pool = real_pool(f, state)
        before = pool.free_ids()
        sleep = globals_of(pool._queue.put_to_sleep) if way is own else {}
        with seeing(sleep, {"AWAKE": awake}):
            done = way(pool)
        if done is not True:
            raise FailedError(f"{what}: refused, and nothing is held")
        if pool.free_ids() != before:
            raise FailedError(f"{what}: {pool.free_ids()} are free, not {before} in this order")
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
        wrong_around("reset_prefix_cache", "it says that it has done nothing", "return True", "return False"),
    ),
)

THEOREMS = (REGISTER, RESET)
