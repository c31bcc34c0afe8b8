"""Earlier requests of a run: what a prompt that is sent again is made of, and which blocks it would hit."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...model.ops import Item, Submit
from ...model.state import Request
from .bounds import ITEMS, item_named
from .draw import Draw
from .scene import Scene

REMEMBERED = 4
"""Requests that have ended and may still be sent again."""


@dataclass(frozen=True)
class Former:
    """A request that was there before, and may have ended."""

    submit: Submit
    tokens: tuple[int, ...]
    """All that were known."""
    tables: tuple[tuple[int, ...], ...]
    """Of each group, as they last were."""


class Past:
    """The requests of a run, the last ones that have ended among them."""

    def __init__(self) -> None:
        self._ended: list[Former] = []

    def ends(self, scene: Scene, name: str) -> None:
        """Remember a request that is about to end."""
        request = scene.requests.get(name)
        if request is not None and request.computed:
            self._ended = [*self._ended[1 - REMEMBERED :], _former(scene, name, request)]

    def one(self, draw: Draw, scene: Scene) -> Former | None:
        """Some earlier request; None if there is none."""
        names = [name for name, request in scene.requests.items() if request.computed]
        if not names and not self._ended:
            return None
        place = draw.integer(0, len(names) + len(self._ended) - 1)
        if place >= len(names):
            return self._ended[place - len(names)]
        return _former(scene, names[place], scene.requests[names[place]])


def _former(scene: Scene, name: str, request: Request) -> Former:
    tables = tuple(tuple(tables.get(name, ())) for tables in scene.state.tables)
    return Former(request.submit, tuple(request.tokens), tables)


def registered_blocks(draw: Draw, scene: Scene, former: Former) -> tuple[int, ...]:
    """One or two of the blocks that a request has had and that carry an identity, of one group or of two; may be
    empty."""
    chosen: list[int] = []
    for _ in range(draw.choose((1, 1, 2))):
        table = former.tables[draw.integer(0, len(former.tables) - 1)]
        there = [block for block in table if block in scene.state.identity]
        chosen += [draw.choose(there)] if there else []
    return tuple(dict.fromkeys(chosen))


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
