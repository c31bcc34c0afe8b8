"""A free queue that is a row of batches, of any length, on which its own methods run: a scene for a proof.

The queue is a real one, and so is each batch that a method gets hold of; they are made where one is asked for, from the
functions of a row of which nothing but the invariant is known (`row_facts`). Blocks are references. The state of a
block is read from the row, and from what was written since.
"""

from collections.abc import Callable, Iterable
from typing import Any

import z3

from .refusal import refusal
from .row_facts import ANY_BATCH, ANY_BLOCK, ANY_ENTRY, ANY_PLACE, GONE, NUMBER, WAITS, AnyRow, Row
from .row_lists import BatchRow, Entries, Term, as_entries
from .row_sweep import Swept
from .symbolic import SymbolicInt, running, term
from .symbolic_bytes import globals_of


class RowScene:
    """A queue of `n` blocks, in batches of any number and any length."""

    def __init__(self, queue_kind: Any, block_kind: Any, n: Any) -> None:
        integer = z3.IntSort()
        inside = globals_of(queue_kind.append_n)
        self.kinds = queue_kind, inside["Batch"], inside["_Unmade"]
        block, place = (z3.Function(name, integer, integer) for name in ("block", "place"))
        self.n = term(n)
        self.given: Entries | None = None
        """Blocks that do not wait, and are about to."""
        self.to_take: Term = z3.IntVal(0)
        """How many are to be taken in all."""
        self.first = self.any = AnyRow("first", self.n, block, place, z3.IntVal(0), self._of_given)
        self._plain_block, self._block_kind = block_kind, _block_kind(block_kind)
        self.queue = object.__new__(queue_kind)
        self.queue.num_free_blocks = SymbolicInt(self.n)
        self.queue._empty = SymbolicInt(self.any.row.empty)
        self.row = BatchRow(self.batch, self.any.row.first, self.any.row.end)
        self.queue.batches = self.row
        self.known: list[tuple[Term, Any]] = []
        """Batches of the row that a method got hold of, with their numbers."""
        self.made_of: list[Entries] = []
        """Their lists of blocks, as they were at first."""
        self.written: list[tuple[Callable[[Term], Term], Any]] = []
        """For which blocks a state was written, and which."""
        self.swept: Swept | None = None
        """What stays of the row, once it is made anew."""
        self.filtering: Callable[[Entries, Callable[[Term], Term]], Entries] | None = None
        """What is left of a list, as the theorem says that it should be."""
        self.head_rest: Term = z3.IntVal(0)
        self.head_taken: Term = z3.IntVal(0)
        """How many are still to be taken, and were taken, where the round began that is run."""

    # What methods see.

    def block(self, reference: Term) -> Any:
        """The block with this reference."""
        made: Any = object.__new__(self._block_kind)
        made.scene, made.reference = self, reference
        return made

    def outside(self, m: Term) -> Entries:
        """So many different blocks that do not wait, and exist."""
        integer = z3.IntSort()
        given, number = (z3.Function(name, integer, integer) for name in ("given", "number"))
        items = Entries(self.block, m, given, number)

        def item(j: Term) -> Term:
            inside = z3.And(j >= 0, j < items.length)
            running().assume(z3.Implies(inside, z3.And(number(given(j)) == j, self._is_outside(given(j)))))
            return given(j)

        items.item = item
        return self._is_given(items)

    def outsider(self) -> Any:
        """A block that does not wait, and exists."""
        block = self.block(z3.Int("given"))
        self._is_given(as_entries([block], self.block))
        return block

    def stranger(self) -> Any:
        """A block that waits in another queue."""
        block = self._plain_block(1)
        block.state = self.kinds[1](object(), [block])
        return block

    def _is_given(self, items: Entries) -> Entries:
        self.given = items
        return items

    def _is_outside(self, x: Term) -> Term:
        row = self.first.row
        return z3.And(row.kind(x) == NUMBER, z3.Not(row.promised(x)))

    def batch(self, p: Term) -> Any:
        """The batch with this number."""
        for number, known in self.known:
            if running().decide(p == number):
                return known
        row, (_, batch_kind, unmade_kind) = self.any.row, self.kinds
        self.any.meet_batch(p, anchor=True)
        unmade = running().decide(row.unmade(p))
        made = object.__new__(unmade_kind if unmade else batch_kind)
        made.queue, made.at, made.left = self.queue, SymbolicInt(row.at(p)), SymbolicInt(row.left(p))
        made.blocks = Entries(self.block, row.size(p), lambda e: row.entry(p, e))
        if unmade:
            made._make = lambda count: self._made(p, made, count)
        self.known.append((p, made))
        self.made_of.append(made.blocks)
        return made

    def _made(self, p: Term, batch: Any, count: Any) -> Entries:
        """The next blocks of those that do not exist yet; so many fewer are left by now."""
        row = self.any.row
        start = row.before(p) + row.left(p) - term(batch.left) - term(count)
        return Entries(self.block, term(count), lambda j: row.block(start + j), lambda x: row.place(x) - start)

    def begin_anew(self, row: AnyRow) -> None:
        """Let the queue be another row, of which nothing has been asked and nothing written."""
        self.any = row
        self.queue._empty = SymbolicInt(row.row.empty)
        self.row.begin(row.row.first, row.row.end)
        self.known, self.made_of, self.written = [], [], []

    def read_state(self, x: Term) -> Any:
        """The state of a block."""
        self.any.meet_block(x)
        now = self.now()
        if running().decide(now.kind(x) == NUMBER):
            return SymbolicInt(now.count(x))
        if running().decide(now.kind(x) == GONE):
            if self.row.left:
                raise refusal("which batch that is gone")
            return object.__new__(self.kinds[1])
        for place, batch in self.row.placed():
            if running().decide(now.batch(x) == place):
                return batch
        return self.batch(now.batch(x))

    def write_state(self, x: Term, value: Any) -> None:
        """Let the state of a block be this."""
        self.written.append((lambda other: other == x, value))

    def _of_given(self, x: Term) -> Term:
        if self.given is None:
            return z3.BoolVal(True)
        return z3.Implies(self.given.holds(x), self._is_outside(x))

    # What the queue is now.

    def now(self) -> Row:
        """The row as it is now: what can be read of batches and blocks; the rest is that of the row at first."""
        base, low, high = self.any.row, self.row.low, self.row.high
        there = [*self.known, *self.row.placed()]

        def of(read: Callable[[Any], Term], otherwise: Callable[[Term], Term]) -> Callable[[Term], Term]:
            def value(p: Term) -> Term:
                result = otherwise(p)
                for number, batch in there:
                    result = z3.If(p == number, read(batch), result)
                return result

            return value

        def entry(p: Term, e: Term) -> Term:
            result = base.entry(p, e)
            for number, batch in there:
                result = z3.If(p == number, as_entries(batch.blocks, self.block).item(e), result)
            return result

        def state(x: Term) -> tuple[Term, Term, Term]:
            batch, count = base.batch(x), base.count(x)
            away = z3.And(base.kind(x) == WAITS, z3.Or(batch < low, batch >= high))
            kind = z3.If(away, GONE, base.kind(x))
            for written, value in self.written:
                number = self.place_of(value)
                new = (NUMBER if isinstance(value, int) else WAITS if number is not None else GONE), number, value
                hit = written(x)
                kind = z3.If(hit, new[0], kind)
                batch = z3.If(hit, number, batch) if number is not None else batch
                count = z3.If(hit, term(value), count) if isinstance(value, int) else count
            return kind, batch, count

        return base.but(
            first=self.row.first,
            end=self.row.end,
            empty=term(self.queue._empty),
            unmade=of(lambda one: z3.BoolVal(isinstance(one, self.kinds[2])), base.unmade),
            size=of(lambda one: as_entries(one.blocks, self.block).length, base.size),
            at=of(lambda one: term(one.at), base.at),
            left=of(lambda one: term(one.left), base.left),
            kind=lambda x: state(x)[0],
            batch=lambda x: state(x)[1],
            count=lambda x: state(x)[2],
            entry=entry,
        )

    def place_of(self, value: Any) -> Term | None:
        """The number of a batch; None for what is no batch of the row."""
        if isinstance(value, int):
            return None
        for number, batch in (*self.known, *self.row.placed()):
            if batch is value and not any(one is value for one in self.row.left):
                return number
        return None

    # What is owed.

    def meet(self, places: Iterable[Term], blocks: Iterable[Term] = (), anchors: Iterable[Term] = ()) -> None:
        """Assume what holds of any batch and entry, and of some blocks and places; some blocks are anchors."""
        here = self.any
        row = here.row
        for x in anchors:
            here.meet_block(x)
            here.meet_entry(row.batch(x), row.entry_of(x), block=False, anchor=True)
        for p in (ANY_BATCH, row.first, self.row.low, *(number for number, _ in self.known)):
            here.meet_batch(p)
        here.meet_entry(ANY_BATCH, ANY_ENTRY)
        for p, batch in self.known:
            here.meet_entry(p, ANY_ENTRY)
            here.meet_entry(p, term(batch.at), anchor=True)
        for i in places:
            here.meet_place(i)
        for x in (ANY_BLOCK, *blocks):
            here.meet_block(x)
            for p, _ in self.known:
                here.meet_entry(p, row.entry_of(x), block=False)

    def is_in_order(self, now: Row) -> list[Term]:
        """True if the invariant holds of the row."""
        p, e, x, i = ANY_BATCH, ANY_ENTRY, ANY_BLOCK, ANY_PLACE
        return [now.of_all(), now.of_batch(p), now.of_entry(p, e), now.of_block(x), now.of_place(i)]

    def kept(self, now: Row, but: Term) -> list[Term]:
        """True if what nobody has touched has the state that it had; `but` says who is touched of any block."""
        x, first = ANY_BLOCK, self.first.row
        stays = z3.And(first.kind(x) == NUMBER, z3.Not(first.promised(x)), z3.Not(but))
        return [z3.Implies(stays, z3.And(now.kind(x) == NUMBER, now.count(x) == first.count(x)))]


def _block_kind(kind: type) -> type:
    def read(block: Any) -> Any:
        return block.scene.read_state(block.reference)

    def write(block: Any, value: Any) -> None:
        block.scene.write_state(block.reference, value)

    members = {
        "__slots__": ("scene", "reference"),
        "state": property(read, write),
        "block_id": property(lambda block: SymbolicInt(block.reference)),
        "__repr__": lambda block: "a block",
    }
    return type(f"Row{kind.__name__}", (kind,), members)
