"""What a lookup of vLLM returns, and what is made of it."""

from typing import Any

from ....model.ops import Value


def ids_per_group(blocks: Any) -> Value:
    """Block ids of a hit or an allocation, by group."""
    return tuple([tuple([block.block_id for block in group]) for group in blocks.blocks])


def cut(manager: Any, hit: Any, whole: int, *, by_manager: bool) -> Any:
    """The start of a hit, up to so many tokens: the end of a whole block in every group."""
    if by_manager:
        return manager.truncate_computed_blocks(hit, whole)
    sizes = [one.block_size for one in manager.coordinator.single_type_managers]
    rows = [row[: whole // size] for row, size in zip(hit.blocks, sizes, strict=True)]
    return manager.create_kv_cache_blocks(tuple(map(list, rows)))


def behind_the_next(pool: Any) -> tuple[int, ...]:
    """Free blocks behind the one that is reused next, in order, as a connector reads them; by a method from 0.33
    on."""
    queue = pool.free_block_queue
    if hasattr(queue, "iter_blocks_after"):
        return tuple([block.block_id for block in queue.iter_blocks_after(queue.fake_free_list_head.next_free_block)])
    return tuple([block.block_id for block in queue.get_all_free_blocks()[1:]])


def read_besides(manager: Any, request: Any) -> tuple[Any, ...]:
    """What a scheduler reads of a request besides its table: free blocks, those with computed tokens, and how many
    tokens are cached."""
    ids = manager.get_block_ids_for_computed_tokens(request.request_id, request.num_computed_tokens)
    return behind_the_next(manager.block_pool), *map(tuple, ids), manager.estimate_cached_tokens(request)
