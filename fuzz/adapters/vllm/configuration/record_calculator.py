"""Questions that only cores of today can be asked (`configuration.today`), put to the functions of one.

This module runs in the Python environment of the target, where only the standard library and the target itself are
installed.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

from .part_calculator import PARTS
from .planned_calculator import placed, verdict
from .question_json import Inputs, Names, spec_from_json, spec_to_json, vllm_config_from_json
from .specs_today import layout_named

SAYS = {
    "cacheable": "prefix_cacheable",
    "replayed": "prefix_replay_tokens",
    "table_alignment": "block_table_token_alignment",
    "views": "has_layer_views",
    "slots": "uses_slot_mapping",
    "page": "page_size_bytes",
    "retained": "num_retained_tokens",
    "heads": "num_heads",
    "states": "num_states",
    "content": "state_content_size_bytes",
}
"""What a spec says of itself, by the words of an answer."""


def spec_of(names: Names, raw: Inputs) -> Any:
    """The spec, with the fields of today."""
    fields = dict(raw)
    if "kv_cache_specs" in fields:
        members = {name: spec_of(names, member) for name, member in fields["kv_cache_specs"]}
        return names("UniformTypeKVCacheSpecs")(block_size=fields["block_size"], kv_cache_specs=members)
    if isinstance(pooled := fields.get("tokens_per_state"), list):
        fields["tokens_per_state"] = Fraction(*pooled)
    if isinstance(stride := fields.get("block_stride_alignment"), Mapping):
        multiple = importlib.import_module("vllm.v1.attention.backend").MultipleOf
        fields["block_stride_alignment"] = multiple(stride["multiple_of"])
    if "cache_role" in fields:
        fields["cache_role"] = names("SparseCacheRole")[fields["cache_role"]]
    return spec_from_json(names, fields)


def _shown(spec: Any) -> Any:
    shown = spec_to_json(spec)
    if isinstance(pooled := shown.get("compress_ratio"), Fraction):
        shown["compress_ratio"] = [pooled.numerator, pooled.denominator]
    stride = shown.get("block_stride_alignment")
    if stride is not None and not isinstance(stride, int):
        shown["block_stride_alignment"] = {"multiple_of": stride.base}
    if "cache_role" in shown:
        shown["cache_role"] = shown["cache_role"].name
    return shown


def _record(names: Names, inputs: Inputs) -> Any:
    spec, config = spec_of(names, inputs["spec"]), vllm_config_from_json(inputs["vllm_config"])
    shown = {
        word: verdict(lambda spec, name=name: getattr(spec, name), spec)  # type: ignore[misc]  # of one spec
        for word, name in SAYS.items()
    }
    asked: Mapping[str, Callable[[Any], Any]] = {
        "rows": lambda spec: [spec.max_num_blocks_per_req(config, length) for length in inputs["lengths"]],
        "stride": lambda spec: spec.get_block_stride_alignment(),
        "need": lambda spec: spec.max_memory_usage_bytes(config),
        "full": names("is_full_attention_spec"),
    }
    return shown | {word: verdict(ask, spec) for word, ask in asked.items()}


def _merge(names: Names, inputs: Inputs) -> Any:
    specs = [spec_of(names, raw) for raw in inputs["specs"]]
    return _shown(type(specs[0]).merge(specs))


def _one_type(names: Names, inputs: Inputs) -> Any:
    layers = {f"l{index}": spec_of(names, raw) for index, raw in enumerate(inputs["specs"])}
    return names("UniformTypeKVCacheSpecs").is_uniform_type(layers)


def _configured(names: Names, inputs: Inputs) -> Any:
    group_of, config_of = names("KVCacheGroupSpec"), names("KVCacheConfig")
    groups = [
        group_of(
            group["layers"],
            spec_of(names, group["spec"]),
            host_resident=group["host"],
            enable_kv_transfer=group["handed_over"],
        )
        for group in inputs["groups"]
    ]
    sizes = {"num_blocks": inputs["num_blocks"], "hisparse_host_num_blocks": inputs["host_blocks"]}
    return config_of(kv_cache_tensors=[], kv_cache_groups=groups, **sizes)


def _handed_over(names: Names, inputs: Inputs) -> Any:
    config = _configured(names, inputs)
    tensor = names("KVCacheTensor")
    pools = [tensor(size=1, layers=["l"], layer_stride=1, block_stride=1, host_resident=host) for host in (False, True)]
    return {
        "groups": list(config.transfer_group_ids),
        "layers": [list(group.layer_names) for group in config.transfer_groups],
        "stored": list(config.prefix_cacheable_group_ids),
        "stored_layers": [list(group.layer_names) for group in config.prefix_cacheable_groups],
        "by_layer": dict(config.transfer_group_index_by_layer),
        "rows": verdict(lambda config: list(config.select_transfer_block_ids(inputs["rows"])), config),
        "host": list(config.host_group_ids),
        "blocks": [verdict(lambda pool: config.num_blocks_of(pool), pool) for pool in pools],
        "zeroed": config.needs_kv_cache_zeroing,
    }


def _room(names: Names, inputs: Inputs) -> Any:
    config, settings = _configured(names, inputs), vllm_config_from_json(inputs["vllm_config"])
    capacity = names("get_kv_cache_capacity")(settings, config)
    names("update_kv_cache_capacity")(settings, config)
    kept = settings.cache_config
    return {"room": list(capacity), "kept": [kept.kv_cache_size_tokens, kept.kv_cache_max_concurrency]}


def _hits_end(names: Names, inputs: Inputs) -> Any:
    specs = [spec_of(names, raw) for raw in inputs["groups"]]
    groups = [names("KVCacheGroupSpec")([f"l{index}"], spec) for index, spec in enumerate(specs)]
    config = names("KVCacheConfig")(num_blocks=1, kv_cache_tensors=[], kv_cache_groups=groups)
    settings = vllm_config_from_json(inputs["vllm_config"])
    ranks = settings.parallel_config.decode_context_parallel_size
    sizes = inputs["scheduler_block_size"], inputs["hash_block_size"]
    return {
        "every": names("resolve_cache_hit_alignment_tokens")(config, settings, *sizes),
        "over_ranks": [names("resolve_dcp_kv_cache_spec")(spec, ranks).block_size for spec in specs],
        "alike": names("kv_cache_groups_tp_replicas")(groups, inputs["ranks"], ranks),
    }


def _views(names: Names, inputs: Inputs) -> Any:
    torch, strides = importlib.import_module("torch"), names("compute_layout_strides")
    spec, layout = spec_of(names, inputs["spec"]), layout_named(inputs["layout"])
    layers, blocks = inputs["layers"], inputs["num_blocks"]
    layer, block, *_ = strides(spec, blocks, layers, layout)
    block += inputs["wider"]
    layer += inputs["wider"] * blocks * layout.is_layer_compact
    tensor = names("KVCacheTensor")(
        *(1, [f"l{index}" for index in range(layers)], layer, block, inputs["offset"]),
    )
    raw = torch.empty(inputs["offset"] + 2 * (layer * layers + block * blocks), dtype=torch.int8, device="meta")
    seen = names("create_kv_cache_views")(raw, spec, blocks, layout, tensor, inputs["kernel_block_size"])
    grouped = [names("group_kernel_blocks")(view, blocks) for view in seen]
    return [
        [list(view.shape), list(view.stride()), view.storage_offset(), list(whole.shape)]
        for view, whole in zip(seen, grouped, strict=True)
    ]


def _placed(names: Names, inputs: Inputs) -> Any:
    spec, last, group_of = *(spec_of(names, inputs[name]) for name in ("spec", "last")), names("KVCacheGroupSpec")
    layers = [[f"l{index}.{layer}" for layer in range(count)] for index, count in enumerate(inputs["groups"])]
    config = vllm_config_from_json({"kv_cache_layout": inputs["layout"]})
    groups = [*(group_of(names_of, spec) for names_of in layers[:-1]), group_of(layers[-1], last)]
    made = names("get_kv_cache_config_from_groups")(config, groups, inputs["available_memory"])
    return {"num_blocks": made.num_blocks, "tensors": placed(made)}


def _kept(names: Names, inputs: Inputs) -> Any:
    spec = spec_of(names, inputs["spec"])
    manager = names("KVCacheSpecRegistry").get_manager_class(spec)
    mask = manager.reachable_block_mask(
        *(inputs["start"], inputs["end"], inputs["unit"], spec, inputs["eagle"]),
        retention_interval=inputs["interval"],
        reachable_boundaries=inputs["resumed"],
        final_segment_end_block=inputs["last"],
    )
    return [True] * (inputs["end"] - inputs["start"]) if mask is None else mask


def _declared_groups(names: Names, inputs: Inputs) -> Any:
    spec, group_of = spec_of(names, inputs["spec"]), names("KVCacheGroupSpec")
    config = vllm_config_from_json({})
    groups = [group_of(part, spec) for part in inputs["declared"]]
    model = SimpleNamespace(get_kv_cache_groups=lambda config, layers: groups)
    registry = SimpleNamespace(resolve_model_cls=lambda architectures, config: {"m": (model, "")}[architectures[0]])
    config.model_config.supports_kv_cache_grouping, config.model_config.registry = True, registry
    config.model_config.architectures = ["m"]
    config.attention_config.hisparse_config = SimpleNamespace() if inputs["pools"] else None
    builder, layers = names("DefaultKVCacheConfigBuilder")(), dict.fromkeys(inputs["names"], spec)
    made = names("get_kv_cache_groups_from_builder")(builder, config, layers)
    return [list(group.layer_names) for group in made]


def _quantised(names: Names, inputs: Inputs) -> Any:
    def said(name: str) -> Any:
        mode = names("get_kv_quant_mode")(name)
        packed = [mode.is_nvfp4, mode.is_turboquant, mode.is_octave, mode.is_ultraquant, mode.is_custom_mode]
        return [mode.name, mode.value, names("is_quantized_kv_cache")(name), mode.is_per_token_head, *packed]

    return [verdict(said, name) for name in inputs["names"]]


def _unsaid(names: Names, inputs: Inputs) -> Any:
    def defaults(call: str, arguments: Sequence[str]) -> list[Any]:
        owner, _, method = call.partition(".")
        called = getattr(names(owner), method) if method else names(owner)
        known = inspect.signature(called).parameters
        found = [known[name].default for name in arguments]
        return [list(one) if isinstance(one, tuple) else one for one in found]

    return [defaults(call, arguments) for call, arguments in inputs["calls"]]


RECORDS: Mapping[str, Callable[[Names, Inputs], Any]] = {
    "record": _record,
    "merge_records": _merge,
    "one_type": _one_type,
    "handed_over": _handed_over,
    "room": _room,
    "hits_end": _hits_end,
    "views": _views,
    "placed": _placed,
    "kept": _kept,
    "declared_groups": _declared_groups,
    "quantised": _quantised,
    "names_ahead": PARTS["block_names"],
    "unsaid": _unsaid,
}
"""Answers by op."""
