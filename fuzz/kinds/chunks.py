"""Attention within chunks."""

from ...model.ops import Group
from .draw import Draw
from .record import AttentionKind, LayerClass
from .style import CHUNKS, HEADS, OPTIONAL, SIZES, Spec, Style, attention_spec, differs


def _drawn(draw: Draw, size: int, wide: int) -> Group:
    return Group("chunked", size, chunk=draw.choose((1, 2, size, 2 * size, 3 * size, 2 * size + 1, 5, wide)))


CHUNKED = AttentionKind(
    "chunked",
    words="chunks of {chunk}",
    drawn=_drawn,
    usual=lambda size, reach: Group("chunked", size, chunk=reach),
    spec="ChunkedLocalAttentionSpec",
    spec_fields=lambda group: {"attention_chunk_size": group.chunk},
    needs={"chunk": 1},
    reach=8_192,
    explored=lambda size: Group("chunked", size, chunk=2 * size),
)


def _chunked(draw: Draw, style: Style) -> Spec:
    chunk = draw.choose(CHUNKS) if differs(draw, style, "window") else style.chunk
    return attention_spec(draw, style, "ChunkedLocalAttentionSpec", attention_chunk_size=chunk)


CHUNKED_LAYERS = LayerClass(
    *("ChunkedLocalAttentionSpec", _chunked, "chunk", {**SIZES, "attention_chunk_size": 6}),
    own={"attention_chunk_size": CHUNKS},
    required=(*HEADS, "attention_chunk_size"),
    optional=OPTIONAL,
    reach="attention_chunk_size",
    layer_type="chunked_attention",
)
