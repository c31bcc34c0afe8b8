"""vLLM 0.33.0, with a pool of the host (HiSparse), hands the blocks of a request out as one list when their return is
deferred (`pop_blocks_for_free`): blocks of two pools under the same numbers. That does no harm: each block knows its
pool, and `BlockPool.free_blocks` passes those of others on.

Run it with the Python of an environment that has the release. It has nothing of blockproof: a `KVCacheManager` with the
four kinds of groups of such a core, one request, and its end in both ways.
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "CRITICAL"

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.hisparse.coordinator import get_hisparse_coordinator
from vllm.v1.kv_cache_interface import (
    HiSparseHotSpec,
    HiSparseResidentSpec,
    KVCacheConfig,
    KVCacheGroupRole,
    KVCacheGroupSpec,
    MLAAttentionSpec,
)
from vllm.v1.request import Request, RequestStatus

init_none_hash(sha256)
BLOCK = 4
LATENT = MLAAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)


def freed(deferred: bool) -> tuple[list[int], list[int], list[int]]:
    """Which blocks are free, in order, in the pool of the device and in that of the host, behind a request's end."""
    groups = [
        KVCacheGroupSpec(["source"], LATENT, host_resident=True, role=KVCacheGroupRole.HISPARSE_SOURCE),
        KVCacheGroupSpec(["indexer"], LATENT),
        KVCacheGroupSpec(["pages"], HiSparseResidentSpec(block_size=BLOCK, page_size=1)),
        KVCacheGroupSpec(["hot"], HiSparseHotSpec(block_size=BLOCK, page_size=1, blocks_per_request=2)),
    ]
    config = KVCacheConfig(num_blocks=20, kv_cache_tensors=[], kv_cache_groups=groups, hisparse_host_num_blocks=12)
    manager = KVCacheManager(config, max_model_len=64, scheduler_block_size=BLOCK, hash_block_size=BLOCK)
    core = get_hisparse_coordinator(manager)
    assert core is not None
    hasher = get_request_block_hasher(BLOCK, sha256)
    request = Request("r", list(range(3 * BLOCK + 1)), SamplingParams(max_tokens=8), None, block_hasher=hasher)
    assert manager.allocate_slots(request, 3 * BLOCK + 1) is not None
    core.advance_scheduled([("r", 3 * BLOCK + 1)])
    core.build_offload_command()
    moves = core.pending_spills
    core.update_spills(dict.fromkeys(moves, 1), dict.fromkeys(moves, 1))
    request.status = RequestStatus.FINISHED_STOPPED
    host = core.get_host_block_pool()
    if deferred:
        blocks = manager.pop_blocks_for_free(request)
        numbers = [block.block_id for block in blocks]
        both = sorted(number for number in set(numbers) if numbers.count(number) > 1)
        print(f"deferred: blocks {numbers} of {len({id(block.pool) for block in blocks})} pools; {both} are of both")
        manager.block_pool.free_blocks(reversed(blocks))
    else:
        manager.free(request)
    pools = manager.block_pool, host
    free = [[block.block_id for block in pool.free_block_queue.get_all_free_blocks()] for pool in pools]
    return free[0], free[1], [sum(block.ref_cnt for block in pool.blocks[1:]) for pool in pools]


now, later = freed(deferred=False), freed(deferred=True)
for name, shown in (("at once", now), ("deferred", later)):
    print(f"{name}: {len(shown[0])} of 19 free on the device, {len(shown[1])} of 11 on the host, held {shown[2]}")
alike = all(sorted(one) == sorted(other) for one, other in zip(now, later, strict=True))
print("each pool has its own blocks again" if alike else "they differ")
