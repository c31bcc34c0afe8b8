"""Planted faults of configuration arithmetic, made in the answers of our core as a mistake in it would show.

The observables of each are the invariants that it breaks, so that these see it without the help of a model.
"""

import copy
from collections.abc import Callable, Mapping
from functools import wraps
from itertools import pairwise
from typing import Any, TypeAlias

from ..findings.oracle_names import LOCKSTEP
from .registry import Fault, Part, fault, wrap

Inputs: TypeAlias = Mapping[str, Any]
Change: TypeAlias = Callable[[Inputs, Any], Any]
"""From the inputs and a copy of the right output of one op to the wrong output."""


def fault_in_answer(op: str, describe: str, *invariants: str, raised: bool = False) -> Callable[[Change], Fault]:
    """Make a fault of a change of what is put out for `op`; with `raised`, of the whole answer where it is an error."""

    def made(change: Change) -> Fault:
        @wraps(change)
        def plant(calculator: Any) -> None:
            def ask(original: Callable[..., Any], asked: str, inputs: Inputs) -> Any:
                answer = original(asked, inputs)
                if asked != op:
                    return answer
                if raised:
                    return change(inputs, answer) if "raises" in answer else answer
                if answer.get("output") is None:
                    return answer
                return {"output": change(inputs, copy.deepcopy(answer["output"]))}

            wrap(calculator, "ask", ask)

        return fault(describe, *invariants, part=Part.CONFIGURATION, oracles=(LOCKSTEP,))(plant)

    return made


@fault_in_answer("config_from_groups", "a tensor is a byte short", "I1")
def _tensor_a_byte_short(inputs: Inputs, output: Any) -> Any:
    for tensor in output["tensors"] if output["tensors"] and len(output["tensors"][0]) > 2 else output["tensors"][-1:]:
        tensor[0] -= 1
    return output


@fault_in_answer("config_from_groups", "a pool has one block more than fits", "I1", "I7")
def _one_block_more(inputs: Inputs, output: Any) -> Any:
    if output["num_blocks"] > 1:
        tensors = [[size + size // output["num_blocks"], *rest] for size, *rest in output["tensors"]]
        output |= {"num_blocks": output["num_blocks"] + 1, "tensors": tensors}
    return output


@fault_in_answer("configs", "the tensors of the last worker are a page larger than its blocks", "I2")
def _tensor_off_by_a_page(inputs: Inputs, output: Any) -> Any:
    if "tensors" in output["workers"][-1] and (blocks := output["workers"][-1]["num_blocks"]):
        tensors = output["workers"][-1]["tensors"]
        output["workers"][-1]["tensors"] = [[size + size // blocks, *rest] for size, *rest in tensors]
    return output


@fault_in_answer("unify_page_size", "one page size for all is twice as large as the largest page", "I3")
def _page_unified_twice(inputs: Inputs, output: Any) -> Any:
    if len(output["page_sizes"]) > 1:
        output["page_sizes"] = [2 * page for page in output["page_sizes"]]
    return output


@fault_in_answer("groups", "grouping drops the last layer of a model", "I4")
def _layer_dropped(inputs: Inputs, output: Any) -> Any:
    if len(output["groups"]) == 1:
        group = output["groups"][0]
        group["layers"] = group["layers"][:-1]
        if "members" in group:
            group["members"] = group["members"][: len(group["layers"])]
    return output


@fault_in_answer("groups", "a layer is in the first group of its type instead of the second", "I5")
def _groups_unbalanced(inputs: Inputs, output: Any) -> Any:
    groups = output["groups"]
    for first, second in pairwise(groups):
        alike = "spec" in first and first["spec"] == second.get("spec")
        if alike and len(first["layers"]) == len(second["layers"]) > 1:
            names = [name for name, _ in inputs["layers"]]
            first["layers"] = sorted([*first["layers"], second["layers"].pop()], key=names.index)
            break
    return output


@fault_in_answer("needed", "the need leaves out a block", "I7", "I8")
def _need_a_block_short(inputs: Inputs, output: Any) -> Any:
    if cost := output["pool_bytes_per_block"]:
        output["from_groups"] = max(0, output["from_groups"] - cost)
    return output


@fault_in_answer("estimate", "the estimate is one token too long", "I8")
def _estimate_one_too_long(inputs: Inputs, output: Any) -> Any:
    if 0 < output["estimate"] < inputs["vllm_config"].get("max_model_len", 1024):
        output["estimate"] += 1
    return output


@fault_in_answer("merge", "merging takes no account of the size of values", "I10")
def _merge_without_head_size_v(inputs: Inputs, output: Any) -> Any:
    output.pop("head_size_v", None)
    return output


@fault_in_answer(
    "resolve_block_sizes", "the scheduler's block size is the largest of the groups', not their multiple", "I11"
)
def _largest_for_multiple(inputs: Inputs, output: Any) -> Any:
    if len(inputs["groups"]) > 1:
        output[0] = max(spec["block_size"] for spec in inputs["groups"])
    return output


@fault_in_answer("estimate", "an estimate leaves the length changed", "I13")
def _length_left_changed(inputs: Inputs, output: Any) -> Any:
    output["max_model_len_after"] = output["estimate"]
    return output


@fault_in_answer("admission_cap", "a window's admission cap is one block short")
def _cap_one_short(inputs: Inputs, output: Any) -> Any:
    if "sliding_window" in inputs["spec"]:
        return [cap - 1 for cap in output]
    return output


@fault_in_answer("project", "a worker's projection keeps the layers of others")
def _foreign_layers_kept(inputs: Inputs, output: Any) -> Any:
    if len(output["groups"]) == 1 and "spec" in output["groups"][0]:
        output["groups"][0]["layers"] = [name for name, _ in inputs["layers"]]
    return output


@fault_in_answer("max_concurrency", "concurrency counts one block more than there is", "I7")
def _concurrency_of_one_block_more(inputs: Inputs, output: Any) -> Any:
    if isinstance(output, float) and inputs["num_blocks"] > 1:
        return output / (inputs["num_blocks"] - 1) * inputs["num_blocks"]
    return output


@fault_in_answer("configs", "the scheduler's view of a group is the last member of its spec, not the first")
def _last_member_for_first(inputs: Inputs, output: Any) -> Any:
    if output["workers"]:
        for told, group in zip(output["scheduler"]["groups"], output["workers"][0].get("groups", []), strict=False):
            if group.get("members"):
                told["spec"] = group["members"][-1]
    return output
