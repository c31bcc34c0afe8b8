"""Kinds that few cores have: a window over generated tokens only, and blocks that are written round and round.

They are drawn for targets that offer them (`targets.declarations.OFFERS`).
"""

from ...model.ops import Group
from .draw import Draw
from .record import AttentionKind


def _rswa(draw: Draw, size: int, wide: int) -> Group:
    return Group("rswa", size, window=draw.choose((1, 2, size, size + 1, 2 * size, 2, 3, min(wide, 3 * size))))


def _ring(draw: Draw, size: int, wide: int) -> Group:
    return Group("ring", draw.choose([part for part in range(1, size + 1) if size % part == 0]))


def _hot(draw: Draw, size: int, wide: int) -> Group:
    return Group("hot", size, window=draw.choose((1, size, 2 * size, size + 1)))


RSWA = AttentionKind(
    "rswa",
    words="the prompt and a window of {window}",
    drawn=_rswa,
    usual=lambda size, reach: Group("rswa", size, window=reach),
    spec="RSWASpec",
    spec_fields=lambda group: {"rswa_window": group.window},
    needs={"window": 1},
    reach=128,
)
RING = AttentionKind(
    "ring",
    words="a ring of the last tokens",
    drawn=_ring,
    usual=lambda size, reach: Group("ring", size),
    spec="CircularBufferSpec",
)
SOURCE = AttentionKind(
    "hosted",
    words="latent attention whose blocks are in the pool of the host",
    drawn=lambda draw, size, wide: Group("hosted", size),
    usual=lambda size, reach: Group("hosted", size),
    spec="MLAAttentionSpec",
    latent=True,
)
RESIDENT = AttentionKind(
    "resident",
    words="its pages on the device",
    drawn=lambda draw, size, wide: Group("resident", size),
    usual=lambda size, reach: Group("resident", size),
    spec="HiSparseResidentSpec",
    own_fields=lambda group: {"page_size": 1},
)
HOT = AttentionKind(
    "hot",
    words="a region of {window} tokens for what is read from the host",
    drawn=_hot,
    usual=lambda size, reach: Group("hot", size, window=reach),
    spec="HiSparseHotSpec",
    own_fields=lambda group: {"page_size": 1, "blocks_per_request": -(-group.window // group.block_size)},
    needs={"window": 1},
)
UNASKED_OF_POOLS = frozenset({"Free.keep", "Release.watched", "Arrive.missing", "Lookup.for_connector"})
"""What is not asked of cores with a pool of the host: others are told of no block there, and only whole loads end."""
