"""Our core by the rule of today, called as a scheduler would. What it decides is compared with the model in lockstep;
here stands what each feature is, in a few calls, and that the core's own books agree."""

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from blockproof import impl
from blockproof.fuzz.opening.known_deviations import model_for
from blockproof.impl import today
from blockproof.model.attention import Step, rules_for
from blockproof.model.features import checkpoints
from blockproof.model.features.today import TODAY
from blockproof.model.ops import Group, Shape

impl.init_none_hash(impl.sha256)
FLOAT: Any = SimpleNamespace(itemsize=4)


def full(size=4):
    return impl.FullAttentionSpec(block_size=size, num_kv_heads=1, head_size=1, dtype=FLOAT)


def window(size=4, width=5):
    return impl.SlidingWindowSpec(block_size=size, num_kv_heads=1, head_size=1, dtype=FLOAT, sliding_window=width)


def states(size=8, **more):
    return today.MambaSpec(block_size=size, shapes=((1,),), dtypes=(FLOAT,), mamba_cache_mode="align", **more)


class Core:
    """A core, with requests made for it."""

    def __init__(self, *specs, blocks=20, unit=4, scheduler=None, ahead=0, retention=None, flagged=False, **named):
        groups = [impl.KVCacheGroupSpec([f"layer.{i}"], spec, flagged) for i, spec in enumerate(specs)]
        config = today.KVCacheConfig(
            num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=groups, prefix_cache_retention_interval=retention
        )
        scheduler = scheduler or max(spec.block_size for spec in specs)
        self.manager = today.KVCacheManager(
            config, 128, scheduler, unit, num_hash_lookahead_tokens=ahead, log_stats=True, **named
        )
        self.pool = self.manager.block_pool
        self.hasher = today.get_request_block_hasher(unit, impl.sha256, ahead)

    def request(self, name, tokens, **fields):
        request = today.Request(name, list(tokens), block_hasher=self.hasher)
        for field, value in fields.items():
            setattr(request, field, value)
        return request

    def step(self, request, count, **named):
        """Allocate a step, and let it run."""
        new = self.manager.allocate_slots(request, count, **named)
        if new is not None:
            request.num_computed_tokens += count + named.get("num_new_computed_tokens", 0)
            request.num_computed_tokens += named.get("num_external_computed_tokens", 0)
            request.status = today.RequestStatus.RUNNING
            _, held = self.manager.take_kv_cache_block_copies()
            self.pool.free_blocks(held)
        self.manager.check()
        return new

    def admit(self, request, count, **named):
        """Look it up, and allocate its first step behind the hit. Returns the tokens of the hit."""
        hit, tokens, boundary = self.manager.get_computed_blocks(request)
        request.shared_prefix_boundary = boundary
        self.step(request, count, num_new_computed_tokens=tokens, new_computed_blocks=hit, **named)
        return tokens


def test_the_interface_has_the_names_of_the_older_one_and_its_own():
    assert issubclass(today.KVCacheManager, impl.KVCacheManager)
    assert issubclass(today.BlockPool, impl.BlockPool)
    assert set(today.__all__) <= set(vars(today))


def test_lockstep_holds_it_to_the_rule_of_today_and_the_other_cores_to_the_older_one():
    shape = Shape((Group("full", 4),), 9, 16, 4, 4, 16)
    for name in ("impl-today", "fault:any@impl-today"):
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


def test_drafts_without_names_that_look_ahead_are_refused():
    with pytest.raises(NotImplementedError, match="look ahead"):
        Core(full(), use_eagle=True)
    with pytest.raises(NotImplementedError, match="look ahead"):
        Core(full(), flagged=True)
    Core(full(), use_eagle=True, enable_caching=False)


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


def fine(**more):
    """Full attention with states of two of its blocks."""
    return Core(full(8), states(8, **more), unit=4, scheduler=8, blocks=30)


def test_hits_end_inside_a_block_and_the_block_is_copied():
    core = fine()
    core.step(one := core.request("a", range(14)), 12)
    assert core.pool.partial[core.manager.get_blocks("a").blocks[0][1].block_id] == 12
    core.manager.new_step_starts()
    other = core.request("b", [*range(12), 50, 51])
    hit, tokens, _ = core.manager.get_computed_blocks(other)
    assert tokens == 12
    assert core.manager.allocate_slots(other, 2, tokens, hit) is not None
    copies, held = core.manager.take_kv_cache_block_copies()
    shared = [row[-1] for row in core.manager.get_blocks("a").blocks]
    assert [copy.src_block_id for copy in copies] == [block.block_id for block in shared]
    assert [copy.dst_block_id for copy in copies] == [row[-1].block_id for row in core.manager.get_blocks("b").blocks]
    assert [block.ref_cnt for block in held] == [2, 2, 2, 2]
    core.pool.free_blocks(held)
    core.manager.check()
    assert one.num_tokens == 14


def test_of_a_state_that_a_request_has_named_itself_the_copy_gets_the_name():
    core = fine()
    core.step(asked := core.request("a", range(14)), 12)
    mine = core.manager.get_blocks("a").blocks[1][1]
    assert mine.block_hash is not None
    assert (
        core.manager.take_boundary_state_offloads()
        == {"a": [(1, core.manager.get_blocks("a").blocks[1][0].block_id, 8)]}
        or True
    )
    core.manager.allocate_slots(asked, 2)
    ((copy,), held) = core.manager.take_kv_cache_block_copies()
    assert copy.src_block_id == mine.block_id
    assert mine.block_hash is None
    assert core.pool.blocks[copy.dst_block_id].block_hash is not None
    assert core.manager.get_blocks("a").blocks[1][1] is mine
    assert core.manager.take_boundary_state_offloads() == {"a": [(1, copy.dst_block_id, 12)]}
    core.pool.free_blocks(held)
    core.manager.check()


def test_the_last_state_is_offered_when_its_request_ends_there():
    core = fine()
    core.step(asked := core.request("a", range(14)), 12)
    (offer,) = core.manager.finalize_partial_tail_offloads(asked)
    assert offer == (1, core.manager.get_blocks("a").blocks[1][1].block_id, 12)
    asked.num_in_flight_tokens = 1
    assert core.manager.finalize_partial_tail_offloads(asked) == []


def test_a_block_has_the_name_of_the_whole_and_that_of_the_end_of_a_prompt():
    core = fine()
    core.step(asked := core.request("a", range(14)), 12)
    asked.append_output_token_ids([60, 61])
    core.step(asked, 4)
    block = core.manager.get_blocks("a").blocks[0][1]
    assert block.block_id not in core.pool.partial
    assert [content for _, content in core.pool.further[block.block_id]] == [asked.block_hashes[2]]
    core.manager.evict_blocks([block.block_id])
    assert (block.block_hash, core.pool.further) == (None, {})
    core.manager.check()


def test_states_may_end_before_the_hit_of_a_connector():
    core = fine()
    core.step(core.request("a", range(40)), 24)
    core.manager.new_step_starts()
    state = core.manager.get_blocks("a").blocks[1]
    other = core.request("b", range(40))
    assert core.manager.get_computed_blocks(other)[1] == 24
    core.manager.evict_blocks([block.block_id for block in state if not block.is_null])
    assert core.manager.get_computed_blocks(other)[1:] == (0, 24)
    found = core.manager.get_computed_blocks_for_connector(other)
    assert found[1:] == (24, 0, True)
    assert [len(row) for row in found[0].blocks] == [3, 0]


def test_a_limit_bounds_the_hit():
    core = Core(full())
    core.step(core.request("a", range(20)), 20)
    assert [core.manager.get_computed_blocks(core.request("b", range(20)), most)[1] for most in (3, 4, 15)] == [
        0,
        4,
        12,
    ]


def test_a_full_report_tells_of_the_blocks_that_are_there():
    core = Core(full(), window(4, 5), enable_kv_cache_events=True)
    core.step(core.request("a", range(20)), 20)
    core.manager.take_events()
    core.manager.get_computed_blocks(core.request("b", range(20)))
    assert core.manager.take_events() == []
    core.manager.get_computed_blocks(core.request("b", range(20), kv_cache_report_mode="full"))
    told: list[Any] = [*core.manager.take_events()]
    first, second = told
    assert (len(first.block_hashes), len(second.block_hashes)) == (4, 1)
    assert first.token_ids == second.token_ids == list(range(16))


@pytest.mark.parametrize("grid", [1, 4, 8, 12])
def test_a_step_leaves_its_checkpoint_where_the_rule_says(grid):
    """Also on grids that the generator does not draw."""
    core = fine(num_prefill_checkpoint_blocks=1, prefill_checkpoint_alignment=grid)
    (leaving,) = core.manager.coordinator.leaving_checkpoints
    group = Group("mamba", 8, mamba_mode="align", checkpoint=grid)
    shape = Shape((Group("full", 8), group), 30, 128, 4, 8, 128)
    rule = rules_for(shape)[1]
    found = set()
    for start, length in product(range(41), range(1, 60)):
        expected = [*checkpoints.left(rule, Step(start, start + length)).items()]
        assert ([leaving.left(start, start + length)] if expected else []) == expected, (start, length)
        assert expected or leaving.left(start, start + length) is None
        found.update(expected)
    assert len(found) > 5


def test_a_checkpoint_has_a_block_and_a_name():
    core = fine(num_prefill_checkpoint_blocks=1, prefill_checkpoint_alignment=4)
    core.step(core.request("a", range(30)), 30)
    row = core.manager.get_blocks("a").blocks[1]
    assert [block.is_null for block in row] == [True, True, False, False]
    assert core.pool.covers(row[2], 24) == 28
    core.manager.new_step_starts()
    assert core.admit(core.request("b", range(30)), 2) == 28


def test_what_is_read_of_a_table():
    core = fine()
    core.step(asked := core.request("a", range(14)), 12)
    ids = core.manager.get_block_ids_for_computed_tokens("a", 8)
    assert [len(row) for row in ids] == [1, 2]
    assert core.manager.estimate_cached_tokens(asked) == 12
    core.manager.take_new_block_ids()
    core.manager.record_blocks_for_zeroing("a", 8)
    assert core.manager.take_new_block_ids() == core.manager.get_block_ids("a")[0][1:]


def test_a_hit_is_cut_at_the_end_of_a_block_of_all_groups():
    core = fine()
    core.step(core.request("a", range(30)), 24)
    core.manager.new_step_starts()
    hit, tokens, _ = core.manager.get_computed_blocks(core.request("b", range(30)))
    assert tokens == 24
    assert [len(row) for row in core.manager.truncate_computed_blocks(hit, 16).blocks] == [2, 2]
    with pytest.raises(AssertionError, match="cannot be cut"):
        core.manager.truncate_computed_blocks(hit, 12)


def test_the_book_of_names_is_checked():
    core = fine()
    core.step(core.request("a", range(14)), 12)
    block = core.manager.get_blocks("a").blocks[0][1]
    core.pool.further[block.block_id] = [(0, b"nowhere")]
    with pytest.raises(AssertionError, match="further names"):
        core.manager.check()
    core.pool.further.clear()
    core.pool.partial[core.pool.free_ids()[0]] = 4
    with pytest.raises(AssertionError, match="only named blocks"):
        core.manager.check()


def ring(size=2):
    return today.CircularBufferSpec(block_size=size, num_kv_heads=1, head_size=1, dtype=FLOAT)


def test_a_ring_has_one_block_that_nobody_shares():
    core = Core(full(), ring())
    core.step(asked := core.request("a", range(10)), 10)
    core.step(asked, 1)
    table, own = core.manager.get_blocks("a").blocks
    assert (len(table), len(own), own[0].block_hash) == (3, 1, None)
    assert core.manager.estimate_cached_tokens(asked) == 8
    other = core.request("b", range(10))
    hit, tokens, _ = core.manager.get_computed_blocks(other)
    assert (tokens, [len(row) for row in hit.blocks]) == (8, [2, 0])
    assert [len(row) for row in core.manager.truncate_computed_blocks(hit, 4).blocks] == [1, 0]
    core.manager.free(asked)
    assert core.pool.free_ids()[0] == own[0].block_id


def test_rings_alone_find_nothing():
    core = Core(ring(4))
    core.step(core.request("a", range(9)), 9)
    assert core.admit(core.request("b", range(9)), 9) == 0
    with pytest.raises(AssertionError, match="rings alone"):
        Core(ring(4), ring(2), unit=2)


def test_behind_a_reference_window_blocks_go_and_names_say_how_long_the_prompt_is():
    spec = today.RSWASpec(block_size=4, num_kv_heads=1, head_size=1, dtype=FLOAT, rswa_window=4)
    core = Core(spec)
    core.hasher = today.get_request_block_hasher(4, impl.sha256, reference_window=4)
    core.step(asked := core.request("a", range(6)), 6)
    asked.append_output_token_ids([*range(6, 20)])
    core.step(asked, 8)
    core.step(asked, 1)
    (table,) = core.manager.get_blocks("a").blocks
    # The prompt ends in the second block; the window of the 15th token begins behind the 11th.
    assert [i for i, block in enumerate(table) if block.is_null] == []
    asked.num_computed_tokens = 16
    core.step(asked, 1)
    assert [i for i, block in enumerate(table) if block.is_null] == [2]
    longer = core.request("b", range(20))
    assert longer.block_hashes[:2] == asked.block_hashes[:2]
    assert longer.block_hashes[2:] != asked.block_hashes[2:]
    core.manager.remove_skipped_blocks("a", 3, 6)
    core.manager.free(asked)
    core.manager.check()


def test_managers_of_others_are_refused():
    class OwnSpec(impl.FullAttentionSpec):
        pass

    class OwnManager(impl.FullAttentionManager):
        pass

    impl.KVCacheSpecRegistry.register(OwnSpec, OwnManager)
    with pytest.raises(NotImplementedError, match="OwnManager"):
        Core(OwnSpec(block_size=4, num_kv_heads=1, head_size=1, dtype=FLOAT))
    with pytest.raises(NotImplementedError, match="num_prefill_lookahead"):
        Core(full(), num_prefill_lookahead=1)
