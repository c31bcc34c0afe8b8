"""The metrics under the name that vLLM gives their module."""

from .pool.metrics import BlockMetricsState, KVCacheEvictionEvent, KVCacheMetricsCollector

__all__ = [
    "BlockMetricsState",
    "KVCacheEvictionEvent",
    "KVCacheMetricsCollector",
]
