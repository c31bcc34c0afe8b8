"""The registry under the name that vLLM gives its module."""

from .managers.spec_registry import KVCacheSpecMetadata, KVCacheSpecRegistry, register_kv_cache_spec

__all__ = [
    "KVCacheSpecMetadata",
    "KVCacheSpecRegistry",
    "register_kv_cache_spec",
]
