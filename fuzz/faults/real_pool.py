"""Planted faults after real bugs: references, the free queue and what it is asked for (`real_bugs/pool.toml`)."""

from typing import Any

from .registry import fault, wrap_giving_back


@fault("without prefix caching freed blocks go to the back of the queue (vllm-project/vllm#51482)", "free")
def _uncached_to_the_back(manager: Any) -> None:
    if not manager.enable_caching:
        wrap_giving_back(manager, lambda free, blocks, prepend=False: free(blocks))
