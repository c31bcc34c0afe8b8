"""Blocks of which nothing is known but their place in the free queue: after a reset these are all. Such a block need
not exist before it is taken again, as one that was never used; what is kept of it is its id."""

from array import array
from collections import deque
from sys import getrefcount
from typing import Any

from ..pool.block import KVCacheBlock, ids_of
from ..pool.free_queue import FreeKVCacheBlockQueue, Unmade

AWAKE = 32_768
"""So many blocks that will be taken next stay as they are: the first prompts after a reset need them."""


class Asleep(Unmade):
    """Blocks of a queue by their ids. Where somebody else has a block at hand, the object stays: it is a member as long
    as its state says so."""

    __slots__ = ("_ids", "_made")

    def __init__(self, queue: FreeKVCacheBlockQueue, ids: "array[int]", made: list[Any]) -> None:
        super().__init__(queue, len(ids), lambda _: [])
        self._ids = ids
        self._made = made
        for block_id in ids:
            if (block := made[block_id]) is not None:
                block.state = self

    def take(self, n: int) -> list[KVCacheBlock]:
        """The next `n`, made now where they are not at hand."""
        taken: list[KVCacheBlock] = []
        at, ids, made = self.at, self._ids, self._made
        while len(taken) < n:
            block_id = ids[at]
            at += 1
            block = made[block_id]
            if block is None:
                block = made[block_id] = KVCacheBlock(block_id)
            elif block.state is not self:
                continue
            taken.append(block)
        self.at = at
        self.left -= n
        return taken

    def member_ids(self) -> list[int]:
        """The ids of those that are left."""
        made = self._made
        return [i for i in self._ids[self.at :] if made[i] is None or made[i].state is self]


class SleepyQueue(FreeKVCacheBlockQueue):
    """As before, and blocks may be forgotten in it."""

    def put_to_sleep(self, made: list[Any], awake: int | None = None) -> bool:
        """Forget all blocks here that nobody has but `made`, the blocks by id, and behind so many that stay, `AWAKE`
        where it is not said. They are free, and have no names. False, with nothing done, if all of them stay."""
        awake = AWAKE if awake is None else awake
        if sum([batch.left for batch in self.batches if not isinstance(batch, Unmade)]) <= awake:
            return False
        rows, free = self._rows_of_ids(), self.num_free_blocks
        self.batches, self._empty = deque(), 0
        alone = _references([KVCacheBlock(-1)], 0)
        for row in rows:
            if isinstance(row, array):
                stay, row = row[:awake], row[awake:]
                awake -= len(stay)
                if stay:
                    self.batches.append(self._batch([made[block_id] for block_id in stay]))
                for block_id in row:
                    if _references(made, block_id) <= alone:
                        made[block_id] = None
                row = Asleep(self, row, made)
            if row.left:
                self.batches.append(row)
        self.num_free_blocks = free
        return True

    def ids(self, first_new: int) -> list[int]:
        """The ids of all blocks here, front first; none is made for it. Those that nobody has had yet begin there."""
        ids: list[int] = []
        for batch in self.batches:
            if isinstance(batch, Asleep):
                ids += batch.member_ids()
            elif isinstance(batch, Unmade):
                ids += range(first_new, first_new + batch.left)
            else:
                ids += ids_of(batch.members())
        return ids

    def _rows_of_ids(self) -> "list[Unmade | array[int]]":
        """The queue, with ids in place of the blocks that exist; these belong to no batch any more, whose list would
        have them, too."""
        rows: list[Unmade | array[int]] = []
        ids: array[int] = array("I")
        for batch in self.batches:
            if isinstance(batch, Unmade) and batch.left:
                rows += [ids, batch] if ids else [batch]
                ids = array("I")
                continue
            for block in batch.members():
                ids.append(block.block_id)
                block.state = 0
        return [*rows, ids] if ids else rows


def _references(made: list[Any], i: int) -> int:
    """How many have it at hand, this call and the list included."""
    return getrefcount(made[i])
