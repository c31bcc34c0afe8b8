"""Planted faults in the pieces of our core that questions are about: classes, registry, hashes, free queue, rates, what
is handed to others, and cores that nobody has used.

Each is made in the answer to one op, as `configuration` makes those of the arithmetic; lockstep must see it.
"""

from typing import Any

from ..targets.small_blocks import lookups
from .configuration import Inputs, fault_in_answer


@fault_in_answer("quant_modes", "every cache dtype in fp8 counts as one with scales for tokens")
def _fp8_with_token_scales(inputs: Inputs, output: Any) -> Any:
    return [[mode, number, quantised, mode.startswith("FP8")] for mode, number, quantised, _ in output]


@fault_in_answer("quant_flags", "NVFP4 counts as a mode with scales for tokens")
def _nvfp4_with_token_scales(inputs: Inputs, output: Any) -> Any:
    return [[number, scales or packed, packed] for number, scales, packed in output]


@fault_in_answer("class_fields", "a group is a draft model's unless it says otherwise")
def _groups_of_drafts(inputs: Inputs, output: Any) -> Any:
    for fields in output.values():
        for field in fields:
            if field["name"] == "is_eagle_group":
                field["default"] = True
    return output


@fault_in_answer("kinds", "a uniform type of several kinds is called after the first")
def _first_kind_for_all(inputs: Inputs, output: Any) -> Any:
    return [["full_attention" if kind == "unknown" else kind, window] for kind, window in output]


@fault_in_answer("compare", "specs that differ in one field count as equal")
def _one_field_not_compared(inputs: Inputs, output: Any) -> Any:
    if len(inputs["specs"]) == 2:
        output["equal"] = [[0, 1]]
    return output


@fault_in_answer("copy", "a copy with another block size loses its mode of quantisation")
def _copy_without_quantisation(inputs: Inputs, output: Any) -> Any:
    output["spec"].pop("kv_quant_mode", None)
    return output


@fault_in_answer("merge", "merged layers of sinks lose the window that some of them record")
def _sinks_without_window(inputs: Inputs, output: Any) -> Any:
    if output["type"] == "SinkFullAttentionSpec":
        output.pop("sliding_window", None)
    return output


@fault_in_answer("uniform_pages", "a uniform type needs a block less than the layer that needs most")
def _uniform_a_block_short(inputs: Inputs, output: Any) -> Any:
    return {**output, "pages": max(0, output["pages"] - 1)}


@fault_in_answer("window_sizes", "of two windows the smaller one is taken")
def _smaller_of_two_windows(inputs: Inputs, output: Any) -> Any:
    return [min(sizes) if len(sizes) > 1 else one for sizes, one in zip(inputs["sets"], output, strict=True)]


@fault_in_answer("helpers", "two page sizes count as one")
def _two_pages_for_one(inputs: Inputs, output: Any) -> Any:
    if isinstance(output["page"], dict):
        output["page"] = 0
    return output


@fault_in_answer("group_specs", "a group's layers are merged without the last one")
def _groups_without_last_layer(inputs: Inputs, output: Any) -> Any:
    for group in output["groups"]:
        group["layers"] = group["layers"][:-1] or group["layers"]
    return output


@fault_in_answer("registry", "hidden states are served as if nobody had registered them")
def _hidden_states_unserved(inputs: Inputs, output: Any) -> Any:
    hidden = [spec["type"] == "HiddenStateCacheSpec" for spec in inputs["specs"]]
    return [[None, None] if odd else found for odd, found in zip(hidden, output, strict=True)]


@fault_in_answer("registry", "whoever asks first is told that nobody serves a class")
def _first_asked_in_vain(inputs: Inputs, output: Any) -> Any:
    return [[None, None] for _ in output] if inputs.get("first") else output


@fault_in_answer("register", "a second registration that says otherwise is taken")
def _conflict_accepted(inputs: Inputs, output: Any) -> Any:
    return [None if one == {"raises": "AssertionError"} else one for one in output]


@fault_in_answer("hash_list", "the view counts a last item that is not whole")
def _hash_of_a_rest(inputs: Inputs, output: Any) -> Any:
    times = inputs["target_block_size"] // inputs["hash_block_size"]
    output["len"] = -(-len(inputs["hashes"]) // times)
    return output


@fault_in_answer("hash_keys", "a key keeps two bytes of the group's number")
def _group_in_two_bytes(inputs: Inputs, output: Any) -> Any:
    return [one if isinstance(one, dict) else [*one[:2], one[2] & 0xFFFF] for one in output]


@fault_in_answer("external_hashes", "an integer in events has 63 bits")
def _hash_of_63_bits(inputs: Inputs, output: Any) -> Any:
    return [one & ((1 << 63) - 1) if isinstance(one, int) else one for one in output]


@fault_in_answer("none_hash", "the seed 0 is taken for none")
def _seed_zero_for_none(inputs: Inputs, output: Any) -> Any:
    if inputs["seed"] == "0":
        output["none_hash"] = {"bytes": 32, "again": False}
    return output


@fault_in_answer("free_queue", "taking all blocks but one is refused")
def _nearly_all_refused(inputs: Inputs, output: Any) -> Any:
    for step, shown in zip(inputs["steps"], output, strict=True):
        if step[0] == "popleft_n" and shown["free"] == 1:
            shown["got"] = {"raises": "AssertionError"}
    return output


@fault_in_answer("block", "a second key replaces the first")
def _second_key_taken(inputs: Inputs, output: Any) -> Any:
    return [[None, key] for _, key in output]


@fault_in_answer("caching_metrics", "an update that alone is over the limit leaves no rate")
def _large_update_forgotten(inputs: Inputs, output: Any) -> Any:
    most = inputs["max_recent_requests"] or 1000
    return [{"hit_rate": 0.0, "requests": 0, "empty": True} if one["requests"] > most else one for one in output]


@fault_in_answer("cache_stats", "lookups of preempted requests count twice")
def _preempted_twice(inputs: Inputs, output: Any) -> Any:
    return {**output, "requests": output["requests"] + output["preempted_requests"]}


@fault_in_answer("build", "a negative retention interval is taken", raised=True)
def _negative_retention_taken(inputs: Inputs, output: Any) -> Any:
    interval = inputs["shape"].get("retention_interval")
    return {"output": None} if interval is not None and interval < 0 else output


@fault_in_answer("page", "the spec that every other one is derived from has a page of no bytes", raised=True)
def _page_of_no_spec(inputs: Inputs, output: Any) -> Any:
    plain = {"page_size_bytes": 0, "storage_block_size": inputs["spec"]["block_size"]}
    return {"output": plain} if inputs["spec"]["type"] == "KVCacheSpec" else output


@fault_in_answer("estimate_from_groups", "the configuration keeps the last length that was tried")
def _length_not_restored(inputs: Inputs, output: Any) -> Any:
    return {"estimate": output, "max_model_len_after": output + 1}


@fault_in_answer("blocks", "null blocks count among the blocks without identity of all groups")
def _null_blocks_to_fill(inputs: Inputs, output: Any) -> Any:
    hashed = inputs["hashed"]
    return {**output, "unhashed_all": [[block for block in row if block not in hashed] for row in inputs["groups"]]}


@fault_in_answer("blocks", "the blocks of a group that have an identity are told in place of those that have none")
def _hashed_for_unhashed(inputs: Inputs, output: Any) -> Any:
    if isinstance(output["unhashed"], list):
        output["unhashed"] = [block for block in inputs["groups"][0] if block in inputs["hashed"]]
    return output


@fault_in_answer("blocks", "added blocks stand in front")
def _added_in_front(inputs: Inputs, output: Any) -> Any:
    both = [[*more, *row] for row, more in zip(inputs["groups"], inputs["others"], strict=True)]
    return {**output, "both": both}


@fault_in_answer("block_map", "a block is taken out under a key that it is not under")
def _taken_out_anyway(inputs: Inputs, output: Any) -> Any:
    steps = zip(inputs["steps"], output, strict=True)
    return [[step[2], known] if step[0] == "pop" else [got, known] for step, (got, known) in steps]


@fault_in_answer("block_lives", "the last gap between uses of a block is not told")
def _last_gap_lost(inputs: Inputs, output: Any) -> Any:
    for step, shown in zip(inputs["steps"], output, strict=True):
        if step[0] == "drain":
            shown[0] = [[life, idle, gaps[:-1]] for life, idle, gaps in shown[0]]
    return output


@fault_in_answer("block_lives", "metrics of no block at all are taken", raised=True)
def _share_of_none_taken(inputs: Inputs, output: Any) -> Any:
    return {"output": [[None, []] for _ in inputs["steps"]]} if inputs["rate"] == 0 else output


@fault_in_answer("cold", "a pool of the null block alone counts as full")
def _null_block_alone_is_full(inputs: Inputs, output: Any) -> Any:
    return output | {"usage": 1.0} if inputs["shape"]["num_blocks"] == 1 else output


@fault_in_answer("cold", "a lookup among layers that cannot be cached finds nothing instead of failing")
def _uncached_found_nothing(inputs: Inputs, output: Any) -> Any:
    if output["found"] == {"raises": "NotImplementedError"}:
        output["found"] = [0, [[] for _ in inputs["shape"]["groups"]]]
    return output


@fault_in_answer("manager", "a request that runs is given blocks of a hit again")
def _hit_given_again(inputs: Inputs, output: Any) -> Any:
    return {**output, "again": [output["again"][0], None, *output["again"][2:]]}


@fault_in_answer("manager", "a lookup takes the block behind one that is missing")
def _hole_in_a_lookup_not_seen(inputs: Inputs, output: Any) -> Any:
    asked = zip(lookups(inputs["length"], inputs["ranks"]), output["found"], strict=True)
    longer = [
        [*got, len(got) + 2] if isinstance(got, list) and there.step == 2 else got for (_, there, _), got in asked
    ]
    return {**output, "found": longer}


@fault_in_answer("manager", "the first block of a prompt is registered, whatever its window")
def _first_block_always_registered(inputs: Inputs, output: Any) -> Any:
    if output["masks"]:
        output["masks"] = [[True, *mask[1:]] for mask in output["masks"]]
    return output


@fault_in_answer(
    "unify_hybrid", "windows and chunks are told to be one kind where there is no full attention", raised=True
)
def _windows_without_full(inputs: Inputs, output: Any) -> Any:
    kinds = {inputs["specs"][name]["type"] for _, name in inputs["layers"]}
    alone = kinds == {"SlidingWindowSpec", "ChunkedLocalAttentionSpec"}
    return {"output": {"specs": [], "page_sizes": [], "layers": []}} if alone else output


@fault_in_answer("block_names", "an item in a block that fills up behind the prompt does not name it")
def _late_item_lost(inputs: Inputs, output: Any) -> Any:
    for number, (_, _, keys) in enumerate(output):
        if (number + 1) * inputs["block_size"] > inputs["parts"][0]:
            keys[:] = [key for key in keys if isinstance(key, str)]
    return output


@fault_in_answer("left_out", "caching is off unless a call says otherwise")
def _caching_unsaid_is_off(inputs: Inputs, output: Any) -> Any:
    return [[name, False if name == "enable_caching" else default] for name, default in output]
