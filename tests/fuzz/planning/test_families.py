"""From a config.json to layers: figures worked out by hand from the models' own definitions, and wrong input."""

import json
from pathlib import Path

import pytest
from blockproof.fuzz.planning.families import FAMILIES, read_model
from blockproof.fuzz.planning.fields import ModelError
from blockproof.fuzz.planning.parts import Serving

EXAMPLES = Path(__file__).parents[3] / "examples"
BF16 = {"itemsize": 2}
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.json"))


def layers_of(example, **serving):
    return read_model(EXAMPLES / f"{example}.json", Serving(**serving))[2]


def caches_of(layers):
    return [cache for caches in layers.stack for cache in caches]


def types_of(layers):
    return [[spec["type"] for _, spec in caches] for caches in layers.stack]


def full(heads, size, **more):
    own = {"block_size": 16, "num_kv_heads": heads, "head_size": size, "dtype": BF16}
    return {"type": "FullAttentionSpec", **own, **more}


@pytest.fixture
def changed(tmp_path):
    """A file with an example's document, changed."""

    def write(example, **changes):
        raw = json.loads((EXAMPLES / f"{example}.json").read_text()) if example else {}
        raw |= changes
        path = tmp_path / "model.json"
        path.write_text(json.dumps({key: value for key, value in raw.items() if value is not ...}))
        return path

    return write


def read(path, **serving):
    return read_model(path, Serving(**serving))[2]


def test_there_is_an_example_of_every_kind_of_family():
    families = {read_model(EXAMPLES / f"{name}.json", Serving())[1] for name in NAMES}
    assert len(NAMES) >= 10
    assert len(families) >= 12
    assert families - {"explicit list"} <= set(FAMILIES)


@pytest.mark.parametrize(
    ("example", "layers", "heads", "size"),
    [
        ("llama-3.1-8b", 32, 8, 4096 // 32),
        ("llama-3.1-70b", 80, 8, 8192 // 64),
        ("qwen2.5-7b", 28, 4, 3584 // 28),
        ("qwen3-8b", 36, 8, 128),
    ],
)
def test_plain_decoders_have_full_attention_on_all_layers(example, layers, heads, size):
    found = layers_of(example)
    assert caches_of(found) == [(f"model.layers.{i}.self_attn.attn", full(heads, size)) for i in range(layers)]


def test_mistral_has_its_window_on_all_layers():
    window = {**full(8, 128), "type": "SlidingWindowSpec", "sliding_window": 4096}
    assert [spec for _, spec in caches_of(layers_of("mistral-7b-v0.1"))] == [window] * 32


def test_mistral_without_a_window_has_full_attention(changed):
    assert [spec for _, spec in caches_of(read(changed("mistral-7b-v0.1", sliding_window=None)))] == [full(8, 128)] * 32


@pytest.mark.parametrize(
    ("example", "windowed", "full_layers", "window"),
    [
        ("gemma-2-9b", range(0, 42, 2), range(1, 42, 2), 4096),
        ("gpt-oss-20b", range(0, 24, 2), range(1, 24, 2), 128),
        ("gpt-oss-120b", range(0, 36, 2), range(1, 36, 2), 128),
        ("gemma-3-27b", [i for i in range(62) if i % 6 != 5], range(5, 62, 6), 1024),
    ],
)
def test_which_layers_have_a_window(example, windowed, full_layers, window):
    specs = [spec for _, spec in caches_of(layers_of(example))]
    assert [i for i, spec in enumerate(specs) if spec["type"] == "SlidingWindowSpec"] == list(windowed)
    assert [i for i, spec in enumerate(specs) if spec["type"] == "FullAttentionSpec"] == list(full_layers)
    assert {spec.get("sliding_window") for spec in specs} == {window, None}


def test_listed_layer_types_count_more_than_the_familys_pattern(changed):
    inner = json.loads((EXAMPLES / "gemma-3-27b.json").read_text())["text_config"]
    inner |= {"num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]}
    assert types_of(read(changed("gemma-3-27b", text_config=inner))) == [["FullAttentionSpec"], ["SlidingWindowSpec"]]


def test_qwen_uses_its_window_only_where_it_says_so(changed):
    path = changed("qwen2.5-7b", use_sliding_window=True, max_window_layers=21)
    kinds = [kind for (kind,) in types_of(read(path))]
    assert kinds == ["FullAttentionSpec"] * 21 + ["SlidingWindowSpec"] * 7
    listed = ["sliding_attention"] * 28
    path = changed("qwen2.5-7b", use_sliding_window=False, layer_types=listed)
    assert {kind for (kind,) in types_of(read(path))} == {"FullAttentionSpec"}


def test_llama4_attends_within_chunks_where_it_has_rotary_embeddings(changed):
    specs = [spec for _, spec in caches_of(layers_of("llama-4-scout"))]
    assert [i for i, spec in enumerate(specs) if spec == full(8, 128)] == list(range(3, 48, 4))
    chunk = {**full(8, 128), "type": "ChunkedLocalAttentionSpec", "attention_chunk_size": 8192}
    assert specs.count(chunk) == 36
    inner = json.loads((EXAMPLES / "llama-4-scout.json").read_text())["text_config"]
    by_default = read(changed("llama-4-scout", text_config={**inner, "no_rope_layers": []}))
    assert caches_of(by_default) == caches_of(layers_of("llama-4-scout"))


def test_latent_attention_keeps_one_vector_on_every_rank():
    found = layers_of("deepseek-v3", tensor_parallel=8)
    latent = {"type": "MLAAttentionSpec", "block_size": 16, "num_kv_heads": 1, "head_size": 512 + 64, "dtype": BF16}
    assert [spec for _, spec in caches_of(found)] == [latent] * 61
    assert "every tensor-parallel rank keeps the whole cache" in found.notes[0]


def test_an_indexer_keeps_a_key_of_bytes_and_its_scales_beside_the_latent_vector(changed):
    path = changed("deepseek-v3", model_type="deepseek_v32", index_head_dim=128, num_hidden_layers=1)
    (_, latent), (name, indexer) = caches_of(read(path, block_size=64, cache_dtype="fp8_ds_mla"))
    assert (latent["dtype"], latent["cache_dtype_str"]) == ({"itemsize": 1}, "fp8_ds_mla")
    assert "indexer" in name
    assert indexer == {
        "type": "MLAAttentionSpec",
        "block_size": 64,
        "num_kv_heads": 1,
        "head_size": 132,
        "dtype": {"itemsize": 1},
    }


def test_jamba_keeps_mamba_1_states_on_all_but_every_eighth_layer():
    found = layers_of("jamba-v0.1")
    specs = [spec for _, spec in caches_of(found)]
    assert [i for i, spec in enumerate(specs) if spec["type"] == "FullAttentionSpec"] == [4, 12, 20, 28]
    inner = 2 * 4096
    assert specs[0]["shapes"] == [[3, inner], [inner, 16]]
    assert specs[0]["dtypes"] == [BF16, BF16]
    assert specs[0]["mamba_type"] == "MAMBA1"
    assert not found.prefix_caching


def test_bamba_keeps_mamba_2_states_on_all_but_three_layers():
    specs = [spec for _, spec in caches_of(layers_of("bamba-9b", ssm_dtype="fp32", mamba_cache_mode="align"))]
    assert [i for i, spec in enumerate(specs) if spec["type"] == "FullAttentionSpec"] == [9, 18, 27]
    # The chapter's worked layer: convolution over the inner 8192 elements and two rows of 128; 128 heads of 64 x 128.
    assert specs[0]["shapes"] == [[3, 8448], [128, 64, 128]]
    assert specs[0]["dtypes"] == [BF16, {"itemsize": 4}]
    assert specs[0]["mamba_cache_mode"] == "align"


def test_ranks_divide_states_and_copy_a_group_that_they_cannot_divide():
    shapes = {
        spec.get("shapes") and str(spec["shapes"]) for _, spec in caches_of(layers_of("bamba-9b", tensor_parallel=4))
    }
    # One group becomes four: (8192 + 2 * 4 * 128) / 4.
    assert str([[3, 2304], [32, 64, 128]]) in shapes


def test_nemotron_h_has_a_letter_for_each_layer_and_no_cache_for_feed_forward():
    kinds = types_of(layers_of("nemotron-h-8b"))
    assert [i for i, kind in enumerate(kinds) if kind == ["FullAttentionSpec"]] == [7, 18, 29, 40]
    assert (kinds.count(["MambaSpec"]), kinds.count([])) == (24, 24)
    state = next(spec for _, spec in caches_of(layers_of("nemotron-h-8b")) if spec["type"] == "MambaSpec")
    assert state["shapes"] == [[3, 128 * 64 + 2 * 8 * 128], [128, 64, 128]]


def test_whisper_keeps_its_text_and_what_the_encoder_said():
    found = layers_of("whisper-large-v3")
    assert types_of(found) == [["FullAttentionSpec", "CrossAttentionSpec"]] * 32
    assert caches_of(found)[0] == ("model.decoder.layers.0.self_attn.attn", full(20, 64))
    assert (found.encoder_tokens, found.longest, found.prefix_caching) == (1500, 448, False)


def test_ranks_share_the_heads_and_keep_at_least_one():
    for ranks, heads in ((1, 8), (4, 2), (8, 1), (16, 1)):
        found = layers_of("llama-3.1-8b", tensor_parallel=ranks)
        assert caches_of(found)[0][1]["num_kv_heads"] == heads
        assert bool(found.notes) == (ranks > 8)


@pytest.mark.parametrize(
    ("serving", "fields"),
    [
        ({"dtype": "fp32"}, {"dtype": {"itemsize": 4}}),
        ({"cache_dtype": "fp8_e4m3"}, {"dtype": {"itemsize": 1}, "kv_quant_mode": "FP8_PER_TENSOR"}),
        ({"cache_dtype": "nvfp4"}, {"dtype": {"itemsize": 1}, "kv_quant_mode": "NVFP4"}),
        ({"cache_dtype": "int8_per_token_head"}, {"dtype": {"itemsize": 1}, "kv_quant_mode": "INT8_PER_TOKEN_HEAD"}),
        ({"dtype": "fp32", "cache_dtype": "bf16"}, {"dtype": {"itemsize": 2}}),
        ({"block_size": 64}, {"block_size": 64}),
    ],
)
def test_what_the_one_who_serves_chooses(serving, fields):
    assert caches_of(layers_of("qwen3-8b", **serving))[0][1] == full(8, 128, **fields)


def test_wide_weights_are_served_in_16_bits_and_that_is_said(changed):
    found = read(changed("gemma-2-9b", torch_dtype="float32"))
    assert caches_of(found)[0][1]["dtype"] == BF16
    assert "the weights are float32" in found.notes[0]
    assert "names no dtype" in read(changed("gemma-2-9b", torch_dtype=...)).notes[0]


@pytest.mark.parametrize(
    ("example", "longest"), [("deepseek-v3", 163_840), ("gpt-oss-20b", 131_072), ("llama-3.1-8b", 131_072)]
)
def test_the_length_a_model_was_made_for_is_not_extended_twice(example, longest):
    assert layers_of(example).longest == longest


@pytest.mark.parametrize("field", ["rope_scaling", "rope_parameters"])
def test_yarn_extends_a_length_that_does_not_say_so_itself(field, changed):
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    assert read(changed("qwen2.5-7b", **{field: yarn})).longest == 131_072
    with pytest.raises(ModelError, match=r"field 'factor' must be in 1 \.\. 10,000, got -4"):
        read(changed("qwen2.5-7b", **{field: {**yarn, "factor": -4}}))


def test_a_name_is_one_line_whatever_the_file_says(changed):
    name, _, _ = read_model(changed("llama-3.1-8b", _name_or_path="a\n[bold]b\ud800"), Serving())
    assert name == "a [bold]b?"


# An explicit list.


def test_an_explicit_list_counts_repeats_patterns_and_fills_in_numbers():
    caches = caches_of(layers_of("layer-list"))
    assert [name for name, _ in caches][:2] == ["model.layers.0.attn", "model.layers.1.attn"]
    assert [name for name, _ in caches][-3:] == ["model.layers.31.attn", "draft.first", "draft.last"]
    assert [spec["type"] for _, spec in caches[:4]] == ["SlidingWindowSpec"] * 3 + ["FullAttentionSpec"]
    assert caches[3][1] == caches[-1][1] == full(8, 128)


FULL = {"name": "a", "type": "FullAttentionSpec", "num_kv_heads": 2, "head_size": 64}
STATE = {"name": "m", "type": "MambaSpec", "shapes": [[3, 8]], "dtypes": ["bf16"]}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"layers": 3}, "field 'layers' must be an array, got 3"),
        ({"layers": [3]}, "layers[0]: must be an object, got 3"),
        ({"layers": [{"name": "a"}]}, "layers[0]: field 'type' is missing"),
        ({"layers": [{"name": "a", "type": "Attention"}]}, "layers[0]: unknown type 'Attention'; known are FullAtt"),
        ({"layers": [{**FULL, "head_size": None}]}, "layers[0]: field 'head_size' of FullAttentionSpec is missing"),
        ({"layers": [{**FULL, "heads": 3}]}, "layers[0]: unknown field 'heads'; FullAttentionSpec has num_kv_heads"),
        ({"layers": [{**FULL, "block_size": 0}]}, "layers[0]: field 'block_size' must be in 1 .."),
        ({"layers": [{**FULL, "dtype": "int3"}]}, "layers[0]: field 'dtype' is 'int3'; write"),
        ({"layers": [{**FULL, "dtype": {"itemsize": 3}}]}, "elements have 1, 2, 4, 8 or 16 bytes, not 3"),
        ({"layers": [{**FULL, "dtype": "fp8_ds_mla"}]}, "fp8_ds_mla is for latent attention"),
        ({"layers": [{**FULL, "kv_quant_mode": "FP3"}]}, "field 'kv_quant_mode' is 'FP3'; known are NONE"),
        ({"layers": [FULL, FULL]}, "layers[1]: layer 'a' is named twice"),
        ({"layers": [{**FULL, "count": 2}]}, "layers[0]: name 'a' stands for 2 layers; write {}"),
        ({"layers": [{**FULL, "name": "{}", "count": 10_001}]}, "field 'count' must be in 1 .. 10,000"),
        ({"layers": [{**FULL, "name": f"{i}.{{}}", "count": 9_000} for i in (0, 1)]}, "more than 10,000 layers"),
        ({"layers": [{"name": "a", "spec": "f"}]}, "layers[0]: 'f' is not in 'specs'; known are none"),
        ({"layers": [{"name": "a{}", "pattern": []}]}, "layers[0]: field 'pattern' must name at least one spec"),
        ({"layers": [FULL], "layer": []}, "unknown field 'layer'; an explicit list has"),
        ({"layers": [FULL], "max_model_len": None}, "field 'max_model_len' is missing; or say --max-model-len"),
        ({"layers": [{**STATE, "shapes": [[0]]}]}, "field 'shapes' must hold arrays of sizes of at least 1, got [0]"),
        ({"layers": [{**STATE, "mamba_cache_mode": "all"}]}, "is 'all', --mamba-cache-mode says 'none'"),
    ],
)
def test_a_wrong_list_is_refused_in_one_line_that_says_where(document, problem, changed):
    path = changed(None, **{"max_model_len": 64, **document})
    with pytest.raises(ModelError) as caught:
        read(path)
    assert problem in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_the_heads_of_an_explicit_list_are_not_divided():
    with pytest.raises(ModelError, match="the layers of one tensor-parallel rank: divide the heads in the file"):
        layers_of("layer-list", tensor_parallel=2)


# Wrong config.json files.


@pytest.mark.parametrize(
    ("example", "changes", "serving", "problem"),
    [
        (None, {}, {}, "unknown family: model_type None, architectures None; known are llama"),
        ("llama-3.1-8b", {"model_type": "opt"}, {}, "model_type 'opt', architectures ['LlamaForCausalLM']; known are"),
        ("llama-3.1-8b", {"model_type": ["llama"]}, {}, "unknown family: model_type ['llama']"),
        ("llama-3.1-8b", {"num_hidden_layers": ...}, {}, "field 'num_hidden_layers' is missing"),
        ("llama-3.1-8b", {"num_hidden_layers": 10**30}, {}, "must be in 1 .. 10,000, got 1000"),
        ("llama-3.1-8b", {"num_hidden_layers": True}, {}, "must be a whole number, got true"),
        ("llama-3.1-8b", {"num_attention_heads": 0}, {}, "field 'num_attention_heads' must be in 1 .."),
        ("llama-3.1-8b", {"num_key_value_heads": "8"}, {}, 'must be a whole number, got "8"'),
        ("llama-3.1-8b", {"hidden_size": 4097}, {}, "hidden_size (4,097) cannot be divided by num"),
        ("llama-3.1-8b", {"max_position_embeddings": -1}, {}, "'max_position_embeddings' must be in 1 .."),
        ("llama-3.1-8b", {"torch_dtype": "int4"}, {}, "field 'torch_dtype' is 'int4'"),
        ("llama-3.1-8b", {}, {"tensor_parallel": 3}, "cannot be divided by the tensor-parallel size (3)"),
        (
            "llama-3.1-8b",
            {"num_attention_heads": 48, "num_key_value_heads": 12},
            {"tensor_parallel": 8},
            "(12) and the tensor-parallel size (8) do not divide",
        ),
        ("llama-3.1-8b", {}, {"cache_dtype": "fp8_ds_mla"}, "for models with latent attention (deepseek) only"),
        ("gpt-oss-20b", {"layer_types": ["full_attention"]}, {}, "names 1 layers, num_hidden_layers says 24"),
        ("gpt-oss-20b", {"num_hidden_layers": 1, "layer_types": ["linear"]}, {}, "layer_types[0] is 'linear'"),
        ("gpt-oss-20b", {"sliding_window": None}, {}, "field 'sliding_window' is missing"),
        ("gemma-3-27b", {"text_config": 3}, {}, "field 'text_config' must be an object, got 3"),
        ("deepseek-v3", {"index_head_dim": 100}, {}, "index_head_dim (100) cannot be divided by"),
        ("jamba-v0.1", {"attn_layer_offset": 8}, {}, "'attn_layer_offset' (8) must be less than attn_layer_period (8)"),
        ("jamba-v0.1", {"mamba_d_conv": 1}, {}, "field 'mamba_d_conv' must be in 2 .."),
        ("bamba-9b", {"attn_layer_indices": [32]}, {}, "names layer 32; layers are 0 .. 31"),
        ("bamba-9b", {"mamba_ssm_cache_dtype": "int8"}, {}, "field 'mamba_ssm_cache_dtype' is 'int8'; known are auto"),
        ("nemotron-h-8b", {"num_hidden_layers": 51}, {}, "has 52 letters, num_hidden_layers says 51"),
        ("nemotron-h-8b", {"num_hidden_layers": 1, "hybrid_override_pattern": "?"}, {}, "pattern[0] is '?'"),
        (
            "nemotron-h-8b",
            {"mamba_num_heads": 30},
            {"tensor_parallel": 4},
            "the number of heads (30) cannot be divided",
        ),
    ],
)
def test_a_wrong_config_is_refused_in_one_line_that_says_where(example, changes, serving, problem, changed):
    path = changed(example, **changes)
    with pytest.raises(ModelError) as caught:
        read(path, **serving)
    assert problem in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nope", "not JSON: Expecting value"),
        ('{"layers": [' + "[" * 100_000, "not JSON"),
        ('{"num_hidden_layers": ' + "9" * 5000 + "}", "not JSON"),
        ("\x00\x01", "not JSON"),
        ("[]", "expected an object, as in a config.json, got list"),
    ],
)
def test_a_file_that_is_no_description_is_refused(text, problem, tmp_path):
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(ModelError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: {problem}")
    assert "\n" not in str(caught.value)


def test_a_folder_and_a_missing_file_are_refused(tmp_path):
    with pytest.raises(ModelError, match=r"is a directory; name a config\.json file in it"):
        read(tmp_path)
    with pytest.raises(ModelError, match="no such file"):
        read(tmp_path / "none.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError, match="not JSON"):
        read(tmp_path / "binary.json")
