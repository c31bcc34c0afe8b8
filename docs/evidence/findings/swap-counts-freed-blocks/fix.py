"""The change that is proposed for transformers: give back whole free sectors before free blocks are counted.

`OffloadingManager._reserve_cpu_blocks` (generation/continuous_batching/offloading_manager.py) calls
`try_to_free_sectors` first, not between counting and taking.
"""

from typing import Any


def fix() -> None:
    """Change the engine in this process."""
    from transformers.generation.continuous_batching.offloading_manager import OffloadingManager

    reserved = OffloadingManager._reserve_cpu_blocks

    def _reserve_cpu_blocks(self: Any, block_counts: dict[str, int]) -> Any:
        if self._cpu_pool is not None:
            self._cpu_pool.try_to_free_sectors()
        return reserved(self, block_counts)

    OffloadingManager._reserve_cpu_blocks = _reserve_cpu_blocks
