"""Every kind of attention: one record each, and what is drawn of them together."""

from collections.abc import Mapping

from ...model.attention import RULES, Mamba
from ...model.ops import Kind
from .chunks import CHUNKED, CHUNKED_LAYERS
from .encoders import CROSS, CROSS_LAYERS, ENCODER_LAYERS
from .few import HOT, RESIDENT, RING, RSWA, SOURCE
from .full import FULL, FULL_LAYERS, HIDDEN_LAYERS, MLA, MLA_LAYERS, SINK, SINK_LAYERS, TQ, TQ_LAYERS
from .record import AttentionKind, LayerClass
from .states import MAMBA, MAMBA_LAYERS
from .windows import SLIDING, SLIDING_LAYERS, SLIDING_MLA, SLIDING_MLA_LAYERS

_MOST: tuple[AttentionKind, ...] = (FULL, MLA, TQ, SINK, SLIDING, SLIDING_MLA, CHUNKED, MAMBA, CROSS)
_FEW: tuple[AttentionKind, ...] = (RSWA, RING)
_PARTS: tuple[AttentionKind, ...] = (SOURCE, RESIDENT, HOT)
KINDS: Mapping[Kind, AttentionKind] = {kind.name: kind for kind in (*_MOST, *_FEW, *_PARTS)}
OF_MOST = tuple(kind.name for kind in _MOST)
OF_FEW = tuple(kind.name for kind in _FEW)
"""Those that only some cores have, and are drawn for no others."""
OF_POOLS = tuple(kind.name for kind in _PARTS)
"""Those that are there together only, with a pool of the host."""
STATE_SPECS = {kind.spec for kind in KINDS.values() if RULES[kind.name] is Mamba}
"""Classes of specs of layers that keep states."""
SIMPLEST: tuple[Kind, ...] = ("full", "sliding", "mamba", "chunked")
"""Those that are simpler to read about than the others, the simplest first."""
HYBRIDS: tuple[tuple[Kind, ...], ...] = (
    ("full", "sliding"),
    ("full", "chunked"),
    ("full", "mamba"),
    ("full", "cross"),
    ("full", "mla"),
    ("mla", "sliding_mla"),
    ("sink", "sliding"),
    ("sliding", "sliding"),
    ("sliding", "mamba"),
    ("full", "full", "sliding"),
    ("full", "sliding", "sliding"),
    ("full", "sliding", "mamba"),
    ("full", "mla", "sliding"),
    ("full", "mamba", "mamba"),
)
"""Kinds of the groups of a core that has several, as models have them."""
HYBRIDS_OF_FEW: tuple[tuple[Kind, ...], ...] = (
    ("full", "rswa"),
    ("rswa", "mamba"),
    ("full", "ring"),
    ("mamba", "ring"),
    ("full", "sliding", "ring"),
    ("full", "mamba", "ring"),
)
"""The same with kinds that few cores have."""
HYBRIDS_OF_POOLS: tuple[tuple[Kind, ...], ...] = (
    ("hosted", "mla", "resident", "hot"),
    ("hosted", "mla", "resident", "resident", "hot", "hot"),
)
"""The same with a pool of the host (`Shape.host_blocks`); none of these parts is there without the others."""
LAYERS: Mapping[str, LayerClass] = {
    layers.name: layers
    for layers in (
        *(FULL_LAYERS, TQ_LAYERS, SINK_LAYERS, MLA_LAYERS, HIDDEN_LAYERS),
        *(SLIDING_LAYERS, SLIDING_MLA_LAYERS, MAMBA_LAYERS, CHUNKED_LAYERS, CROSS_LAYERS, ENCODER_LAYERS),
    )
}
"""The classes of specs that layers have, by name."""
LIKELY = (FULL_LAYERS, SLIDING_LAYERS, FULL_LAYERS, MLA_LAYERS, CHUNKED_LAYERS, MAMBA_LAYERS, SLIDING_MLA_LAYERS)
"""Of which most configurations are drawn."""
MOSTLY_NARROW = (*[SLIDING_LAYERS, CHUNKED_LAYERS] * 2, SLIDING_MLA_LAYERS, FULL_LAYERS)
"""Of layers that mostly have a window or a chunk."""
DRAWN = (
    *(FULL_LAYERS, SLIDING_LAYERS, CHUNKED_LAYERS, MLA_LAYERS, SLIDING_MLA_LAYERS, MAMBA_LAYERS, SINK_LAYERS),
    *(TQ_LAYERS, HIDDEN_LAYERS, CROSS_LAYERS, ENCODER_LAYERS),
)
"""All classes, in the order in which they are chosen from."""
