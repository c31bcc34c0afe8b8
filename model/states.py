"""The states of Mamba layers in mode align: where a request keeps them, which blocks it takes for them (core.md §7).

A state stands for all tokens before it, so few are held. The running one stands in the entry of the step's last token,
those of drafts in the `p` entries behind. A step continues from a state that an earlier one left at or behind the entry
of the last settled token; everything before is null. Nothing is remembered but the table.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from . import arith
from .attention import Rule
from .ops import NULL


class Arrangement(NamedTuple):
    """What an allocation does to the states of a request. All are indices of table entries."""

    empty: list[int]  # where a state will be written, and no block is
    moved: list[int]  # entries whose blocks go there, in this order; the blocks that are missing are new
    dropped: list[int]  # other entries that become null

    @property
    def new(self) -> int:
        """How many blocks leave the free queue."""
        return len(self.empty) - len(self.moved)


def arrangement(
    rule: Rule, table: Sequence[int], first: int, computed: int, main: int, own: Callable[[int], bool]
) -> Arrangement:
    """What a step does that begins behind `computed` tokens and ends behind `main`; before entry `first` all is null.

    Where a state is missing a block, one of another entry serves, if it is the request's `own`: nobody else holds it or
    may look it up. The step reads before it writes, so this may even be the block that it reads. One block besides
    stays as it is, that of the last computed token: others may continue from the state there, a block may end there,
    and drafts that are rejected may lead back there. So no request ever holds more than 2 + p (T15).
    """
    running = arith.cdiv(main, rule.b) - 1
    end, stays = running + 1 + rule.p, arith.cdiv(computed, rule.b) - 1
    empty = [i for i in range(running, end) if i >= len(table) or table[i] == NULL]
    moved: list[int] = []
    dropped: list[int] = []
    for i in range(first, len(table)) if empty else ():
        if table[i] != NULL and i != stays and not running <= i < end:
            (moved if len(moved) < len(empty) and own(table[i]) else dropped).append(i)
    return Arrangement(empty, moved, dropped)


def most_states(rule: Rule, num_tokens: int) -> int:
    """The most blocks that a request holds on its way to so many tokens (T16): one stays behind where it goes on to a
    second block."""
    return 1 + rule.p + (num_tokens > rule.b)
