"""vLLM 0.33.0, with names that cover several tokens behind a block, ends a lookup in an IndexError.

Run it with the Python of an environment that has the release. It has nothing of blockproof: a `KVCacheManager` of one
group, and the names of blocks as a chain of draft models (multi-module MTP) has them: `num_hash_lookahead_tokens` is
the number of these models. With full attention beside, lookups are cut before.
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "CRITICAL"

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request

init_none_hash(sha256)
SIZES = {"block_size": 16, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
FULL, WINDOW = FullAttentionSpec(**SIZES), SlidingWindowSpec(**SIZES, sliding_window=32)


def show(what: str, specs: list[KVCacheSpec], ahead: int, prompt: int) -> None:
    """Look up a prompt of so many tokens where names cover `ahead` tokens behind a block."""
    groups = [KVCacheGroupSpec([f"layer.{index}"], spec, is_eagle_group=True) for index, spec in enumerate(specs)]
    manager = KVCacheManager(
        KVCacheConfig(num_blocks=64, kv_cache_tensors=[], kv_cache_groups=groups),
        max_model_len=1024,
        scheduler_block_size=16,
        hash_block_size=16,
        num_hash_lookahead_tokens=ahead,
        num_prefill_lookahead=ahead,
    )
    hasher = get_request_block_hasher(16, sha256, num_hash_lookahead_tokens=ahead)
    asked = Request("first", list(range(prompt)), SamplingParams(max_tokens=8), None, block_hasher=hasher)
    try:
        found = manager.get_computed_blocks(asked)[1]
        print(f"{what}, {ahead} ahead, {prompt} tokens: a hit of {found} tokens")
    except Exception as error:
        print(f"{what}, {ahead} ahead, {prompt} tokens: the lookup ends in {type(error).__name__}: {error}")


show("a window", [WINDOW], 1, 33)
show("a window", [WINDOW], 3, 36)
show("a window", [WINDOW], 3, 33)
show("a window and full attention", [FULL, WINDOW], 3, 33)
