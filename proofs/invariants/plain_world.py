"""A state in plain numbers: what the moves of a real step are made on, and the small states that wrong moves break."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, product
from operator import itemgetter
from typing import Any, NamedTuple

from . import moves, safety
from .moves import OUTSIDE, Kept, NotAllowedError, World


@dataclass(frozen=True)
class Entry:
    """What is fixed of a place."""

    table: int
    index: int = 0
    end: int = 0


class TableOf(NamedTuple):
    """What is fixed of a table."""

    request: int
    reads: bool
    skip: Callable[[int], int]


class PlainWorld(World):
    """At first all blocks but the null block are free, and there are no places and no tables."""

    CELLS = ("count", "key", "free", "block", "nth", "content", "length", "cut", "floor")

    def __init__(self, size: int) -> None:
        self.size, self.num_free = size, size - 1
        for name in self.CELLS:
            setattr(self, name, Kept())
        self.rank, self.slot, self.closing = Kept(-1), Kept(-1), Kept(False)
        self.free.known = {number: number + 1 for number in range(size - 1)}
        self.slot.known = {number + 1: number for number in range(size - 1)}
        self.entries: list[Entry] = []
        self.tables: list[TableOf] = [TableOf(-1, False, lambda tokens: 0)]  # the outside holders

    def table(self, place: int) -> int:
        """The table of a place."""
        return self.entries[place].table

    def index(self, place: int) -> int:
        """Its index there."""
        return self.entries[place].index

    def end(self, place: int) -> int:
        """Tokens up to the end of the entry."""
        return self.entries[place].end

    def request(self, table: int) -> int:
        """Whose table it is."""
        return self.tables[table].request

    def reads(self, table: int) -> bool:
        """Whether entries are tokens that queries read."""
        return self.tables[table].reads

    def skip(self, table: int, tokens: int) -> int:
        """How many leading tokens no query at `tokens` or later reads."""
        return self.tables[table].skip(tokens)

    def add_place(self, entry: Entry) -> int:
        """A place that nothing is known of yet."""
        self.entries.append(entry)
        return len(self.entries) - 1

    def problems(self) -> list[str]:
        """The invariants that do not hold, each with where."""
        places, blocks = range(len(self.entries)), range(1, self.size)
        found = [] if safety.null_is_nameless(self) else ["null_is_nameless"]
        of_places = (safety.held_is_numbered, safety.named_by_content, safety.inside_its_table, safety.read_is_there)
        found += [f"{fact.__name__} at {self.shown(p)}" for p in places for fact in of_places if not fact(self, p)]
        found += [f"free_is_unheld for block {x}" for x in blocks if not safety.free_is_unheld(self, x)]
        found += [
            f"numbers_are_holders for block {x}"
            for x in blocks
            if not all(safety.numbers_are_holders(self, x, number) for number in range(max(1, self.count[x])))
        ]
        counted = all(safety.free_is_counted(self, number) for number in range(max(1, self.num_free)))
        found += [] if counted else ["free_is_counted"]
        held = sorted((self.block[p], p) for p in places if self.block[p] and self.in_table(p))
        found += [
            f"shared_is_equal at {self.shown(p)} and {self.shown(q)}"
            for (x, p), (y, q) in pairwise(held)
            if x == y and not safety.shared_is_equal(self, p, q)
        ]
        tables = range(1, len(self.tables))
        return found + [f"cut_is_settled for table {t}" for t in tables if not safety.cut_is_settled(self, t)]

    def shown(self, place: int) -> str:
        """A place in words."""
        entry = self.entries[place]
        return "an outside holder" if entry.table == OUTSIDE else f"entry {entry.index} of table {entry.table}"

    def copy(self) -> "PlainWorld":
        """Another state, alike."""
        made = PlainWorld.__new__(PlainWorld)
        made.__dict__.update(self.__dict__)
        for name in (*self.CELLS, "rank", "slot", "closing"):
            cells = getattr(self, name)
            kept = Kept(cells.default)
            kept.known = dict(cells.known)
            setattr(made, name, kept)
        return made

    def state(self) -> tuple[Any, ...]:
        """What tells two states with the same places apart, whatever holders and free blocks are numbered like."""
        places, blocks, tables = range(len(self.entries)), range(self.size), range(len(self.tables))
        return (
            *(
                tuple(cells[one] for one in over)
                for cells, over in (
                    (self.block, places),
                    (self.content, places),
                    (self.key, blocks),
                    (self.count, blocks),
                    (self.length, tables),
                    (self.cut, tables),
                    (self.closing, tables),
                    (self.floor, range(3)),
                )
            ),
        )

    def __repr__(self) -> str:
        tables = {
            table: [self.block[p] for p, entry in enumerate(self.entries) if entry.table == table][: self.length[table]]
            for table in range(1, len(self.tables))
        }
        outside = [self.block[p] for p, entry in enumerate(self.entries) if entry.table == OUTSIDE and self.block[p]]
        free = [self.free[number] for number in range(self.num_free)]
        named = {x: self.key[x] for x in range(self.size) if self.key[x]}
        return f"tables {tables}, outside {outside}, free {free}, registered {named}, content {self.content.known}"


Made = tuple[str, tuple[Any, ...]]
"""A move and what it is about."""


def emptied(world: World, table: Any) -> bool:
    """Nothing is held by the table."""
    assert isinstance(world, PlainWorld)
    return not any(world.block[p] for p, entry in enumerate(world.entries) if entry.table == table)


def uncut(world: World, request: Any) -> bool:
    """No table of the request is cut."""
    assert isinstance(world, PlainWorld)
    return not any(world.cut[t] for t, one in enumerate(world.tables) if one.request == request)


def all_moves(world: PlainWorld) -> Iterator[Made]:
    """Every move with everything that it could be about, allowed or not."""
    places, blocks, tables = range(len(world.entries)), range(1, world.size), range(1, len(world.tables))
    for name in ("take", "hit", "touch"):
        yield from ((name, about) for about in product(places, blocks))
    for name in ("pad", "drop", "register", "renew"):
        yield from ((name, (place,)) for place in places)
    yield from (("shift", about) for about in product(places, places))
    yield from (("forget", (x,)) for x in blocks)
    yield from (("learn", about) for about in product(places, (1, 2)))
    for name in ("settle", "cut"):
        yield from ((name, about) for about in product(tables, (1, 2)))
    yield from (("leave", (table,)) for table in tables)
    yield from (("close", (table, emptied)) for table in tables)
    yield from (("restart", (table, uncut)) for table in tables)
    yield "construct", ()


def small_world() -> PlainWorld:
    """Two blocks; two requests with a table each, of two entries, blocks of one token and a window of one; a third
    table whose states move; an outside holder."""
    world = PlainWorld(3)
    world.add_place(Entry(OUTSIDE))
    for table in (1, 2):
        world.tables.append(TableOf(table, table == 1, lambda tokens: max(0, tokens)))
        for index in range(2):
            world.add_place(Entry(table, index, index + 1))
    return world


WALKS, STEPS = 60, 30
"""Small states are those that come up on so many random ways of so many moves each."""


@cache
def small_states() -> tuple[PlainWorld, ...]:
    """States that moves lead to from the first one; those after few moves come first."""
    rng, found = random.Random(1), dict[tuple[Any, ...], tuple[int, PlainWorld]]()
    for walk in range(WALKS):
        world = small_world()
        for step in range(STEPS):
            found.setdefault(world.state(), (step, world))
            # Every other way begins with what random ones seldom come to.
            world = _moved(world, rng) if walk % 2 or step >= len(_STORY) else _after(world, *_STORY[step])
    return tuple(world for _, world in sorted(found.values(), key=itemgetter(0)))


_STORY: tuple[Made, ...] = (
    ("take", (1, 1)),
    ("learn", (1, 1)),
    ("learn", (3, 1)),
    ("register", (1,)),
    ("leave", (1,)),
    ("drop", (1,)),
    ("close", (1, emptied)),
)
"""A block is filled, registered and given back: it is free, and another request has a place for it."""


def _after(world: PlainWorld, name: str, about: tuple[Any, ...]) -> PlainWorld:
    """The state after a move."""
    after = world.copy()
    getattr(moves, name)(after, *about)
    return after


def _moved(world: PlainWorld, rng: random.Random) -> PlainWorld:
    """The state after some move that is allowed; every kind of move is as likely."""
    kinds: dict[str, list[tuple[Any, ...]]] = {}
    for name, about in all_moves(world):
        kinds.setdefault(name, []).append(about)
    names = [name for name in kinds if name != "construct"]
    while True:
        name = rng.choice(names)
        with suppress(NotAllowedError):
            return _after(world, name, rng.choice(kinds[name]))


Problems = Callable[[PlainWorld, PlainWorld, Made], Sequence[str]]
"""What is wrong with a move: from the state before it, that after it, and the move."""


def first_broken(name: str, move: Callable[..., None], problems: Problems, every: int = 1) -> str:
    """The first small state, of each so many, in which a move leads to a problem, in words; empty if there is none."""
    for world in small_states()[::every]:
        for other, about in all_moves(world):
            if other != name:
                continue
            after = world.copy()
            with suppress(NotAllowedError):
                move(after, *about)
                found = problems(world, after, (name, about))
                if found:
                    return f"{name}{about} in {world}: {', '.join(found)}"
    return ""
