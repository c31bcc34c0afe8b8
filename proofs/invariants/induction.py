"""Induction over the rounds of an operation's loops, for a pool of any size and a batch of any length.

For each loop a `Loop` says what the pool looks like after `i` rounds (`Fields`) and which blocks each list has
gathered by then. Part 0 of the claim runs what comes before the first loop: the pool must look like `i = 0`. Part
`2k + 1` runs one round of loop `k`, for any `i`: from the moment after `i` rounds to that after `i + 1`. Part `2k + 2`
runs what comes behind loop `k`, from the moment after its last round: it must lead to the beginning of the next loop,
or to the end.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import z3

from ..loops import ReturnedError
from ..solver import ProofError
from ..symbolic import Condition, SymbolicBool, SymbolicInt, running
from .listings import ANY_BLOCK, ANY_PLACE, Gathered, Grown, Listing, Picked, as_term, picked
from .pool import Moment
from .pool_parts import Fields
from .rounds import Numbered, Parts, Range, Reached, parts


class Batch:
    """What an operation is given: blocks of the pool, or their ids, of any number; the same one may come again.

    `times(x, i)` is how often `x` stands among the first `i`. What is assumed of it is its definition, and that it
    never falls.
    """

    any_length = True

    def __init__(self, length: Any, size: Any, ids: bool = False) -> None:
        self.length, self._size, self.ids = as_term(length), as_term(size), ids
        self.undo: Callable[[Any], Fields] | None = None
        """What the pool looks like when so many rounds have been undone."""
        self.moment: Moment | None = None
        self.origin = self
        self._at = z3.Function("batch", z3.IntSort(), z3.IntSort())
        self._where = z3.Function("where", z3.IntSort(), z3.IntSort())
        self._times = z3.Function("times", z3.IntSort(), z3.IntSort(), z3.IntSort())
        self.alike: list[Callable[[Any], Any]] = []
        """What else is known of the block at each place."""

    def at(self, i: Any) -> Any:
        """The id of the block at a place."""
        here = self._at(i)
        inside = z3.And(i >= 0, i < self.length)
        running().assume(z3.Implies(inside, z3.And(here >= 0, here < self._size, *(one(here) for one in self.alike))))
        return here

    def place(self, x: Any) -> Any:
        """Some place of a block, -1 if it does not stand in it."""
        where = self._where(x)
        inside = z3.And(where >= 0, where < self.length, self._at(where) == x)
        running().assume(z3.If(self.times(x, self.length) >= 1, inside, where == -1))
        self.at(where)
        self.times(x, z3.simplify(where + 1))
        return where

    def any_map(self, function: Callable[[Any], Any]) -> "States":
        """What the blocks' states are; nothing else is asked of all of them."""
        return States(self, function)

    def any_set(self) -> "Different":
        """The different blocks."""
        return Different(self)

    def holds(self, x: Any) -> Any:
        """Does the block stand in it?"""
        self.place(x)
        return self.times(x, self.length) >= 1

    def one(self, x: Any) -> Any:
        """The block, or the id, that is `x`."""
        assert self.ids or self.moment is not None
        return SymbolicInt(x) if self.ids else self.moment.heap.block(x)  # type: ignore[union-attr]

    def any_filtered(self, wanted: Callable[[Any], Any]) -> Picked:
        """Those of them that are wanted."""
        return picked(self, self, wanted)

    def times(self, x: Any, i: Any) -> Any:
        """How often a block stands among the first so many."""
        count, m, most = self._times, self.length, self._times(x, self.length)
        running().assume(count(x, z3.IntVal(0)) == 0)
        for k in (z3.simplify(i - 1), i):
            one = z3.If(self._at(k) == x, z3.IntVal(1), z3.IntVal(0))
            step = z3.And(count(x, k + 1) == count(x, k) + one, count(x, k) >= 0, count(x, k + 1) <= most)
            running().assume(z3.Implies(z3.And(k >= 0, k < m), step))
        return count(x, i)

    def rises(self, x: Any, j: Any, i: Any) -> Any:
        """That a block stands no less often among more entries."""
        inside = z3.And(j >= 0, j <= i, i <= self.length)
        return z3.Implies(inside, self.times(x, j) <= self.times(x, i))

    def symbolic_len(self) -> SymbolicInt:
        """How many."""
        return SymbolicInt(self.length)

    def at_moment(self, moment: Moment) -> "Batch":
        """The same batch, its blocks as they are at another moment."""
        bound = copy(self)
        bound.moment = moment
        return bound

    def __getitem__(self, part: slice) -> "_Undone":
        """What comes before some place: what an operation that refuses goes through to undo it."""
        if part.start is not None or part.step is not None or self.undo is None or self.moment is None:
            raise ProofError(f"{running().name}: a part of a batch is asked for, and nothing is known of it")
        return _Undone(self, self.moment, as_term(part.stop))

    def element(self, moment: Moment, i: Any) -> Any:
        """The block, or the id, at a place."""
        return SymbolicInt(self.at(i)) if self.ids else moment.heap.block(self.at(i))


class Different:
    """The different blocks of a batch: as many as it is long exactly if none stands in it twice."""

    any_length = True

    def __init__(self, batch: Batch) -> None:
        self._batch, self._number = batch, z3.Int("different")

    def symbolic_len(self) -> SymbolicInt:
        """How many: not all, or each block stands in it once at most."""
        running().assume(z3.And(self._number >= 0, self._number <= self._batch.length))
        return SymbolicInt(self._number)

    @staticmethod
    def once(batch: Batch, x: Any) -> Any:
        """That a block stands in it once at most, if there are as many different ones as there are."""
        return z3.Implies(z3.Int("different") == batch.length, batch.times(x, batch.length) <= 1)


class States:
    """The different states of a batch's blocks: one of them, or at least two.

    One state is that of every block: null, free in the same batch, or held as often. Of two or more, one is not 1.
    """

    any_length = True

    def __init__(self, batch: Any, function: Callable[[Any], Any]) -> None:
        self._batch, self._function, self._number = batch, function, z3.Int("states")

    def any_set(self) -> "States":
        """Each once."""
        moment, number, first = self._moment(), self._number, self._batch.at(z3.IntVal(0))
        count, free = moment.fields.count, moment.fields.free

        def as_first(x: Any) -> Any:
            alike = z3.And(
                (x == 0) == (first == 0),
                z3.Implies(x != 0, free(x) == free(first)),
                z3.Implies(z3.And(x != 0, free(x)), moment.batch_of(x) == moment.batch_of(first)),
                z3.Implies(z3.And(x != 0, z3.Not(free(x))), count(x) == count(first)),
            )
            return z3.Implies(number == 1, alike)

        self._batch.alike.append(as_first)
        running().assume(z3.And(number >= 0, number <= self._batch.length, (number == 0) == (self._batch.length == 0)))
        return self

    def symbolic_len(self) -> SymbolicInt:
        """How many."""
        return SymbolicInt(self._number)

    def __iter__(self) -> Iterator[Any]:
        """The only one; or, of several, one that is not 1, behind which nobody may look."""
        if running().decide(self._number == 0):
            return
        moment, length = self._moment(), self._batch.length
        if running().decide(self._number == 1):
            yield self._function(moment.heap.block(self._batch.at(z3.IntVal(0))))
            return
        other = z3.Int("not_held_once")
        x = self._batch.at(other)
        moment.heap.meet(x)
        held_once = z3.And(x != 0, z3.Not(moment.fields.free(x)), moment.fields.count(x) == 1)
        running().assume(z3.And(other >= 0, other < length, z3.Not(held_once)))
        yield self._function(moment.heap.block(x))
        raise ProofError(f"{running().name}: the states of a batch are gone through: only the first is known")

    def _moment(self) -> Moment:
        moment = self._batch.moment
        if not isinstance(moment, Moment):
            raise ProofError(f"{running().name}: the states of blocks are asked for at no moment")
        return moment


class HalfwayError(Exception):
    """A round of a loop inside a round, or inside a statement, has ended: what is claimed of it."""

    def __init__(self, claims: list[Condition]) -> None:
        super().__init__("a round inside a round has ended")
        self.claims = claims


def each_round(
    moment: Moment, stop: Any, after: Callable[[Any], Fields], element: Callable[[Any], Any]
) -> Iterator[Any]:
    """A loop inside a round, or inside a statement: an induction of its own, on two paths.

    On one a round of it runs, for any place, from the moment before it to that after it; the path ends there. On the
    other all of its rounds have run.
    """
    j = z3.Int("inner_round")
    moment.owed += [claim.term for claim in moment.shows(after(z3.IntVal(0)))]
    if running().decide(z3.And(j >= 0, j < stop)):
        moment.become(after(j))
        yield element(j)
        raise HalfwayError(list(moment.shows(after(j + 1))))
    moment.become(after(stop))


class _Undone:
    """The loop inside a round that undoes the rounds before."""

    def __init__(self, batch: Batch, moment: Moment, stop: Any) -> None:
        self._batch, self._moment, self._stop = batch, moment, stop

    def __iter__(self) -> Iterator[Any]:
        undo = self._batch.undo
        assert undo is not None
        return each_round(self._moment, self._stop, undo, partial(self._batch.element, self._moment))


@dataclass(frozen=True)
class Loop:
    """What is known of one loop."""

    rounds: Any
    """How many."""
    pool: Callable[[Any], Fields]
    """What the pool looks like after so many."""
    through: Any = None
    """What the loop goes through: a `Batch`, a `Listing`, a `Range`, or the blocks of the pool (None)."""
    lists: Mapping[str, Gathered] = field(default_factory=dict)
    """By variable: what it gathers."""
    sums: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    """By variable to which rounds add: what it is after so many."""
    known: Callable[[Any, Any], Any] | None = None
    """What else holds of each block after so many rounds."""
    undo: Callable[[Any, Any], Fields] | None = None
    """What the pool looks like when a round that refuses has undone so many of the rounds before it."""
    refuses: Callable[[Any], Any] = lambda i: z3.BoolVal(True)
    """Whether this round may refuse."""


@dataclass(frozen=True)
class Operation:
    """One operation of the pool, with everything that its claim needs."""

    function: Any
    start: Moment
    arguments: tuple[Any, ...]
    """Behind the pool."""
    loops: tuple[Loop, ...]
    end: Fields
    """What the pool is to look like then."""
    result: Callable[[Any], Condition] = lambda value: value is None
    early: Callable[[Any], Fields] | None = None
    """For what it returns before its first loop, what the pool is to look like then; None: as at the end."""


def claim(operation: Operation, part: Any, i: Any) -> list[Condition]:
    """That the operation keeps what it should, one part of the induction; `i` is the number of rounds before."""
    cut: Parts = parts(operation.function)
    if cut.loops != len(operation.loops):
        raise ProofError(f"{cut.name} has {cut.loops} loops, and something is known of {len(operation.loops)}")
    start = operation.start
    try:
        reached = cut.begin(start.pool, *operation.arguments)
    except ReturnedError as returned:
        end = operation.end if operation.early is None else operation.early(returned.value)
        right = operation.early is not None or operation.result(returned.value)
        return [*start.shows(end), start.counts_right(), right]
    if part == 0:
        return _begins(operation.loops[0], reached, start)
    before = start
    for number, loop in enumerate(operation.loops):
        if part == 2 * number + 1:
            return _round(cut, number, loop, before, reached, as_term(i), start)
        last = before.another(f"after_{number}", loop.pool(as_term(loop.rounds)), _known(loop, as_term(loop.rounds)))
        try:
            reached = cut.behind(number, _moved(loop, before, last, reached, as_term(loop.rounds)))
        except ReturnedError as returned:
            return [*last.shows(operation.end), last.counts_right(), operation.result(returned.value)]
        if part == 2 * number + 2:
            return _begins(operation.loops[number + 1], reached, last)
        before = last
    raise ProofError(f"{cut.name} goes on behind its last loop")


def _round(
    cut: Parts, number: int, loop: Loop, before: Moment, reached: Reached, i: Any, start: Moment
) -> list[Condition]:
    if not running().decide(z3.And(i >= 0, i < as_term(loop.rounds))):
        return []  # there is no such round
    now = before.another(f"round_{number}", loop.pool(i), _known(loop, i))
    moved = _moved(loop, before, now, reached, i)
    for batch in moved.values():
        if isinstance(batch, Batch) and loop.undo is not None:
            batch.undo = partial(loop.undo, i)
    element = _element(loop, now, i)
    try:
        if isinstance(reached.iterated, Numbered):
            element = SymbolicInt(as_term(reached.iterated.start) + i), element
        sums = cut.round(number, moved, element)
    except HalfwayError as halfway:
        return halfway.claims
    except ValueError:
        # Nothing has changed since the operation began, if it may refuse at all.
        return [loop.undo is not None, SymbolicBool(loop.refuses(i)), *now.shows(start.fields)]
    claims: list[Condition] = list(now.shows(loop.pool(i + 1)))
    claims += [moved[name].gathers(lambda x, one=one: one.chosen(i + 1, x)) for name, one in loop.lists.items()]
    claims += [SymbolicBool(loop.known(i + 1, ANY_BLOCK))] if loop.known is not None else []
    return claims + [
        name in loop.sums and SymbolicBool(as_term(value) == loop.sums[name](i + 1)) for name, value in sums.items()
    ]


def _known(loop: Loop, i: Any) -> Callable[[Any], Any] | None:
    return None if loop.known is None else partial(loop.known, i)


def _moved(loop: Loop, before: Moment, now: Moment, reached: Reached, i: Any) -> dict[str, Any]:
    """The variables of a loop after `i` rounds."""
    gathered = {id(reached.variables[name]): Grown(one.after(i)) for name, one in loop.lists.items()}
    sums = {name: SymbolicInt(total(i)) for name, total in loop.sums.items()}
    return {name: now.moved(value, before, gathered) for name, value in reached.variables.items()} | sums


def _begins(loop: Loop, reached: Reached, moment: Moment) -> list[Condition]:
    """True if the pool is as after no round, the lists are empty, and the loop goes through what it should."""
    iterated = reached.iterated.items if isinstance(reached.iterated, Numbered) else reached.iterated
    if iterated == ():  # it is all of an `if` that does not hold
        goes: list[Condition] = [SymbolicBool(as_term(loop.rounds) == 0)]
    elif isinstance(iterated, Range) and isinstance(loop.through, Range):
        bounds = ((iterated.start, loop.through.start), (iterated.stop, loop.through.stop))
        goes = [SymbolicBool(as_term(one) == as_term(other)) for one, other in bounds]
    elif isinstance(iterated, Listing) and isinstance(loop.through, Listing):
        inside = z3.And(ANY_PLACE >= 0, iterated.length > ANY_PLACE)
        same = z3.Implies(inside, iterated.at(ANY_PLACE) == loop.through.at(ANY_PLACE))
        goes = [SymbolicBool(z3.And(iterated.length == loop.through.length, same))]
    elif isinstance(iterated, Grown):
        goes = [not iterated.added and iterated.listing is loop.through]
    else:
        through = moment.own if loop.through is None else loop.through
        goes = [getattr(iterated, "origin", iterated) is getattr(through, "origin", through)]
    empty = [reached.variables.get(name) == [] for name in loop.lists]
    none = [SymbolicBool(z3.Not(one.chosen(z3.IntVal(0), ANY_BLOCK))) for one in loop.lists.values()]
    none += [
        SymbolicBool(as_term(reached.variables.get(name)) == total(z3.IntVal(0))) for name, total in loop.sums.items()
    ]
    none += [SymbolicBool(loop.known(z3.IntVal(0), ANY_BLOCK))] if loop.known is not None else []
    return [*goes, *empty, *none, *moment.shows(loop.pool(z3.IntVal(0)))]


def _element(loop: Loop, moment: Moment, i: Any) -> Any:
    """What round `i` of the loop is about."""
    through = loop.through
    if isinstance(through, Range):
        return SymbolicInt(as_term(through.start) + i)
    if isinstance(through, Batch):
        return through.element(moment, i)
    if isinstance(through, Listing):
        return through.element(moment.heap, i)
    return moment.heap.block(i)
