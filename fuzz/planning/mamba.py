"""Families that mix attention with mamba layers, whose state has one size whatever the length of the sequence.

The block size of attention and the padding of the states depend on one another; hybrid.py settles both.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .fields import Fields
from .parts import DTYPES, Layers, Serving, Spec, attention, count_layers, longest_of, model_itemsize

DEFAULT_CHUNK = 2048
"""Tokens a chunk of kernels has that know no chunks (mamba 1)."""


def jamba(fields: Fields, serving: Serving) -> Layers:
    """Attention on layers `attn_layer_offset`, `+ attn_layer_period`, ...; mamba 1 on the others."""
    count = count_layers(fields)
    period = fields.count("attn_layer_period")
    offset = fields.count("attn_layer_offset", least=0)
    if offset >= period:
        raise fields.wrong(f"field 'attn_layer_offset' ({offset}) must be less than attn_layer_period ({period})")
    kinds = ["attention" if i % period == offset else "mamba" for i in range(count)]
    inner = _on_a_rank(fields, fields.count("mamba_expand") * fields.count("hidden_size"), "inner size", serving)
    shapes = [[_convolved(fields, "mamba_d_conv"), inner], [inner, fields.count("mamba_d_state")]]
    state = {"mamba_type": "MAMBA1", **_state(fields, serving, shapes)}
    return _hybrid(fields, serving, kinds, state, DEFAULT_CHUNK)


def bamba(fields: Fields, serving: Serving) -> Layers:
    """Attention on the layers that `attn_layer_indices` names, mamba 2 on the others."""
    count = count_layers(fields)
    named = fields.listed("attn_layer_indices")
    for i in named:
        if type(i) is not int or not 0 <= i < count:
            raise fields.wrong(f"field 'attn_layer_indices' names layer {i!r}; layers are 0 .. {count - 1}")
    kinds = ["attention" if i in named else "mamba" for i in range(count)]
    sizes = _Mamba2(
        inner=fields.count("mamba_expand") * fields.count("hidden_size"),
        groups=fields.count("mamba_n_groups"),
        heads=fields.count("mamba_n_heads"),
        head_size=fields.count("mamba_d_head"),
        width=fields.count("mamba_d_state"),
        convolved=_convolved(fields, "mamba_d_conv"),
    )
    state = _mamba2_state(fields, serving, sizes)
    return _hybrid(fields, serving, kinds, state, fields.count("mamba_chunk_size", default=256))


def nemotron_h(fields: Fields, serving: Serving) -> Layers:
    """A letter of `hybrid_override_pattern` a layer: M mamba 2, * attention, - and E feed-forward layers (no cache)."""
    count = count_layers(fields)
    pattern = fields.text("hybrid_override_pattern")
    if len(pattern) != count:
        raise fields.wrong(
            f"field 'hybrid_override_pattern' has {len(pattern)} letters, num_hidden_layers says {count} layers"
        )
    meaning = {"M": "mamba", "*": "attention", "-": "none", "E": "none"}
    for i, letter in enumerate(pattern):
        if letter not in meaning:
            raise fields.wrong(f"hybrid_override_pattern[{i}] is {letter!r}; known are {', '.join(meaning)}")
    heads, size = fields.count("mamba_num_heads"), fields.count("mamba_head_dim")
    sizes = _Mamba2(
        inner=heads * size,
        groups=fields.count("n_groups"),
        heads=heads,
        head_size=size,
        width=fields.count("ssm_state_size"),
        convolved=_convolved(fields, "conv_kernel"),
    )
    state = _mamba2_state(fields, serving, sizes)
    return _hybrid(fields, serving, [meaning[letter] for letter in pattern], state, fields.count("chunk_size"))


@dataclass(frozen=True)
class _Mamba2:
    """The sizes of a mamba 2 layer, over all ranks, in elements."""

    inner: int
    groups: int
    heads: int
    head_size: int
    width: int
    """Of the state, for each element of a head."""
    convolved: int
    """Tokens the convolution looks back."""


def _mamba2_state(fields: Fields, serving: Serving, sizes: _Mamba2) -> Spec:
    """The convolution's window over the inner elements and two rows of `width` a group, and the state of each head."""
    ranks = serving.tensor_parallel
    # Groups are copied, not cut, where ranks do not divide them: each head keeps its group beside it.
    groups = sizes.groups if sizes.groups % ranks == 0 else ranks
    convolution = _on_a_rank(fields, sizes.inner + 2 * groups * sizes.width, "convolution's size", serving)
    heads = _on_a_rank(fields, sizes.heads, "number of heads", serving)
    return _state(fields, serving, [[sizes.convolved, convolution], [heads, sizes.head_size, sizes.width]])


def _state(fields: Fields, serving: Serving, shapes: list[list[int]]) -> Spec:
    """A spec of these two tensors: the window of the convolution, and the state itself, whose elements may be wider."""
    itemsize, _ = model_itemsize(fields, serving)
    name = serving.ssm_dtype if serving.ssm_dtype != "auto" else fields.text("mamba_ssm_cache_dtype", "auto")
    if name != "auto" and name not in DTYPES:
        raise fields.wrong(f"field 'mamba_ssm_cache_dtype' is {name!r}; known are auto, {', '.join(DTYPES)}")
    dtypes = [{"itemsize": itemsize}, {"itemsize": DTYPES.get(name, itemsize)}]
    mode = {} if serving.mamba_cache_mode == "none" else {"mamba_cache_mode": serving.mamba_cache_mode}
    return {"type": "MambaSpec", "block_size": serving.block_size, "shapes": shapes, "dtypes": dtypes, **mode}


def _convolved(fields: Fields, name: str) -> int:
    """Tokens the convolution looks back: one less than its kernel is wide."""
    return fields.count(name, least=2) - 1


def _on_a_rank(fields: Fields, value: int, what: str, serving: Serving) -> int:
    return fields.quotient(value, f"mamba: the {what}", serving.tensor_parallel, "the tensor-parallel size")


def _hybrid(fields: Fields, serving: Serving, kinds: Sequence[str], state: Spec, chunk: int) -> Layers:
    own, notes = attention(fields, serving)
    cached = {"attention": ("self_attn.attn", own), "mamba": ("mamba", state)}
    stack = tuple(
        ((f"model.layers.{i}.{cached[kind][0]}", cached[kind][1]),) if kind in cached else ()
        for i, kind in enumerate(kinds)
    )
    return Layers(
        stack,
        longest_of(fields),
        serving.block_size,
        prefix_caching=serving.mamba_cache_mode != "none",
        state_chunk=chunk,
        notes=notes,
    )
