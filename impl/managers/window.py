"""Managers of types whose queries see only the recent past: sliding window and chunks (core.md §§7, 8)."""

from bisect import bisect
from typing import Any

from ..specs.base import cdiv
from ..specs.interface import ChunkedLocalAttentionSpec, SlidingWindowSpec
from .base import SingleTypeKVCacheManager
from .hit_search import ChunkSearch, TailSearch, before_chunk


class SlidingWindowManager(SingleTypeKVCacheManager):
    """A token attends to itself and the `sliding_window - 1` tokens before it."""

    search_type = TailSearch

    def __init__(self, kv_cache_spec: SlidingWindowSpec, *args: Any, **kwargs: Any) -> None:
        super().__init__(kv_cache_spec, *args, **kwargs)
        self.sliding_window = kv_cache_spec.sliding_window

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """All tokens before the window of the next one."""
        return max(0, num_computed_tokens - self.sliding_window + 1)

    def skips_at(self, num_settled_tokens: int) -> int:
        """Where the window has left one block more."""
        size, behind = self.block_size, self.sliding_window - 1
        skipped = (num_settled_tokens - behind) // size if num_settled_tokens > behind else 0
        return (skipped + 1) * size + behind

    @classmethod
    def blocks_read_before(cls, kv_cache_spec: SlidingWindowSpec, block_size: int) -> int:
        """Those that the window of the boundary reaches into."""
        return cls._contiguous_blocks_for_hit(kv_cache_spec.sliding_window, block_size, False)

    @classmethod
    def _contiguous_blocks_for_hit(cls, window_size: int, block_size: int, use_eagle: bool) -> int:
        """Blocks in a row that a hit needs so that the next token finds its window; one more behind with eagle."""
        return cdiv(window_size - 1, block_size) + (1 if use_eagle else 0)

    def free(self, request_id: str) -> None:
        """Give back all blocks, each part the table's end first: those without identity to the front of the queue."""
        self.num_cached_block.pop(request_id, None)
        table, null = self.req_to_blocks.pop(request_id, []), self._null_block
        nulls = bisect(table, False, key=lambda block: block is not null)
        self._give_back(table[nulls:][::-1])

    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        """Always 0: the prefix leaves the window."""
        return 0


class ChunkedLocalAttentionManager(SingleTypeKVCacheManager):
    """A token attends to the tokens before it in its chunk."""

    search_type = ChunkSearch

    def __init__(self, kv_cache_spec: ChunkedLocalAttentionSpec, *args: Any, **kwargs: Any) -> None:
        super().__init__(kv_cache_spec, *args, **kwargs)
        self.attention_chunk_size = kv_cache_spec.attention_chunk_size

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """All tokens before the chunk of the next one."""
        return before_chunk(num_computed_tokens, self.attention_chunk_size)

    def skips_at(self, num_settled_tokens: int) -> int:
        """Where the first chunk begins that has left one block more."""
        skipped = self._num_skipped_blocks(num_settled_tokens)
        return cdiv((skipped + 1) * self.block_size, self.attention_chunk_size) * self.attention_chunk_size

    @classmethod
    def first_read(cls, kv_cache_spec: ChunkedLocalAttentionSpec, num_blocks: int, block_size: int) -> int:
        """The block in which the chunk of the query begins."""
        return before_chunk(num_blocks * block_size, kv_cache_spec.attention_chunk_size) // block_size

    @classmethod
    def read_at_next_boundary(
        cls, kv_cache_spec: ChunkedLocalAttentionSpec, blocks: range, block_size: int, unit: int
    ) -> list[bool]:
        """The chunk of the boundary begins before the block's end."""
        chunk, ends = kv_cache_spec.attention_chunk_size, [(i + 1) * block_size for i in blocks]
        return [-(-end // unit) * unit // chunk * chunk < end for end in ends]

    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        """Always 0: the prefix leaves the chunk."""
        return 0
