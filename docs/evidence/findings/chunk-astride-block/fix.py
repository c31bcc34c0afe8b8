"""The change that is proposed for vLLM: blocks before a chunk count as found only if the hit reaches the chunk.

`ChunkedLocalAttentionManager.find_longest_cache_hit` (vllm/v1/core/single_type_kv_cache_manager.py) takes the blocks
before the chunk of the last possible token for found. Where the hit then ends before that chunk begins, its next query
reads them, so look again with that end as the limit.
"""

from inspect import signature
from typing import Any


def fix() -> None:
    """Change the engine in this process."""
    from vllm.v1.core.single_type_kv_cache_manager import ChunkedLocalAttentionManager

    found = ChunkedLocalAttentionManager.find_longest_cache_hit.__func__

    def find_longest_cache_hit(cls: Any, *given: Any, **more: Any) -> Any:
        told = signature(found).bind(cls, *given, **more)
        spec = told.arguments["kv_cache_spec"]
        while True:
            answer = found(*told.args, **told.kwargs)
            rows = answer[0] if isinstance(answer[-1], int) else answer
            length = len(rows[0]) * spec.block_size
            limit = told.arguments["max_length"]
            if length >= limit // spec.attention_chunk_size * spec.attention_chunk_size:
                return answer
            told.arguments["max_length"] = length

    ChunkedLocalAttentionManager.find_longest_cache_hit = classmethod(find_longest_cache_hit)
