"""What vLLM 0.33.0 makes of four configurations, shown with the release alone; nothing of blockproof.

Run in an environment of the release: python docs/evidence/placement_confirm.py
1. Two groups have pages of one size, and one of them asks for a larger stride between blocks. The layout has layers
   outermost. Block 1 of both may share bytes, since only one group has it; but block 2 of one begins inside block 1 of
   the other: two requests write to the same bytes. Nothing refuses it; the release's own backends ask for such strides
   only where blocks are outermost.
2. Latent attention and latent windows, the hybrid manager switched off: a TypeError at startup.
3. Windows of one length with two page sizes next to full attention, blocks outermost: layers are lost, and an
   assertion ends the startup.
4. The quantisation mode of a platform's own backend has the number of another mode, and so is that mode.
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "CRITICAL"

from types import SimpleNamespace
from typing import Any

import torch
from vllm.v1.core.kv_cache_planning import get_global_kv_cache_groups, get_kv_cache_configs
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheSpec,
    KVQuantMode,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
)
from vllm.v1.kv_cache_layout import KVCacheLayout

SIZES: dict[str, Any] = {"block_size": 16, "num_kv_heads": 1, "head_size": 50, "dtype": torch.float16}


def settings(layout: KVCacheLayout = KVCacheLayout.LBNHC, *, hybrid: bool = True) -> Any:
    """All that planning reads of an engine's configuration."""
    return SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=64, original_max_model_len=64, supports_kv_cache_grouping=False),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1, tensor_parallel_size=1),
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=not hybrid),
        cache_config=SimpleNamespace(
            num_gpu_blocks_override=None,
            prefix_cache_retention_interval=None,
            get_resolved_kv_cache_layout=lambda: layout,
        ),
        attention_config=SimpleNamespace(hisparse_config=None),
        speculative_config=None,
        num_prefill_lookahead_tokens=0,
        max_in_flight_tokens=64,
    )


def planned(layers: dict[str, KVCacheSpec], config: Any) -> Any:
    """The configuration of the one worker."""
    groups = get_global_kv_cache_groups(config, [layers])
    return get_kv_cache_configs(config, [layers], [1 << 20], groups)[0]


def shared_bytes() -> tuple[str, int] | None:
    """A pair of different blocks of two groups that share bytes, and how many."""
    strided = MLAAttentionSpec(**SIZES, block_stride_alignment=1280)
    layers = {"full": strided, "window": SlidingWindowMLASpec(**SIZES, sliding_window=32)}
    made = planned(layers, settings())
    full, window = made.kv_cache_tensors
    page = strided.page_size_bytes
    for one in range(made.num_blocks):
        for other in range(made.num_blocks):
            first, second = full.offset + one * full.block_stride, window.offset + other * window.block_stride
            common = min(first, second) + page - max(first, second)
            if one != other and common > 0:
                return f"block {one} of {full.layers[0]} and block {other} of {window.layers[0]}", common
    return None


def error_of(layers: dict[str, KVCacheSpec], config: Any) -> str:
    """How planning ends."""
    try:
        planned(layers, config)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:90]}"
    return "no error"


def main() -> None:
    """Print what happens."""
    print("1.", shared_bytes() or "no two blocks share a byte")
    latent: dict[str, KVCacheSpec] = {
        "full": MLAAttentionSpec(**SIZES),
        "window": SlidingWindowMLASpec(**SIZES, sliding_window=9),
    }
    print("2.", error_of(latent, settings(hybrid=False)))
    windows = {
        f"window.{i}": SlidingWindowSpec(**{**SIZES, "num_kv_heads": 1 + i // 4}, sliding_window=9) for i in range(6)
    }
    print("3.", error_of({"full": FullAttentionSpec(**SIZES), **windows}, settings(KVCacheLayout.BLHNC)))
    custom, octave = KVQuantMode.CUSTOM, KVQuantMode.OCTAVE_K3V4
    print(f"4. {custom is octave=}, {custom.is_octave=}, {octave.is_custom_mode=}")


if __name__ == "__main__":
    main()
