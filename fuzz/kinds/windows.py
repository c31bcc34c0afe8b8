"""Kinds of sliding windows: plain and latent."""

from collections.abc import Callable, Mapping, Sequence

from ...model.ops import Group, Kind
from .draw import Draw
from .record import AttentionKind, LayerClass
from .style import (
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
    value_heads,
)


def _drawn(kind: Kind) -> Callable[[Draw, int, int], Group]:
    return lambda draw, size, wide: Group(
        kind, size, window=draw.choose((1, 2, size, size + 1, 2 * size + 1, 3 * size, 7, wide))
    )


SLIDING = AttentionKind(
    "sliding",
    words="sliding window of {window}",
    drawn=_drawn("sliding"),
    usual=lambda size, reach: Group("sliding", size, window=reach),
    spec="SlidingWindowSpec",
    spec_fields=lambda group: {"sliding_window": group.window},
    needs={"window": 1},
    reach=1_024,
    explored=lambda size: Group("sliding", size, window=size + 1),
)
SLIDING_MLA = AttentionKind(
    "sliding_mla",
    words="latent sliding window of {window}",
    drawn=_drawn("sliding_mla"),
    usual=lambda size, reach: Group("sliding_mla", size, window=reach),
    spec="SlidingWindowMLASpec",
    latent=True,
    spec_fields=lambda group: {"sliding_window": group.window},
    needs={"window": 1},
    reach=1_024,
)


def _window(draw: Draw, style: Style) -> int:
    return draw.choose(WINDOWS) if differs(draw, style, "window") else style.window


def _sliding(draw: Draw, style: Style) -> Spec:
    window = _window(draw, style)
    return attention_spec(draw, style, "SlidingWindowSpec", sliding_window=window, **value_heads(draw, style))


def _sliding_mla(draw: Draw, style: Style) -> Spec:
    return latent_spec(draw, style, "SlidingWindowMLASpec", sliding_window=_window(draw, style))


_OWN: Mapping[str, Sequence[object]] = {"sliding_window": WINDOWS, "head_size_v": (8, 64)}
_REQUIRED = (*HEADS, "sliding_window")
_LEAST = {**SIZES, "sliding_window": 5}
SLIDING_LAYERS = LayerClass(
    *("SlidingWindowSpec", _sliding, "window", _LEAST),
    own=_OWN,
    required=_REQUIRED,
    optional=(*OPTIONAL, "head_size_v"),
    value_heads=True,
    reach="sliding_window",
    layer_type="sliding_attention",
)
SLIDING_MLA_LAYERS = LayerClass(
    *("SlidingWindowMLASpec", _sliding_mla, "latent window", _LEAST),
    own={**LATENT, **_OWN},
    required=_REQUIRED,
    optional=(*OPTIONAL, "head_size_v", *LATENT),
    value_heads=True,
    reach="sliding_window",
)
