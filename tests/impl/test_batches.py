"""A batch of requests is the same as a loop over them, in the pure and in the compiled core."""

import random
from types import ModuleType
from typing import Any

import blockproof.impl as pure
import numpy
import pytest
from blockproof.fuzz.adapters.impl import CORES
from blockproof.impl.compiled import NotBuiltError, load

LAYERS = ("full", "full+sliding", "full+mamba", "full, no caching")


@pytest.fixture(params=list(CORES))
def core(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "impl":
        return pure
    try:
        return load()
    except NotBuiltError as error:
        pytest.skip(str(error))


def manager(core: Any, layers: str, num_blocks: int) -> Any:
    sizes = {"block_size": 4, "num_kv_heads": 1, "head_size": 1, "dtype": numpy.dtype("float32")}
    specs = [core.FullAttentionSpec(**sizes)]
    if layers == "full+sliding":
        specs.append(core.SlidingWindowSpec(**sizes, sliding_window=6))
    if layers == "full+mamba":
        state = {"shapes": ((1,),), "dtypes": (numpy.dtype("float32"),), "mamba_cache_mode": "align"}
        specs.append(core.MambaSpec(block_size=4, **state, num_speculative_blocks=1))
    groups = [core.KVCacheGroupSpec([str(i)], spec) for i, spec in enumerate(specs)]
    config = core.KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=groups)
    caching = layers != "full, no caching"
    return core.KVCacheManager(
        config, max_model_len=60, scheduler_block_size=4, hash_block_size=4, enable_caching=caching
    )


def tables(made: Any, requests: list[Any]) -> list[Any]:
    return [made.get_block_ids(request.request_id) for request in requests]


@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("seed", range(4))
def test_a_batch_is_a_loop(core: Any, layers: str, seed: int) -> None:
    draw = random.Random(f"{layers} {seed}")
    core.init_none_hash(core.sha256)
    hasher = core.get_request_block_hasher(4, core.sha256)
    sides = [manager(core, layers, 70) for _ in range(2)]
    prompts = [[draw.randrange(3) for _ in range(draw.randrange(3, 20))] for _ in range(12)]
    rows = [[core.Request(str(i), prompt, block_hasher=hasher) for i, prompt in enumerate(prompts)] for _ in sides]
    for made, requests in zip(sides, rows, strict=True):
        for request in list(requests):
            if made.allocate_slots(request, request.num_tokens) is None:
                requests.remove(request)
            request.num_computed_tokens = request.num_tokens
    refused = empty = 0
    for _ in range(40):
        new, lookahead = draw.choice((1, 1, 1, 2)), draw.choice((0, 0, 0, 1))
        for row in rows:
            for request in row:
                request.append_output_token_ids([7] * new)
        one = [sides[0].allocate_slots(request, new, num_lookahead_tokens=lookahead) for request in rows[0]]
        all_at_once = sides[1].allocate_slots_batch(rows[1], new, lookahead)
        answers = [[None if one is None else one.get_block_ids() for one in side] for side in (one, all_at_once)]
        assert answers[0] == answers[1]
        assert tables(sides[0], rows[0]) == tables(sides[1], rows[1])
        refused += None in one
        empty += any(blocks is sides[1].empty_kv_cache_blocks for blocks in all_at_once)
        for made, row in zip(sides, rows, strict=True):
            made.new_step_starts()
            for request, answer in zip(list(row), one, strict=True):
                request.num_computed_tokens += new if answer is not None else 0
                if answer is None or request.num_tokens > 50:
                    made.free(request)
                    row.remove(request)
        sides[1].check()
    assert refused
    assert empty


@pytest.mark.parametrize("layers", ["full", "full+sliding"])
def test_a_request_in_between_that_goes_the_long_way_gets_its_own_answer(core: Any, layers: str) -> None:
    core.init_none_hash(core.sha256)
    sides = [manager(core, layers, 20) for _ in range(2)]
    hasher = core.get_request_block_hasher(4, core.sha256)
    rows = [[core.Request(name, [1, 2, 3, 4], block_hasher=hasher) for name in "abc"] for _ in sides]
    for made, requests in zip(sides, rows, strict=True):
        for request in requests:
            assert made.allocate_slots(request, 4) is not None
            request.num_computed_tokens = 4
        made.coordinator.free("b")  # from now on nothing is known of it
        requests[1].num_computed_tokens = 0
        requests[0].append_output_token_ids([7])
        requests[2].append_output_token_ids([7])
    one = [sides[0].allocate_slots(request, 1).get_block_ids() for request in rows[0]]
    assert [answer.get_block_ids() for answer in sides[1].allocate_slots_batch(rows[1])] == one
    assert tables(sides[0], rows[0]) == tables(sides[1], rows[1])


def test_counts_that_are_wrong_are_refused_as_in_a_loop(core: Any) -> None:
    made = manager(core, "full", 10)
    request = core.Request("a", [1, 2, 3])
    assert made.allocate_slots_batch([], -1) == []
    for counts in ((-1, 0), (0, 0), (1, -1)):
        with pytest.raises(ValueError, match="cannot allocate for request a"):
            made.allocate_slots_batch([request], *counts)
