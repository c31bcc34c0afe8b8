"""Planted faults of the lookup of a prefix, and of allocation: what is predicted, refused and handed on."""

from collections.abc import Callable
from typing import Any

from ..findings.oracle_names import CONTRACT
from .registry import fault, the_long_way, wrap, wrap_each


@fault("the eagle drop is applied twice", "outcome")
def _eagle_drop_twice(manager: Any) -> None:
    def find(original: Callable[..., Any], hashes: Any, length: int) -> Any:
        hit, tokens = original(hashes, length)
        if manager.coordinator.eagle_group_ids and tokens:
            return original(hashes, tokens - 1)
        return hit, tokens

    wrap(manager.coordinator, "find_longest_cache_hit", find)


@fault("a hit may cover the last token", "outcome")
def _last_token_hit(manager: Any) -> None:
    wrap(manager.coordinator, "find_longest_cache_hit", lambda find, hashes, length: find(hashes, length + 1))


@fault("the prediction is one block too high", "outcome")
def _prediction_off_by_one(manager: Any) -> None:
    wrap(manager.coordinator, "get_num_blocks_to_allocate", lambda predict, *args, **more: predict(*args, **more) + 1)


@fault("free hit blocks are not counted in the prediction", "outcome")
def _evictable_hits_uncounted(manager: Any) -> None:
    for single in manager.coordinator.single_type_managers:
        single._get_num_evictable_blocks = lambda blocks: 0


@fault("a refused allocation has pinned the hit already", "free", "ref_cnt")
def _refusal_pins_hits(manager: Any) -> None:
    def allocate(original: Callable[..., Any], request: Any, new: int, *rest: Any, **more: Any) -> Any:
        blocks = original(request, new, *rest, **more)
        hit = more.get("new_computed_blocks")
        if blocks is None and hit is not None:
            for row in hit.blocks:
                manager.block_pool.touch([block for block in row if not block.is_null])
        return blocks

    wrap(manager, "allocate_slots", allocate)


@fault("reserved blocks are handed out", "outcome")
def _reservation_ignored(manager: Any) -> None:
    def allocate(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return original(*args, **{**kwargs, "reserved_blocks": 0})

    wrap(manager, "allocate_slots", allocate)


@fault("the admission gate counts the whole sequence for a window", "outcome")
def _gate_uncapped(manager: Any) -> None:
    for single in manager.coordinator.single_type_managers:
        single._max_admission_blocks_per_request = None


@fault("the allocation in a running step counts at most the cap", "outcome")
def _cap_in_every_step(manager: Any) -> None:
    the_long_way(manager)
    wrap_each(manager, "get_num_blocks_to_allocate", lambda _, predict, *args: predict(*args[:5], True, *args[6:]))


@fault("a state registered in this very step is handed on", "outcome")
def _same_step_rule_dropped(manager: Any) -> None:
    wrap(manager, "get_computed_blocks", lambda get, request: (manager.new_step_starts(), get(request))[1])


@fault("the next step does not begin for mamba states", "outcome")
def _step_start_ignored(manager: Any) -> None:
    manager.coordinator.new_step_starts = lambda: None


@fault("groups shrink a hit, but full attention keeps its blocks", "outcome")
def _hybrid_hit_not_cut(manager: Any) -> None:
    coordinator = manager.coordinator
    if not hasattr(coordinator, "attention_groups"):
        return

    def find(original: Callable[..., Any], hashes: Any, length: int) -> Any:
        hit, tokens = original(hashes, length)
        first = coordinator.attention_groups[0]
        if "Full" not in type(first.spec).__name__ or not tokens:
            return hit, tokens
        search = coordinator.search(first, hashes)
        rows = dict(zip(first.group_ids, search.blocks(search.longest(length)), strict=True))
        return tuple(rows.get(group, row) for group, row in enumerate(hit)), tokens

    wrap(coordinator, "find_longest_cache_hit", find)


@fault("the blocks of a hit come last first", "S7", oracles=(CONTRACT,))
def _hit_in_wrong_order(manager: Any) -> None:
    def find(original: Callable[..., Any], hashes: Any, length: int) -> Any:
        rows, tokens = original(hashes, length)
        return tuple(list(row)[::-1] for row in rows), tokens

    wrap(manager.coordinator, "find_longest_cache_hit", find)
