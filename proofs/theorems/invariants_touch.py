"""The pool keeps its invariants (S1, S4) when blocks are touched.

As of its other operations (`invariants_pool`), for a pool of any size and a batch of any length. That blocks looked at
all together are held as if each were looked at alone is S1.short.
"""

from typing import Any

import z3

from ..heap_theorem import HeapTheorem
from ..invariants.induction import Batch, Loop, Operation, claim
from ..invariants.pool_parts import Fields, remaining
from ..invariants.small_pools import PoolState, batches, everywhere, real_pool, require
from ..invariants.start import BATCH, Start, expected, is_symbolic, own_code, parts_of, plain_part, wrong
from ..solver import ProofError
from ..symbolic import running

# `touch`.


def _touched(f: Any, v: Any) -> Any:
    touch = own_code(f, "touch")
    if not is_symbolic(v):
        return everywhere(f, lambda state: _touch_small(f, touch, state))
    start = Start(f, v)
    batch = start.batch(v.m)
    count, _, named, _, _ = start.fields
    tally = start.tally(batch, lambda x, i: count(x) + batch.times(x, i))
    together = z3.Bool("together")
    start.also.append(lambda x: z3.Implies(together, _one_of_the_pool(start, batch, x)))

    def held(i: Any) -> Fields:
        def now(x: Any) -> Any:
            return count(x) + batch.times(x, i)

        return Fields(now, lambda x: now(x) == 0, named, None, tally(i))

    def touch_many(blocks: Any) -> bool:
        """What S1.short says of it: nothing is changed, or different blocks of the pool are held once more."""
        if blocks is not batch:
            raise ProofError("other blocks are touched together than are given")
        if not running().decide(together):
            return False
        moment = start.moment
        moment.queue.order = remaining(moment.queue.order, lambda x: batch.times(x, batch.length) == 0)
        moment.become(held(batch.length))
        return True

    start.moment.pool._touch_many = touch_many
    loops = (Loop(v.m, lambda i: start.fields, batch), Loop(v.m, held, batch))
    return claim(Operation(touch, start.moment, (batch,), loops, held(batch.length)), plain_part(v.part), v.i)


def _one_of_the_pool(start: Start, batch: Batch, x: Any) -> Any:
    """That the block stands in the batch once at most, and is not null."""
    once = batch.times(x, batch.length) <= 1
    return z3.And(once, z3.Implies(batch.times(x, batch.length) >= 1, start.holds(x)))


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
        wrong(
            "touch", "the null block is treated like any other", "if block is null:", "if False:", raises="RuntimeError"
        ),
        wrong("touch", "blocks with two holders are not counted", "self._num_shared += state == 1", "pass"),
    ),
)

THEOREMS = (TOUCH,)
