"""Managers of types that hold their blocks to the end: full attention, sinks, cross attention (core.md §7)."""

from typing import Any

from ..hashing.extra_keys import CacheableRequest
from ..pool.block import KVCacheBlock
from ..pool.block_pool import BlockPool
from ..specs.interface import SinkFullAttentionSpec
from .base import SingleTypeKVCacheManager


class FullAttentionManager(SingleTypeKVCacheManager):
    """Every token attends to all before it; also MLA and TQ."""

    spreads_over_ranks = True

    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        """Leading blocks whose reference count equals the number of tables; 0 for an unknown request."""
        count = 0
        for block in self.req_to_blocks.get(running_request_id, ()):
            if block.ref_cnt != len(self.req_to_blocks):
                break
            count += 1
        return count


class SinkFullAttentionManager(FullAttentionManager):
    """Full attention with `sink_len` tokens set aside for all requests, in blocks taken from the pool once.

    AssertionError unless `sink_len` is a positive multiple of the block size.
    """

    def __init__(self, kv_cache_spec: SinkFullAttentionSpec, block_pool: BlockPool, *args: Any, **kwargs: Any) -> None:
        super().__init__(kv_cache_spec, block_pool, *args, **kwargs)
        sink_len = kv_cache_spec.sink_len or 0
        if not (sink_len > 0 == sink_len % self.block_size):
            raise AssertionError(
                f"sink_len is {kv_cache_spec.sink_len}: give a positive multiple of the block size {self.block_size}"
            )
        self.sink_blocks = block_pool.get_new_blocks(sink_len // self.block_size)

    def held_blocks(self) -> list[KVCacheBlock]:
        """Every block this group holds: the tables' and the sink's."""
        return super().held_blocks() + self.sink_blocks


class CrossAttentionManager(SingleTypeKVCacheManager):
    """A decoder's attention to the encoder's output: one allocation per request, sized by the encoder's tokens.

    Encoder states depend on the whole input, so prefixes are never shared.
    """

    sized_by_encoder = True
    counts_by_tokens = False
    search_type = None

    def cache_blocks(self, request: CacheableRequest, num_tokens: int, retention_interval: int | None = None) -> None:
        """Always ValueError."""
        raise ValueError("cross attention has no prefix cache: switch caching off for this model")

    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        """Always 0."""
        return 0
