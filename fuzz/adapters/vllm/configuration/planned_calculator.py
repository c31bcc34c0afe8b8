"""Questions about configurations that a core answers otherwise which plans them in a module of its own, as vLLM does
today: a builder places layers in one allocation, by strides, and a core that asks for it passes the groups on.

This module runs in the Python environment of the target, where only the standard library and the target itself are
installed.
"""

from collections.abc import Callable, Mapping
from typing import Any

from .piece_calculator import PIECES
from .question_json import (
    Inputs,
    Names,
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


def verdict(check: Callable[[Any], Any], layers: Any) -> Any:
    """What the check says, or the error in which it ends."""
    try:
        return check(layers)
    except Exception as error:
        return {"raises": type(error).__name__}


def uniform_info(names: Names, inputs: Inputs, more: Callable[[Any], dict[str, Any]]) -> Any:
    """The numbers of the uniform type of the layers, None if they have none. `more`: what some releases have of it."""
    config = vllm_config_from_json(inputs.get("vllm_config"))
    spec = names("UniformTypeKVCacheSpecs").from_specs(layers_from_json(names, inputs, inputs["layers"]))
    if spec is None:
        return None
    return {
        "block_size": spec.block_size,
        "page_size_bytes": spec.page_size_bytes,
        **more(spec),
        "max_pages": spec.max_memory_usage_pages(config),
        "max_bytes": spec.max_memory_usage_bytes(config),
    }


def _tuples(spec: Any) -> dict[str, Any]:
    return {"num_layer_tuples": spec.get_max_layers_per_page_size()}


def _uniform_pages(names: Names, inputs: Inputs) -> Any:
    spec = spec_from_json(names, inputs["spec"])
    tuples = spec.get_max_layers_per_page_size()
    return {
        "tuples": tuples,
        "pages": spec.max_memory_usage_pages(vllm_config_from_json(inputs.get("vllm_config"))),
    }


def grouped(names: Names, config: Any, layers: Mapping[str, Any]) -> tuple[tuple[Any, ...], list[Any]]:
    """What functions about groups are given first, and the groups."""
    builder = names("get_kv_cache_config_builder")(config)
    return (builder, config), names("get_kv_cache_groups_from_builder")(builder, config, layers)


def block_bytes(names: Names, first: tuple[Any, ...], groups: list[Any]) -> dict[str, Any]:
    """Bytes of a block, which the release needs beside those of a request, too."""
    block = names("_pool_bytes_per_block_from_builder")(*first, groups)
    return {"pool_bytes_per_block": block, "beside": block}


def placed(made: Any) -> list[list[Any]]:
    """Of each stretch of layers the allocation's size, its layers, strides of layers and blocks, begin."""
    return [
        [tensor.size, list(tensor.layers), tensor.layer_stride, tensor.block_stride, tensor.offset]
        for tensor in made.kv_cache_tensors
    ]


def _none_hash(names: Names, inputs: Inputs) -> Any:
    """As before, and the seed that is told to those who must name blocks alike."""
    return {**PIECES["none_hash"](names, inputs), "told": names("get_none_hash_seed")()}


PLANNED: Mapping[str, Callable[[Names, Inputs], Any]] = {
    "page": _page,
    "copy": _copy,
    "none_hash": _none_hash,
    "uniformity": uniformity,
    "uniform_info": lambda names, inputs: uniform_info(names, inputs, _tuples),
    "uniform_pages": _uniform_pages,
}
"""Answers that are others than before; `grouped`, `block_bytes` and `placed` are what is otherwise within an answer."""
