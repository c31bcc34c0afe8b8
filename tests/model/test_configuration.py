"""The arithmetic of configurations: measured numbers, the chapter's worked numbers, its invariants, its errors."""

import copy
import json
from contextlib import suppress
from functools import partial
from itertools import permutations, product
from pathlib import Path

import pytest
from blockproof.fuzz.targets.configuration_answers import QUESTIONS, answer
from blockproof.fuzz.targets.configuration_question import ConstructedQuestion
from blockproof.model import arith as core_arith
from blockproof.model.attention import CoreError
from blockproof.model.config import arith
from blockproof.model.config.capacity import Rules
from blockproof.model.config_json import Config

from .questions import (
    BEFORE,
    C4,
    C4_INDEX,
    C128,
    DEEPSEEK_V4,
    GEMMA,
    LENGTHS,
    MODELS,
    SETTINGS,
    STATE_4,
    STATE_4_INDEX,
    STATE_128,
    V4_WINDOW,
    ask,
    chunk,
    full,
    groups_of,
    merged,
    mla,
    model,
    page,
    sink,
    size,
    sizes_of_groups,
    window,
)

VECTORS = Path(__file__).resolve().parents[2] / ".." / "shared" / "vectors"


def vectors():
    found = [case for path in sorted(VECTORS.glob("*.json")) for case in json.loads(path.read_text())]
    return [pytest.param(case, id=case["case"]) for case in found if case["op"] in QUESTIONS]


@pytest.mark.parametrize("case", vectors())
def test_the_model_gives_the_wanted_answer(case):
    wanted = {"raises": case.get("wanted_raises", case.get("raises"))}
    if "wanted" in case or ("output" in case and "wanted_raises" not in case):
        wanted = {"output": case.get("wanted", case.get("output"))}
    given = [answer(case["op"], case["inputs"], rules) for rules in (Rules(), BEFORE)]
    assert json.dumps(wanted, sort_keys=True) in [json.dumps(one, sort_keys=True) for one in given]  # 3 is not 3.0


NULL_BLOCK_COUNTS = {
    *(f"concurrency/{name}" for name in ("bamba-cached", "deepseek-v4", "gemma3", "gptoss", "llama4")),
    *("concurrency/two-head-sizes", "concurrency/whisper"),
    *(f"configs/{name}-exactly-enough" for name in ("gemma3", "llama4", "two-head-sizes")),
    *(f"configs/{name}-auto-fit" for name in ("gemma3", "override", "two-head-sizes")),
    *("configs/not-one-block", "configs/v4-exactly-enough-refused"),
    *(f"estimate-grouped/{name}" for name in ("gemma3", "three-types")),
    *(f"estimate/{name}" for name in ("context-parallel", "gemma3", "llama3", "llama4", "mistral-swa", "three-types")),
    "estimate/whisper",
    *(f"needed/{name}" for name in ("bamba", "deepseek-v3.2", "deepseek-v4", "gemma3", "gptoss-eagle")),
}
ONE_SCALE = {"page/mla-scales"}


def test_only_where_the_null_block_or_one_scale_counts_is_another_answer_right_than_the_vectors_want():
    cases = [param.values[0] for param in vectors()]
    questions = {case["case"]: (case["op"], case["inputs"]) for case in cases}
    changed = {name for name, question in questions.items() if answer(*question) != answer(*question, BEFORE)}
    assert not cases or changed == NULL_BLOCK_COUNTS | ONE_SCALE


@pytest.fixture(params=MODELS)
def specs(request):
    return MODELS[request.param]


# The numbers that the chapter works out.


def test_the_pages_that_the_chapter_works_out():
    assert size(full(heads=8, head_size=128)) == 65_536
    assert size(full(head_size=128, size=1, kv_quant_mode="INT8_PER_TOKEN_HEAD")) == 4224
    assert size(full(head_size=128, size=1, kv_quant_mode="NVFP4")) == 2304
    assert size(mla(block_size=64, head_size=576)) == 73_728
    assert size(mla(block_size=64, head_size=576, cache_dtype_str="fp8_ds_mla")) == 41_984
    assert [size(C4), size(C128), size(C4_INDEX), size(V4_WINDOW)] == [37_440, 1728, 8640, 37_440]
    assert [page(raw)["real_page_size_bytes"] for raw in (C4, C128, C4_INDEX)] == [37_376, 1168, 8448]
    assert [page(raw)["real_page_size_bytes"] for raw in (STATE_4, STATE_4_INDEX, STATE_128)] == [32_768, 8192, 32_768]
    assert [size(raw) for raw in (STATE_4, STATE_4_INDEX, STATE_128)] == [32_832, 8640, 32_832]


def test_the_need_of_a_plain_model():
    llama = model(*[full(heads=8, head_size=128)] * 32, max_model_len=8192)
    assert ask("needed", llama)["pool_bytes_per_block"] == 2 << 20
    assert ask("needed", llama)["from_groups"] == (1 << 30) + (2 << 20)  # with the null block


def test_the_caps_that_the_chapter_works_out():
    assert ask("admission_cap", {"spec": window(1024), "draws": [[2048, 32_768]]}) == [193]
    assert ask("admission_cap", {"spec": chunk(8192), "draws": [[8192, 65_536]]}) == [1024]
    assert ask("admission_cap", {"spec": chunk(6, block_size=4), "draws": [[2, 100]]}) == [3]


def test_gemma_has_groups_of_ten():
    settings = {"max_model_len": 32_768, "max_num_batched_tokens": 2048}
    assert sorted(sizes_of_groups(*GEMMA, **settings)) == [8, 8, 9, 9, 9, 9, 10]
    assert ask("needed", model(*GEMMA, **settings))["from_groups"] == 3207 * 10 * 131_072


def test_one_more_draft_layer_does_not_split_a_type():
    assert sizes_of_groups(*[window(), full()] * 12, full()) == [12, 13]


def test_group_sizes_follow_the_rarer_type_unless_types_are_nearly_as_many():
    assert sizes_of_groups(*[full()] * 8, *[window()] * 12) == [8, 6, 6]
    assert sizes_of_groups(*[full()] * 10, *[window()] * 14) == [10, 14]
    assert sizes_of_groups(*[full()] * 20, *[window()] * 30) == [20, 15, 15]


def test_the_groups_of_deepseek_v4():
    assert sizes_of_groups(*DEEPSEEK_V4) == [32, 11, 10, 22, 10]
    assert ask("needed", model(*DEEPSEEK_V4))["pool_bytes_per_block"] == 524_160


def test_a_smaller_page_is_made_up_for_by_larger_blocks():
    unified = ask("unify_page_size", model(full(heads=4, head_size=128), window(heads=1, head_size=128)))
    assert [found["block_size"] for found in unified["specs"]] == [16, 64]
    groups = [window(block_size=b) for b in (256, 64, 4)]
    assert ask("resolve_block_sizes", {"groups": groups, "vllm_config": {}}) == [256, 4]


# Its invariants.


def test_no_block_more_would_fit(specs):
    """I1: n·B ≤ M < (n+1)·B, and the tensors take n·B."""
    per_block = ask("needed", model(*specs))["pool_bytes_per_block"]
    for memory in (0, per_block - 1, per_block, 7 * per_block + 1, 100 * per_block - 1):
        made = ask("config_from_groups", model(*specs), available_memory=memory)
        assert made["num_blocks"] * per_block <= memory < (made["num_blocks"] + 1) * per_block
        assert sum(bytes_ for bytes_, _ in made["tensors"]) == made["num_blocks"] * per_block
    for memory, page_, layers in product(range(40), range(1, 6), range(1, 6)):
        assert memory // page_ // layers == memory // (page_ * layers)


def workers_of(specs, count):
    layers = model(*specs)["layers"]
    return [layers[len(layers) * i // count : len(layers) * (i + 1) // count] for i in range(count)]


def test_workers_agree_and_none_exceeds_its_memory(specs):
    """I2."""
    inputs = {**model(*specs, max_model_len=100, **SETTINGS), "workers": workers_of(specs, 2)}
    memory = [10**9, 7 * 10**8]
    made = ask("configs", inputs, available_memory=memory)
    assert {worker["num_blocks"] for worker in made["workers"]} == {made["scheduler"]["num_blocks"]}
    for worker, available in zip(made["workers"], memory, strict=True):
        assert sum(bytes_ for bytes_, _ in worker["tensors"]) <= available
        assert all(bytes_ % worker["num_blocks"] == 0 for bytes_, _ in worker["tensors"])


def test_unification_is_exact_idempotent_and_keeps_bytes_per_token():
    """I3."""
    for heads in product((1, 2, 4), repeat=3):
        layers = [full(heads=heads[0]), window(heads=heads[1], page_size_padded=2048), chunk(heads=heads[2])]
        unified = ask("unify_page_size", model(*layers))
        assert set(unified["page_sizes"]) == {max(map(size, layers))}
        again = ask("unify_page_size", model(*unified["specs"]))
        assert again["specs"] == unified["specs"]
        for before, (_, number) in zip(layers, unified["layers"], strict=True):
            after = unified["specs"][number]
            assert size(after) >= size(before)
            if "page_size_padded" not in before:
                assert size(after) * before["block_size"] == size(before) * after["block_size"]


def test_groups_and_tensors_partition_the_layers(specs):
    """I4."""
    names = [name for name, _ in model(*specs)["layers"]]
    grouped = groups_of(*specs)
    assert sorted(name for group in grouped for name in group) == sorted(names)
    made = ask("config_from_groups", model(*specs), available_memory=10**9)
    assert sorted(name for _, shared in made["tensors"] for name in shared) == sorted(names)
    pages = dict(zip(names, map(size, specs), strict=True))
    for group in grouped:
        for same in {pages[name] for name in group}:
            places = [names.index(name) for name in group if pages[name] == same]
            assert places == sorted(places)


def test_a_type_is_spread_as_evenly_as_its_group_size_allows():
    """I5."""
    for often, rare in product(range(1, 14), range(1, 14)):
        sizes = sizes_of_groups(*[full()] * often, *[window()] * rare)
        limit = arith.group_size(min(often, rare), max(often, rare))
        parts = [sizes[: core_arith.cdiv(often, limit)], sizes[core_arith.cdiv(often, limit) :]]
        assert [sum(part) for part in parts] == [often, rare]
        assert len(parts[1]) == core_arith.cdiv(rare, limit)
        assert all(max(part) - min(part) <= 1 for part in parts)
        assert max(sizes) == limit
        assert limit == (max(often, rare) if max(often, rare) / min(often, rare) < 1.5 else min(often, rare))


def test_the_approximate_gcd_is_the_minimum_over_its_range():
    """I6."""
    for values in product(range(1, 8), repeat=3):
        for least in range(1, 10):
            found = arith.approximate_gcd(values, least)
            costs = {unit: sum(-x % unit for x in values) for unit in range(least, max(values) + 1)}
            best = [unit for unit, cost in costs.items() if cost == min(costs.values())]
            assert found == (max(best) if best else least)
    assert ask("approximate_gcd", {"draws": [[[11, 21, 11, 10], 11], [[5], 9], [[4, 6], None]]}) == [11, 9, 2]


def test_what_the_check_lets_through_has_room_for_a_request(specs):
    """I7: needed ≤ M exactly if so many blocks fit beside the null block; auto-fit finds the largest such length."""
    for length in LENGTHS:
        inputs = model(*specs, max_model_len=length, **SETTINGS)
        need = ask("needed", inputs)
        blocks = need["from_groups"] // need["pool_bytes_per_block"]
        lone = {**inputs, "workers": [inputs["layers"]]}
        assert ask("configs", lone, available_memory=[need["from_groups"] - 1]) == "ValueError"
        made = ask("configs", lone, available_memory=[need["from_groups"]])
        assert made["workers"][0]["num_blocks"] == blocks
        assert ask("max_concurrency", inputs, num_blocks=blocks) == 1.0
        longer = {**lone, "vllm_config": {**inputs["vllm_config"], "max_model_len": 6000, "original_max_model_len": -1}}
        fitted = ask("configs", longer, available_memory=[need["from_groups"]])["max_model_len"]
        assert fitted >= length
        one_more = ask("needed", model(*specs, max_model_len=fitted + 1, **SETTINGS))["from_groups"]
        assert fitted == 6000 or one_more > need["from_groups"]


def test_the_estimate_is_the_largest_length_that_fits(specs):
    """I8."""
    needs = [ask("needed", model(*specs, max_model_len=n, **SETTINGS)) for n in range(1, 101)]
    for key, op in (("sum_over_layers", "estimate"), ("from_groups", "estimate_from_groups")):
        null_block = sum(map(size, specs)) if key == "sum_over_layers" else 0
        costs = [need[key] + null_block for need in needs]
        assert costs == sorted(costs)
        for memory in {0, costs[0] - 1, costs[0], costs[30], costs[60] + 1, costs[-1]}:
            found = ask(op, model(*specs, max_model_len=100, **SETTINGS), available_memory=memory)
            longest = found["estimate"] if op == "estimate" else found
            assert longest == sum(cost <= memory for cost in costs)


def test_the_cap_of_a_window_is_at_most_one_block_too_many():
    """I9; that it is never too small is tested with the closed forms."""
    for w, b, batched, length in product(range(1, 9), range(1, 6), range(1, 7), range(1, 25)):
        tokens = min(w - 1 + batched, length)
        tight = min(core_arith.cdiv(tokens - 1, b) + 1, core_arith.cdiv(length, b))
        assert core_arith.cap_sliding(w, b, batched, length) - tight in (0, 1)


def test_merging_is_idempotent_commutative_and_associative():
    """I10."""
    pool = [
        full(),
        full(sliding_window=5),
        full(attention_chunk_size=6),
        full(heads=2),
        sink(),
        mla(),
        mla(alignment=64),
    ]
    for chosen in product(pool, repeat=3):
        results = [merged(*order) for order in permutations(chosen)]
        assert all(result == results[0] for result in results)
        inner = merged(*chosen[:2])
        if not isinstance(inner, str):
            assert merged(inner, chosen[2]) == results[0]
    for raw in pool:
        assert merged(raw) == merged(raw, raw) == merged(raw, raw, raw)
        assert not isinstance(merged(raw), str)


def test_hash_blocks_divide_group_blocks_divide_scheduler_blocks():
    """I11."""
    for sizes in product((4, 6, 16, 64), repeat=3):
        groups = [full(block_size=b) for b in sizes]
        scheduler, hashes = ask("resolve_block_sizes", {"groups": groups, "vllm_config": {}})
        assert all(b % hashes == 0 == scheduler % b for b in sizes)
    one = {"groups": [full(block_size=32)], "vllm_config": {"decode_context_parallel_size": 2}}
    assert ask("resolve_block_sizes", one) == [64, 64]


def test_ranks_and_blocks_can_be_counted_in_one():
    """I12."""
    for length, c, b in product(range(50), range(1, 6), range(1, 6)):
        inputs = {"spec": full(block_size=b), "vllm_config": {"decode_context_parallel_size": c}}
        needed = ask("max_memory", inputs, max_model_lens=[length])
        assert needed == [core_arith.cdiv(length, c * b) * size(full(block_size=b))]


def test_nothing_that_was_given_is_changed(specs):
    """I13."""
    inputs = {**model(*specs, disable_hybrid_kv_cache_manager=True), "workers": workers_of(specs, 1)}
    inputs |= {"available_memory": [10**9], "shared_objects": True}
    before = copy.deepcopy(inputs)
    answer("configs", inputs)
    assert inputs == before
    layers = ConstructedQuestion(Rules(), inputs).layers
    kept = dict(layers)
    for rule in (Rules().unify_page_size, Rules().unify_hybrid, partial(Rules().groups, Config())):
        with suppress(CoreError):
            rule(layers)
        assert layers == kept
