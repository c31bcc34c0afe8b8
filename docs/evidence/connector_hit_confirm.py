"""vLLM 0.33.0, a lookup for a connector where the blocks of a window are gone: what its scheduler does next with the
hit ends in an AssertionError.

Run it with the Python of an environment that has the release. It has nothing of blockproof: a `KVCacheManager` with
full attention, a window and Mamba states, whose hits may end inside a block of states, and the two calls that the
scheduler makes for a request that a connector brings tokens for: `get_computed_blocks_for_connector` and
`truncate_computed_blocks`.
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "CRITICAL"

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, MambaSpec, SlidingWindowSpec
from vllm.v1.request import Request

HASH, STATES, PROMPT = 16, 64, 90
"""Tokens of a block of attention and of a hash; of a block of states; of a prompt."""
SIZES = {"block_size": HASH, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
SPECS = (
    FullAttentionSpec(**SIZES),
    SlidingWindowSpec(**SIZES, sliding_window=HASH + 1),
    MambaSpec(block_size=STATES, shapes=((1,),), dtypes=(torch.float32,), mamba_cache_mode="align"),
)
init_none_hash(sha256)


def request(name: str) -> Request:
    """One with the same prompt as all others."""
    hasher = get_request_block_hasher(HASH, sha256)
    return Request(name, list(range(PROMPT)), SamplingParams(max_tokens=8), None, block_hasher=hasher)


def case(evicted: int) -> str:
    """What comes of the two calls once so many blocks of the window were evicted."""
    groups = [KVCacheGroupSpec([f"layer.{number}"], spec) for number, spec in enumerate(SPECS)]
    config = KVCacheConfig(num_blocks=64, kv_cache_tensors=[], kv_cache_groups=groups)
    manager = KVCacheManager(config, 512, STATES, HASH, enable_caching=True)
    first = request("a")
    manager.allocate_slots(first, PROMPT - PROMPT % HASH)
    window = [block.block_id for block in manager.get_blocks("a").blocks[1] if block.block_hash is not None]
    manager.evict_blocks({*window[:evicted]})
    hit, tokens, _, diverged = manager.get_computed_blocks_for_connector(request("b"))
    whole = tokens - tokens % STATES
    rows = [len(row) for row in hit.blocks]
    found = f"a hit of {tokens} tokens, {rows} entries, diverged: {diverged}"
    try:
        cut = manager.truncate_computed_blocks(hit, whole)
    except AssertionError:
        return f"{found}; cut to {whole} tokens: AssertionError"
    return f"{found}; cut to {whole} tokens: {[len(row) for row in cut.blocks]} entries"


print("nothing evicted:", case(0))
print("the window evicted:", case(99))
