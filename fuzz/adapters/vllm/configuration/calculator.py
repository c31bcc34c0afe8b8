"""Answers questions of configuration arithmetic with the functions of a core that has the API of vLLM 0.23.

A question is the name of an operation (`op`) and its inputs. Questions and answers are JSON, in the format of the
golden vectors. This module runs in the Python environment of the target, where only the standard library and the target
itself are installed.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from .part_calculator import PARTS
from .piece_calculator import PIECES
from .planned_calculator import PLANNED, block_bytes, grouped, placed, uniform_info, uniformity, verdict
from .question_json import (
    Inputs,
    Json,
    Names,
    QuestionError,
    SpecTable,
    layers_from_json,
    layers_to_json,
    spec_from_json,
    spec_to_json,
    tensors_to_json,
    vllm_config_from_json,
)
from .record_calculator import RECORDS
from .specs_today import is_planned


def answer(names: Names, op: str, inputs: Inputs) -> dict[str, object]:
    """`{"output": value}` or `{"raises": name of the exception's class}`. QuestionError for a malformed question."""
    known = {**_OPS, **PLANNED, **RECORDS} if is_planned(names) else _OPS
    if op not in known:
        raise QuestionError(f"unknown op {op!r}; ask one of {', '.join(known)}")
    work = known[op]
    try:
        return {"output": work(names, inputs)}
    except QuestionError:
        raise
    except Exception as error:
        return {"raises": type(error).__name__}


# Questions about specs.


def _page(names: Names, inputs: Inputs) -> Any:
    spec = spec_from_json(names, inputs["spec"])
    attributes = ("page_size_bytes", "storage_block_size", "real_page_size_bytes", "page_size_padded")
    return {name: getattr(spec, name) for name in attributes if hasattr(spec, name)}


def _resize(names: Names, inputs: Inputs) -> Any:
    spec = spec_from_json(names, inputs["spec"]).copy_with_new_block_size(inputs["block_size"])
    return {"block_size": spec.block_size, "page_size_bytes": spec.page_size_bytes}


def _max_memory(names: Names, inputs: Inputs) -> Any:
    spec = spec_from_json(names, inputs["spec"])
    settings = inputs.get("vllm_config") or {}
    configs = [vllm_config_from_json({**settings, "max_model_len": length}) for length in inputs["max_model_lens"]]
    return [spec.max_memory_usage_bytes(config) for config in configs]


def _admission_cap(names: Names, inputs: Inputs) -> Any:
    spec = spec_from_json(names, inputs["spec"])
    return [spec.max_admission_blocks_per_request(batched, length) for batched, length in inputs["draws"]]


def _merge(names: Names, inputs: Inputs) -> Any:
    specs = [spec_from_json(names, raw) for raw in inputs["specs"]]
    return spec_to_json(type(specs[0]).merge(specs))


def _uniformity(names: Names, inputs: Inputs) -> Any:
    layers = layers_from_json(names, inputs, inputs["layers"])
    return {**uniformity(names, inputs), "page": verdict(names("is_kv_cache_page_size_uniform"), layers)}


def _sizes_and_tuples(spec: Any) -> dict[str, Any]:
    return {"page_sizes": sorted(spec.get_page_sizes()), "num_layer_tuples": spec.get_num_layer_tuples()}


# Questions about the layers of a model.


def _model(names: Names, inputs: Inputs) -> tuple[Any, dict[str, Any]]:
    config = vllm_config_from_json(inputs.get("vllm_config"))
    return config, layers_from_json(names, inputs, inputs["layers"])


def _grouped(names: Names, config: Any, layers: Mapping[str, Any]) -> tuple[tuple[Any, ...], list[Any]]:
    """What functions about groups are given first, and the groups."""
    if is_planned(names):
        return grouped(names, config, layers)
    return (config,), names("get_kv_cache_groups")(config, layers)


def _grouped_model(names: Names, inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any], list[Any]]:
    config, layers = _model(names, inputs)
    first, groups = _grouped(names, config, layers)
    return first, layers, groups


def _resolve_block_sizes(names: Names, inputs: Inputs) -> Any:
    group_of = names("KVCacheGroupSpec")
    groups = [group_of([f"l{index}"], spec_from_json(names, raw)) for index, raw in enumerate(inputs["groups"])]
    config = names("KVCacheConfig")(num_blocks=1, kv_cache_tensors=[], kv_cache_groups=groups)
    sizes = names("resolve_kv_cache_block_sizes")(config, vllm_config_from_json(inputs.get("vllm_config")))
    return list(sizes)


def _unify_page_size(names: Names, inputs: Inputs) -> Any:
    layers = layers_from_json(names, inputs, inputs["layers"])
    return layers_to_json(names("unify_kv_cache_spec_page_size")(layers))


def _unify_hybrid(names: Names, inputs: Inputs) -> Any:
    layers = layers_from_json(names, inputs, inputs["layers"])
    names("unify_hybrid_kv_cache_specs")(layers)
    return layers_to_json(layers)


def _groups(names: Names, inputs: Inputs) -> Any:
    table = SpecTable()
    return {"groups": table.groups(_grouped_model(names, inputs)[2]), "specs": table.specs}


def _project(names: Names, inputs: Inputs) -> Any:
    _, layers, groups = _grouped_model(names, inputs)
    worker = {layer: layers[layer] for layer in inputs["worker"]}
    table = SpecTable()
    projected = names("_project_kv_cache_groups_to_worker")(groups, worker)
    return {"groups": table.groups(projected), "specs": table.specs}


def _needed(names: Names, inputs: Inputs) -> Any:
    config, layers = _model(names, inputs)
    total = names("max_memory_usage_bytes")(config, list(layers.values()))  # before grouping may change the mapping
    first, groups = _grouped(names, config, layers)
    block = block_bytes(names, first, groups) if is_planned(names) else {}
    request = names("_max_memory_usage_bytes_from_groups")(*first, groups)
    block = block or {"pool_bytes_per_block": names("_pool_bytes_per_block")(groups)}
    return {"sum_over_layers": total, "from_groups": request, **block}


def _estimate(names: Names, inputs: Inputs) -> Any:
    config, layers = _model(names, inputs)
    estimate = names("estimate_max_model_len")(config, layers, inputs["available_memory"])
    return {"estimate": estimate, "max_model_len_after": config.model_config.max_model_len}


def _estimate_from_groups(names: Names, inputs: Inputs) -> Any:
    """The length alone where the configuration is as before, which it has to be."""
    first, _, groups = _grouped_model(names, inputs)
    model = first[-1].model_config
    before = model.max_model_len
    estimate = names("_estimate_max_model_len_from_groups")(*first, groups, inputs["available_memory"])
    after = model.max_model_len
    return estimate if after == before else {"estimate": estimate, "max_model_len_after": after}


def _check_memory(names: Names, inputs: Inputs) -> Any:
    names("check_enough_kv_cache_memory")(*_model(names, inputs), inputs["available_memory"])


def _blocks_and_tensors(names: Names, made: Any) -> dict[str, Any]:
    return {"num_blocks": made.num_blocks, "tensors": placed(made) if is_planned(names) else tensors_to_json(made)}


def _config_from_groups(names: Names, inputs: Inputs) -> Any:
    first, _, groups = _grouped_model(names, inputs)
    made = names("get_kv_cache_config_from_groups")(first[-1], groups, inputs["available_memory"])
    return _blocks_and_tensors(names, made) | {
        "has_mamba_layers": made.has_mamba_layers,
        "needs_kv_cache_zeroing": made.needs_kv_cache_zeroing,
    }


def _configs(names: Names, inputs: Inputs) -> Any:
    config = vllm_config_from_json(inputs.get("vllm_config"))
    workers = [layers_from_json(names, inputs, listed) for listed in inputs["workers"]]
    whole = [names("get_global_kv_cache_groups")(config, workers)] if is_planned(names) else []
    made = names("get_kv_cache_configs")(config, workers, list(inputs["available_memory"]), *whole)
    table = SpecTable()
    shown: list[Json] = []
    for worker in made:
        one = _blocks_and_tensors(names, worker) | {"groups": table.groups(worker.kv_cache_groups)}
        shown.append({"same_as": shown.index(one)} if one in shown else one)
    scheduler = names("generate_scheduler_kv_cache_config")(made)
    return {
        "workers": shown,
        "max_model_len": config.model_config.max_model_len,
        "scheduler": {"num_blocks": scheduler.num_blocks, "groups": table.groups(scheduler.kv_cache_groups)},
        "specs": table.specs,
    }


def _max_concurrency(names: Names, inputs: Inputs) -> Any:
    first, _, groups = _grouped_model(names, inputs)
    made = names("KVCacheConfig")(num_blocks=inputs["num_blocks"], kv_cache_tensors=[], kv_cache_groups=groups)
    concurrency = names("get_max_concurrency_for_kv_cache_config")(first[-1], made)
    return "inf" if concurrency == math.inf else concurrency


def _num_blocks(names: Names, inputs: Inputs) -> Any:
    config = vllm_config_from_json(inputs.get("vllm_config"))
    return [names("get_num_blocks")(config, *draw) for draw in inputs["draws"]]


def _approximate_gcd(names: Names, inputs: Inputs) -> Any:
    return [names("_approximate_gcd")(values, lower_bound=bound) for values, bound in inputs["draws"]]


_OPS: Mapping[str, Callable[[Names, Inputs], Any]] = {
    "page": _page,
    "resize": _resize,
    "max_memory": _max_memory,
    "admission_cap": _admission_cap,
    "merge": _merge,
    "uniformity": _uniformity,
    "uniform_info": lambda names, inputs: uniform_info(names, inputs, _sizes_and_tuples),
    "resolve_block_sizes": _resolve_block_sizes,
    "unify_page_size": _unify_page_size,
    "unify_hybrid": _unify_hybrid,
    "groups": _groups,
    "project": _project,
    "needed": _needed,
    "estimate": _estimate,
    "estimate_from_groups": _estimate_from_groups,
    "check_memory": _check_memory,
    "config_from_groups": _config_from_groups,
    "configs": _configs,
    "max_concurrency": _max_concurrency,
    "num_blocks": _num_blocks,
    "approximate_gcd": _approximate_gcd,
    **PIECES,
    **PARTS,
}
