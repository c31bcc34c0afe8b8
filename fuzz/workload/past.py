"""Earlier requests of a run: what a prompt that is sent again is made of, and which blocks it would hit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...model.ops import Item, Submit
from ...model.state import Request
from .bounds import ITEMS, item_named
from .draw import Draw
from .scene import Scene

REMEMBERED = 4
"""Requests that have ended and may still be sent again."""


Blocks: TypeAlias = Mapping[int, int]
"""Of a group: the block of each place in a request's table, also where the table has nothing any more."""


@dataclass(frozen=True)
class Former:
    """A request that was there before, and may have ended."""

    submit: Submit
    tokens: tuple[int, ...]
    """All that were known."""
    blocks: Sequence[Blocks]
    """Of each group; some may hold something else by now."""


class Past:
    """The requests of a run, the last ones that have ended among them."""

    def __init__(self) -> None:
        self._ended: list[Former] = []
        self._blocks: dict[str, list[dict[int, int]]] = {}

    def steps(self, scene: Scene, name: str) -> None:
        """Remember the blocks of a request whose step has run: a window leaves the first ones behind."""
        tables = scene.state.tables
        for blocks, of_group in zip(self._blocks.setdefault(name, [{} for _ in tables]), tables, strict=True):
            blocks.update((place, block) for place, block in enumerate(of_group.get(name, ())) if block)

    def ends(self, scene: Scene, name: str) -> None:
        """Remember a request that is about to end."""
        request = scene.requests.get(name)
        if request is not None and name in self._blocks:
            self._ended = [*self._ended[1 - REMEMBERED :], self._former(name, request)]
            del self._blocks[name]

    def one(self, draw: Draw, scene: Scene) -> Former | None:
        """Some earlier request; None if there is none."""
        names = [name for name in scene.requests if name in self._blocks]
        if not names and not self._ended:
            return None
        place = draw.integer(0, len(names) + len(self._ended) - 1)
        if place >= len(names):
            return self._ended[place - len(names)]
        return self._former(names[place], scene.requests[names[place]])

    def _former(self, name: str, request: Request) -> Former:
        return Former(request.submit, tuple(request.tokens), self._blocks[name])


def cut_blocks(draw: Draw, scene: Scene, former: Former, unit: int) -> tuple[int, ...]:
    """Registered blocks that a request has had: of one group the block behind a multiple of `unit` tokens, of another
    that and all further ones, or both. So the groups can serve hits of different lengths, and one has a gap."""
    sizes = [group.block_size * scene.shape.parallel for group in scene.shape.groups]
    gap, registered = draw.integer(0, len(sizes) - 1), scene.state.identity
    places = [place for place, block in former.blocks[gap].items() if block in registered]
    places = [place for place in places if place * sizes[gap] % unit == 0] or places
    if not places:
        return ()
    place, what = min(draw.choose(places), draw.choose(places)), draw.integer(0, 3)  # a gap has something behind it
    chosen = [former.blocks[gap][place]] if what else []
    if what != 1:
        end = (gap + draw.integer(1, max(1, len(sizes) - 1))) % len(sizes)
        position = place * sizes[gap]
        chosen += [block for other, block in former.blocks[end].items() if other * sizes[end] >= position]
    return tuple(block for block in dict.fromkeys(chosen) if block in registered)


def items_within(items: Sequence[Item], length: int) -> tuple[Item, ...]:
    """Those that end in the first `length` tokens."""
    return tuple(item for item in items if item.offset + item.length <= length)


def with_another_item(draw: Draw, items: Sequence[Item]) -> tuple[Item, ...]:
    """The items with another one in the place of one of them."""
    if not items:
        return ()
    at = draw.integer(0, len(items) - 1)
    other = item_named(draw.choose(ITEMS), items[at].offset, items[at].length)
    return (*items[:at], other, *items[at + 1 :])


def with_another_row(draw: Draw, rows: Sequence[int | None], alphabet: int) -> tuple[int | None, ...]:
    """Rows of embeddings, one of them changed if there is one."""
    places = [at for at, row in enumerate(rows) if row is not None]
    if not places:
        return tuple(rows)
    at = draw.choose(places)
    return (*rows[:at], ((rows[at] or 0) + 1) % max(2, alphabet), *rows[at + 1 :])
