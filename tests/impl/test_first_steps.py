"""First steps: what is done at once is what the long way does, in every small case."""

from itertools import product

import pytest
from blockproof.impl import today
from blockproof.impl.managers.steps import RunningSteps

from .cores_of_today import Core, full, states, window

SPECS = {"full": (full,), "window": (window,), "both": (full, window), "twice": (full, full)}
BEGINNING = range(100, 110)
"""Tokens that are cached: two blocks, and a part of one."""


def cores(specs, blocks, **named):
    """Two cores in the same state, of which the second one goes the long way only."""
    made = []
    for begins in (True, False):
        core = Core(*[spec() for spec in specs], blocks=blocks, **named)
        core.manager._begins &= begins
        first = core.request("first", BEGINNING)
        assert core.step(first, len(BEGINNING)) is not None
        core.manager.free(first)
        made.append(core)
    return made


def state(core):
    pool, managers = core.pool, core.manager.coordinator.single_type_managers
    tables = [
        {name: [block.block_id for block in row] for name, row in one.req_to_blocks.items() if row} for one in managers
    ]
    registered = [dict(one.num_cached_block) for one in managers]
    new = [list(one.take_new_block_ids()) for one in managers]
    told = core.manager.take_events()
    return pool.free_ids(), pool.ref_counts(), pool.identities(), tables, registered, new, told


def ids(blocks):
    return None if blocks is None else blocks.get_block_ids()


CASES = [
    *product((0, 9), (1, 3, 4, 9), (0, 5), (0, 3), (False, True), (False,), (0,)),
    *product((0, 9), (4, 9), (0,), (0,), (False,), (True,), (0, 4)),
]


@pytest.mark.parametrize("events", [False, True], ids=["", "events"])
@pytest.mark.parametrize("specs", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("each", [5, 11, 19])
def test_a_first_step_is_what_the_long_way_makes_of_it(specs, each, events, monkeypatch):
    asked = []

    def noting(begin):
        def noted(*given):
            asked.append(begin(*given))
            return asked[-1]

        return noted

    monkeypatch.setattr(RunningSteps, "begin", noting(RunningSteps.begin))
    for hit, new, lookahead, reserved, whole, delayed, computed in CASES:
        said = []
        for core in cores(specs, 1 + each * len(specs), enable_kv_cache_events=events):
            tokens = [*BEGINNING[:hit], *range(20)]
            request = core.request("second", tokens, num_computed_tokens=computed)
            found, length, _ = core.manager.get_computed_blocks(request)
            named = {"num_lookahead_tokens": lookahead, "reserved_blocks": reserved, "full_sequence_must_fit": whole}
            answer = core.manager.allocate_slots(request, new, length, found, delay_cache_blocks=delayed, **named)
            said.append([ids(answer), state(core)])
            if answer is not None:
                request.num_computed_tokens += length + new
                said[-1] += [ids(core.manager.allocate_slots(request, 5)), state(core)]
                core.manager.free(request)
                said[-1].append(state(core))
                core.manager.check()
        assert said[0] == said[1], (hit, new, lookahead, reserved, whole, delayed, computed)
    kinds = {None if rows is None else bool(rows) for rows in asked}
    assert kinds >= {True, None}, "no first step was taken at once, or every one was"
    assert False in kinds or each > 5, "none was refused at once"


def test_a_request_begins_once():
    """Who has a table, or counts as registered, is no new one."""
    for specs in SPECS.values():
        core, _ = cores(specs, 30)
        begin = core.manager.coordinator.steps.begin
        request = core.request("second", range(9))
        core.manager.coordinator.single_type_managers[-1].num_cached_block["second"] = 0
        assert begin(request, (0, None), 4, 0, 20, False, True) is None
        del core.manager.coordinator.single_type_managers[-1].num_cached_block["second"]
        assert begin(request, (0, None), 4, 0, 20, False, True)
        assert begin(request, (0, None), 4, 0, 20, False, True) is None


def test_who_has_something_to_say_of_a_first_step_is_asked():
    """Names inside blocks beside windows, drafts of states, an encoder: they go the long way."""
    assert cores((full,), 8)[0].manager._begins
    assert Core(full(8), states(), unit=4, scheduler=8, blocks=8).manager._begins
    assert not Core(full(8), states(num_speculative_blocks=1), unit=4, scheduler=8, blocks=8).manager._begins
    assert not Core(full(8), window(4), unit=4, scheduler=8, blocks=8).manager._begins


@pytest.mark.parametrize("count", [1, 4, 7], ids=["block-by-block", "a-block", "more"])
@pytest.mark.parametrize("specs", [(full,), (full, window), (lambda: full(8), states)], ids=["full", "two", "states"])
def test_a_block_whose_hash_is_not_there_yet_waits_for_it(specs, count):
    """Of a request without a hasher, of one that is hashed late, and of one whose names look further ahead."""
    for late, begins in product((False, True), (False, True)):
        core = Core(*[spec() for spec in specs], unit=4, scheduler=8, blocks=60)
        core.manager._begins &= begins
        request = today.Request("a", list(range(3)))  # nobody hashes its blocks
        assert core.step(request, 3)
        for _ in range(12):
            request.append_output_token_ids([1] * count)
            assert core.step(request, count) is not None
        assert set(core.pool.identities()) == {None}
        if late:
            request.block_hashes = core.request("b", request.all_token_ids).block_hashes
            request.append_output_token_ids(1)
            assert core.step(request, 1) is not None
            assert core.manager.get_computed_blocks(core.request("c", request.all_token_ids))[1] or len(specs) > 1
        core.manager.free(request)
        core.manager.check()


def test_by_the_older_rule_a_block_without_a_hash_is_an_error_however_long_the_step_is(core):
    """As in vLLM 0.23.0."""
    for specs in ((core.full(),), (core.full(), core.sliding(5))):
        for steps in ((8,), (3, 1), (3, 5)):
            manager, request = core.manager(*specs), core.request("a", 8)
            request.block_hashes.clear()
            for count in steps[:-1]:
                manager.allocate_slots(request, count)
                request.num_computed_tokens += count
            with pytest.raises(AssertionError, match="0 block hashes"):
                manager.allocate_slots(request, steps[-1])
