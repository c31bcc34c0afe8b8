"""A core's real pool with so many free blocks: what the scenes for replays share, whatever its queue is made of."""

from collections.abc import Sequence
from typing import Any

from .free_list import PlainOrder

NULL = -1
"""The null block, where blocks that are not in the queue are numbered from -1 down."""
SPARES = 6
"""Blocks of a real pool that are not in the queue, apart from the null block."""

Change = tuple[Any, int]
"""A block, and how many references it gained."""


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
        self.queue = pool.free_block_queue = f.queue_kind(self.order.blocks)
        for block in self.order.blocks if caching else ():
            block.block_hash = key = block.block_id.to_bytes(36, "big")
            pool.cached_block_hash_to_block.insert(key, block)
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
