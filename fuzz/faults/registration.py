"""Planted faults of registration: which blocks can be found again by their content, and for how long."""

from collections.abc import Callable
from typing import Any

from ..findings.oracle_names import CONTRACT
from .registry import fault, the_long_way, wrap, wrap_each, wrap_giving_back


@fault("blocks left out by the mask are not counted as registered", "registered")
def _registered_count_short(manager: Any) -> None:
    def cache(single: Any, original: Callable[..., Any], request: Any, *rest: Any) -> None:
        original(request, *rest)
        name, table = request.request_id, single.req_to_blocks.get(request.request_id, [])
        if name in single.num_cached_block:
            known = sum(block.block_hash is not None or block.is_null for block in table)
            single.num_cached_block[name] = min(single.num_cached_block[name], known)

    wrap_each(manager, "cache_blocks", cache)


@fault("an evicted block keeps its hash", "labels", "outcome")
def _hash_kept_after_eviction(manager: Any) -> None:
    pool = manager.block_pool

    def forget(original: Callable[..., Any], block: Any) -> None:
        key = block.block_hash
        original(block)
        if key is not None and not block.ref_cnt:
            block.block_hash = key

    wrap(pool, "_forget_identity", forget)


@fault("the mask of worthwhile blocks is shifted by one", "labels")
def _mask_shifted(manager: Any) -> None:
    wrap_each(manager, "reachable_block_mask", lambda _, mask, start, end, *rest: mask(start + 1, end + 1, *rest))


@fault("the boundary at which a replay of the prompt lands is not kept", "labels")
def _replay_boundary_lost(manager: Any) -> None:
    wrap_each(manager, "reachable_block_mask", lambda _, mask, *args: mask(*args[:6], None))


@fault("the partial block at the end is registered as if it were full", "outcome", "registered")
def _partial_block_registered(manager: Any) -> None:
    the_long_way(manager)
    wrap(
        manager.coordinator,
        "cache_blocks",
        lambda cache, request, tokens: cache(request, tokens + manager.coordinator.scheduler_block_size - 1),
    )


@fault("tokens beyond those computed are registered", "registered", "outcome")
def _registered_too_early(manager: Any) -> None:
    the_long_way(manager)
    wrap(manager.coordinator, "cache_blocks", lambda cache, request, tokens: cache(request, request.num_tokens))


@fault("what arrives later is registered at once", "registered")
def _delay_ignored(manager: Any) -> None:
    def allocate(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return original(*args, **{**kwargs, "delay_cache_blocks": False})

    wrap(manager, "allocate_slots", allocate)


@fault("a state is registered that nobody wrote", "labels")
def _unwritten_state_registered(manager: Any) -> None:
    wrap_each(manager, "note_step", lambda single, note, *about: None, having="mamba_cache_mode")
    wrap_each(manager, "note_load", lambda single, note, *about: None, having="mamba_cache_mode")


@fault("a second block under one identity is not registered", "labels")
def _duplicate_lost(manager: Any) -> None:
    the_long_way(manager)

    def cache(original: Callable[..., Any], request: Any, blocks: Any, first: int, full: int, *rest: Any) -> None:
        original(request, blocks, first, full, *rest)
        index = manager.block_pool.cached_block_hash_to_block
        for block in blocks[first:full]:
            if block.block_hash is not None and index.get_one_block(block.block_hash) is not block:
                index.pop(block.block_hash, block.block_id)
                block.reset_hash()

    wrap(manager.block_pool, "cache_full_blocks", cache)


@fault("a lookup yields the block registered last", "earliest")
def _latest_instead_of_earliest(manager: Any) -> None:
    index = manager.block_pool.cached_block_hash_to_block

    def find(original: Callable[..., Any], group: int, content: Any) -> Any:
        found = original(group, content)
        return found and index.blocks_of(found.block_hash)[-1]

    def prefix(original: Callable[..., Any], group: int, hashes: Any, end: int, first: int = 0) -> Any:
        return [index.find(group, hashes[first + i]) for i in range(len(original(group, hashes, end, first)))]

    def suffix(original: Callable[..., Any], group: int, hashes: Any, first: int, end: int) -> Any:
        return [index.find(group, hashes[i]) for i in range(end - len(original(group, hashes, first, end)), end)]

    wrap(index, "find", find)
    wrap(index, "prefix", prefix)
    wrap(index, "suffix", suffix)


@fault("an evicted identity leaves an entry behind", "num_identities")
def _stale_key_left(manager: Any) -> None:
    index = manager.block_pool.cached_block_hash_to_block

    def forget(original: Callable[..., Any], block: Any) -> Any:
        key = block.block_hash
        forgotten = original(block)
        if forgotten and not index.blocks_of(key):
            index.insert(b"stale" + key, block)
        return forgotten

    wrap(index, "forget", forget)


@fault("a block loses its identity when its request ends", "S10", oracles=(CONTRACT,))
def _identity_lost_when_freed(manager: Any) -> None:
    pool = manager.block_pool

    def free(original: Callable[..., Any], blocks: Any, prepend: bool = False) -> None:
        freed = list(blocks)
        original(freed, prepend=prepend)
        pool.evict_blocks({block.block_id for block in freed if block.block_hash is not None})

    wrap_giving_back(manager, free)


@fault("evicting a block leaves its identity", "S10", oracles=(CONTRACT,))
def _eviction_does_nothing(manager: Any) -> None:
    manager.block_pool.evict_blocks = lambda blocks: None
