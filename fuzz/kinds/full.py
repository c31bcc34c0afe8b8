"""Kinds of full attention: plain, latent, quantized, with sinks."""

from collections.abc import Mapping, Sequence

from ...model.ops import Group
from .draw import Draw
from .record import AttentionKind, LayerClass
from .style import (
    CHUNKS,
    HEADS,
    LATENT,
    OPTIONAL,
    SIZES,
    WINDOWS,
    Spec,
    Style,
    attention_spec,
    differs,
    latent_spec,
    recorded,
    value_heads,
)

FULL = AttentionKind(
    "full",
    words="full attention",
    drawn=lambda draw, size, wide: Group("full", size),
    usual=lambda size, reach: Group("full", size),
    spec="FullAttentionSpec",
    explored=lambda size: Group("full", size),
)
MLA = AttentionKind(
    "mla",
    words="latent attention",
    drawn=lambda draw, size, wide: Group("mla", size),
    usual=lambda size, reach: Group("mla", size),
    spec="MLAAttentionSpec",
    latent=True,
    explored=lambda size: Group("mla", size),
)
TQ = AttentionKind(
    "tq",
    words="quantized attention",
    drawn=lambda draw, size, wide: Group("tq", size),
    usual=lambda size, reach: Group("tq", size),
    spec="TQFullAttentionSpec",
)
SINK = AttentionKind(
    "sink",
    words="attention with sinks",
    drawn=lambda draw, size, wide: Group("sink", size, sink_len=size * draw.choose((1, 2))),
    usual=lambda size, reach: Group("sink", size, sink_len=size),
    spec="SinkFullAttentionSpec",
    spec_fields=lambda group: {"sink_len": group.sink_len},
    needs={"sink_len": 0},
    explored=lambda size: Group("sink", size, sink_len=size),
)


def _full(draw: Draw, style: Style) -> Spec:
    own = value_heads(draw, style) | recorded(draw, style)
    both = {"sliding_window": style.window, "attention_chunk_size": style.chunk}
    if {*own} & {*both} and draw.integer(0, 9) == 9:
        own |= both
    return attention_spec(draw, style, "FullAttentionSpec", **own)


def _tq(draw: Draw, style: Style) -> Spec:
    slot = {"tq_slot_size": draw.choose((100, 63, style.head_size * style.itemsize))}
    return attention_spec(draw, style, "TQFullAttentionSpec", **slot if draw.integer(0, 3) else {})


def _sink(draw: Draw, style: Style) -> Spec:
    length = draw.choose((128, 256)) if differs(draw, style, "window") else style.block_size * 4
    own = value_heads(draw, style) | recorded(draw, style)
    return attention_spec(draw, style, "SinkFullAttentionSpec", sink_len=length, **own)


def _mla(draw: Draw, style: Style) -> Spec:
    own = {"sliding_window": style.window} if draw.integer(0, 29) == 29 else {}
    return latent_spec(draw, style, "MLAAttentionSpec", **own)


def _hidden(draw: Draw, style: Style) -> Spec:
    row = draw.choose((style.head_size * 4, style.head_size, 24, style.page // max(1, style.itemsize) + 1))
    return latent_spec(draw, style, "HiddenStateCacheSpec", head_size=row)


_OWN: Mapping[str, Sequence[object]] = {
    "head_size_v": (8, 64),
    "sliding_window": (None, *WINDOWS[1:3]),
    "attention_chunk_size": (None, *CHUNKS[:2]),
}
_OPTIONAL = (*OPTIONAL, *_OWN)
FULL_LAYERS = LayerClass(
    "FullAttentionSpec", _full, "full", SIZES, _OWN, HEADS, _OPTIONAL, value_heads=True, layer_type="full_attention"
)
TQ_LAYERS = LayerClass(
    *("TQFullAttentionSpec", _tq, "full, packed", SIZES),
    own={**_OWN, "tq_slot_size": (0, 63, 100)},
    required=HEADS,
    optional=(*_OPTIONAL, "tq_slot_size"),
)
SINK_LAYERS = LayerClass(
    *("SinkFullAttentionSpec", _sink, "full, sinks", SIZES),
    own={**_OWN, "sink_len": (128, 256)},
    required=(*HEADS, "sink_len"),
    optional=_OPTIONAL,
)
MLA_LAYERS = LayerClass("MLAAttentionSpec", _mla, "latent", SIZES, {**_OWN, **LATENT}, HEADS, (*_OPTIONAL, *LATENT))
HIDDEN_LAYERS = LayerClass(
    "HiddenStateCacheSpec", _hidden, "hidden states", SIZES, {**_OWN, **LATENT}, HEADS, (*_OPTIONAL, *LATENT)
)
