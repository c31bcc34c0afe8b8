"""Planted faults of what is told of blocks, which no model is needed to see: payload of events, new ids, answers."""

from collections.abc import Callable
from functools import partial
from typing import Any

from ..findings.oracle_names import CONTRACT
from .registry import fault, wrap

_told = partial(fault, oracles=(CONTRACT,))
"""A fault for which only the contract is asked."""


def _changing_events(manager: Any, change: Callable[[Any, Any], None]) -> None:
    """Change each event that stores blocks; `change` gets it and the request."""
    pool = manager.block_pool

    def cache(original: Callable[..., Any], request: Any, *args: Any) -> None:
        events = len(pool.kv_event_queue)
        original(request, *args)
        for event in pool.kv_event_queue[events:]:
            change(event, request)

    wrap(pool, "cache_full_blocks", cache)


@_told("a stored event tells the first tokens of its request (vllm-project/vllm#44451)", "S11")
def _event_with_the_first_tokens(manager: Any) -> None:
    def change(event: Any, request: Any) -> None:
        event.token_ids = list(request.all_token_ids[: len(event.token_ids)])

    _changing_events(manager, change)


@_told("a stored event tells the tokens of its last block only", "S11")
def _event_with_the_last_tokens(manager: Any) -> None:
    def change(event: Any, request: Any) -> None:
        event.token_ids = event.token_ids[-event.block_size :]

    _changing_events(manager, change)


@_told("a stored event names the first block that it stores as its parent", "S11")
def _event_behind_itself(manager: Any) -> None:
    def change(event: Any, request: Any) -> None:
        if event.parent_block_hash is not None and event.block_hashes:
            event.parent_block_hash = event.block_hashes[0]

    _changing_events(manager, change)


@_told("a stored event does not say for which adapter", "S11")
def _event_without_adapter(manager: Any) -> None:
    def change(event: Any, request: Any) -> None:
        event.lora_name = event.lora_id = None

    _changing_events(manager, change)


def _listing_more(manager: Any, more: Callable[[list[int], list[int], list[int]], list[int]]) -> None:
    """After each allocation, list as new in each group what `more` makes of the ids before, of those now, and of the
    hit."""

    def allocate(original: Callable[..., Any], request: Any, *args: Any, **named: Any) -> Any:
        singles = [single for single in manager.coordinator.single_type_managers if single.collects_new_block_ids]
        before = [list(single.new_block_ids) for single in singles]
        new = original(request, *args, **named)
        hit = named.get("new_computed_blocks")
        for single, old in zip(singles, before, strict=True) if new is not None else ():
            row = hit.blocks[single.kv_cache_group_id] if hit is not None else ()
            now = list(single.new_block_ids)
            single.new_block_ids = more(old, now, [block.block_id for block in row if not block.is_null])
        return new

    wrap(manager, "allocate_slots", allocate)


@_told("the last block of a step is told as new twice", "S16")
def _new_block_told_twice(manager: Any) -> None:
    _listing_more(manager, lambda old, now, hit: [*now, *now[len(old) :][-1:]])


@_told("the blocks of a hit are told as new, and cleared", "S16")
def _hit_told_as_new(manager: Any) -> None:
    _listing_more(manager, lambda old, now, hit: [*now, *hit])


@_told("of several new blocks in a step the last one is not told as new", "S16")
def _last_new_block_not_told(manager: Any) -> None:
    _listing_more(manager, lambda old, now, hit: now[:-1] if len(now) > len(old) + 1 else now)


@_told("new blocks that were told are told again", "S16")
def _new_blocks_told_again(manager: Any) -> None:
    first = manager.coordinator.single_type_managers[0]

    def take(original: Callable[..., Any]) -> Any:
        ids = original()
        first.new_block_ids = list(ids)
        return ids

    wrap(manager, "take_new_block_ids", take)


@_told("the answer of a running request's step lacks its last new block", "S16")
def _answer_lacks_a_block(manager: Any) -> None:
    tables = [single.req_to_blocks for single in manager.coordinator.single_type_managers]

    def allocate(original: Callable[..., Any], request: Any, *args: Any, **named: Any) -> Any:
        runs = any(table.get(request.request_id) for table in tables)
        new = original(request, *args, **named)
        return type(new)(tuple([list(row)[:-1] for row in new.blocks])) if runs and new is not None else new

    wrap(manager, "allocate_slots", allocate)


@_told("a table that is read lacks its last entry", "S16")
def _table_read_without_its_end(manager: Any) -> None:
    wrap(manager, "get_block_ids", lambda read, request: tuple([ids[:-1] for ids in read(request)]))
    wrap(manager, "get_blocks", lambda read, request: type(read(request))(tuple(b[:-1] for b in read(request).blocks)))


@_told("statistics count the tokens of a hit as found only where all of the prompt is", "S19")
def _partial_hits_not_counted(manager: Any) -> None:
    if manager.prefix_cache_stats is None:
        return
    stats = type(manager.prefix_cache_stats)

    class Whole(stats):  # type: ignore[misc, valid-type]
        def record(self, num_tokens: int, num_hits: int, preempted: bool) -> None:
            super().record(num_tokens, num_hits if num_hits == num_tokens - 1 else 0, preempted)

    manager.prefix_cache_stats = Whole()
