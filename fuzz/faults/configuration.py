"""Planted faults of configuration arithmetic: who checks the checker?

Each is one small mistake, made in the answers of our core as a mistake in it would show. `--target fault:NAME` fuzzes
one; the tests hold that every one is found and made small, and that each invariant sees the one that breaks it.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from ..adapters.impl import open_impl_calculator
from ..targets.base import Calculator

Tamper: TypeAlias = Callable[[str, Mapping[str, Any], Any], Any]
"""From an op, its inputs and the right output to the wrong one."""


@dataclass(frozen=True)
class ConfigurationFault:
    """One planted mistake."""

    name: str
    describe: str
    tamper: Tamper
    invariants: tuple[str, ...]
    """Those that see it without the help of a model."""


class FaultyCalculator:
    """Our core, with one mistake in what it puts out."""

    def __init__(self, fault: ConfigurationFault, core: Calculator) -> None:
        self.name = f"fault:{fault.name}"
        self._tamper = fault.tamper
        self._core = core

    def ask(self, op: str, inputs: Mapping[str, object]) -> dict[str, object]:
        """The core's answer, tampered with where it is an output."""
        answer = self._core.ask(op, inputs)
        if answer.get("output") is None:
            return answer
        return {"output": self._tamper(op, inputs, copy.deepcopy(answer["output"]))}

    def close(self) -> None:
        """End the core."""
        self._core.close()


CONFIGURATION_FAULTS: dict[str, ConfigurationFault] = {}
"""All planted faults by name."""


def open_faulty_calculator(name: str) -> FaultyCalculator:
    """Our core with this fault. KeyError for an unknown name."""
    return FaultyCalculator(CONFIGURATION_FAULTS[name], open_impl_calculator())


def _fault(describe: str, *invariants: str) -> Callable[[Tamper], Tamper]:
    def add(tamper: Tamper) -> Tamper:
        name = tamper.__name__.strip("_").replace("_", "-")
        CONFIGURATION_FAULTS[name] = ConfigurationFault(name, describe, tamper, invariants)
        return tamper

    return add


@_fault("a tensor is a byte short", "I1")
def _tensor_a_byte_short(op: str, inputs: Mapping[str, Any], output: Any) -> Any:
    if op == "config_from_groups" and output["tensors"]:
        output["tensors"][-1][0] -= 1
    return output


@_fault("a pool has one block more than fits", "I1", "I7")
def _one_block_more(op: str, inputs: Mapping[str, Any], output: Any) -> Any:
    if op == "config_from_groups" and output["num_blocks"] > 1:
        tensors = [[size + size // output["num_blocks"], names] for size, names in output["tensors"]]
        output |= {"num_blocks": output["num_blocks"] + 1, "tensors": tensors}
    return output


@_fault("the tensors of the last worker are a page larger than its blocks", "I2")
def _tensor_off_by_a_page(op: str, inputs: Mapping[str, Any], output: Any) -> Any:
    if op == "configs" and "tensors" in output["workers"][-1] and (blocks := output["workers"][-1]["num_blocks"]):
        tensors = output["workers"][-1]["tensors"]
        output["workers"][-1]["tensors"] = [[size + size // blocks, names] for size, names in tensors]
    return output


@_fault("one page size for all is twice as large as the largest page", "I3")
def _page_unified_twice(op: str, inputs: Mapping[str, Any], output: Any) -> Any:
    if op == "unify_page_size" and len(output["page_sizes"]) > 1:
        output["page_sizes"] = [2 * page for page in output["page_sizes"]]
    return output


@_fault("grouping drops the last layer of a model", "I4")
def _layer_dropped(op: str, inputs: Mapping[str, Any], output: Any) -> Any:
    if op == "groups" and len(output["groups"]) == 1:
        group = output["groups"][0]
        group["layers"] = group["layers"][:-1]
        if "members" in group:
            group["members"] = group["members"][: len(group["layers"])]
    return output


@_fault("a layer is in the first group of its type instead of the second", "I5")
def _groups_unbalanced(op: str, inputs: Mapping[str, Any], output: Any) -> Any:
    if op == "groups":
        groups = output["groups"]
        for first, second in pairwise(groups):
            alike = "spec" in first and first["spec"] == second.get("spec")
            if alike and len(first["layers"]) == len(second["layers"]) > 1:
                names = [name for name, _ in inputs["layers"]]
                first["layers"] = sorted([*first["layers"], second["layers"].pop()], key=names.index)
                break
    return output


@_fault("the need leaves out a block", "I7", "I8")
def _need_a_block_short(op: str, inputs: Mapping[str, Any], output: Any) -> Any:
    if op == "needed" and (cost := output["pool_bytes_per_block"]):
        output["from_groups"] = max(0, output["from_groups"] - cost)
    return output


@_fault("the estimate is one token too long", "I8")
def _estimate_one_too_long(op: str, inputs: Mapping[str, Any], output: Any) -> Any:
    if op == "estimate" and 0 < output["estimate"] < inputs["vllm_config"].get("max_model_len", 1024):
        output["estimate"] += 1
    return output


@_fault("merging takes no account of the size of values", "I10")
def _merge_without_head_size_v(op: str, inputs: Mapping[str, Any], output: Any) -> Any:
    if op == "merge":
        output.pop("head_size_v", None)
    return output


@_fault("the scheduler's block size is the largest of the groups', not their multiple", "I11")
def _largest_for_multiple(op: str, inputs: Mapping[str, Any], output: Any) -> Any:
    if op == "resolve_block_sizes" and len(inputs["groups"]) > 1:
        output[0] = max(spec["block_size"] for spec in inputs["groups"])
    return output


@_fault("an estimate leaves the length changed", "I13")
def _length_left_changed(op: str, inputs: Mapping[str, Any], output: Any) -> Any:
    if op == "estimate":
        output["max_model_len_after"] = output["estimate"]
    return output


@_fault("a window's admission cap is one block short")
def _cap_one_short(op: str, inputs: Mapping[str, Any], output: Any) -> Any:
    if op == "admission_cap" and "sliding_window" in inputs["spec"]:
        return [cap - 1 for cap in output]
    return output


@_fault("a worker's projection keeps the layers of others")
def _foreign_layers_kept(op: str, inputs: Mapping[str, Any], output: Any) -> Any:
    if op == "project" and len(output["groups"]) == 1 and "spec" in output["groups"][0]:
        output["groups"][0]["layers"] = [name for name, _ in inputs["layers"]]
    return output


@_fault("concurrency counts one block more than there is", "I7")
def _concurrency_of_one_block_more(op: str, inputs: Mapping[str, Any], output: Any) -> Any:
    if op == "max_concurrency" and isinstance(output, float) and inputs["num_blocks"]:
        return output / inputs["num_blocks"] * (inputs["num_blocks"] + 1)
    return output


@_fault("the scheduler's view of a group is the last member of its spec, not the first")
def _last_member_for_first(op: str, inputs: Mapping[str, Any], output: Any) -> Any:
    if op == "configs" and output["workers"]:
        for told, group in zip(output["scheduler"]["groups"], output["workers"][0].get("groups", []), strict=False):
            if group.get("members"):
                told["spec"] = group["members"][-1]
    return output
