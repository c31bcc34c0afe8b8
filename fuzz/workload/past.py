"""Earlier requests of a run: what a prompt that is sent again is made of, and which blocks it would hit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TypeAlias

from ...model.ops import Item, Submit
from ...model.state import Request
from .bounds import ITEMS, item_named
from .draw import Draw
from .scene import Scene

REMEMBERED = 4
"""Requests that have ended and may still be sent again."""


Contents: TypeAlias = Mapping[int, object]
"""Of a group: the identity of the block of each place in a request's table, if it had one, also where the table has
nothing any more."""


@dataclass(frozen=True)
class Former:
    """A request that was there before, and may have ended."""

    submit: Submit
    tokens: tuple[int, ...]
    """All that were known."""
    contents: Sequence[Contents]
    """Of each group; of some there may be no block any more, or several."""


class Past:
    """The requests of a run, the last ones that have ended among them."""

    def __init__(self) -> None:
        self._ended: list[Former] = []
        self._contents: dict[str, list[dict[int, object]]] = {}

    def steps(self, scene: Scene, name: str) -> None:
        """Remember what the blocks of a request hold whose step has run: a window leaves the first ones behind."""
        tables, identity = scene.state.tables, scene.state.identity
        for contents, of_group in zip(self._contents.setdefault(name, [{} for _ in tables]), tables, strict=True):
            for place, block in enumerate(of_group.get(name, ())):
                if block in identity:
                    contents[place] = identity[block]

    def ends(self, scene: Scene, name: str) -> None:
        """Remember a request that is about to end."""
        request = scene.requests.get(name)
        if request is not None and name in self._contents:
            self._ended = [*self._ended[1 - REMEMBERED :], self._former(name, request)]
            del self._contents[name]

    def one(self, draw: Draw, scene: Scene, longest_of: int = 1) -> Former | None:
        """Some earlier request, or the longest of so many; None if there is none."""
        names = [name for name in scene.requests if name in self._contents]
        count = len(names) + len(self._ended)
        if not count:
            return None
        places = [draw.integer(0, count - 1) for _ in range(longest_of)]
        return max([self._at(place, names, scene) for place in places], key=lambda former: len(former.tokens))

    def _at(self, place: int, names: Sequence[str], scene: Scene) -> Former:
        if place >= len(names):
            return self._ended[place - len(names)]
        return self._former(names[place], scene.requests[names[place]])

    def _former(self, name: str, request: Request) -> Former:
        return Former(request.submit, tuple(request.tokens), self._contents[name])


def items_within(items: Sequence[Item], length: int) -> tuple[Item, ...]:
    """Those that end in the first `length` tokens."""
    return tuple(item for item in items if item.offset + item.length <= length)


def with_another_item(draw: Draw, items: Sequence[Item], length: int, overlap: bool) -> tuple[Item, ...]:
    """The items of a prompt of so many tokens, one of them changed in one thing: what it is, where it begins, how long
    it is, or that it is there. They may lie on the same tokens only with `overlap`, or if they did before."""
    if not items:
        return ()
    at, by, what = draw.integer(0, len(items) - 1), draw.choose((-1, 1)), draw.integer(0, 5)
    was = items[at]
    changed = {0: (_moved(was, by, 0),), 1: (_moved(was, 0, by),), 2: ()}.get(what)
    if changed is not None:
        others = (*items[:at], *changed, *items[at + 1 :])
        if all(map(partial(_fits, length=length), changed)) and (overlap or not _overlap(others)):
            return others
    names = [item_named(letter, was.offset, was.length) for letter in ITEMS]
    return (*items[:at], draw.choose([one for one in names if one != was]), *items[at + 1 :])


def _moved(item: Item, by: int, longer: int) -> Item:
    return Item(item.identifier, item.offset + by, item.length + longer)


def _fits(item: Item, length: int) -> bool:
    return item.offset >= 0 < item.length and item.offset + item.length <= length


def _overlap(items: Sequence[Item]) -> bool:
    places = sorted((item.offset, item.offset + item.length) for item in items)
    return any(end > start for (_, end), (start, _) in pairwise(places))


def with_another_row(draw: Draw, rows: Sequence[int | None], alphabet: int) -> tuple[int | None, ...]:
    """Rows of embeddings, one of them changed if there is one."""
    places = [at for at, row in enumerate(rows) if row is not None]
    if not places:
        return tuple(rows)
    at = draw.choose(places)
    return (*rows[:at], ((rows[at] or 0) + 1) % max(2, alphabet), *rows[at + 1 :])
