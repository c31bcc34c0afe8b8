"""Our core by the rule of today: hits that end inside a block, states, connectors, and kinds that few cores have."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from blockproof import impl
from blockproof.impl import today
from blockproof.impl.hashing.block_hashing import external_hashes
from blockproof.impl.today.events import Places, blocks_stored
from blockproof.model.attention import Step, rules_for
from blockproof.model.features import checkpoints
from blockproof.model.ops import Group, Shape

from .cores_of_today import CHECKPOINT, FLOAT, Core, fine, full, states, window


def ring(size=2):
    return today.CircularBufferSpec(block_size=size, num_kv_heads=1, head_size=1, dtype=FLOAT)


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


@pytest.mark.parametrize("length", [4, 8])
def test_a_hit_may_end_inside_the_first_block_or_behind_it(length):
    core = fine()
    core.step(core.request("a", range(length + 2)), length)
    core.manager.new_step_starts()
    assert core.manager.get_computed_blocks(core.request("b", [*range(length), 50, 51]))[1] == length
    finds_nothing = core.manager.coordinator.finds_nothing
    assert not finds_nothing(core.request("c", [*range(length), 50, 51]).block_hashes)
    assert finds_nothing(core.request("d", [70, *range(1, 20)]).block_hashes)


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


def test_a_state_is_found_where_all_groups_have_it():
    core = Core(full(), states(4), states(4))
    request = core.request("a", range(12))
    core.step(request, 4)
    core.step(request, 4)
    core.manager.new_step_starts()
    assert core.manager.get_computed_blocks(core.request("b", range(12)))[1] == 8
    core.manager.evict_blocks({core.manager.get_blocks("a").blocks[2][1].block_id})
    assert core.manager.get_computed_blocks(core.request("c", range(12)))[1] == 4


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


@pytest.mark.parametrize(("end", "keys"), [(12, [None, None]), (16, [None, (("image", 5, 2),)])])
def test_an_event_tells_of_what_is_in_the_part_of_a_block_that_it_names(end, keys):
    image = SimpleNamespace(identifier="image", mm_position=SimpleNamespace(offset=13, length=2))
    request = Core(full()).request("a", range(16), mm_features=[image])
    places = Places(range(0, 16, 8), (0, end), 8, 1)
    event = blocks_stored(request, [request.block_hashes[1], request.block_hashes[end // 4 - 1]], None, places, 0)
    assert event.extra_keys == keys
    assert event.token_ids == list(range(end))
    assert event.lookahead_token_ids == [[8], [*range(16)][end : end + 1]]


@pytest.mark.parametrize("sizes", [(8, 8), (16, 4)])
@pytest.mark.parametrize("grid", [1, 4, 8, 12])
def test_a_step_leaves_its_checkpoint_where_the_rule_says(grid, sizes):
    """Also on grids that the generator does not draw, and where the place at which a hit can end lies before the step:
    hits end at the blocks of full attention, which are larger."""
    tokens, size = sizes
    spec = states(size, num_prefill_checkpoint_blocks=1, prefill_checkpoint_alignment=grid)
    core = Core(full(tokens), spec, unit=4, scheduler=tokens, blocks=30)
    (leaving,) = core.manager.coordinator.leaving_checkpoints
    group = Group("mamba", size, mamba_mode="align", checkpoint=grid)
    shape = Shape((Group("full", tokens), group), 30, 128, 4, tokens, 128)
    rule = rules_for(shape)[1]
    found = set()
    for start, length in product(range(41), range(1, 60)):
        expected = [*checkpoints.left(rule, Step(start, start + length)).items()]
        assert ([leaving.left(start, start + length)] if expected else []) == expected, (start, length)
        assert expected or leaving.left(start, start + length) is None
        found.update(expected)
    assert len(found) > 5


@pytest.mark.parametrize(("end", "named"), [(19, None), (20, 2), (21, 1)])
def test_where_ends_alone_are_kept_the_step_that_ends_a_prompt_has_a_checkpoint(end, named):
    """The prompt resumes at 20 tokens: what a step leaves behind these is named, in the entry of its last state where
    it ends there, and in that of its checkpoint where it goes on to the end."""
    core = Core(full(8), states(8, **CHECKPOINT), unit=4, scheduler=8, blocks=30, retention=0)
    core.step(core.request("a", range(21)), end)
    assert _named_states(core, "a") == ({} if named is None else {named: 20})


@pytest.mark.parametrize(("end", "named"), [(21, {}), (22, {}), (23, {1: 20}), (24, {1: 20})])
def test_a_request_that_comes_again_has_its_end_behind_all_but_its_last_token(end, named):
    core = Core(full(8), states(8, **CHECKPOINT), unit=4, scheduler=8, blocks=30, retention=0)
    core.step(request := core.request("a", range(21)), 21)
    for token in range(3):
        core.manager.new_step_starts()
        request.append_output_token_ids(token)
    core.manager.free(request)
    core.manager.new_step_starts()
    assert core.manager.reset_prefix_cache()
    request.num_computed_tokens = 0
    core.step(request, end)
    assert _named_states(core, "a") == named


def test_a_short_step_knows_of_which_request_it_is():
    """A request that comes again takes its second step behind its prompt, and does not end there: it leaves no
    checkpoint, whoever was asked for before."""
    core = Core(full(8), states(8, **CHECKPOINT), unit=4, scheduler=8, blocks=60, retention=0)
    core.step(request := core.request("a", range(21)), 21)
    request.append_output_token_ids(list(range(60)))
    core.manager.free(request)
    core.manager.new_step_starts()
    assert core.manager.reset_prefix_cache()
    request.num_computed_tokens = 0
    core.step(request, 24)
    core.step(core.request("b", range(4)), 4)
    assert "a" in core.manager.coordinator.steps.due
    core.step(request, 32)
    states_of_a = core.manager.get_blocks("a").blocks[1]
    assert [i for i, block in enumerate(states_of_a) if not block.is_null] == [2, 6]


def _named_states(core, name, size=8):
    """By entry of the states' table, how many tokens the name of its block says."""
    table = core.manager.get_blocks(name).blocks[1]
    return {i: core.pool.covers(block, (i + 1) * size) for i, block in enumerate(table) if block.content is not None}


def test_a_checkpoint_has_a_block_and_a_name():
    core = fine(**CHECKPOINT)
    core.step(core.request("a", range(30)), 30)
    row = core.manager.get_blocks("a").blocks[1]
    assert [block.is_null for block in row] == [True, True, False, False]
    assert core.pool.covers(row[2], 24) == 28
    core.manager.new_step_starts()
    assert core.admit(core.request("b", range(30)), 2) == 28


def test_where_a_draft_had_its_state_a_checkpoint_has_its_own():
    core = fine(num_speculative_blocks=1, **CHECKPOINT)
    core.step(request := core.request("a", range(40)), 8)
    _, of_draft = core.manager.get_block_ids("a")[1]
    core.step(request, 16)
    row = core.manager.get_block_ids("a")[1]
    assert (row[1], len(row), 0 in row) == (of_draft, 4, False)


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
    core.pool.partial.clear()
    with pytest.raises(AssertionError, match="marked are blocks of which more is kept"):
        core.manager.check()


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


def test_a_step_that_needs_a_block_looks_for_no_horizon():
    core = Core(full(), blocks=4)
    steps = core.manager.coordinator.steps
    core.step(request := core.request("a", range(16)), 4)
    assert core.manager.allocate_slots(request, 12) is None  # three blocks are missing, two are there
    assert (steps.horizons, steps.due) == ({"a": -1}, {})
    assert len(core.manager.allocate_slots(request, 8).blocks[0]) == 2
    assert (steps.horizons, steps.due) == ({"a": 12}, {})


def test_the_horizon_of_a_request_is_found_with_its_first_short_step():
    core = Core(full())
    core.step(asked := core.request("a", range(10)), 10)
    steps = core.manager.coordinator.steps
    assert (steps.horizons, steps.due) == ({}, {"a": 0})
    asked.append_output_token_ids(1)
    core.step(asked, 1)
    assert (steps.horizons, steps.due) == ({"a": 11}, {})
    other = core.request("b", range(10))
    core.admit(other, 2)
    core.manager.allocate_slots_batch([asked, other])
    assert (steps.horizons, steps.due) == ({"a": 11, "b": 11}, {})
    core.admit(core.request("c", range(6)), 2)
    for request in (asked, other):
        core.manager.free(request)
    assert (steps.horizons, list(steps.due)) == ({}, ["c"])


def test_the_end_of_a_prompt_in_its_last_full_block_leaves_the_others_in_their_run():
    core = fine()
    core.step(core.request("a", range(32)), 32)
    *whole, last = core.manager.get_blocks("a").blocks[0]
    assert core.pool.further.keys() == {last.block_id}
    assert [block.run.whole for block in (*whole, last)] == [True, True, True, False]
    assert whole[0].run.blocks == whole
    core.pool.add_name(whole[0], 0, b"another", None)
    assert [block.run.whole for block in whole] == [False, False, False]
    core.manager.check()
    core.pool.unname(whole[0])
    assert core.pool.further.keys() == {last.block_id}
    core.manager.check()


def test_states_that_do_not_move_are_not_held_back_for_drafts():
    """What the older rule says of horizons with drafts is refuted here at these numbers (T16.horizon.states: blocks of
    two tokens, five entries, a step from three settled tokens to five): open drafts are none of the settled tokens, so
    that the state before them has gone already. The short way and the long one do the same."""
    shown = []
    for forgets in (False, True):
        spec = replace(states(2, num_speculative_blocks=1), mamba_cache_mode="none")
        core = Core(spec, blocks=12, unit=2, scheduler=2, enable_caching=False)
        core.step(request := core.request("a", range(3)), 3)
        request.append_output_token_ids([7, 8])
        seen = []
        for _ in range(6):
            if forgets:
                core.manager.coordinator.steps.forget("a")
            core.step(request, 1)
            request.append_output_token_ids([9])
            seen.append((core.manager.get_block_ids("a"), core.pool.free_ids()))
        shown.append(seen)
    assert shown[0] == shown[1]
    assert shown[0][0][0][0][0] == 0  # the first state is given up by then


def test_a_block_in_which_a_hit_has_ended_is_registered_when_it_is_full():
    core = fine()
    core.step(core.request("a", range(14)), 12)
    core.manager.new_step_starts()
    other = core.request("b", [*range(12), *range(50, 60)])
    assert core.admit(other, 8) == 12
    copy = core.manager.get_blocks("b").blocks[0][1]
    assert core.pool.is_named(copy, (0, other.block_hashes[3]))


def test_an_end_that_was_evicted_is_named_again_by_the_next_step():
    core = fine()
    core.step(request := core.request("a", range(13)), 13)
    block = core.manager.get_blocks("a").blocks[0][1]
    assert core.pool.covers(block, 16) == 12
    request.append_output_token_ids(1)
    core.step(request, 1)
    core.manager.evict_blocks([block.block_id])
    request.append_output_token_ids(2)
    core.step(request, 1)
    assert core.pool.covers(block, 16) == 12


def test_who_goes_back_into_its_prompt_names_the_end_of_it_again():
    """As where a load turns out to have failed: its blocks are evicted, and the request computes them again."""
    core = fine()
    core.step(request := core.request("a", range(14)), 14)
    block = core.manager.get_blocks("a").blocks[0][1]
    core.manager.evict_blocks([block.block_id])
    request.num_computed_tokens = 8
    core.step(request, 2)
    assert core.pool.covers(block, 16) == 0
    core.step(request, 4)
    assert core.pool.covers(block, 16) == 12


def test_a_report_of_blocks_with_gaps_names_each_that_is_there():
    core = Core(full(), enable_kv_cache_events=True)
    core.step(request := core.request("a", range(16)), 16)
    core.manager.take_events()
    row = [*core.manager.get_blocks("a").blocks[0]]
    row[1] = core.pool.null_block
    core.manager.coordinator.single_type_managers[0].report(request, row, 16)
    told: list[Any] = core.manager.take_events()
    assert [event.block_hashes for event in told] == [external_hashes([request.block_hashes[i] for i in (0, 2, 3)])]


def test_who_is_not_looked_up_has_no_place_where_others_part():
    core = fine()
    core.step(core.request("a", range(20)), 20)
    other = core.request("b", range(20), skip_reading_prefix_cache=True)
    assert core.manager.get_computed_blocks_for_connector(other)[1:] == (0, 0, False)
    assert core.manager.get_computed_blocks(other)[1:] == (0, 0)


def test_a_request_that_comes_again_names_a_junction_at_the_end_of_its_prompt():
    """A step that ends there is not the one that ends what is prefilled now, and has no checkpoint."""
    named: dict[str, Any] = {"flagged": True, "enable_mamba_shared_prefix_checkpoint": True}
    core = Core(full(8), states(8, **CHECKPOINT), unit=4, scheduler=8, blocks=30, retention=0, **named)
    request = core.request("a", range(20), shared_prefix_boundary=20)
    request.append_output_token_ids([1, 2])
    core.step(request, 20)
    assert _named_states(core, "a") == {2: 20}


def refused_while_written(core, request):
    """Tokens of a hit that is refused in this step, and taken in the next one."""
    hit, tokens, _ = core.manager.get_computed_blocks(request)
    assert core.manager.allocate_slots(request, 2, tokens, hit) is None
    core.manager.new_step_starts()
    assert core.step(request, 2, num_new_computed_tokens=tokens, new_computed_blocks=hit) is not None
    return tokens


def test_a_state_that_is_copied_for_this_step_is_read_in_the_next_one():
    core = fine()
    core.step(first := core.request("a", range(14)), 12)
    core.manager.new_step_starts()
    core.step(first, 2)
    assert refused_while_written(core, core.request("b", [*range(12), 50, 51])) == 12


def test_a_checkpoint_is_read_in_the_step_behind_that_which_leaves_it():
    """Its entry is behind all that counts as registered where hits end at larger blocks."""
    core = Core(full(8), states(4, **CHECKPOINT), unit=4, scheduler=8, blocks=30)
    core.step(core.request("a", range(15)), 15)
    assert _named_states(core, "a", 4) == {2: 8}
    assert refused_while_written(core, core.request("b", range(15))) == 8


def test_a_prompt_of_whole_blocks_is_looked_up_to_its_end_where_drafts_read_on():
    core = Core(full(8), states(8), unit=4, scheduler=8, blocks=30, flagged=True)
    core.step(request := core.request("a", range(14)), 8)
    core.step(request, 6)
    core.manager.new_step_starts()
    assert core.manager.get_computed_blocks(core.request("b", range(12)))[1] == 8
