"""The change that is proposed for vLLM: count one block more where a state comes from outside and tokens follow it.

`MambaManager.get_num_blocks_to_allocate` (vllm/v1/core/single_type_kv_cache_manager.py), in mode align, counts one
block for a request that has none. Where tokens are loaded from outside and more are computed in the same step, two are
taken: one for the state that is loaded, one for the state behind the step.
"""

from inspect import signature
from typing import Any


def fix() -> None:
    """Change the engine in this process."""
    from vllm.v1.core.single_type_kv_cache_manager import MambaManager

    counted = MambaManager.get_num_blocks_to_allocate

    def get_num_blocks_to_allocate(self: Any, request_id: str, *given: Any, **more: Any) -> int:
        told = signature(counted).bind(self, request_id, *given, **more).arguments
        computed, local = told["total_computed_tokens"], told["num_local_computed_tokens"]
        first = self.mamba_cache_mode == "align" and not self.req_to_blocks.get(request_id)
        follow = told["num_tokens_main_model"] > computed > local
        return int(counted(self, request_id, *given, **more)) + int(first and follow)

    MambaManager.get_num_blocks_to_allocate = get_num_blocks_to_allocate
