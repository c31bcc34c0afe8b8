"""A row of which those batches stay for which something holds: a list made from a list, of any length.

Such a list exists for every row: `keep` leads from a place in it to the number of the batch in the row, `rank` says how
many before a batch stay. Nothing else is assumed of the two.
"""

from collections.abc import Callable

import z3

from .row_facts import Row
from .row_lists import BatchRow, Term
from .symbolic import running


class Swept:
    """What stays of a row."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, row: BatchRow, stays: Callable[[Term], Term]) -> None:
        integer = z3.IntSort()
        self._first, self._end, self._stays = row.first, row.end, stays
        self.keep, self.rank = z3.Function("keep", integer, integer), z3.Function("rank", integer, integer)
        self.length = z3.Int("staying")
        ends = [self.rank(self._first) == 0, self.rank(self._end) == self.length, self.length >= 0]
        running().assume(z3.And(ends))

    def meet(self, *batches: Term) -> None:
        """Assume what holds of some batches."""
        rank = self.rank
        for p in batches:
            stays = z3.Implies(self._stays(p), self.keep(rank(p)) == p)
            facts = [rank(p) >= 0, rank(p + 1) <= self.length, stays]
            more = rank(p + 1) == rank(p) + z3.If(self._stays(p), 1, 0)
            running().assume(z3.Implies(self._inside(p), z3.And(more, *facts)))

    def meet_kept(self, j: Term) -> None:
        """Assume what holds at a place of those that stay."""
        p = self.keep(j)
        facts = [self._inside(p), self._stays(p), self.rank(p) == j]
        running().assume(z3.Implies(z3.And(j >= 0, j < self.length), z3.And(facts)))
        self.meet(p)

    def row(self, before: Row, any_batch: Term) -> Row:
        """The row of those that stay. Owes the induction by which no block is before a batch but in those that stay,
        which `any_batch` is any of."""
        keep, p = self.keep, any_batch

        def sums(j: Term) -> Term:
            return z3.If(j == self.length, before.n, before.before(keep(j)))

        def known(p: Term) -> Term:
            return sums(self.rank(p)) == before.before(p)

        self.meet(p)
        running().require(known(self._end), "what is before the end of those that stay")
        step = z3.Implies(z3.And(self._inside(p), known(p + 1)), known(p))
        running().require(step, "what is before a batch, from what is before the next one")
        next_one = keep(any_batch) + 1
        running().use(z3.And(known(self._first), z3.Implies(self._inside(next_one - 1), known(next_one))))
        return before.but(
            first=z3.IntVal(0),
            end=self.length,
            unmade=lambda j: before.unmade(keep(j)),
            size=lambda j: before.size(keep(j)),
            at=lambda j: before.at(keep(j)),
            left=lambda j: before.left(keep(j)),
            before=sums,
            empties=lambda j: z3.IntVal(0),
            batch=lambda x: self.rank(before.batch(x)),
            entry=lambda j, e: before.entry(keep(j), e),
            below=lambda j, e: before.below(keep(j), e),
            home=lambda i: self.rank(before.home(i)),
        )

    def _inside(self, p: Term) -> Term:
        return z3.And(p >= self._first, p < self._end)
