"""Our core by the rule of today, called as a scheduler would. What it decides is compared with the model in lockstep;
here stands what each feature is, in a few calls, and that the core's own books agree."""

from inspect import Parameter, signature
from itertools import product
from typing import Any

import pytest
from blockproof import impl
from blockproof.fuzz.opening.known_deviations import model_for
from blockproof.impl import today
from blockproof.impl.hashing.block_hash import BlockHash
from blockproof.impl.hashing.block_hashing import external_hashes
from blockproof.impl.pool.block import Hit
from blockproof.impl.today.hashing import LastHashes
from blockproof.model.features.today import TODAY
from blockproof.model.ops import Group, Shape

from .cores_of_today import FLOAT, Core, full, states, window


def test_the_interface_has_the_names_of_the_older_one_and_its_own():
    assert issubclass(today.KVCacheManager, impl.KVCacheManager)
    assert issubclass(today.BlockPool, impl.BlockPool)
    assert set(today.__all__) <= set(vars(today))


def test_lockstep_holds_it_to_the_rule_of_today_and_the_other_cores_to_the_older_one():
    shape = Shape((Group("full", 4),), 9, 16, 4, 4, 16)
    for name in ("impl-today", "impl-today-compiled", "fault:any@impl-today"):
        assert model_for(name, shape).policy is TODAY
    for name in ("impl", "impl-compiled", "fault:any@impl-compiled"):
        assert model_for(name, shape).policy != TODAY


def test_what_has_a_name_goes_to_the_back_and_the_rest_to_the_front():
    core = Core(full())
    core.step(one := core.request("a", range(10)), 10)
    core.manager.free(one)
    assert core.pool.free_ids()[0] == 3  # two whole blocks have names, the third has none
    assert core.pool.free_ids()[-2:] == [2, 1]
    held = core.pool.get_new_blocks(2)
    core.pool.free_blocks([*held, core.pool.null_block])
    assert core.pool.free_ids()[:2] == [3, 4]


def test_blocks_of_a_name_and_others_that_somebody_does_not_hold_are_refused_as_a_whole():
    core = Core(full())
    core.step(core.request("a", range(6)), 6)
    named, other = core.pool.blocks[1], core.pool.blocks[2]
    with pytest.raises(ValueError, match="cannot free"):
        core.pool.free_blocks([named, other, other])
    assert (named.ref_cnt, other.ref_cnt) == (1, 1)


def test_new_blocks_of_attention_are_listed_where_there_are_states():
    core = Core(full(), window(), states(4), unit=4)
    core.step(core.request("a", range(6)), 6)
    assert core.manager.take_new_block_ids() == [1, 2, 3, 4]  # of full attention and the window, not of the states
    alone = Core(full(), window())
    alone.step(alone.request("a", range(6)), 6)
    assert alone.manager.take_new_block_ids() == []


@pytest.mark.parametrize(("skipped", "listed"), [((), 3), ((0,), 1)])
def test_blocks_that_a_load_writes_are_not_listed(skipped, listed):
    core = Core(full(), states(4), unit=4)
    core.step(core.request("a", range(9)), 1, num_external_computed_tokens=8, skip_zeroing_group_ids=skipped)
    assert core.manager.take_new_block_ids() == core.manager.get_block_ids("a")[0][-listed:]
    core.step(core.request("b", range(9)), 1, num_external_computed_tokens=8)
    assert len(core.manager.take_new_block_ids()) == 3


def test_a_lookup_counts_when_its_request_is_admitted():
    core = Core(full())
    asked = core.request("a", range(9))
    core.manager.get_computed_blocks(asked)
    assert core.manager.prefix_cache_stats.requests == 0
    core.manager.record_prefix_cache_stats(asked, 4)
    asked.skip_reading_prefix_cache = True
    core.manager.record_prefix_cache_stats(asked, 4)
    stats = core.manager.make_prefix_cache_stats()
    assert (stats.requests, stats.queries, stats.hits) == (1, 9, 4)


def test_groups_may_all_be_of_one_kind():
    core = Core(full(), full())
    core.step(core.request("a", range(9)), 9)
    assert core.admit(core.request("b", range(9)), 1) == 8


def test_windows_are_cut_by_what_is_settled():
    for flying, first in ((0, True), (8, False)):
        core = Core(window(4, 5))
        asked = core.request("a", range(40))
        core.step(asked, 12)
        asked.num_in_flight_tokens = flying
        core.step(asked, 1)
        table = core.manager.get_blocks("a").blocks[0]
        assert table[0].is_null is first


def test_a_name_that_looks_ahead_needs_the_token_behind_it_and_covers_it():
    core = Core(full(), ahead=1)
    short, other = core.request("a", range(4)), core.request("b", [0, 1, 2, 3, 9])
    longer = core.request("c", range(5))
    assert (len(short.block_hashes), len(longer.block_hashes)) == (0, 1)
    assert longer.block_hashes != other.block_hashes
    short.append_output_token_ids(4)
    assert short.block_hashes == longer.block_hashes


def test_a_block_is_registered_once_its_name_is_known():
    core = Core(full(), ahead=1)
    asked = core.request("a", range(4))
    core.step(asked, 4)
    assert core.pool.identities()[1] is None
    asked.append_output_token_ids(4)
    core.step(asked, 1)
    assert core.pool.identities()[1] is not None


@pytest.mark.parametrize("named", [{"use_eagle": True}, {"flagged": True}])
def test_where_names_do_not_look_ahead_drafts_need_what_is_behind_a_hit(named):
    core = Core(full(), window(), **named)
    core.step(first := core.request("a", range(12)), 12)
    core.manager.free(first)
    assert core.manager.get_computed_blocks(core.request("b", range(20)))[1] == 8
    assert core.manager.get_computed_blocks(core.request("c", range(12)))[1] == 8
    ahead = Core(full(), window(), ahead=1, **named)
    ahead.step(first := ahead.request("a", range(13)), 13)
    ahead.manager.free(first)
    assert ahead.manager.get_computed_blocks(ahead.request("b", range(20)))[1] == 12


def test_a_ring_has_nothing_behind_a_hit_that_drafts_need():
    """Where names do not look ahead, the state at the end of a prompt is named beside a ring as it is without."""
    ring = today.CircularBufferSpec(block_size=2, num_kv_heads=1, head_size=1, dtype=FLOAT)
    core = Core(states(2), ring, unit=2, use_eagle=True)
    core.step(request := core.request("a", range(3)), 2)
    core.manager.evict_blocks([1])
    core.step(request, 1)
    assert core.pool.blocks[1].block_hash is not None


def test_the_watermark_stays_free_for_who_is_admitted_while_others_run():
    core = Core(full(), blocks=11, watermark=0.2)
    assert core.manager.watermark_blocks == 2
    core.step(first := core.request("a", range(32)), 32)
    waiting = core.request("b", range(100, 104))
    assert core.manager.allocate_slots(waiting, 4) is None
    assert core.manager.allocate_slots(waiting, 4, has_scheduled_reqs=False) is not None
    assert core.step(first, 4) is not None


def test_windows_and_states_are_kept_where_a_later_hit_can_resume():
    core = Core(full(), window(4, 5), retention=0)
    core.step(core.request("a", range(18)), 18)
    assert [block.block_hash is not None for block in core.manager.get_blocks("a").blocks[1]] == [
        *(False, False, False, True, False)
    ]


def test_where_others_share_the_prefix_is_found_and_kept():
    core = Core(full(), window(4, 5), retention=0, blocks=40)
    core.step(core.request("a", range(18)), 18)
    other = core.request("b", [*range(12), *range(50, 60)])
    assert core.admit(other, 22) == 0
    assert other.shared_prefix_boundary == 12
    kept = [i for i, block in enumerate(core.manager.get_blocks("b").blocks[1]) if block.block_hash is not None]
    assert kept == [2, 4]


@pytest.mark.parametrize("interval", [-4, 3, 8])
def test_an_interval_that_thins_out_nothing_or_is_no_multiple_is_refused(interval):
    with pytest.raises(ValueError, match="retention interval"):
        Core(full(), retention=interval) if interval > 3 else Core(full(), window(), retention=interval)
    Core(full(), retention=0)


def test_blocks_may_outlive_their_request():
    core = Core(full())
    core.step(asked := core.request("a", range(9)), 9)
    kept = core.manager.pop_blocks_for_free(asked)
    assert [block.block_id for block in kept] == [1, 2, 3]
    assert core.manager.get_block_ids("a") == ([],)
    assert [block.ref_cnt for block in kept] == [1, 1, 1]
    core.pool.free_blocks(kept[::-1])
    assert core.pool.free_ids()[0] == 3


@pytest.mark.parametrize("give", ["free_blocks", "unpin_blocks"])
def test_who_gives_back_what_was_lent_gives_back_nothing_of_a_table(give):
    """Only after somebody else has given back a block each has to be asked who holds it."""
    core = Core(full(), blocks=9)
    core.step(asked := core.request("a", range(9)), 9)
    kept = core.manager.pop_blocks_for_free(asked)
    core.pool.free_blocks(kept[:1])
    core.pool.unpin_blocks(kept[1:], lambda block: None)
    assert core.pool._trusting
    core.step(other := core.request("b", range(9)), 9)
    table = core.manager.get_blocks("b").blocks[0]
    if give == "free_blocks":
        core.pool.free_blocks(table[:1])  # whose is it?
    else:
        core.pool.unpin_blocks(table[:1], lambda block: None)
    assert not core.pool._trusting
    with pytest.raises(ValueError, match="more often than held"):
        core.manager.free(other)


def test_a_table_is_given_back_as_block_by_block():
    """Named or not, held once, twice or more often, in every order."""
    cases = list(product((0, 1, 2), (1, 2, 3), repeat=3))
    for case in cases:
        pools = []
        for release in ("release_by_names", "free_blocks"):
            pool = Core(full(), blocks=5).pool
            blocks = pool.get_new_blocks(3)
            for at, (names, holders) in enumerate(zip(case[::2], case[1::2], strict=True)):
                for more in range(names):
                    pool.add_name(blocks[at], more, BlockHash(bytes([at])), None)
                for _ in range(holders - 1):
                    pool.touch([blocks[at]])
            getattr(pool, release)(blocks)
            pool.check()
            pools.append((pool.free_ids(), pool.ref_counts(), pool._num_shared))
        assert pools[0] == pools[1], case


def test_a_batch_leaves_the_watermark_free_as_one_by_one():
    core = Core(full(), blocks=4, watermark=0.5, enable_caching=False)
    waits, runs = core.request("a", range(8)), core.request("b", range(4))
    core.step(runs, 4)
    runs.append_output_token_ids(1)
    assert core.manager.allocate_slots_batch([waits, runs], 1)[0] is None
    assert core.manager.get_block_ids("b") == ([1, 2],)


def test_a_pool_that_holds_the_longest_request_admits_it_with_a_draft_too():
    groups, named = (full(), window(4, 1), window(2, 2)), {"enable_caching": False, "max_in_flight_tokens": 5}
    core = Core(*groups, blocks=12, unit=2, scheduler=4, **named)
    request = core.request("a", range(12))
    assert core.step(request, 5, num_lookahead_tokens=1, full_sequence_must_fit=True) is not None


def test_without_a_cache_a_state_may_be_shorter_than_the_unit_of_hashes():
    core = Core(full(8), states(4), unit=8, scheduler=8, enable_caching=False)
    request = core.request("a", range(9))
    core.step(request, 9)
    core.manager.free(request)
    assert core.pool.get_num_free_blocks() == 19


def test_a_model_without_attention_has_no_tables():
    core = Core(scheduler=4, enable_caching=False)
    core.step(request := core.request("a", range(9)), 9)
    assert core.step(request, 1).blocks == core.manager.get_block_ids("a") == ()
    core.manager.free(request)
    assert core.pool.get_num_free_blocks() == 19


def test_what_nobody_asks_for_is_as_under_vllm():
    """The defaults of 0.33.0's own manager."""
    given = {name: one.default for name, one in signature(today.KVCacheManager).parameters.items()}
    assert {name: value for name, value in given.items() if value is not Parameter.empty} == {
        **dict.fromkeys(("max_in_flight_tokens", "metrics_collector")),
        **dict.fromkeys(("use_eagle", "log_stats", "enable_kv_cache_events"), False),
        **dict.fromkeys(("num_hash_lookahead_tokens", "num_prefill_lookahead", "watermark"), 0),
        **dict.fromkeys(("dcp_world_size", "pcp_world_size"), 1),
        "enable_caching": True,
        "enable_mamba_shared_prefix_checkpoint": False,
    }


def test_a_batch_needs_one_token_of_each_unless_it_says_otherwise():
    core = Core(full())
    core.step(request := core.request("a", range(4)), 3)
    core.manager.new_step_starts()
    assert core.manager.allocate_slots_batch([request]) == [core.manager.empty_kv_cache_blocks]
    assert [len(row) for row in core.manager.get_block_ids("a")] == [1]


def test_who_reads_on_is_told_when_a_block_is_handed_out_or_all_names_go():
    core, told = Core(full(), blocks=5), []
    held = core.pool.get_new_blocks(2)
    core.pool.unpin_blocks(held, told.append)
    assert core.pool.free_ids() == [3, 4, 1, 2]  # last, though they have no name
    core.pool.get_new_blocks(3)
    assert told == [held[0]]
    core.pool.free_blocks(core.pool.blocks[1:2] + core.pool.blocks[3:])
    assert core.manager.reset_prefix_cache()
    assert told == held


def test_one_whose_load_has_arrived_waits_for_the_watermark_though_it_needs_no_block():
    core = Core(full(), blocks=4, watermark=0.5, enable_caching=False)
    request = core.request("a", range(8))
    loads: Any = {"num_external_computed_tokens": 8, "delay_cache_blocks": True, "has_scheduled_reqs": False}
    assert core.manager.allocate_slots(request, 0, **loads) is not None
    request.num_computed_tokens = 7
    assert core.manager.allocate_slots(request, 1) is None, "one block is free, two have to stay"
    assert core.manager.allocate_slots(request, 1, has_scheduled_reqs=False) is not None
    for status in ("WAITING", "WAITING_FOR_REMOTE_KVS", "PREEMPTED"):
        request.status = today.RequestStatus[status]
        assert core.manager.allocate_slots(request, 1) is None
    request.status = today.RequestStatus.RUNNING
    assert core.manager.allocate_slots(request, 1) is not None


def test_managers_of_others_are_refused():
    class OwnSpec(impl.FullAttentionSpec):
        pass

    class OwnManager(impl.FullAttentionManager):
        pass

    impl.KVCacheSpecRegistry.register(OwnSpec, OwnManager)
    with pytest.raises(NotImplementedError, match="OwnManager"):
        Core(OwnSpec(block_size=4, num_kv_heads=1, head_size=1, dtype=FLOAT))


def test_a_spec_that_nobody_serves_is_told_how_to_be():
    class LonelySpec(impl.KVCacheSpec):
        pass

    with pytest.raises(AssertionError, match="LonelySpec"):
        Core(LonelySpec(block_size=4))


def test_hashes_of_larger_blocks_are_cut_as_a_list_is():
    hashes = LastHashes([BlockHash(bytes([i])) for i in range(14)], 4, 12)
    whole = [BlockHash(bytes([i])) for i in (2, 5, 8, 11)]
    assert list(hashes) == whole
    ends = (None, 0, 1, 3, 4, 9, -1, -2)
    for first, end, step in product(ends, ends, (None, 1, 2, 3, -1, -2)):
        assert hashes[first:end:step] == whole[first:end:step]


def test_a_chain_of_draft_models_needs_names_that_look_as_far():
    with pytest.raises(NotImplementedError, match="names look 1 tokens ahead"):
        Core(full(), num_prefill_lookahead=2, ahead=1)
    Core(full(), num_prefill_lookahead=2, ahead=2)
    Core(full(), num_prefill_lookahead=2, enable_caching=False)
    Core(full(), num_prefill_lookahead=1)


@pytest.mark.parametrize("twins", [False, True])
@pytest.mark.parametrize("count", range(2, 9))
def test_the_end_of_a_run_is_handed_out_as_block_by_block(monkeypatch, count, twins):
    """Whether others have the same content or not; and what is left of the run is found."""
    shown = []
    for at_once in (True, False):
        core = Core(full(), blocks=21)
        if not at_once:
            monkeypatch.setattr(type(core.pool.cached_block_hash_to_block), "take_end", lambda names, blocks: False)
        requests = [core.request(name, range(37)) for name in "ab"[: 1 + twins]]
        for one in requests:
            core.step(one, 36)
        core.pool.free_blocks(core.pool.get_new_blocks(core.pool.get_num_free_blocks())[::-1])
        core.manager.free(requests[0])
        core.pool.get_new_blocks(core.pool.get_num_free_blocks() - 9)
        taken = core.pool.get_new_blocks(count)
        assert [(block.ref_cnt, block.block_hash) for block in taken] == [(1, None)] * count
        core.pool.check()
        found, tokens, _ = core.manager.get_computed_blocks(core.request("c", range(37)))
        assert tokens == (36 if twins else 4 * (9 - count))
        shown.append((core.pool.free_ids(), core.pool.identities(), found.get_block_ids()))
    assert shown[0] == shown[1]


def test_a_hit_at_the_end_of_a_batch_of_which_others_hold_a_part_is_held_block_by_block():
    """Where windows are read, a hit's first block may be free and its last ones held."""
    core = Core(window(width=33), blocks=60)
    core.step(first := core.request("a", range(81)), 80)
    core.manager.free(first)
    for name, shared in (("b", 48), ("c", 32)):
        assert core.admit(core.request(name, [*range(shared), -1, -2]), 1) == shared
    held = [block.ref_cnt for block in core.manager.get_blocks("c").blocks[0]]
    assert held == [1] * 4 + [2] * 4 + [1]
    core.pool.check()


def test_a_block_of_another_pool_beside_a_named_one_is_refused_with_it():
    core, other = Core(full()), Core(full())
    core.step(core.request("a", range(6)), 6)
    named, (_, strange) = core.pool.blocks[1], other.pool.get_new_blocks(2)
    with pytest.raises(ValueError, match="is not of this pool"):
        core.pool.free_blocks([named, strange])
    assert (named.ref_cnt, strange.ref_cnt) == (1, 1)


@pytest.mark.parametrize("kind", [list, Hit])
def test_many_blocks_of_another_pool_are_refused(kind):
    """Also where they stand in its queue as a hit of it would, and where this pool has not made so many blocks yet."""
    core, other = Core(full()), Core(full())
    strange = other.pool.get_new_blocks(17)
    other.pool.free_blocks(strange[::-1])
    with pytest.raises(ValueError, match="is not of this pool"):
        core.pool.touch(kind(strange))
    assert other.pool.get_num_free_blocks() == 19


def test_a_block_is_not_registered_twice():
    core = Core(full())
    core.step(request := core.request("a", range(8)), 8)
    with pytest.raises(AssertionError, match="already carries an identity"):
        core.pool.cache_full_block(request, core.manager.get_blocks("a").blocks[0], 1, 4, 0)


def test_what_a_window_has_left_before_its_tokens_were_known_gets_no_name():
    core = Core(window(4, 2))
    core.step(request := core.request("a", range(3)), 8)
    request.append_output_token_ids([*range(3, 9)])
    core.step(request, 1)
    (table,) = core.manager.get_blocks("a").blocks
    assert [block.is_null for block in table] == [True, False, False]
    assert [block.content for block in table] == [None, request.block_hashes[1], None]


def test_of_a_block_that_somebody_has_taken_out_of_the_map_nobody_is_told_that_it_goes():
    core = Core(full(), blocks=4, enable_kv_cache_events=True)
    core.step(request := core.request("a", range(8)), 8)
    core.manager.free(request)
    core.manager.take_events()
    assert core.pool.cached_block_hash_to_block.remove(0, request.block_hashes[0], 1) is not None
    core.pool.get_new_blocks(3)
    gone: list[Any] = core.manager.take_events()
    assert [event.block_hashes for event in gone] == [[one] for one in external_hashes(request.block_hashes[1:])]


def test_over_ranks_a_block_has_computed_tokens_if_any_rank_has_some():
    """vLLM 0.33.0 counts what one rank holds of a block."""
    core = Core(full(), unit=8, scheduler=8, dcp_world_size=2)
    request = core.request("a", range(12))
    for computed, blocks in ((8, [1]), (1, [1, 2]), (3, [1, 2])):
        core.step(request, computed, num_lookahead_tokens=12)
        assert core.manager.get_block_ids_for_computed_tokens("a", request.num_computed_tokens) == (blocks,)
