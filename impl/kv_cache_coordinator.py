"""The coordinators under the name that vLLM gives their module."""

from .managers.coordinator import (
    HybridKVCacheCoordinator,
    KVCacheCoordinator,
    KVCacheCoordinatorNoPrefixCache,
    SpecGroup,
    UnitaryKVCacheCoordinator,
    get_kv_cache_coordinator,
)

__all__ = [
    "HybridKVCacheCoordinator",
    "KVCacheCoordinator",
    "KVCacheCoordinatorNoPrefixCache",
    "SpecGroup",
    "UnitaryKVCacheCoordinator",
    "get_kv_cache_coordinator",
]
