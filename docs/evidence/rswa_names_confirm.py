"""vLLM 0.33.0 names tokens that were generated under R-SWA as if they stood in a prompt, and hands them out so.

Run it with the Python of an environment that has the release. It has nothing of blockproof: a `KVCacheManager` with one
group of R-SWA, blocks of 4 tokens, a window of 4, and caching on. A request with a prompt of 4 tokens generates 16; its
answer is then sent back as part of a longer prompt.

A query of the first request reads the prompt and the last 4 tokens; one of the second, to which all of this is prompt,
reads everything before it. So from token 8 on the keys and values of the two differ in all layers but the first. The
configuration of the one model with R-SWA in this release turns the prefix cache off for that reason; the core does not.
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "CRITICAL"

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, RSWASpec
from vllm.v1.request import Request

BLOCK, WINDOW, PROMPT, GENERATED = 4, 4, 4, 16
init_none_hash(sha256)


def request(name: str, prompt: list[int]) -> Request:
    """A request with this prompt."""
    return Request(
        name, prompt, SamplingParams(max_tokens=64), None, block_hasher=get_request_block_hasher(BLOCK, sha256)
    )


def read(position: int, prompt: int) -> set[int]:
    """The tokens that the query at a position reads (`compute_kv_seq_mask` of the release's Triton kernel)."""
    return {t for t in range(position + 1) if t < prompt or position - t < WINDOW}


spec = RSWASpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32, rswa_window=WINDOW)
manager = KVCacheManager(
    KVCacheConfig(num_blocks=64, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]),
    max_model_len=256,
    scheduler_block_size=BLOCK,
    hash_block_size=BLOCK,
)
first = request("first", list(range(PROMPT)))
manager.allocate_slots(first, PROMPT)
first.num_computed_tokens = PROMPT
for token in range(PROMPT, PROMPT + GENERATED):
    first.append_output_token_ids(token)
    manager.allocate_slots(first, 1)
    first.num_computed_tokens += 1
print(f"first: prompt of {PROMPT} tokens, {GENERATED} generated; its table is {manager.get_block_ids('first')[0]}")

again = request("again", [*range(PROMPT + GENERATED), 0])
blocks, tokens, _ = manager.get_computed_blocks(again)
print(
    f"again: the same {PROMPT + GENERATED} tokens as a prompt; found are {tokens}, blocks {blocks.get_block_ids()[0]}"
)
wrong = [at for at in range(tokens) if read(at, PROMPT) != read(at, len(again.prompt_token_ids))]
print(
    f"of these were computed by queries that had read less: tokens {wrong[0]} to {wrong[-1]}"
    if wrong
    else "none is wrong"
)
