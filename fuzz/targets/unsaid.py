"""What a call of a core means that leaves an argument out."""

from collections.abc import Mapping
from typing import Any

UNSAID: Mapping[str, Mapping[str, Any]] = {
    "KVCacheManager": {
        "max_num_batched_tokens": None,
        "enable_caching": True,
        "use_eagle": False,
        "log_stats": False,
        "enable_kv_cache_events": False,
        "dcp_world_size": 1,
        "pcp_world_size": 1,
        "metrics_collector": None,
    },
    "KVCacheManager.allocate_slots": {
        "num_new_computed_tokens": 0,
        "new_computed_blocks": None,
        "num_lookahead_tokens": 0,
        "num_external_computed_tokens": 0,
        "delay_cache_blocks": False,
        "num_encoder_tokens": 0,
        "full_sequence_must_fit": False,
        "reserved_blocks": 0,
    },
    "KVCacheBlocks.get_block_ids": {"allow_none": False},
    "BlockPool": {"enable_kv_cache_events": False, "metrics_collector": None},
    "BlockPool.cache_full_blocks": {"block_mask": None},
    "BlockPool.free_blocks": {"prepend": False},
    "KVCacheMetricsCollector": {"sample_rate": 0.01},
    "KVCacheSpecRegistry.register": {"manager_class": None, "uniform_type_base_spec": None},
    "SingleTypeKVCacheManager": {
        "dcp_world_size": 1,
        "pcp_world_size": 1,
        "max_admission_blocks_per_request": None,
    },
    "SingleTypeKVCacheManager.cache_blocks": {"retention_interval": None},
    "SingleTypeKVCacheManager.get_num_blocks_to_allocate": {"apply_admission_cap": False},
    "get_kv_cache_coordinator": {"metrics_collector": None},
    "hash_block_tokens": {"extra_keys": None},
}
"""By call, each argument that it may leave out and what that means (core.md §10, specs-and-config.md §6). Schedulers,
connectors and classes of one's own rely on it."""
