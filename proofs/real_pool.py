"""A core's real pool with so many free blocks: what the scenes for replays share, whatever its queue is made of."""

from collections.abc import Sequence
from typing import Any

from .plain_queue import OutOfOrderError, PlainOrder, PlainQueue

NULL = -1
"""The null block, where blocks that are not in the queue are numbered from -1 down."""
SPARES = 6
"""Blocks of a real pool that are not in the queue, apart from the null block."""

Change = tuple[Any, int]
"""A block, and how many references it gained."""


def name_block(pool: Any, block: Any) -> None:
    """Register the block under a name of its own."""
    key = block.block_id.to_bytes(36, "big")
    if hasattr(block, "set_block_hash"):
        block.set_block_hash(key)
    else:
        block.block_hash = key
    pool.cached_block_hash_to_block.insert(key, block)


class RealPool:
    """The pool, and its queue of `n` blocks; beside them the null block, and `SPARES` that are held once each."""

    def __init__(self, f: Any, n: int, caching: bool) -> None:
        self.pool = pool = f.pool_kind(1 + SPARES + n, caching, 16)
        for block in pool.blocks:
            self._loosen(block)
        self._kind = f.block_kind
        self._spares = {NULL - number: block for number, block in enumerate(pool.blocks[: 1 + SPARES])}
        for number, block in self._spares.items():
            block.ref_cnt = int(number != NULL)
        self.order = PlainOrder(pool.blocks[1 + SPARES :])
        self.queue = pool._queue = pool.free_block_queue = f.queue_kind(self.order.blocks)
        for block in self.order.blocks if caching else ():
            name_block(pool, block)
        self._counts = [block.ref_cnt for block in pool.blocks]
        self._strange: list[tuple[Any, int]] = []

    def nameless(self, block: Any) -> bool:
        """True if it has no identity."""
        return block.block_hash is None

    def stranger(self, block_id: int, count: int) -> Any:
        """A block of another pool, with this id and so many references."""
        block = self._kind(block_id, count)
        self._strange.append((block, count))
        return block

    def _loosen(self, block: Any) -> None:
        """Take the block out of the queue that the pool was made with, as far as the block knows of it."""

    def _expected(self, changes: Sequence[Change]) -> list[int]:
        """The counts of the beginning, with these changes, by block."""
        expected = list(self._counts)
        for block, change in changes:
            expected[block.block_id] += change
        return expected

    def _counted(self, order: PlainOrder, expected: Sequence[int]) -> bool:
        """True if the blocks have these counts, and exactly those of the order have none."""
        inside = {id(block) for block in order.blocks}
        return all(
            block.ref_cnt == expected[block.block_id] >= 0 and (not block.ref_cnt) == (id(block) in inside)
            for block in self.pool.blocks[1:]
        )


class PlainPool(RealPool, PlainQueue):
    """A scene for a replay: the core's real pool, with `n` blocks in the queue."""

    def __init__(self, f: Any, n: int, caching: bool) -> None:
        super().__init__(f, n, caching)
        self._require_order()

    def holding(self, place: int, count: int) -> Any:
        """The block with this place or number, which has so many references."""
        block = self.block(place)
        block.ref_cnt = self._counts[block.block_id] = count
        return block

    def accounts(self, order: PlainOrder, changes: Sequence[Change]) -> list[bool]:
        """The queue reads like this, the counts changed like this, and exactly what nobody holds is free."""
        return [*self.reads(order), self._counted(order, self._expected(changes))]

    def unchanged(self) -> list[bool]:
        """True if links, counter and reference counts are those of the beginning."""
        counts = [block.ref_cnt for block in self.pool.blocks] == self._counts
        strange = all(block.ref_cnt == count and block.next_free_block is None for block, count in self._strange)
        return [*self.reads(self.order), counts, strange]

    def _loosen(self, block: Any) -> None:
        block.prev_free_block = block.next_free_block = None


class PlainBatchPool(RealPool):
    """A scene for a replay: the core's real pool, with `n` blocks in the queue."""

    def __init__(self, f: Any, n: int, caching: bool) -> None:
        super().__init__(f, n, caching)
        self._counts = self.pool.ref_counts()
        if not all(self.unchanged()):
            raise OutOfOrderError(f"the core's constructors make no pool of {n} free blocks that is in order")

    def block(self, place: int) -> Any:
        """The block at this place of the queue; below 0, the block of this number among those that are not in it."""
        return self.order.blocks[place] if 0 <= place < self.order.length else self._spares[place]

    def holding(self, place: int, count: int) -> Any:
        """The block with this place or number, which has so many references."""
        block = self.block(place)
        if place < NULL:
            block.ref_cnt = self._counts[block.block_id] = count
            self.pool._num_shared = sum(references > 1 for references in self._counts)
        return block

    def accounts(self, order: PlainOrder, changes: Sequence[Change]) -> list[bool]:
        """The queue reads like this, the counts changed like this, and exactly what nobody holds is free."""
        expected = self._expected(changes)
        shared = sum(count > 1 for count in expected[1:])
        try:
            self.queue.check()
        except AssertionError:
            return [False]
        reads = self.queue.get_all_free_blocks() == order.blocks and self.queue.num_free_blocks == order.length
        return [reads, self._counted(order, expected), self.pool._num_shared == shared]

    def unchanged(self) -> list[bool]:
        """True if the queue, the references and the number of blocks with several are those of the beginning."""
        strange = all(block.state == count for block, count in self._strange)
        return [*self.accounts(self.order, []), strange]
