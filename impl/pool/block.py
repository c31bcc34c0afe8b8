"""One physical page of KV cache, as the core sees it (core.md §2)."""

from dataclasses import dataclass
from typing import Optional

from ..hashing.block_hash import BlockHashWithGroupId


@dataclass(slots=True, eq=False)
class KVCacheBlock:
    """A block: its id, who holds it, what it contains, and its neighbours while it waits in the free queue.

    `block_hash` is None while the content has no registered identity. Setting it over an identity is an AssertionError:
    two owners would then disagree about the content; `reset_hash` comes first.
    """

    block_id: int
    ref_cnt: int = 0
    _block_hash: BlockHashWithGroupId | None = None
    prev_free_block: Optional["KVCacheBlock"] = None
    next_free_block: Optional["KVCacheBlock"] = None
    is_null: bool = False

    @property
    def block_hash(self) -> BlockHashWithGroupId | None:
        """The key under which the block is registered, or None."""
        return self._block_hash

    @block_hash.setter
    def block_hash(self, key: BlockHashWithGroupId) -> None:
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
