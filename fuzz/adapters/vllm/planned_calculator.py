"""Questions about configurations that a core answers otherwise which plans them in a module of its own, as vLLM does
today: a builder places layers in one allocation, by strides, and a core that asks for it passes the groups on.

This module runs in the Python environment of the target, where only the standard library and the target itself are
installed.
"""

from collections.abc import Callable, Mapping
from typing import Any

from .question_json import (
    Inputs,
    Json,
    Names,
    SpecTable,
    layers_from_json,
    spec_from_json,
    spec_to_json,
    vllm_config_from_json,
)


def _page(names: Names, inputs: Inputs) -> Any:
    spec = spec_from_json(names, inputs["spec"])
    attributes = ("page_size_bytes", "real_page_size_bytes", "page_size_padded")
    shown = {name: getattr(spec, name) for name in attributes if hasattr(spec, name)}
    if hasattr(spec, "num_kv_heads"):
        shown |= {"states": spec.num_states, "kernel_states": spec.get_num_kernel_states(spec.block_size * 2)}
    return shown


def _copy(names: Names, inputs: Inputs) -> Any:
    before = spec_from_json(names, inputs["spec"])
    return {
        "spec": spec_to_json(before.copy_with_new_block_size(inputs["block_size"])),
        "before": spec_to_json(before),
    }


def uniformity(names: Names, inputs: Inputs) -> dict[str, Any]:
    """What the checks of every release say of the layers: whether they have one spec, and one type."""
    layers = layers_from_json(names, inputs, inputs["layers"])
    checks = {"spec": names("is_kv_cache_spec_uniform"), "type": names("UniformTypeKVCacheSpecs").is_uniform_type}
    return {name: verdict(check, layers) for name, check in checks.items()}


def verdict(check: Callable[[Any], bool], layers: Any) -> Any:
    """What the check says, or the error in which it ends."""
    try:
        return check(layers)
    except Exception as error:
        return {"raises": type(error).__name__}


def _uniform_info(names: Names, inputs: Inputs) -> Any:
    config = vllm_config_from_json(inputs.get("vllm_config"))
    spec = names("UniformTypeKVCacheSpecs").from_specs(layers_from_json(names, inputs, inputs["layers"]))
    if spec is None:
        return None
    return {
        "block_size": spec.block_size,
        "page_size_bytes": spec.page_size_bytes,
        "num_layer_tuples": spec.get_max_layers_per_page_size(),
        "max_pages": spec.max_memory_usage_pages(config),
        "max_bytes": spec.max_memory_usage_bytes(config),
    }


def _uniform_pages(names: Names, inputs: Inputs) -> Any:
    spec = spec_from_json(names, inputs["spec"])
    tuples = spec.get_max_layers_per_page_size()
    return {
        "tuples": tuples,
        "pages": spec.max_memory_usage_pages(vllm_config_from_json(inputs.get("vllm_config"))),
    }


def _grouped(names: Names, inputs: Inputs) -> tuple[Any, Any, list[Any]]:
    config = vllm_config_from_json(inputs.get("vllm_config"))
    builder = names("get_kv_cache_config_builder")(config)
    layers = layers_from_json(names, inputs, inputs["layers"])
    return config, builder, names("get_kv_cache_groups_from_builder")(builder, config, layers)


def _needed(names: Names, inputs: Inputs) -> Any:
    config = vllm_config_from_json(inputs.get("vllm_config"))
    layers = layers_from_json(names, inputs, inputs["layers"])
    total = names("max_memory_usage_bytes")(config, list(layers.values()))  # before grouping may change the mapping
    config, builder, groups = _grouped(names, inputs)
    block = names("_pool_bytes_per_block_from_builder")(builder, config, groups)
    return {
        "sum_over_layers": total,
        "from_groups": names("_max_memory_usage_bytes_from_groups")(builder, config, groups),
        "pool_bytes_per_block": block,
        "beside": block,
    }


def _estimate_from_groups(names: Names, inputs: Inputs) -> Any:
    """The length alone where the configuration is as before, which it has to be."""
    config, builder, groups = _grouped(names, inputs)
    before = config.model_config.max_model_len
    estimate = names("_estimate_max_model_len_from_groups")(builder, config, groups, inputs["available_memory"])
    after = config.model_config.max_model_len
    return estimate if after == before else {"estimate": estimate, "max_model_len_after": after}


def _groups(names: Names, inputs: Inputs) -> Any:
    table = SpecTable()
    return {"groups": table.groups(_grouped(names, inputs)[2]), "specs": table.specs}


def _project(names: Names, inputs: Inputs) -> Any:
    layers = layers_from_json(names, inputs, inputs["layers"])
    worker = {layer: layers[layer] for layer in inputs["worker"]}
    table = SpecTable()
    projected = names("_project_kv_cache_groups_to_worker")(_grouped(names, inputs)[2], worker)
    return {"groups": table.groups(projected), "specs": table.specs}


def _max_concurrency(names: Names, inputs: Inputs) -> Any:
    config, _, groups = _grouped(names, inputs)
    made = names("KVCacheConfig")(num_blocks=inputs["num_blocks"], kv_cache_tensors=[], kv_cache_groups=groups)
    return names("get_max_concurrency_for_kv_cache_config")(config, made)


def _placed(made: Any) -> Json:
    """Blocks, and of each stretch of layers the allocation's size, its layers, strides of layers and blocks, begin."""
    return {
        "num_blocks": made.num_blocks,
        "tensors": [
            [tensor.size, list(tensor.layers), tensor.layer_stride, tensor.block_stride, tensor.offset]
            for tensor in made.kv_cache_tensors
        ],
    }


def _config_from_groups(names: Names, inputs: Inputs) -> Any:
    config, _, groups = _grouped(names, inputs)
    made = names("get_kv_cache_config_from_groups")(config, groups, inputs["available_memory"])
    return _placed(made) | {
        "has_mamba_layers": made.has_mamba_layers,
        "needs_kv_cache_zeroing": made.needs_kv_cache_zeroing,
    }


def _configs(names: Names, inputs: Inputs) -> Any:
    config = vllm_config_from_json(inputs.get("vllm_config"))
    workers = [layers_from_json(names, inputs, listed) for listed in inputs["workers"]]
    whole = names("get_global_kv_cache_groups")(config, workers)
    made = names("get_kv_cache_configs")(config, workers, list(inputs["available_memory"]), whole)
    table = SpecTable()
    shown: list[Json] = []
    for worker in made:
        one = _placed(worker) | {"groups": table.groups(worker.kv_cache_groups)}
        shown.append({"same_as": shown.index(one)} if one in shown else one)
    scheduler = names("generate_scheduler_kv_cache_config")(made)
    return {
        "workers": shown,
        "max_model_len": config.model_config.max_model_len,
        "scheduler": {"num_blocks": scheduler.num_blocks, "groups": table.groups(scheduler.kv_cache_groups)},
        "specs": table.specs,
    }


PLANNED: Mapping[str, Callable[[Names, Inputs], Any]] = {
    "page": _page,
    "copy": _copy,
    "uniformity": uniformity,
    "uniform_info": _uniform_info,
    "uniform_pages": _uniform_pages,
    "groups": _groups,
    "project": _project,
    "max_concurrency": _max_concurrency,
    "needed": _needed,
    "estimate_from_groups": _estimate_from_groups,
    "config_from_groups": _config_from_groups,
    "configs": _configs,
}
