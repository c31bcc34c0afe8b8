"""What is true of a free queue that is a row of batches, whatever its length: its invariant, said of one at a time.

A row is given by functions. Of a *batch* with some number: how many blocks are `left`, its list of `size` entries, of
which those from `at` on count, whether its blocks do not exist yet (`unmade`), and how many blocks, and empty batches,
are `before` it in the row. Of an *entry*: which block it is, and how many that wait are `below` it in its batch. Of a
*block*: whether a number, a batch of the row or another one is its state, which batch, at which entry of it, and its
`place` in the queue. Of a *place* in the queue: its block, and the batch (`home`).

Every fact is said of one batch, entry, block or place. A proof assumes it of those that it meets, and shows it of any
when an operation is over: so it holds of all, after any number of operations.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import z3

from .row_lists import Term
from .symbolic import running

ANY_BATCH, ANY_ENTRY, ANY_BLOCK, ANY_PLACE = z3.Ints("any_batch any_entry any_block any_place")
"""Any of them: a proof assumes nothing of these but what holds of all."""
NUMBER, WAITS, GONE = 0, 1, 2
"""What the state of a block is: a number, a batch of the row, or a batch that is in it no more."""
Of = Callable[[Term], Term]


@dataclass(frozen=True)
class Row:
    """A row, by its functions."""

    n: Term
    """Blocks in the queue."""
    first: Term
    end: Term
    """The first number of a batch, and the one behind the last."""
    empty: Term
    """Batches without blocks, as the queue counts them."""
    unmade: Of
    size: Of
    at: Of
    left: Of
    before: Of
    empties: Of
    kind: Of
    batch: Of
    entry_of: Of
    count: Of
    entry: Callable[[Term, Term], Term]
    below: Callable[[Term, Term], Term]
    block: Of
    """The block at a place of the queue."""
    place: Of
    home: Of
    taken: Term
    """So many have been taken from the front, and may still have the batch for their state that they have left."""

    def inside(self, p: Term) -> Term:
        """Is there a batch with this number?"""
        return z3.And(p >= self.first, p < self.end)

    def listed(self, x: Term) -> Term:
        """Is this block in the queue?"""
        place = self.place(x)
        return z3.And(place >= 0, place < self.n, self.block(place) == x)

    def was_taken(self, x: Term) -> Term:
        """Is it one of those taken?"""
        place = self.place(x)
        return z3.And(place < 0, place >= -self.taken, self.block(place) == x)

    def promised(self, x: Term) -> Term:
        """Is it in the queue, and does not exist yet?"""
        return z3.And(self.listed(x), self.unmade(self.home(self.place(x))))

    def member(self, p: Term, x: Term) -> Term:
        """Is its state this batch?"""
        return z3.And(self.kind(x) == WAITS, self.batch(x) == p)

    def of_all(self) -> Term:
        """The ends."""
        ends = [self.before(self.first) == 0, self.before(self.end) == self.n]
        empties = [self.empties(self.first) == 0, self.empties(self.end) == self.empty]
        return z3.And(self.n >= 0, self.first <= self.end, *ends, *empties)

    def of_batch(self, p: Term) -> Term:
        """Of a batch."""
        at, size, left = self.at(p), self.size(p), self.left(p)
        made = z3.And(at >= 0, at <= size, self.below(p, at) == 0, self.below(p, size) == left)
        facts = [
            left >= 0,
            self.before(p + 1) == self.before(p) + left,
            self.empties(p + 1) == self.empties(p) + z3.If(left == 0, 1, 0),
            z3.If(self.unmade(p), z3.And(at == 0, size == 0), made),
        ]
        return z3.Implies(self.inside(p), z3.And(facts))

    def of_entry(self, p: Term, e: Term) -> Term:
        """Of an entry of a batch."""
        x = self.entry(p, e)
        member = self.member(p, x)
        counts = z3.And(self.inside(p), z3.Not(self.unmade(p)), e >= self.at(p), e < self.size(p))
        facts = [
            self.below(p, e + 1) == self.below(p, e) + z3.If(member, 1, 0),
            z3.Implies(member, self.entry_of(x) == e),
            z3.Not(self.promised(x)),
        ]
        return z3.Implies(counts, z3.And(facts))

    def of_block(self, x: Term) -> Term:
        """Of a block."""
        p, e, place = self.batch(x), self.entry_of(x), self.place(x)
        waits = [
            self.inside(p),
            z3.Not(self.unmade(p)),
            e >= self.at(p),
            e < self.size(p),
            self.entry(p, e) == x,
            place == self.before(p) + self.below(p, e),
            place >= 0,
            place < self.n,
            self.block(place) == x,
        ]
        kind = self.kind(x)
        return z3.And(
            kind >= NUMBER,
            kind <= GONE,
            z3.Implies(kind == WAITS, z3.And(waits)),
            z3.Implies(kind == GONE, self.was_taken(x)),
            z3.Implies(z3.And(kind == NUMBER, self.listed(x)), self.unmade(self.home(place))),
        )

    def of_place(self, i: Term) -> Term:
        """Of a place of the queue."""
        x, home = self.block(i), self.home(i)
        facts = [
            self.place(x) == i,
            self.inside(home),
            i >= self.before(home),
            i < self.before(home) + self.left(home),
            z3.If(self.unmade(home), self.kind(x) == NUMBER, self.member(home, x)),
        ]
        return z3.Implies(z3.And(i >= 0, i < self.n), z3.And(facts))

    def but(self, **changed: Any) -> "Row":
        """The row with some functions changed."""
        return replace(self, **changed)


_VARIABLES = z3.Ints("fact_of fact_and fact_or")
_SAID: dict[tuple[Any, ...], tuple[Any, Term]] = {}
"""Facts of a row, as terms over these."""


class AnyRow:
    """A row of which nothing but the invariant is known, which it assumes of whatever is met."""

    def __init__(self, name: str, n: Term, block: Of, place: Of, taken: Term, also: Of) -> None:
        """`name` tells the functions of several rows apart; blocks and places are those of the queue at first, of which
        so many are taken; `also` gives what else is true of a block."""
        integer, truth = z3.IntSort(), z3.BoolSort()

        def of(stem: str, sort: Any = integer, arity: int = 1) -> Any:
            return z3.Function(f"{stem}_{name}", *[integer] * arity, sort)

        self.row = Row(
            n=n,
            first=z3.IntVal(0),
            end=z3.Int(f"batches_{name}"),
            empty=z3.Int(f"empty_{name}"),
            unmade=of("unmade", truth),
            size=of("size"),
            at=of("at"),
            left=of("left"),
            before=of("before"),
            empties=of("empties"),
            kind=of("kind"),
            batch=of("batch"),
            entry_of=of("entry_of"),
            count=of("count"),
            entry=of("entry", arity=2),
            below=of("below", arity=2),
            block=block,
            place=place,
            home=of("home"),
            taken=taken,
        )
        self._met: dict[Any, Any] = {}
        self._also, self._name = also, name
        self._batches: list[Term] = []
        self._entries: list[tuple[Term, Term]] = []
        self._anchors: list[Term] = []
        self._anchored: list[tuple[Term, Term]] = []
        running().assume(self.row.of_all())
        _laws()

    def meet_batch(self, p: Term, anchor: bool = False) -> None:
        """Assume what holds of a batch, and how it stands to those that are anchors."""
        p = z3.simplify(p)
        if self._is_new("batch", p):
            row = self.row
            running().assume(self._said(row.of_batch, p))
            running().use(self._said(self._lies_between, p))
            for other in self._anchors:
                self._grows(p, other)
            self._batches.append(p)
        if anchor and self._is_new("anchor", p):
            for other in self._batches:
                self._grows(p, other)
            self._anchors.append(p)

    def _lies_between(self, p: Term) -> Term:
        row = self.row
        made = z3.Implies(z3.Not(row.unmade(p)), self._between(p, row.at(p), row.size(p)))
        ends = [z3.And(of(p) >= of(row.first), of(p + 1) <= of(row.end)) for of in (row.before, row.empties)]
        return z3.Implies(row.inside(p), z3.And(made, *ends))

    def _grows(self, p: Term, other: Term) -> None:
        if not p.eq(other):
            running().use(self._said(self._ordered, p, other))
            running().use(self._said(self._ordered, other, p))

    def _ordered(self, one: Term, two: Term) -> Term:
        row = self.row
        ordered = z3.And(one >= row.first, one < two, two < row.end)
        sums = z3.And(row.before(one + 1) <= row.before(two), row.empties(one + 1) <= row.empties(two))
        return z3.Implies(ordered, sums)

    def meet_entry(self, p: Term, e: Term, block: bool = True, anchor: bool = False) -> None:
        """Assume what holds of an entry, and how it stands to those of its batch that are anchors."""
        p, e = z3.simplify(p), z3.simplify(e)
        row = self.row
        if self._is_new("entry", p, e):
            self.meet_batch(p)
            running().assume(self._said(row.of_entry, p, e))
            running().use(self._said(self._around, p, e))
            for batch, other in self._anchored:
                if batch.eq(p):
                    running().use(self._said(self._apart, p, e, other))
            self._entries.append((p, e))
        if anchor and self._is_new("anchor", p, e):
            for batch, other in self._entries:
                if batch.eq(p) and not other.eq(e):
                    running().use(self._said(self._apart, p, e, other))
            self._anchored.append((p, e))
        if block:
            self.meet_block(row.entry(p, e))

    def _around(self, p: Term, e: Term) -> Term:
        row = self.row
        return self._few(p, [(row.at(p), e), (e, row.size(p)), (e + 1, row.size(p))])

    def _apart(self, p: Term, e: Term, other: Term) -> Term:
        return self._few(p, [(e + 1, other), (other + 1, e)])

    def _few(self, p: Term, ends: list[tuple[Term, Term]]) -> Term:
        row = self.row
        few = []
        for start, stop in ends:
            ordered = z3.And(start >= row.at(p), start <= stop, stop <= row.size(p))
            few.append(z3.Implies(ordered, self._between(p, start, stop)))
        return z3.Implies(z3.And(row.inside(p), z3.Not(row.unmade(p))), z3.And(few))

    def meet_block(self, x: Term) -> None:
        """Assume what holds of a block, and of where it stands."""
        x = z3.simplify(x)
        if self._is_new("block", x):
            running().assume(z3.And(self._said(self.row.of_block, x), self._also(x)))
            self.meet_entry(self.row.batch(x), self.row.entry_of(x), block=False)
            self.meet_place(self.row.place(x), block=False)

    def meet_place(self, i: Term, block: bool = True) -> None:
        """Assume what holds of a place, and of its block."""
        i = z3.simplify(i)
        if self._is_new("place", i):
            running().assume(self._said(self.row.of_place, i))
            self.meet_batch(self.row.home(i))
        if block:
            self.meet_block(self.row.block(i))

    def _between(self, p: Term, start: Term, stop: Term) -> Term:
        """How many wait between two entries: by induction, at most all of them."""
        more = self.row.below(p, stop) - self.row.below(p, start)
        return z3.And(more >= 0, more <= stop - start)

    def _said(self, fact: Callable[..., Term], *of: Term) -> Term:
        """A fact of these. It is built once of variables, which are then replaced: that is quicker by far."""
        row, named = self.row, _VARIABLES[: len(of)]
        key = (fact.__name__, self._name, row.n.get_id(), row.taken.get_id())
        if key not in _SAID:
            _SAID[key] = (row.n, row.taken), fact(*named)  # kept, so that no other terms get their identities
        return z3.substitute(_SAID[key][1], *zip(named, of, strict=True))

    def _is_new(self, *what: Any) -> bool:
        """True at first."""
        key = tuple(part if isinstance(part, str) else part.get_id() for part in what)
        if key in self._met:
            return False
        self._met[key] = what  # kept, so that no other term gets its identity
        return True


def _laws() -> None:
    """The steps of the inductions by which a sum grows, and by which no more wait in a part of a batch than it has."""
    now, then, more, first, rounds = z3.Ints("sum_now sum_then more sum_first rounds")
    grown = z3.Implies(z3.And(then == now + more, more >= 0, first <= now), first <= then)
    few = z3.And(then == now + more, more >= 0, more <= 1, now - first <= rounds)
    running().law("a sum of what is not negative grows", grown)
    running().law("a sum of ones and zeros is at most their number", z3.Implies(few, then - first <= rounds + 1))
