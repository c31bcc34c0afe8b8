"""Attention to what an encoder has put out, and of the encoder itself, which no group of a core keeps."""

from ...model.ops import Group
from .record import AttentionKind, LayerClass
from .style import HEADS, OPTIONAL, SIZES, attention_spec

CROSS = AttentionKind(
    "cross",
    words="cross attention",
    drawn=lambda draw, size, wide: Group("cross", size),
    usual=lambda size, reach: Group("cross", size),
    spec="CrossAttentionSpec",
)
CROSS_LAYERS = LayerClass(
    *("CrossAttentionSpec", lambda draw, style: attention_spec(draw, style, "CrossAttentionSpec"), "cross", SIZES),
    required=HEADS,
    optional=OPTIONAL,
)
ENCODER_LAYERS = LayerClass(
    "EncoderOnlyAttentionSpec",
    lambda draw, style: attention_spec(draw, style, "EncoderOnlyAttentionSpec"),
    "encoder",
    SIZES,
)
