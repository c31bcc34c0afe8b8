"""Managers of types whose queries see only the recent past: sliding window and chunks (core.md §§7, 8)."""

from collections.abc import Callable
from functools import partial
from typing import Any

from .hit_search import ChunkSearch
from .kv_cache_interface import ChunkedLocalAttentionSpec, SlidingWindowSpec
from .manager_base import SingleTypeKVCacheManager


class SlidingWindowManager(SingleTypeKVCacheManager):
    """A token attends to itself and the `sliding_window - 1` tokens before it."""

    def __init__(self, kv_cache_spec: SlidingWindowSpec, *args: Any, **kwargs: Any) -> None:
        super().__init__(kv_cache_spec, *args, **kwargs)
        self.sliding_window = kv_cache_spec.sliding_window

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """All tokens before the window of the next one."""
        return before_window(num_computed_tokens, self.sliding_window)

    @classmethod
    def skipped_at(cls, kv_cache_spec: SlidingWindowSpec) -> Callable[[int], int]:
        """All tokens before the window of a query."""
        return partial(before_window, window=kv_cache_spec.sliding_window)

    @classmethod
    def read_at_next_boundary(
        cls, kv_cache_spec: SlidingWindowSpec, blocks: range, block_size: int, unit: int
    ) -> list[bool] | None:
        """The last token of the block lies in the window of the boundary."""
        before = kv_cache_spec.sliding_window - 1
        if unit - block_size < before:
            return None  # even the first block behind a boundary is in the window of the next one
        return [-(i + 1) * block_size % unit < before for i in blocks]

    def free(self, request_id: str) -> None:
        """Give back all blocks, each part the table's end first: those without identity to the front of the queue."""
        self.num_cached_block.pop(request_id, None)
        self._give_back(self.req_to_blocks.pop(request_id, [])[::-1])

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

    @classmethod
    def skipped_at(cls, kv_cache_spec: ChunkedLocalAttentionSpec) -> Callable[[int], int]:
        """All tokens before the chunk of a query."""
        return partial(before_chunk, chunk=kv_cache_spec.attention_chunk_size)

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


def before_window(query: int, window: int) -> int:
    """How many leading tokens lie before the window of the query at a position."""
    return max(0, query - window + 1)


def before_chunk(query: int, chunk: int) -> int:
    """How many leading tokens lie before the chunk of the query at a position."""
    return query // chunk * chunk
