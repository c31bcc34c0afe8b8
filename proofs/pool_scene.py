"""A pool of any size, on which a core's own methods run: a scene as in `free_list`, with references.

The invariant besides that of the queue: block 0 is the null block and not in the queue; any other block of the pool is
in it exactly if its reference count is 0, and no count is negative. The count of the null block is nobody's business.
A block may have an identity, which is registered then. Metrics and events are off: neither touches a link or a count.
"""

from collections.abc import Sequence
from inspect import signature
from typing import Any

import z3

from .bare import bare
from .free_list import SymbolicOrder, SymbolicQueue
from .heap import Heap, Identity
from .real_pool import NULL, Change, PlainBatchPool, PlainPool
from .solver import ProofError
from .symbolic import SymbolicBool, SymbolicInt, running, term

_STRANGER = -20


class _Own:
    """All blocks of the pool, by id."""

    def __init__(self, heap: Heap, size: Any) -> None:
        self._heap, self._size = heap, size

    def __getitem__(self, index: Any) -> Any:
        i = term(index)
        if running().decide(z3.And(i >= 0, i < self._size)):
            return self._heap.block(i)
        if running().decide(i < 0):
            raise ProofError("a block of the pool is asked for by a negative index, which counts from the end")
        raise IndexError("list index out of range")

    def symbolic_len(self) -> SymbolicInt:
        return SymbolicInt(self._size)


class _Registry:
    """All identities that blocks have."""

    def pop(self, key: Identity, block_id: Any) -> Identity:
        """What was registered: something, since the identity is that of a block."""
        return key


class _NoMoreNames:
    """What other names blocks have: none."""

    def pop(self, block_id: Any, default: tuple[()]) -> tuple[()]:
        return default


class SymbolicPool(SymbolicQueue):
    """A scene for a proof. Make it inside the run."""

    def __init__(self, f: Any, n: Any, caching: Any) -> None:
        self._size = z3.Int("size")
        super().__init__(f, n)
        running().assume(self._size >= 1)
        self.pool = bare(
            f.pool_kind,
            num_gpu_blocks=SymbolicInt(self._size),
            enable_caching=caching,
            blocks=_Own(self.heap, self._size),
            free_block_queue=self.queue,
            null_block=self.heap.block(z3.IntVal(0)),
            cached_block_hash_to_block=_Registry(),
            cached_block_hashes_by_block=_NoMoreNames(),
            _reuse_watchers={},
            hash_block_size=16,
            metrics_collector=None,
            enable_kv_cache_events=False,
        )

    def holding(self, place: Any, count: Any) -> Any:
        """The block with this place or number, which has so many references."""
        where, references = term(place), term(count)
        queued = z3.And(where >= 0, where < self._n)
        # Said of each block that it may be, so that it does not rest on the answer to which one it is.
        whichever = ((queued, self._at(where)), (where == NULL, z3.IntVal(0)), (where < NULL, self._spare(where)))
        for condition, reference in whichever:
            running().assume(z3.Implies(condition, self.heap.before("ref_cnt", reference) == references))
        return self.pool.null_block if place == NULL else self.block(place)

    def nameless(self, block: Any) -> SymbolicBool:
        """True if it has no identity."""
        return SymbolicBool(z3.Not(self.heap.value("_block_hash", block.reference)))

    def stranger(self, block_id: Any, count: Any) -> Any:
        """A block of another pool, with this id and so many references."""
        block = self.heap.block(z3.IntVal(_STRANGER))
        fields = {"block_id": block_id, "ref_cnt": count}
        running().assume(z3.And([self.heap.before(f, block.reference) == term(x) for f, x in fields.items()]))
        return block

    def accounts(self, order: SymbolicOrder, changes: Sequence[Change]) -> list[SymbolicBool]:
        """The queue reads like this, the counts changed like this, and exactly what nobody holds is free."""
        x = z3.Int("any_block_q")
        now, expected = self.heap.value("ref_cnt", x), self.heap.before("ref_cnt", x)
        for block, change in changes:
            expected = expected + z3.If(x == block.reference, change, 0)
        claim = z3.And(now == expected, now >= 0, (now == 0) == order.holds(x))
        return [*self.reads(order), SymbolicBool(z3.Implies(z3.And(x >= 1, x < self._size), claim))]

    def _facts_of_member(self, i: Any, here: Any) -> list[Any]:
        free = z3.And(here >= 1, here < self._size, self.heap.before("ref_cnt", here) == 0)
        return [z3.Implies(z3.And(i >= 0, i < self._n), free)]

    def _facts_of_block(self, x: Any) -> list[Any]:
        count, holds = self.heap.before("ref_cnt", x), self.order.holds(x)
        return [
            self.heap.before("is_null", x) == (x == 0),
            z3.Implies(z3.And(x >= 0, x < self._size), self.heap.before("block_id", x) == x),
            z3.Implies(z3.And(x >= 1, x < self._size), z3.And(count >= 0, (count == 0) == holds)),
        ]

    def _facts_of_spare(self, x: Any) -> list[Any]:
        return [x >= 1, x < self._size]


def names_decide(pool_kind: Any) -> bool:
    """True if `free_blocks` is not told where blocks go: those with a name to the back, if there is caching."""
    return "prepend" not in signature(pool_kind.free_blocks).parameters


def pool_scene(f: Any, n: Any, caching: Any = False) -> Any:
    """A pool of the core whose roles these are, with `n` blocks in its queue; symbolic if `n` is."""
    if f.block_kind and hasattr(f.queue_kind, "lose"):  # a row of batches
        from .batch_pool import SymbolicBatchPool

        return SymbolicBatchPool(f, n, caching) if isinstance(n, SymbolicInt) else PlainBatchPool(f, n, caching)
    return SymbolicPool(f, n, caching) if isinstance(n, SymbolicInt) else PlainPool(f, n, caching)
