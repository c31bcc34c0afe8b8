"""Faults planted into our core of today: of chains of draft models, and of several requests in one call."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from blockproof.fuzz.adapters.impl import TODAY_CORE, open_changed_impl
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.faults.registry import wrap, wrap_each
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.trace_file import load_trace
from blockproof.impl.managers.base import SingleTypeKVCacheManager
from blockproof.impl.today import kv_cache_manager

OPERATIONS, MOST_OPERATIONS = 10_000, 60_000
"""In which a wrong decision must be found."""
STATES = ("full+mamba", "full+mamba+mamba")
WINDOWS = ("sliding", "full+sliding")


class Planted(NamedTuple):
    """A wrong decision, and the kinds of cores in which it is looked for."""

    plant: Callable[[Any], None]
    attention: tuple[str, ...]


def managers(manager: Any) -> Any:
    return manager.coordinator.single_type_managers


def named_for_one(single: Any, original: Callable[..., Any], *given: Any) -> Any:
    """As if names looked one token ahead."""
    pool, ahead = single.block_pool, single.block_pool.num_hash_lookahead_tokens
    pool.num_hash_lookahead_tokens = min(ahead, 1)
    try:
        return original(*given)
    finally:
        pool.num_hash_lookahead_tokens = ahead


# Chains.


def windows_of_one_model(manager):
    """What a chain prefills again is not kept."""
    for single in managers(manager):
        if hasattr(single, "sliding_window"):
            single.sliding_window = single.kv_cache_spec.sliding_window


def room_of_one_model(manager):
    """A request is taken to hold as much of a window as without a chain."""
    for single in managers(manager):
        extra = getattr(single.kv_cache_spec, "extra_retained_tokens", 0)
        if extra:
            single._max_admission_blocks_per_request -= -(-extra // single.block_size)


def ends_past_their_replay(manager):
    """The end of a prompt is named where one token is left."""
    wrap_each(manager, "name_end", named_for_one)


def kept_past_the_replay(manager):
    """Of windows and states that is kept which a hit one token before the end of a prompt would read."""
    for single in managers(manager):
        if single.tokens_behind == manager.block_pool.num_hash_lookahead_tokens:
            single.tokens_behind = 1


def checkpoints_past_their_replay(manager):
    """A step leaves its checkpoint one token before its end."""
    for single in managers(manager):
        if hasattr(single, "_resumed"):
            wrap(single, "_resumed", lambda original, tokens, single=single: named_for_one(single, original, tokens))


def junctions_of_chains(manager):
    """A chain names the end of what is shared, as one model does."""
    coordinator = manager.coordinator
    if manager.block_pool.num_hash_lookahead_tokens > 1 and coordinator.enable_partial_hash_hits:
        coordinator.names_junctions = coordinator._names_junctions_inside = True


def events_of_one_model(manager):
    """An event tells one token of what the name of a block covers behind it."""
    if manager.block_pool.num_hash_lookahead_tokens > 1:
        manager.block_pool.num_hash_lookahead_tokens = 1


# Several requests in one call.


def batch_ends_with_a_refusal(manager):
    def batch(original, requests, *counts):
        asked, answers = list(requests), []
        while len(answers) < len(asked):
            answers += original([asked[len(answers)]], *counts)
            if answers[-1] is None:
                answers += [None] * (len(asked) - len(answers))
        return answers

    wrap(manager, "allocate_slots_batch", batch)


def batch_of_the_first_due(manager):
    """Of those that need a block the first gets one."""

    def advance_each(original, requests, due, *rest):
        answers = original(requests, due[:1], *rest)
        return [*answers, *([()] * (len(due) - 1))] if answers else answers

    wrap(manager.coordinator.steps, "advance_each", advance_each)


def batch_without_drafts(manager):
    wrap(manager, "allocate_slots_batch", lambda original, requests, count, ahead: original(requests, count, 0))


def batch_past_the_watermark(manager):
    """Who waits is asked for as one who runs."""

    def batch(original, *given):
        kept, manager.watermark_blocks = manager.watermark_blocks, 0
        try:
            return original(*given)
        finally:
            manager.watermark_blocks = kept

    wrap(manager, "allocate_slots_batch", batch)


def batch_copies_one_by_one(manager):
    """What was copied for one of them is not held until all are asked."""

    def batch(original, requests, *counts):
        answers, all_copies, pool = [], [], manager.block_pool
        for request in requests:
            answers += original([request], *counts)
            copies, pool.copying = pool.copying, []
            all_copies += copies
            for pair in copies:
                pool.free_blocks(pair)
        for source, target in all_copies:
            pool.hold(source) if source.ref_cnt else pool.touch([source])
            pool.hold(target) if target.ref_cnt else pool.touch([target])
        pool.copying = all_copies
        return answers

    wrap(manager, "allocate_slots_batch", batch)


FAULTS = {
    "windows-of-one-model": Planted(windows_of_one_model, WINDOWS),
    "ends-past-their-replay": Planted(ends_past_their_replay, STATES),
    "kept-past-the-replay": Planted(kept_past_the_replay, ("full+sliding",)),
    "checkpoints-past-their-replay": Planted(checkpoints_past_their_replay, STATES),
    "batch-ends-with-a-refusal": Planted(batch_ends_with_a_refusal, ("full",)),
    "batch-of-the-first-due": Planted(batch_of_the_first_due, ("full",)),
    "batch-without-drafts": Planted(batch_without_drafts, ("full",)),
}
SELDOM = {
    "room-of-one-model": Planted(room_of_one_model, WINDOWS),
    "junctions-of-chains": Planted(junctions_of_chains, STATES),
    "events-of-one-model": Planted(events_of_one_model, ("full",)),
    "batch-past-the-watermark": Planted(batch_past_the_watermark, ("full",)),
    "batch-copies-one-by-one": Planted(batch_copies_one_by_one, STATES),
}
"""What needs more than one of these at once, and so more operations."""


def run(target: Any, attention: tuple[str, ...], seed: int, operations: int = OPERATIONS) -> Summary:
    done = Summary(target.name, "random", seed)
    run_random(target, Plan(seed, operations=operations, attention=attention), done)
    return done


def faulty(name: str, planted: Planted) -> Any:
    return open_changed_impl(f"fault:{name}@{TODAY_CORE}", planted.plant, TODAY_CORE)


@pytest.mark.few_are_quick
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_decision_is_found_soon(name, seed):
    done = run(faulty(name, FAULTS[name]), FAULTS[name].attention, seed)
    assert done.finding is not None, f"not found in {done.operations} operations"


@pytest.mark.few_are_quick
@pytest.mark.parametrize("name", SELDOM)
def test_a_wrong_decision_is_found(name):
    target = faulty(name, SELDOM[name])
    runs = (run(target, SELDOM[name].attention, seed, MOST_OPERATIONS) for seed in (1, 2, 3))
    assert any(done.finding is not None for done in runs)


def test_a_chain_that_reads_too_far_is_asked_for(monkeypatch):
    monkeypatch.setattr(kv_cache_manager, "_check_chain", lambda *given: None)
    done = run(open_target(TODAY_CORE), ("full+sliding",), 1, MOST_OPERATIONS)
    assert done.finding is not None, f"not found in {done.operations} operations"


# Found by lockstep after 539,310 operations: too rare to be hunted.


def nulls_of_a_hit_as_held(manager):
    """What the gate counts of a window of a chain, whose hit keeps more than it needs."""
    for single in managers(manager):
        single._capped = partial(SingleTypeKVCacheManager._capped, single)


@pytest.mark.parametrize("plant", [None, nulls_of_a_hit_as_held])
def test_the_gate_counts_no_null_of_a_hit(plant):
    trace = load_trace((Path(__file__).parent / "inputs" / "gate-counts-nulls-of-a-hit.json").read_bytes()).trace
    target = open_target(TODAY_CORE) if plant is None else open_changed_impl(f"changed@{TODAY_CORE}", plant, TODAY_CORE)
    finding, applied = replay(trace, target)
    assert (finding is None) == (plant is None)
    assert applied == trace
