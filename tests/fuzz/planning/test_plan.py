"""Plans: figures worked out by hand, the null block, several workers, and what a real release says."""

from dataclasses import replace
from importlib import import_module
from math import lcm
from pathlib import Path
from typing import Any

import pytest
from blockproof.fuzz.adapters.vllm.configuration.configuration_deviations import Reference0230
from blockproof.fuzz.opening.environments import installed
from blockproof.fuzz.opening.targets import open_calculator
from blockproof.fuzz.planning.families import read_model
from blockproof.fuzz.planning.fields import ModelError
from blockproof.fuzz.planning.parts import Serving
from blockproof.fuzz.planning.plan import Deployment, make_plan, pipeline_stages

EXAMPLES = Path(__file__).parents[3] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.json"))
GIB = 2**30
RELEASE = "vllm==0.23.0"


def plan_of(example, memory=60 * GIB, length=None, *, calculator=None, auto=False, **options):
    """A plan with our core; options of `Serving` and of `Deployment` by their names."""
    serving = Serving(
        max_model_len=length, **{k: options.pop(k) for k in list(options) if k in Serving.__annotations__}
    )
    name, family, layers = read_model(EXAMPLES / f"{example}.json", serving)
    if length is None and not auto:
        serving = replace(serving, max_model_len=layers.longest)
    memory = memory if isinstance(memory, tuple) else (memory,)
    deployment = Deployment(memory, **options)
    return make_plan(calculator or open_calculator("impl"), name, family, layers, serving, deployment)


# Figures worked out by hand.


def test_llama_31_8b():
    # A page is 16 tokens x 8 heads x (128 + 128) elements of 2 bytes; a block id costs one page of each of 32 layers.
    plan = plan_of("llama-3.1-8b", 3 * GIB, 8192)
    (group,) = plan.groups
    assert (group.page_bytes, plan.block_bytes) == (65_536, 2 * 2**20)
    assert (group.request_blocks, plan.request_blocks, plan.num_blocks) == (512, 512, 1536)
    assert (plan.concurrency, plan.capacity_tokens, plan.request_waste_bytes) == (1535 / 512, 1535 * 16, 0)
    assert plan.longest_fit_tokens == plan.longest_usable_tokens == 1535 * 16  # one block is the null block
    assert group.admission_cap_blocks is None


def test_gemma_3_27b_is_the_worked_example_of_the_chapter():
    plan = plan_of("gemma-3-27b", length=32_768, max_num_batched_tokens=2048)
    assert [len(group.layers) for group in plan.groups] == [9, 9, 9, 9, 8, 8, 10]
    assert [group.admission_cap_blocks for group in plan.groups] == [193] * 6 + [None]
    assert [group.reach_tokens for group in plan.groups] == [1024] * 6 + [None]
    assert plan.request_blocks == 2048 + 6 * 193 == 3206
    assert plan.block_bytes == 10 * 131_072
    # Four groups leave one of ten slots empty, two leave two: 8 of 70.
    assert [group.block_waste_bytes // 131_072 for group in plan.groups] == [1, 1, 1, 1, 2, 2, 0]
    assert plan.request_waste_bytes == 193 * 8 * 131_072
    assert plan.num_blocks == 60 * GIB // 1_310_720


def test_bamba_raises_its_attention_block_to_hold_a_state():
    # A state: 3 x 8448 elements of 2 bytes and 128 x 64 x 128 of 4; a token of attention: 8 x 256 x 2 bytes.
    plan = plan_of("bamba-9b", length=8192, ssm_dtype="fp32")
    attention = plan.groups[-1]
    state = 3 * 8448 * 2 + 128 * 64 * 128 * 4
    assert attention.block_size_tokens == 1040
    assert attention.page_bytes == 1040 * 4096 == 4_259_840
    assert {group.page_bytes for group in plan.groups} == {4_259_840}
    assert [group.page_padding_bytes for group in plan.groups] == [4_259_840 - state] * 10 + [0]
    assert [len(group.layers) for group in plan.groups] == [3] * 9 + [2, 3]
    assert [group.request_blocks for group in plan.groups] == [1] * 10 + [8]
    # Three states are padded in nine groups, two in the tenth, which also leaves a slot empty.
    assert plan.request_waste_bytes == 29 * (4_259_840 - state) + 4_259_840
    # A block of states stands for the whole sequence.
    assert plan.scheduler_block_size_tokens == lcm(1040, 8192)


def test_every_block_keeps_a_state_if_all_are_cached():
    plan = plan_of("bamba-9b", length=8192, ssm_dtype="fp32", mamba_cache_mode="all")
    # A multiple of the 256 tokens of a chunk.
    assert {group.block_size_tokens for group in plan.groups} == {1280}
    assert {group.request_blocks for group in plan.groups} == {7}
    aligned = plan_of("bamba-9b", length=8192, ssm_dtype="fp32", mamba_cache_mode="align")
    assert {group.block_size_tokens for group in aligned.groups} == {1040}
    assert [group.request_blocks for group in aligned.groups] == [2] * 10 + [8]
    assert (aligned.scheduler_block_size_tokens, aligned.hash_block_size_tokens) == (1040, 1040)


def test_jamba_and_nemotron_h():
    # 3 x 8192 + 8192 x 16 elements of 2 bytes are 76 tokens of 4096 bytes: five blocks of 16.
    jamba = plan_of("jamba-v0.1", length=8192)
    assert jamba.groups[-1].block_size_tokens == 80
    assert [len(group.layers) for group in jamba.groups] == [4] * 8
    assert jamba.groups[0].page_padding_bytes == (80 - 76) * 4096
    # Attention kernels take no smaller steps than 16 tokens.
    assert plan_of("jamba-v0.1", length=8192, block_size=4).groups[-1].block_size_tokens == 80
    # 3 x (8192 + 2 x 8 x 128) + 128 x 64 x 128 elements of 2 bytes: 527 tokens of 4096 bytes.
    nemotron = plan_of("nemotron-h-8b")
    assert nemotron.groups[-1].block_size_tokens == 528
    assert nemotron.groups[0].page_padding_bytes == 528 * 4096 - 2 * (3 * 10_240 + 128 * 64 * 128)


def test_whisper_holds_the_text_and_the_encoders_output():
    plan = plan_of("whisper-large-v3")
    assert [group.request_blocks for group in plan.groups] == [28, 94]  # 448 and 1500 tokens
    assert plan.block_bytes == 32 * 16 * 20 * 2 * 64 * 2
    assert not plan.prefix_caching


@pytest.mark.parametrize(
    ("example", "block_bytes", "blocks", "caps"),
    [
        ("mistral-7b-v0.1", 32 * 65_536, [769], [769]),  # (4095 + 8192) / 16, rounded up, and one
        ("gpt-oss-20b", 12 * 32_768, [521, 8192], [521, None]),  # (127 + 8192) / 16
        ("gemma-2-9b", 21 * 131_072, [513, 512], [513, None]),  # the length is less than window and step
        ("llama-4-scout", 12 * 65_536, [1024, 1024, 1024, 655_360], [1024, 1024, 1024, None]),
        ("deepseek-v3", 61 * 16 * 576 * 2, [10_240], [None]),
        ("layer-list", 10 * 65_536, [289, 289, 289, 2048], [289, 289, 289, None]),  # blocks of 32 where heads are half
    ],
)
def test_blocks_of_a_full_length_request(example, block_bytes, blocks, caps):
    plan = plan_of(example)
    assert plan.block_bytes == block_bytes
    assert [group.request_blocks for group in plan.groups] == blocks
    assert [group.admission_cap_blocks for group in plan.groups] == caps


@pytest.mark.parametrize("example", NAMES)
def test_a_plan_uses_the_memory_and_its_lengths_are_the_longest(example):
    plan = plan_of(example, 5 * GIB)
    assert plan.num_blocks * plan.block_bytes <= 5 * GIB < (plan.num_blocks + 1) * plan.block_bytes
    longest, usable = plan.longest_fit_tokens, plan.longest_usable_tokens
    assert plan_of(example, 5 * GIB, longest).fits
    assert plan_of(example, 5 * GIB, usable, strict=True).ok
    assert not plan_of(example, 5 * GIB, longest + 1).fits or longest == plan.limit_tokens
    assert not plan_of(example, 5 * GIB, usable + 1, strict=True).ok or usable == plan.limit_tokens


# The null block.


@pytest.fixture
def on_paper(monkeypatch):
    """A release's arithmetic, which does not count the null block."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1])
    return import_module("calculators").Modelled(Reference0230(), RELEASE)


def test_exactly_enough_does_not_fit():
    plan = plan_of("llama-3.1-8b", GIB, 8192)
    assert (plan.fits, plan.fits_with_null_block, plan.ok) == (False, False, False)
    assert plan.longest_fit_tokens == plan.longest_usable_tokens == 8176
    assert plan_of("llama-3.1-8b", GIB + 2 * 2**20, 8192).concurrency == 1


def test_exactly_enough_fits_on_paper_only(on_paper):
    plan = plan_of("llama-3.1-8b", GIB, 8192, calculator=on_paper)
    assert (plan.fits, plan.fits_with_null_block, plan.ok) == (True, False, True)
    (warning,) = plan.warnings
    assert "needs 512 blocks and the pool has as many, but one is the null block" in warning
    assert "8,176 tokens do fit (C-17" in warning
    assert not plan_of("llama-3.1-8b", GIB, 8192, calculator=on_paper, strict=True).ok
    with_one_more = plan_of("llama-3.1-8b", GIB + 2 * 2**20, 8192, calculator=on_paper, strict=True)
    assert with_one_more.ok
    assert with_one_more.warnings == ()


def test_a_length_can_be_found_on_paper_and_strictly(on_paper):
    assert plan_of("llama-3.1-8b", GIB, calculator=on_paper, auto=True).max_model_len_tokens == 8192
    for calculator in (on_paper, None):
        strict = plan_of("llama-3.1-8b", GIB, calculator=calculator, auto=True, strict=True)
        assert (strict.max_model_len_tokens, strict.ok) == (8176, True)
    assert plan_of("llama-3.1-8b", GIB, auto=True).max_model_len_tokens == 8176


def test_not_even_one_token():
    plan = plan_of("llama-3.1-8b", 2 * 2**20 - 1, auto=True)
    assert (plan.fits, plan.longest_fit_tokens, plan.num_blocks, plan.request_blocks) == (False, 0, 0, 1)


def test_an_override_stands_for_the_memory():
    plan = plan_of("llama-3.1-8b", 1, 8192, override_blocks=513)
    assert (plan.num_blocks, plan.ok, plan.longest_usable_tokens) == (513, True, 8192)
    assert not plan_of("llama-3.1-8b", 60 * GIB, 8192, override_blocks=511).fits


# Workers.


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, [62]), (2, [31, 31]), (3, [21, 21, 20]), (4, [15, 16, 16, 15]), (5, [12, 12, 13, 13, 12])]
)
def test_stages_are_contiguous_and_the_last_ones_are_not_the_longest(count, sizes):
    layers = read_model(EXAMPLES / "gemma-3-27b.json", Serving())[2]
    stages = pipeline_stages(layers, count)
    assert [len(stage) for stage in stages] == sizes
    assert [cache for stage in stages for cache in stage] == [cache for caches in layers.stack for cache in caches]


def test_all_workers_get_what_the_poorest_holds():
    plan = plan_of("llama-3.1-8b", (2 * GIB, GIB), 8192, pipeline_parallel=2)
    assert [worker.own_blocks for worker in plan.workers] == [2048, 1024]
    assert plan.num_blocks == 1024
    assert "worker 1 holds the fewest blocks, 1,024 where others hold up to 2,048" in plan.warnings[0]


def test_ranks_and_stages_share_a_model():
    plan = plan_of("gemma-3-27b", length=32_768, tensor_parallel=4, pipeline_parallel=2)
    assert [worker.pipeline_stage for worker in plan.workers] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert {worker.layers for worker in plan.workers} == {31}
    # Half of the layers and a quarter of the heads on each; a stage owns 5 of a group's layers at most.
    assert {worker.block_bytes for worker in plan.workers} == {5 * 131_072 // 4}
    assert plan.block_bytes == 10 * 131_072 // 4


def test_without_hybrid_memory_windows_are_kept_whole():
    plan = plan_of("gemma-3-27b", length=32_768, hybrid=False)
    (group,) = plan.groups
    assert (len(group.layers), group.spec, group.request_blocks) == (62, "FullAttentionSpec", 2048)
    assert group.reach_tokens == 1024


def test_a_length_beyond_the_models_own_is_warned_about():
    assert (
        "8,193 tokens are more than the 8,192 that the model was made for"
        in plan_of("gemma-2-9b", length=8193).warnings
    )


def test_a_target_that_refuses_the_workers_is_not_a_crash():
    class Refusing:
        name = "refusing"
        inner = open_calculator("impl")

        def ask(self, op, inputs):
            return {"raises": "AssertionError"} if op == "configs" else self.inner.ask(op, inputs)

    with pytest.raises(ModelError, match=r"^refusing refuses these layers \(configs: AssertionError\)$"):
        plan_of("llama-3.1-8b", calculator=Refusing())


# The real release.

VARIATIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "scarce": {"memory": 2 * GIB},
    "auto": {"memory": 2 * GIB, "auto": True},
    "ranks-and-stages": {"tensor_parallel": 2, "pipeline_parallel": 2},
    "fp8": {"cache_dtype": "fp8", "block_size": 32, "override_blocks": 20_000},
    "cached-states": {"mamba_cache_mode": "all", "length": 4096},
    "aligned-states": {"mamba_cache_mode": "align", "length": 4096, "pipeline_parallel": 3},
    "no-hybrid": {"hybrid": False},
}


@pytest.fixture(scope="module")
def release():
    if RELEASE not in [environment.name for environment in installed()]:
        pytest.skip(f"{RELEASE} is not installed; run: blockproof targets install {RELEASE}")
    calculator = open_calculator(RELEASE)
    yield calculator
    calculator.close()


SAME = [
    (example, variation)
    for example in NAMES
    for variation in VARIATIONS
    # An explicit list has the layers of one rank.
    if (example, variation) != ("layer-list", "ranks-and-stages")
]


@pytest.mark.parametrize(("example", "variation"), SAME)
def test_a_real_release_answers_with_the_same_plan(example, variation, release):
    """No declared deviation concerns these layers but that the null block is not counted (C-17)."""
    options = VARIATIONS[variation]
    null_block = {"fits": False, "longest_fit_tokens": 0, "concurrency": None, "capacity_tokens": None}
    plans: list[object] = []
    for calculator in (open_calculator("impl"), release):
        try:
            plan = plan_of(example, calculator=calculator, strict=True, **options)
            plans.append((replace(plan, target="", **null_block), plan.configs))
        except ModelError as error:
            plans.append(str(error).replace(calculator.name, "the target"))
    assert plans[0] == plans[1]
