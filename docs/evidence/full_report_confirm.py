"""vLLM 0.33.0, asked for full reports of KV events, ends a lookup in an error where it hits.

Run it with the Python of an environment that has the release. It has nothing of blockproof: a `KVCacheManager`, two
requests with the same prompt, events on, and `kv_cache_report_mode` "full", as a request to the server sets it.
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "CRITICAL"

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, MambaSpec
from vllm.v1.request import Request

init_none_hash(sha256)


def request(name: str, prompt: list[int], hash_block: int) -> Request:
    """A request that asks for full reports."""
    hasher = get_request_block_hasher(hash_block, sha256)
    made = Request(name, prompt, SamplingParams(max_tokens=8), None, block_hasher=hasher)
    made.kv_cache_report_mode = "full"
    return made


def attention(block_size: int) -> FullAttentionSpec:
    """The spec of full attention."""
    return FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=1, dtype=torch.float32)


def states(block_size: int) -> MambaSpec:
    """The spec of layers with states."""
    return MambaSpec(block_size=block_size, shapes=((1,),), dtypes=(torch.float32,), mamba_cache_mode="align")


def show(what: str, specs: list, prompt: list[int], chunk: int, hash_block: int, ranks: int = 1) -> None:
    """Compute `chunk` tokens of a prompt for one request, and look the prompt up for another."""
    groups = [KVCacheGroupSpec([f"layer.{index}"], spec) for index, spec in enumerate(specs)]
    manager = KVCacheManager(
        KVCacheConfig(num_blocks=64, kv_cache_tensors=[], kv_cache_groups=groups),
        max_model_len=1024,
        scheduler_block_size=max(spec.block_size for spec in specs) * ranks,
        hash_block_size=hash_block,
        enable_kv_cache_events=True,
        dcp_world_size=ranks,
    )
    manager.allocate_slots(request("first", prompt, hash_block), chunk)
    manager.take_kv_cache_block_copies()
    manager.new_step_starts()
    try:
        _, tokens, _ = manager.get_computed_blocks(request("second", prompt, hash_block))
        told = [(len(event.block_hashes), event.block_size) for event in manager.take_events()]
        print(f"{what}: {tokens} tokens are found; blocks told, each with its size: {told}")
    except Exception as error:
        print(f"{what}: the lookup ends in {type(error).__name__}: {error}")


tokens = list(range(100))
show("whole blocks, one rank", [attention(16)], tokens, 96, 16)
show("a hit inside a block of states", [attention(16), states(64)], tokens, 96, 16)
show("the same, with a prompt behind that block", [attention(16), states(64)], list(range(129)), 128, 16)
show("two ranks of decode context parallelism", [attention(16)], tokens, 96, 32, ranks=2)
