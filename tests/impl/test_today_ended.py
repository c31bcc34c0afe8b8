"""What has ended leaves nothing: a request may come again under its name, and its blocks are all free."""

from typing import Any

import pytest
from blockproof.impl import today

from .cores_of_today import CHECKPOINT, FLOAT, Core, fine, full, states, window

CORES = {
    "full": lambda: Core(full()),
    "window": lambda: Core(window()),
    "full and window": lambda: Core(full(), window()),
    "hits inside blocks": fine,
    "drafts": lambda: fine(num_speculative_blocks=1),
    "checkpoints": lambda: fine(**CHECKPOINT),
    "reference window": lambda: Core(
        today.RSWASpec(block_size=4, num_kv_heads=1, head_size=1, dtype=FLOAT, rswa_window=4)
    ),
}


def remembered(core: Core, name: str) -> list[str]:
    """Where a request is still known by its name."""
    manager = core.manager
    steps = manager.coordinator.steps
    places: list[Any] = [steps, *steps.lanes, *manager.coordinator.single_type_managers]
    fields = [(type(place).__name__, field, value) for place in places for field, value in vars(place).items()]
    return [f"{kind}.{field}" for kind, field, value in fields if isinstance(value, dict | set) and name in value]


def freed(core: Core, request: Any) -> None:
    core.manager.free(request)


def freed_later(core: Core, request: Any) -> None:
    core.pool.free_blocks(core.manager.pop_blocks_for_free(request))


@pytest.mark.parametrize("decoded", [0, 1, 12])
@pytest.mark.parametrize("end", [freed, freed_later])
@pytest.mark.parametrize("kind", CORES)
def test_nothing_is_known_of_a_request_that_has_ended(kind, end, decoded):
    core = CORES[kind]()
    free = core.pool.get_num_free_blocks()
    known = set[str]()
    for prompt in (range(14), range(22), range(14)):  # the last one is hit, inside a block where hits end there
        request = core.request("a", prompt)
        hit = core.admit(request, 1)
        assert core.step(request, len(prompt) - hit - 1) is not None
        for token in range(decoded):
            core.manager.new_step_starts()
            request.append_output_token_ids(token)
            assert core.step(request, 1) is not None
        known.update(remembered(core, "a"))
        end(core, request)
        assert remembered(core, "a") == []
        core.manager.take_boundary_state_offloads()
        core.manager.new_step_starts()
        core.manager.check()
    assert core.pool.get_num_free_blocks() == free
    assert len(known) >= 3


@pytest.mark.parametrize("end", [freed, freed_later])
@pytest.mark.parametrize("length", range(1, 26))
def test_what_a_load_brought_for_all_tokens_is_given_back(length, end):
    """All tokens but the last count as settled then: where that one begins a block, the state before it stays."""
    core = Core(states(8), unit=8, scheduler=8)
    free = core.pool.get_num_free_blocks()
    request = core.request("a", range(length))
    core.step(request, 0, num_external_computed_tokens=length, delay_cache_blocks=True)
    request.append_output_token_ids(1)
    assert core.step(request, 1) is not None
    end(core, request)
    core.manager.check()
    assert core.pool.get_num_free_blocks() == free
