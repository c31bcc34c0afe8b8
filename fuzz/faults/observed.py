"""Planted faults of what was not looked at for long: forms of an answer, the metrics of blocks, the form of hashes."""

from collections.abc import Callable
from typing import Any

from .registry import fault, wrap


class _NeverNone:
    """New blocks whose ids are lists even where there are none."""

    def __init__(self, blocks: Any) -> None:
        self.blocks = blocks.blocks
        self._ids = blocks.get_block_ids

    def get_block_ids(self, allow_none: bool = False) -> Any:
        return self._ids()


class _NoneTooOften(_NeverNone):
    """New blocks whose ids are None unless the first group has some."""

    def get_block_ids(self, allow_none: bool = False) -> Any:
        return None if allow_none and not self.blocks[0] else self._ids()


def _with_new_blocks(manager: Any, form: type[_NeverNone]) -> None:
    def allocate(original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        new = original(*args, **named)
        return None if new is None else form(new)

    wrap(manager, "allocate_slots", allocate)


@fault("a step that gets no block is told empty lists instead of None", "outcome")
def _no_new_blocks_not_none(manager: Any) -> None:
    _with_new_blocks(manager, _NeverNone)


@fault("a step is told None if only its first group gets no block", "outcome")
def _none_hides_new_blocks(manager: Any) -> None:
    _with_new_blocks(manager, _NoneTooOften)


@fault("metrics do not notice that a block is used by another request", "stats")
def _metrics_without_uses(manager: Any) -> None:
    if manager.block_pool.metrics_collector is not None:
        wrap(manager.block_pool.metrics_collector, "on_block_accessed", lambda original, block: None)


@fault("metrics of a block whose identity is evicted by name go on", "stats", "outcome")
def _metrics_outlive_eviction(manager: Any) -> None:
    collector = manager.block_pool.metrics_collector

    def evict(original: Callable[..., Any], blocks: Any) -> None:
        lives = dict(collector.block_metrics)
        original(blocks)
        collector.block_metrics.update(lives)

    if collector is not None:
        wrap(manager, "evict_blocks", evict)


@fault("metrics go on over a reset of the prefix cache", "stats", "outcome")
def _metrics_outlive_reset(manager: Any) -> None:
    if manager.block_pool.metrics_collector is not None:
        wrap(manager.block_pool.metrics_collector, "reset", lambda original: None)


@fault("one block too many is followed by metrics", "stats", "outcome")
def _metrics_follow_too_many(manager: Any) -> None:
    collector = manager.block_pool.metrics_collector
    if collector is not None:
        wrap(collector, "should_sample_block", lambda original: original() or not collector.block_metrics)


def _renaming_events(manager: Any, rename: Callable[[Any], Any]) -> None:
    pool = manager.block_pool

    def cache(original: Callable[..., Any], *args: Any) -> None:
        events = len(pool.kv_event_queue)
        original(*args)
        for event in pool.kv_event_queue[events:]:
            event.block_hashes = [rename(name) for name in event.block_hashes]

    wrap(pool, "cache_full_blocks", cache)


@fault("events name blocks by the wrong 64 bits of their hash", "events")
def _event_number_of_other_bits(manager: Any) -> None:
    _renaming_events(manager, lambda name: name >> 1 if isinstance(name, int) else name)


@fault("events name blocks by numbers where digests were asked for", "events")
def _event_number_for_digest(manager: Any) -> None:
    _renaming_events(manager, lambda name: int.from_bytes(name[-8:], "big") if isinstance(name, bytes) else name)


@fault("a step that says nothing of tokens from outside has one", "outcome", "free", "tables", "ref_cnt")
def _unsaid_token_from_outside(manager: Any) -> None:
    def allocate(original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        return original(*args, **{"num_external_computed_tokens": 1, **named})

    wrap(manager, "allocate_slots", allocate)
