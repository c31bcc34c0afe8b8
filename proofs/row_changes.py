"""What a row is after an operation: how many blocks are before a batch then, where each block stands, and so on.

These are the functions for which a proof shows that the invariant holds again (`row_facts`).
"""

from collections.abc import Callable
from typing import Any

import z3

from .refusal import refusal
from .row_facts import ANY_BATCH, ANY_BLOCK, ANY_ENTRY, ANY_PLACE, Row
from .row_lists import Entries, Term, as_entries
from .row_scene import RowScene
from .row_sweep import Swept
from .symbolic import running


def require_taken(scene: RowScene, taken: Any, count: Term) -> None:
    """Owe that these are the first blocks of the queue."""
    items, j = as_entries(taken, scene.block), ANY_PLACE
    for p, _ in scene.known:
        for e in (j, j - scene.head_taken):
            scene.any.meet_entry(p, scene.any.row.at(p) + e)
    running().require(items.length == count, "how many are taken")
    inside = z3.And(j >= 0, j < count)
    running().require(z3.Implies(inside, items.item(j) == scene.first.row.block(j)), "which ones are taken")


def shortened(scene: RowScene, count: Term, final: bool = False) -> Row:
    """The row after `count` blocks of the queue at first have been taken; if that is all, none of them waits."""
    base, first, low = scene.any.row, scene.first.row, scene.row.low
    more = count - scene.head_taken
    places = [ANY_PLACE + more, *([ANY_ENTRY] if scene.row.front else [])]
    scene.meet(places, [first.block(ANY_PLACE + count)])
    if scene.first is not scene.any:
        for i in (ANY_PLACE + count, *(place + scene.head_taken for place in places)):
            scene.first.meet_place(i, block=False)
    front = [batch for _, batch in scene.row.placed()]
    if front and (len(front) > 1 or not scene.row.front):
        raise refusal("several batches that were put there")
    size = as_entries(front[0].blocks, scene.block).length if front else z3.IntVal(0)
    here = scene.row.first
    now = scene.now()
    partly = more - base.before(low)
    """What was taken from the first batch."""

    def before(p: Term) -> Term:
        behind = z3.If(p == low, size, base.before(p) - more)
        return z3.If(p == here, 0, behind) if front else behind

    def entry_of(x: Term) -> Term:
        place = first.place(x) - count
        return z3.If(now.batch(x) == here, place, base.entry_of(x)) if front else base.entry_of(x)

    def below(p: Term, e: Term) -> Term:
        less = base.below(p, e) - z3.If(p == low, partly, 0)
        return z3.If(p == here, e, less) if front else less

    def empties(p: Term) -> Term:
        less = base.empties(p) - base.empties(low)
        return z3.If(p == here, 0, less) if front else less

    def home(i: Term) -> Term:
        return z3.If(i < size, here, base.home(i + more)) if front else base.home(i + more)

    return now.but(
        n=first.n - count,
        before=before,
        empties=empties,
        entry_of=entry_of,
        below=below,
        block=lambda i: first.block(i + count),
        place=lambda x: first.place(x) - count,
        home=home,
        taken=z3.IntVal(0) if final else count,
    )


def extended(scene: RowScene, given: Entries, front: bool) -> Row:
    """The row with more blocks at its front or its back."""
    base, low, high, m = scene.any.row, scene.row.low, scene.row.high, given.length
    now, e, x, i = scene.now(), ANY_ENTRY, ANY_BLOCK, ANY_PLACE
    last, here = high - 1, low - 1 if front else high
    new = bool(scene.row.front if front else scene.row.back)
    joined = bool(scene.known) and not front and not new
    size, left = base.size(last), base.left(last)

    def before(p: Term) -> Term:
        if front:
            return z3.If(p == here, 0, base.before(p) + m)
        return z3.If(p == (high + 1 if new else high), base.n + m, base.before(p))

    def empties(p: Term) -> Term:
        if front:
            return z3.If(p == here, 0, base.empties(p))
        return z3.If(p == high + 1, base.empties(high), base.empties(p)) if new else base.empties(p)

    def below(p: Term, e: Term) -> Term:
        if new:
            return z3.If(p == here, e, base.below(p, e))
        return z3.If(z3.And(joined, p == last, e >= size), left + e - size, base.below(p, e))

    def entry_of(x: Term) -> Term:
        return z3.If(given.holds(x), given.inverse(x) + (size if joined else 0), base.entry_of(x))

    def block(i: Term) -> Term:
        if front:
            return z3.If(i < m, given.item(i), base.block(i - m))
        return z3.If(i < base.n, base.block(i), given.item(i - base.n))

    def place(x: Term) -> Term:
        there = given.inverse(x) + (0 if front else base.n)
        return z3.If(given.holds(x), there, base.place(x) + (m if front else 0))

    def home(i: Term) -> Term:
        if front:
            return z3.If(i < m, here, base.home(i - m))
        return z3.If(i < base.n, base.home(i), here if new else last)

    scene.meet([i, i - m, e], [block(i), now.entry(ANY_BATCH, e), given.item(e), given.item(e - size)])
    if joined:
        scene.any.meet_entry(last, size - 1)
    for j in (base.place(x) + m, base.place(x) - base.n):
        given.item(j)
    return now.but(
        n=base.n + m,
        before=before,
        empties=empties,
        below=below,
        entry_of=entry_of,
        block=block,
        place=place,
        home=home,
    )


class Removal:
    """A row from which a block is taken out."""

    def __init__(self, scene: RowScene, x: Term) -> None:
        self._scene, self._x = scene, x
        self._base = scene.any.row
        self._batch, self._entry, self._place = (
            of(x) for of in (self._base.batch, self._base.entry_of, self._base.place)
        )
        scene.meet([self._place, self._place + 1], [], [x])

    def now(self) -> Row:
        """The row without it."""
        scene, base, q = self._scene, self._base, self._batch
        ((_, batch),) = scene.known
        # Its batch may have been made shorter.
        shorter = isinstance(batch.blocks, list) or batch.blocks is not scene.made_of[0]
        below, e = self._below, ANY_ENTRY

        def entry_of(x: Term) -> Term:
            found = base.entry_of(x)
            return z3.If(base.member(q, x), below(q, found), found) if shorter else found

        start = base.before(q)
        self._meet([start + e, start + e + 1] if shorter else [])
        now = self._but()
        now = now.but(
            entry_of=entry_of,
            below=(lambda p, e: z3.If(p == q, e, below(p, e))) if shorter else below,
        )
        return now if scene.swept is None else self._swept(now, scene.swept)

    def _swept(self, now: Row, swept: Swept) -> Row:
        p, x, i, e = ANY_BATCH, ANY_BLOCK, ANY_PLACE, ANY_ENTRY
        base, kept, scene = self._base, swept.keep(ANY_BATCH), self._scene
        swept.meet_kept(p)
        scene.any.meet_batch(kept)
        scene.any.meet_entry(kept, e)
        there = base.entry(kept, e)
        scene.any.meet_entry(self._batch, base.entry_of(there), block=False)
        for place in (now.place(x), now.place(x) + 1):
            scene.any.meet_place(place, block=False)
            swept.meet(base.home(place))
        swept.meet(base.batch(x), now.home(i), base.batch(there), base.batch(self._block(i)), self._batch)
        return swept.row(now, p)

    def _meet(self, places: list[Term]) -> None:
        base = self._base
        around = [ANY_PLACE, ANY_PLACE + 1, *places]
        self._scene.meet(around, [base.entry(ANY_BATCH, ANY_ENTRY), *map(base.block, around)])

    def _below(self, p: Term, e: Term) -> Term:
        return self._base.below(p, e) - z3.If(z3.And(p == self._batch, e > self._entry), 1, 0)

    def _block(self, i: Term) -> Term:
        return self._base.block(z3.If(i >= self._place, i + 1, i))

    def _but(self) -> Row:
        base, q, place = self._base, self._batch, self._place
        now = self._scene.now()
        gone = z3.If(now.left(q) == 0, 1, 0)
        return now.but(
            n=base.n - 1,
            before=lambda p: base.before(p) - z3.If(p > q, 1, 0),
            empties=lambda p: base.empties(p) + z3.If(p > q, gone, 0),
            block=self._block,
            place=lambda x: base.place(x) - z3.If(base.place(x) > place, 1, 0),
            home=lambda i: base.home(z3.If(i >= place, i + 1, i)),
        )

    def filtered(self, items: Entries, condition: Callable[[Term], Term]) -> Entries:
        """Those that are left of its batch."""
        base, q, scene = self._base, self._batch, self._scene
        at, size, left = base.at(q), items.length, self._scene.now().left(q)
        e, r = ANY_ENTRY, ANY_PLACE
        block = self._block(base.before(q) + r)
        kept = base.entry_of(block) - at

        def rank(e: Term) -> Term:
            return self._below(q, at + e)

        start = base.before(q)
        scene.meet([start + r, start + r + 1], [block])
        scene.any.meet_entry(q, at + e)
        here = z3.And(e >= 0, e < size)
        there = z3.And(r >= 0, r < left)
        item = items.item(e)
        scene.any.meet_place(start + rank(e))
        owed = [
            z3.And(rank(z3.IntVal(0)) == 0, rank(size) == left),
            z3.Implies(here, rank(e + 1) == rank(e) + z3.If(condition(item), 1, 0)),
            z3.Implies(z3.And(here, condition(item)), self._block(start + rank(e)) == item),
            z3.Implies(there, z3.And(kept >= 0, kept < size, rank(kept) == r)),
            z3.Implies(there, z3.And(items.item(kept) == block, condition(items.item(kept)))),
        ]
        for claim in owed:
            running().require(claim, "what is left of a batch")
        return Entries(scene.block, left, lambda r: self._block(start + r))
