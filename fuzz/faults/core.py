"""Planted faults: who checks the checker?

Each fault is one small mistake in our own core, planted into a manager after its construction. `blockproof mutants`
runs the harness against every one of them and must find it; the clean core must show nothing. Every observable that
lockstep compares has at least one fault of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, TypeAlias

from ..adapters.impl import open_changed_impl
from ..targets.base import Target

Plant: TypeAlias = Callable[[Any], None]
"""Changes a newly built KVCacheManager."""


@dataclass(frozen=True)
class Fault:
    """One planted mistake."""

    name: str
    describe: str
    plant: Plant
    observables: tuple[str, ...]
    """Where lockstep may see it first: which of them depends on the run."""


def open_fault(name: str) -> Target:
    """Our core with this fault. KeyError for an unknown name."""
    return open_changed_impl(f"fault:{name}", FAULTS[name].plant)


FAULTS: dict[str, Fault] = {}
"""All planted faults by name."""


def _fault(describe: str, *observables: str) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        name = plant.__name__.strip("_").replace("_", "-")
        FAULTS[name] = Fault(name, describe, plant, observables)
        return plant

    return add


def _wrap(owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace a method of one object: `change` gets the original and the call's arguments."""
    original = getattr(owner, name)

    @wraps(original)
    def changed(*args: Any, **kwargs: Any) -> Any:
        return change(original, *args, **kwargs)

    setattr(owner, name, changed)


def _wrap_each(manager: Any, name: str, change: Callable[..., Any], having: str = "block_size") -> None:
    """Replace a method of every group's manager that has the attribute `having`; `change` gets the manager first."""
    for single in manager.coordinator.single_type_managers:
        if hasattr(single, having):
            _wrap(single, name, partial(change, single))


# The free queue.


@_fault("a request's blocks are freed head first", "free")
def _free_order_reversed(manager: Any) -> None:
    def free(single: Any, original: Callable[..., Any], request: str) -> None:
        single.req_to_blocks[request].reverse()
        original(request)

    _wrap_each(manager, "free", free)


@_fault("freed blocks go to the front of the queue", "free")
def _freed_to_the_front(manager: Any) -> None:
    _wrap(manager.block_pool, "free_blocks", lambda free, blocks, prepend=False: free(blocks, prepend=True))


@_fault("blocks without identity go to the back like all others", "free")
def _hashless_to_the_back(manager: Any) -> None:
    _wrap(manager.block_pool, "free_blocks", lambda free, blocks, prepend=False: free(blocks))


@_fault("blocks put in front stand in reverse order", "free", "outcome")
def _prepend_reversed(manager: Any) -> None:
    _wrap(manager.block_pool.free_block_queue, "prepend_n", lambda prepend, blocks: prepend(blocks[::-1]))


@_fault("a hit block leaves the queue but the counter does not notice", "num_free")
def _free_count_drifts(manager: Any) -> None:
    queue = manager.block_pool.free_block_queue

    def remove(original: Callable[..., Any], block: Any) -> None:
        original(block)
        queue.num_free_blocks += 1

    _wrap(queue, "remove", remove)


@_fault("usage counts the null block as usable", "usage")
def _usage_counts_null_block(manager: Any) -> None:
    pool = manager.block_pool
    pool.get_usage = lambda: 1.0 - pool.get_num_free_blocks() / pool.num_gpu_blocks


# References and tables.


@_fault("a shared block keeps its reference when one holder frees it", "ref_cnt")
def _reference_not_decreased(manager: Any) -> None:
    _wrap(
        manager.block_pool,
        "free_blocks",
        lambda free, blocks, prepend=False: free([b for b in blocks if b.ref_cnt <= 1], prepend=prepend),
    )


@_fault("touching a block that is in use does not count", "ref_cnt")
def _touch_ignores_used_blocks(manager: Any) -> None:
    _wrap(manager.block_pool, "touch", lambda touch, blocks: touch([b for b in blocks if not b.ref_cnt]))


@_fault("one token too many is skipped", "outcome", "free")
def _skipped_off_by_one(manager: Any) -> None:
    _wrap_each(manager, "get_num_skipped_tokens", lambda _, skipped, computed: skipped(computed + 1))


@_fault("nothing is skipped while a request runs", "free", "outcome")
def _window_never_slides(manager: Any) -> None:
    manager.coordinator.remove_skipped_blocks = lambda request, computed: None


@_fault("lookahead tokens get no block", "outcome")
def _lookahead_ignored(manager: Any) -> None:
    _wrap_each(manager, "allocate_new_blocks", lambda _, allocate, request, tokens, main: allocate(request, main, main))


@_fault("the last two of the new blocks change places in the table", "tables")
def _table_entries_swapped(manager: Any) -> None:
    def allocate(single: Any, original: Callable[..., Any], request: str, *rest: Any) -> Any:
        new = list(original(request, *rest))
        if len(new) > 1:
            table = single.req_to_blocks[request]
            table[-1], table[-2] = table[-2], table[-1]
        return new

    _wrap_each(manager, "allocate_new_blocks", allocate)


@_fault("a table may grow beyond the model length", "outcome")
def _model_length_ignored(manager: Any) -> None:
    manager.max_model_len *= 2


@_fault("the speculative states of the last step are dropped, not moved", "outcome")
def _speculative_states_not_moved(manager: Any) -> None:
    def allocate(single: Any, original: Callable[..., Any], request: str, *rest: Any) -> Any:
        single._allocated_block_reqs.discard(request)
        return original(request, *rest)

    _wrap_each(manager, "allocate_new_blocks", allocate, having="_allocated_block_reqs")


@_fault("the state before the current one is never given back", "free", "outcome", "ref_cnt")
def _last_state_leaks(manager: Any) -> None:
    def remove(single: Any, original: Callable[..., Any], request: str, computed: int) -> None:
        single.last_state_block_idx.pop(request, None)
        original(request, computed)

    _wrap_each(manager, "remove_skipped_blocks", remove, having="last_state_block_idx")


# Registration and identities.


@_fault("blocks left out by the mask are not counted as registered", "registered")
def _registered_count_short(manager: Any) -> None:
    def cache(single: Any, original: Callable[..., Any], request: Any, *rest: Any) -> None:
        original(request, *rest)
        name, table = request.request_id, single.req_to_blocks.get(request.request_id, [])
        if name in single.num_cached_block:
            known = sum(block.block_hash is not None or block.is_null for block in table)
            single.num_cached_block[name] = min(single.num_cached_block[name], known)

    _wrap_each(manager, "cache_blocks", cache)


@_fault("an evicted block keeps its hash", "labels", "outcome")
def _hash_kept_after_eviction(manager: Any) -> None:
    pool = manager.block_pool

    def forget(original: Callable[..., Any], block: Any) -> None:
        key = block.block_hash
        original(block)
        if key is not None and not block.ref_cnt:
            block.block_hash = key

    _wrap(pool, "_forget_identity", forget)


@_fault("the mask of worthwhile blocks is shifted by one", "labels")
def _mask_shifted(manager: Any) -> None:
    _wrap_each(manager, "reachable_block_mask", lambda _, mask, start, end, *rest: mask(start + 1, end + 1, *rest))


@_fault("the boundary at which a replay of the prompt lands is not kept", "labels")
def _replay_boundary_lost(manager: Any) -> None:
    _wrap_each(manager, "reachable_block_mask", lambda _, mask, *args: mask(*args[:6], None))


@_fault("the partial block at the end is registered as if it were full", "outcome", "registered")
def _partial_block_registered(manager: Any) -> None:
    _wrap(
        manager.coordinator,
        "cache_blocks",
        lambda cache, request, tokens: cache(request, tokens + manager.coordinator.scheduler_block_size - 1),
    )


@_fault("tokens beyond those computed are registered", "registered", "outcome")
def _registered_too_early(manager: Any) -> None:
    _wrap(manager.coordinator, "cache_blocks", lambda cache, request, tokens: cache(request, request.num_tokens))


@_fault("what arrives later is registered at once", "registered")
def _delay_ignored(manager: Any) -> None:
    def allocate(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return original(*args, **{**kwargs, "delay_cache_blocks": False})

    _wrap(manager, "allocate_slots", allocate)


@_fault("a second block under one identity is not registered", "labels")
def _duplicate_lost(manager: Any) -> None:
    def cache(original: Callable[..., Any], request: Any, blocks: Any, first: int, full: int, *rest: Any) -> None:
        original(request, blocks, first, full, *rest)
        index = manager.block_pool.cached_block_hash_to_block
        for block in blocks[first:full]:
            if block.block_hash is not None and index.get_one_block(block.block_hash) is not block:
                index.pop(block.block_hash, block.block_id)
                block.reset_hash()

    _wrap(manager.block_pool, "cache_full_blocks", cache)


@_fault("a lookup yields the block registered last", "earliest")
def _latest_instead_of_earliest(manager: Any) -> None:
    index = manager.block_pool.cached_block_hash_to_block

    def get_one_block(original: Callable[..., Any], key: Any) -> Any:
        found = index._cache.get(key)
        return list(found.values())[-1] if isinstance(found, dict) else original(key)

    _wrap(index, "get_one_block", get_one_block)


@_fault("an evicted identity can still be found", "num_identities")
def _stale_key_left(manager: Any) -> None:
    index = manager.block_pool.cached_block_hash_to_block

    def pop(original: Callable[..., Any], key: Any, block_id: int) -> Any:
        block = original(key, block_id)
        if block is not None and key not in index._cache:
            index._cache[key] = {-1: None}
        return block

    _wrap(index, "pop", pop)


# Lookup and allocation.


@_fault("the eagle drop is applied twice", "outcome")
def _eagle_drop_twice(manager: Any) -> None:
    def find(original: Callable[..., Any], hashes: Any, length: int) -> Any:
        hit, tokens = original(hashes, length)
        if manager.coordinator.eagle_group_ids and tokens:
            return original(hashes, tokens - 1)
        return hit, tokens

    _wrap(manager.coordinator, "find_longest_cache_hit", find)


@_fault("a hit may cover the last token", "outcome")
def _last_token_hit(manager: Any) -> None:
    _wrap(manager.coordinator, "find_longest_cache_hit", lambda find, hashes, length: find(hashes, length + 1))


@_fault("the prediction is one block too high", "outcome")
def _prediction_off_by_one(manager: Any) -> None:
    _wrap(manager.coordinator, "get_num_blocks_to_allocate", lambda predict, *args, **more: predict(*args, **more) + 1)


@_fault("free hit blocks are not counted in the prediction", "outcome")
def _evictable_hits_uncounted(manager: Any) -> None:
    for single in manager.coordinator.single_type_managers:
        single._get_num_evictable_blocks = lambda blocks: 0


@_fault("a refused allocation has pinned the hit already", "free", "ref_cnt")
def _refusal_pins_hits(manager: Any) -> None:
    def allocate(original: Callable[..., Any], request: Any, new: int, *rest: Any, **more: Any) -> Any:
        blocks = original(request, new, *rest, **more)
        hit = more.get("new_computed_blocks")
        if blocks is None and hit is not None:
            for row in hit.blocks:
                manager.block_pool.touch([block for block in row if not block.is_null])
        return blocks

    _wrap(manager, "allocate_slots", allocate)


@_fault("reserved blocks are handed out", "outcome")
def _reservation_ignored(manager: Any) -> None:
    def allocate(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return original(*args, **{**kwargs, "reserved_blocks": 0})

    _wrap(manager, "allocate_slots", allocate)


@_fault("the admission gate counts the whole sequence for a window", "outcome")
def _gate_uncapped(manager: Any) -> None:
    for single in manager.coordinator.single_type_managers:
        single._max_admission_blocks_per_request = None


@_fault("the allocation in a running step counts at most the cap", "outcome")
def _cap_in_every_step(manager: Any) -> None:
    _wrap_each(manager, "get_num_blocks_to_allocate", lambda _, predict, *args: predict(*args[:5], True))


@_fault("a state registered in this very step is handed on", "outcome")
def _same_step_rule_dropped(manager: Any) -> None:
    _wrap(manager, "get_computed_blocks", lambda get, request: (manager.new_step_starts(), get(request))[1])


@_fault("the next step does not begin for mamba states", "outcome")
def _step_start_ignored(manager: Any) -> None:
    manager.coordinator.new_step_starts = lambda: None


@_fault("groups shrink a hit, but full attention keeps its blocks", "outcome")
def _hybrid_hit_not_cut(manager: Any) -> None:
    coordinator = manager.coordinator
    if not hasattr(coordinator, "attention_groups"):
        return

    def find(original: Callable[..., Any], hashes: Any, length: int) -> Any:
        hit, tokens = original(hashes, length)
        first = coordinator.attention_groups[0]
        if "Full" not in type(first.spec).__name__ or not tokens:
            return hit, tokens
        uncut = coordinator._search(first, hashes, length, False)
        rows = dict(zip(first.group_ids, uncut, strict=True))
        return tuple(rows.get(group, row) for group, row in enumerate(hit)), tokens

    _wrap(coordinator, "find_longest_cache_hit", find)


# What is told to others.


@_fault("the eviction of a block is not announced", "events")
def _removed_event_missing(manager: Any) -> None:
    pool = manager.block_pool

    def forget(original: Callable[..., Any], block: Any) -> None:
        events = len(pool.kv_event_queue)
        original(block)
        del pool.kv_event_queue[events:]

    _wrap(pool, "_forget_identity", forget)


@_fault("a stored event names no parent", "events")
def _stored_parent_missing(manager: Any) -> None:
    def cache(original: Callable[..., Any], *args: Any) -> None:
        original(*args)
        for event in manager.block_pool.kv_event_queue[-1:]:
            if hasattr(event, "parent_block_hash"):
                event.parent_block_hash = None

    _wrap(manager.block_pool, "cache_full_blocks", cache)


@_fault("events handed out are kept and handed out again", "events")
def _events_not_drained(manager: Any) -> None:
    pool = manager.block_pool
    _wrap(pool, "take_events", lambda take: list(pool.kv_event_queue))


@_fault("a block taken for external tokens is not listed as new", "new_block_ids")
def _new_block_ids_incomplete(manager: Any) -> None:
    def allocate(single: Any, original: Callable[..., Any], *args: Any) -> None:
        before = list(single.new_block_ids)
        original(*args)
        single.new_block_ids[:] = before

    _wrap_each(manager, "allocate_external_blocks", allocate)


@_fault("the hits of preempted requests count as ordinary ones", "stats")
def _preempted_hits_mixed_in(manager: Any) -> None:
    stats = type(manager.prefix_cache_stats)
    if manager.prefix_cache_stats is None:
        return

    class Mixed(stats):  # type: ignore[misc, valid-type]
        def record(self, num_tokens: int, num_hits: int, preempted: bool) -> None:
            super().record(num_tokens, num_hits, False)

    manager.prefix_cache_stats = Mixed()


@_fault("the prefix cache is reset while blocks are in use", "outcome")
def _reset_while_in_use(manager: Any) -> None:
    def reset(original: Callable[..., Any]) -> bool:
        original()
        return True

    _wrap(manager.block_pool, "reset_prefix_cache", reset)


@_fault("a reset is not marked in the statistics", "stats")
def _reset_not_in_stats(manager: Any) -> None:
    manager.reset_prefix_cache = manager.block_pool.reset_prefix_cache


@_fault("the common prefix is one block too long", "outcome")
def _common_prefix_too_long(manager: Any) -> None:
    def count(original: Callable[..., Any], request: str) -> list[int]:
        tables = [len(single.req_to_blocks.get(request, ())) for single in manager.coordinator.single_type_managers]
        return [min(n + 1, held) for n, held in zip(original(request), tables, strict=True)]

    _wrap(manager.coordinator, "get_num_common_prefix_blocks", count)
