"""Blocks, the free queue, hashing and the arithmetic of configurations under the name that vLLM gives them.

Names with an underscore are vLLM's as well: its tests, and programs built on it, import them from here. `NONE_HASH` is
looked up where it is set, so that it is current here, too.
"""

from .configuration.block_sizes import resolve_kv_cache_block_sizes
from .configuration.capacity import _bucket_layers_by_page_size as _bucket_layers_by_page_size
from .configuration.capacity import _check_enough_kv_cache_memory as _check_enough_kv_cache_memory
from .configuration.capacity import _estimate_max_model_len_from_groups as _estimate_max_model_len_from_groups
from .configuration.capacity import _get_kv_cache_config_deepseek_v4 as _get_kv_cache_config_deepseek_v4
from .configuration.capacity import _max_memory_usage_bytes_from_groups as _max_memory_usage_bytes_from_groups
from .configuration.capacity import _pool_bytes_per_block as _pool_bytes_per_block
from .configuration.capacity import (
    check_enough_kv_cache_memory,
    estimate_max_model_len,
    get_kv_cache_config_from_groups,
    get_max_concurrency_for_kv_cache_config,
    get_num_blocks,
    max_memory_usage_bytes,
    may_override_num_blocks,
)
from .configuration.grouping import _annotate_eagle_groups_deepseek_v4 as _annotate_eagle_groups_deepseek_v4
from .configuration.grouping import _approximate_gcd as _approximate_gcd
from .configuration.grouping import _get_kv_cache_groups_uniform_groups as _get_kv_cache_groups_uniform_groups
from .configuration.grouping import _get_kv_cache_groups_uniform_page_size as _get_kv_cache_groups_uniform_page_size
from .configuration.grouping import _get_kv_cache_groups_uniform_spec as _get_kv_cache_groups_uniform_spec
from .configuration.grouping import _get_kv_cache_groups_uniform_type as _get_kv_cache_groups_uniform_type
from .configuration.grouping import (
    create_kv_cache_group_specs,
    get_kv_cache_groups,
    group_and_unify_kv_cache_specs,
)
from .configuration.page_unification import unify_kv_cache_spec_page_size
from .configuration.uniformity import (
    get_uniform_page_size,
    is_kv_cache_page_size_uniform,
    is_kv_cache_spec_uniform,
    is_kv_cache_type_attention_free,
    unify_hybrid_kv_cache_specs,
)
from .configuration.worker_configs import _auto_fit_max_model_len as _auto_fit_max_model_len
from .configuration.worker_configs import _project_kv_cache_groups_to_worker as _project_kv_cache_groups_to_worker
from .configuration.worker_configs import _report_kv_cache_config as _report_kv_cache_config
from .configuration.worker_configs import (
    generate_scheduler_kv_cache_config,
    get_kv_cache_config,
    get_kv_cache_configs,
    is_kv_cache_type_uniform,
    unify_kv_cache_configs,
)
from .hashing import block_hashing
from .hashing.block_hash import BlockHash, BlockHashWithGroupId
from .hashing.block_hashing import (
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
from .hashing.extra_keys import generate_block_hash_extra_keys, need_extra_keys
from .pool.block import KVCacheBlock
from .pool.free_queue import FreeKVCacheBlockQueue

__all__ = [
    "BlockHash",
    "BlockHashList",
    "BlockHashListWithBlockSize",
    "BlockHashWithGroupId",
    "ExternalBlockHash",
    "FreeKVCacheBlockQueue",
    "KVCacheBlock",
    "check_enough_kv_cache_memory",
    "create_kv_cache_group_specs",
    "estimate_max_model_len",
    "generate_block_hash_extra_keys",
    "generate_scheduler_kv_cache_config",
    "get_block_hash",
    "get_group_id",
    "get_kv_cache_config",
    "get_kv_cache_config_from_groups",
    "get_kv_cache_configs",
    "get_kv_cache_groups",
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
    "make_block_hash_with_group_id",
    "max_memory_usage_bytes",
    "may_override_num_blocks",
    "maybe_convert_block_hash",
    "need_extra_keys",
    "resolve_kv_cache_block_sizes",
    "unify_hybrid_kv_cache_specs",
    "unify_kv_cache_configs",
    "unify_kv_cache_spec_page_size",
]


def __getattr__(name: str) -> BlockHash:
    if name == "NONE_HASH":
        return block_hashing.NONE_HASH
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
