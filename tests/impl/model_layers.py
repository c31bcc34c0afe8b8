"""Layers of usual sizes for the arithmetic of configurations."""

from typing import Any

import blockproof.impl as impl
from blockproof.fuzz.adapters.vllm.configuration.question_json import DType, vllm_config_from_json

GIB = 1 << 30
LAYOUT: dict[str, Any] = {"num_kv_heads": 2, "head_size": 16, "dtype": DType(2)}
PAGE = 16 * 2 * 32 * 2
"""Bytes of a block of 16 tokens of a layer of that layout."""


def config(**settings: object) -> Any:
    return vllm_config_from_json(settings)


def full(block_size: int = 16, **fields: Any) -> impl.FullAttentionSpec:
    return impl.FullAttentionSpec(block_size, **{**LAYOUT, **fields})


def sliding(window: int = 32, block_size: int = 16, **fields: Any) -> impl.SlidingWindowSpec:
    return impl.SlidingWindowSpec(block_size, sliding_window=window, **{**LAYOUT, **fields})


def latent(head_size: int = 576, **fields: Any) -> impl.MLAAttentionSpec:
    return impl.MLAAttentionSpec(64, num_kv_heads=1, head_size=head_size, dtype=DType(1), **fields)


def latent_window(head_size: int = 576, window: int = 32, **fields: Any) -> impl.SlidingWindowMLASpec:
    return impl.SlidingWindowMLASpec(
        64, num_kv_heads=1, head_size=head_size, dtype=DType(1), sliding_window=window, **fields
    )


def hidden(head_size: int, block_size: int = 16) -> impl.HiddenStateCacheSpec:
    return impl.HiddenStateCacheSpec(block_size, num_kv_heads=1, head_size=head_size, dtype=DType(2))


def named(*specs: impl.KVCacheSpec) -> dict[str, impl.KVCacheSpec]:
    return {f"layer.{index}": spec for index, spec in enumerate(specs)}
