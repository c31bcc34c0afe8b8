"""Planted faults of room and of what is published, which no model is needed to see: gates, refusals, counts, order."""

from collections.abc import Callable
from functools import partial
from sys import maxsize
from typing import Any

from ..findings.oracle_names import CONTRACT
from .registry import fault, the_long_way, wrap, wrap_each, wrap_giving_back, wrap_taking

_seen = partial(fault, oracles=(CONTRACT,))
"""A fault for which only the contract is asked."""


# What is published.


@_seen("the count of registered blocks runs one ahead, and the block that it passes never is", "S18")
def _count_runs_ahead(manager: Any) -> None:
    the_long_way(manager)

    def cache(single: Any, original: Callable[..., Any], request: Any, *rest: Any) -> None:
        counts, name = single.num_cached_block, request.request_id
        before = counts.get(name, 0)
        original(request, *rest)
        if counts.get(name, 0) > before and counts[name] < len(single.req_to_blocks[name]):
            counts[name] += 1

    wrap_each(manager, "cache_blocks", cache)


@_seen("what a step of a running request fills is counted as registered, and is not", "S18")
def _decoded_blocks_unregistered(manager: Any) -> None:
    def count(lane: Any, request: Any, request_id: str, table: Any, i: int) -> None:
        lane.registered[request_id] = i + 1

    for lane in manager.coordinator.steps.lanes:
        lane.register = partial(count, lane)


@_seen("what has arrived is counted as registered, and is not (vllm-project/vllm#36052)", "S18")
def _arrived_blocks_unregistered(manager: Any) -> None:
    def cache(original: Callable[..., Any], request: Any, tokens: int) -> None:
        for single in manager.coordinator.single_type_managers:
            if request.request_id in single.num_cached_block:
                single.num_cached_block[request.request_id] = tokens // single.block_size

    wrap(manager, "cache_blocks", cache)


@_seen("a name says nothing of what is before a block", "S7")
def _named_by_its_own_tokens(manager: Any) -> None:
    size = manager.block_pool.hash_block_size

    def call(original: Callable[..., Any], request: Any, *args: Any, **named: Any) -> Any:
        starts = range(0, len(request.block_hashes) * size, size)
        request.block_hashes[:] = [repr(list(request.all_token_ids[at : at + size])).encode() for at in starts]
        return original(request, *args, **named)

    for method in ("get_computed_blocks", "allocate_slots", "cache_blocks"):
        wrap(manager, method, call)


# The order of eviction.


@_seen("registered blocks that are given back are evicted first", "S9")
def _last_used_evicted_first(manager: Any) -> None:
    def free(original: Callable[..., Any], blocks: Any, prepend: bool = False) -> None:
        given = list(blocks)
        original([block for block in given if block.content is None], prepend=prepend)
        original([block for block in given if block.content is not None], prepend=True)

    wrap_giving_back(manager, free)


@_seen("a step evicts a block more than it takes (sgl-project/sglang#34958)", "S10")
def _one_evicted_too_many(manager: Any) -> None:
    pool = manager.block_pool

    def get_new_blocks(original: Callable[..., Any], count: int) -> Any:
        blocks = original(count)
        for block in pool.free_block_queue.get_all_free_blocks()[: count > 0]:
            pool._forget_identity(block)
        return blocks

    wrap_taking(manager, get_new_blocks)


# Room.


@_seen("the admission gate is not asked", "S17")
def _gate_left_open(manager: Any) -> None:
    def allocate(original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        return original(*args, **{**named, "full_sequence_must_fit": False})

    wrap(manager, "allocate_slots", allocate)


@_seen("the admission gate takes the blocks of a hit for held, those that are free as well", "S17")
def _gate_takes_hits_for_held(manager: Any) -> None:
    def predict(original: Callable[..., int], request: str, tokens: int, hit: Any, *args: Any, **named: Any) -> int:
        count = original(request, tokens, hit, *args, **named)
        free = [block for row in hit for block in row if not block.is_null and not block.ref_cnt]
        return count - len(free) if named.get("apply_admission_cap") else count

    wrap(manager.coordinator, "get_num_blocks_to_allocate", predict)


@_seen("registered blocks do not count as free where room is looked for (InternLM/lmdeploy#4100)", "S17")
def _cached_blocks_not_free(manager: Any) -> None:
    queue = manager.block_pool.free_block_queue

    def allocate(original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        cached = [block for block in queue.get_all_free_blocks() if block.content is not None]
        return original(*args, **{**named, "reserved_blocks": named.get("reserved_blocks", 0) + len(cached)})

    wrap(manager, "allocate_slots", allocate)


@_seen("the blocks that a request holds count as needed again (NVIDIA/TensorRT-LLM#14531)", "S17")
def _held_blocks_needed_again(manager: Any) -> None:
    the_long_way(manager)
    manager.coordinator.most_blocks_to_allocate = lambda tokens, hit: maxsize
    tables = [single.req_to_blocks for single in manager.coordinator.single_type_managers]

    def predict(original: Callable[..., int], request: str, *args: Any, **named: Any) -> int:
        held = [block for table in tables for block in table.get(request, ()) if not block.is_null]
        return original(request, *args, **named) + len(held)

    wrap(manager.coordinator, "get_num_blocks_to_allocate", predict)


@_seen("what leaves a window is given back only if it is registered (NVIDIA/TensorRT-LLM#14478)", "S17")
def _window_keeps_unregistered(manager: Any) -> None:
    def remove(single: Any, original: Callable[..., Any], request: str, computed: int) -> None:
        table = single.req_to_blocks.get(request, ())
        gone = [block for block in table[: max(0, single._num_skipped_blocks(computed))] if not block.is_null]
        if all(block.content is not None for block in gone):
            original(request, computed)

    wrap_each(manager, "remove_skipped_blocks", remove)


@_seen("of the blocks that are reserved for others one may be taken", "S17")
def _one_reserved_block_taken(manager: Any) -> None:
    def allocate(original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        return original(*args, **{**named, "reserved_blocks": max(0, named.get("reserved_blocks", 0) - 1)})

    wrap(manager, "allocate_slots", allocate)
