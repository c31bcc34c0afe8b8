"""What an engine shows of a lower tier: another memory in which it keeps blocks under the name of their content.

A tier has places, numbered from 0; place n holds the slots from n * b on, b being the block size of its group, as
`SlotTransfer.other` names them. An engine that has one offers two methods: `tiers` and `tier_events`.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

TierPolicy: TypeAlias = Literal["lru", "fifo", "arc", ""]
"""Who leaves first when room is needed: who was stored or found longest ago; who was stored first; as in ARC; not said.
Of the first two each victim is judged."""
Kept: TypeAlias = Literal["ended", "cancelled", "preempted"]
TierDeed: TypeAlias = Literal[
    "looked",
    "reserved",
    "stored",
    "released",
    "evicted",
    "moved",
    "stranded",
    "dropped",
    "pinned",
    "unpinned",
    "emptied",
]
TIER_DEEDS = get_args(TierDeed)
NOBODY = -1
"""In place of the number of a block: what is stored is no content of any request, and must never be found."""


@dataclass(frozen=True)
class LowerTier:
    """What an engine says of a tier."""

    blocks: int
    """Places: so many blocks fit."""
    policy: TierPolicy = ""
    keeps: frozenset[Kept] = frozenset()
    """Whose whole blocks are stored, as far as there is room: of who has got all his tokens, of who has cancelled, of
    who was set back."""
    group: int = 0
    """Of layers, whose blocks these are."""
    together: bool = False
    """Blocks that are evicted in one event leave together or not at all: it is enough if one of them was needed."""
    above: str = ""
    """The tier whose blocks come here when they are evicted there, as far as there is room. What is here counts as kept
    by that tier, too."""


@dataclass(frozen=True)
class TierEvent:
    """What an engine has done with a tier."""

    what: TierDeed
    """* `looked`: for the blocks of `request` from number `first` on, `asked` of them; `places` are those found, in
      their order, up to the first that is not there.
    * `reserved`: `places` are taken for blocks of `request` from number `first` on (or `NOBODY`), which are to be
      stored; `stored`: they are found from now on; `released`: they will not be stored.
    * `evicted`: they are given up to make room for what is reserved next, in the same call and in one event.
    * `moved`: they are given up since another tier holds them by now, as when a block comes up. No need of room, and no
      turn, either.
    * `stranded`: they are given up since nobody can reach them: a block before them is gone from all tiers and from the
      device, so that no look gets so far. It takes no need of room, and no turn.
    * `dropped`: they are given up since a load from there has failed; `emptied`: all are given up.
    * `pinned`, `unpinned`: they may not be evicted, or may be again; each counts once."""
    tier: str = "host"
    places: tuple[int, ...] = ()
    request: str = ""
    first: int = 0
    asked: int = 0
