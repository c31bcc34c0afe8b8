"""The pool keeps its invariants (S1, S4) in any state, for batches of any length: induction over its own loops.

From any pool, of any number of blocks, in which exactly what nobody holds is free, the null block is neither free nor
named, and exactly what carries an identity is registered, every operation leads to such a pool. What the free queue
does is taken from T25, which proves it of its links for any length.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import z3

from ...impl import BlockPool
from ..claims import refuses
from ..heap_theorem import HeapTheorem
from ..invariants.induction import Batch, Loop, Operation, claim
from ..invariants.listings import Gathered, Listing
from ..invariants.pool import Fields, Moment
from ..invariants.small_pools import PoolState, batches, everywhere, real_pool, require
from ..solver import ProofError
from ..symbolic import SymbolicBool, SymbolicInt, running, term
from ..theorem import NegativeControl, UnavailableError
from .wrong_loops import changed

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


def is_symbolic(v: Any) -> bool:
    """True in a proof, False in a replay."""
    return isinstance(v.size, SymbolicInt)


def wrong(role: str, what: str, line: str, instead: str) -> NegativeControl:
    """Our core's method with one line changed. Where it has no such line, nobody can say whether it would be refuted."""
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
    batch = Batch(v.m, v.size)
    count, _, named, _ = start.fields

    def held(i: Any) -> Fields:
        def now(x: Any) -> Any:
            return count(x) + batch.times(x, i)

        return Fields(now, lambda x: now(x) == 0, named)

    loops = (Loop(v.m, lambda i: start.fields, batch), Loop(v.m, held, batch))
    return claim(Operation(touch, start.moment, (batch,), loops, held(batch.length)), plain_part(v.part), v.i)


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
        wrong("touch", "what is free stays in the queue", "remove(block)", "pass"),
        wrong("touch", "a block that stands in it twice counts once", "block.ref_cnt += 1", "block.ref_cnt = 1"),
        wrong("touch", "the null block is treated like any other", "if block is not null:", "if True:"),
    ),
)


# `free_blocks`.


def _freed(f: Any, v: Any) -> Any:
    free_blocks = own_code(f, "free_blocks")
    if not is_symbolic(v):
        return everywhere(f, lambda state: _free_small(f, free_blocks, state))
    start = Start(f, v)
    batch = Batch(v.m, v.size)
    count, free, named, _ = start.fields

    def held(i: Any) -> Fields:
        return Fields(lambda x: count(x) - batch.times(x, i), free, named)

    def undone(i: Any, j: Any) -> Fields:
        return Fields(lambda x: count(x) - batch.times(x, i) + batch.times(x, j), free, named)

    def enough(i: Any, x: Any) -> Any:
        """What has been given back so far was held."""
        return z3.Implies(start.holds(x), batch.times(x, i) <= count(x))

    def let_go(i: Any, x: Any) -> Any:
        """Blocks that had references, and all of them are given back by now."""
        return z3.And(start.holds(x), count(x) > 0, count(x) == batch.times(x, i))

    def in_the_end(x: Any) -> Any:
        return count(x) == batch.times(x, batch.length)

    loop = Loop(v.m, held, batch, {"freed": Gathered("freed", let_go)}, known=enough, undo=undone)
    end = Fields(lambda x: count(x) - batch.times(x, batch.length), in_the_end, named)
    return claim(Operation(free_blocks, start.moment, (batch, v.front), (loop,), end), plain_part(v.part), v.i)


def _free_small(f: Any, free_blocks: Any, state: PoolState) -> None:
    for ids in batches(len(state.counts) - 1, 3):
        expected = _expect(state.counts, ids, -1)
        refused = min(expected[1:], default=0) < 0
        for front in (False, True):
            pool = real_pool(f, state)
            what = f"free_blocks({list(ids)}, {front}) in {state}"
            if refuses(ValueError, partial(free_blocks, pool, [pool.blocks[block] for block in ids], front)) != refused:
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
        wrong("free_blocks", "what is still held is freed", "if references == 1:", "if references >= 1:"),
        wrong("free_blocks", "the last reference is not given back", "block.ref_cnt = references - 1", "pass"),
        wrong("free_blocks", "the null block is freed like any other", "if block is null:", "if False:"),
        wrong("free_blocks", "not all is undone", "for earlier in blocks[:i]:", "for earlier in blocks[:0]:"),
        wrong("free_blocks", "nothing is undone", "earlier.ref_cnt += earlier is not null", "pass"),
        wrong("free_blocks", "the front is forgotten", "self.free_block_queue.prepend_n(freed)", "pass"),
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
    assume=lambda v: [*parts_of(v, 1), v.k >= 0],
    claim=_taken,
    meaning="No block that is handed out is held, or found as a hit of what was in it before.",
    controls=(
        wrong("get_new_blocks", "nobody is said to hold them", "block.ref_cnt = 1", "block.ref_cnt = 0"),
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
    count, free, named, _ = start.fields

    def forgotten(i: Any) -> Fields:
        return Fields(count, free, lambda x: z3.And(named(x), batch.times(x, i) == 0))

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
        wrong("evict_blocks", "nothing is forgotten", "self._forget_identity(self.blocks[block_id])", "pass"),
        wrong(
            "evict_blocks",
            "the map goes on to find them",
            "self._forget_identity(self.blocks[block_id])",
            "self.blocks[block_id].reset_hash()",
        ),
    ),
)


THEOREMS = (TOUCH, FREE, TAKE, EVICT)
