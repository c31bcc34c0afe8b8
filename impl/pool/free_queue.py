"""The free queue: the blocks that nothing holds, in the order of eviction (core.md §2)."""

from collections.abc import Sequence

from .block import KVCacheBlock


class FreeKVCacheBlockQueue:
    """A doubly linked list threaded through the blocks, between two sentinels with id -1.

    The links live in the blocks, so that a cache hit takes a block out of the middle in O(1) without allocating
    anything. `check` guards the links, and the lockstep oracle compares the order after every operation.
    """

    def __init__(self, blocks: Sequence[KVCacheBlock]) -> None:
        self.num_free_blocks = len(blocks)
        self.fake_free_list_head = KVCacheBlock(-1)
        self.fake_free_list_tail = KVCacheBlock(-1)
        last = self.fake_free_list_head
        for block in blocks:
            last.next_free_block = block
            block.prev_free_block = last
            last = block
        last.next_free_block = self.fake_free_list_tail
        self.fake_free_list_tail.prev_free_block = last

    def popleft(self) -> KVCacheBlock:
        """Take the front block. ValueError if the queue is empty."""
        if not self.num_free_blocks:
            raise ValueError("no free block is left: free some blocks, or ask num_free_blocks first")
        return self.popleft_n(1)[0]

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        """Take `n` blocks from the front, in queue order. AssertionError unless 0 <= n <= num_free_blocks."""
        assert 0 <= n <= self.num_free_blocks, (
            f"asked for {n} blocks of a queue of {self.num_free_blocks}: ask for at least 0 and at most num_free_blocks"
        )
        if not n:
            return []
        taken: list[KVCacheBlock] = []
        block = self.fake_free_list_head.next_free_block
        for _ in range(n):
            assert block is not None, "the chain of links is shorter than num_free_blocks: run check()"
            after = block.next_free_block
            block.prev_free_block = block.next_free_block = None
            taken.append(block)
            block = after
        assert block is not None, "the chain of links ends before its tail: run check()"
        self.fake_free_list_head.next_free_block = block
        block.prev_free_block = self.fake_free_list_head
        self.num_free_blocks -= n
        return taken

    def remove(self, block: KVCacheBlock) -> None:
        """Unlink a block wherever it stands, in O(1). RuntimeError if it is not linked."""
        before, after = block.prev_free_block, block.next_free_block
        if before is None or after is None:
            raise RuntimeError(f"block {block.block_id} is not in the free queue: only a free block can be removed")
        before.next_free_block = after
        after.prev_free_block = before
        block.prev_free_block = block.next_free_block = None
        self.num_free_blocks -= 1

    def append(self, block: KVCacheBlock) -> None:
        """Put a block to the back."""
        self._insert_before(self.fake_free_list_tail, (block,))

    def append_n(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Put blocks to the back, in the given order."""
        self._insert_before(self.fake_free_list_tail, blocks)

    def prepend_n(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Put blocks to the front: afterwards it reads `blocks[0], blocks[1], ...`, then the old front."""
        front = self.fake_free_list_head.next_free_block
        assert front is not None, "the head has lost its link: run check()"
        self._insert_before(front, blocks)

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        """The whole queue, front first. O(n), for tests and inspection."""
        blocks: list[KVCacheBlock] = []
        block = self.fake_free_list_head.next_free_block
        while block is not None and block is not self.fake_free_list_tail:
            blocks.append(block)
            block = block.next_free_block
        return blocks

    def check(self) -> None:
        """AssertionError, with the violated equation, unless the links form one list of so many blocks. O(n)."""
        walk = self._walk(forward=True)
        back = self._walk(forward=False)
        assert walk == back[::-1], f"forward walk == reversed backward walk: {walk} != {back[::-1]}"
        assert self.num_free_blocks == len(walk), (
            f"num_free_blocks == len(walk): {self.num_free_blocks} != {len(walk)}; walk = {walk}"
        )

    def _walk(self, forward: bool) -> list[int]:
        """Ids from one sentinel to the other; AssertionError at a broken link or a block met twice."""
        start, end = self.fake_free_list_head, self.fake_free_list_tail
        if not forward:
            start, end = end, start
        ids: list[int] = []
        seen: set[int] = set()
        block = start.next_free_block if forward else start.prev_free_block
        while block is not end:
            assert block is not None, f"walk ends at a sentinel: it broke off after {ids}, forward = {forward}"
            assert id(block) not in seen, f"no block stands twice: block {block.block_id} comes again after {ids}"
            ids.append(block.block_id)
            seen.add(id(block))
            block = block.next_free_block if forward else block.prev_free_block
        return ids

    def _insert_before(self, after: KVCacheBlock, blocks: Sequence[KVCacheBlock]) -> None:
        before = after.prev_free_block
        assert before is not None, f"block {after.block_id} has lost its link: run check()"
        for block in blocks:
            before.next_free_block = block
            block.prev_free_block = before
            before = block
        before.next_free_block = after
        after.prev_free_block = before
        self.num_free_blocks += len(blocks)
