"""Planted faults in the pieces of our core that questions are about: classes, registry, hashes, free queue, rates.

Each is made in the answer to one op, as `configuration` makes those of the arithmetic; lockstep must see it.
"""

from typing import Any

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
