"""Planted faults after real bugs: what is needed, what fits, and how layers are grouped (`real_bugs/sizing.toml`).

Most of them put a question that the wrong rule would ask to our core, and give its answer to the right question.
"""

from collections.abc import Callable, Collection, Mapping
from functools import wraps
from typing import Any, TypeAlias

from ..findings.oracle_names import LOCKSTEP
from .configuration import Inputs, fault_in_answer
from .registry import Fault, Part, fault, wrap

Answer: TypeAlias = Mapping[str, Any]
Ask: TypeAlias = Callable[[str, Inputs], Answer]
Spec: TypeAlias = Mapping[str, Any]
Asking: TypeAlias = Callable[[Ask, str, Inputs], Answer]
"""From the right core, an op and its inputs to the wrong answer."""


def _asking(ops: Collection[str], describe: str, *invariants: str) -> Callable[[Asking], Fault]:
    """Make a fault of what answers these ops, with the right core at hand."""

    def made(change: Asking) -> Fault:
        @wraps(change)
        def plant(calculator: Any) -> None:
            def ask(original: Ask, op: str, inputs: Inputs) -> Answer:
                return change(original, op, inputs) if op in ops else original(op, inputs)

            wrap(calculator, "ask", ask)

        return fault(describe, *invariants, part=Part.CONFIGURATION, oracles=(LOCKSTEP,))(plant)

    return made


def _with_settings(inputs: Inputs, **settings: object) -> dict[str, Any]:
    return {**inputs, "vllm_config": {**inputs["vllm_config"], **settings}}


def _without_setting(inputs: Inputs, name: str) -> dict[str, Any]:
    return {**inputs, "vllm_config": {key: value for key, value in inputs["vllm_config"].items() if key != name}}


def _with_specs(inputs: Inputs, change: Callable[[Spec], Spec]) -> dict[str, Any]:
    return {**inputs, "specs": {name: change(spec) for name, spec in inputs["specs"].items()}}


def _length(inputs: Inputs) -> int:
    length: int = inputs["vllm_config"].get("max_model_len", 1024)
    return length


_STARTUP = ("needed", "estimate", "estimate_from_groups", "check_memory", "configs", "max_memory")
"""Questions about what a request needs when an engine starts."""


# What one request needs.


@_asking(_STARTUP, "the tokens in flight are shared out among the requests, at startup only", "I7")
def _in_flight_tokens_shared_out(ask: Ask, op: str, inputs: Inputs) -> Answer:
    batched = inputs["vllm_config"].get("max_num_batched_tokens", 512)
    return ask(op, _with_settings(inputs, max_num_batched_tokens=max(1, batched // 4)))


@_asking(_STARTUP[:-2] + _STARTUP[-1:], "in mode all the states of drafts need no room")
def _states_of_drafts_need_nothing(ask: Ask, op: str, inputs: Inputs) -> Answer:
    def without_drafts(spec: Spec) -> Spec:
        return {**spec, "num_speculative_blocks": 0} if "num_speculative_blocks" in spec else spec

    if inputs["vllm_config"].get("mamba_cache_mode") != "all":
        return ask(op, inputs)
    return ask(
        op,
        {**inputs, "spec": without_drafts(inputs["spec"])}
        if op == "max_memory"
        else _with_specs(inputs, without_drafts),
    )


@_asking(("max_memory",), "full attention that has a window needs no more than its window")
def _full_attention_needs_its_window(ask: Ask, op: str, inputs: Inputs) -> Answer:
    window = inputs["spec"].get("sliding_window")
    if inputs["spec"]["type"] != "FullAttentionSpec" or window is None:
        return ask(op, inputs)
    return ask(op, {**inputs, "max_model_lens": [min(length, window) for length in inputs["max_model_lens"]]})


@_asking(("admission_cap",), "a window over compressed tokens is counted in blocks of what is stored")
def _window_in_stored_entries(ask: Ask, op: str, inputs: Inputs) -> Answer:
    spec = inputs["spec"]
    stored = spec["block_size"] // max(1, spec.get("compress_ratio", 1))
    if stored == spec["block_size"]:
        return ask(op, inputs)
    return ask(op, {**inputs, "spec": {**spec, "block_size": stored, "compress_ratio": 1}})


@fault_in_answer("admission_cap", "a window that is longer than a request may be is not cut to it")
def _window_longer_than_the_model(inputs: Inputs, output: Any) -> Any:
    window, size = inputs["spec"].get("sliding_window", 0), inputs["spec"]["block_size"]
    return [
        -(-(window - 1 + batched) // size) + 1 if window > length else cap
        for cap, (batched, length) in zip(output, inputs["draws"], strict=True)
    ]


@_asking(("max_concurrency",), "windows count with the whole length in how many requests fit", "I7")
def _concurrency_without_windows(ask: Ask, op: str, inputs: Inputs) -> Answer:
    def as_full(spec: Spec) -> Spec:
        return {**spec, "type": "FullAttentionSpec"} if spec["type"] == "SlidingWindowSpec" else spec

    if {spec["type"] for spec in inputs["specs"].values()} != {"SlidingWindowSpec"}:
        return ask(op, inputs)
    return ask(op, _with_specs(inputs, as_full))


@_asking(
    ("max_concurrency",), "the cache holds as many tokens as its blocks by groups have in the least block size", "I7"
)
def _tokens_by_groups(ask: Ask, op: str, inputs: Inputs) -> Answer:
    answer = ask(op, inputs)
    if not isinstance(answer.get("output"), float) or _length(inputs) < 1:
        return answer
    groups = ask("groups", {name: value for name, value in inputs.items() if name != "num_blocks"})["output"]
    if len(groups["groups"]) < 2 or any("spec" not in group for group in groups["groups"]):
        return answer
    least = min(groups["specs"][group["spec"]]["block_size"] for group in groups["groups"])
    usable = max(0, inputs["num_blocks"] - 1)
    return {"output": usable // len(groups["groups"]) * least / _length(inputs)}


# What fits.


def _null_block(ask: Ask, op: str, inputs: Inputs) -> int:
    """Bytes of the block that no request can use; 0 where that is not known."""
    about = {name: value for name, value in inputs.items() if name != "available_memory"}
    if op == "estimate_from_groups":
        needed = ask("needed", about).get("output")
        return int(needed["pool_bytes_per_block"]) if needed else 0
    pages = [ask("page", {"spec": inputs["specs"][spec]}).get("output") for _, spec in inputs["layers"]]
    return sum(page["page_size_bytes"] for page in pages if page)


@_asking(
    ("estimate", "estimate_from_groups", "check_memory"), "the null block counts as one that a request can use", "I8"
)
def _null_block_usable(ask: Ask, op: str, inputs: Inputs) -> Answer:
    memory = inputs["available_memory"]
    more = _null_block(ask, op, inputs) if memory > 0 else 0
    return ask(op, {**inputs, "available_memory": memory + more})


@_asking(("configs",), "what one worker must hold is what all layers of the model need")
def _worker_checked_for_the_whole_model(ask: Ask, op: str, inputs: Inputs) -> Answer:
    if len(inputs["workers"]) > 1:
        layers = {name: spec for worker in inputs["workers"] for name, spec in worker}
        alone = {**inputs, "workers": [[[name, spec] for name, spec in layers.items()]]}
        for memory in inputs["available_memory"]:
            refused = ask(op, {**alone, "available_memory": [memory]})
            if refused.get("raises") == "ValueError":
                return refused
    return ask(op, inputs)


@_asking(("configs",), "with hybrid memory switched off the check counts windows that are held as full attention")
def _windows_checked_before_they_are_full(ask: Ask, op: str, inputs: Inputs) -> Answer:
    right = ask(op, inputs)
    passed = ask(op, _without_setting(inputs, "disable_hybrid_kv_cache_manager"))
    if right.get("raises") != "ValueError" or "output" not in passed:
        return right
    short = ask(op, _with_settings(inputs, max_model_len=1))
    return {"output": {**short["output"], "max_model_len": _length(inputs)}} if "output" in short else right


# Pages and groups.


@_asking(("unify_page_size",), "states get larger blocks, although their page does not grow with the block")
def _blocks_of_states_enlarged(ask: Ask, op: str, inputs: Inputs) -> Answer:
    answer = ask(op, inputs)
    pages = {}
    for _, name in inputs["layers"]:
        page = ask("page", {"spec": inputs["specs"][name]}).get("output")
        pages[name] = page["page_size_bytes"] if page else 0
    states = [page for name, page in pages.items() if inputs["specs"][name]["type"] == "MambaSpec"]
    if "output" in answer and any(page < max(pages.values()) for page in states):
        return {"raises": "AssertionError"}
    return answer


@fault_in_answer("unify_page_size", "a smaller page is filled up, its block stays as it is", "I3")
def _page_filled_up(inputs: Inputs, output: Any) -> Any:
    given = {
        place: inputs["specs"][spec] for (_, place), (_, spec) in zip(output["layers"], inputs["layers"], strict=True)
    }
    for place, spec in enumerate(output["specs"]):
        if spec["block_size"] != given[place]["block_size"]:
            spec |= {"block_size": given[place]["block_size"], "page_size_padded": output["page_sizes"][place]}
    return output


@fault_in_answer("groups", "layers of one kind are cut into runs, not dealt out in turns")
def _groups_of_runs(inputs: Inputs, output: Any) -> Any:
    names = [name for name, _ in inputs["layers"]]
    alike: dict[int, list[Any]] = {}
    for group in output["groups"]:
        if "spec" in group:
            alike.setdefault(group["spec"], []).append(group)
    for groups in alike.values():
        layers = sorted((name for group in groups for name in group["layers"]), key=names.index)
        for group in groups:
            count = len(group["layers"])
            group["layers"], layers = layers[:count], layers[count:]
    return output


@_asking(("configs",), "each worker groups its own layers by itself, and all must come to the same")
def _groups_of_each_worker(ask: Ask, op: str, inputs: Inputs) -> Answer:
    found = []
    for worker in filter(None, inputs["workers"]):
        answer = ask("groups", {"specs": inputs["specs"], "layers": worker, "vllm_config": inputs["vllm_config"]})
        if "output" not in answer:
            return ask(op, inputs)
        specs = answer["output"]["specs"]
        found.append([specs[group["spec"]] if "spec" in group else None for group in answer["output"]["groups"]])
    return {"raises": "AssertionError"} if any(one != found[0] for one in found) else ask(op, inputs)
