"""Planted faults of loads: what has failed of them, and what is still under way."""

from collections.abc import Callable
from typing import Any

from .registry import fault, wrap


def _noted(manager: Any) -> dict[str, int]:
    """From now on, per request that waits for a load, the tokens that it has once all has arrived."""
    awaited: dict[str, int] = {}

    def allocate(original: Callable[..., Any], request: Any, *asked: Any, **more: Any) -> Any:
        before = request.num_computed_tokens + more.get("num_new_computed_tokens", 0)
        blocks = original(request, *asked, **more)
        if blocks is not None and more.get("delay_cache_blocks"):
            awaited[request.request_id] = before + more["num_external_computed_tokens"]
        return blocks

    def free(original: Callable[..., None], request: Any) -> None:
        awaited.pop(request.request_id, None)
        original(request)

    wrap(manager, "allocate_slots", allocate)
    wrap(manager, "free", free)
    return awaited


@fault("what a load has not brought is registered with the rest", "registered", "labels")
def _missing_tokens_registered(manager: Any) -> None:
    awaited = _noted(manager)
    wrap(
        manager, "cache_blocks", lambda cache, request, tokens: cache(request, awaited.pop(request.request_id, tokens))
    )


@fault("the first block into which a load has failed is registered, too", "registered", "labels")
def _failure_cut_a_block_late(manager: Any) -> None:
    awaited, size = _noted(manager), manager.coordinator.scheduler_block_size

    def cache(original: Callable[..., None], request: Any, tokens: int) -> None:
        original(request, min(tokens + size, awaited.pop(request.request_id, tokens)))

    wrap(manager, "cache_blocks", cache)


@fault("the blocks behind what a load has brought are given back, though the request goes on", "tables", "free")
def _failed_blocks_given_back(manager: Any) -> None:
    awaited = _noted(manager)

    def cache(original: Callable[..., None], request: Any, tokens: int) -> None:
        original(request, tokens)
        name = request.request_id
        for single in manager.coordinator.single_type_managers if awaited.pop(name, tokens) > tokens else ():
            table = single.req_to_blocks[name]
            end = -(-tokens // single.block_size)
            gone = [block for block in table[end:] if not block.is_null]
            del table[end:]
            manager.block_pool.free_blocks(gone[::-1])

    wrap(manager, "cache_blocks", cache)


@fault("a window gives up a block into which a load still writes", "tables", "free")
def _window_cut_under_a_load(manager: Any) -> None:
    awaited = _noted(manager)

    def arrive(original: Callable[..., None], request: Any, tokens: int) -> None:
        awaited.pop(request.request_id, None)
        original(request, tokens)

    def cut(original: Callable[..., None], name: str, computed: int) -> None:
        sizes = [single.block_size for single in manager.coordinator.single_type_managers]
        original(name, computed + max(sizes) * (name in awaited))

    wrap(manager, "cache_blocks", arrive)
    wrap(manager, "remove_skipped_blocks", cut)
