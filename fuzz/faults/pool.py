"""Planted faults of the block pool: the free queue, its counter, and the references of blocks."""

from collections.abc import Callable
from typing import Any

from ..findings.oracle_names import CONTRACT
from .registry import fault, wrap, wrap_each, wrap_giving_back, wrap_taking


@fault("a request's blocks are freed head first", "free")
def _free_order_reversed(manager: Any) -> None:
    def free(single: Any, original: Callable[..., Any], request: str) -> None:
        single.req_to_blocks[request].reverse()
        original(request)

    wrap_each(manager, "free", free)


@fault("states that a request gave up do not count as used again when it ends", "free")
def _states_left_behind(manager: Any) -> None:
    manager.block_pool.renew = lambda blocks: None


@fault("freed blocks go to the front of the queue", "free")
def _freed_to_the_front(manager: Any) -> None:
    wrap_giving_back(manager, lambda free, blocks, prepend=False: free(blocks, prepend=True))


@fault("blocks without identity go to the back like all others", "free")
def _hashless_to_the_back(manager: Any) -> None:
    wrap_giving_back(manager, lambda free, blocks, prepend=False: free(blocks))


@fault("blocks put in front stand in reverse order", "free", "outcome")
def _prepend_reversed(manager: Any) -> None:
    wrap(manager.block_pool.free_block_queue, "prepend_n", lambda prepend, blocks: prepend(blocks[::-1]))


@fault("a hit block leaves the queue but the counter does not notice", "num_free")
def _free_count_drifts(manager: Any) -> None:
    queue = manager.block_pool.free_block_queue

    def lose(original: Callable[..., Any], batch: Any, n: int) -> None:
        original(batch, n)
        queue.num_free_blocks += n

    wrap(queue, "lose", lose)


@fault("usage counts the null block as usable", "usage")
def _usage_counts_null_block(manager: Any) -> None:
    pool = manager.block_pool
    pool.get_usage = lambda: 1.0 - pool.get_num_free_blocks() / pool.num_gpu_blocks


@fault("a shared block keeps its reference when one holder frees it", "ref_cnt")
def _reference_not_decreased(manager: Any) -> None:
    wrap_giving_back(
        manager, lambda free, blocks, prepend=False: free([b for b in blocks if b.ref_cnt <= 1], prepend=prepend)
    )


@fault("touching a block that is in use does not count", "ref_cnt")
def _touch_ignores_used_blocks(manager: Any) -> None:
    wrap(manager.block_pool, "touch", lambda touch, blocks: touch([b for b in blocks if not b.ref_cnt]))


@fault("the first of the blocks that are freed stays behind", "S1", oracles=(CONTRACT,))
def _one_block_leaks(manager: Any) -> None:
    wrap_giving_back(manager, lambda free, blocks, prepend=False: free([*blocks][1:], prepend=prepend))


@fault("the last of the new blocks is one that somebody holds", "S2", oracles=(CONTRACT,))
def _held_block_handed_out(manager: Any) -> None:
    pool = manager.block_pool

    def get_new_blocks(original: Callable[..., Any], count: int) -> Any:
        held = next((block for block in pool.blocks if block.ref_cnt and not block.is_null), None)
        if held is None or not count:
            return original(count)
        held.ref_cnt += 1
        return [*original(count - 1), held]

    wrap_taking(manager, get_new_blocks)


@fault("the null block is put into the free queue when a request ends", "S4", oracles=(CONTRACT,))
def _null_block_freed(manager: Any) -> None:
    def free(original: Callable[..., Any], request: Any) -> None:
        original(request)
        manager.block_pool.free_block_queue.append(manager.block_pool.null_block)

    wrap(manager, "free", free)


@fault("new blocks are taken from the back of the free queue", "S9", oracles=(CONTRACT,))
def _taken_from_the_back(manager: Any) -> None:
    pool = manager.block_pool
    queue = pool.free_block_queue

    def get_new_blocks(original: Callable[..., Any], count: int) -> Any:
        if 0 <= count <= queue.num_free_blocks:
            last = queue.get_all_free_blocks()[::-1][:count]
            for block in last:
                queue.remove(block)
            queue.prepend_n(last)
        return original(count)

    wrap_taking(manager, get_new_blocks)


@fault("freeing an unknown request moves the free queue on by one", "S12", oracles=(CONTRACT,))
def _unknown_free_moves_the_queue(manager: Any) -> None:
    queue, tables = manager.block_pool.free_block_queue, manager.coordinator.single_type_managers[0].req_to_blocks

    def free(original: Callable[..., Any], request: Any) -> None:
        known = request.request_id in tables
        original(request)
        if not known:
            queue.append(queue.popleft())

    wrap(manager, "free", free)
