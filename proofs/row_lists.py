"""Lists of blocks, and rows of batches, of symbolic length: what the methods of a queue of batches work on.

Refused with a ProofError, never guessed: whatever is not written here, such as a slice from the end, one whose ends may
lie outside, or going through the items.
"""

from collections.abc import Callable, Iterator
from typing import Any

import z3

from .refusal import refusal
from .symbolic import SymbolicInt, running, term

Term = Any
"""A term of the solver."""
OUT = z3.IntVal(-1)
"""Not a place."""


class Entries:
    """A list of blocks: how many, and the reference of each. `inverse` leads from a reference to its place, if none
    stands there twice, and to no place for a block that does not."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, block: Callable[[Term], Any], length: Any, item: Callable[[Term], Term], inverse: Any = None):
        self._block = block
        self.length = length if isinstance(length, z3.ExprRef) else term(length)
        self.item, self.inverse = item, inverse

    def holds(self, x: Term) -> Term:
        """Is this one of them?"""
        place = self.inverse(x)
        return z3.And(place >= 0, place < self.length, self.item(place) == x)

    def symbolic_len(self) -> SymbolicInt:
        """How many."""
        return SymbolicInt(self.length)

    def __bool__(self) -> bool:
        return running().decide(self.length > 0)

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            where = term(index)
            if running().decide(z3.Or(where < 0, where >= self.length)):
                raise refusal("a place outside")
            return self._block(self.item(where))
        if index.step is not None:
            raise refusal("a slice with a step")
        start = term(0 if index.start is None else index.start)
        stop = self.length if index.stop is None else term(index.stop)
        if running().decide(z3.Or(start < 0, start > stop, stop > self.length)):
            raise refusal("a slice whose ends may lie outside")
        return self.part(start, stop)

    def part(self, start: Term, stop: Term) -> "Entries":
        """Those from one place to another."""
        item = self.item
        return Entries(self._block, stop - start, lambda j: item(start + j))

    def copy(self) -> "Entries":
        """Another list of the same."""
        return Entries(self._block, self.length, self.item, self.inverse)

    def append(self, block: Any) -> None:
        """One more."""
        self._extend(as_entries([block], self._block))

    def __iadd__(self, others: Any) -> "Entries":
        self._extend(as_entries(others, self._block))
        return self

    def __add__(self, others: Any) -> "Entries":
        made = self.copy()
        made += others
        return made

    def __radd__(self, others: Any) -> "Entries":
        return as_entries(others, self._block) + self

    def _extend(self, others: "Entries") -> None:
        length, item, more = self.length, self.item, others.item
        self.length, self.inverse = length + others.length, None
        self.item = lambda j: z3.If(j < length, item(j), more(j - length))

    def _refused(self, *arguments: Any) -> Any:
        raise refusal("any other use of a list")

    __len__ = __iter__ = __eq__ = __ne__ = __contains__ = __reversed__ = __setitem__ = __mul__ = _refused


def as_entries(blocks: Any, block: Callable[[Term], Any]) -> Entries:
    """A plain list of blocks, or what is one already."""
    if isinstance(blocks, Entries):
        return blocks
    references = [one.reference for one in blocks]

    def item(j: Term) -> Term:
        found = OUT
        for place, reference in enumerate(references):
            found = z3.If(j == place, reference, found)
        return found

    def inverse(x: Term) -> Term:
        found = OUT
        for place, reference in enumerate(references):
            found = z3.If(x == reference, z3.IntVal(place), found)
        return found

    return Entries(block, len(references), item, inverse)


class _Lists(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, list)

    def __call__(cls, items: Any = ()) -> Any:
        return items.copy() if isinstance(items, Entries) else list(items)


class SymbolicList(metaclass=_Lists):
    """What modules under proof see for `list`."""


class BatchRow:
    """A row of batches: some at the front and the back that were put there, and between them those from one number to
    another of a row of any length."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, batch: Callable[[Term], Any], low: Term, high: Term) -> None:
        self._batch = batch
        self.begin(low, high)

    def begin(self, low: Term, high: Term) -> None:
        """Let there be nothing but the batches from one number to another."""
        self.low, self.high = low, high
        self.front: list[Any] = []
        self.back: list[Any] = []
        self.left: list[Any] = []
        """Batches that are gone."""

    def placed(self) -> Iterator[tuple[Term, Any]]:
        """The batches that were put there, with their places."""
        for number, batch in enumerate(self.front):
            yield z3.simplify(self.low - len(self.front) + number), batch
        for number, batch in enumerate(self.back):
            yield z3.simplify(self.high + number), batch

    @property
    def first(self) -> Term:
        """The place of the first one."""
        return z3.simplify(self.low - len(self.front))

    @property
    def end(self) -> Term:
        """The place behind the last one."""
        return z3.simplify(self.high + len(self.back))

    def symbolic_len(self) -> SymbolicInt:
        """How many."""
        return SymbolicInt(z3.simplify(self.end - self.first))

    def __bool__(self) -> bool:
        return running().decide(self.first < self.end)

    def __getitem__(self, index: int) -> Any:
        if index not in (0, -1):
            raise refusal("a batch in the midst")
        ends = (self.front, self.back) if index == 0 else (self.back, self.front)
        if ends[0]:
            return ends[0][index]
        if running().decide(self.low < self.high):
            return self._batch(self.low if index == 0 else self.high - 1)
        if ends[1]:
            return ends[1][index]
        raise IndexError("deque index out of range")

    def popleft(self) -> Any:
        """Take the first one away."""
        batch = self[0]
        self.left.append(batch)
        if self.front:
            del self.front[0]
        elif running().decide(self.low < self.high):
            self.low = z3.simplify(self.low + 1)
        else:
            del self.back[0]
        return batch

    def append(self, batch: Any) -> None:
        """Put one to the back."""
        self.back.append(batch)

    def appendleft(self, batch: Any) -> None:
        """Put one to the front."""
        self.front.insert(0, batch)

    def _refused(self, *arguments: Any) -> Any:
        raise refusal("any other use of a row")

    __len__ = __iter__ = __eq__ = __ne__ = __contains__ = __reversed__ = __setitem__ = _refused
