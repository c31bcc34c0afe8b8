"""The free queue: the blocks that nothing holds, in the order of eviction (core.md §2)."""

from collections import deque
from collections.abc import Callable, Sequence

from .block import MANY, Batch, KVCacheBlock

SMALL = 16
"""So few blocks are worth no batch of their own."""
_MAKE = 4096
"""So many blocks at least are made at a time: one by one they would stand scattered in memory, and cost more."""


class Unmade(Batch):
    """Blocks that nobody has had yet, and that do not exist before they are taken: a large pool costs nothing."""

    __slots__ = ("_make",)

    def __init__(self, queue: "FreeKVCacheBlockQueue", count: int, make: Callable[[int], list[KVCacheBlock]]) -> None:
        super().__init__(queue, [])
        self.left = count
        self._make = make

    def take(self, n: int) -> list[KVCacheBlock]:
        """The next `n`, made now."""
        self.left -= n
        return self._make(n)


class FreeKVCacheBlockQueue:
    """A row of batches: blocks that are freed together stay together.

    To put blocks into it costs one store for each, to take them out of the front a slice, and to take one out of the
    middle, as a hit does, one store. `check` guards what the batches say of themselves, and the lockstep oracle
    compares the order after every operation.
    """

    def __init__(self, blocks: Sequence[KVCacheBlock]) -> None:
        self.num_free_blocks = 0
        self.batches: deque[Batch] = deque()
        self._empty = 0
        """How many of these have no block any more."""
        self.append_n(blocks)
        self.fake_free_list_head = self._sentinel()
        self.fake_free_list_tail = self._sentinel()

    def reserve(self, count: int, make: Callable[[int], list[KVCacheBlock]]) -> None:
        """Put `count` blocks to the back that `make` makes when they are taken: so many at a time, in their order."""
        if count:
            self.batches.append(Unmade(self, count, make))
            self.num_free_blocks += count

    def popleft(self) -> KVCacheBlock:
        """Take the front block. ValueError if the queue is empty."""
        if not self.num_free_blocks:
            raise ValueError("No free blocks available")
        return self.popleft_n(1)[0]

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        """Take `n` blocks from the front, in queue order. AssertionError unless 0 <= n <= num_free_blocks."""
        if not (0 <= n <= self.num_free_blocks):
            raise AssertionError(
                f"asked for {n} blocks of a queue of {self.num_free_blocks}: "
                "ask for at least 0 and at most num_free_blocks"
            )
        taken = self.take(n)
        for block in taken:
            block.state = 0
        return taken

    def take(self, n: int) -> list[KVCacheBlock]:
        """As `popleft_n`, for one who knows that there are so many, and gives them another state himself."""
        batches = self.batches
        self.num_free_blocks -= n
        if batches:
            batch = batches[0]
            at, left = batch.at, batch.left
            if left > n and left == len(batch.blocks) - at:  # mostly
                batch.at = at + n
                batch.left = left - n
                return batch.blocks[at : at + n]
        taken: list[KVCacheBlock] = []
        while n:
            batch = batches[0]
            left = batch.left
            if isinstance(batch, Unmade) and n < _MAKE < left:
                # Not in ones: to make a block costs less in company.
                self.num_free_blocks -= _MAKE
                batches.appendleft(self._batch(batch.take(_MAKE)))
                continue
            if left >= n:
                rest = batch.take(n)
                if left == n:
                    batches.popleft()
                return taken + rest if taken else rest
            if left:
                taken += batch.take(left)
                n -= left
            else:
                self._empty -= 1
            batches.popleft()
        return taken

    def remove(self, block: KVCacheBlock) -> None:
        """Take out a block wherever it stands, in O(1). RuntimeError if it is not in this queue."""
        batch = block.state
        if isinstance(batch, int) or batch.queue is not self:
            raise RuntimeError(f"block {block.block_id} is not in the free queue: only a free block can be removed")
        block.state = 0
        self.lose(batch, 1)

    def lose(self, batch: Batch, n: int) -> None:
        """Note that `n` blocks of this batch have been given another state."""
        batch.lose(n)
        self.num_free_blocks -= n
        if not batch.left:
            self._empty += 1
            if self._empty > MANY and self._empty * 2 > len(self.batches):
                self.batches = deque([batch for batch in self.batches if batch.left])
                self._empty = 0

    def append(self, block: KVCacheBlock) -> None:
        """Put a block to the back."""
        self.append_n((block,))

    def append_n(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Put blocks to the back, in the given order."""
        n = len(blocks)
        if not n:
            return
        if n <= SMALL and self.batches:
            last = self.batches[-1]
            left, size = last.left, len(last.blocks)
            # Where none has been lost, none of these can stand in it already; so none will seem to be there twice.
            if left and left == size - last.at and size < MANY:
                last.blocks += blocks
                last.left = left + n
                self.num_free_blocks += n
                for block in blocks:
                    block.state = last
                return
        self.batches.append(self._batch(blocks))

    def append_named(self, blocks: list[KVCacheBlock]) -> bool:
        """`append_n` of many blocks if each has a name; the list is kept. False if not, or if they are few: nothing has
        changed then but states, which the caller has to set."""
        if len(blocks) <= SMALL:
            return False
        batch = Batch(self, blocks)
        for block in blocks:
            if block.content is None:
                return False
            block.state = batch
        self.num_free_blocks += batch.left
        self.batches.append(batch)
        return True

    def prepend_n(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Put blocks to the front: afterwards it reads `blocks[0], blocks[1], ...`, then the old front."""
        n = len(blocks)
        if not n:
            return
        if n <= SMALL and self.batches:
            first = self.batches[0]
            at, left = first.at, first.left
            # They come in place of some that were taken. As for `append_n`, none of these may stand in it already.
            if n <= at and left and left == len(first.blocks) - at:
                first.blocks[at - n : at] = blocks
                first.at = at - n
                first.left = left + n
                self.num_free_blocks += n
                for block in blocks:
                    block.state = first
                return
        self.batches.appendleft(self._batch(blocks))

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        """The whole queue, front first. O(n), for tests and inspection."""
        self.make_all()
        row: list[KVCacheBlock] = []
        for batch in self.batches:
            rest = batch.blocks[batch.at :]
            row += rest if batch.left == len(rest) else batch.members()
        return row

    def make_all(self) -> None:
        """Make all blocks that do not exist yet."""
        for i, unmade in enumerate(self.batches):
            if isinstance(unmade, Unmade):
                self.num_free_blocks -= unmade.left
                self.batches[i] = self._batch(unmade.take(unmade.left))

    def neighbours(self, block: KVCacheBlock) -> tuple[KVCacheBlock | None, KVCacheBlock | None]:
        """The blocks before and behind it; the first one's and the last one's are the two sentinels. O(n)."""
        row = [self.fake_free_list_head, *self.get_all_free_blocks(), self.fake_free_list_tail]
        at = row.index(block)
        return (row[at - 1] if at else None), (row[at + 1] if at + 1 < len(row) else None)

    def check(self) -> None:
        """AssertionError, with the violated equation, unless batches, blocks and counts agree. O(n)."""
        seen: set[int] = set()
        for batch in self.batches:
            members = [] if isinstance(batch, Unmade) else [b for b in batch.blocks[batch.at :] if b.state is batch]
            if not isinstance(batch, Unmade) and batch.left != len(members):
                raise AssertionError(
                    f"left == number of members: {batch.left} != {len(members)} in {[b.block_id for b in members]}"
                )
            for block in members:
                if id(block) in seen:
                    raise AssertionError(f"no block stands twice: block {block.block_id} comes again")
                seen.add(id(block))
        left = sum(batch.left for batch in self.batches)
        if self.num_free_blocks != left:
            raise AssertionError(f"num_free_blocks == sum of left: {self.num_free_blocks} != {left}")
        empty = sum(not batch.left for batch in self.batches)
        if self._empty != empty:
            raise AssertionError(f"batches without blocks: {self._empty} != {empty}")

    def _batch(self, blocks: Sequence[KVCacheBlock]) -> Batch:
        batch = Batch(self, list(blocks))
        for block in batch.blocks:
            block.state = batch
        self.num_free_blocks += batch.left
        return batch

    def _sentinel(self) -> KVCacheBlock:
        sentinel = KVCacheBlock(-1)
        sentinel.state = Batch(self, [sentinel])
        return sentinel
