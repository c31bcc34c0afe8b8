"""The model of vLLM 0.23.0 answers what the release was measured to answer, and tells which deviations did it."""

import json
from pathlib import Path

import pytest
from blockproof.fuzz.adapters.vllm.configuration.configuration_deviations import CONFIGURATION_DEVIATIONS, Reference0230
from blockproof.fuzz.targets.configuration_answers import QUESTIONS
from blockproof.fuzz.targets.configuration_answers import answer as right_answer

VECTORS = Path(__file__).resolve().parents[3] / ".." / "shared" / "vectors"
IDS = [deviation.id for deviation in CONFIGURATION_DEVIATIONS]


def vectors():
    found = [case for path in sorted(VECTORS.glob("*.json")) for case in json.loads(path.read_text())]
    return [pytest.param(case, id=case["case"]) for case in found if case["op"] in QUESTIONS]


@pytest.mark.parametrize("case", vectors())
def test_the_reference_answers_what_was_measured(case):
    reference = Reference0230()
    answer = reference.answer(case["op"], case["inputs"])
    measured = {name: case[name] for name in ("output", "raises") if name in case}
    assert json.dumps(answer, sort_keys=True) == json.dumps(measured, sort_keys=True)  # 3 and 3.0 differ here
    later = {"C-17", "S-20"}  # the vectors are older than these rules, which may refuse what a release refuses wrongly
    if "deviation" in case and answer != right_answer(case["op"], case["inputs"]):
        assert reference.fired <= reference.seen
        assert case["deviation"] in reference.seen
        assert reference.fired
    else:
        assert reference.fired <= later


def spec(name, block_size=16, heads=1, head_size=8, size=2, **fields):
    attention = {"num_kv_heads": heads, "head_size": head_size, "dtype": {"itemsize": size}}
    return {"type": f"{name}Spec", "block_size": block_size, **attention, **fields}


def full(**fields):
    return spec("FullAttention", **fields)


def window(w=5, **fields):
    return spec("SlidingWindow", sliding_window=w, **fields)


def chunk(k=6, **fields):
    return spec("ChunkedLocalAttention", attention_chunk_size=k, **fields)


def mla(**fields):
    return spec("MLAAttention", **fields)


def window_mla(w=5, **fields):
    return spec("SlidingWindowMLA", sliding_window=w, **fields)


def mamba(shapes=((4,),), **fields):
    return {"type": "MambaSpec", "block_size": 16, "shapes": list(shapes), "dtypes": [{"itemsize": 2}], **fields}


def model(*specs, **more):
    """Inputs about layers l0, l1, … with these specs."""
    table = {f"s{i}": raw for i, raw in enumerate(specs)}
    return {"specs": table, "layers": [[f"l{i}", f"s{i}"] for i in range(len(specs))], "vllm_config": {}, **more}


def workers(memory, *stages, **settings):
    """Inputs about workers that each have these specs, in layers that are counted through."""
    specs = [raw for stage in stages for raw in stage]
    layers = iter(model(*specs)["layers"])
    split = [[next(layers) for _ in stage] for stage in stages]
    return model(*specs, workers=split, available_memory=memory, vllm_config=settings)


SINK, CROSS = spec("SinkFullAttention", sink_len=64), spec("CrossAttention")
SCALED = {"kv_quant_mode": "FP8_PER_TOKEN_HEAD"}
HIDDEN = [spec("HiddenStateCache", block_size=8), spec("HiddenStateCache", cache_dtype_str="x")]
V4 = {"head_size": 512, "size": 1, "cache_dtype_str": "fp8_ds_mla", "model_version": "deepseek_v4", "alignment": 576}
UNIFORM = {"type": "UniformTypeKVCacheSpecs", "block_size": 16, "kv_cache_specs": [["a", full()]]}
SAME_LAYER = model(window_mla(), window_mla(head_size_v=8), available_memory=[10**6] * 2)
SAME_LAYER["workers"] = [[["l", "s0"]], [["l", "s1"]]]
SHARED = model(mla(), window_mla(head_size=5), shared_objects=True)
SHARED["layers"].append(["l2", "s1"])
PARALLEL = {"vllm_config": {"decode_context_parallel_size": 2}, "max_model_lens": [9]}
SPREAD = {
    "groups": [{"kind": "full", "block_size": 16}],
    "num_blocks": 4,
    "max_model_len": 64,
    "hash_block_size": 16,
    "scheduler_block_size": 16,
    "max_num_batched_tokens": 64,
    "caching": False,
    "decode_parallel": 2,
}

# id: op, inputs, where to look in the output, what the release has there or raises (measured), what the chapter wants
EXAMPLES = {
    "S-01": ("uniformity", model(mla(), mla(heads=2)), "spec", True, False),
    "S-02": ("uniformity", model(full(), full(head_size_v=4)), "spec", True, False),
    "S-03": ("merge", {"specs": [mla(sliding_window=7)]}, "sliding_window", None, 7),
    "S-04": ("uniformity", model(full(), spec("TQFullAttention")), "spec", True, False),
    "S-05": ("groups", model(full(sliding_window=3), full(sliding_window=4)), "groups 0 layers 1", "ValueError", "l1"),
    "S-06": ("page", {"spec": mla(alignment=256, page_size_padded=300)}, "page_size_bytes", 300, 512),
    "S-07": ("page", {"spec": mamba([(4,), (8,)])}, "page_size_bytes", 8, "ValueError"),
    "S-08": ("uniformity", model(window(), window_mla()), "type", True, False),
    "S-09": ("uniformity", model(mamba(), mamba(mamba_cache_mode="align")), "type", True, False),
    "S-10": ("page", {"spec": mla(compress_ratio=32)}, "page_size_bytes", 0, "ValueError"),
    "S-11": ("page", {"spec": full(kv_quant_mode="NVFP4")}, "page_size_bytes", 256, 320),
    "S-12": ("resize", {"spec": UNIFORM, "block_size": 32}, "page_size_bytes", 512, 1024),
    "S-13": ("admission_cap", {"spec": chunk(6, block_size=4), "draws": [[2, 100]]}, "0", 2, 3),
    "S-15": ("max_memory", {"spec": chunk(), **PARALLEL}, "0", 512, "AssertionError"),
    "S-16": ("uniformity", model(full(heads=2), SINK), "type", True, False),
    "S-19": ("configs", SAME_LAYER, "scheduler num_blocks", "AssertionError", 3906),
    "S-20": ("page", {"spec": mla(**SCALED)}, "page_size_bytes", 384, 320),
    "C-01": (
        "hash_list",
        {"hashes": ["aa", "bb", "cc"], "hash_block_size": 1, "target_block_size": 2, "indices": [-1]},
        "items 0",
        "",
        "aabb",
    ),
    "C-02": (
        "resolve_block_sizes",
        {"groups": [full(), window()], "vllm_config": {"hash_block_size": -4}},
        "1",
        -4,
        "ValueError",
    ),
    "C-03": ("resolve_block_sizes", {"groups": [full(block_size=32)]}, "0", 16, 32),
    "C-04": ("unify_page_size", model(full(), mamba()), "page_sizes 1", "AssertionError", 512),
    "C-05": ("groups", model(*HIDDEN), "groups 1 layers 0", "ValueError", "l1"),
    "C-06": ("groups", model(window_mla(3), window_mla(4)), "groups 1 layers 0", "AssertionError", "l1"),
    "C-07": ("groups", SHARED, "groups 1 layers 0", "KeyError", "l1"),
    "C-08": ("needed", model(mla(), mla(), mla(head_size=4), window_mla()), "from_groups", 75_264, 63_360),
    "C-09": (
        "configs",
        workers([10**9] * 2, [mla(**V4)], [mla(**V4), window_mla(**V4)], use_eagle=True),
        "scheduler groups 1 eagle",
        None,
        True,
    ),
    "C-10": ("configs", workers([10**6] * 2, [full()], []), "workers 1 num_blocks", "AssertionError", 1953),
    "C-11": ("config_from_groups", model(full(), full(heads=2), available_memory=-1), "num_blocks", -1, 0),
    "C-12": (
        "config_from_groups",
        model(mamba(), mamba([(8,)]), available_memory=240),
        "has_mamba_layers",
        False,
        True,
    ),
    "C-13": ("unify_hybrid", model(full(**SCALED), chunk(**SCALED)), "page_sizes 1", 512, 640),
    "C-14": ("configs", workers([10**6], [full()], [full()]), "scheduler num_blocks", 1953, "ValueError"),
    "C-15": ("estimate", model(full(), vllm_config={"max_model_len": 0}, available_memory=1024), "estimate", 1, 0),
    "C-16": ("max_concurrency", model(CROSS, num_blocks=9), "", "ZeroDivisionError", "inf"),
    "C-17": ("estimate", model(full(), vllm_config={"max_model_len": 16}, available_memory=512), "estimate", 16, 0),
    "C-18": ("build", {"shape": SPREAD}, "", None, "AssertionError"),
}


def look(answer, where):
    """The part of the output at this place, None where there is nothing, or the name of the exception."""
    found = answer.get("output", answer.get("raises"))
    for step in where.split() if "output" in answer else []:
        found = found[int(step)] if isinstance(found, list) else found.get(step)
    return found


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_deviation_shows_in_its_example_and_is_named(name):
    op, inputs, where, released, wanted = EXAMPLES[name]
    reference = Reference0230()
    assert look(reference.answer(op, inputs), where) == released
    assert look(right_answer(op, inputs), where) == wanted
    assert reference.fired == {name}


def test_every_declared_deviation_has_an_example_and_words():
    assert list(EXAMPLES) == IDS
    for deviation in CONFIGURATION_DEVIATIONS:
        assert len(deviation.reason) > 20
        assert len(deviation.condition) > 10


def test_nothing_fires_where_the_answers_agree():
    reference = Reference0230()
    aligned = model(mla(**V4), window_mla(**V4), window_mla(**V4), vllm_config={"max_model_len": 100})
    for op in ("groups", "uniformity", "unify_page_size"):
        assert reference.answer(op, aligned) == right_answer(op, aligned)
    assert reference.fired == set()


def test_scales_are_paid_for_also_where_no_whole_compressed_token_is_stored():
    odd = mla(block_size=64, compress_ratio=128, **SCALED)  # measured: two float32 for each of 64 tokens
    assert look(Reference0230().answer("page", {"spec": odd}), "page_size_bytes") == 512


def test_a_deviation_is_named_where_another_one_would_have_ended_in_the_same_error():
    """The release stops at the worker without layers (C-10), before its scales (S-20) do not fit on the others."""
    latent = mla(block_size=1, head_size=72, **SCALED)
    both = workers([0, 871_509, 38_278], [], [latent], [latent, latent], max_model_len=127)
    reference = Reference0230()
    assert reference.answer("configs", both) == {"raises": "ValueError"}
    assert "output" in right_answer("configs", both)
    assert reference.fired == {"C-10", "S-20"}


def test_what_fired_is_kept_until_it_is_cleared():
    reference = Reference0230()
    for name in ("S-13", "C-03"):
        reference.answer(*EXAMPLES[name][:2])
    reference.answer("page", {"spec": full()})
    assert reference.fired == {"S-13", "C-03"}
    reference.fired.clear()
    reference.answer("page", {"spec": full()})
    assert reference.fired == set()


def test_the_deviating_model_crashes_where_the_release_does():
    draws = {"spec": full(block_size=0), "vllm_config": {}, "max_model_lens": [1]}
    assert Reference0230().answer("max_memory", draws) == {"raises": "ZeroDivisionError"}
    assert right_answer("max_memory", draws) == {"raises": "ValueError"}
