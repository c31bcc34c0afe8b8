"""Our own core, with the public API of vLLM 0.23."""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import kv_cache_coordinator, kv_cache_interface, kv_cache_utils, single_type_kv_cache_manager
from .hashing.extra_keys import CacheableRequest
from .hashing.hash_functions import get_hash_fn_by_name, sha256, sha256_cbor, xxhash, xxhash_cbor
from .kv_cache_coordinator import *  # noqa: F403  # its list of names is the only one
from .kv_cache_interface import *  # noqa: F403  # its list of names is the only one
from .kv_cache_utils import *  # noqa: F403  # its list of names is the only one
from .managers.kv_cache_manager import KVCacheBlocks, KVCacheManager
from .managers.spec_registry import KVCacheSpecMetadata, KVCacheSpecRegistry, register_kv_cache_spec
from .managers.stats import BaseCacheStats, CachingMetrics, PrefixCacheStats, PrefixCachingMetrics
from .pool.block_pool import BlockPool
from .pool.events import AllBlocksCleared, BlockRemoved, BlockStored, KVCacheEvent
from .pool.hash_map import BlockHashToBlockMap
from .pool.metrics import BlockMetricsState, KVCacheEvictionEvent, KVCacheMetricsCollector
from .request import Request
from .single_type_kv_cache_manager import *  # noqa: F403  # its list of names is the only one

if TYPE_CHECKING:
    from .tensors.block_tables import BlockTables
    from .tensors.device_tables import DeviceTables
    from .tensors.host_pool import HostPool
    from .tensors.kv_cache_tensors import KVCacheOutOfMemoryError, KVCacheTensors, allocate_kv_cache
    from .tensors.layer_cache import LayerCache
    from .tensors.layout import LayerPlan, PageLayout, Part, page_layout, plan_tensors
    from .tensors.table_layout import GroupTable, tables_of
    from .tensors.torch_kernels import PagedKeys

# A library leaves it to the program whether its warnings are shown.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "AllBlocksCleared",
    "BaseCacheStats",
    "BlockHashToBlockMap",
    "BlockMetricsState",
    "BlockPool",
    "BlockRemoved",
    "BlockStored",
    "BlockTables",
    "CacheableRequest",
    "CachingMetrics",
    "DeviceTables",
    "GroupTable",
    "HostPool",
    "KVCacheBlocks",
    "KVCacheEvent",
    "KVCacheEvictionEvent",
    "KVCacheManager",
    "KVCacheMetricsCollector",
    "KVCacheOutOfMemoryError",
    "KVCacheSpecMetadata",
    "KVCacheSpecRegistry",
    "KVCacheTensors",
    "LayerCache",
    "LayerPlan",
    "PageLayout",
    "PagedKeys",
    "Part",
    "PrefixCacheStats",
    "PrefixCachingMetrics",
    "Request",
    "allocate_kv_cache",
    "get_hash_fn_by_name",
    "page_layout",
    "plan_tensors",
    "register_kv_cache_spec",
    "sha256",
    "sha256_cbor",
    "tables_of",
    "xxhash",
    "xxhash_cbor",
]
__all__ += kv_cache_coordinator.__all__
__all__ += kv_cache_interface.__all__
__all__ += kv_cache_utils.__all__
__all__ += single_type_kv_cache_manager.__all__

_LATE = {
    "BlockTables": "tensors.block_tables",
    "DeviceTables": "tensors.device_tables",
    "GroupTable": "tensors.table_layout",
    "HostPool": "tensors.host_pool",
    "KVCacheOutOfMemoryError": "tensors.kv_cache_tensors",
    "KVCacheTensors": "tensors.kv_cache_tensors",
    "LayerCache": "tensors.layer_cache",
    "LayerPlan": "tensors.layout",
    "PageLayout": "tensors.layout",
    "PagedKeys": "tensors.torch_kernels",
    "Part": "tensors.layout",
    "allocate_kv_cache": "tensors.kv_cache_tensors",
    "page_layout": "tensors.layout",
    "plan_tensors": "tensors.layout",
    "tables_of": "tensors.table_layout",
}
"""Imported when asked for: they bring numpy along, which the core does without."""

if not TYPE_CHECKING:  # a type checker would take every misspelt name for one of these

    def __getattr__(name: str) -> Any:
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f".{_LATE[name]}", __name__), name)
