"""Planted faults after real bugs: what names a block, what is registered, and what is forgotten
(`real_bugs/identities.toml`)."""

from collections.abc import Callable
from typing import Any

from .identities import Key, Keys, named_by, named_from
from .registry import fault, the_long_way, wrap, wrap_each

# The index of identities.


def _wrap_forgetting(manager: Any, change: Callable[..., Any]) -> None:
    """Replace how the index forgets a block, one by one and many together."""
    index = manager.block_pool.cached_block_hash_to_block
    wrap(index, "forget", change)

    def forget_all(original: Callable[..., Any], blocks: Any) -> None:
        for block in blocks:
            index.forget(block)

    wrap(index, "forget_all", forget_all)


@fault("an evicted block keeps its hash where a lookup finds a copy of it", "labels", "outcome")
def _hash_kept_where_a_copy_is_found(manager: Any) -> None:
    index = manager.block_pool.cached_block_hash_to_block

    def forget(original: Callable[..., Any], block: Any) -> bool:
        key = block.block_hash
        return bool(key is not None and index.get_one_block(key) is block and original(block))

    _wrap_forgetting(manager, forget)


@fault("whether a block is cached is asked of some block with its hash", "labels", "earliest")
def _eviction_asks_a_copy(manager: Any) -> None:
    pool = manager.block_pool

    def evict(original: Callable[..., Any], ids: Any) -> None:
        every, index = pool.blocks, pool.cached_block_hash_to_block
        asked = [i for i in ids if not 0 < i < len(every) or every[i].block_hash is None]
        asked += [i for i in ids if i not in asked and index.get_one_block(every[i].block_hash) is every[i]]
        original(asked)

    wrap(pool, "evict_blocks", evict)


@fault("a block that is reused can still be found by what it held", "num_identities", "outcome")
def _reused_block_still_found(manager: Any) -> None:
    index = manager.block_pool.cached_block_hash_to_block

    def forget(original: Callable[..., Any], block: Any) -> bool:
        key = block.block_hash
        forgotten = bool(original(block))
        if forgotten:
            index.insert(key, block)
        return forgotten

    _wrap_forgetting(manager, forget)


@fault("a reused block is found by what it held if its new tokens are the same", "outcome")
def _reused_block_found_by_its_tokens(manager: Any) -> None:
    pool = manager.block_pool
    size, index = pool.hash_block_size, pool.cached_block_hash_to_block
    tokens_of: dict[bytes, tuple[int, ...]] = {}
    stale: dict[bytes, Any] = {}

    def forget(original: Callable[..., Any], block: Any) -> bool:
        key = block.block_hash
        forgotten = bool(original(block))
        if forgotten:
            stale[key] = block
        return forgotten

    def call(original: Callable[..., Any], request: Any, *arguments: Any, **named: Any) -> Any:
        for i, content in enumerate(request.block_hashes):
            tokens_of[content] = tuple(request.all_token_ids[i * size : (i + 1) * size])
        return original(request, *arguments, **named)

    def find(original: Callable[..., Any], request: Any) -> Any:
        seen = []
        for key, block in stale.items():
            now = tokens_of.get(block.content) if block.content is not None else None
            if now is not None and now == tokens_of.get(key[:-4]) and index.get_one_block(key) is None:
                index.insert(key, block)
                seen.append((key, block))
        found = original(request)
        for key, block in seen:
            index.pop(key, block.block_id)
        return found

    if all(single.block_size == size for single in manager.coordinator.single_type_managers):
        _wrap_forgetting(manager, forget)
        wrap(manager, "get_computed_blocks", find)
        for name in ("get_computed_blocks", "allocate_slots", "cache_blocks"):
            wrap(manager, name, call)


@fault("caching begins at the first block again and relies on a check of each", "labels", "events")
def _caching_starts_over(manager: Any) -> None:
    the_long_way(manager)
    pool = manager.block_pool

    def cache(single: Any, original: Callable[..., Any], request: Any, *rest: Any) -> None:
        if single.num_cached_block.get(request.request_id):
            single.num_cached_block[request.request_id] = 0
        original(request, *rest)

    def register(original: Callable[..., Any], request: Any, blocks: Any, first: int, full: int, *rest: Any) -> None:
        size, group, *masks = rest
        new = [block.block_hash is None for block in blocks[first:full]]
        mask = masks[0] if masks and masks[0] is not None else [True] * len(new)
        original(request, blocks, first, full, size, group, [a and b for a, b in zip(new, mask, strict=True)])

    wrap_each(manager, "cache_blocks", cache)
    wrap(pool, "cache_full_blocks", register)


# What names a block.


@fault("blocks have short names, and nobody compares what they contain", "labels", "outcome")
def _short_names(manager: Any) -> None:
    named_by(manager, lambda keys: keys, digest_bytes=1)


@fault("the place of an item does not count in the name of a block", "labels", "outcome")
def _item_places_lost(manager: Any) -> None:
    named_by(manager, lambda keys: [(*key[:2], *key[3:]) if key[0] == "mm" else key for key in keys])


@fault("an item that begins with the last token of a block does not name it", "labels", "outcome")
def _item_at_the_edge_lost(manager: Any) -> None:
    def left(keys: Keys, request: Any, start: int, end: int) -> Keys:
        return [key for key in keys if key[0] != "mm" or key[2] < end - start - 1]

    named_from(manager, left)


@fault("blocks that outputs fill are named by the last item only", "labels", "outcome")
def _only_the_last_item_behind_the_prompt(manager: Any) -> None:
    def left(keys: Keys, request: Any, start: int, end: int) -> Keys:
        if not start or end <= request.num_prompt_tokens:
            return keys
        return [key for key in keys if key[0] != "mm" or _is_last(key, request, start)]

    named_from(manager, left)


def _is_last(key: Key, request: Any, start: int) -> bool:
    """Whether a key of the block that begins at `start` is that of the request's last item."""
    place = request.mm_features[-1].mm_position
    return bool(key[1] == request.mm_features[-1].identifier and key[2] == place.offset - start)


@fault("with parallel ranks a block is named after the tokens of one rank", "labels", "outcome")
def _named_after_one_rank(manager: Any) -> None:
    first = manager.coordinator.single_type_managers[0]
    ranks = first.dcp_world_size * first.pcp_world_size
    if ranks > 1:
        named_by(manager, lambda keys: keys, size=manager.block_pool.hash_block_size // ranks)


@fault("a block of several hashes is named by the hash of its own number", "labels", "outcome")
def _coarse_block_by_fine_number(manager: Any) -> None:
    coordinator = manager.coordinator
    if hasattr(coordinator, "attention_groups"):
        coordinator.search = lambda group, hashes: group.manager_cls.search(group.terms, hashes)
        manager.block_pool.hashes_at = lambda request, block_size: request.block_hashes
