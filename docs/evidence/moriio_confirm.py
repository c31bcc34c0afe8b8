"""MoRIIOConnector in read mode (vLLM 0.33.0) pairs the blocks of a window wrongly where there are drafts; nothing of
blockproof.

Run in an environment of that release: python moriio_confirm.py
Both engines have the release's own KVCacheManager with a window of 32 and blocks of 16. Prefill computes a prompt of
80 tokens; decode loads 79 of them, and takes room for drafts. Which blocks are paired, the connector's own methods say.
"""

import logging
import sys
from importlib import import_module
from typing import Any
from unittest.mock import MagicMock

import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec
from vllm.v1.request import Request

BLOCK, WINDOW, PROMPT = 16, 32, 80
SPEC = SlidingWindowSpec(BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32, sliding_window=WINDOW)
CONFIG = KVCacheConfig(100, [], [KVCacheGroupSpec(["layer"], SPEC)])


def manager() -> KVCacheManager:
    """The cache of one engine."""
    return KVCacheManager(CONFIG, 1024, BLOCK, BLOCK, max_in_flight_tokens=1024, enable_caching=False)


def request() -> Request:
    """The prompt."""
    return Request("r", list(range(PROMPT)), SamplingParams(max_tokens=8), None)


def half() -> Any:
    """The connector's half, made without its constructor, which needs addresses."""
    sys.modules.setdefault("msgpack", MagicMock())  # workers only
    module = import_module("vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_connector")
    made = object.__new__(module.MoRIIOConnectorScheduler)
    made.kv_cache_config = CONFIG
    made._is_hma_required = True
    made.blocks_per_sw = [WINDOW // BLOCK + 1]
    return made


def paired(drafts: int) -> list[tuple[int, int]]:
    """Number of the block of the prompt that each block of decode stands for, and of that which is read into it."""
    prefill, decode = manager(), manager()
    there, here = request(), request()
    assert prefill.allocate_slots(there, PROMPT) is not None
    prefill.remove_skipped_blocks("r", PROMPT)
    taken = decode.allocate_slots(here, 1, num_external_computed_tokens=PROMPT - 1, num_lookahead_tokens=drafts)
    assert taken is not None
    (theirs,), (mine,) = prefill.get_block_ids("r"), decode.get_block_ids("r")
    places = {block: place for place, block in enumerate(mine) if block}
    sources = {block: place for place, block in enumerate(theirs) if block}
    connector = half()
    remote = connector.get_exchange_clipped_blocks([theirs])
    local = connector.get_exchange_clipped_blocks(decode.get_blocks("r").get_block_ids())  # as the scheduler gives them
    ends = 1 + -(-(1 + drafts) // BLOCK)
    local_ids, remote_ids = connector._align_read_blocks(local[0], remote[0], ends)
    pairs = zip(local_ids, remote_ids, strict=True)
    return [(places[mine], sources[theirs]) for mine, theirs in pairs if mine and theirs]


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    for drafts in (0, 2):
        pairs = paired(drafts)
        wrong = [pair for pair in pairs if pair[0] != pair[1]]
        told = ", ".join(f"block {there} of the prompt is read into block {here}" for here, there in pairs)
        print(f"{drafts} drafts: {told}: {'shown, they do not agree' if wrong else 'right'}")
