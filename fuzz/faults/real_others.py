"""Planted faults after real bugs: what is told to others, and the bugs of other engines in terms of our core
(`real_bugs/others.toml`)."""

from collections.abc import Callable
from typing import Any

from .identities import named_by
from .real_steps import predict_otherwise
from .registry import fault, the_long_way, wrap, wrap_each

_WINDOW = "sliding_window"
"""What only managers of windows have."""


# Events.


def _stored_events(manager: Any, change: Callable[..., None]) -> None:
    """Change every event that tells of stored blocks: `change` gets it, the request, the entries, and the part."""
    pool = manager.block_pool

    def announce(original: Callable[..., None], request: Any, hashes: Any, chosen: Any, part: Any) -> None:
        original(request, hashes, chosen, part)
        change(pool.kv_event_queue[-1], request, chosen, part)

    wrap(pool, "_announce", announce)


@fault("a stored event shows the hashes of finer grain at the indices of blocks", "events")
def _hashes_of_finer_grain(manager: Any) -> None:
    def announce(original: Callable[..., None], request: Any, hashes: Any, chosen: Any, part: Any) -> None:
        original(request, request.block_hashes, chosen, part)

    wrap(manager.block_pool, "_announce", announce)


@fault("a stored event tells the block size of the first group, on one rank", "events")
def _block_size_of_first_group(manager: Any) -> None:
    size = next((group.kv_cache_spec.block_size for group in manager.kv_cache_config.kv_cache_groups), 0)

    def tell(event: Any, *about: Any) -> None:
        event.block_size = size

    _stored_events(manager, tell)


@fault("a stored event tells no group, which reads as the first one", "events")
def _group_not_told(manager: Any) -> None:
    def tell(event: Any, *about: Any) -> None:
        event.group_idx = 0

    _stored_events(manager, tell)


@fault("a stored event names the block that was stored last as its parent", "events")
def _last_stored_for_parent(manager: Any) -> None:
    last: dict[tuple[str, int], Any] = {}

    def tell(event: Any, request: Any, chosen: Any, part: Any) -> None:
        key = request.request_id, part[3]
        event.parent_block_hash = last.get(key)
        if event.block_hashes:
            last[key] = event.block_hashes[-1]

    def free(original: Callable[..., None], request: Any) -> None:
        for group in range(len(manager.kv_cache_config.kv_cache_groups)):
            last.pop((request.request_id, group), None)
        original(request)

    _stored_events(manager, tell)
    wrap(manager, "free", free)


# Windows and a tree of prefixes: S1 to S8.


@fault("of several blocks that leave the window only one entry is cleared", "tables", "outcome")
def _one_entry_cleared(manager: Any) -> None:
    def remove(single: Any, original: Callable[..., None], request: str, computed: int) -> None:
        table = single.req_to_blocks.get(request, [])
        before = list(table)
        original(request, computed)
        cleared = [i for i, (was, block) in enumerate(zip(before, table, strict=True)) if was is not block]
        for i in cleared[:-1]:
            table[i] = before[i]

    wrap_each(manager, "remove_skipped_blocks", remove, having=_WINDOW)


@fault("the first block behind the entries that are null is not given back", "free", "ref_cnt")
def _block_behind_nulls_leaks(manager: Any) -> None:
    def free(single: Any, original: Callable[..., None], request: str) -> None:
        table = single.req_to_blocks.get(request, [])
        nulls = sum(block.is_null for block in table)
        if 0 < nulls < len(table):
            table[nulls] = manager.block_pool.null_block
        original(request)

    wrap_each(manager, "free", free, having=_WINDOW)


@fault("what leaves a window is read from its entries after these are cleared", "free", "ref_cnt")
def _freed_after_clearing(manager: Any) -> None:
    def remove(single: Any, original: Callable[..., None], request: str, computed: int) -> None:
        table = single.req_to_blocks.get(request, [])
        end = min(single._num_skipped_blocks(computed), len(table))
        table[:end] = [manager.block_pool.null_block] * end
        manager.block_pool.free_blocks(table[:end])

    wrap_each(manager, "remove_skipped_blocks", remove, having=_WINDOW)


@fault("a request that ends gives back the null block as well", "free", "num_free")
def _null_entries_freed(manager: Any) -> None:
    null, queue = manager.block_pool.null_block, manager.block_pool.free_block_queue

    def free(single: Any, original: Callable[..., None], request: str) -> None:
        had = null in single.req_to_blocks.get(request, [])
        original(request)
        if had:
            queue.append(null)

    wrap_each(manager, "free", free, having=_WINDOW)


@fault("a request that ends registers again what had left its window", "labels")
def _left_behind_registered_again(manager: Any) -> None:
    requests: dict[str, Any] = {}
    behind: dict[tuple[int, str], dict[int, Any]] = {}

    def allocate(original: Callable[..., Any], request: Any, *asked: Any, **more: Any) -> Any:
        requests[request.request_id] = request
        return original(request, *asked, **more)

    def remove(single: Any, original: Callable[..., None], request: str, computed: int) -> None:
        table = single.req_to_blocks.get(request, [])
        before = list(table)
        original(request, computed)
        left = behind.setdefault((single.kv_cache_group_id, request), {})
        left.update({i: was for i, (was, now) in enumerate(zip(before, table, strict=True)) if was is not now})

    def free(single: Any, original: Callable[..., None], request: str) -> None:
        original(request)
        left = behind.pop((single.kv_cache_group_id, request), {})
        if not left or not manager.enable_caching:
            return
        hashes = manager.block_pool.hashes_at(requests[request], single.block_size)
        for i, block in left.items():
            if block.content is None and i < len(hashes):
                index = manager.block_pool.cached_block_hash_to_block
                index.register(single.kv_cache_group_id, [hashes[i]], [block], None)

    the_long_way(manager)
    wrap(manager, "allocate_slots", allocate)
    wrap_each(manager, "remove_skipped_blocks", remove, having=_WINDOW)
    wrap_each(manager, "free", free, having=_WINDOW)


@fault("a window leaves a block behind that it still reaches into", "tables", "free", "outcome")
def _window_without_margin(manager: Any) -> None:
    the_long_way(manager)

    def skipped(single: Any, original: Callable[..., int], computed: int) -> int:
        return -(-int(single.get_num_skipped_tokens(computed)) // int(single.block_size))

    wrap_each(manager, "_num_skipped_blocks", skipped, having=_WINDOW)


@fault("what full attention has cached is not evicted for a window", "outcome")
def _full_blocks_not_evicted(manager: Any) -> None:
    pool, managers = manager.block_pool, manager.coordinator.single_type_managers
    full = {single.kv_cache_group_id for single in managers if "Full" in type(single).__name__}

    def predict(single: Any, count: int, *asked: Any) -> int:
        if not count or not hasattr(single, _WINDOW):
            return count
        waiting = pool.free_block_queue.get_all_free_blocks()
        return count + sum(block.run is not None and block.run.group in full for block in waiting)

    predict_otherwise(manager, predict)


# Holding and giving back: T2 to T5.


@fault("a hit block that nobody holds stays in the free queue", "free", "ref_cnt", "outcome")
def _free_hits_not_held(manager: Any) -> None:
    wrap(manager.block_pool, "touch", lambda touch, blocks: touch([block for block in blocks if block.ref_cnt]))


@fault("giving back a request's blocks twice puts them into the queue twice", "free", "num_free")
def _given_back_twice(manager: Any) -> None:
    given: dict[str, list[Any]] = {}

    def free(original: Callable[..., None], request: Any) -> None:
        name = request.request_id
        blocks = [block for table in manager.coordinator.get_blocks(name) for block in table if not block.is_null]
        original(request)
        if blocks:
            given[name] = blocks
        else:
            manager.block_pool.free_block_queue.append_n([b for b in given.pop(name, []) if not b.ref_cnt])

    wrap(manager, "free", free)


@fault("a request that ends before its tokens have arrived leaves its blocks", "free", "ref_cnt")
def _ended_before_arrival_leaks(manager: Any) -> None:
    awaited: set[str] = set()

    def allocate(original: Callable[..., Any], request: Any, *asked: Any, **more: Any) -> Any:
        blocks = original(request, *asked, **more)
        if blocks is not None and more.get("delay_cache_blocks"):
            awaited.add(request.request_id)
        return blocks

    def arrive(original: Callable[..., None], request: Any, computed: int) -> None:
        awaited.discard(request.request_id)
        original(request, computed)

    def free(original: Callable[..., None], request: Any) -> None:
        if request.request_id in awaited:
            awaited.discard(request.request_id)
            for single in manager.coordinator.single_type_managers:
                single.req_to_blocks.pop(request.request_id, None)
        original(request)

    wrap(manager, "allocate_slots", allocate)
    wrap(manager, "cache_blocks", arrive)
    wrap(manager, "free", free)


@fault("registering takes a block for a copy, which evicts others", "labels", "outcome")
def _registering_evicts(manager: Any) -> None:
    the_long_way(manager)
    pool = manager.block_pool

    def cache(original: Callable[..., None], request: Any, tokens: int) -> None:
        if pool.get_num_free_blocks():
            pool.free_blocks(pool.get_new_blocks(1), prepend=True)
        original(request, tokens)

    wrap(manager.coordinator, "cache_blocks", cache)


# Others: L2, L3, N1.


@fault("forgetting blocks gives back those that somebody holds", "ref_cnt", "free")
def _eviction_bypasses_holders(manager: Any) -> None:
    pool = manager.block_pool

    def evict(original: Callable[..., None], ids: Any) -> None:
        original(ids)
        pool.free_blocks([pool.blocks[i] for i in ids if pool.blocks[i].ref_cnt])

    wrap(manager, "evict_blocks", evict)


@fault("an item names blocks by the last 16 bits of its identifier", "labels", "outcome")
def _items_by_16_bits(manager: Any) -> None:
    named_by(manager, lambda keys: [("mm", key[1][-2:], *key[2:]) if key[0] == "mm" else key for key in keys])


@fault("a request that comes back is planned as if it had no hit", "outcome", "tables")
def _resumed_without_its_hit(manager: Any) -> None:
    def allocate(original: Callable[..., Any], request: Any, *asked: Any, **more: Any) -> Any:
        if request.num_preemptions and more.get("num_new_computed_tokens"):
            more["num_new_computed_tokens"] = 0
        return original(request, *asked, **more)

    wrap(manager, "allocate_slots", allocate)
