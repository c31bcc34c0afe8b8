"""Planted faults: who checks the checker?

Each is one small mistake in our core, in both sides at once, or in the exploration itself, and must be found by the
property it is written for and by no other (lockstep apart, which sees every difference). The same scope without the
fault shows nothing. Those that only scopes of a certain kind can show are in `scope_faults`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from . import scope_faults
from .expansion import Expansion
from .moves import ExploredMove
from .packing import Focus, Look, PackedPool, View
from .planting import (
    ALONE,
    CROWDED,
    FAULTS,
    SMALL,
    STATES,
    STEPS,
    WINDOW,
    PlantedMistake,
    core_of,
    decide,
    fault,
    without_short_steps,
    wrap,
    wrap_giving_back,
    wrap_taking,
)

__all__ = ["FAULTS", "ONLY_THERE", "by_property"]

ONLY_THERE = frozenset(scope_faults.NAMES)
"""Faults that no scope without tokens from outside, reserved blocks and so on can show."""

# One for each property of states and transitions, in our core.


@fault("S1", "the first of the blocks that are given back keeps its reference", SMALL)
def _block_leaks(expansion: Expansion) -> None:
    wrap_giving_back(expansion, lambda free, blocks, prepend=False: free([*blocks][1:], prepend))


@fault("S2", "a request holds another one's first block in place of its hit", SMALL)
def _wrong_block_shared(expansion: Expansion) -> None:
    manager = core_of(expansion)
    (single,) = manager.coordinator.single_type_managers

    def attach(original: Callable[..., Any], request: str, hits: Any, *rest: Any) -> Any:
        first, *more = hits[0] or (None,)
        others = [table[0] for table in single.req_to_blocks.values() if table and table[0].block_hash]
        wrong = [block for block in others if first is not None and block.block_hash != first.block_hash]
        return original(request, ([wrong[0], *more],) if wrong else hits, *rest)

    without_short_steps(expansion)
    wrap(manager.coordinator, "allocate_new_computed_blocks", attach)


@fault("S4", "null blocks are registered like others", STATES)
def _null_registered(expansion: Expansion) -> None:
    manager = core_of(expansion)
    pool, (single,) = manager.block_pool, manager.coordinator.single_type_managers

    def cache(original: Callable[..., Any], *args: Any) -> None:
        null, pool.null_block = pool.null_block, None
        original(*args)
        pool.null_block = null

    def written(original: Callable[..., Any], request: str, first: int, end: int, mask: Any) -> Any:
        """A null entry holds no state that a step has written, but counts as written."""
        table, wanted = single.req_to_blocks[request], original(request, first, end, mask)
        return wanted and [block.is_null or want for block, want in zip(table[first:end], wanted, strict=True)]

    wrap(pool, "cache_full_blocks", cache)
    wrap(single, "mask_of_written", written)


@fault("S5", "the first two entries of a table change places in every later step", ALONE)
def _entries_swapped(expansion: Expansion) -> None:
    (single,) = core_of(expansion).coordinator.single_type_managers

    def allocate(original: Callable[..., Any], request: str, *rest: Any) -> Any:
        table = single.req_to_blocks.get(request, [])
        if len(table) > 1:
            table[0], table[1] = table[1], table[0]
        return original(request, *rest)

    without_short_steps(expansion)
    wrap(single, "allocate_new_blocks", allocate)


@fault("S6", "one token too many is skipped", WINDOW)
def _skipped_off_by_one(expansion: Expansion) -> None:
    (single,) = core_of(expansion).coordinator.single_type_managers
    wrap(single, "get_num_skipped_tokens", lambda skipped, computed: skipped(computed + 1))


@fault("S7", "a hit may cover the last token", SMALL)
def _last_token_hit(expansion: Expansion) -> None:
    wrap(
        core_of(expansion).coordinator, "find_longest_cache_hit", lambda find, hashes, length: find(hashes, length + 1)
    )


@fault("S8", "free hit blocks are not counted in the prediction", CROWDED)
def _free_hits_uncounted(expansion: Expansion) -> None:
    (single,) = core_of(expansion).coordinator.single_type_managers

    def predict(original: Callable[..., int], request: str, tokens: int, hit: Any, *rest: Any, **more: Any) -> int:
        free = sum(not block.ref_cnt and not block.is_null for block in hit)
        return original(request, tokens, hit, *rest, **more) - free

    wrap(single, "get_num_blocks_to_allocate", predict)


@fault("S9", "blocks are taken from the back of the queue", SMALL)
def _taken_from_the_back(expansion: Expansion) -> None:
    pool = core_of(expansion).block_pool
    queue = pool.free_block_queue

    def get_new_blocks(original: Callable[..., Any], n: int) -> Any:
        last = queue.get_all_free_blocks()[-n:] if n else []
        for block in last:
            queue.remove(block)
        queue.prepend_n(last)
        return original(n)

    wrap_taking(expansion, get_new_blocks)


@fault("S10", "with a block that is taken the next one in the queue loses its content, too", SMALL)
def _neighbour_evicted(expansion: Expansion) -> None:
    pool = core_of(expansion).block_pool

    def get_new_blocks(original: Callable[..., Any], count: int) -> Any:
        taken = original(count)
        pool.evict_blocks([block.block_id for block in pool.free_block_queue.get_all_free_blocks()[:1]])
        return taken

    wrap_taking(expansion, get_new_blocks)


@fault("S11", "the eviction of a block is not announced", SMALL)
def _removed_event_missing(expansion: Expansion) -> None:
    pool = core_of(expansion).block_pool

    def get_new_blocks(original: Callable[..., Any], count: int) -> Any:
        events = len(pool.kv_event_queue)
        taken = original(count)
        del pool.kv_event_queue[events:]
        return taken

    wrap_taking(expansion, get_new_blocks)


@fault("S12", "freeing an unknown request empties the prefix cache", ALONE)
def _unknown_free_resets(expansion: Expansion) -> None:
    manager = core_of(expansion)

    def free(original: Callable[..., Any], request: Any) -> None:
        known = any(manager.get_block_ids(request.request_id))
        original(request)
        if not known:
            manager.reset_prefix_cache()

    wrap(manager, "free", free)


@fault("S15", "a block with the content that is about to be computed is used in place of a new one", SMALL)
def _written_while_shared(expansion: Expansion) -> None:
    manager = core_of(expansion)
    pool, (single,) = manager.block_pool, manager.coordinator.single_type_managers

    def allocate(original: Callable[..., Any], request: Any, *rest: Any, **more: Any) -> Any:
        new = original(request, *rest, **more)
        table = single.req_to_blocks.get(request.request_id, [])
        key = table[-1].block_hash if new is not None and table else None
        other = pool.cached_block_hash_to_block.get_one_block(key) if key is not None else None
        if other is not None and other is not table[-1] and other.ref_cnt:
            pool.touch([other])
            pool.evict_blocks([table[-1].block_id])
            pool.free_blocks([table[-1]], prepend=True)
            table[-1] = other
        return new

    wrap(manager, "allocate_slots", allocate)


@fault("quiet", "a lookup moves what it finds to the back of the queue", SMALL)
def _lookup_reorders(expansion: Expansion) -> None:
    manager = core_of(expansion)
    queue = manager.block_pool.free_block_queue

    def get(original: Callable[..., Any], request: Any) -> Any:
        hit, tokens = original(request)
        for block in hit.blocks[0]:
            if not block.ref_cnt:
                queue.remove(block)
                queue.append(block)
        return hit, tokens

    wrap(manager, "get_computed_blocks", get)


# What only the comparison with the model shows.


@fault("lockstep", "blocks without identity go to the back like all others", WINDOW)
def _hashless_to_the_back(expansion: Expansion) -> None:
    wrap_giving_back(expansion, lambda free, blocks, prepend=False: free(blocks))


@fault("lockstep", "the model forgets that a request in front of the gate may be refused", replace(CROWDED, gate=True))
def _model_without_gate(expansion: Expansion) -> None:
    decide(expansion, admits=lambda core, plan: True)


# What both sides do alike.


@fault("L1", "both sides want a block more than they take, so who needs the whole pool never gets it", CROWDED)
def _one_block_too_many(expansion: Expansion) -> None:
    predicted = expansion.pair.model.policy.predicted
    decide(expansion, predicted=lambda *asked: predicted(*asked) + 1)
    without_short_steps(expansion)
    coordinator = core_of(expansion).coordinator
    for name in ("get_num_blocks_to_allocate", "most_blocks_to_allocate"):
        wrap(coordinator, name, lambda predict, *args, **more: predict(*args, **more) + 1)


# In the exploration itself.


@fault("symmetry", "the order of the free queue is left out of a state", CROWDED)
def _queue_order_forgotten(expansion: Expansion) -> None:
    if expansion.canonical:
        wrap(expansion.packer, "part", lambda part, look, *rest, **more: part(_by_content(look), *rest, **more))


@fault("once", "the order of the free queue is left out of what a request sees of the pool", CROWDED)
def _queue_order_unseen(expansion: Expansion) -> None:
    packer = expansion.packer

    def view(original: Callable[..., View], pool: PackedPool, look: Look, slot: int) -> View:
        seen = original(pool, look, slot)
        order = tuple(sorted(packer.slots, key=seen.place.__getitem__))
        unordered = packer.part(_by_content(look), Focus(), order, rename=True)
        return seen._replace(part=seen.part._replace(pool=unordered.pool))

    wrap(packer, "view", view)


def _by_content(look: Look) -> Look:
    """With a free queue whose order says nothing."""
    return look._replace(queue=sorted(look.queue, key=look.codes.__getitem__))


@fault("one at a time", "a request is never preempted in the middle of a step", STEPS)
def _no_preemption_in_a_step(expansion: Expansion) -> None:
    def ends_of_step(original: Callable[..., Any], look: Look, slot: int) -> list[ExploredMove]:
        moves: list[ExploredMove] = original(look, slot)
        return moves[:-1] or moves

    if expansion.reduced:
        wrap(expansion.moves, "ends_of_step", ends_of_step)


def by_property() -> Mapping[str, list[PlantedMistake]]:
    """The faults of each property."""
    found: dict[str, list[PlantedMistake]] = {}
    for each in FAULTS.values():
        found.setdefault(each.found_by, []).append(each)
    return found
