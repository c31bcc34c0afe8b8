"""The whole core: allocation step by step, refusals that change nothing, hybrids, events and statistics."""

import random
from collections.abc import Callable
from typing import Any

import blockproof.impl as impl
import pytest


def test_a_refusal_changes_nothing(core: Any) -> None:
    manager = core.manager(core.full(), core.sliding(5, num_kv_heads=2), num_blocks=8)
    core.run(manager, core.request("a", 8))
    before = core.state(manager)
    assert core.run(manager, core.request("b", 20)) is None
    assert core.state(manager) == before


def test_a_refused_request_still_gives_back_what_it_no_longer_needs(core: Any) -> None:
    manager = core.manager(core.sliding(5), num_blocks=5)
    request = core.request("a", 40)
    manager.allocate_slots(request, 16)
    request.num_computed_tokens = 16
    assert manager.allocate_slots(request, 24) is None
    assert manager.get_block_ids("a") == ([0, 0, 0, 4],)
    assert manager.block_pool.get_num_free_blocks() == 3
    manager.check()


def test_reserved_blocks_stay_in_the_pool(core: Any) -> None:
    manager = core.manager(core.full(), num_blocks=4)
    assert manager.allocate_slots(core.request("a", 8), 8, reserved_blocks=2) is None
    assert manager.allocate_slots(core.request("a", 8), 8, reserved_blocks=1) is not None


def test_the_gate_looks_at_the_whole_sequence(core: Any) -> None:
    manager = core.manager(core.full(), num_blocks=4)
    request = core.request("a", 16)
    assert manager.allocate_slots(request, 4, full_sequence_must_fit=True) is None
    assert manager.allocate_slots(request, 4) is not None


def test_the_gate_counts_a_window_only_as_far_as_it_is_held(core: Any) -> None:
    manager = core.manager(core.sliding(5), num_blocks=4, max_num_batched_tokens=4, enable_caching=False)
    request = core.request("a", 40)
    while request.num_computed_tokens < 40:
        assert manager.allocate_slots(request, 4, full_sequence_must_fit=True) is not None
        request.num_computed_tokens += 4


def test_the_gate_leaves_what_is_reserved_for_others(core: Any) -> None:
    manager = core.manager(core.full(), num_blocks=5)
    gate = {"full_sequence_must_fit": True}
    assert manager.allocate_slots(core.request("a", 12), 4, reserved_blocks=2, **gate) is None
    assert manager.allocate_slots(core.request("a", 12), 4, reserved_blocks=1, **gate) is not None


def test_the_gate_counts_lookahead(core: Any) -> None:
    manager = core.manager(core.full(), num_blocks=4)
    gate = {"full_sequence_must_fit": True}
    assert manager.allocate_slots(core.request("a", 12), 4, num_lookahead_tokens=1, **gate) is None
    window = core.manager(core.sliding(5), num_blocks=5, max_num_batched_tokens=4)
    for lookahead, fits in ((6, False), (5, True)):
        new = window.allocate_slots(core.request("a", 40), 4, num_lookahead_tokens=lookahead, **gate)
        assert (new is not None) == fits, lookahead


@pytest.mark.parametrize(("room", "fits"), [(3, False), (4, True)])
def test_the_gate_counts_new_blocks_behind_a_long_hit(core: Any, room: int, fits: bool) -> None:
    # Of a hit of 10 blocks only the last is read; with it a step of 8 tokens and a window of 5 hold 4 blocks at most.
    manager = core.manager(core.sliding(5), num_blocks=30, max_num_batched_tokens=8)
    first = core.request("a", 41)
    core.run(manager, first)
    manager.free(first)
    again = core.request("b", 60)
    hit, tokens = manager.get_computed_blocks(again)
    assert (tokens, [block.is_null for block in hit.blocks[0]]) == (40, [True] * 9 + [False])
    new = manager.allocate_slots(again, 8, tokens, hit, full_sequence_must_fit=True, reserved_blocks=29 - room)
    assert (new is not None) == fits


def test_tokens_of_a_running_step_keep_their_window(core: Any) -> None:
    manager = core.manager(core.sliding(5), num_blocks=10)
    request = core.request("a", 13)
    manager.allocate_slots(request, 8)
    request.num_computed_tokens, request.num_in_flight_tokens = 8, 8
    manager.allocate_slots(request, 2)
    assert manager.get_block_ids("a") == ([1, 2, 3],)
    request.num_computed_tokens, request.num_in_flight_tokens = 10, 2
    manager.allocate_slots(request, 2)
    assert manager.get_block_ids("a") == ([0, 2, 3],)


def test_drafts_that_count_as_computed_do_not_move_the_window(core: Any) -> None:
    manager = core.manager(core.sliding(5), num_blocks=10)
    request = core.request("a", 8)
    manager.allocate_slots(request, 8)
    request.num_computed_tokens = 8
    request.append_output_token_ids(0)
    manager.allocate_slots(request, 5)  # a token and four drafts
    request.num_computed_tokens = 13
    manager.allocate_slots(request, 1)
    assert manager.get_block_ids("a") == ([0, 2, 3, 4],)
    manager.remove_skipped_blocks("a", 13)  # called directly, it believes what it is told
    assert manager.get_block_ids("a") == ([0, 0, 3, 4],)


@pytest.mark.parametrize("spec", ["sliding", "chunked"])
def test_a_prompt_loaded_as_a_whole_keeps_what_its_last_token_reads(core: Any, spec: str) -> None:
    manager = core.manager(core.sliding(5) if spec == "sliding" else core.chunked(4))
    request = core.request("a", 8)
    manager.allocate_slots(request, 0, num_external_computed_tokens=8, delay_cache_blocks=True)
    # The query at 7 is computed again: it reads from token 3 on, or from 4 on.
    assert manager.get_block_ids("a") == ([1, 2] if spec == "sliding" else [0, 1],)


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_new_tokens": 0},
        {"num_new_tokens": -1},
        {"num_new_tokens": 1, "num_external_computed_tokens": -1},
        {"num_new_tokens": 1, "num_lookahead_tokens": -1},
        {"num_new_tokens": 1, "num_new_computed_tokens": -4},
        {"num_new_tokens": 1, "num_encoder_tokens": -1},
        {"num_new_tokens": 1, "reserved_blocks": -1},
    ],
)
def test_counts_that_make_no_sense_are_refused(
    core: Any, arguments: dict[str, int], raises_unchanged: Callable[..., str]
) -> None:
    manager = core.manager(core.sliding(5))
    request = core.request("a", 20)
    core.run(manager, request)
    message = raises_unchanged(
        ValueError, lambda: core.state(manager), lambda: manager.allocate_slots(request, **arguments)
    )
    assert "request a" in message


def test_external_tokens_find_room_and_are_registered_when_they_arrive(core: Any) -> None:
    manager = core.manager(core.full())
    request = core.request("a", 12)
    new = manager.allocate_slots(request, 0, num_external_computed_tokens=8, delay_cache_blocks=True)
    assert new is manager.empty_kv_cache_blocks
    assert manager.get_block_ids("a") == ([1, 2],)
    assert manager.get_blocks("a").get_unhashed_block_ids() == [1, 2]
    manager.cache_blocks(request, 8)
    assert manager.get_blocks("a").get_unhashed_block_ids() == []
    assert manager.get_computed_blocks(core.request("b", 12))[1] == 8
    manager.check()


def test_drafts_are_not_registered(core: Any) -> None:
    manager = core.manager(core.full())
    request = core.request("a", 6)
    manager.allocate_slots(request, 8, num_lookahead_tokens=2)
    assert manager.get_blocks("a").get_unhashed_block_ids() == [2, 3]


def test_nothing_is_allocated_beyond_the_model_length(core: Any) -> None:
    manager = core.manager(core.full(), max_model_len=10)
    manager.allocate_slots(core.request("a", 9), 9, num_lookahead_tokens=9)
    assert manager.get_block_ids("a") == ([1, 2, 3],)


def test_the_last_token_is_always_computed_again(core: Any) -> None:
    manager = core.manager(core.full())
    core.run(manager, core.request("a", 8))
    assert manager.get_computed_blocks(core.request("b", 8))[1] == 4


def test_a_request_may_decline_the_cache(core: Any) -> None:
    manager = core.manager(core.full(), log_stats=True)
    core.run(manager, core.request("a", 8))
    declining = core.request("b", 8, skip_reading_prefix_cache=True)
    assert manager.get_computed_blocks(declining) == (manager.empty_kv_cache_blocks, 0)
    assert manager.make_prefix_cache_stats().requests == 1


def test_caching_off_finds_and_registers_nothing(core: Any) -> None:
    manager = core.manager(core.full(), enable_caching=False)
    core.run(manager, core.request("a", 8))
    manager.cache_blocks(core.request("a", 8), 8)
    assert len(manager.block_pool.cached_block_hash_to_block) == 0
    assert manager.get_computed_blocks(core.request("b", 8)) == (manager.empty_kv_cache_blocks, 0)
    assert manager.get_num_common_prefix_blocks("a") == [0]


def test_a_manager_without_groups_needs_no_blocks(core: Any) -> None:
    manager = core.manager(enable_caching=False, num_blocks=1)
    request = core.request("a", 8)
    assert manager.allocate_slots(request, 8) is manager.empty_kv_cache_blocks
    manager.free(request)


def test_a_hybrid_hit_is_one_that_every_group_can_serve(core: Any) -> None:
    manager = core.manager(core.full(), core.sliding(5), num_blocks=20)
    core.run(manager, core.request("a", 16))
    assert manager.get_block_ids("a") == ([1, 2, 3, 4], [5, 6, 7, 8])
    manager.evict_blocks({7})
    hit, tokens = manager.get_computed_blocks(core.request("b", 15))
    assert (hit.get_block_ids(), tokens) == (([1, 2], [0, 6]), 8)


def test_the_common_length_cuts_the_hit_of_every_group(core: Any) -> None:
    manager = core.manager(core.full(), core.full(num_kv_heads=2), core.sliding(5))
    core.run(manager, core.request("a", 16))
    manager.evict_blocks({11})
    hit, tokens = manager.get_computed_blocks(core.request("b", 15))
    assert (hit.get_block_ids(), tokens) == (([1, 2], [5, 6], [0, 10]), 8)


def test_eagle_never_makes_a_state_hit_longer_than_the_others(core: Any) -> None:
    manager = core.manager(core.full(), core.mamba("all"), use_eagle=True)
    core.run(manager, core.request("a", 16))
    manager.new_step_starts()
    # Drafts read the block of the tokens 12..15, the last of which is computed again; of the states they need none.
    hit, tokens = manager.get_computed_blocks(core.request("b", 16))
    assert tokens == 12
    assert [len(blocks) for blocks in hit.blocks] == [3, 3]


def test_a_hybrid_of_block_sizes_aligns_its_hits(core: Any) -> None:
    manager = core.manager(core.full(), core.full(8, num_kv_heads=2), scheduler_block_size=8)
    core.run(manager, core.request("a", 14))
    assert [len(table) for table in manager.get_block_ids("a")] == [4, 2]
    hit, tokens = manager.get_computed_blocks(core.request("b", 14))
    assert tokens == 8
    assert [len(blocks) for blocks in hit.blocks] == [2, 1]


@pytest.mark.parametrize(
    "options",
    [
        {"scheduler_block_size": 6},
        {"hash_block_size": 3},
        {"scheduler_block_size": 8, "hash_block_size": 8},
        {"dcp_world_size": 2, "scheduler_block_size": 8},
    ],
)
def test_block_sizes_must_fit_together(core: Any, options: dict[str, int]) -> None:
    with pytest.raises(AssertionError, match=r"multiple|parallel"):
        core.manager(core.full(), core.sliding(5), **options)


def test_one_group_hashes_at_its_block_size(core: Any) -> None:
    with pytest.raises(AssertionError, match="hash_block_size 2"):
        core.manager(core.full(), hash_block_size=2)


def test_a_hybrid_has_distinct_specs(core: Any) -> None:
    with pytest.raises(AssertionError, match="1 distinct specs"):
        core.manager(core.full(), core.full())


def test_context_parallel_ranks_share_a_block(core: Any) -> None:
    manager = core.manager(core.full(), dcp_world_size=2, scheduler_block_size=8, hash_block_size=8)
    hasher = impl.get_request_block_hasher(8, impl.sha256)
    core.run(manager, core.request("a", 17, block_hasher=hasher))
    assert manager.get_block_ids("a") == ([1, 2, 3],)
    assert manager.get_computed_blocks(core.request("b", 17, block_hasher=hasher))[1] == 16


def test_one_flagged_group_makes_its_equals_give_up_a_block(core: Any) -> None:
    manager = core.manager(core.full(), core.sliding(5), core.sliding(5), eagle=[1])
    assert [single.use_eagle for single in manager.coordinator.single_type_managers] == [False, True, True]


def test_events_tell_kind_and_window_of_their_group(core: Any) -> None:
    manager = core.manager(core.full(), core.sliding(5), enable_kv_cache_events=True)
    core.run(manager, core.request("a", 4))
    told = [
        (event.group_idx, event.kv_cache_spec_kind, event.kv_cache_spec_sliding_window)
        for event in manager.take_events()
    ]
    assert told == [(0, "full_attention", None), (1, "sliding_window", 5)]


def test_statistics_tell_preempted_requests_apart(core: Any) -> None:
    manager = core.manager(core.full(), log_stats=True)
    core.run(manager, core.request("a", 8))
    again = core.request("b", 9)
    again.num_preemptions = 1
    manager.get_computed_blocks(again)
    stats = manager.make_prefix_cache_stats()
    assert (stats.requests, stats.queries, stats.hits) == (1, 8, 0)
    assert (stats.preempted_requests, stats.preempted_queries, stats.preempted_hits) == (1, 9, 8)
    assert manager.make_prefix_cache_stats() == impl.PrefixCacheStats()


def test_a_reset_is_told_with_the_next_statistics(core: Any) -> None:
    manager = core.manager(core.full(), log_stats=True)
    request = core.request("a", 8)
    core.run(manager, request)
    assert not manager.reset_prefix_cache()
    assert not manager.prefix_cache_stats.reset
    manager.free(request)
    assert manager.reset_prefix_cache()
    assert manager.make_prefix_cache_stats().reset
    assert core.manager(core.full()).make_prefix_cache_stats() is None


def test_blocks_of_groups_add_up(core: Any) -> None:
    blocks = [impl.KVCacheBlock(i) for i in range(4)]
    blocks[0].is_null = True
    blocks[1].block_hash = impl.BlockHashWithGroupId(b"x")
    both = impl.KVCacheBlocks(((), blocks[:1])) + impl.KVCacheBlocks((blocks[1:3], blocks[3:]))
    assert both.get_block_ids() == ([1, 2], [0, 3])
    assert both.get_unhashed_block_ids_all_groups() == [[2], [3]]
    assert both.new_empty() == impl.KVCacheBlocks(((), ()))
    assert both.new_empty().get_block_ids(allow_none=True) is None
    with pytest.raises(AssertionError, match="2 groups"):
        both.get_unhashed_block_ids()


def test_random_work_keeps_every_invariant_and_gives_all_back(core: Any) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    specs = [core.full(), core.sliding(7), core.chunked(8), core.mamba("align", 1), core.mamba("all")]
    for _ in range(40):
        chosen = rng.sample(specs, rng.choice([1, 2, 3]))
        manager = core.manager(*chosen, num_blocks=rng.randint(4, 24), enable_kv_cache_events=True)
        live: dict[str, impl.Request] = {}
        for step in range(60):
            manager.new_step_starts()
            if len(live) < 4:
                shared = [0] * rng.randint(1, 20)
                live[f"{step}"] = core.request(f"{step}", shared + [rng.randrange(3) for _ in range(rng.randint(1, 9))])
            request = rng.choice(list(live.values()))
            if rng.random() < 0.15 or request.num_tokens > 50:
                manager.free(live.pop(request.request_id))
            elif request.num_computed_tokens:
                request.append_output_token_ids(rng.randrange(3))
                if manager.allocate_slots(request, request.num_tokens - request.num_computed_tokens) is not None:
                    request.num_computed_tokens = request.num_tokens
            else:
                core.run(manager, request)
            manager.check()
        for request in live.values():
            manager.free(request)
        manager.check()
        assert manager.usage == 0, f"seed {seed}"
        assert manager.reset_prefix_cache(), f"seed {seed}"
