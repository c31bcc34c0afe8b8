"""Converts questions and answers of configuration arithmetic between JSON and the objects of a core.

This module runs in the Python environment of the target, where only the standard library and the target itself are
installed.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, TypeAlias

from .specs_today import fields_today, is_planned, layout_named, named_as_asked, published

Names: TypeAlias = Callable[[str], Any]
"""Returns the core's class or function of that name; AttributeError if it has none (`Binding.names`)."""
Inputs: TypeAlias = Mapping[str, Any]
Json: TypeAlias = dict[str, Any]


class QuestionError(ValueError):
    """The question is malformed or cannot be asked of this core; the core itself was not called."""


# From JSON to the objects of the core.


@dataclasses.dataclass(frozen=True)
class DType:
    """An element type that only says its size in bytes."""

    itemsize: int


_TORCH_TYPES = {1: "uint8", 2: "float16", 4: "float32", 8: "float64", 16: "complex128"}


def dtype_from_json(names: Names, raw: Mapping[str, int]) -> Any:
    """An element type of this size in bytes: one of torch's if the core uses torch, which then asks torch for the
    size."""
    itemsize = raw["itemsize"]
    torch = _torch(names)
    if torch is None:
        return DType(itemsize)
    if itemsize not in _TORCH_TYPES:
        raise QuestionError(f"torch has no dtype of {itemsize} bytes; ask about one of {sorted(_TORCH_TYPES)}")
    return getattr(torch, _TORCH_TYPES[itemsize])


@cache
def _torch(names: Names) -> Any:
    try:
        return names("torch")
    except AttributeError:
        return None


def spec_from_json(names: Names, raw: Inputs) -> Any:
    """The spec; whatever its class raises is passed on."""
    fields = {name: value for name, value in raw.items() if name != "type"}
    if "dtype" in fields:
        fields["dtype"] = dtype_from_json(names, fields["dtype"])
    if "dtypes" in fields:
        fields["dtypes"] = tuple(dtype_from_json(names, dtype) for dtype in fields["dtypes"])
    if "shapes" in fields:
        fields["shapes"] = tuple(map(tuple, fields["shapes"]))
    for field, enum in (("kv_quant_mode", "KVQuantMode"), ("mamba_type", "MambaAttentionBackendEnum")):
        if field in fields:
            fields[field] = names(enum)[fields[field]]
    if "kv_cache_specs" in fields:
        fields["kv_cache_specs"] = {name: spec_from_json(names, member) for name, member in fields["kv_cache_specs"]}
    if not is_planned(names):
        return names(raw["type"])(**fields)
    return published(names(raw["type"])(**fields_today(raw["type"], fields)))


def layers_from_json(names: Names, inputs: Inputs, listed: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Layer name to spec. Layers have separate spec objects, even if equal, unless the inputs say `shared_objects`."""
    shared: dict[str, Any] = {}
    layers = {}
    for layer, name in listed:
        spec = shared.get(name) or spec_from_json(names, inputs["specs"][name])
        if layer.startswith("draft") and hasattr(spec, "is_draft"):
            spec = dataclasses.replace(spec, is_draft=True)
        if inputs.get("shared_objects"):
            shared[name] = spec
        layers[layer] = spec
    return layers


def vllm_config_from_json(raw: Inputs | None) -> Any:
    """A stand-in for `VllmConfig` with all that the core reads of it (specs-and-config.md §1)."""
    values = dict(raw or {})

    def section(**defaults: object) -> SimpleNamespace:
        return SimpleNamespace(**{name: values.pop(name, default) for name, default in defaults.items()})

    max_model_len = values.get("max_model_len", 1024)
    models = values.pop("draft_models", 1)
    eagle = SimpleNamespace(use_eagle=lambda: True, use_eagle_block_drop=lambda: True, method="eagle")
    config = SimpleNamespace(
        model_config=section(max_model_len=max_model_len, original_max_model_len=max_model_len),
        parallel_config=section(decode_context_parallel_size=1, prefill_context_parallel_size=1),
        scheduler_config=section(
            max_num_batched_tokens=512, max_num_encoder_input_tokens=0, disable_hybrid_kv_cache_manager=False
        ),
        cache_config=section(
            block_size=16,
            hash_block_size=None,
            enable_prefix_caching=True,
            num_gpu_blocks_override=None,
            mamba_cache_mode="none",
            kv_cache_layout=None,
        ),
        kv_transfer_config=SimpleNamespace() if values.pop("kv_connector", False) else None,
        speculative_config=eagle if values.pop("use_eagle", False) else None,
    )
    _today(config, models)
    if values:
        raise QuestionError(f"vllm_config has unknown settings: {', '.join(values)}")
    return config


def _today(config: SimpleNamespace, models: int) -> None:
    """What cores of today read besides; those before do not ask for it."""
    cache = config.cache_config
    cache.prefix_match_unit, cache.prefix_cache_retention_interval = cache.hash_block_size, None
    cache.get_resolved_kv_cache_layout = lambda: layout_named(cache.kv_cache_layout)
    config.model_config.supports_kv_cache_grouping = False
    config.parallel_config.tensor_parallel_size = 1
    config.attention_config = SimpleNamespace(hisparse_config=None)
    config.device_config = SimpleNamespace(device_type="cuda")
    config.max_in_flight_tokens = config.scheduler_config.max_num_batched_tokens
    config.num_prefill_lookahead_tokens = models if config.speculative_config else 0


# From the objects of the core to JSON.


def spec_to_json(spec: Any) -> Json:
    """The spec's class and those of its fields that are not at their default."""
    shown: Json = {"type": type(spec).__name__}
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if not field.compare:
            continue
        if field.default is not dataclasses.MISSING and value == field.default:
            continue
        if field.name == "head_size_v" and value == spec.head_size:
            continue
        shown[field.name] = _field_to_json(field.name, value)
    return named_as_asked(shown)


def _field_to_json(name: str, value: Any) -> Any:
    match name:
        case "dtype":
            return {"itemsize": value.itemsize}
        case "dtypes":
            return [{"itemsize": dtype.itemsize} for dtype in value]
        case "shapes":
            return [list(shape) for shape in value]
        case "kv_quant_mode" | "mamba_type":
            return value.name
        case "kv_cache_specs":
            return [[layer, spec_to_json(member)] for layer, member in value.items()]
        case _:
            return value


class SpecTable:
    """The distinct specs of an answer, numbered by first use."""

    def __init__(self) -> None:
        self.specs: list[Json] = []

    def number(self, spec: Any) -> int:
        """Index of this spec in the table; it is added if it is not there yet."""
        shown = spec_to_json(spec)
        if shown not in self.specs:
            self.specs.append(shown)
        return self.specs.index(shown)

    def group(self, group: Any) -> Json:
        """JSON of a KVCacheGroupSpec."""
        spec, layers = group.kv_cache_spec, list(group.layer_names)
        shown: Json = {"layers": layers}
        if hasattr(spec, "kv_cache_specs"):
            members = spec.kv_cache_specs
            if set(members) != set(layers):
                shown["member_names"] = layers = list(members)
            shown |= {"block_size": spec.block_size, "members": [self.number(members[layer]) for layer in layers]}
        else:
            shown["spec"] = self.number(spec)
        if group.is_eagle_group:
            shown["eagle"] = True
        return shown

    def groups(self, groups: Iterable[Any]) -> list[Json]:
        """JSON of all groups of a configuration."""
        return [self.group(group) for group in groups]


def tensors_to_json(config: Any) -> list[list[Any]]:
    """Size in bytes and layers of each tensor of a KVCacheConfig."""
    return [[tensor.size, list(tensor.shared_by)] for tensor in config.kv_cache_tensors]


def layers_to_json(layers: Mapping[str, Any]) -> Json:
    """A mapping of layers, with the table of its specs and their page sizes in bytes."""
    table = SpecTable()
    numbered = [[layer, table.number(spec)] for layer, spec in layers.items()]
    pages = dict(
        zip((number for _, number in numbered), (spec.page_size_bytes for spec in layers.values()), strict=True)
    )
    return {"specs": table.specs, "page_sizes": [pages[number] for number in range(len(pages))], "layers": numbered}
