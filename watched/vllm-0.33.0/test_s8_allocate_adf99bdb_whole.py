"""`S8` at Allocate.

Found by blockproof (random, seed 2026, 0.1.0). Needs only blockproof: `pip install blockproof`, then run pytest on this file.
BLOCKPROOF_TARGET names another target, such as package.module:factory.
"""

import os

from blockproof.fuzz import replay_text

TARGET = os.environ.get("BLOCKPROOF_TARGET", 'vllm==0.33.0')
TRACE = r"""
{
  "schema": 1,
  "target": "vllm==0.33.0",
  "oracles": ["shadow", "contract", "liveness"],
  "found_by": {"engine": "random", "seed": 2026, "version": "0.1.0"},
  "finding": {"observable": "S8", "operation": "Allocate", "text": "contract: S8 is violated at operation 8: Allocate r0, new_tokens=27, hit, lookahead=1, external=7, gate\n  Allocate raised ValueError, although it makes sense here (3 blocks free)\n  ValueError: Cannot get 3 free blocks from the pool\n    adapter  style.py:170, in VllmStyleTarget._allocate\n    core     single_type_kv_cache_manager.py:1879, in MambaManager.allocate_new_blocks\n    core     block_pool.py:719, in BlockPool.get_new_blocks\n  target outcome: fails with ValueError: Cannot get 3 free blocks from the pool\n  target   free: [1, 2, 3] -> [2, 3]\n  target   num_free: 3 -> 2\n  target   usage: 0.0 -> 0.33333333333333337\n  target   ref_cnt: block 1: 0 -> 1\n  target   tables: group 0, r0: None -> [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]\n  target   registered: group 0, r0: None -> 2", "identity": ["contract", "S8", "Allocate", "ValueError", "block_pool.py:719 in BlockPool.get_new_blocks"], "cause": {"type": "ValueError", "message": "Cannot get 3 free blocks from the pool", "frames": [{"file": "style.py", "line": 170, "function": "VllmStyleTarget._allocate", "adapter": true}, {"file": "single_type_kv_cache_manager.py", "line": 1879, "function": "MambaManager.allocate_new_blocks", "adapter": false}, {"file": "block_pool.py", "line": 719, "function": "BlockPool.get_new_blocks", "adapter": false}]}},
  "shape": {"groups": [{"kind": "mamba", "block_size": 3, "mamba_mode": "align", "speculative_blocks": 2}], "num_blocks": 4, "max_model_len": 64, "hash_block_size": 3, "scheduler_block_size": 3, "max_num_batched_tokens": 1, "caching": false, "events": true, "stats": true},
  "operations": [
    {"op": "ReadTable", "request": "nobody"},
    {"op": "Evict", "blocks": [3, 2]},
    {"op": "Evict", "blocks": [0]},
    {"op": "ReadTable", "request": "nobody"},
    {"op": "Evict", "blocks": [2]},
    {"op": "TakeEvents"},
    {"op": "Submit", "request": "r0", "prompt": [0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 1, 0, 1, 1, 0, 0, 0, 1, 0, 1, 1, 1, 1, 0, 0, 1, 0, 0, 0, 1, 0]},
    {"op": "Lookup", "request": "r0"},
    {"op": "Allocate", "request": "r0", "new_tokens": 27, "hit": true, "lookahead": 1, "external": 7, "gate": true}
  ]
}
"""


def test_s8_allocate_adf99bdb_whole():
    finding = replay_text(TRACE, TARGET)
    assert finding is None, f"\n{finding}"
