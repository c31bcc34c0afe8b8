"""Any state of any core that satisfies the invariants, for a proof.

What a state keeps is a function of which nothing is known but the invariants, each assumed at every point that comes
up, and for no other: so a statement about all places and blocks is used for finitely many, and no question to a solver
has a quantifier. Assuming too little can only leave a theorem unproved.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import z3

from ..claims import every, implies
from ..symbolic import SymbolicBool, SymbolicInt, running, term
from . import safety
from .moves import Cells, World

_NUMBERS = ("count", "key", "slot", "free", "block", "rank", "content", "length", "cut", "floor")
CHANGING = (*_NUMBERS, "closing", "nth")
_FIXED = ("table", "index", "end", "request")
_INT, _BOOL = z3.IntSort(), z3.BoolSort()


DEPTH = 2
"""How far points are followed that only what is known of another point has brought up: a chain of them need not end."""


_ABOUT_PLACES: dict[tuple[int, ...], tuple[Any, ...]] = {}
"""By the places of which pairs are looked at: those, what is assumed of them, and which points that brought up."""


class Later(World):
    """The state after some moves: at first that of a `SymbolicWorld`."""

    def __init__(self, first: "SymbolicWorld") -> None:
        self.first = first
        self.size, self.num_free = first.size, first.num_free
        self.table, self.index, self.end = first.table, first.index, first.end  # type: ignore[method-assign]
        self.request, self.reads, self.skip = first.request, first.reads, first.skip  # type: ignore[method-assign]
        for name in CHANGING:
            setattr(self, name, Cells(getattr(first, name).value))


class SymbolicWorld(World):
    """Some state. Make it inside the run; `places` are those of which pairs are looked at.

    It does not change: moves are made on a `Later`, since the invariants are known of the state at first only.
    """

    def __init__(self, places: Sequence[Any]) -> None:
        self._known: dict[tuple[str, Any], Any] = {}
        self._skips: list[tuple[Any, Any, Any]] = []
        self._depth = 0
        self.size, self.num_free = SymbolicInt(z3.Int("size")), SymbolicInt(z3.Int("num_free"))
        running().assume(z3.And(z3.Int("size") >= 1, z3.Int("num_free") >= 0))
        self._raw = {name: z3.Function(f"{name}_of", _INT, _INT) for name in (*_NUMBERS, *_FIXED)}
        self._raw |= {name: z3.Function(f"{name}_of", _INT, _BOOL) for name in ("closing", "reads")}
        self._raw |= {name: z3.Function(f"{name}_of", _INT, _INT, _INT) for name in ("nth", "skip")}
        for name in CHANGING:
            setattr(self, name, Cells(lambda *key, name=name: self._first(name, *key)))
        self._noted: list[Any] | None = []
        key = tuple(term(place).get_id() for place in places)
        if key not in _ABOUT_PLACES:  # the same on every path, and most of the work
            self._assume_at_first(places)
            _ABOUT_PLACES[key] = tuple(places), self._noted, dict(self._known), list(self._skips)
        else:
            _, formulas, known, skips = _ABOUT_PLACES[key]
            self._known, self._skips = dict(known), list(skips)
            for formula in formulas:
                running().assume(formula)
        self._noted = None

    def _assume_at_first(self, places: Sequence[Any]) -> None:
        self._assume(safety.null_is_nameless(self))
        for place in places:
            self.meet_place(place)
        for place, other in combinations(places, 2):
            self._assume(safety.shared_is_equal(self, place, other))
            entries = every(self.in_table(place), self.table(place) == self.table(other))
            self._assume(implies(every(entries, self.index(place) == self.index(other)), place == other))

    # What is fixed.

    def table(self, place: Any) -> Any:
        """The table of a place."""
        return self._first("table", place)

    def index(self, place: Any) -> Any:
        """Its index there, which is not negative."""
        found = self._first("index", place)
        self._assume(found >= 0)
        return found

    def end(self, place: Any) -> Any:
        """Tokens up to the end of the entry."""
        return self._first("end", place)

    def request(self, table: Any) -> Any:
        """Whose table it is."""
        return self._first("request", table)

    def reads(self, table: Any) -> Any:
        """Any truth value for each table."""
        return self._first("reads", table)

    def skip(self, table: Any, tokens: Any) -> Any:
        """Any function that does not fall."""
        value, t, c = self._first("skip", table, tokens), term(table), term(tokens)
        if not any(t.eq(one) and c.eq(other) for one, other, _ in self._skips):
            for other_t, other_c, other in self._skips:
                for (low, small), (high, large) in (
                    ((c, value.term), (other_c, other)),
                    ((other_c, other), (c, value.term)),
                ):
                    self._assume(SymbolicBool(z3.Implies(z3.And(t == other_t, low <= high), small <= large)))
            self._skips.append((t, c, value.term))
        return value

    # The state at first, and what is known of it.

    def _first(self, name: str, *key: Any) -> Any:
        """The value at first, with the invariants of the points that it is about."""
        terms = [z3.simplify(term(one)) for one in key]
        if name in ("block", "rank", "content"):
            self.meet_place(SymbolicInt(terms[0]))
        elif name in ("count", "key", "slot"):
            self.meet_block(SymbolicInt(terms[0]))
        elif name == "free":
            self._meet("free", terms[0], safety.free_is_counted)
        elif name == "nth":
            self._meet_holder(*map(SymbolicInt, terms))
        elif name == "cut":
            self._meet("table", terms[0], safety.cut_is_settled)
        value = self._raw[name](*terms)
        return SymbolicBool(value) if z3.is_bool(value) else SymbolicInt(value)

    def meet_place(self, place: Any) -> None:
        """Assume what holds of a place."""
        self._meet(
            "place",
            term(place),
            safety.held_is_numbered,
            safety.named_by_content,
            safety.inside_its_table,
            safety.read_is_there,
        )

    def meet_block(self, x: Any) -> None:
        """Assume what holds of a block."""
        self._meet("block", term(x), safety.free_is_unheld)

    def _meet_holder(self, x: Any, number: Any) -> None:
        key = z3.simplify(x.term), z3.simplify(number.term)
        if self._new("holder", key):
            self._assume_of(safety.numbers_are_holders, x, number)

    def _meet(self, kind: str, point: Any, *facts: Any) -> None:
        point = z3.simplify(point)
        if self._new(kind, (point,)):
            for fact in facts:
                self._assume_of(fact, SymbolicInt(point))

    def _new(self, kind: str, points: Sequence[Any]) -> bool:
        """True the first time."""
        key = kind, tuple(point.get_id() for point in points)
        if key in self._known or self._depth > DEPTH:
            return False
        self._known[key] = points
        return True

    def _assume_of(self, fact: Callable[..., Any], *points: Any) -> None:
        self._depth += 1
        try:
            self._assume(fact(self, *points))
        finally:
            self._depth -= 1

    def _assume(self, condition: Any) -> None:
        formula = term(condition)
        if self._noted is not None:
            self._noted.append(formula)
        running().assume(formula)
