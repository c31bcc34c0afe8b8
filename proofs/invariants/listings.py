"""Sequences of any length: different blocks or indices, and what a loop gathers."""

from collections.abc import Callable, Iterator
from typing import Any

import z3

from ..heap import Heap
from ..symbolic import SymbolicBool, SymbolicInt, running, term

OfBlock = Callable[[Any], Any]
"""A term for each reference, which is the block's id; 0 is the null block."""

ANY_BLOCK, ANY_PLACE = z3.Int("any_block"), z3.Int("any_place")
"""What is claimed of these is claimed of all."""


def as_term(value: Any) -> Any:
    """A solver's term as it is; of anything else `term`."""
    return value if isinstance(value, z3.ExprRef) else term(value)


class Listing:
    """A sequence of different blocks, of any length: the block at a place, and the place of a block."""

    any_length = True

    def __init__(self, length: Any, at: OfBlock, place: OfBlock) -> None:
        self.length, self.at, self.place = as_term(length), at, place

    def holds(self, x: Any) -> Any:
        """Is the block in it?"""
        place = self.place(x)
        return z3.And(place >= 0, place < self.length, self.at(place) == x)

    def symbolic_len(self) -> SymbolicInt:
        """How many."""
        return SymbolicInt(self.length)

    def element(self, heap: Heap, j: Any) -> Any:
        """What a loop gets at a place: a block as it is on this heap."""
        return heap.block(self.at(j))

    def proper(self, size: Any) -> Any:
        """That every place, here an arbitrary one, has a block of the pool of its own."""
        j, here = ANY_PLACE, self.at(ANY_PLACE)
        inside = z3.And(j >= 0, j < self.length)
        return z3.And(self.length >= 0, z3.Implies(inside, z3.And(self.place(here) == j, here >= 1, here < size)))


class Picked:
    """Those of a sequence that are wanted: which they are is known of one block only, of which all is claimed."""

    any_length = True

    def __init__(self, whole: Any, wanted: OfBlock, some: Any) -> None:
        self.whole, self.wanted, self._some = whole, wanted, some

    def holds(self, x: Any) -> Any:
        """Is the block among them?"""
        return z3.And(self.whole.holds(x), self.wanted(x))

    def __bool__(self) -> bool:
        running().assume(z3.Implies(self.holds(ANY_BLOCK), self._some))
        return running().decide(self._some)

    def any_filtered(self, wanted: Callable[[Any], Any]) -> "Picked":
        """Those of them that are wanted."""
        return picked(self, self.whole, wanted)

    def any_with_and_without(self) -> tuple["Picked", "Picked"]:
        """Those with an identity, and the others."""
        return with_and_without(self)


def picked(items: Any, whole: Any, wanted: Callable[[Any], Any], name: str = "") -> Picked:
    """Those of the items, which are some of a whole, that are wanted; on a path on which `ANY_BLOCK` is or is not."""
    name = name or running().fresh_name("picked")
    is_wanted = z3.Function(f"wanted_{name}", z3.IntSort(), z3.BoolSort())
    if running().decide(whole.holds(ANY_BLOCK)):
        running().assume(is_wanted(ANY_BLOCK) == z3.BoolVal(bool(wanted(whole.one(ANY_BLOCK)))))
    before = getattr(items, "wanted", lambda x: z3.BoolVal(True))
    return Picked(whole, lambda x: z3.And(before(x), is_wanted(x)), z3.Bool(f"some_{name}"))


def with_and_without(items: Any) -> tuple[Picked, Picked]:
    """Those of these blocks that have an identity, and the others."""
    named = items.any_filtered(lambda block: block.content is not None)
    return named, items.any_filtered(lambda block: block.content is None)


class Row(Listing):
    """A listing whose blocks are at hand, at some moment of a pool; `rounds` is what a loop through it does."""

    def __init__(self, moment: Any, length: Any, at: OfBlock, place: OfBlock) -> None:
        super().__init__(length, at, place)
        self._moment = moment

    def __getitem__(self, place: int) -> Any:
        return self._moment.heap.block(self.at(z3.IntVal(place)))

    def __iter__(self) -> Iterator[Any]:
        rounds: Iterator[Any] = self._moment.rounds(self)
        return rounds

    def any_set_to(self, field: str, value: Any) -> None:
        """Give this field of each of them a value."""
        before = self._moment.heap.as_now(field)
        self._moment.heap.become(**{field: lambda x: z3.If(self.holds(x), z3.IntVal(value), before(x))})


class Indices(Listing):
    """A sequence of different indices."""

    def element(self, heap: Heap, j: Any) -> Any:
        """An index."""
        return SymbolicInt(self.at(j))


class Gathered:
    """Lists of different blocks, or indices, that a loop has gathered: after `i` rounds those for which `chosen(i, x)`
    holds, each once, in any order."""

    def __init__(self, name: str, chosen: Callable[[Any, Any], Any], kind: type[Listing] = Listing) -> None:
        self.name, self.chosen, self._kind = name, chosen, kind
        self._made: list[tuple[Any, Listing]] = []

    def after(self, rounds: Any) -> Listing:
        """The list after so many rounds; there is one, since the rounds are finitely many."""
        for known, listing in self._made:
            if known.eq(rounds):
                return listing
        stem = f"{self.name}_{len(self._made)}"
        at, place = (z3.Function(f"{kind}_{stem}", z3.IntSort(), z3.IntSort()) for kind in ("at", "place"))
        length = z3.Int(f"length_{stem}")
        known_terms: dict[tuple[str, int], Any] = {}

        def item(j: Any) -> Any:
            here = at(j)
            if ("at", j.get_id()) not in known_terms:
                known_terms["at", j.get_id()] = j
                inside = z3.And(self.chosen(rounds, here), place(here) == j)
                running().assume(z3.Implies(z3.And(j >= 0, j < length), inside))
            return here

        def place_of(x: Any) -> Any:
            where = place(x)
            if ("place", x.get_id()) not in known_terms:
                known_terms["place", x.get_id()] = x
                stands = z3.And(where >= 0, where < length, at(where) == x)
                running().assume(stands == self.chosen(rounds, x))
            return where

        running().assume(length >= 0)
        listing = self._kind(length, item, place_of)
        self._made.append((rounds, listing))
        return listing


class Grown:
    """A list that a loop appends to: what is in it so far, and what a round adds."""

    any_length = True

    def __init__(self, listing: Listing) -> None:
        self.listing, self.added = listing, list[Any]()

    def append(self, item: Any) -> None:
        """One more."""
        self.added.append(item)

    def symbolic_len(self) -> SymbolicInt:
        """How many."""
        return SymbolicInt(self.listing.length + len(self.added))

    def gathers(self, chosen: Callable[[Any], Any]) -> SymbolicBool:
        """True if it now has exactly what is chosen, each once."""
        x, old = ANY_BLOCK, self.listing
        holds, once = old.holds(x), []
        added = [one.reference if hasattr(one, "reference") else as_term(one) for one in self.added]
        for number, one in enumerate(added):
            once += [z3.Not(old.holds(one)), *(one != other for other in added[:number])]
            holds = z3.Or(holds, x == one)
        return SymbolicBool(z3.And(holds == chosen(x), *once))
