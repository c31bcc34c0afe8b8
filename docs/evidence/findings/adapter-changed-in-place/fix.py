"""The change that is proposed for vLLM: name the blocks of an adapter by how often it was loaded, too.

`EngineCore.add_lora` (vllm/v1/engine/core.py) is called for each load, be it the first, in place, or after unloading.
It counts them by name and path, and `_gen_lora_extra_hash_keys` (vllm/v1/core/kv_cache_utils.py) adds the count of all
but the first to the key. An adapter that is loaded once keeps its keys, so caches outside the engine stay valid.
"""

from collections import Counter
from typing import Any


def fix() -> None:
    """Change the engine in this process."""
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.engine.core import EngineCore

    add, keys_of = EngineCore.add_lora, kv_cache_utils._gen_lora_extra_hash_keys
    loads: Counter[tuple[str, str]] = Counter()

    def add_lora(self: Any, lora_request: Any) -> bool:
        loads[lora_request.lora_name, lora_request.lora_path] += 1
        return bool(add(self, lora_request))

    def keys(request: Any) -> list[Any]:
        adapter = request.lora_request
        count = loads[adapter.lora_name, adapter.lora_path] if adapter else 0
        return [*keys_of(request), *([("lora_loads", count)] if count > 1 else [])]

    EngineCore.add_lora, kv_cache_utils._gen_lora_extra_hash_keys = add_lora, keys
