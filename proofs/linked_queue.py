"""A free queue of linked blocks, as the releases of vLLM have one.

Our core has none. Random programs on the symbolic heap run on this one (`fuzzing.structures`), and the tests of what is
proved of linked blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from .theorem import Subject, UnavailableError


@dataclass(slots=True, eq=False)
class KVCacheBlock:
    """A block: its id, who holds it, what it contains, and its neighbours while it waits in the free queue.

    `block_hash` is None while the content has no registered identity. Setting it over an identity is an AssertionError:
    two owners would then disagree about the content; `reset_hash` comes first.
    """

    block_id: int
    ref_cnt: int = 0
    _block_hash: bytes | None = None
    prev_free_block: Optional["KVCacheBlock"] = None
    next_free_block: Optional["KVCacheBlock"] = None
    is_null: bool = False

    @property
    def block_hash(self) -> bytes | None:
        """The key under which the block is registered, or None."""
        return self._block_hash

    @block_hash.setter
    def block_hash(self, key: bytes) -> None:
        assert self._block_hash is None, (
            f"block {self.block_id} already carries identity {self._block_hash!r} and cannot take {key!r}: "
            "call reset_hash() first"
        )
        self._block_hash = key

    def reset_hash(self) -> None:
        """Forget the identity."""
        self._block_hash = None

    def __repr__(self) -> str:
        # Neighbours by id only: printing them in full would walk the whole queue.
        before = self.prev_free_block.block_id if self.prev_free_block is not None else None
        after = self.next_free_block.block_id if self.next_free_block is not None else None
        return (
            f"KVCacheBlock(block_id={self.block_id}, ref_cnt={self.ref_cnt}, block_hash={self._block_hash!r}, "
            f"prev={before}, next={after}{', null' if self.is_null else ''})"
        )


class FreeKVCacheBlockQueue:
    """A doubly linked list threaded through the blocks, between two sentinels with id -1.

    The links live in the blocks, so that a cache hit takes a block out of the middle in O(1).
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
            assert block is not None, "the chain of links is shorter than num_free_blocks"
            after = block.next_free_block
            block.prev_free_block = block.next_free_block = None
            taken.append(block)
            block = after
        assert block is not None, "the chain of links ends before its tail"
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
        assert front is not None, "the head has lost its link"
        self._insert_before(front, blocks)

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        """The whole queue, front first. O(n), for tests and inspection."""
        blocks: list[KVCacheBlock] = []
        block = self.fake_free_list_head.next_free_block
        while block is not None and block is not self.fake_free_list_tail:
            blocks.append(block)
            block = block.next_free_block
        return blocks

    def _insert_before(self, after: KVCacheBlock, blocks: Sequence[KVCacheBlock]) -> None:
        before = after.prev_free_block
        assert before is not None, f"block {after.block_id} has lost its link"
        for block in blocks:
            before.next_free_block = block
            block.prev_free_block = before
            before = block
        before.next_free_block = after
        after.prev_free_block = before
        self.num_free_blocks += len(blocks)


_KINDS: dict[str, Any] = {"block_kind": KVCacheBlock, "queue_kind": FreeKVCacheBlockQueue}


def _find(role: str) -> Any:
    # Of the module, not of `subject`: it stands in a file under proof, whose functions are watched by their names.
    found = _KINDS.get(role) or getattr(FreeKVCacheBlockQueue, role, None)
    if found is None:
        raise UnavailableError(f"a queue of linked blocks alone has no {role}")
    return found


def subject() -> Subject:
    """This queue as a core that has nothing else."""
    return Subject("linked", _find, (__name__,))
