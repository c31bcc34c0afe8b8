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
