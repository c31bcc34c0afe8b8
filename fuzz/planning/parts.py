"""What the families of models share: dtypes, heads on a rank, layer types, and what a family answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..kinds import LAYERS
from .fields import Fields

Spec: TypeAlias = dict[str, object]
"""A spec in the language of the vectors: `{"type": class, field: value, ...}`."""
Stack: TypeAlias = tuple[tuple[tuple[str, Spec], ...], ...]
"""The decoder layers in order; each with the caches it keeps: name and spec. A layer may keep none."""

MOST_LAYERS = 10_000
DTYPES: Mapping[str, int] = {
    "bf16": 2,
    "bfloat16": 2,
    "fp16": 2,
    "float16": 2,
    "half": 2,
    "fp32": 4,
    "float32": 4,
    "float": 4,
}
"""Bytes of an element of a model's data type."""
QUANTIZED: Mapping[str, str] = {
    "fp8": "FP8_PER_TENSOR",
    "fp8_e4m3": "FP8_PER_TENSOR",
    "fp8_e5m2": "FP8_PER_TENSOR",
    "int8_per_token_head": "INT8_PER_TOKEN_HEAD",
    "fp8_per_token_head": "FP8_PER_TOKEN_HEAD",
    "nvfp4": "NVFP4",
}
"""Cache data types of one byte, and how they are scaled."""
MLA_PACKED = "fp8_ds_mla"
CACHE_DTYPES = ("auto", *DTYPES, *QUANTIZED, MLA_PACKED)


@dataclass(frozen=True)
class Serving:
    """What a user chooses when serving a model, as far as the layers depend on it."""

    block_size: int = 16
    """Tokens in a block, before the families raise it."""
    max_model_len: int | None = None
    """Tokens; None: as many as the model allows."""
    dtype: str = "auto"
    cache_dtype: str = "auto"
    mamba_cache_mode: str = "none"
    ssm_dtype: str = "auto"
    """Data type of the state of mamba layers, its convolution apart; auto: what the file says, else the model's."""
    tensor_parallel: int = 1


@dataclass(frozen=True)
class Layers:
    """What a family answers: the layers of a model on one tensor-parallel rank."""

    stack: Stack
    longest: int
    """Tokens that the model was made for."""
    block_size: int
    """Tokens in a block of attention (vLLM's cache_config.block_size)."""
    prefix_caching: bool = True
    encoder_tokens: int = 0
    """The most tokens of an encoder that a request attends to."""
    state_chunk: int | None = None
    """Tokens that the kernels of a mamba hybrid work on at a time; None for other models (see hybrid.py)."""
    notes: tuple[str, ...] = ()
    """What the user should know about how the file was read, a sentence each."""


def count_layers(fields: Fields, name: str = "num_hidden_layers") -> int:
    """How many decoder layers there are."""
    return fields.count(name, most=MOST_LAYERS)


def model_itemsize(fields: Fields, serving: Serving) -> tuple[int, tuple[str, ...]]:
    """Bytes of an element of the model's own data type, and notes for the user."""
    if serving.dtype != "auto":
        return DTYPES[serving.dtype], ()
    name = fields.text("torch_dtype", fields.text("dtype", ""))
    if not name:
        return 2, ("the file names no dtype (torch_dtype); taken for 16 bits",)
    if name not in DTYPES:
        raise fields.wrong(f"field 'torch_dtype' is {name!r}; known are {', '.join(DTYPES)}; or say --dtype")
    if DTYPES[name] == 4:
        return 2, (f"the weights are {name}, which is served in 16 bits unless --dtype says otherwise",)
    return DTYPES[name], ()


def cache_fields(fields: Fields, serving: Serving, itemsize: int) -> Spec:
    """`dtype` and `kv_quant_mode` of an attention layer's cache."""
    name = serving.cache_dtype
    if name == "auto":
        return {"dtype": {"itemsize": itemsize}}
    if name == MLA_PACKED:
        raise fields.wrong(f"--cache-dtype {MLA_PACKED} is for models with latent attention (deepseek) only")
    if name in QUANTIZED:
        return {"dtype": {"itemsize": 1}, "kv_quant_mode": QUANTIZED[name]}
    return {"dtype": {"itemsize": DTYPES[name]}}


def local_heads(fields: Fields, serving: Serving, heads_field: str, kv_field: str) -> tuple[int, int, tuple[str, ...]]:
    """Query heads of the model, key-value heads on one rank (at least one: they are copied), and notes for the user."""
    ranks = serving.tensor_parallel
    heads = fields.count(heads_field)
    total = fields.count(kv_field, default=heads)
    fields.quotient(heads, heads_field, total, kv_field)
    fields.quotient(heads, heads_field, ranks, "the tensor-parallel size")
    if total % ranks and ranks % total:
        raise fields.wrong(
            f"{kv_field} ({total}) and the tensor-parallel size ({ranks}) do not divide one another; "
            "choose a size that divides it, or a multiple of it"
        )
    copied = (f"{total} key-value heads on {ranks} ranks: each rank keeps a copy of one",) if ranks > total else ()
    return heads, max(1, total // ranks), copied


def head_size(fields: Fields, heads: int) -> int:
    """Elements of one key or value of one head."""
    if fields.has("head_dim") or fields.has("attention_head_dim"):
        return fields.count("head_dim", "attention_head_dim")
    return fields.quotient(fields.count("hidden_size"), "hidden_size", heads, "num_attention_heads")


def longest_of(fields: Fields, name: str = "max_position_embeddings", default: int | None = None) -> int:
    """Tokens the model was made for, an extension by YaRN included."""
    field = "rope_scaling" if fields.has("rope_scaling") else "rope_parameters"  # as newer files call it
    scaling = fields.raw.get(field)
    if isinstance(scaling, dict):
        rope = fields.inner(field)
        factor = scaling.get("factor")
        if "yarn" in (scaling.get("rope_type"), scaling.get("type")) and isinstance(factor, int | float):
            if not 1 <= factor <= 10_000:
                raise rope.wrong(f"field 'factor' must be in 1 .. 10,000, got {factor}")
            before = fields.count(name, default=default)
            return max(before, int(rope.count("original_max_position_embeddings", default=before) * factor))
    return fields.count(name, default=default)


def attention(fields: Fields, serving: Serving) -> tuple[Spec, tuple[str, ...]]:
    """The full-attention spec of the model's attention layers, and notes for the user."""
    heads, kv_heads, copied = local_heads(fields, serving, "num_attention_heads", "num_key_value_heads")
    spec, notes = full_attention(fields, serving, kv_heads, head_size(fields, heads))
    return spec, (*notes, *copied)


def full_attention(fields: Fields, serving: Serving, kv_heads: int, size: int) -> tuple[Spec, tuple[str, ...]]:
    """The full-attention spec of layers with so many key-value heads of this size, and notes on its element types."""
    itemsize, notes = model_itemsize(fields, serving)
    spec: Spec = {
        "type": "FullAttentionSpec",
        "block_size": serving.block_size,
        "num_kv_heads": kv_heads,
        "head_size": size,
        **cache_fields(fields, serving, itemsize),
    }
    return spec, notes


def self_attention(specs: Sequence[Spec | None], name: str = "model.layers.{}.self_attn.attn") -> Stack:
    """One cache a layer, none where there is no spec."""
    return tuple(() if spec is None else ((name.format(i), spec),) for i, spec in enumerate(specs))


def layer_types(fields: Fields, otherwise: Callable[[int], str]) -> list[str]:
    """What each layer is called, `full_attention` for example: as listed, else by the rule."""
    count = count_layers(fields)
    if not fields.has("layer_types"):
        return [otherwise(i) for i in range(count)]
    listed = fields.listed("layer_types")
    if len(listed) != count:
        raise fields.wrong(f"field 'layer_types' names {len(listed)} layers, num_hidden_layers says {count}")
    known = [layers.layer_type for layers in LAYERS.values() if layers.layer_type]
    for i, kind in enumerate(listed):
        if kind not in known:
            raise fields.wrong(f"layer_types[{i}] is {kind!r}; known are {', '.join(known)}")
    return [str(kind) for kind in listed]


def by_types(fields: Fields, serving: Serving, otherwise: Callable[[int], str], longest: int | None = None) -> Layers:
    """A decoder of layers of these types."""
    spec, notes = attention(fields, serving)
    types = layer_types(fields, otherwise)
    of_type = {"full_attention": spec}
    for layers in LAYERS.values():
        if layers.reach and layers.layer_type in types:
            of_type[layers.layer_type] = {**spec, "type": layers.name, layers.reach: fields.count(layers.reach)}
    stack = self_attention([of_type[kind] for kind in types])
    return Layers(stack, longest_of(fields, default=longest), serving.block_size, notes=notes)
