"""The change that is proposed for vLLM: count what a request that holds blocks still needs by the blocks it holds.

`SingleTypeKVCacheManager.get_num_blocks_to_allocate` (vllm/v1/core/single_type_kv_cache_manager.py), where the cap of a
window applies, takes the length of the block table from the cap, null blocks included. Instead: the need without the
cap, but at most the cap less the blocks of the table that are not null.
"""

from typing import Any


def fix() -> None:
    """Change the engine in this process."""
    from vllm.v1.core.single_type_kv_cache_manager import SingleTypeKVCacheManager

    counted = SingleTypeKVCacheManager.get_num_blocks_to_allocate

    def get_num_blocks_to_allocate(self: Any, request_id: str, *given: Any, **more: Any) -> int:
        cap = vars(self).get("max_admission_blocks_per_request", vars(self).get("_max_admission_blocks_per_request"))
        blocks = self.req_to_blocks.get(request_id)
        if not more.get("apply_admission_cap") or cap is None or not blocks:
            return int(counted(self, request_id, *given, **more))
        need = counted(self, request_id, *given, **(more | {"apply_admission_cap": False}))
        return int(min(need, cap - sum(not block.is_null for block in blocks)))

    SingleTypeKVCacheManager.get_num_blocks_to_allocate = get_num_blocks_to_allocate
