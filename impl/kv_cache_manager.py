"""The manager under the name that vLLM gives its module."""

from .managers.kv_cache_manager import KVCacheBlocks, KVCacheManager

__all__ = [
    "KVCacheBlocks",
    "KVCacheManager",
]
