"""What each attention type holds, finds and gives back."""

from typing import Any

import blockproof.impl as impl
import pytest
from blockproof.impl.managers.by_spec import get_manager_for_kv_cache_spec


def tables(manager: impl.KVCacheManager, name: str) -> Any:
    return manager.get_block_ids(name)


def queue(manager: impl.KVCacheManager) -> list[int]:
    return [block.block_id for block in manager.block_pool.free_block_queue.get_all_free_blocks()]


def decode(manager: impl.KVCacheManager, request: impl.Request, tokens: int = 1) -> Any:
    """One token at a time: allocate, compute, sample."""
    new = None
    for _ in range(tokens):
        request.append_output_token_ids(0)
        new = manager.allocate_slots(request, 1)
        assert new is not None
        request.num_computed_tokens += 1
        manager.check()
    return new


def test_full_attention_finds_the_longest_prefix(core: Any) -> None:
    manager = core.manager(core.full())
    first = core.request("a", 12)
    core.run(manager, first)
    hit, tokens = manager.get_computed_blocks(core.request("b", [*range(8), 99, 99, 99, 99, 99]))
    assert (hit.get_block_ids(), tokens) == (([1, 2],), 8)
    same, tokens = manager.get_computed_blocks(core.request("c", 12))
    assert (same.get_block_ids(), tokens) == (([1, 2],), 8)


def test_eagle_gives_up_the_last_block(core: Any) -> None:
    manager = core.manager(core.full(), use_eagle=True)
    core.run(manager, core.request("a", 12))
    assert manager.get_computed_blocks(core.request("b", 13))[1] == 8


def test_common_prefix_counts_blocks_that_all_hold(core: Any) -> None:
    manager = core.manager(core.full())
    core.run(manager, core.request("a", 9))
    assert manager.get_num_common_prefix_blocks("a") == [3]
    core.run(manager, core.request("b", 9))
    assert manager.get_num_common_prefix_blocks("a") == [2]


def test_asking_for_an_unknown_request_creates_nothing(core: Any) -> None:
    for spec in (core.full(), core.sliding(5), core.chunked(8), core.mamba("align")):
        manager = core.manager(spec)
        single = manager.coordinator.single_type_managers[0]
        assert manager.get_num_common_prefix_blocks("nobody") == [0]
        manager.remove_skipped_blocks("nobody", 50)
        single.get_num_blocks_to_allocate("nobody", 9, [], 0, 9)
        manager.free(core.request("nobody", 3))
        assert manager.get_block_ids("nobody") == ([],)
        assert not single.req_to_blocks


def test_a_window_gives_back_what_left_it(core: Any) -> None:
    manager = core.manager(core.sliding(5), num_blocks=6)
    request = core.request("a", 4)
    core.run(manager, request)
    decode(manager, request, 8)
    assert tables(manager, "a") == ([0, 2, 3],)
    assert queue(manager) == [4, 5, 1]


def test_a_window_of_one_token_reads_nothing_and_hits_without_any_block(core: Any) -> None:
    manager = core.manager(core.sliding(1))
    request = core.request("a", 9)
    hit, tokens = manager.get_computed_blocks(request)
    assert (hit.get_block_ids(), tokens) == (([0, 0],), 8)
    core.run(manager, request)
    assert tables(manager, "a") == ([0, 0, 1],)
    decode(manager, request, 3)
    assert len(manager.block_pool.cached_block_hash_to_block) == 0


def test_a_window_hit_needs_only_the_window(core: Any) -> None:
    manager = core.manager(core.sliding(6))
    core.run(manager, core.request("a", 16))
    manager.evict_blocks({1, 4})
    hit, tokens = manager.get_computed_blocks(core.request("b", 17))
    assert (hit.get_block_ids(), tokens) == (([0, 2, 3],), 12)


def test_freeing_a_window_puts_unregistered_blocks_to_the_front(core: Any) -> None:
    manager = core.manager(core.sliding(16), num_blocks=6)
    request = core.request("a", 10)
    core.run(manager, request)
    manager.free(request)
    assert queue(manager) == [3, 4, 5, 2, 1]


def test_retention_registers_only_the_tail_of_the_prompt(core: Any) -> None:
    thrifty = core.manager(core.sliding(5), retention_interval=0)
    core.run(thrifty, core.request("a", 17))
    carried = [block.block_hash is not None for block in thrifty.block_pool.blocks]
    assert carried[1:6] == [False, False, False, True, False]
    assert thrifty.get_computed_blocks(core.request("b", 17))[1] == 16


@pytest.mark.parametrize("interval", [-4, 6])
def test_a_retention_interval_fits_the_scheduler(core: Any, interval: int) -> None:
    with pytest.raises(ValueError, match=str(interval)):
        core.manager(core.sliding(5), retention_interval=interval)
    with pytest.raises(ValueError, match="without a sliding-window group"):
        core.manager(core.full(), retention_interval=4)


def test_a_chunk_counts_what_lies_before_it_as_hit(core: Any) -> None:
    manager = core.manager(core.chunked(8))
    hit, tokens = manager.get_computed_blocks(core.request("a", 16))
    assert (hit.get_block_ids(), tokens) == (([0, 0],), 8)
    core.run(manager, core.request("a", 16))
    hit, tokens = manager.get_computed_blocks(core.request("b", 13))
    assert (hit.get_block_ids(), tokens) == (([0, 0, 1],), 12)


def test_a_chunk_that_begins_inside_a_block_is_read_from_there(core: Any) -> None:
    # A hit of 8 tokens needs nothing of chunk 6..11 but block 1, which holds the tokens 6 and 7.
    manager = core.manager(core.chunked(6))
    assert manager.get_computed_blocks(core.request("a", 10))[1] == 0
    core.run(manager, core.request("a", 10))
    manager.evict_blocks({1})
    hit, tokens = manager.get_computed_blocks(core.request("b", 10))
    assert (hit.get_block_ids(), tokens) == (([0, 2],), 8)


def test_the_chunked_cap_covers_a_chunk_that_begins_inside_a_block(core: Any) -> None:
    # Chunk 6, blocks of 4, 2 tokens a step: at position 8 the tokens 6..9 and their neighbours lie in 3 blocks at most.
    manager = core.manager(
        core.chunked(6), num_blocks=4, max_num_batched_tokens=2, max_model_len=40, enable_caching=False
    )
    request = core.request("a", 24)
    while request.num_computed_tokens < 24:
        assert manager.allocate_slots(request, 2, full_sequence_must_fit=True) is not None
        request.num_computed_tokens += 2
        manager.check()


def test_mamba_needs_one_state(core: Any) -> None:
    manager = core.manager(core.mamba("all"))
    core.run(manager, core.request("a", 12))
    manager.new_step_starts()
    manager.evict_blocks({1})
    hit, tokens = manager.get_computed_blocks(core.request("b", 12))
    assert (hit.get_block_ids(), tokens) == (([0, 2],), 8)


def test_a_state_of_this_very_step_cannot_be_used_yet(core: Any) -> None:
    manager = core.manager(core.mamba("all"))
    core.run(manager, core.request("a", 9))
    later = core.request("b", 9)
    before = core.state(manager)
    assert core.run(manager, later) is None
    assert core.state(manager) == before
    manager.new_step_starts()
    assert core.run(manager, later) is not None
    assert tables(manager, "b")[0][:2] == [0, 2]


def test_align_holds_the_running_state_and_its_drafts(core: Any) -> None:
    manager = core.manager(core.mamba("align", speculative=2))
    request = core.request("a", 6)
    core.run(manager, request)
    assert tables(manager, "a") == ([0, 1, 2, 3],)
    # Token 9 opens the third block: the first draft's block becomes the running state, one block is new.
    decode(manager, request, 3)
    assert tables(manager, "a") == ([0, 1, 2, 3, 4],)
    # Two drafts may still be rejected, so the state before is given back two tokens late.
    decode(manager, request, 3)
    assert tables(manager, "a") == ([0, 0, 2, 3, 4],)
    manager.free(request)
    assert manager.usage == 0


def test_align_moves_the_draft_states_behind_a_long_step(core: Any) -> None:
    manager = core.manager(core.mamba("align", speculative=1))
    request = core.request("a", 20)
    manager.allocate_slots(request, 4)
    request.num_computed_tokens = 4
    assert tables(manager, "a") == ([1, 2],)
    new = manager.allocate_slots(request, 12)
    assert new.get_block_ids() == ([0, 2, 3],)
    assert tables(manager, "a") == ([1, 0, 0, 2, 3],)
    manager.check()


@pytest.mark.parametrize("free", [2, 3])
def test_align_counts_the_state_that_comes_from_outside(core: Any, free: int) -> None:
    manager = core.manager(core.mamba("align", speculative=1), num_blocks=1 + free)
    request = core.request("a", 12)
    before = core.state(manager)
    new = manager.allocate_slots(request, 4, num_external_computed_tokens=8)
    if free < 3:
        assert new is None
        assert core.state(manager) == before
    else:
        assert manager.get_block_ids("a") == ([0, 1, 2, 3],)
        assert manager.block_pool.get_num_free_blocks() == 0
    manager.check()


def test_an_align_prediction_never_hides_the_demand_of_another_group(core: Any) -> None:
    manager = core.manager(core.full(), core.mamba("align", speculative=2))
    single = manager.coordinator.single_type_managers[1]
    request = core.request("a", 18)
    manager.allocate_slots(request, 18)
    assert len(single.req_to_blocks["a"]) == 7
    assert single.get_num_blocks_to_allocate("a", 4, [], 4, 4) == 0  # what stands further right serves


def test_sinks_are_set_aside_once(core: Any) -> None:
    manager = core.manager(core.sink(8), num_blocks=6)
    assert manager.block_pool.get_num_free_blocks() == 3
    request = core.request("a", 12)
    core.run(manager, request)
    assert tables(manager, "a") == ([3, 4, 5],)
    manager.free(request)
    manager.check()
    assert queue(manager) == [5, 4, 3]


@pytest.mark.parametrize("sink_len", [None, 0, -4, 6])
def test_sinks_fill_whole_blocks(core: Any, sink_len: int | None) -> None:
    with pytest.raises(AssertionError, match=f"sink_len is {sink_len}"):
        core.manager(core.sink(sink_len))


def test_cross_attention_is_sized_by_the_encoder_once(core: Any) -> None:
    manager = core.manager(core.full(), core.cross(), enable_caching=False)
    request = core.request("a", 4)
    new = manager.allocate_slots(request, 4, num_encoder_tokens=9)
    assert [len(blocks) for blocks in new.blocks] == [1, 3]
    request.num_computed_tokens = 4
    request.append_output_token_ids(1)
    new = manager.allocate_slots(request, 1, num_encoder_tokens=9)
    assert [len(blocks) for blocks in new.blocks] == [1, 0]


def test_cross_attention_has_no_prefix_cache(core: Any) -> None:
    manager = core.manager(core.cross())
    with pytest.raises(ValueError, match="no prefix cache"):
        manager.coordinator.single_type_managers[0].cache_blocks(core.request("a", 4), 4)
    with pytest.raises(NotImplementedError, match="no prefix cache"):
        manager.get_computed_blocks(core.request("a", 4))


def test_new_block_ids_are_collected_for_plain_attention_only(core: Any) -> None:
    manager = core.manager(core.full(), core.sliding(9))
    core.run(manager, core.request("a", 8))
    assert manager.take_new_block_ids() == [1, 2]
    assert manager.take_new_block_ids() == []


def test_check_finds_a_reference_that_went_missing(core: Any) -> None:
    manager = core.manager(core.full())
    core.run(manager, core.request("a", 8))
    core.run(manager, core.request("b", 8))
    manager.block_pool.free_blocks([manager.block_pool.blocks[1]])
    with pytest.raises(AssertionError, match="ref_cnt >= table entries: 1 < 2 for block 1"):
        manager.check()


def test_check_finds_a_registered_count_beyond_the_table(core: Any) -> None:
    manager = core.manager(core.full())
    core.run(manager, core.request("a", 8))
    manager.coordinator.single_type_managers[0].num_cached_block["a"] = 3
    with pytest.raises(AssertionError, match=r"num_cached_block <= len\(table\): 3 > 2"):
        manager.check()


def test_check_finds_a_block_that_stands_twice(core: Any) -> None:
    manager = core.manager(core.full())
    core.run(manager, core.request("a", 8))
    table = manager.coordinator.single_type_managers[0].req_to_blocks["a"]
    table[1] = table[0]
    with pytest.raises(AssertionError, match="no block stands twice"):
        manager.check()


def test_a_manager_called_by_itself_attaches_the_hit_and_makes_room_for_external_tokens(core: Any) -> None:
    manager = core.manager(core.full())
    (single,) = manager.coordinator.single_type_managers
    core.run(manager, core.request("a", 5))
    hit = [manager.block_pool.blocks[1]]
    single.allocate_new_computed_blocks("b", hit, 4, 5)
    assert [block.block_id for block in single.req_to_blocks["b"]] == [1, 3, 4]
    assert (single.num_cached_block["b"], hit[0].ref_cnt) == (1, 2)
    single.allocate_new_computed_blocks("b", [], 4, 5)
    assert len(single.req_to_blocks["b"]) == 3


def test_a_manager_that_is_told_of_no_ranks_has_the_blocks_of_its_spec(core: Any) -> None:
    pool = impl.BlockPool(4, True, 4)
    manager = get_manager_for_kv_cache_spec(
        core.full(), 64, 64, block_pool=pool, enable_caching=True, kv_cache_group_id=0, scheduler_block_size=4
    )
    assert manager.block_size == core.BLOCK


def test_a_window_of_one_token_reads_nothing_that_comes_from_outside(core: Any) -> None:
    manager = core.manager(core.sliding(1))
    request = core.request("a", 12)
    new = manager.allocate_slots(request, 4, num_external_computed_tokens=6)
    assert new is not None
    assert new.get_block_ids() == ([1, 2],)  # both are for the step, none for the six tokens
    assert tables(manager, "a") == ([0, 1, 2],)


@pytest.mark.parametrize(("window", "blocks"), [(1, 0), (2, 1), (5, 1), (6, 2)])
def test_a_hit_needs_the_blocks_of_its_window_and_with_drafts_the_one_behind(window: int, blocks: int) -> None:
    need = impl.single_type_kv_cache_manager.SlidingWindowManager._contiguous_blocks_for_hit
    assert [need(window, 4, drafts) for drafts in (False, True)] == [blocks, blocks + 1]
