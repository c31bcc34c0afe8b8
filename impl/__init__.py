"""Our own core, with the public API of vLLM 0.23."""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .block_hash_map import BlockHashToBlockMap
from .block_hashing import (
    BlockHashList,
    BlockHashListWithBlockSize,
    ExternalBlockHash,
    get_block_hash,
    get_group_id,
    get_request_block_hasher,
    hash_block_tokens,
    init_none_hash,
    make_block_hash_with_group_id,
    maybe_convert_block_hash,
)
from .block_pool import BlockPool
from .block_sizes import resolve_kv_cache_block_sizes
from .capacity import (
    check_enough_kv_cache_memory,
    estimate_max_model_len,
    get_kv_cache_config_from_groups,
    get_max_concurrency_for_kv_cache_config,
    get_num_blocks,
    max_memory_usage_bytes,
    may_override_num_blocks,
)
from .extra_keys import CacheableRequest, generate_block_hash_extra_keys, need_extra_keys
from .free_queue import FreeKVCacheBlockQueue
from .grouping import create_kv_cache_group_specs, get_kv_cache_groups, group_and_unify_kv_cache_specs
from .hash_functions import get_hash_fn_by_name, sha256, sha256_cbor
from .kv_cache_block import BlockHash, BlockHashWithGroupId, KVCacheBlock
from .kv_cache_coordinator import (
    HybridKVCacheCoordinator,
    KVCacheCoordinator,
    KVCacheCoordinatorNoPrefixCache,
    SpecGroup,
    UnitaryKVCacheCoordinator,
    get_kv_cache_coordinator,
)
from .kv_cache_interface import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    HiddenStateCacheSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    KVCacheSpecKind,
    KVCacheTensor,
    KVQuantMode,
    MambaAttentionBackendEnum,
    MambaSpec,
    MLAAttentionSpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    TQFullAttentionSpec,
    UniformTypeKVCacheSpecs,
    get_kv_cache_spec_kind,
    get_kv_cache_spec_sliding_window,
    get_kv_quant_mode,
    is_quantized_kv_cache,
    kv_cache_uses_per_token_head_scales,
)
from .kv_cache_manager import KVCacheBlocks, KVCacheManager
from .kv_cache_metrics import BlockMetricsState, KVCacheEvictionEvent, KVCacheMetricsCollector
from .kv_cache_spec_registry import KVCacheSpecMetadata, KVCacheSpecRegistry, register_kv_cache_spec
from .kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVCacheEvent
from .page_unification import unify_kv_cache_spec_page_size
from .request import Request
from .single_type_kv_cache_manager import (
    ChunkedLocalAttentionManager,
    CrossAttentionManager,
    FullAttentionManager,
    MambaManager,
    SingleTypeKVCacheManager,
    SinkFullAttentionManager,
    SlidingWindowManager,
    get_manager_for_kv_cache_spec,
    register_all_kvcache_specs,
)
from .stats import BaseCacheStats, CachingMetrics, PrefixCacheStats, PrefixCachingMetrics
from .uniformity import (
    get_uniform_page_size,
    is_kv_cache_page_size_uniform,
    is_kv_cache_spec_uniform,
    is_kv_cache_type_attention_free,
    unify_hybrid_kv_cache_specs,
)
from .worker_configs import (
    generate_scheduler_kv_cache_config,
    get_kv_cache_config,
    get_kv_cache_configs,
    is_kv_cache_type_uniform,
    unify_kv_cache_configs,
)

if TYPE_CHECKING:
    from .block_tables import BlockTables, to_device
    from .kv_cache_layout import LayerPlan, PageLayout, Part, page_layout, plan_tensors
    from .kv_cache_tensors import KVCacheOutOfMemoryError, KVCacheTensors, allocate_kv_cache
    from .layer_cache import LayerCache

# A library leaves it to the program whether its warnings are shown.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "AllBlocksCleared",
    "AttentionSpec",
    "BaseCacheStats",
    "BlockHash",
    "BlockHashList",
    "BlockHashListWithBlockSize",
    "BlockHashToBlockMap",
    "BlockHashWithGroupId",
    "BlockMetricsState",
    "BlockPool",
    "BlockRemoved",
    "BlockStored",
    "BlockTables",
    "CacheableRequest",
    "CachingMetrics",
    "ChunkedLocalAttentionManager",
    "ChunkedLocalAttentionSpec",
    "CrossAttentionManager",
    "CrossAttentionSpec",
    "EncoderOnlyAttentionSpec",
    "ExternalBlockHash",
    "FreeKVCacheBlockQueue",
    "FullAttentionManager",
    "FullAttentionSpec",
    "HiddenStateCacheSpec",
    "HybridKVCacheCoordinator",
    "KVCacheBlock",
    "KVCacheBlocks",
    "KVCacheConfig",
    "KVCacheCoordinator",
    "KVCacheCoordinatorNoPrefixCache",
    "KVCacheEvent",
    "KVCacheEvictionEvent",
    "KVCacheGroupSpec",
    "KVCacheManager",
    "KVCacheMetricsCollector",
    "KVCacheOutOfMemoryError",
    "KVCacheSpec",
    "KVCacheSpecKind",
    "KVCacheSpecMetadata",
    "KVCacheSpecRegistry",
    "KVCacheTensor",
    "KVCacheTensors",
    "KVQuantMode",
    "LayerCache",
    "LayerPlan",
    "MLAAttentionSpec",
    "MambaAttentionBackendEnum",
    "MambaManager",
    "MambaSpec",
    "PageLayout",
    "Part",
    "PrefixCacheStats",
    "PrefixCachingMetrics",
    "Request",
    "SingleTypeKVCacheManager",
    "SinkFullAttentionManager",
    "SinkFullAttentionSpec",
    "SlidingWindowMLASpec",
    "SlidingWindowManager",
    "SlidingWindowSpec",
    "SpecGroup",
    "TQFullAttentionSpec",
    "UniformTypeKVCacheSpecs",
    "UnitaryKVCacheCoordinator",
    "allocate_kv_cache",
    "check_enough_kv_cache_memory",
    "create_kv_cache_group_specs",
    "estimate_max_model_len",
    "generate_block_hash_extra_keys",
    "generate_scheduler_kv_cache_config",
    "get_block_hash",
    "get_group_id",
    "get_hash_fn_by_name",
    "get_kv_cache_config",
    "get_kv_cache_config_from_groups",
    "get_kv_cache_configs",
    "get_kv_cache_coordinator",
    "get_kv_cache_groups",
    "get_kv_cache_spec_kind",
    "get_kv_cache_spec_sliding_window",
    "get_kv_quant_mode",
    "get_manager_for_kv_cache_spec",
    "get_max_concurrency_for_kv_cache_config",
    "get_num_blocks",
    "get_request_block_hasher",
    "get_uniform_page_size",
    "group_and_unify_kv_cache_specs",
    "hash_block_tokens",
    "init_none_hash",
    "is_kv_cache_page_size_uniform",
    "is_kv_cache_spec_uniform",
    "is_kv_cache_type_attention_free",
    "is_kv_cache_type_uniform",
    "is_quantized_kv_cache",
    "kv_cache_uses_per_token_head_scales",
    "make_block_hash_with_group_id",
    "max_memory_usage_bytes",
    "may_override_num_blocks",
    "maybe_convert_block_hash",
    "need_extra_keys",
    "page_layout",
    "plan_tensors",
    "register_all_kvcache_specs",
    "register_kv_cache_spec",
    "resolve_kv_cache_block_sizes",
    "sha256",
    "sha256_cbor",
    "to_device",
    "unify_hybrid_kv_cache_specs",
    "unify_kv_cache_configs",
    "unify_kv_cache_spec_page_size",
]

_LATE = {
    "BlockTables": "block_tables",
    "KVCacheOutOfMemoryError": "kv_cache_tensors",
    "KVCacheTensors": "kv_cache_tensors",
    "LayerCache": "layer_cache",
    "LayerPlan": "kv_cache_layout",
    "PageLayout": "kv_cache_layout",
    "Part": "kv_cache_layout",
    "allocate_kv_cache": "kv_cache_tensors",
    "page_layout": "kv_cache_layout",
    "plan_tensors": "kv_cache_layout",
    "to_device": "block_tables",
}
"""Imported when asked for: they bring numpy along, which the core does without."""

if not TYPE_CHECKING:  # a type checker would take every misspelt name for one of these

    def __getattr__(name: str) -> Any:
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f".{_LATE[name]}", __name__), name)
