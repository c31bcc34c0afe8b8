"""In which steps the scheduler counts tokens and blocks are hashed (specs-and-config.md §7)."""

from math import gcd, lcm
from typing import Any

from ..specs.interface import KVCacheConfig, MambaSpec


def resolve_kv_cache_block_sizes(kv_cache_config: KVCacheConfig, vllm_config: Any) -> tuple[int, int]:
    """Scheduler block size and hash block size, in tokens.

    Without groups, or with one, both are the block size times the context-parallel ranks [C-03]. ValueError for several
    groups with context parallelism, and for a requested hash block size that does not divide every group's [C-02].
    """
    parallel, cache = vllm_config.parallel_config, vllm_config.cache_config
    ranks = parallel.decode_context_parallel_size * parallel.prefill_context_parallel_size
    specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
    sizes = [spec.block_size for spec in specs]
    if len(sizes) <= 1:
        block_size = (sizes[0] if sizes else cache.block_size) * ranks
        return block_size, block_size
    if ranks != 1:
        raise ValueError(
            f"{len(sizes)} KV cache groups do not go with context parallelism over {ranks} ranks: "
            "set decode_context_parallel_size and prefill_context_parallel_size to 1"
        )
    together = lcm(*sizes)
    if not cache.enable_prefix_caching and vllm_config.kv_transfer_config is None:
        return together, together
    if any(isinstance(spec, MambaSpec) and spec.block_size != cache.block_size for spec in specs):
        return together, together
    hash_block_size = gcd(*sizes) if cache.hash_block_size is None else cache.hash_block_size
    if hash_block_size < 1 or any(size % hash_block_size for size in sizes):
        raise ValueError(
            f"hash_block_size {hash_block_size} does not divide the groups' block sizes {sizes}: "
            f"use a divisor of {gcd(*sizes)}"
        )
    return together, hash_block_size
