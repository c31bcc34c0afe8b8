"""The managers by their public names, and which of them serves which spec (specs-and-config.md §6)."""

from typing import Any

from ..specs.attention import RecentPastSpec
from ..specs.entries import how_to_register
from ..specs.interface import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    HiddenStateCacheSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    TQFullAttentionSpec,
)
from .base import SingleTypeKVCacheManager
from .full import CrossAttentionManager, FullAttentionManager, SinkFullAttentionManager
from .mamba import MambaManager
from .spec_registry import KVCacheSpecRegistry
from .window import ChunkedLocalAttentionManager, SlidingWindowManager

__all__ = [
    "ChunkedLocalAttentionManager",
    "CrossAttentionManager",
    "FullAttentionManager",
    "MambaManager",
    "SingleTypeKVCacheManager",
    "SinkFullAttentionManager",
    "SlidingWindowManager",
    "get_manager_for_kv_cache_spec",
    "register_all_kvcache_specs",
]


def register_all_kvcache_specs(vllm_config: object = None) -> None:
    """Make the built-in entries of the registry; happens at import, doing it again changes nothing."""
    register = KVCacheSpecRegistry.register
    for spec_class in (FullAttentionSpec, TQFullAttentionSpec, MLAAttentionSpec, HiddenStateCacheSpec):
        register(spec_class, FullAttentionManager, FullAttentionSpec)
    register(SinkFullAttentionSpec, SinkFullAttentionManager, FullAttentionSpec)
    register(SlidingWindowSpec, SlidingWindowManager)
    register(SlidingWindowMLASpec, SlidingWindowManager)
    register(ChunkedLocalAttentionSpec, ChunkedLocalAttentionManager)
    register(MambaSpec, MambaManager)
    register(CrossAttentionSpec, CrossAttentionManager)


def get_manager_for_kv_cache_spec(
    kv_cache_spec: KVCacheSpec, max_num_batched_tokens: int, max_model_len: int, **kwargs: Any
) -> SingleTypeKVCacheManager:
    """A manager for the spec, built with `kwargs`; windows and chunks are told the most blocks a request can hold.

    AssertionError if the spec's class is not registered. Lengths are in tokens.
    """
    manager_class = KVCacheSpecRegistry.get_manager_class(kv_cache_spec)
    if manager_class is None:
        raise AssertionError(how_to_register(kv_cache_spec))
    if isinstance(kv_cache_spec, RecentPastSpec):
        kwargs["max_admission_blocks_per_request"] = kv_cache_spec.max_admission_blocks_per_request(
            max_num_batched_tokens, max_model_len
        )
    return manager_class(kv_cache_spec, **kwargs)


register_all_kvcache_specs()
