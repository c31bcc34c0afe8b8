"""The change that is proposed for vLLM: name a block by every item that reaches into it.

`_gen_mm_extra_hash_keys` (vllm/v1/core/kv_cache_utils.py) is asked for each item by itself, so it neither stops at an
item that goes on behind the block nor returns early at the end of the last item. Items that do not overlap keep their
keys.
"""

from types import SimpleNamespace
from typing import Any


def fix() -> None:
    """Change the engine in this process."""
    from vllm.v1.core import kv_cache_utils

    keys_of = kv_cache_utils._gen_mm_extra_hash_keys

    def keys(request: Any, start: int, end: int, first: int) -> tuple[list[Any], int]:
        items = [SimpleNamespace(mm_features=[item]) for item in request.mm_features or ()]
        return [key for item in items for key in keys_of(item, start, end, 0)[0]], 0

    kv_cache_utils._gen_mm_extra_hash_keys = keys
