"""Managers of types whose queries see only the recent past: sliding window and chunks (core.md §§7, 8)."""

from typing import Any

from .block_hashing import BlockHashList
from .block_pool import BlockPool
from .kv_cache_interface import ChunkedLocalAttentionSpec, KVCacheSpec, SlidingWindowSpec
from .manager_base import HitBlocks, SingleTypeKVCacheManager, aligned, cut_to
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
    def find_longest_cache_hit(
        cls,
        block_hashes: BlockHashList,
        max_length: int,
        kv_cache_group_ids: list[int],
        block_pool: BlockPool,
        kv_cache_spec: SlidingWindowSpec,
        drop_eagle_block: bool,
        alignment_tokens: int,
        dcp_world_size: int = 1,
        pcp_world_size: int = 1,
    ) -> HitBlocks:
        """The right-most run of registered blocks that fills a window, nulls before it; else a run that fills less
        but begins at token 0. AssertionError with context parallelism.
        """
        assert dcp_world_size == pcp_world_size == 1, "a sliding window does not go with context parallelism: use 1"
        block_size = kv_cache_spec.block_size
        need = cls._contiguous_blocks_for_hit(kv_cache_spec.sliding_window, block_size, drop_eagle_block)
        num_blocks = min(max_length // block_size, len(block_hashes))
        hit: HitBlocks = tuple([block_pool.null_block] * num_blocks for _ in kv_cache_group_ids)
        run = 0
        for i in range(num_blocks - 1, -1, -1):
            found = block_pool.get_cached_block(block_hashes[i], kv_cache_group_ids)
            right_edge = (i if drop_eagle_block else i + 1) * block_size
            if found is None:
                run = 0
                continue
            if not run and right_edge % alignment_tokens:
                continue
            for blocks, block in zip(hit, found, strict=True):
                blocks[i] = block
            run += 1
            if run >= need:
                cut_to(hit, i + run)
                break
        else:
            cut_to(hit, aligned(run, block_size, alignment_tokens))
        length = len(hit[0])
        if drop_eagle_block and length:
            length -= 1
        cut_to(hit, aligned(length, block_size, alignment_tokens))
        return hit

    @classmethod
    def reachable_block_mask(
        cls,
        start_block: int,
        end_block: int,
        alignment_tokens: int | None,
        kv_cache_spec: KVCacheSpec,
        use_eagle: bool,
        retention_interval: int | None = None,
        num_prompt_tokens: int | None = None,
    ) -> list[bool] | None:
        """A block counts if it lies in the window before some place where a hit can end (core.md §8)."""
        assert isinstance(kv_cache_spec, SlidingWindowSpec)
        if alignment_tokens is None:
            return None
        block_size = kv_cache_spec.block_size
        need = cls._contiguous_blocks_for_hit(kv_cache_spec.sliding_window, block_size, use_eagle)
        shift = 1 if use_eagle else 0
        segment = alignment_tokens if retention_interval is None else retention_interval
        per_segment = segment // block_size
        if segment and need >= per_segment:
            return None
        mask = [
            bool(segment) and i >= shift and (i - shift) % per_segment >= per_segment - need
            for i in range(start_block, end_block)
        ]
        if retention_interval is not None and num_prompt_tokens is not None:
            boundary = (num_prompt_tokens - 1) // alignment_tokens * alignment_tokens // block_size + shift
            for i in range(max(start_block, boundary - need), min(end_block, boundary)):
                mask[i - start_block] = True
        return mask

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
    def find_longest_cache_hit(
        cls,
        block_hashes: BlockHashList,
        max_length: int,
        kv_cache_group_ids: list[int],
        block_pool: BlockPool,
        kv_cache_spec: ChunkedLocalAttentionSpec,
        drop_eagle_block: bool,
        alignment_tokens: int,
        dcp_world_size: int = 1,
        pcp_world_size: int = 1,
    ) -> HitBlocks:
        """Nulls for the chunks before that of token `max_length`, then the longest run of registered blocks.

        AssertionError with eagle, with context parallelism, or with an alignment other than the block size.
        """
        block_size = kv_cache_spec.block_size
        assert not drop_eagle_block, "chunked local attention does not go with eagle: switch one off"
        assert dcp_world_size == pcp_world_size == 1, "chunked attention does not go with context parallelism: use 1"
        assert alignment_tokens == block_size, (
            f"chunked local attention finds hits at its block size {block_size}, not at {alignment_tokens}: "
            "use one block size for all groups"
        )
        chunk = kv_cache_spec.attention_chunk_size
        out_of_sight = max_length // chunk * chunk // block_size
        hit: HitBlocks = tuple([block_pool.null_block] * out_of_sight for _ in kv_cache_group_ids)
        for i in range(out_of_sight, max_length // block_size):
            found = block_pool.get_cached_block(block_hashes[i], kv_cache_group_ids)
            if found is None:
                break
            for blocks, block in zip(hit, found, strict=True):
                blocks.append(block)
        return hit

    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        """Always 0: the prefix leaves the chunk."""
        return 0
