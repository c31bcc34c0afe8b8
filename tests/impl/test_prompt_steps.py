"""Steps of prompts where states are kept: what is done at once is what the long way does, in every small case."""

from itertools import product

import pytest
from blockproof.impl.today.steps import StepsBehindPrompts

from .cores_of_today import CHECKPOINT, Core, full, states

SPECS = {
    "narrow": (full(4), states(4)),
    "wide": (full(8), states(8)),
    "mixed": (full(4), states(8)),
    "two": (full(8), states(8), states(8)),
    "checkpoint": (full(4), states(4, **CHECKPOINT)),
    "wide-checkpoint": (full(8), states(8, **CHECKPOINT)),
}
LENGTHS = (5, 14, 27)
"""Tokens of prompts: within a block, at its end, and behind it."""
CHUNKS = ((40,), (8, 40), (4, 3, 16, 40))
"""Tokens of the steps of a prompt, up to its end."""
FEATURES = ({}, {"enable_kv_cache_events": True}, {"retention": 0}, {"retention": 8}, {"ahead": 1})


def two_cores(specs, blocks, **named):
    """Two cores, of which the second one goes the long way only."""
    named = {"enable_mamba_shared_prefix_checkpoint": True, "watermark": 0.1, **named}
    made = [Core(*specs, unit=4, scheduler=8, blocks=blocks, **named) for _ in range(2)]
    made[1].manager._begins = False
    return made


def state(core):
    """All that a later call may see."""
    pool, managers = core.pool, core.manager.coordinator.single_type_managers
    rows = [{name: [one.block_id for one in row] for name, row in one.req_to_blocks.items() if row} for one in managers]
    kept = [
        (dict(one.num_cached_block), one.take_new_block_ids(), {name: tail.entry for name, tail in one.tails.items()})
        for one in managers
    ]
    of_states = [
        (dict(one.steps), dict(one.num_leading_nulls), set(one.cached_blocks_this_step), list(one.offers))
        for one in managers
        if one.keeps_states
    ]
    behind = sorted(core.manager.coordinator.steps.behind), sorted(core.manager.coordinator.steps.due)
    names = pool.free_ids(), pool.ref_counts(), pool.identities(), dict(pool.further), dict(pool.partial)
    copies = [(source.block_id, target.block_id) for source, target in pool.copying]
    return names, rows, kept, of_states, behind, copies, core.manager.take_events()


def run(core, tokens, name, chunks, whole):
    """Take a request through the steps of its prompt and two of decoding: what each answers, and leaves behind."""
    request, said = core.request(name, tokens, num_output_placeholders=0), []
    hit, found, request.shared_prefix_boundary = core.manager.get_computed_blocks(request)
    for count in chunks:
        count = min(count, len(tokens) - request.num_computed_tokens - found)
        if count <= 0:
            break
        core.manager.new_step_starts()
        new = core.manager.allocate_slots(request, count, found, hit, full_sequence_must_fit=whole)
        said += [new if new is None else new.get_block_ids(), new is core.manager.empty_kv_cache_blocks, state(core)]
        if new is None:
            return request, said
        request.num_computed_tokens += found + count
        _, held = core.manager.take_kv_cache_block_copies()
        core.pool.free_blocks(held)
        found, hit = 0, None
    for _ in range(2):
        request.append_output_token_ids(7)
        core.manager.new_step_starts()
        new = core.manager.allocate_slots(request, 1)
        said += [new if new is None else new.get_block_ids(), state(core)]
        request.num_computed_tokens += new is not None
        _, held = core.manager.take_kv_cache_block_copies()
        core.pool.free_blocks(held)
    core.manager.check()
    return request, said


@pytest.mark.parametrize("specs", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("features", FEATURES, ids=["", "events", "ends-only", "retention", "ahead"])
@pytest.mark.parametrize("blocks", [18, 50])
def test_a_step_of_a_prompt_is_what_the_long_way_makes_of_it(specs, features, blocks, monkeypatch):
    asked = []

    def noting(begin):
        def noted(*given):
            asked.append((begin(*given), bool(given[2][0])))
            return asked[-1][0]

        return noted

    monkeypatch.setattr(StepsBehindPrompts, "begin", noting(StepsBehindPrompts.begin))
    for length, chunks, (apart, whole) in product(LENGTHS, CHUNKS, ((4, False), (9, True), (30, False))):
        said = []
        for core in two_cores(specs, blocks, **features):
            told = []
            prompt, other = list(range(length)), [*range(min(apart, length)), *range(50, 60)]
            for name, tokens in (("a", prompt), ("b", prompt), ("c", other), ("d", other)):
                request, more = run(core, tokens, name, chunks, whole)
                told += more
                if name != "a" or more[-1] is None:
                    core.manager.free(request)
                    told.append(state(core))
            said.append(told)
        assert said[0] == said[1], (length, chunks, apart, whole)
    reached = {(rows is None, found) for rows, found in asked}
    assert reached >= {(False, False), (True, False), *([(False, True)] if blocks > 24 else [])}


def test_a_step_that_has_more_to_say_goes_the_long_way():
    """Drafts, lookahead, a hit with a row too many, a state that this step writes, tokens in flight, little room."""
    core = Core(full(8), states(8), unit=4, scheduler=8, blocks=30)
    begin = core.manager.coordinator.steps.begin
    request = core.request("a", range(20))
    for given in (
        ((0, None), 21, 0, 29, False, True),
        ((0, None), 8, 1, 29, False, True),
        ((0, None), 8, 0, 3, False, True),
        ((0, None), 8, 0, 29, False, False),
        ((8, None), 8, 0, 29, False, True),
        ((8, ([], [])), 8, 0, 29, False, True),
        ((0, ([core.pool.null_block], [])), 8, 0, 29, False, True),
    ):
        before = core.pool.free_ids()
        assert begin(request, *given) is None
        assert core.pool.free_ids() == before
    request.num_in_flight_tokens = 4
    assert begin(request, (0, None), 8, 0, 29, False, True) is None
    request.num_in_flight_tokens = 0
    assert core.step(request, 16)
    core.manager.free(request)
    again = core.request("b", range(20))
    hit, found, _ = core.manager.get_computed_blocks(again)
    assert found == 16
    assert begin(again, (found, hit.blocks), 4, 0, 29, False, True) is None, "its state is written now"
    core.manager.new_step_starts()
    assert begin(again, (found, hit.blocks), 4, 0, 29, False, True)
