"""The pieces of a core, each by itself: what the model answers in cases that can be worked out by hand."""

import pytest

from .questions import ask, chunk, cross, full, mamba, mla, model, sink, window
from .questions import hidden as hidden_states

UNIFORM = {"type": "UniformTypeKVCacheSpecs", "block_size": 16}


def queue(free, *steps, blocks=6):
    return ask("free_queue", {"blocks": blocks, "free": free, "steps": [list(step) for step in steps]})


def registered(classes, *steps):
    return ask("register", {"classes": classes, "steps": [list(step) for step in steps]})


REFUSED = {"raises": "AssertionError"}
OWN = [["Own", "FullAttentionSpec"], ["Odd", "KVCacheSpec"]]


def test_names_of_cache_dtypes_are_modes_exactly_or_begin_with_fp8():
    names = ["int8_per_token_head", "fp8_per_token_head", "nvfp4", "fp8", "fp8_per_token_head_x", "FP8", "nvfp4x", None]
    modes = [row[0] for row in ask("quant_modes", {"kv_cache_dtypes": names})]
    assert modes[:3] == ["INT8_PER_TOKEN_HEAD", "FP8_PER_TOKEN_HEAD", "NVFP4"]
    assert modes[3:] == ["FP8_PER_TENSOR", "FP8_PER_TENSOR", "NONE", "NONE", "NONE"]
    assert ask("quant_flags", {"modes": ["NVFP4", "INT8_PER_TOKEN_HEAD"]}) == [[4, False, True], [2, True, False]]


def test_fields_come_from_the_parents_first_and_only_some_may_be_given_by_place():
    fields = ask("class_fields", {"classes": ["SinkFullAttentionSpec", "KVCacheGroupSpec"]})
    assert [field["name"] for field in fields["SinkFullAttentionSpec"]][:2] == ["block_size", "num_kv_heads"]
    assert fields["SinkFullAttentionSpec"][-1] == {"name": "sink_len", "kw_only": False, "default": None}
    assert fields["KVCacheGroupSpec"][-1] == {"name": "is_eagle_group", "kw_only": False, "default": False}


def test_a_uniform_type_is_called_as_its_members_where_they_agree():
    both = {**UNIFORM, "kv_cache_specs": [["a", window(5)], ["b", window(5, heads=2)]]}
    mixed = {**UNIFORM, "kv_cache_specs": [["a", window(5)], ["b", full(sliding_window=5)]]}
    kinds = ask("kinds", {"specs": [both, mixed, hidden_states(), full(sliding_window=5), {**UNIFORM}]})
    assert kinds[:2] == [["sliding_window", 5], ["unknown", None]]
    assert kinds[2:] == [["mla_attention", None], ["full_attention", None], ["unknown", None]]


def test_specs_are_equal_by_class_and_fields():
    found = ask(
        "compare", {"specs": [full(), full(head_size_v=8), full(heads=2), sink(None), {**UNIFORM}, {**UNIFORM}]}
    )
    assert found["equal"] == [[0, 1], [4, 5]]
    assert found["same_hash"] == [[0, 1]]
    assert found["hashable"] == [True] * 4 + [False] * 2


def test_a_copy_has_all_that_its_spec_has_and_leaves_it():
    aligned = mla(block_size=64, alignment=576, compress_ratio=4, kv_quant_mode="FP8_PER_TENSOR")
    found = ask("copy", {"spec": aligned, "block_size": 32})
    assert (found["spec"]["block_size"], found["before"]["block_size"], found["storage_block_size"]) == (32, 64, 8)
    assert found["spec"]["kv_quant_mode"] == "FP8_PER_TENSOR"


def test_sinks_that_record_a_window_are_merged_and_two_windows_are_refused():
    assert ask("merge", {"specs": [sink(sliding_window=5), sink()]})["sliding_window"] == 5
    assert ask("merge", {"specs": [sink(attention_chunk_size=6), sink()]})["attention_chunk_size"] == 6
    assert ask("merge", {"specs": [sink(sliding_window=5), sink(sliding_window=7)]}) == "ValueError"
    assert ask("merge", {"specs": [sink(sliding_window=5), sink(attention_chunk_size=6)]}) == "AssertionError"
    assert ask("window_sizes", {"sets": [[], [5], [5, 7]]}) == [None, 5, {"raises": "ValueError"}]


def test_one_page_size_is_that_of_all_layers():
    one, two = model(full(), full()), model(full(), full(heads=2))
    assert ask("helpers", one, num_blocks=3) == {"attention_free": False, "page": 512, "blocks": 3}
    assert ask("helpers", two, num_blocks=3)["page"] == REFUSED
    assert ask("helpers", model(num_gpu_blocks_override=0), num_blocks=3)["blocks"] == 0
    assert ask("helpers", model(), num_blocks=3)["attention_free"]


def test_groups_are_merged_each_by_itself():
    found = ask("group_specs", model(full(), full(sliding_window=5), window()), names=[["l0", "l1"], ["l2"]])
    assert [group["layers"] for group in found["groups"]] == [["l0", "l1"], ["l2"]]
    assert found["specs"][0]["sliding_window"] == 5
    assert ask("group_specs", model(full(), window()), names=[["l0", "l1"]]) == "AssertionError"


def test_a_uniform_type_needs_what_the_layer_needs_that_needs_most():
    members = [["a", full()], ["b", mamba()], ["c", mamba(shapes=((4,),))]]
    found = ask("uniform_pages", {"spec": {**UNIFORM, "kv_cache_specs": members}, "vllm_config": {"max_model_len": 64}})
    assert found == {"page_sizes": [16, 512], "tuples": 2, "pages": 4}


def test_classes_are_served_as_their_nearest_parent_that_is_registered():
    specs = [
        hidden_states(),
        sink(),
        window(),
        mamba(),
        cross(),
        {**cross(), "type": "EncoderOnlyAttentionSpec"},
        {**UNIFORM},
    ]
    found = ask("registry", {"specs": specs})
    assert found[0] == ["FullAttentionManager", "FullAttentionSpec"]
    assert found[1] == ["SinkFullAttentionManager", "FullAttentionSpec"]
    assert found[4] == ["CrossAttentionManager", "CrossAttentionSpec"]
    assert found[5:] == [[None, None]] * 2
    assert registered(OWN, ("find", "Own"), ("find", "Odd"), ("check", ["Own", "Odd"])) == [
        ["FullAttentionManager", "FullAttentionSpec"],
        [None, None],
        {"raises": "ValueError"},
    ]


def test_an_entry_is_made_once_and_not_changed():
    same = ("register", "Own", "OwnManager", None, "call")
    other = ("register", "Own", "FullAttentionManager", None, "decorator")
    found = registered(OWN, same, same, other, ("find", "Own"))
    assert found == [None, None, REFUSED, ["OwnManager", "Own"]]
    for manager, base in ((None, None), ("OwnManager", "SlidingWindowSpec")):
        assert registered(OWN, ("register", "Own", manager, base, "call"), ("find", "Own"))[0] == REFUSED


def test_a_view_on_hashes_is_a_list_of_whole_items_that_grows():
    about = {"hashes": ["aa", "bb", "cc"], "hash_block_size": 4, "target_block_size": 8}
    indices = [0, -1, {"index": 0}, [None, None, -1]]
    assert ask("hash_list", about, indices=indices, grown=["dd"]) == {
        "len": 1,
        "all": ["aabb"],
        "items": ["aabb", "aabb", "aabb", ["aabb"]],
        "grown": [2, "ccdd"],
    }
    for index, error in ((1, "IndexError"), (-2, "IndexError"), ("0", "TypeError"), ([None, None, 0], "ValueError")):
        assert ask("hash_list", about, indices=[index]) == error
    assert ask("hash_list", {**about, "target_block_size": 6}, indices=[]) == "AssertionError"


def test_a_key_is_the_hash_and_four_bytes_of_its_group():
    found = ask("hash_keys", {"draws": [["abcd", 258], ["", 0], ["ab", 1 << 32], ["ab", -1]]})
    assert found[:2] == [["abcd00000102", "abcd", 258], ["00000000", "", 0]]
    assert found[2:] == [{"raises": "OverflowError"}] * 2


@pytest.mark.parametrize(("as_int", "shown"), [(None, 0x99 << 56), (1, 0x99 << 56), (0, "0199" + "00" * 7)])
def test_events_show_the_last_eight_bytes_as_an_integer_or_the_hash(as_int, shown):
    assert ask("external_hashes", {"hashes": ["0199" + "00" * 7], "as_int": as_int}) == [shown]


def test_the_first_parent_is_the_hash_of_the_seed_or_random():
    seeded = ask("none_hash", {"seed": "", "tokens": [1], "parents": ["", None, "a"]})
    assert seeded["none_hash"] == {"of": ""}
    assert [parent for parent, _, _ in seeded["hashed"]] == ["none hash", "none hash", "a"]
    assert ask("none_hash", {"seed": None, "tokens": [], "parents": []})["none_hash"] == {"bytes": 32, "again": False}


def test_the_free_queue_gives_from_the_front_and_takes_at_both_ends():
    found = queue([3, 0, 1], ["popleft"], ["append", 3], ["prepend_n", [5, 4]], ["remove", 1], ["popleft_n", 2])
    assert [shown["order"] for shown in found] == [[0, 1], [0, 1, 3], [5, 4, 0, 1, 3], [5, 4, 0, 3], [0, 3]]
    assert [shown["got"] for shown in found] == [[3], None, None, None, [5, 4]]
    assert found[-1]["backward"] == [3, 0]


def test_what_the_free_queue_refuses_changes_nothing():
    found = queue([2], ["remove", 3], ["popleft_n", 2], ["popleft"], ["popleft"])
    assert [shown["got"] for shown in found] == [
        {"raises": "RuntimeError"}, REFUSED, [2], {"raises": "ValueError"},
    ]  # fmt: skip
    assert [shown["free"] for shown in found] == [1, 1, 0, 0]


def test_a_key_is_forgotten_before_another_is_set():
    steps = [["set", ["aa", 1]], ["set", ["bb", 1]], ["reset"], ["set", ["bb", 0]]]
    found = ask("block", {"steps": steps})
    assert found == [[None, "aa00000001"], [REFUSED, "aa00000001"], [None, None], [None, "bb00000000"]]


def test_the_rate_is_of_the_last_requests_and_the_newest_update_stays():
    updates = [{"requests": 9, "queries": 10, "hits": 5}, {}, {"requests": 2, "queries": 10, "hits": 1}]
    found = ask("caching_metrics", {"max_recent_requests": 5, "updates": [*updates, {"reset": True}]})
    assert [one["hit_rate"] for one in found] == [0.5, 0.5, 0.1, 0.0]
    assert [one["requests"] for one in found] == [9, 9, 2, 0]
    at_most = ask("caching_metrics", {"max_recent_requests": None, "updates": [{"requests": 600}, {"requests": 401}]})
    assert [one["requests"] for one in at_most] == [600, 401]


def test_lookups_of_preempted_requests_are_counted_apart():
    counts = ask("cache_stats", {"records": [[10, 4, False], [7, 7, True]]})
    assert (counts["requests"], counts["queries"], counts["hits"]) == (1, 10, 4)
    assert (counts["preempted_requests"], counts["preempted_queries"], counts["preempted_hits"]) == (1, 7, 7)


WINDOWED = {"kind": "sliding", "block_size": 4, "window": 5}
SHAPE = {
    "groups": [WINDOWED],
    "num_blocks": 4,
    "max_model_len": 16,
    "hash_block_size": 4,
    "scheduler_block_size": 8,
    "max_num_batched_tokens": 8,
}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({}, None),
        ({"retention_interval": 0}, None),
        ({"retention_interval": 12}, "ValueError"),
        ({"retention_interval": -8}, "ValueError"),
        ({"retention_interval": 8, "groups": [{"kind": "full", "block_size": 4}]}, "ValueError"),
        ({"scheduler_block_size": 6}, "AssertionError"),
        ({"hash_block_size": 2}, "AssertionError"),
        ({"num_blocks": 0}, "AssertionError"),
        ({"groups": [WINDOWED, WINDOWED]}, "AssertionError"),
    ],
)
def test_a_core_is_built_only_of_what_goes_together(change, error):
    assert ask("build", {"shape": {**SHAPE, **change}}) == error


def blocks(groups, others=None, hashed=()):
    return ask("blocks", {"groups": groups, "others": others or [[] for _ in groups], "hashed": hashed})


def test_blocks_without_identity_are_told_of_one_group_with_null_blocks_and_of_all_without():
    one = blocks([[0, 1, 2]], [[3]], [1])
    assert (one["unhashed"], one["unhashed_all"]) == ([0, 2], [[2]])
    assert (one["both"], one["after"]) == ([[0, 1, 2, 3]], [[[0, 1, 2]], [[3]]])
    two = blocks([[1], [2, 0]], hashed=[1])
    assert (two["unhashed"], two["unhashed_all"]) == (REFUSED, [[], [2]])
    assert (two["or_none"], two["empty"]) == ([[1], [2, 0]], [[], []])
    assert blocks([[], []])["or_none"] is None


def test_a_lookup_yields_the_block_that_was_registered_first_and_is_still_there():
    key = ["aa", 0]
    steps = [["insert", key, 2], ["insert", key, 1], ["insert", key, 2], ["get", key], ["pop", key, 3], ["pop", key, 2]]
    steps += [["get", key], ["get", ["aa", 1]], ["pop", key, 1], ["get", key]]
    assert ask("block_map", {"blocks": 4, "steps": steps})[3:] == [
        [2, 1], [None, 1], [2, 1], [1, 1], [None, 1], [1, 0], [None, 0],
    ]  # fmt: skip


def lives(rate, *steps):
    return ask("block_lives", {"rate": rate, "steps": [list(step) for step in steps]})


def test_a_life_is_told_with_the_gaps_between_its_uses():
    used = [("accessed", second, 0.0, 1) for second in (3, 4, 8)]
    found = lives(1.0, ("allocated", 1, 0.5, 1), *used, ("evicted", 9, 0.0, 1), ("drain", 9, 0.0))
    assert found[3] == [None, [[1, 1, 8, [3, 4, 8]]]]
    assert found[-1] == [[[8, 1, [1, 4]]], []]


def test_chance_below_the_share_follows_a_block_and_a_share_is_more_than_none():
    followed = [bool(lives(rate, ("allocated", 0, 0.01, 1))[0][1]) for rate in (None, 0.5, 0.02, 0.01)]
    assert followed == [False, True, True, False]
    assert [lives(rate) for rate in (0, -0.5, 1.5, 1)] == ["AssertionError"] * 3 + [[]]


def test_a_core_that_nobody_has_used_is_free_and_finds_nothing_unless_a_layer_cannot_be_cached():
    alone = {"kind": "full", "block_size": 4}
    lone = {**SHAPE, "groups": [alone], "num_blocks": 1}
    assert ask("cold", {"shape": lone, "prompt": [1]}) == {"free": 0, "usage": 0.0, "found": [0, [[]]]}
    encoder = {**SHAPE, "groups": [alone, {"kind": "cross", "block_size": 4}]}
    assert ask("cold", {"shape": encoder, "prompt": [1]})["found"] == {"raises": "NotImplementedError"}
    assert ask("cold", {"shape": {**encoder, "caching": False}, "prompt": [1]})["found"] == [0, [[], []]]


def test_what_a_call_leaves_out_changes_nothing():
    found = ask("left_out", {"call": "KVCacheManager.allocate_slots", "arguments": ["num_external_computed_tokens"]})
    assert found == [["num_external_computed_tokens", 0]]


def test_a_manager_serves_the_ranks_together_and_gives_no_hit_to_a_request_that_runs():
    found = ask("manager", {"spec": window(5, block_size=4), "ranks": [2, 3], "length": 4})
    assert (found["class"], found["block_size"], found["again"]) == ("SlidingWindowManager", 24, [REFUSED] * 3 + [2])
    assert ask("manager", {"spec": {"type": "KVCacheSpec", "block_size": 4}, "ranks": [1, 1], "length": 4}) == (
        "AssertionError"
    )


def test_a_lookup_ends_before_a_block_that_is_missing_and_leaves_out_what_nobody_reads():
    ranked = ask("manager", {"spec": window(5, block_size=4), "ranks": [2, 3], "length": 4})["found"]
    assert ranked[:3] == [[1, 2], [1], []]  # of all blocks, of those with even and with odd numbers
    assert ranked[3:6] == [[0, 2, 3], [1], []]
    assert ranked[6:] == [[0, 0, 3, 4], [1], [], *[REFUSED] * 9]
    found = ask("manager", {"spec": chunk(6), "ranks": [1, 1], "length": 16})["found"]
    assert found[:3] == [[*[0] * 6, 7, 8], [*[0] * 6, 7], [0] * 6]
    over_ranks = ask("manager", {"spec": full(), "ranks": [2, 1], "length": 8})["found"]
    assert (over_ranks[0], over_ranks[9]) == ([1, 2, 3, 4], [1, 2])


def test_of_a_window_the_blocks_at_boundaries_are_masked_in_and_behind_them_those_for_drafts():
    masks = ask("manager", {"spec": window(5), "ranks": [1, 1], "length": 17})["masks"]
    chosen = [[block for block, wanted in enumerate(mask) if wanted] for mask in masks]
    assert chosen[:2] == [[2, 3, 6, 7, 10, 11], [2, 3, 4, 6, 7, 8, 10, 11]]
    assert chosen[2:4] == [[6, 7], [6, 7]]  # a prompt of 17 tokens is replayed up to 16
    assert chosen[4:] == [*chosen[:2], [], [6, 7]]  # one of 2 tokens is not replayed
    assert ask("manager", {"spec": full(), "ranks": [1, 1], "length": 17})["masks"] is None


def test_a_block_is_named_by_the_one_before_its_tokens_its_items_and_in_front_the_salt():
    items = [["image", 1, 1], ["sound", 3, 4]]
    found = ask("block_names", {"block_size": 2, "items": items, "salt": "pepper", "parts": [5, 1, 1]})
    assert found == [[0, [0, 1], [["image", 1], "pepper"]], [1, [2, 3], [["sound", 1]]], [2, [4, 5], [["sound", -1]]]]
