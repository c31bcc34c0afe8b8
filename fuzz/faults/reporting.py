"""Planted faults of what is told to others: events, statistics, new block ids, the common prefix."""

from collections.abc import Callable
from typing import Any

from .registry import fault, wrap, wrap_each


@fault("the eviction of a block is not announced", "events")
def _removed_event_missing(manager: Any) -> None:
    pool = manager.block_pool

    def forget(original: Callable[..., Any], blocks: Any) -> None:
        events = len(pool.kv_event_queue)
        original(blocks)
        del pool.kv_event_queue[events:]

    wrap(pool, "_forget_loudly", forget)


@fault("a stored event names no parent", "events")
def _stored_parent_missing(manager: Any) -> None:
    def cache(original: Callable[..., Any], *args: Any) -> None:
        original(*args)
        for event in manager.block_pool.kv_event_queue[-1:]:
            if hasattr(event, "parent_block_hash"):
                event.parent_block_hash = None

    wrap(manager.block_pool, "cache_full_blocks", cache)


@fault("events handed out are kept and handed out again", "events")
def _events_not_drained(manager: Any) -> None:
    pool = manager.block_pool

    def take_events(original: Callable[..., Any]) -> Any:
        events = original()
        pool.kv_event_queue += events
        return events

    wrap(manager, "take_events", take_events)


@fault("a block taken for external tokens is not listed as new", "new_block_ids")
def _new_block_ids_incomplete(manager: Any) -> None:
    def allocate(single: Any, original: Callable[..., Any], *args: Any) -> None:
        before = list(single.new_block_ids)
        original(*args)
        single.new_block_ids[:] = before

    wrap_each(manager, "allocate_external_blocks", allocate)


@fault("the hits of preempted requests count as ordinary ones", "stats")
def _preempted_hits_mixed_in(manager: Any) -> None:
    stats = type(manager.prefix_cache_stats)
    if manager.prefix_cache_stats is None:
        return

    class Mixed(stats):  # type: ignore[misc, valid-type]
        def record(self, num_tokens: int, num_hits: int, preempted: bool) -> None:
            super().record(num_tokens, num_hits, False)

    manager.prefix_cache_stats = Mixed()


@fault("the prefix cache is reset while blocks are in use", "outcome")
def _reset_while_in_use(manager: Any) -> None:
    def reset(original: Callable[..., Any]) -> bool:
        original()
        return True

    wrap(manager.block_pool, "reset_prefix_cache", reset)


@fault("a reset is not marked in the statistics", "stats")
def _reset_not_in_stats(manager: Any) -> None:
    manager.reset_prefix_cache = manager.block_pool.reset_prefix_cache


@fault("the common prefix is one block too long", "outcome")
def _common_prefix_too_long(manager: Any) -> None:
    def count(original: Callable[..., Any], request: str) -> list[int]:
        tables = [len(single.req_to_blocks.get(request, ())) for single in manager.coordinator.single_type_managers]
        return [min(n + 1, held) for n, held in zip(original(request), tables, strict=True)]

    wrap(manager.coordinator, "get_num_common_prefix_blocks", count)
