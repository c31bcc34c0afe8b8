"""Planted faults of what makes our core fast: horizons of running requests, and runs of registered blocks."""

from collections.abc import Callable
from typing import Any

from .registry import fault, wrap, wrap_each


@fault("the horizon of a request lies a block behind the end of its tables", "outcome", "tables", "free")
def _horizon_beyond_the_table(manager: Any) -> None:
    for lane in manager.coordinator.steps.lanes:
        lane.extra -= 1


@fault("a window gives back its blocks a block too late", "free", "tables", "outcome")
def _window_left_behind_late(manager: Any) -> None:
    def skips_at(single: Any, original: Callable[..., int], settled: int) -> int:
        return original(settled) + int(single.block_size)

    wrap_each(manager, "skips_at", skips_at)


@fault("a state that no step needs any more is given back a block too late", "free", "tables", "outcome")
def _state_left_behind_late(manager: Any) -> None:
    def gives_back_at(single: Any, original: Callable[..., int], request_id: str) -> int:
        return original(request_id) + int(single.block_size)

    wrap_each(manager, "gives_back_at", gives_back_at)


@fault("a run of registered blocks still has the one that was evicted from it", "outcome", "tables", "ref_cnt")
def _run_outlives_its_blocks(manager: Any) -> None:
    def forget(original: Callable[..., bool], block: Any) -> bool:
        run, content = block.run, block.content
        if not original(block):
            return False
        if run.whole:
            run.blocks.append(block)
            run.contents.append(content)
        return True

    wrap(manager.block_pool.cached_block_hash_to_block, "forget", forget)
