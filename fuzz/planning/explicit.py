"""A model written down layer by layer, for what no family covers (docs/guide/plan.md describes the document).

The specs are those of one tensor-parallel rank, as they stand: nothing is divided, raised or padded here.
"""

from collections.abc import Mapping

from ..kinds import LAYERS
from .fields import LARGEST, Fields
from .parts import CACHE_DTYPES, DTYPES, MLA_PACKED, MOST_LAYERS, QUANTIZED, Layers, Serving, Spec

COUNTS = {"block_size", "num_kv_heads", "head_size", "head_size_v", "page_size_padded", "sink_len", "tq_slot_size"}
COUNTS |= {"alignment", "compress_ratio", *(layers.reach for layers in LAYERS.values() if layers.reach)}
SPECS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    name: (layers.required, layers.optional) for name, layers in LAYERS.items() if layers.required
}
"""Fields that a spec must have, and fields that it may have."""
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "mamba_type": ("MAMBA1", "MAMBA2", "SHORT_CONV", "LINEAR", "GDN_ATTN", "CUSTOM"),
    "mamba_cache_mode": ("none", "align", "all"),
    "kv_quant_mode": ("NONE", "FP8_PER_TENSOR", "INT8_PER_TOKEN_HEAD", "FP8_PER_TOKEN_HEAD", "NVFP4"),
}
_ENTRY = {"name", "count", "pattern", "spec"}
_DOCUMENT = {"name", "_name_or_path", "layers", "specs", "max_model_len", "encoder_tokens", "prefix_caching"}


def explicit_layers(fields: Fields, serving: Serving) -> Layers:
    """The layers of an explicit list. ModelError says which entry is wrong, and how."""
    if serving.tensor_parallel > 1:
        raise fields.wrong("an explicit list has the layers of one tensor-parallel rank: divide the heads in the file")
    for key in fields.raw:
        if key not in _DOCUMENT:
            raise fields.wrong(f"unknown field {key!r}; an explicit list has {', '.join(sorted(_DOCUMENT))}")
    table = fields.inner("specs") if fields.has("specs") else Fields({}, fields.where)
    specs = {name: _spec(table.inner(name), serving) for name in table.raw}
    layers: dict[str, Spec] = {}
    for number, raw in enumerate(fields.listed("layers")):
        entry = Fields(raw if isinstance(raw, dict) else {}, f"{fields.where}: layers[{number}]")
        if not isinstance(raw, dict):
            raise entry.wrong(f"must be an object, got {raw!r:.40}")
        for name, spec in _expand(entry, specs, serving, len(layers)):
            if name in layers:
                raise entry.wrong(f"layer {name!r} is named twice")
            layers[name] = spec
            if len(layers) > MOST_LAYERS:
                raise entry.wrong(f"there are more than {MOST_LAYERS:,} layers")
    if not (fields.has("max_model_len") or serving.max_model_len):
        raise fields.wrong("field 'max_model_len' is missing; or say --max-model-len")
    return Layers(
        tuple(((name, spec),) for name, spec in layers.items()),
        fields.count("max_model_len", default=serving.max_model_len),
        serving.block_size,
        prefix_caching=fields.flag("prefix_caching", True),
        encoder_tokens=fields.count("encoder_tokens", default=0, least=0),
    )


def _expand(entry: Fields, specs: Mapping[str, Spec], serving: Serving, first: int) -> list[tuple[str, Spec]]:
    """The layers of one entry: one, `count` equal ones, or `count` times a pattern of named specs."""
    name = entry.text("name")
    count = entry.count("count", default=1, most=MOST_LAYERS)
    if entry.has("pattern"):
        pattern = [_named(entry, specs, key) for key in entry.listed("pattern")]
        if not pattern:
            raise entry.wrong("field 'pattern' must name at least one spec")
    elif entry.has("spec"):
        pattern = [_named(entry, specs, entry.raw["spec"])]
    else:
        pattern = [_spec(Fields({k: v for k, v in entry.raw.items() if k not in _ENTRY}, entry.where), serving)]
    repeated = pattern * count
    if len(repeated) > 1 and "{}" not in name:
        raise entry.wrong(f"name {name!r} stands for {len(repeated)} layers; write {{}} where the layer's number goes")
    return [(name.replace("{}", str(first + i)), spec) for i, spec in enumerate(repeated)]


def _named(entry: Fields, specs: Mapping[str, Spec], key: object) -> Spec:
    if not isinstance(key, str) or key not in specs:
        raise entry.wrong(f"{key!r} is not in 'specs'; known are {', '.join(specs) or 'none'}")
    return specs[key]


def _spec(fields: Fields, serving: Serving) -> Spec:
    """A spec with its fields checked and the defaults of the command line filled in."""
    kind = fields.text("type")
    if kind not in SPECS:
        raise fields.wrong(f"unknown type {kind!r}; known are {', '.join(SPECS)}")
    required, optional = SPECS[kind]
    for name in fields.raw:
        if name not in ("type", *required, *optional):
            raise fields.wrong(f"unknown field {name!r}; {kind} has {', '.join((*required, *optional))}")
    for name in required:
        if not fields.has(name):
            raise fields.wrong(f"field {name!r} of {kind} is missing")
    spec: Spec = {"type": kind, "block_size": fields.count("block_size", default=serving.block_size)}
    for name in fields.raw:
        if fields.has(name) and name not in ("type", "block_size", "dtype", "dtypes"):
            spec[name] = _value(fields, name)
    if "dtypes" in required:
        mode = spec.setdefault("mamba_cache_mode", serving.mamba_cache_mode)
        if mode != serving.mamba_cache_mode:  # two places that would be read by different functions (K-5)
            raise fields.wrong(
                f"field 'mamba_cache_mode' is {mode!r}, --mamba-cache-mode says {serving.mamba_cache_mode!r}"
            )
        spec["dtypes"] = [_dtype(fields, "dtypes", raw)["dtype"] for raw in fields.listed("dtypes")]
    else:
        default = serving.cache_dtype if serving.cache_dtype != "auto" else serving.dtype
        implied = _dtype(fields, "dtype", fields.raw.get("dtype") or default)
        if "cache_dtype_str" in implied and "cache_dtype_str" not in optional:
            raise fields.wrong(f"{MLA_PACKED} is for latent attention; {kind} cannot be stored so")
        spec = {**implied, **spec}
    return spec


def _value(fields: Fields, name: str) -> object:
    if name == "num_speculative_blocks":
        return fields.count(name, least=0)
    if name in COUNTS:
        return fields.count(name)
    if name == "shapes":
        return [_shape(fields, raw) for raw in fields.listed(name)]
    text = fields.text(name)
    if name in _CHOICES and text not in _CHOICES[name]:
        raise fields.wrong(f"field {name!r} is {text!r}; known are {', '.join(_CHOICES[name])}")
    return text


def _shape(fields: Fields, raw: object) -> list[int]:
    sizes = raw if isinstance(raw, list) else []
    if not sizes or any(type(size) is not int or not 1 <= size <= LARGEST for size in sizes):
        raise fields.wrong(f"field 'shapes' must hold arrays of sizes of at least 1, got {raw!r:.40}")
    return list(sizes)


def _dtype(fields: Fields, name: str, raw: object) -> Spec:
    """`{"dtype": {"itemsize": n}}`, and the quantisation of a data type that implies one."""
    if isinstance(raw, dict):
        itemsize = Fields(raw, f"{fields.where}: {name}").count("itemsize", most=16)
        if itemsize & (itemsize - 1):
            raise fields.wrong(f"field {name!r}: elements have 1, 2, 4, 8 or 16 bytes, not {itemsize}")
        return {"dtype": {"itemsize": itemsize}}
    if raw == "auto":
        return {"dtype": {"itemsize": 2}}
    if raw == MLA_PACKED:
        return {"dtype": {"itemsize": 1}, "cache_dtype_str": MLA_PACKED}
    if isinstance(raw, str) and raw in QUANTIZED:
        return {"dtype": {"itemsize": 1}, "kv_quant_mode": QUANTIZED[raw]}
    if isinstance(raw, str) and raw in DTYPES:
        return {"dtype": {"itemsize": DTYPES[raw]}}
    known = ", ".join(name for name in CACHE_DTYPES if name != "auto")
    raise fields.wrong(f'field {name!r} is {raw!r:.40}; write {{"itemsize": bytes}} or one of {known}')
