"""The managers by their public names, and which of them serves which spec (specs-and-config.md §6)."""

from collections.abc import Callable, Mapping
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
    return with_cap(manager_class, kv_cache_spec, max_num_batched_tokens, max_model_len, kwargs)


def with_cap(
    kind: Callable[..., SingleTypeKVCacheManager],
    spec: KVCacheSpec,
    max_num_batched_tokens: int,
    max_model_len: int,
    named: Mapping[str, Any],
) -> SingleTypeKVCacheManager:
    """A manager of this kind, which is told the most blocks that a request can hold, if its spec has a bound."""
    if not isinstance(spec, RecentPastSpec):
        return kind(spec, **named)
    limits = max_num_batched_tokens, max_model_len
    manager = kind(spec, max_admission_blocks_per_request=spec.max_admission_blocks_per_request(*limits), **named)
    manager.__dict__["admission_limits"] = limits
    return manager


register_all_kvcache_specs()
