"""The pool keeps its invariants (S1, S4) when blocks are touched, one by one or all that became free together.

As of its other operations (`invariants_pool`), for a pool of any size and a batch of any length.
"""

from typing import Any

import z3

from ..heap_theorem import HeapTheorem
from ..invariants.induction import Batch, Different, Loop, Operation, claim
from ..invariants.listings import ANY_BLOCK, Listing
from ..invariants.pool_parts import Fields, without
from ..invariants.small_pools import PoolState, batches, everywhere, real_pool, require
from ..invariants.start import BATCH, Start, expected, is_symbolic, own_code, parts_of, plain_part, wrong
from ..solver import ProofError
from ..symbolic import SymbolicBool, running

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
        require(pool, expected(state.counts, ids if right else (), 1), state.named, what)


def _touch_small(f: Any, touch: Any, state: PoolState) -> None:
    for ids in batches(len(state.counts) - 1):
        pool = real_pool(f, state)
        touch(pool, [pool.blocks[block] for block in ids])
        require(pool, expected(state.counts, ids, 1), state.named, f"touch({list(ids)}) in {state}")


TOUCH = HeapTheorem(
    id="S1.touch",
    sentence="`touch` keeps S1 and S4 in a pool of any size, for a batch of any length, whatever stands in it twice.",
    variables=BATCH,
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
    variables=BATCH,
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

THEOREMS = (TOUCH, TOUCH_TOGETHER)
