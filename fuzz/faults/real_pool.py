"""Planted faults after real bugs: references, and the free queue (`real_bugs/pool.toml`)."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from .registry import fault, the_long_way, wrap, wrap_each, wrap_giving_back


def _repeated(blocks: list[Any]) -> list[Any]:
    """Of blocks that were just given back, those that are free now and stand in the list again, each repetition."""
    seen: Counter[int] = Counter()
    again = []
    for block in blocks:
        seen[block.block_id] += 1
        if seen[block.block_id] > 1 and not block.is_null and not block.ref_cnt:
            again.append(block)
    return again


@fault("a block that one batch gives back twice is queued twice", "free", chaos=True)
def _queued_for_each_occurrence(manager: Any) -> None:
    def free(original: Callable[..., Any], ordered: Any, prepend: bool = False) -> None:
        blocks = list(ordered)
        original(blocks, prepend=prepend)
        for block in _repeated(blocks):
            batch = block.state
            batch.blocks.insert(batch.blocks.index(block), block)
            batch.left += 1
            batch.queue.num_free_blocks += 1

    wrap(manager.block_pool, "free_blocks", free)


@fault("a block that one batch gives back twice counts twice as free", "num_free", chaos=True)
def _counted_for_each_occurrence(manager: Any) -> None:
    pool = manager.block_pool

    def free(original: Callable[..., Any], ordered: Any, prepend: bool = False) -> None:
        blocks = list(ordered)
        original(blocks, prepend=prepend)
        pool.free_block_queue.num_free_blocks += len(_repeated(blocks))

    wrap(pool, "free_blocks", free)


@fault("a table that is longer than needed adds its surplus to the free count", "num_free")
def _negative_pop(manager: Any) -> None:
    the_long_way(manager)
    queue = manager.block_pool.free_block_queue

    def allocate(single: Any, original: Callable[..., Any], request: str, tokens: int, *rest: Any) -> Any:
        surplus = len(single.req_to_blocks[request]) - -(-tokens // single.block_size)
        if surplus > 0 and not single.extra_blocks and not single.moves_blocks:
            queue.num_free_blocks += surplus
        return original(request, tokens, *rest)

    wrap_each(manager, "allocate_new_blocks", allocate)


@fault("all groups but the first of full attention keep a hit at its full length", "outcome")
def _other_full_hits_not_cut(manager: Any) -> None:
    coordinator = manager.coordinator

    def find(original: Callable[..., Any], hashes: Any, length: int) -> Any:
        rows, tokens = original(hashes, length)
        hit = list(rows)
        prefixes = [group for group in coordinator.attention_groups if group.manager_cls.spreads_over_ranks]
        full = prefixes if tokens else []
        cut = [i for group in full[:1] for i in group.group_ids[:1]]
        for group in full:
            search = coordinator.search(group, hashes)
            whole = search.blocks(search.longest(length))
            for i, row in zip(group.group_ids, whole, strict=True):
                if i not in cut:
                    hit[i] = row
        return tuple(hit), tokens

    if hasattr(coordinator, "attention_groups"):
        wrap(coordinator, "find_longest_cache_hit", find)


@fault("without prefix caching freed blocks go to the back of the queue", "free", "outcome")
def _uncached_to_the_back(manager: Any) -> None:
    if not manager.enable_caching:
        wrap_giving_back(manager, lambda free, blocks, prepend=False: free(blocks))


@fault("the tables of all groups are freed as one row, from its end", "free", "outcome")
def _groups_freed_as_one_row(manager: Any) -> None:
    coordinator, pool = manager.coordinator, manager.block_pool

    def free(original: Callable[..., Any], request: str) -> None:
        row: list[Any] = []
        release = pool.release

        def collect(blocks: list[Any], prepend: bool = False) -> None:
            row.extend(blocks[::-1])

        pool.release = collect
        try:
            original(request)
        finally:
            pool.release = release
        release(row[::-1])

    wrap(coordinator, "free", free)


@fault("the null block is the first free one, and block 0 is handed out", "free", "tables", "outcome", "ref_cnt")
def _null_block_not_zero(manager: Any) -> None:
    pool = manager.block_pool
    queue, zero = pool.free_block_queue, pool.null_block
    first = next(iter(queue.get_all_free_blocks()), None)
    if first is None:
        return
    queue.remove(first)
    first.is_null, zero.is_null = True, False
    queue.prepend_n([zero])
    pool.null_block = first
    for single in manager.coordinator.single_type_managers:
        single._null_block = first


@fault("a full hit recomputes one token, and drops a block", "outcome")
def _full_hit_less_one_token(manager: Any) -> None:
    def find(original: Callable[..., Any], hashes: Any, length: int) -> Any:
        rows, tokens = original(hashes, length + 1)
        return (tuple([row[:-1] for row in rows]), length) if tokens > length else original(hashes, length)

    wrap(manager.coordinator, "find_longest_cache_hit", find)


@fault("what is registered when a request ends is held by the cache as well", "ref_cnt", "free", "outcome")
def _held_by_the_cache(manager: Any) -> None:
    coordinator = manager.coordinator

    def free(original: Callable[..., Any], request: str) -> None:
        tables = [list(single.req_to_blocks.get(request, ())) for single in coordinator.single_type_managers]
        manager.block_pool.touch([block for table in tables for block in table if block.block_hash is not None])
        original(request)

    wrap(coordinator, "free", free)


@fault("a claimed block that was free loses its identity", "labels", "outcome")
def _claimed_hit_reset(manager: Any) -> None:
    pool = manager.block_pool

    def touch(original: Callable[..., Any], blocks: Any) -> None:
        unheld = [block for block in blocks if not block.ref_cnt and not block.is_null]
        original(blocks)
        pool.evict_blocks({block.block_id for block in unheld})

    wrap(pool, "touch", touch)


@fault("blocks are common that have as many references as there are requests", "outcome")
def _common_by_reference_count(manager: Any) -> None:
    def count(single: Any, original: Callable[..., int], request: str) -> int:
        if not single.spreads_over_ranks:  # only full attention has a common prefix
            return original(request)
        table, running = single.req_to_blocks.get(request, ()), len(single.req_to_blocks)
        return next((i for i, block in enumerate(table) if block.ref_cnt < running), len(table))

    wrap_each(manager, "get_num_common_prefix_blocks", count)
