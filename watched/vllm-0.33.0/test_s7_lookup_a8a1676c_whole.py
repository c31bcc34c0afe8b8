"""`S7` at Lookup.

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
  "finding": {"observable": "S7", "operation": "Lookup", "text": "contract: S7 is violated at operation 77: Lookup r9\n  r9, group 0: hit [18] of 3 tokens: block 18 does not hold the content of the prefix of 3 tokens\n  target outcome: (3, ((18,), (15,)))", "identity": ["contract", "S7", "Lookup"]},
  "shape": {"groups": [{"kind": "full", "block_size": 3}, {"kind": "chunked", "block_size": 3, "chunk": 5}], "num_blocks": 64, "max_model_len": 4, "hash_block_size": 3, "scheduler_block_size": 3, "max_num_batched_tokens": 4, "events": true, "stats": true},
  "operations": [
    {"op": "Submit", "request": "r0", "prompt": [1, 1, 1, 0], "items": [{"identifier": "p2", "offset": 1, "length": 2}]},
    {"op": "Lookup", "request": "r0"},
    {"op": "Allocate", "request": "r0", "new_tokens": 3, "hit": true},
    {"op": "Advance", "request": "r0"},
    {"op": "Evict", "blocks": [2]},
    {"op": "Allocate", "request": "r0", "new_tokens": 1},
    {"op": "Advance", "request": "r0"},
    {"op": "Free", "request": "r0"},
    {"op": "Submit", "request": "r1", "prompt": [1, 1, 0, 0], "items": [{"identifier": "*", "offset": 0, "length": 2}]},
    {"op": "Allocate", "request": "r1", "new_tokens": 2},
    {"op": "Preempt", "request": "r1"},
    {"op": "Reset"},
    {"op": "Free", "request": "nobody"},
    {"op": "Lookup", "request": "r1"},
    {"op": "Allocate", "request": "r1", "new_tokens": 4, "hit": true},
    {"op": "Advance", "request": "r1"},
    {"op": "Free", "request": "r1"},
    {"op": "Free", "request": "nobody"},
    {"op": "TakeEvents"},
    {"op": "Submit", "request": "r2", "prompt": [1, 1, 1, 1], "items": [{"identifier": "p2", "offset": 1, "length": 2}]},
    {"op": "Lookup", "request": "r2"},
    {"op": "Allocate", "request": "r2", "new_tokens": 4, "hit": true},
    {"op": "Advance", "request": "r2"},
    {"op": "Free", "request": "r2"},
    {"op": "Evict", "blocks": [6]},
    {"op": "Free", "request": "nobody"},
    {"op": "Touch", "blocks": [45, 45]},
    {"op": "Submit", "request": "r3", "prompt": [1, 1, 1, 1], "items": [{"identifier": "p2", "offset": 1, "length": 2}]},
    {"op": "Lookup", "request": "r3"},
    {"op": "Allocate", "request": "r3", "new_tokens": 4, "hit": true},
    {"op": "Advance", "request": "r3"},
    {"op": "Evict", "blocks": [6, 27]},
    {"op": "Free", "request": "r3"},
    {"op": "Evict", "blocks": [2, 32]},
    {"op": "Release", "blocks": [45]},
    {"op": "Landed", "request": "r1"},
    {"op": "Free", "request": "nobody"},
    {"op": "Landed", "request": "r0"},
    {"op": "Landed", "request": "r3"},
    {"op": "Free", "request": "nobody"},
    {"op": "Submit", "request": "r4", "prompt": [0, 0, 1, 0], "items": [{"identifier": "*", "offset": 1, "length": 1}]},
    {"op": "Allocate", "request": "r4", "new_tokens": 4},
    {"op": "Free", "request": "r4"},
    {"op": "Evict", "blocks": [3]},
    {"op": "Submit", "request": "r5", "prompt": [1, 1, 1, 1], "skip_lookup": true},
    {"op": "Lookup", "request": "r5"},
    {"op": "Allocate", "request": "r5", "new_tokens": 4},
    {"op": "Evict", "blocks": [9, 61]},
    {"op": "Advance", "request": "r5"},
    {"op": "Free", "request": "r5"},
    {"op": "Submit", "request": "r6", "prompt": [1, 1, 1, 1], "items": [{"identifier": "p2", "offset": 0, "length": 2}]},
    {"op": "Preempt", "request": "r6"},
    {"op": "Submit", "request": "r7", "prompt": [1, 1, 0], "items": [{"identifier": "*", "offset": 0, "length": 2}]},
    {"op": "Lookup", "request": "r6"},
    {"op": "Allocate", "request": "r6", "new_tokens": 4, "hit": true},
    {"op": "Preempt", "request": "r7"},
    {"op": "Lookup", "request": "r7"},
    {"op": "Allocate", "request": "r7", "new_tokens": 3, "hit": true},
    {"op": "Advance", "request": "r7", "sampled": [1]},
    {"op": "Advance", "request": "r6"},
    {"op": "Allocate", "request": "r7", "new_tokens": 1},
    {"op": "Free", "request": "r6"},
    {"op": "Advance", "request": "r7"},
    {"op": "Free", "request": "r7"},
    {"op": "Touch", "blocks": [43, 43]},
    {"op": "Evict", "blocks": [33, 45]},
    {"op": "Submit", "request": "r8", "prompt": [1, 1, 1, 1], "items": [{"identifier": "*", "offset": 0, "length": 2}]},
    {"op": "Lookup", "request": "r8"},
    {"op": "Allocate", "request": "r8", "new_tokens": 1, "hit": true},
    {"op": "Advance", "request": "r8"},
    {"op": "Evict", "blocks": [10]},
    {"op": "Preempt", "request": "r8"},
    {"op": "Lookup", "request": "r8"},
    {"op": "Allocate", "request": "r8", "new_tokens": 4, "hit": true},
    {"op": "Advance", "request": "r8"},
    {"op": "Free", "request": "r8"},
    {"op": "Submit", "request": "r9", "prompt": [1, 1, 1, 1], "items": [{"identifier": "*", "offset": 0, "length": 1}]},
    {"op": "Lookup", "request": "r9"}
  ]
}
"""


def test_s7_lookup_a8a1676c_whole():
    finding = replay_text(TRACE, TARGET)
    assert finding is None, f"\n{finding}"
