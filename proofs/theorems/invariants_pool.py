"""The pool keeps its invariants (S1, S4) in any state, for batches of any length: induction over its own loops.

From any pool, of any number of blocks, in which exactly what nobody holds is free, the null block is neither free nor
named, and exactly what carries an identity is registered, every operation leads to such a pool. What the free queue
does is taken from T25, which proves it of its links for any length.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from typing import Any

import z3

from ...impl import BlockPool
from ..claims import refuses
from ..heap_theorem import HeapTheorem
from ..invariants.induction import Batch, Different, Loop, Operation, States, claim
from ..invariants.listings import ANY_BLOCK, Gathered, Listing
from ..invariants.pool import Fields, Moment, without
from ..invariants.rounds import without_filters
from ..invariants.small_pools import PoolState, batches, everywhere, real_pool, require
from ..solver import ProofError
from ..symbolic import SymbolicBool, SymbolicInt, running, term
from ..theorem import NegativeControl, UnavailableError
from ..wrong_code import changed

PARTS = {
    "size": "blocks of the pool",
    "part": "0 before the first loop, 2k + 1 a round of loop k, 2k + 2 what comes behind it",
    "i": "rounds before",
}
_BATCH = {**PARTS, "m": "blocks in the batch"}


class Start:
    """A pool of any size: how many references each block has, and which carry an identity."""

    def __init__(self, f: Any, v: Any, caching: Any = True) -> None:
        count, named = (
            z3.Function("count", z3.IntSort(), z3.IntSort()),
            z3.Function("named", z3.IntSort(), z3.BoolSort()),
        )
        self.size = term(v.size)
        self.made = z3.Int("made")
        """Blocks that exist: those behind them nobody has had yet."""
        self.also: list[Callable[[Any], Any]] = []
        """What else is known of each block."""
        shared, known = z3.Int("shared"), dict[int, Any]()
        running().assume(z3.And(shared >= 0, self.made >= 1, self.made <= self.size))

        def facts(x: Any) -> None:
            if x.get_id() in known:
                return
            known[x.get_id()] = x
            inside = z3.And(x >= 1, x < self.size)
            running().assume(z3.Implies(inside, z3.And(count(x) >= 0, z3.Implies(x >= self.made, count(x) == 0))))
            # No block has two holders if there are none of these.
            running().assume(z3.Implies(z3.And(inside, shared == 0), count(x) <= 1))
            running().assume(z3.Implies(z3.Or(x == 0, x >= self.made, z3.Not(term(caching))), z3.Not(named(x))))
            for one in self.also:
                running().assume(one(x))

        self.fields = Fields(count, lambda x: count(x) == 0, named, None, shared)
        self.moment = Moment(f, "start", v.size, caching, self.fields, facts, self.made)

    def holds(self, x: Any) -> Any:
        """Is it a block of the pool, the null block left out?"""
        return z3.And(x >= 1, x < self.size)

    def batch(self, length: Any) -> Batch:
        """Blocks of the pool, of any number."""
        batch = Batch(length, SymbolicInt(self.made))
        batch.moment = self.moment
        return batch

    def tally(self, batch: Batch, count: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
        """How many blocks have two holders or more after so many entries of a batch, by which only the entry's own
        block has gained or lost some: so by how many it is one more or less follows from that block."""
        shared = z3.Function("shared_after", z3.IntSort(), z3.IntSort())

        def after(i: Any) -> Any:
            running().assume(shared(z3.IntVal(0)) == self.fields.shared)
            for k in (z3.simplify(i - 1), i):
                x = batch.at(k)
                one, less = (z3.If(count(x, j) > 1, 1, 0) for j in (k + 1, k))
                change = z3.If(x == 0, shared(k + 1) == shared(k), shared(k + 1) == shared(k) + one - less)
                running().assume(z3.Implies(z3.And(k >= 0, k < batch.length), change))
            return shared(i)

        return after


def is_symbolic(v: Any) -> bool:
    """True in a proof, False in a replay."""
    return isinstance(v.size, SymbolicInt)


def wrong(role: str, what: str, line: str, instead: str) -> NegativeControl:
    """Our core's method with one line changed. Without such a line nobody can say whether it would be refuted."""
    try:
        method = changed(getattr(BlockPool, role), line, instead)
    except ValueError as error:
        method = partial(_missing, str(error))
    return NegativeControl(what, {role: method})


def _missing(why: str, *anything: Any) -> Any:
    raise ProofError(why)


def parts_of(v: Any, loops: int) -> list[Any]:
    """What is assumed: a pool, and a part of an operation with so many loops."""
    return [v.size >= 1, v.part >= 0, v.part <= 2 * loops]


def own_code(f: Any, role: str) -> Any:
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
    touch = own_code(f, "touch")
    if not is_symbolic(v):
        return everywhere(f, lambda state: _touch_small(f, touch, state))
    start = Start(f, v)
    batch = start.batch(v.m)
    count, _, named, _, shared = start.fields
    tally = start.tally(batch, lambda x, i: count(x) + batch.times(x, i))
    together = z3.Bool("together")
    start.also.append(
        lambda x: z3.Implies(together, z3.And(batch.times(x, batch.length) <= 1, _free_entry(start, batch, x)))
    )

    def held(i: Any) -> Fields:
        def now(x: Any) -> Any:
            return count(x) + batch.times(x, i)

        return Fields(now, lambda x: now(x) == 0, named, None, tally(i))

    def touch_batch(blocks: Any) -> bool:
        """What S1.touch.batch says of it."""
        if blocks is not batch:
            raise ProofError("other blocks are touched together than are given")
        if not running().decide(together):
            return False
        moment = start.moment
        moment.queue.order = without(moment.queue.order, Listing(batch.length, batch.at, batch.place))
        # No block has two holders that had fewer before, so there are as many of these.
        moment.heap.meet(ANY_BLOCK)
        after, before = held(batch.length).count(ANY_BLOCK) > 1, count(ANY_BLOCK) > 1
        moment.owe(z3.Implies(start.holds(ANY_BLOCK), after == before))
        running().assume(tally(batch.length) == shared)
        moment.become(held(batch.length))
        return True

    start.moment.pool._touch_batch = touch_batch
    loops = (Loop(v.m, lambda i: start.fields, batch), Loop(v.m, held, batch))
    return claim(Operation(touch, start.moment, (batch,), loops, held(batch.length)), plain_part(v.part), v.i)


def _free_entry(start: Start, batch: Batch, x: Any) -> Any:
    """That the block is free if it stands in the batch."""
    free = z3.And(start.holds(x), start.fields.free(x))
    return z3.Implies(batch.times(x, batch.length) >= 1, free)


def _touched_together(f: Any, v: Any) -> Any:
    own_code(f, "touch")
    touch_batch = f._touch_batch
    if not is_symbolic(v):
        return everywhere(f, lambda state: _touch_together_small(f, touch_batch, state))
    start = Start(f, v)
    batch = start.batch(v.m)
    count, free, named, _, shared = start.fields
    start.also.append(lambda x: Different.once(batch, x))
    start.also.append(lambda x: batch.place(x) >= -1)
    start.moment.leaving = Listing(batch.length, batch.at, batch.place)

    def held(i: Any) -> Fields:
        return Fields(lambda x: z3.If(batch.times(x, i) >= 1, z3.IntVal(1), count(x)), free, named, None, shared)

    def in_the_end(x: Any) -> Any:
        return z3.And(free(x), batch.times(x, batch.length) == 0)

    def became(value: Any) -> Fields:
        return end if value is True else start.fields

    end = Fields(held(batch.length).count, in_the_end, named, None, shared)
    done: list[bool] = []

    def held_all(value: Any) -> bool:
        done.append(value is True)
        return value is True

    operation = Operation(touch_batch, start.moment, (batch,), (Loop(v.m, held, batch),), end, held_all, became)
    claims = claim(operation, plain_part(v.part), v.i)
    # What S1.touch takes from it.
    only_free = [_free_entry(start, batch, ANY_BLOCK), batch.times(ANY_BLOCK, batch.length) <= 1] if done else []
    return [*claims, *(SymbolicBool(z3.Implies(start.holds(ANY_BLOCK), one)) for one in only_free)]


def _touch_together_small(f: Any, touch_batch: Any, state: PoolState) -> None:
    for ids in batches(len(state.counts) - 1):
        if not ids:
            continue
        pool = real_pool(f, state)
        what = f"_touch_batch({list(ids)}) in {state}"
        try:
            done = touch_batch(pool, [pool.blocks[block] for block in ids])
        except AttributeError as error:  # what is no batch loses nothing
            raise AssertionError(f"{what} raises {error}") from None
        right = len(set(ids)) == len(ids) and all(block and not state.counts[block] for block in ids)
        if done != right:
            raise AssertionError(f"{what} says {done}")
        require(pool, _expect(state.counts, ids if right else (), 1), state.named, what)


def _touch_small(f: Any, touch: Any, state: PoolState) -> None:
    for ids in batches(len(state.counts) - 1):
        pool = real_pool(f, state)
        touch(pool, [pool.blocks[block] for block in ids])
        require(pool, _expect(state.counts, ids, 1), state.named, f"touch({list(ids)}) in {state}")


def plain_part(part: Any) -> int:
    """The part, on the path that is about it."""
    number = 0
    while part != number:
        number += 1
    return number


TOUCH = HeapTheorem(
    id="S1.touch",
    sentence="`touch` keeps S1 and S4 in a pool of any size, for a batch of any length, whatever stands in it twice.",
    variables=_BATCH,
    assume=lambda v: [*parts_of(v, 2), v.m >= 0],
    claim=_touched,
    meaning="A hit cannot be handed out, however many blocks and references there are.",
    controls=(
        wrong("touch", "what is free stays in the queue", "queue.remove(block)", "pass"),
        wrong("touch", "a block that stands in it twice counts once", "block.state = state + 1", "block.state = 1"),
        wrong("touch", "the null block is treated like any other", "if block is null:", "if False:"),
        wrong("touch", "blocks with two holders are not counted", "self._num_shared += state == 1", "pass"),
    ),
)

TOUCH_TOGETHER = HeapTheorem(
    id="S1.touch.batch",
    sentence="Blocks that have become free together are touched all at once, or nothing is changed: that keeps S1 and "
    "S4 in a pool of any size, for a batch of any length.",
    variables=_BATCH,
    assume=lambda v: [*parts_of(v, 1), v.m >= 1],
    claim=_touched_together,
    meaning="A long hit is held at the cost of one store a block.",
    controls=(
        wrong("_touch_batch", "they stay free", "block.state = 1", "pass"),
        wrong(
            "_touch_batch",
            "a block may stand in it twice",
            "if len(states) > 1 or len(set(blocks)) < len(blocks):",
            "if len(states) > 1:",
        ),
        wrong(
            "_touch_batch",
            "they may be held",
            "if not isinstance(batch, Batch) or batch.queue is not self.free_block_queue:",
            "if False:",
        ),
        wrong(
            "_touch_batch", "the queue does not hear of it", "self.free_block_queue.lose(batch, len(blocks))", "pass"
        ),
    ),
)


# `free_blocks`.


def _freed(f: Any, v: Any) -> Any:
    free_blocks, give_back = own_code(f, "free_blocks"), f._give_back
    if not is_symbolic(v):
        return everywhere(f, lambda state: _free_small(f, give_back, state))
    start = Start(f, v)
    batch = start.batch(v.m)
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


def _free_small(f: Any, give_back: Any, state: PoolState) -> None:
    for ids in batches(len(state.counts) - 1, 3):
        expected = _expect(state.counts, ids, -1)
        refused = min(expected[1:], default=0) < 0
        for front in (False, True):
            pool = real_pool(f, state)
            what = f"free_blocks({list(ids)}, {front}) in {state}"
            if refuses(ValueError, partial(give_back, pool, [pool.blocks[block] for block in ids], front)) != refused:
                raise AssertionError(f"{what} should {'' if refused else 'not '}be refused")
            require(pool, state.counts if refused else expected, state.named, what)


FREE = HeapTheorem(
    id="S1.free",
    sentence="`free_blocks` keeps S1 and S4 in a pool of any size, for a batch of any length; where a block stands in "
    "it more often than it is held, it raises ValueError, and everything is as before.",
    variables={**_BATCH, "front": "whether they go to the front"},
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
    ),
)


# `release`.


class _Row(Listing):
    """The blocks of a table: different ones, and perhaps null entries between them."""

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
        self._nulls = z3.Bool("nulls")
        self.filtered: Any = SymbolicBool(z3.Not(self._nulls))
        """Whether null entries have been left out, if there are any."""
        running().assume(self.length >= 0)

    def __contains__(self, block: Any) -> bool:
        return block is self.moment.null and running().decide(self._nulls)

    def any_filtered(self, wanted: Callable[[Any], bool]) -> "_Row":
        """Those that are not null."""
        another = z3.Int("another")
        running().assume(another >= 1)
        other = self.moment.heap.block(another)
        if not running().decide(self._nulls) or wanted(self.moment.null) or not wanted(other):
            raise ProofError("a table is filtered by something else than null entries")
        self.filtered = True
        return self

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
    start.moment.pool._give_back = lambda *arguments: given.append(arguments)
    start.moment.heap.meet(ANY_BLOCK)
    row.at(row.place(ANY_BLOCK))
    value = without_filters(release)(start.moment.pool, row, v.front)
    if given:  # as S1.free
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
    return [value is None, row.filtered, SymbolicBool(held_once), *start.moment.shows(end), start.moment.counts_right()]


def _release_small(f: Any, release: Any, state: PoolState) -> None:
    for ids in batches(len(state.counts) - 1, 3):
        real = [block for block in ids if block]
        if len(set(real)) < len(real):
            continue
        for trusting, front in product((False, True), repeat=2):
            refused = any(not state.counts[block] for block in real)
            if trusting and refused:
                continue
            pool = real_pool(f, state)
            pool._trusting = trusting
            what = f"release({list(ids)}, {front}) in {state}"
            if refuses(ValueError, partial(release, pool, [pool.blocks[block] for block in ids], front)) != refused:
                raise AssertionError(f"{what} should {'' if refused else 'not '}be refused")
            require(pool, state.counts if refused else _expect(state.counts, ids, -1), state.named, what)


RELEASE = HeapTheorem(
    id="S1.release",
    sentence="`release` keeps S1 and S4 in a pool of any size, for a table of any length: it queues up what is held "
    "once, or leaves all to `free_blocks` where somebody else may hold a block, or have given it back.",
    variables={"size": PARTS["size"], "front": "whether they go to the front"},
    assume=lambda v: [v.size >= 1],
    claim=_released,
    meaning="A request's blocks are freed at the cost of one store each, and none that somebody else holds.",
    controls=(
        wrong("release", "null entries are queued up", "if self.null_block in blocks:", "if False:"),
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
    order, k = start.moment.order, term(v.k)
    running().assume(k <= order.length)
    front = Listing(k, order.at, order.place)
    count, free, named, _, shared = start.fields

    def done(x: Any, t: Any) -> Any:
        return z3.And(front.holds(x), front.place(x) < t)

    def left(x: Any) -> Any:
        """All of the front have left the queue when the first round begins."""
        return z3.And(free(x), z3.Not(front.holds(x)))

    def forgotten(t: Any) -> Fields:
        """After `t` rounds of the first loop the first `t` of the front have no identity."""
        return Fields(count, left, lambda x: z3.And(named(x), z3.Not(done(x, t))), None, shared)

    def handed(t: Any) -> Fields:
        """After `t` rounds of the second one the first `t` are held."""
        return forgotten(k)._replace(count=lambda x: z3.If(done(x, t), z3.IntVal(1), count(x)))

    def right(value: Any) -> Any:
        return isinstance(value, Listing) and value.at is order.at and SymbolicBool(value.length == k)

    loops = (
        Loop(v.k if v.caching else 0, forgotten, front),
        Loop(v.k, handed, front),
        Loop(0, lambda t: handed(k), front),  # metrics are off
    )
    operation = Operation(get_new_blocks, start.moment, (v.k,), loops, handed(k), right)
    return claim(operation, plain_part(v.part), v.i)


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
    variables={**PARTS, "k": "blocks asked for", "caching": "whether caching is on"},
    assume=lambda v: [*parts_of(v, 3), v.k >= 0],
    claim=_taken,
    meaning="No block that is handed out is held, or found as a hit of what was in it before.",
    controls=(
        wrong("get_new_blocks", "nobody is said to hold them", "block.state = 1", "block.state = 0"),
        wrong("get_new_blocks", "they keep their identity", "self._forget_identity(block)", "pass"),
    ),
)


# `evict_blocks`.


def _evicted(f: Any, v: Any) -> Any:
    evict_blocks = own_code(f, "evict_blocks")
    if not is_symbolic(v):
        return everywhere(f, lambda state: _evict_small(f, evict_blocks, state))
    start = Start(f, v)
    batch = Batch(v.m, v.size, ids=True)
    count, free, named, _, shared = start.fields

    def forgotten(i: Any) -> Fields:
        return Fields(count, free, lambda x: z3.And(named(x), batch.times(x, i) == 0), None, shared)

    loops = (Loop(v.m, lambda i: start.fields, batch), Loop(v.m, forgotten, batch))
    return claim(
        Operation(evict_blocks, start.moment, (batch,), loops, forgotten(batch.length)), plain_part(v.part), v.i
    )


def _evict_small(f: Any, evict_blocks: Any, state: PoolState) -> None:
    for ids in batches(len(state.counts) - 1):
        pool = real_pool(f, state)
        evict_blocks(pool, ids)
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
    ),
)


THEOREMS = (TOUCH, TOUCH_TOGETHER, FREE, RELEASE, TAKE, EVICT)
