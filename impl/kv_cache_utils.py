"""Blocks, the free queue and hashing under the name that vLLM gives them, and which layers are alike.

specs-and-config.md §5. `NONE_HASH` is looked up where it is set, so that it is current here, too.
"""

from collections.abc import Iterable, Mapping

from . import block_hashing
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
from .extra_keys import generate_block_hash_extra_keys, need_extra_keys
from .free_queue import FreeKVCacheBlockQueue
from .kv_cache_block import BlockHash, BlockHashWithGroupId, KVCacheBlock
from .kv_cache_interface import KVCacheSpec

__all__ = [
    "BlockHash",
    "BlockHashList",
    "BlockHashListWithBlockSize",
    "BlockHashWithGroupId",
    "ExternalBlockHash",
    "FreeKVCacheBlockQueue",
    "KVCacheBlock",
    "generate_block_hash_extra_keys",
    "get_block_hash",
    "get_group_id",
    "get_request_block_hasher",
    "get_uniform_page_size",
    "hash_block_tokens",
    "init_none_hash",
    "is_kv_cache_page_size_uniform",
    "is_kv_cache_spec_uniform",
    "make_block_hash_with_group_id",
    "maybe_convert_block_hash",
    "need_extra_keys",
]


def __getattr__(name: str) -> BlockHash:
    if name == "NONE_HASH":
        return block_hashing.NONE_HASH
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def is_kv_cache_spec_uniform(kv_cache_spec: Mapping[str, KVCacheSpec]) -> bool:
    """Whether the layers' specs can be merged into one; True for no layers [S-05]."""
    specs = list(kv_cache_spec.values())
    if not specs:
        return True
    try:
        type(specs[0]).merge(specs)
    except (AssertionError, ValueError):
        return False
    return True


def is_kv_cache_page_size_uniform(kv_cache_spec: Mapping[str, KVCacheSpec]) -> bool:
    """Whether the layers have one page size; False for no layers."""
    return len({spec.page_size_bytes for spec in kv_cache_spec.values()}) == 1


def get_uniform_page_size(kv_cache_specs: Iterable[KVCacheSpec] | Mapping[str, KVCacheSpec]) -> int:
    """The one page size in bytes. AssertionError unless there is exactly one. Takes a mapping, too."""
    specs = kv_cache_specs.values() if isinstance(kv_cache_specs, Mapping) else kv_cache_specs
    sizes = {spec.page_size_bytes for spec in specs}
    assert len(sizes) == 1, f"layers have page sizes {sorted(sizes)} in bytes: unify them first"
    return sizes.pop()
