"""What each rule of configurations says to bad input, and where its border lies; questions that are none."""

import pytest
from blockproof.fuzz.targets.configuration_answers import answer
from blockproof.model.config.capacity import Rules
from blockproof.model.config_json import Layer, Spec

from .questions import (
    C4,
    C128,
    LAYER_4,
    V4,
    V4_WINDOW,
    ask,
    chunk,
    cross,
    full,
    groups_of,
    hidden,
    mamba,
    merged,
    mla,
    model,
    page,
    sink,
    size,
    spec,
    verdict,
    window,
    window_mla,
)


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (full(block_size=0), "ValueError"),
        (full(block_size=-16), "ValueError"),
        (mla(compress_ratio=0), "ValueError"),
        (mla(compress_ratio=32), "ValueError"),
        (mamba(shapes=((4,), (4,))), "ValueError"),
        (full(page_size_padded=511), "AssertionError"),
        (full(page_size_padded=512 + 127, kv_quant_mode="FP8_PER_TOKEN_HEAD"), "AssertionError"),
        (mamba(page_size_padded=1), "AssertionError"),
        (window_mla(model_version="deepseek_v3"), "AssertionError"),
        ({"type": "KVCacheSpec", "block_size": 16}, "NotImplementedError"),
    ],
)
def test_a_page_that_cannot_be(raw, error):
    assert page(raw) == error


def test_a_padding_may_be_exactly_what_is_needed():
    assert size(full(page_size_padded=512)) == 512
    assert size(full(page_size_padded=640, kv_quant_mode="FP8_PER_TOKEN_HEAD")) == 640


def test_an_aligned_page_counts_scales_and_a_given_padding():
    assert size(mla(alignment=200)) == 400
    assert size(mla(alignment=200, page_size_padded=401)) == 600
    assert size(mla(alignment=200, kv_quant_mode="FP8_PER_TOKEN_HEAD")) == 400
    assert size(mla(alignment=64, kv_quant_mode="FP8_PER_TOKEN_HEAD")) == 320
    assert page(mla(alignment=256))["page_size_padded"] is None
    assert ask("resize", {"spec": mla(alignment=200), "block_size": 32})["page_size_bytes"] == 600


def test_memory_that_cannot_be_told():
    for raw, parallel in ((window(), "decode"), (window(), "prefill"), (chunk(), "decode"), (chunk(), "prefill")):
        settings = {f"{parallel}_context_parallel_size": 2}
        assert ask("max_memory", {"spec": raw, "vllm_config": settings, "max_model_lens": [1]}) == "AssertionError"
    base = spec(Spec.ATTENTION)
    assert ask("max_memory", {"spec": base, "vllm_config": {}, "max_model_lens": [1]}) == "NotImplementedError"
    assert ask("admission_cap", {"spec": full(), "draws": [[1, 1]]}) == "AttributeError"


def test_specs_that_do_not_merge_and_which_error_comes_first():
    narrow, wide, chunked = full(sliding_window=3), full(sliding_window=4), full(attention_chunk_size=4)
    assert merged(narrow, full(heads=2, sliding_window=4)) == "ValueError"
    assert merged(narrow, sink(sliding_window=4)) == "AssertionError"
    assert merged(narrow, wide) == merged(narrow, chunked, wide) == "ValueError"
    assert merged(narrow, chunked) == "AssertionError"
    assert merged(full(), full(head_size_v=4)) == merged(window(3), window(4)) == "AssertionError"
    assert merged(full(), narrow, full())["sliding_window"] == 3


def test_what_is_one_type():
    assert verdict(full(), full(heads=2))["type"] is True
    assert verdict(full(), mla())["type"] is verdict(mla(), full())["type"] is True
    assert verdict(full(), full(block_size=32))["type"] is False
    assert verdict(window(3), window(3, heads=2))["type"] is True
    assert verdict(window(3), window(4))["type"] is verdict(chunk(3), chunk(4))["type"] is False
    assert verdict(window(3), window_mla(3))["type"] is verdict(window_mla(3), window(3))["type"] is False
    assert verdict(mamba(), mamba(mamba_cache_mode="align"))["type"] is False
    assert verdict(mamba(), mamba(num_speculative_blocks=1))["type"] is False
    assert verdict(sink(), sink(heads=2))["type"] is True
    assert verdict(sink(), sink(64))["type"] is verdict(full(), sink())["type"] is False


def test_a_class_without_a_manager_is_an_error_only_among_its_like():
    encoder = spec(Spec.ENCODER)
    assert verdict(encoder, spec(Spec.ENCODER, heads=2))["type"] == {"raises": "AssertionError"}
    assert verdict(encoder, full(), encoder)["type"] is verdict(full(), encoder)["type"] is False
    assert verdict()["type"] is False
    assert verdict()["spec"] is True


def test_full_layers_with_two_windows_are_one_type():
    narrow, wide = full(sliding_window=3), full(sliding_window=4)
    assert verdict(narrow, wide) == {"spec": False, "type": True, "page": True}
    assert groups_of(narrow, wide) == [["l0", "l1"]]


def test_block_sizes_that_do_not_go_together():
    groups = {"groups": [full(block_size=64), window(block_size=32)]}
    for settings in ({"hash_block_size": 3}, {"hash_block_size": 0}, {"hash_block_size": -16}):
        assert ask("resolve_block_sizes", groups, vllm_config=settings) == "ValueError"
        unused = settings | {"enable_prefix_caching": False}
        assert ask("resolve_block_sizes", groups, vllm_config=unused) == [64, 64]
    assert ask("resolve_block_sizes", groups, vllm_config={"prefill_context_parallel_size": 2}) == "ValueError"


def test_pages_that_cannot_be_made_equal():
    assert ask("unify_page_size", model(full(heads=3), window(heads=2))) == "NotImplementedError"
    odd = mamba(shapes=((7,),), sizes=(1,))
    assert ask("unify_page_size", model(full(), odd))["specs"][1]["page_size_padded"] == 512


def test_layers_that_cannot_be_made_one_kind():
    assert ask("unify_hybrid", model(window(3), window(4))) == "ValueError"
    assert ask("unify_hybrid", model(full(), window(3), mamba())) == "ValueError"
    assert ask("unify_hybrid", model(mla(), window_mla(3), window(4, block_size=32))) == "ValueError"
    assert groups_of(full(), window(), mamba(), disable_hybrid_kv_cache_manager=True) == "ValueError"


def test_one_kind_keeps_what_the_layer_stores():
    scaled = {"kv_quant_mode": "FP8_PER_TOKEN_HEAD"}
    found = ask("unify_hybrid", model(full(**scaled), chunk(6, **scaled), window(5, **scaled)))
    assert set(found["page_sizes"]) == {640}
    assert [raw.get("attention_chunk_size") for raw in found["specs"]] == [None, 6, None]
    assert [raw.get("sliding_window") for raw in found["specs"]] == [None, None, 5]


def test_hidden_states_must_fit_the_page():
    assert groups_of(full(), window(), hidden(head_size=257)) == "ValueError"
    scaled = hidden(head_size=256, kv_quant_mode="FP8_PER_TOKEN_HEAD")
    assert groups_of(full(), window(), scaled) == "ValueError"
    assert groups_of(full(), window(), hidden(head_size=256)) == [["l0"], ["l1"], ["l2"]]
    assert groups_of(hidden(block_size=8), hidden(cache_dtype_str="x")) == [["l0"], ["l1"]]


def test_window_mla_needs_mla_of_one_type_beside_it_to_be_grouped_with_it():
    uniform = ask("groups", model(mla(), window_mla()))["groups"]
    assert all("members" in group for group in uniform)
    for others in ([mla(), window_mla(), full(heads=2, head_size=2)], [window_mla(3), window_mla(4)]):
        assert all("spec" in group for group in ask("groups", model(*others))["groups"])


def test_tuples_that_cannot_be_formed():
    assert groups_of(mla(head_size=8), window_mla(head_size=9)) == "AssertionError"
    uneven = [window_mla(head_size=4), window_mla(head_size=8), window_mla(head_size=8)]
    assert groups_of(mla(head_size=4), mla(head_size=8), *uneven) == "AssertionError"


def test_eagle_marks_the_group_of_the_last_layer():
    found = ask("groups", model(*LAYER_4, C128, V4_WINDOW, use_eagle=True))["groups"]
    assert [group.get("eagle", False) for group in found] == ["l6" in group["layers"] for group in found]
    assert not any("eagle" in group for group in ask("groups", model(mla(), window_mla(), use_eagle=True))["groups"])


def test_memory_that_is_too_little():
    inputs = model(full(), max_model_len=100)
    need = ask("needed", inputs)["sum_over_layers"] + size(full())  # and the null block
    assert ask("check_memory", inputs, available_memory=need) is None
    assert ask("check_memory", inputs, available_memory=need - 1) == "ValueError"
    assert ask("check_memory", model(cross()), available_memory=size(cross()) - 1) == "ValueError"
    assert ask("check_memory", model(cross()), available_memory=size(cross())) is None
    assert ask("estimate", model(full(), max_model_len=0), available_memory=10**9)["estimate"] == 0


def test_concurrency_without_a_need_is_infinite():
    assert ask("max_concurrency", model(cross()), num_blocks=9) == "inf"
    assert ask("max_concurrency", model(), num_blocks=9) == "inf"


def configs(specs, workers, memory, **settings):
    return ask("configs", model(*specs, **settings), workers=workers, available_memory=memory)


def test_workers_that_do_not_go_together():
    first, second = [["l0", "s0"]], [["l0", "s1"]]
    assert configs([full(), full(heads=2)], [first, second], [10**6] * 2) == "AssertionError"
    assert configs([full()], [first, first], [10**6]) == "ValueError"
    assert configs([full()], [], []) == "ValueError"
    assert configs([spec(Spec.ENCODER)], [first], [10**6]) == "ValueError"
    assert configs([cross()], [first], [511]) == "ValueError"  # nothing is needed, and yet no null block fits


def test_a_worker_without_layers_is_told_the_common_number_of_blocks():
    made = configs([full()], [[["l0", "s0"]], []], [10**6, 0])
    assert [(worker["num_blocks"], len(worker["tensors"])) for worker in made["workers"]] == [(1953, 1), (1953, 0)]
    assert made["workers"][1]["groups"] == [{"layers": [], "spec": 0}]
    empty = configs([], [[], []], [0, 0], num_gpu_blocks_override=7)
    assert empty["workers"] == [{"num_blocks": 1, "tensors": [], "groups": []}, {"same_as": 0}]


def test_an_override_is_taken_for_the_memory_it_needs():
    layers = [["l0", "s0"]]
    assert configs([full()], [layers], [1], num_gpu_blocks_override=65)["workers"][0]["num_blocks"] == 65
    assert configs([full()], [layers], [10**9], num_gpu_blocks_override=64) == "ValueError"
    assert configs([full()], [layers], [10**9], num_gpu_blocks_override=0) == "ValueError"


def test_auto_fit_takes_the_worker_with_the_least_room():
    layers = [["l0", "s0"], ["l1", "s0"]]
    settings = {"max_model_len": 10_000, "original_max_model_len": -1}
    made = configs([full()], [layers[:1], layers[1:]], [512 * 20, 512 * 10 + 1], **settings)
    assert (made["max_model_len"], made["scheduler"]["num_blocks"]) == (144, 10)
    assert configs([full()], [layers], [2 * 1024 - 1], **settings) == "ValueError"


def test_a_layer_that_was_lost_is_noticed():
    def groups(r, config, layers):
        return Rules.groups(r, config, {name: x for name, x in layers.items() if name != "l1"})

    inputs = {**model(full(), full()), "workers": [[["l0", "s0"], ["l1", "s1"]]], "available_memory": [10**9]}
    assert answer("configs", inputs, Rules(groups=groups)) == {"raises": "AssertionError"}


def test_the_scheduler_sees_one_spec_a_group_and_any_eagle_mark():
    v4 = [C4, V4_WINDOW, window_mla(258, block_size=64, head_size=512, size=1, **V4)]
    workers = [[["l0", "s0"], ["l1", "s1"]], [["l2", "s0"], ["l3", "s1"], ["l4", "s2"]]]
    made = configs(v4, workers, [10**9] * 2, use_eagle=True)
    assert [group.get("eagle", False) for group in made["scheduler"]["groups"]] == [False, False, True]
    assert all("spec" in group for group in made["scheduler"]["groups"])


# Questions that are none.


def test_an_unknown_question_is_refused():
    with pytest.raises(ValueError, match=r"expected one of page, .*, got 'pages'"):
        answer("pages", {})


def test_malformed_inputs_are_not_answered():
    with pytest.raises(TypeError, match="num_heads"):
        page(full(num_heads=1))
    with pytest.raises(ValueError, match="FullSpec"):
        page({"type": "FullSpec", "block_size": 16})
    with pytest.raises(AttributeError, match="layers"):
        ask("groups", {"specs": {}})


def test_a_spec_of_another_class_is_another_spec():
    assert Layer(Spec.FULL, 16) != Layer(Spec.TQ, 16)
