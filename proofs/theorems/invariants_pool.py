"""The pool keeps its invariants (S1, S4) in any state, for batches of any length: induction over its own loops.

From any pool, of any number of blocks, in which exactly what nobody holds is free, the null block is neither free nor
named, and exactly what carries an identity is registered, every operation leads to such a pool. What the free queue
does is taken from T25, which proves it of its links for any length.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import z3

from ..claims import FailedError, refuses
from ..heap_theorem import HeapTheorem
from ..invariants.induction import Batch, HalfwayError, Loop, Operation, States, claim, each_round
from ..invariants.listings import ANY_BLOCK, Gathered, Listing
from ..invariants.pool_parts import Fields
from ..invariants.rounds import without_filters
from ..invariants.small_pools import PoolState, batches, everywhere, real_pool, require
from ..invariants.start import (
    BATCH,
    PARTS,
    Start,
    around,
    expected,
    is_around,
    is_symbolic,
    own_code,
    parts_of,
    plain_part,
    wrong,
    wrong_around,
)
from ..symbolic import Condition, SymbolicBool, running, term
from ..symbolic_bytes import globals_of, seeing

# `free_blocks`.


def _freed(f: Any, v: Any) -> Any:
    free_blocks, give_back = own_code(f, "free_blocks"), f._give_back
    if not is_symbolic(v):
        return everywhere(f, lambda state: _free_small(f, give_back, state))
    start = Start(f, v)
    batch = start.batch(v.m)
    if is_around(f, "free_blocks"):
        return _sorted(f, start, batch, v.front)
    count, free, named, _, shared = start.fields
    tally = start.tally(batch, lambda x, i: count(x) - batch.times(x, i))
    given: list[Any] = []
    start.moment.pool._give_back = lambda *arguments: given.append(arguments)
    without_filters(free_blocks)(start.moment.pool, batch, v.front)
    through = len(given) == 1 and given[0][0] is batch and given[0][1] is v.front and not start.moment.pool._trusting

    def held(i: Any) -> Fields:
        return Fields(lambda x: count(x) - batch.times(x, i), free, named, None, tally(i))

    def undone(i: Any, j: Any) -> Fields:
        def now(x: Any) -> Any:
            running().assume(batch.rises(x, j, i))
            return count(x) - batch.times(x, i) + batch.times(x, j)

        return Fields(now, free, named, None, shared)

    def enough(i: Any, x: Any) -> Any:
        """What has been given back so far was held."""
        return z3.Implies(start.holds(x), batch.times(x, i) <= count(x))

    def let_go(i: Any, x: Any) -> Any:
        """Blocks that had references, and all of them are given back by now."""
        return z3.And(start.holds(x), count(x) > 0, count(x) == batch.times(x, i))

    def in_the_end(x: Any) -> Any:
        return count(x) == batch.times(x, batch.length)

    def before(i: Any) -> Fields:
        """The number of blocks with several holders is set at the end."""
        return held(i)._replace(shared=shared)

    gathered, sums = {"freed": Gathered("freed", let_go)}, {"unshared": lambda i: shared - tally(i)}

    def refuses_at(i: Any) -> Any:
        x = batch.at(i)
        return z3.And(x != 0, batch.times(x, i + 1) > count(x))

    loop = Loop(v.m, before, batch, gathered, sums, known=enough, undo=undone, refuses=refuses_at)
    end = Fields(lambda x: count(x) - batch.times(x, batch.length), in_the_end, named, None, tally(batch.length))
    operation = Operation(give_back, start.moment, (batch, v.front), (loop,), end)
    return [through, *claim(operation, plain_part(v.part), v.i)]


def _sorted(f: Any, start: Start, batch: Batch, front: Any) -> list[Condition]:
    """By the rule of today: all is given back at once, or in two parts if each block is held as often as it stands
    there, so that neither part is refused. A name decides to which end a block goes."""
    given: list[tuple[Any, Any]] = []
    asked, pool, x, named = list[Any](), start.moment.pool, ANY_BLOCK, start.fields.named
    times = batch.times(x, batch.length)
    enough = times <= start.fields.count(x)

    def are_held(blocks: Any) -> SymbolicBool:
        held = z3.Bool("held")
        asked.append(blocks)
        running().assume(z3.Implies(z3.And(held, start.holds(x), blocks.holds(x)), enough))
        return SymbolicBool(held)

    pool._are_held = are_held
    pool._give_back = lambda *arguments: given.append(arguments)
    without_filters(around(f, "free_blocks"))(pool, batch, front)
    inside = z3.And(start.holds(x), times >= 1)
    parts = sum([z3.If(blocks.holds(x), 1, 0) for blocks, _ in given], z3.IntVal(0))
    claims = [z3.Implies(inside, parts == 1), z3.Implies(z3.And(inside, len(given) > 1), enough)]
    if not asked or len(given) > 1:  # else it is refused
        claims += [z3.Implies(z3.And(inside, one.holds(x)), term(end) == z3.Not(named(x))) for one, end in given]
    return [SymbolicBool(claim) for claim in claims]


def _free_small(f: Any, give_back: Any, state: PoolState) -> None:
    ways = [give_back, *filter(None, [around(f, "free_blocks")])]
    for ids in batches(len(state.counts) - 1, 3):
        after = expected(state.counts, ids, -1)
        refused = min(after[1:], default=0) < 0
        for way, front in product(ways, (False, True)):
            pool = real_pool(f, state)
            what = f"{way.__name__}({list(ids)}, {front}) in {state}"
            if refuses(ValueError, partial(way, pool, [pool.blocks[block] for block in ids], front)) != refused:
                raise FailedError(f"{what} should {'' if refused else 'not '}be refused")
            require(pool, state.counts if refused else after, state.named, what)


FREE = HeapTheorem(
    id="S1.free",
    sentence="`free_blocks` keeps S1 and S4 in a pool of any size, for a batch of any length; where a block stands in "
    "it more often than it is held, it raises ValueError, and everything is as before.",
    variables={**BATCH, "front": "whether they go to the front"},
    assume=lambda v: [*parts_of(v, 1), v.m >= 0],
    claim=_freed,
    meaning="What several groups give up in one call is freed when the last reference goes, and once.",
    controls=(
        wrong("_give_back", "what is still held is freed", "if state == 1:", "if state >= 1:"),
        wrong("_give_back", "the last reference is not given back", "block.state = state - 1", "pass"),
        wrong("_give_back", "the null block is freed like any other", "if block is null:", "if False:"),
        wrong("_give_back", "not all is undone", "for earlier in blocks[:i]:", "for earlier in blocks[:0]:"),
        wrong("_give_back", "nothing is undone", "earlier.state = earlier.ref_cnt + 1", "pass"),
        wrong("_give_back", "the front is forgotten", "self.free_block_queue.prepend_n(freed)", "pass"),
        wrong("_give_back", "blocks with two holders are not counted", "unshared += state == 2", "unshared += 0"),
        wrong_around(
            "free_blocks",
            "blocks without a name are kept",
            "self._give_back(others, True)",
            "self._give_back([], True)",
        ),
    ),
)


# `release`.


class _Row(Listing):
    """The blocks of a table, null entries left out: different ones."""

    def __init__(self, start: Start) -> None:
        at, place = (z3.Function(f"{stem}_row", z3.IntSort(), z3.IntSort()) for stem in ("at", "place"))
        self.alike: list[Callable[[Any], Any]] = []
        self.moment = start.moment

        def item(j: Any) -> Any:
            here = at(j)
            known = [start.holds(here), here < start.made, place(here) == j, *(one(here) for one in self.alike)]
            known.append(z3.Implies(z3.Bool("trusting"), start.fields.count(here) >= 1))
            running().assume(z3.Implies(z3.And(j >= 0, j < self.length), z3.And(known)))
            return here

        super().__init__(z3.Int("entries"), item, place)
        running().assume(self.length >= 0)

    def any_map(self, function: Callable[[Any], Any]) -> States:
        """What the blocks' states are."""
        return States(self, function)


def _released(f: Any, v: Any) -> Any:
    own_code(f, "free_blocks")
    release = f.release
    if not is_symbolic(v):
        return everywhere(f, lambda state: _release_small(f, release, state))
    start = Start(f, v)
    row, (count, free, named, _, shared) = _Row(start), start.fields
    given: list[Any] = []
    start.moment.pool._give_back = start.moment.pool._let_go = lambda *arguments: given.append(arguments)
    start.moment.heap.meet(ANY_BLOCK)
    row.at(row.place(ANY_BLOCK))
    value = without_filters(release)(start.moment.pool, row, v.front)
    if given:  # as S1.free, or S1.short
        through = len(given) == 1 and given[0][0] is row and given[0][1] is v.front
        return [value is None, through, *start.moment.shows(start.fields)]
    end = Fields(
        lambda x: z3.If(row.holds(x), z3.IntVal(0), count(x)),
        lambda x: z3.Or(free(x), row.holds(x)),
        named,
        None,
        shared,
    )
    held_once = z3.Implies(row.holds(ANY_BLOCK), count(ANY_BLOCK) == 1)
    return [value is None, SymbolicBool(held_once), *start.moment.shows(end), start.moment.counts_right()]


def _release_small(f: Any, release: Any, state: PoolState) -> None:
    for ids in batches(len(state.counts) - 1, 3):
        if 0 in ids or len(set(ids)) < len(ids):
            continue
        for trusting, front in product((False, True), repeat=2):
            refused = any(not state.counts[block] for block in ids)
            if trusting and refused:
                continue
            pool = real_pool(f, state)
            pool._trusting = trusting
            what = f"release({list(ids)}, {front}) in {state}"
            if refuses(ValueError, partial(release, pool, [pool.blocks[block] for block in ids], front)) != refused:
                raise FailedError(f"{what} should {'' if refused else 'not '}be refused")
            require(pool, state.counts if refused else expected(state.counts, ids, -1), state.named, what)


RELEASE = HeapTheorem(
    id="S1.release",
    sentence="`release` keeps S1 and S4 in a pool of any size, for a table of any length: it queues up what is held "
    "once, or leaves all to `free_blocks` where somebody else may hold a block, or have given it back.",
    variables={"size": PARTS["size"], "front": "whether they go to the front"},
    assume=lambda v: [v.size >= 1],
    claim=_released,
    meaning="A request's blocks are freed at the cost of one store each, and none that somebody else holds.",
    controls=(
        wrong(
            "release",
            "what somebody else holds is queued up",
            "if (self._num_shared or not self._trusting) and any(state != 1 for state in set(map(_STATE, blocks))):",
            "if not self._trusting and any(state != 1 for state in set(map(_STATE, blocks))):",
        ),
        wrong(
            "release",
            "what was given back already is queued up again",
            "if (self._num_shared or not self._trusting) and any(state != 1 for state in set(map(_STATE, blocks))):",
            "if self._num_shared and any(state != 1 for state in set(map(_STATE, blocks))):",
        ),
        wrong("release", "the front is forgotten", "self.free_block_queue.prepend_n(blocks)", "pass"),
    ),
)


# `get_new_blocks`.


def _taken(f: Any, v: Any) -> Any:
    get_new_blocks = own_code(f, "get_new_blocks")
    if not is_symbolic(v):
        return everywhere(f, lambda state: _take_small(f, get_new_blocks, state))
    start = Start(f, v, v.caching)
    is_outside = is_around(f, "get_new_blocks")
    order, k = start.moment.order, term(v.k)
    running().assume(k <= order.length)
    front = Listing(k, order.at, order.place)
    count, free, named, _, shared = start.fields

    def done(x: Any, t: Any) -> Any:
        return z3.And(front.holds(x), front.place(x) < t)

    def left(x: Any) -> Any:
        """All of the front have left the queue when the first round begins."""
        return z3.And(free(x), z3.Not(front.holds(x)))

    def handed(t: Any) -> Fields:
        """None of the front has an identity; after `t` rounds the first `t` are held."""
        return Fields(
            lambda x: z3.If(done(x, t), z3.IntVal(1), count(x)),
            left,
            lambda x: z3.And(named(x), z3.Not(front.holds(x))),
            None,
            shared,
        )

    def right(value: Any) -> Any:
        return isinstance(value, Listing) and value.at is order.at and SymbolicBool(value.length == k)

    def one_by_one(t: Any) -> Fields:
        """After `t` rounds the first `t` are held, and have no identity."""
        return Fields(handed(t).count, left, lambda x: z3.And(named(x), z3.Not(done(x, t))), None, shared)

    if is_outside:
        return _taken_by_name(f, start, v.k, (handed(k), one_by_one), right)
    loops = (Loop(v.k, handed, front), Loop(0, lambda t: handed(k), front))  # metrics are off
    operation = Operation(get_new_blocks, start.moment, (v.k,), loops, handed(k), right)
    return claim(operation, plain_part(v.part), v.i)


def _taken_by_name(
    f: Any, start: Start, k: Any, ends: tuple[Fields, Callable[[Any], Fields]], right: Callable[[Any], Any]
) -> list[Condition]:
    """By the rule of today: few are told one by one, many at once, none and what is refused as before, and one as
    S1.short says."""
    moment, (end, after) = start.moment, ends
    moment.rounds = lambda row: each_round(moment, row.length, after, lambda j: moment.heap.block(row.at(j)))
    asked: list[tuple[Any, ...]] = []

    def inherited(*arguments: Any) -> Any:
        asked.append(arguments)
        return asked

    start.moment.inherited = inherited
    try:
        value = without_filters(around(f, "get_new_blocks"))(start.moment.pool, k)
    except HalfwayError as halfway:
        return halfway.claims
    if not asked:
        return [right(value), *start.moment.shows(end), start.moment.counts_right()]
    one = asked == [("get_new_block",)] and value == [asked] and k == 1
    return [one or (asked == [("get_new_blocks", k)] and value is asked), *start.moment.shows(start.fields)]


def _take_small(f: Any, get_new_blocks: Any, state: PoolState) -> None:
    own, most = around(f, "get_new_blocks"), state.counts[1:].count(0)
    ways: list[Any] = [(get_new_blocks, {}), *((own, few) for few in ({}, {"FEW": 1}) if own)]
    for k, (way, few) in product(range(most + 1), ways):
        pool = real_pool(f, state)
        front = pool.free_block_queue.get_all_free_blocks()[:k]
        with seeing(globals_of(way), few):
            taken = way(pool, k)
        what = f"get_new_blocks({k}) in {state}"
        if list(taken) != front:
            raise FailedError(f"{what}: {taken}, not the front {front}")
        ids = [block.block_id for block in front]
        named = [name and block not in ids for block, name in enumerate(state.named)]
        require(pool, expected(state.counts, ids, 1), named, what)


TAKE = HeapTheorem(
    id="S1.take",
    sentence="`get_new_blocks` keeps S1 and S4 in a pool of any size, for any number of blocks: it hands out the front "
    "of the queue, nobody holds it already, and nobody finds it any more.",
    variables={**PARTS, "k": "blocks asked for", "caching": "whether caching is on"},
    assume=lambda v: [*parts_of(v, 2), v.k >= 0],
    claim=_taken,
    meaning="No block that is handed out is held, or found as a hit of what was in it before.",
    controls=(
        wrong("get_new_blocks", "nobody is said to hold them", "block.state = 1", "block.state = 0"),
        wrong(
            "get_new_blocks",
            "they keep their identity",
            "self.cached_block_hash_to_block.forget_all(blocks)",
            "pass",
        ),
        wrong_around("get_new_blocks", "of few the map goes on to find some", "known.forget(block)", "pass"),
        wrong_around("get_new_blocks", "of many the map goes on to find some", "known.forget_all(blocks)", "pass"),
    ),
)


# `evict_blocks`.


def _evicted(f: Any, v: Any) -> Any:
    evict_blocks = own_code(f, "evict_blocks")
    if not is_symbolic(v):
        return everywhere(f, lambda state: _evict_small(f, evict_blocks, state))
    start = Start(f, v)
    batch = Batch(v.m, v.size, ids=True)
    if is_around(f, "evict_blocks"):
        return _evicted_awake(f, start, batch)
    count, free, named, _, shared = start.fields

    def forgotten(i: Any) -> Fields:
        return Fields(count, free, lambda x: z3.And(named(x), batch.times(x, i) == 0), None, shared)

    loops = (Loop(v.m, lambda i: start.fields, batch), Loop(v.m, forgotten, batch))
    return claim(
        Operation(evict_blocks, start.moment, (batch,), loops, forgotten(batch.length)), plain_part(v.part), v.i
    )


def _evicted_awake(f: Any, start: Start, batch: Batch) -> list[Condition]:
    """By the rule of today: without the blocks that need not exist, of which none has an identity."""
    asleep, slept, asked = z3.Function("asleep", z3.IntSort(), z3.BoolSort()), z3.Bool("slept"), list[Any]()
    pool, made, x = start.moment.pool, start.moment.own, ANY_BLOCK
    start.also.append(lambda x: z3.Implies(asleep(x), z3.And(slept, start.holds(x), z3.Not(start.fields.named(x)))))
    start.moment.heap.meet(x)
    pool._slept, pool._made = SymbolicBool(slept), _Asleep(made, asleep)
    start.moment.inherited = lambda *arguments: asked.append(arguments)
    value = without_filters(around(f, "evict_blocks"))(pool, batch)
    ((name, left),) = asked
    stays, exists = left.holds(x), z3.And(x >= 0, x < start.made)
    kept = z3.Implies(z3.And(batch.holds(x), start.fields.named(x)), stays)
    found = z3.Implies(z3.And(stays, exists), z3.Not(asleep(x)))
    strangers = z3.Implies(z3.And(batch.holds(x), z3.Not(exists)), stays)
    right = [value is None, name == "evict_blocks", left.whole is batch]
    return [*right, *map(SymbolicBool, (kept, found, strangers)), *start.moment.shows(start.fields)]


class _Asleep:
    """The blocks by id, some of which do not exist again."""

    def __init__(self, own: Any, asleep: Callable[[Any], Any]) -> None:
        self._own, self._asleep = own, asleep

    def symbolic_len(self) -> Any:
        """How many have existed."""
        return self._own.symbolic_len()

    def __getitem__(self, i: Any) -> Any:
        return None if running().decide(self._asleep(term(i))) else self._own[i]


def _evict_small(f: Any, evict_blocks: Any, state: PoolState) -> None:
    ways = [evict_blocks, around(f, "evict_blocks")]
    for ids, way in product(batches(len(state.counts) - 1), filter(None, ways)):
        pool = real_pool(f, state)
        pool._slept = True  # where it counts: as after a reset
        way(pool, ids)
        named = [name and block not in ids for block, name in enumerate(state.named)]
        require(pool, state.counts, named, f"evict_blocks({list(ids)}) in {state}")


EVICT = HeapTheorem(
    id="S1.evict",
    sentence="`evict_blocks` takes the identity of any number of blocks, held or free, and moves no block.",
    variables={**PARTS, "m": "ids in the batch"},
    assume=lambda v: [*parts_of(v, 2), v.m >= 0],
    claim=_evicted,
    meaning="Eviction by id takes no block from who holds it.",
    controls=(
        wrong("evict_blocks", "nothing is forgotten", "self._forget_identity(self._made[block_id])", "pass"),
        wrong(
            "evict_blocks",
            "the map goes on to find them",
            "self._forget_identity(self._made[block_id])",
            "self._made[block_id].reset_hash()",
        ),
        wrong_around(
            "evict_blocks",
            "after a reset, what exists is left out",
            "ids, made = list(block_ids), self._made",
            "ids, made = [i for i in block_ids if not self._slept], self._made",
        ),
    ),
)


THEOREMS = (FREE, RELEASE, TAKE, EVICT)
