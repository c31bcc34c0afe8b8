"""Plans: figures worked out by hand, the null block, several workers, wrong input, and what a real release says."""

import json
import sys
from dataclasses import replace
from importlib import import_module
from math import lcm
from pathlib import Path
from typing import Any

import pytest
from blockproof.fuzz.adapters.vllm.configuration_deviations import Reference0230
from blockproof.fuzz.cli import main as cli
from blockproof.fuzz.cli.plan import parse_memory
from blockproof.fuzz.opening.environments import installed
from blockproof.fuzz.opening.targets import open_calculator
from blockproof.fuzz.planning.families import read_model
from blockproof.fuzz.planning.fields import ModelError
from blockproof.fuzz.planning.parts import Serving
from blockproof.fuzz.planning.plan import Deployment, make_plan, pipeline_stages
from blockproof.fuzz.targets.base import TargetLostError

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


@pytest.fixture
def wrong(tmp_path):
    """A file with this document."""

    def write(document):
        path = tmp_path / "model.json"
        path.write_text(json.dumps({"max_model_len": 64, **document}))
        return str(path)

    return write


def run(capsys, *arguments):
    """Exit code and the two outputs of `blockproof plan`."""
    code = cli.main(["plan", *map(str, arguments)])
    return code, *capsys.readouterr()


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


def test_a_target_that_is_lost_exits_with_3(capsys, monkeypatch):
    class Lost:
        name = "lost"

        def ask(self, op, inputs):
            raise TargetLostError("crash", "exit status 1")

        def close(self):
            pass

    monkeypatch.setattr("blockproof.fuzz.opening.targets.open_calculator", lambda spec, isolate: Lost())
    code, out, err = run(capsys, LLAMA, "--memory", "1GiB")
    assert (code, out) == (3, "")
    assert err == "blockproof: impl was lost while it was asked: crash: exit status 1\n"


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


# The command line.


def test_the_table_says_what_is_planned_and_whether_it_fits(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run(capsys, EXAMPLES / "gemma-3-27b.json", "--memory", "60GiB", "--max-model-len", "131072")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "google/gemma-3-27b-it (gemma3_text, 62 cached layers), figures of impl"
    assert "0-3   4 x 9  window 1,024     16 131,072       -   10.0 %    577 4 x 577" in lines
    assert "6     10     full             16 131,072       -        -      -   8,192" in lines
    assert lines[-1] == "fits: 4.22 requests of 131,072 tokens at once"


def test_help_has_an_example(capsys):
    code, out, _ = run(capsys, "-h")
    assert code == 0
    assert "Example: blockproof plan examples/" in out


def test_what_does_not_fit_exits_with_1_and_names_the_length_that_does(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = run(capsys, EXAMPLES / "llama-3.1-8b.json", "--memory", "1GiB", "--max-model-len", "8193")
    assert code == 1
    assert "does not fit: a request of 8,193 tokens needs 513 blocks, the pool has 512; the longest that" in out
    assert "the longest that fits is 8,176 tokens" in out
    code, out, _ = run(capsys, EXAMPLES / "llama-3.1-8b.json", "--memory", "1MiB", "--max-model-len", "auto")
    assert code == 1
    assert "not even one token fits" in out


def test_the_null_block_counts_whether_or_not_it_is_asked_for(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    arguments = [EXAMPLES / "llama-3.1-8b.json", "--memory", "1GiB", "--max-model-len", "8192"]
    for options in ((), ("--strict",)):
        code, out, _ = run(capsys, *arguments, *options)
        assert code == 1
        assert "needs 513 blocks, the null block counted, the pool has 512" in out
        assert "the longest that fits is 8,176 tokens" in out


def test_the_document_for_machines_has_the_documented_fields(capsys):
    arguments = [EXAMPLES / "gemma-3-27b.json", "--memory", "60GiB", "--workers", "2", "--json"]
    code, out, err = run(capsys, *arguments)
    document = json.loads(out)
    assert (code, err, document["ok"]) == (0, "", True)
    described = (EXAMPLES.parent / "docs" / "guide" / "plan.md").read_text()
    shown = [*document, *document["groups"][0], *document["workers"][0]]
    assert [name for name in shown if f"`{name}`" not in described] == []
    # Whatever is counted says what it counts.
    units = ("_bytes", "_blocks", "_tokens", "_percent")
    bare = {"layers", "group", "worker", "pipeline_stage"}
    for record in (document, *document["groups"], *document["workers"]):
        for name, value in record.items():
            assert type(value) is not int or name.endswith(units) or name in bare, name
    assert document["max_model_len_tokens"] == 131_072
    assert [worker["memory_bytes"] for worker in document["workers"]] == [60 * GIB] * 2


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1048576", 2**20),
        ("1B", 1),
        ("60GiB", 60 * GIB),
        ("80 GB", 80 * 10**9),
        ("1.5TiB", 3 * 2**39),
        ("512mib", 2**29),
        ("1EiB", None),
    ],
)
def test_sizes_of_memory(text, size, capsys):
    if size is None:
        code, _, err = run(capsys, EXAMPLES / "llama-3.1-8b.json", "--memory", text)
        assert code == 2
        assert "is not a size" in err
    else:
        assert parse_memory(text) == size


LLAMA = str(EXAMPLES / "llama-3.1-8b.json")
FULL = {"name": "a", "type": "FullAttentionSpec", "num_kv_heads": 3, "head_size": 64}
WINDOW = {"name": "b", "type": "SlidingWindowSpec", "num_kv_heads": 2, "head_size": 64, "sliding_window": 5}
STATE = {"name": "m", "type": "MambaSpec", "shapes": [[3, 8]], "dtypes": ["bf16"]}


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--memory", "-5GiB"], "--memory: '-5GiB': there must be more than 0 bytes"),
        (["--memory", "0"], "--memory: '0': there must be more than 0 bytes"),
        (["--memory", "plenty"], "--memory: 'plenty' is not a size; write bytes, or as in 60GiB"),
        (["--memory", "60G"], "'60G' is not a size"),
        (["--memory", "40"], "--memory: 40 is 40 bytes; did you mean 40GiB?"),
        (["--memory", "1GiB, 1048575"], "--memory: 1048575 is 1048575 bytes; did you mean"),
        (["--memory", ""], "'' is not a size"),
        (["--memory", "nan"], "'nan' is not a size"),
        (["--memory", "9" * 40 + "GiB"], "is more than 1 EiB"),
        (["--memory", "99999999999GiB"], "is more than 1 EiB"),
        (["--memory", "1GiB,2GiB"], "--memory names 2 workers, there are 1"),
        (["--memory", "1GiB,"], "'' is not a size"),
        (["--max-model-len", "0"], "--max-model-len: 0: must be in 1 .."),
        (["--max-model-len", "-2"], "--max-model-len: -2: must be in 1 .."),
        (["--max-model-len", "9" * 30], "must be in 1 .."),
        (["--max-model-len", "9" * 5000], "is not a number of tokens"),
        (["--max-model-len", "soon"], "--max-model-len: 'soon' is not a number of tokens; write one, or auto"),
        (["--block-size", "0"], "--block-size"),
        (["--block-size", "99999999999999999999"], "--block-size"),
        (["--max-num-batched-tokens", "0"], "--max-num-batched-tokens"),
        (["--override-blocks", "0"], "--override-blocks"),
        (["--tensor-parallel", "0"], "--tensor-parallel"),
        (["--tensor-parallel", "3"], "cannot be divided by the tensor-parallel size (3)"),
        (["--pipeline-parallel", "33"], "33 pipeline stages for 32 layers"),
        (["--pipeline-parallel", "1024", "--tensor-parallel", "32"], "32,768 workers; at most 1,024"),
        (["--workers", "2", "--tensor-parallel", "2"], "--workers: give either it, or --tensor-parallel"),
        (["--dtype", "int4"], "--dtype: 'int4' is unknown; choose from auto, bf16"),
        (["--cache-dtype", "int4"], "--cache-dtype: 'int4' is unknown; choose from auto, bf16"),
        (["--mamba-ssm-cache-dtype", "fp8"], "--mamba-ssm-cache-dtype: 'fp8' is unknown"),
        (["--mamba-cache-mode", "some"], "--mamba-cache-mode"),
        (["--target", "our core"], "--target: unknown target 'our core'"),
    ],
)
def test_wrong_options_are_refused_in_one_line(arguments, part, capsys):
    memory = [] if "--memory" in arguments else ["--memory", "1GiB"]
    _expect_one_line(run(capsys, LLAMA, *memory, *arguments), part)


@pytest.mark.parametrize(
    ("document", "options", "part"),
    [
        ({"layers": []}, [], "no layer of this model keeps a cache"),
        ({"layers": [FULL, WINDOW]}, [], "pages of 8,192 and 12,288 bytes cannot be made equal: each must divide"),
        ({"layers": [FULL, STATE]}, ["--no-hybrid"], "--no-hybrid: all layers must become one kind, and these cannot"),
        ({"layers": [{**FULL, "page_size_padded": 7}]}, [], "layer 'a': impl refuses its spec (AssertionError)"),
        ({"layers": [{**STATE, "dtypes": ["bf16"] * 2}]}, [], "layer 'm': impl refuses its spec (ValueError)"),
        ({"layers": [{**FULL, "num_kv_heads": 2**30}]}, [], "layer 'a': a block takes 4,398,046,511,104 bytes; check"),
        ({"layers": [FULL, FULL]}, [], "layers[1]: layer 'a' is named twice"),
        ({"model_type": "opt"}, [], "unknown family: model_type 'opt'"),
    ],
)
def test_wrong_models_are_refused_in_one_line(document, options, part, wrong, capsys):
    _expect_one_line(run(capsys, wrong(document), "--memory", "1GiB", *options), part)


def test_missing_files_and_options_are_refused_in_one_line(capsys, tmp_path):
    _expect_one_line(run(capsys, "none.json", "--memory", "1GiB"), "none.json: no such file")
    _expect_one_line(run(capsys, tmp_path, "--memory", "1GiB"), "is a directory; name the config.json in it")
    _expect_one_line(run(capsys, LLAMA), "Missing option '--memory'")


def _expect_one_line(result, part):
    code, out, err = result
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("blockproof: ")
    assert part in line


# The dry run.


def test_a_dry_run_without_torch_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    code, out, err = run(capsys, LLAMA, "--memory", "60GiB", "--dry-run")
    assert (code, out) == (3, "")
    assert err.splitlines() == [
        "blockproof: --dry-run needs torch, which the extra `tensors` brings: pip install 'blockproof[tensors]'"
    ]


def test_a_dry_run_of_what_does_not_fit_says_so(capsys):
    code, _, err = run(capsys, LLAMA, "--memory", "1GiB", "--max-model-len", "8193", "--dry-run")
    assert code == 1
    assert err == "blockproof: nothing to allocate: the plan does not fit\n"


@pytest.mark.parametrize("example", NAMES)
def test_a_dry_run_lays_out_every_layer(example, capsys):
    pytest.importorskip("torch")
    path = EXAMPLES / f"{example}.json"
    code, out, _ = run(
        capsys, path, "--memory", "60GiB", "--max-model-len", "auto", "--pipeline-parallel", "2", "--dry-run", "--json"
    )
    document = json.loads(out)
    assert code == 0
    assert document["dry_run"]["workers"] == 2
    assert document["dry_run"]["layers"] == sum(len(group["layers"]) for group in document["groups"])
    assert document["dry_run"]["bytes"] == document["num_blocks"] * document["block_bytes"]
