"""A repeated prompt never hits the cache with an Eagle head and sliding windows.

The retention interval is 0: of a window group, only the tail of each prompt is kept, for a repeated prompt. With
Eagle the lookup gives up the last block, so it needs a tail that ends one block earlier, and that was not kept.
"""

import os
from inspect import signature
from typing import Any

from engine_without_device import layer, main, repeated, start, with_eagle
from vllm import envs
from vllm.config import CacheConfig

FIELD, VARIABLE = "prefix_cache_retention_interval", "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"


def retention() -> dict[str, Any]:
    """The interval as an option of the cache, or in the environment in releases that read it there."""
    if FIELD in signature(CacheConfig).parameters:
        return {FIELD: 0}
    if VARIABLE not in envs.environment_variables:
        raise NotImplementedError("this release has no retention interval")
    os.environ[VARIABLE] = "0"
    return {}


def hit(drafts: int) -> int:
    """Tokens of a prompt of 300 that are served from the cache when it comes a second time."""
    layers = {"full": layer("FullAttentionSpec"), "window": layer("SlidingWindowSpec", sliding_window=32)}
    engine = start(layers, blocks=128, length=1024, batch=256, drafts=drafts, cache=retention())
    return repeated(engine, 300)


def case() -> tuple[str, str, bool]:
    """With and without an Eagle head."""
    return with_eagle(hit, 300, 16)


main(case)
