"""A block table of symbolic length: what a list of blocks is to the methods that extend, null and count it.

Entries are ids, 0 being null. A table is a length and two functions: the entry at an index, and how many *marked*
entries lie below an index (real blocks, say, or eviction candidates: the theorem says which). Each operation of a list
gives both functions anew, so nothing is written entry by entry and a hundred thousand nulls cost no more than one.
What a method reads or appends are blocks, not ids; a *codec* turns one into the other, and forks where the method can
tell the null block from a real one.

Refused with a ProofError, never guessed: going through more entries than `unroll`, deleting, a slice with a step,
assigning to a slice anything but as many entries as it has, counting where a table does not know its marks.
Subscripts outside the table raise IndexError, as a list's do.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import z3

from .claims import every
from .solver import ProofError
from .symbolic import Number, SymbolicBool, SymbolicInt, is_plain, running, term

At: TypeAlias = Callable[[Any], Any]
"""A function of an index, plain or symbolic."""


class Codec(NamedTuple):
    """How ids and what a method sees of a block belong together."""

    read: At
    write: At


IDS = Codec(lambda number: number, lambda block: block)
"""The method works on ids."""


def pick(condition: Any, one: Any, other: Any) -> Any:
    """`one if condition else other`, without a fork."""
    if isinstance(condition, SymbolicBool):
        return Count(z3.If(condition.term, term(one), term(other)))
    return one if condition else other


class Count(SymbolicInt):
    """A symbolic integer by which a list can be multiplied; what is computed from one can be, too."""

    __slots__ = ()

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, list):
            return repeated(other, self)
        return count(SymbolicInt.__mul__(self, other))

    __rmul__ = __mul__

    def __rfloordiv__(self, other: Any) -> Any:
        if not isinstance(other, SymbolicInt) and other == 0 and self != 0:
            return 0  # without a quotient for solvers to think about
        return count(SymbolicInt.__rfloordiv__(self, other))

    def __or__(self, other: Any) -> Any:
        """With a plain 0, the number itself; of two symbolic ones, some number that is negative if one of them is."""
        if not isinstance(other, SymbolicInt) and other == 0:
            return self
        if not isinstance(other, SymbolicInt):
            raise ProofError(f"{running().name}: the bits of a symbolic number are joined with {other!r}")
        bits = z3.Int(running().fresh_name("bits"))
        # What Python gives is such a number, so this assumes nothing; no more is known of it.
        running().assume((bits < 0) == z3.Or(self.term < 0, other.term < 0))
        return Count(bits)

    __ror__ = __or__


def count(value: Any) -> Any:
    """A symbolic integer as a `Count`; everything else as it is."""
    return Count(value.term) if isinstance(value, SymbolicInt) and not isinstance(value, Count) else value


def _closed(name: str) -> Callable[..., Any]:
    operation = getattr(SymbolicInt, name)

    def closed(*operands: Any) -> Any:
        result = operation(*operands)
        return tuple(map(count, result)) if isinstance(result, tuple) else count(result)

    return closed


for _name in ("add", "radd", "sub", "rsub", "floordiv", "mod", "rmod", "divmod", "rdivmod", "neg", "pos", "abs"):
    setattr(Count, f"__{_name}__", _closed(f"__{_name}__"))


def _once(function: At) -> At:
    """The function, asked only once about each index: tables are built upon tables."""
    known: dict[Any, tuple[Any, Any]] = {}  # with the index, since the solver gives ids of dead terms to new ones

    def remembered(index: Any) -> Any:
        key = ("term", index.term.get_id()) if isinstance(index, SymbolicInt) else index
        if key not in known:
            known[key] = index, function(index)
        return known[key][1]

    return remembered


def _unmarked(index: Any) -> Any:
    raise ProofError(f"{running().name}: this table does not know which entries are marked: say so where it is made")


class SymbolicTable:
    """A table of `length` entries (assume that it is not negative), of which `entry` gives the ids."""

    __hash__ = None  # type: ignore[assignment]  # like a list

    def __init__(self, length: Number, entry: At, below: At = _unmarked, codec: Codec = IDS) -> None:
        """`below(i)`: how many of the first `i` entries are marked, for `0 <= i <= length`."""
        self._length = count(length)
        self._entry, self._below = _once(entry), _once(below)
        self.codec = codec

    @property
    def entry(self) -> At:
        """The id at an index inside the table."""
        return self._entry

    @property
    def below(self) -> At:
        """How many entries before an index are marked."""
        return self._below

    def symbolic_len(self) -> Any:
        """The number of entries; Python's own `len` could not give it."""
        return self._length

    def marked(self) -> Any:
        """How many entries are marked."""
        return self.below(self._length)

    def __bool__(self) -> bool:
        return bool(self._length > 0)

    # Reading.

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            entry, below, length = self.entry, self.below, self._length
            if (index.start, index.stop, index.step) == (None, None, -1):
                return SymbolicTable(
                    length, lambda i: entry(length - 1 - i), lambda i: below(length) - below(length - i), self.codec
                )
            start, stop = self._bounds(index)
            # A slice is a copy: it does not follow what happens to the table.
            return SymbolicTable(
                stop - start, lambda i: entry(start + i), lambda i: below(start + i) - below(start), self.codec
            )
        return self.codec.read(count(self.entry(self._index(index))))

    def __iter__(self) -> Iterator[Any]:
        run, i = running(), 0
        while i < self._length:
            if i == run.unroll:
                raise ProofError(
                    f"{run.name}: a table goes on after {i} entries: bound it in the theorem (`unroll`), and assume "
                    "that it is no longer"
                )
            yield self.codec.read(count(self.entry(i)))
            i += 1

    def __reversed__(self) -> Iterator[Any]:
        run, rounds = running(), 0
        while rounds < self._length:
            if rounds == run.unroll:
                raise ProofError(f"{run.name}: a table read from its end goes on after {rounds} entries: bound it")
            yield self.codec.read(count(self.entry(self._length - 1 - rounds)))
            rounds += 1

    def count(self, value: Any) -> int:
        """How many entries are this one, found by going through them."""
        return sum(1 for entry in self if entry is value or entry == value)

    def _index(self, index: Any) -> Any:
        if index < 0:
            index = index + self._length
        if index < 0 or index >= self._length:
            raise IndexError("table index out of range")
        return index

    def _bounds(self, index: slice) -> tuple[Any, Any]:
        """Start and stop as Python understands them: negative ones from the end, cut to the table, never crossed.

        No forks: what a slice is cut to seldom matters to the method that takes it.
        """
        if index.step is not None:
            raise ProofError(f"{running().name}: a slice with step {index.step!r} cannot be followed")
        start = self._cut(0 if index.start is None else index.start)
        stop = self._length if index.stop is None else self._cut(index.stop)
        return start, pick(stop < start, start, stop)

    def _cut(self, bound: Any) -> Any:
        if not isinstance(bound, SymbolicInt) and bound == 0:
            return 0
        counted = pick(bound < 0, bound + self._length, bound)
        return pick(counted < 0, 0, pick(counted > self._length, self._length, counted))

    # Writing.

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            start, stop = self._bounds(index)
            self._overwrite(start, stop - start, as_table(value, self.codec))
            return
        at = self._index(index)
        self._overwrite(at, 1, as_table([value], self.codec))

    def _overwrite(self, start: Any, length: Any, new: "SymbolicTable") -> None:
        """As many entries as before; the marks of what is written are those of `new`."""
        if new.symbolic_len() != length:
            raise ProofError(f"{running().name}: a slice is replaced by another number of entries")
        if not isinstance(new.symbolic_len(), SymbolicInt) and new.symbolic_len() == 0:
            return
        entry, below = self.entry, self.below
        self._entry = _once(lambda i: pick(every(start <= i, i < start + length), new.entry(i - start), entry(i)))
        self._below = _once(
            lambda i: pick(
                i <= start,
                below(i),
                pick(
                    i <= start + length,
                    below(start) + new.below(i - start),
                    below(i) - below(start + length) + below(start) + new.below(length),
                ),
            )
        )

    def append(self, value: Any) -> None:
        """One entry more."""
        self.extend([value])

    def extend(self, values: Any) -> None:
        """More entries: a list or a table."""
        if self.codec is IDS and isinstance(values, SymbolicTable):
            self.codec = values.codec  # padding is made before it is known what it stands before
        more = as_table(values, self.codec)
        length, entry, below = self._length, self.entry, self.below
        self._length = count(length + more.symbolic_len())
        self._entry = _once(lambda i: pick(i < length, entry(i), more.entry(i - length)))
        self._below = _once(lambda i: pick(i <= length, below(i), below(length) + more.below(i - length)))

    def __iadd__(self, values: Any) -> "SymbolicTable":
        self.extend(values)
        return self

    def copy(self) -> "SymbolicTable":
        """Another table with the same entries."""
        return SymbolicTable(self._length, self.entry, self.below, self.codec)

    def __add__(self, values: Any) -> "SymbolicTable":
        made = self.copy()
        made.extend(values)
        return made

    def __radd__(self, values: list[Any]) -> "SymbolicTable":
        return as_table(values, self.codec) + self

    def __repr__(self) -> str:
        return f"SymbolicTable of {self._length!r} entries"


def as_table(values: Any, codec: Codec) -> SymbolicTable:
    """A list or a table as a table. Entries of a list are marked if they are not null."""
    if isinstance(values, SymbolicTable):
        return (
            values.copy() if values.codec is codec else SymbolicTable(values._length, values.entry, values.below, codec)
        )
    ids = [codec.write(value) for value in values]

    def entry(i: Any) -> Any:
        found: Any = 0
        for place, number in enumerate(ids):
            found = pick(i == place, number, found)
        return found

    def below(i: Any) -> Any:
        found: Any = 0
        for place, number in enumerate(ids):
            found = found + pick(every(place < i, number != 0), 1, 0)
        return found

    return SymbolicTable(len(ids), entry, below, codec)


def repeated(values: list[Any], times: Count) -> SymbolicTable:
    """`values * times`, for a list of one null entry or one id: it is padding that methods multiply."""
    if len(values) != 1:
        raise ProofError(f"{running().name}: a list of {len(values)} values is repeated: only one null block can be")
    null = values[0]
    if is_plain(null) and null != 0:
        return SymbolicTable(times if times > 0 else 0, lambda i: null, lambda i: i)
    if not (getattr(null, "is_null", False) or (is_plain(null) and null == 0)):
        raise ProofError(f"{running().name}: {null!r} is repeated: only the null block can be")
    return SymbolicTable(times if times > 0 else 0, lambda i: 0, lambda i: 0)
