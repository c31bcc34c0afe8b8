"""A pool whose free queue is a row of batches, of any size: what `pool_scene` makes of one whose blocks are linked.

The queue is known by what T25 says of it (`invariants.pool.Queue`): which blocks stand in it, in which order.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import z3

from .free_list import SymbolicOrder
from .invariants.listings import ANY_BLOCK, ANY_PLACE, Listing, as_term
from .invariants.pool import Moment
from .invariants.pool_parts import Fields, Queue
from .real_pool import NULL, Change
from .symbolic import SymbolicBool, SymbolicInt, running, term

_STRANGER = -20


class _ShortQueue(Queue):
    """A queue from which few blocks are taken at once: they come as a list. How one is taken out of a first batch that
    has all its blocks is S1.short: here there is none."""

    batches = (SimpleNamespace(left=0, at=0, blocks=()),)

    def take(self, count: Any) -> Any:
        """So many leave its front."""
        taken, heap = super().take(count), self._moment.heap
        blocks: list[Any] = []
        while len(blocks) < count:
            blocks.append(heap.block(taken.at(z3.IntVal(len(blocks)))))
        return blocks

    def popleft(self) -> Any:
        """The first one leaves it."""
        (block,) = self.take(1)
        block.state = 0
        return block


class SymbolicBatchPool:
    """A scene for a proof. Make it inside the run."""

    def __init__(self, f: Any, n: Any, caching: Any) -> None:
        integer = z3.IntSort()
        self._size, self._shared, self._n = z3.Int("size"), z3.Int("shared"), term(n)
        self._count, self._spare, self._number = (
            z3.Function(name, integer, integer) for name in ("references", "spare", "number")
        )
        named = z3.Function("carries", integer, z3.BoolSort())
        running().assume(z3.And(self._size >= 1, self._shared >= 0))
        fields = Fields(self._count, lambda x: self._count(x) == 0, named, None, self._shared)
        self._moment = Moment(f, "scene", SymbolicInt(self._size), caching, fields, self._facts)
        moment = self._moment
        running().assume(moment.order.length == self._n)
        self.order = SymbolicOrder(n, moment.order.at, moment.order.place, lambda i: [i])
        self.pool, self.queue = moment.pool, _ShortQueue(moment, moment.order)
        self.pool.free_block_queue = moment.queue = self.queue
        self._strange: list[tuple[Any, Any]] = []

    def block(self, place: Any) -> Any:
        """The block at this place of the queue; below 0, the block of this number among those that are not in it."""
        where = term(place)
        if running().decide(z3.And(where >= 0, where < self._n)):
            return self._moment.heap.block(self._moment.order.at(where))
        spare = self._spare(where)
        held = z3.And(self._number(spare) == where, spare >= 1, spare < self._size, self._count(spare) >= 1)
        running().assume(z3.Implies(where < 0, held))
        return self._moment.heap.block(spare)

    def holding(self, place: Any, count: Any) -> Any:
        """The block with this place or number, which has so many references."""
        where, references = term(place), term(count)
        queued = z3.And(where >= 0, where < self._n)
        # Said of each block that it may be, so that it does not rest on the answer to which one it is.
        whichever = ((queued, self._moment.order.at(where)), (where < NULL, self._spare(where)))
        for condition, reference in whichever:
            running().assume(z3.Implies(condition, self._count(reference) == references))
        return self.pool.null_block if place == NULL else self.block(place)

    def nameless(self, block: Any) -> SymbolicBool:
        """True if it has no identity."""
        return SymbolicBool(z3.Not(self._moment.heap.named_now(block.reference)))

    def stranger(self, block_id: Any, count: Any) -> Any:
        """A block of another pool, with this id and so many references."""
        block = self._moment.heap.block(z3.IntVal(_STRANGER))
        block.block_id, block.state = block_id, count
        self._strange.append((block, count))
        return block

    def accounts(self, order: SymbolicOrder, changes: Sequence[Change]) -> list[SymbolicBool]:
        """The queue reads like this, the counts changed like this, and exactly what nobody holds is free."""
        x, heap = ANY_BLOCK, self._moment.heap
        self._moment.heap.meet(x)

        def expected(block: Any) -> Any:
            result = self._count(block)
            for one, change in changes:
                result = result + z3.If(block == one.reference, change, 0)
            return result

        shared = self._shared
        for reference in {block.reference.get_id(): block.reference for block, _ in changes}.values():
            more, before = (z3.If(count > 1, 1, 0) for count in (expected(reference), self._count(reference)))
            shared = shared + more - before
        now = heap.value("state", x)
        claim = z3.And(now == expected(x), now >= 0, (now == 0) == _holds(order, x))
        return [
            *self._reads(order),
            SymbolicBool(z3.Implies(z3.And(x >= 1, x < self._size), claim)),
            SymbolicBool(as_term(self.pool._num_shared) == shared),
        ]

    def unchanged(self) -> list[SymbolicBool]:
        """True if the queue, the references and the number of blocks with several are those of the beginning."""
        strange = [SymbolicBool(as_term(block.state) == as_term(count)) for block, count in self._strange]
        return [*self.accounts(self.order, []), *strange]

    def _reads(self, order: SymbolicOrder) -> list[SymbolicBool]:
        """What is owed, and that the queue has these blocks in this order."""
        now, j, length = self.queue.order, ANY_PLACE, term(order.length)
        inside = z3.And(j >= 0, j < length)
        same = z3.And(now.length == length, z3.Implies(inside, now.at(j) == order.at(j)))
        return [SymbolicBool(claim) for claim in (*self._moment.owed, same)]

    def _facts(self, x: Any) -> None:
        inside = z3.And(x >= 1, x < self._size)
        running().assume(
            z3.Implies(inside, z3.And(self._count(x) >= 0, z3.Implies(self._shared == 0, self._count(x) <= 1)))
        )


def _holds(order: SymbolicOrder, x: Any) -> Any:
    """Is this a block of the order?"""
    return Listing(order.length, order.at, order.place).holds(x)
