"""First steps: which are taken at once. That these are what the long way makes of them is T16.first."""

from itertools import product

import pytest
from blockproof.impl import today

from .cores_of_today import Core, full, states, window


def test_a_request_begins_once():
    """Who has a table, or counts as registered, is no new one."""
    for specs in ((full,), (window,), (full, window), (full, full)):
        core = Core(*[spec() for spec in specs], blocks=30)
        begin = core.manager.coordinator.steps.begin
        request = core.request("second", range(9))
        core.manager.coordinator.single_type_managers[-1].num_cached_block["second"] = 0
        assert begin(request, (0, None), 4, 0, 20, False, True) is None
        del core.manager.coordinator.single_type_managers[-1].num_cached_block["second"]
        assert begin(request, (0, None), 4, 0, 20, False, True)
        assert begin(request, (0, None), 4, 0, 20, False, True) is None


def test_who_has_something_to_say_of_a_first_step_is_asked():
    """Names inside blocks beside windows, drafts of states, an encoder: they go the long way."""
    assert Core(full(), blocks=8).manager._begins
    assert Core(full(8), states(), unit=4, scheduler=8, blocks=8).manager._begins
    assert not Core(full(8), states(num_speculative_blocks=1), unit=4, scheduler=8, blocks=8).manager._begins
    assert not Core(full(8), window(4), unit=4, scheduler=8, blocks=8).manager._begins


@pytest.mark.parametrize("count", [1, 4, 7], ids=["block-by-block", "a-block", "more"])
@pytest.mark.parametrize("specs", [(full,), (full, window), (lambda: full(8), states)], ids=["full", "two", "states"])
def test_a_block_whose_hash_is_not_there_yet_waits_for_it(specs, count):
    """Of a request without a hasher, and of one that is hashed late."""
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
            named = [one for one in core.pool.identities() if one and one[0] == 0]
            assert len(named) == len(request.block_hashes) * 4 // specs[0]().block_size > 0
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
