"""Managers of types whose queries see only the recent past: sliding window and chunks (core.md §§7, 8)."""

from typing import Any

from .kv_cache_interface import ChunkedLocalAttentionSpec, KVCacheSpec, SlidingWindowSpec
from .manager_base import HitBlocks, HitQuery, SingleTypeKVCacheManager, aligned, cut_to, cut_to_aligned
from .spec_base import cdiv


class SlidingWindowManager(SingleTypeKVCacheManager):
    """A token attends to itself and the `sliding_window - 1` tokens before it."""

    def __init__(self, kv_cache_spec: SlidingWindowSpec, *args: Any, **kwargs: Any) -> None:
        super().__init__(kv_cache_spec, *args, **kwargs)
        self.sliding_window = kv_cache_spec.sliding_window

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """All tokens before the window of the next one."""
        return max(0, num_computed_tokens - self.sliding_window + 1)

    @classmethod
    def search(cls, query: HitQuery) -> HitBlocks:
        """The right-most run of registered blocks that fills a window, nulls before it; else a run that fills less
        but begins at token 0. AssertionError with context parallelism.
        """
        hashes, limit, groups, pool, spec, drop, alignment, ranks = query
        assert ranks == 1, "a sliding window does not go with context parallelism: use 1"
        block_size = spec.block_size
        need = cls._contiguous_blocks_for_hit(spec.sliding_window, block_size, drop)
        num_blocks = min(limit // block_size, len(hashes))
        hit: HitBlocks = tuple([[pool.null_block] * num_blocks for _ in groups])
        run = 0
        for i in range(num_blocks - 1, -1, -1):
            found = pool.get_cached_block(hashes[i], groups)
            right_edge = (i if drop else i + 1) * block_size
            if found is None:
                run = 0
                continue
            if not run and right_edge % alignment:
                continue
            for blocks, block in zip(hit, found, strict=True):
                blocks[i] = block
            run += 1
            if run >= need:
                cut_to(hit, i + run)
                break
        else:
            cut_to(hit, aligned(run, block_size, alignment))
        cut_to_aligned(hit, drop, block_size, alignment)
        return hit

    @classmethod
    def blocks_before_a_hit(cls, kv_cache_spec: KVCacheSpec, use_eagle: bool) -> int:
        """Those that the window of the next token reaches into, and the one that eagle drops."""
        assert isinstance(kv_cache_spec, SlidingWindowSpec)
        return cls._contiguous_blocks_for_hit(kv_cache_spec.sliding_window, kv_cache_spec.block_size, use_eagle)

    def free(self, request_id: str) -> None:
        """Give back all blocks, each part the table's end first: those without identity to the front of the queue."""
        self.num_cached_block.pop(request_id, None)
        table = self.req_to_blocks.pop(request_id, [])
        registered = [block for block in reversed(table) if block.block_hash is not None]
        others = [block for block in reversed(table) if block.block_hash is None]
        self.block_pool.free_blocks(registered)
        self.block_pool.free_blocks(others, prepend=True)

    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        """Always 0: the prefix leaves the window."""
        return 0

    @classmethod
    def _contiguous_blocks_for_hit(cls, window_size: int, block_size: int, use_eagle: bool) -> int:
        """Blocks in a row that a hit needs so that the next token finds its window; one more to drop with eagle."""
        return cdiv(window_size - 1, block_size) + (1 if use_eagle else 0)


class ChunkedLocalAttentionManager(SingleTypeKVCacheManager):
    """A token attends to the tokens before it in its chunk."""

    def __init__(self, kv_cache_spec: ChunkedLocalAttentionSpec, *args: Any, **kwargs: Any) -> None:
        super().__init__(kv_cache_spec, *args, **kwargs)
        self.attention_chunk_size = kv_cache_spec.attention_chunk_size

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """All tokens before the chunk of the next one."""
        return num_computed_tokens // self.attention_chunk_size * self.attention_chunk_size

    @classmethod
    def search(cls, query: HitQuery) -> HitBlocks:
        """Nulls for the chunks before that of token `max_length`, then the longest run of registered blocks.

        AssertionError with eagle, with context parallelism, or with an alignment other than the block size.
        """
        hashes, limit, groups, pool, spec, drop, alignment, ranks = query
        block_size = spec.block_size
        assert not drop, "chunked local attention does not go with eagle: switch one off"
        assert ranks == 1, "chunked attention does not go with context parallelism: use 1"
        assert alignment == block_size, (
            f"chunked local attention finds hits at its block size {block_size}, not at {alignment}: "
            "use one block size for all groups"
        )
        chunk = spec.attention_chunk_size
        out_of_sight = limit // chunk * chunk // block_size
        hit: HitBlocks = tuple([[pool.null_block] * out_of_sight for _ in groups])
        for i in range(out_of_sight, limit // block_size):
            found = pool.get_cached_block(hashes[i], groups)
            if found is None:
                break
            for blocks, block in zip(hit, found, strict=True):
                blocks.append(block)
        return hit

    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        """Always 0: the prefix leaves the chunk."""
        return 0
