"""Planted faults of what our core does for many blocks or many requests together, each of which reads one by one like
the right thing."""

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

from .registry import fault, wrap


@fault("a state that a running request registers can be hit within the very step", "outcome", "free")
def _decoded_state_hit_at_once(manager: Any) -> None:
    for lane in manager.coordinator.steps.lanes:
        lane.notes_registered = False


@fault("tokens in flight count as settled", "outcome", "tables", "free")
def _in_flight_forgotten(manager: Any) -> None:
    def allocate(original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
        told = getattr(request, "num_in_flight_tokens", 0)
        request.num_in_flight_tokens = 0
        try:
            return original(request, *args, **kwargs)
        finally:
            request.num_in_flight_tokens = told

    wrap(manager, "allocate_slots", allocate)


@fault("a batch ends with the first request that is refused", "outcome")
def _batch_ends_with_a_refusal(manager: Any) -> None:
    def batch(original: Callable[..., Any], requests: Any, *counts: Any) -> Any:
        asked, answers = list(requests), list[Any]()
        while len(answers) < len(asked):
            answers += original([asked[len(answers)]], *counts)
            if answers[-1] is None:
                answers += [None] * (len(asked) - len(answers))
        return answers

    wrap(manager, "allocate_slots_batch", batch)


@fault(
    "in a batch those behind a request that needs a block get none",
    "outcome",
    "tables",
    "free",
    "registered",
    "ref_cnt",
)
def _batch_looks_at_one_horizon(manager: Any) -> None:
    steps = manager.coordinator.steps

    def advance_each(original: Callable[..., Any], requests: Any, due: list[int], *rest: Any) -> Any:
        answers = original(requests, due[:1], *rest)
        return [*answers, *([()] * (len(due) - 1))] if answers else answers

    wrap(steps, "advance_each", advance_each)


@fault("a step that takes a block believes that there is room where it cannot be sure", "outcome", "free")
def _room_at_a_glance(manager: Any) -> None:
    steps = manager.coordinator.steps
    steps._least_size *= 1_000
    steps._most_extra = 0


@fault("a block that two requests hold is free as soon as one of them gives it back", "free", "outcome", "ref_cnt")
def _trusted_release_of_shared_blocks(manager: Any) -> None:
    pool = manager.block_pool

    def release(original: Callable[..., Any], blocks: Any, prepend: bool = False) -> None:
        pool._num_shared, shared, pool._trusting, trusting = 0, pool._num_shared, True, pool._trusting
        try:
            original(blocks, prepend)
        finally:
            pool._num_shared, pool._trusting = shared, trusting

    wrap(pool, "release", release)


@fault("blocks of a hit that are looked at together are held once more only if nobody holds them", "ref_cnt")
def _held_together_once(manager: Any) -> None:
    def touch(original: Callable[..., bool], blocks: Any) -> bool:
        held = [block for block in blocks if isinstance(block.state, int)]
        if not original(blocks):
            return False
        for block in held:
            block.state -= 1
        return True

    wrap(manager.block_pool, "_touch_many", touch)


@fault("of a run all blocks count as hit, also those whose tokens differ", "outcome")
def _run_agrees_to_its_end(manager: Any) -> None:
    index = manager.block_pool.cached_block_hash_to_block

    def prefix(original: Callable[..., Any], group: int, hashes: Any, end: int, first: int = 0) -> Any:
        found = original(group, hashes, end, first)
        run = found[-1].run if found else None
        if run is None or not run.whole or found[-1] not in run.blocks:
            return found
        behind = run.blocks[run.blocks.index(found[-1]) + 1 :]
        return [*found, *behind][: max(len(found), min(end, len(hashes)) - first)]

    wrap(index, "prefix", prefix)


@fault("the end of a run that is evicted in one piece can still be found", "num_identities", "outcome", "earliest")
def _end_of_a_run_still_found(manager: Any) -> None:
    index = manager.block_pool.cached_block_hash_to_block

    def forget(original: Callable[..., None], run: Any, blocks: Any) -> None:
        last = run.contents[-1]
        original(run, blocks)
        index.groups[run.group].setdefault(last, blocks[0])

    wrap(index, "_forget_end", forget)


@fault("of two blocks that get full in one step only the first is registered", "labels", "registered", "outcome")
def _second_full_block_left_out(manager: Any) -> None:
    def row(lane: Any, original: Callable[..., int], request: Any, table: Any, known: int, tokens: int) -> int:
        return original(request, table, known, max(tokens - lane.size, (known + 1) * lane.size))

    for lane in manager.coordinator.steps.lanes:
        lane.register_row = partial(row, lane, lane.register_row)


@fault("all groups look their hashes up in one map", "num_identities", "outcome", "earliest", "labels")
def _groups_share_a_map(manager: Any) -> None:
    every: dict[Any, Any] = {}
    manager.block_pool.cached_block_hash_to_block.groups = defaultdict(lambda: every)
