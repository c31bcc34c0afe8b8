"""Symbolic byte strings and names: what an identity is made of. Part of what every proof about identities trusts.

A byte string is its length and its big-endian number, which together determine it: `b"\\x01\\x00"` is (2, 256).
Appending `n` bytes multiplies by `256 ** n`, cutting off the last `n` divides by it. Lengths and numbers may be
symbolic; `256 ** n` is then a function of which only the first values, and a bound for all others, are known (`power`):
what is proved of every such function is true of that one.

A `Name` is a value of which nothing is known but which values it equals: a text, a digest, the rows of an embedding.
Name 0 of a kind is its empty value.

Refused with a ProofError, never guessed: little-endian numbers, slices from the front, comparing a name with a plain
text that is not empty, any use of a joined part but joining it.
"""

import builtins
import hashlib
import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import z3

from .claims import every, negation
from .solver import ProofError
from .symbolic import Number, SymbolicBool, SymbolicInt, running
from .symbolic_builtins import unrolled

EXACT_POWERS = 9
"""`256 ** n` is known exactly for `n` below this."""
_POWER = z3.Function("power256", z3.IntSort(), z3.IntSort())


def power(length: Number) -> Any:
    """`256 ** length`, the number of byte strings of so many bytes."""
    return SymbolicInt(_POWER(length.term)) if isinstance(length, SymbolicInt) else 256**length


def is_bytes(length: Number, number: Number) -> Any:
    """For assumptions: this is the length and the number of a byte string; with what is known of the power."""
    if not isinstance(length, SymbolicInt):
        return length >= 0 and number >= 0 and int(number).bit_length() <= 8 * length
    exact = [z3.Implies(length.term == n, _POWER(length.term) == 256**n) for n in range(EXACT_POWERS)]
    above = z3.Implies(length.term >= EXACT_POWERS, _POWER(length.term) >= 256**EXACT_POWERS)
    return every(length >= 0, SymbolicBool(z3.And(*exact, above)), number >= 0, number < power(length))


def byte_string(length: Number, number: Number) -> Any:
    """The byte string of this length and number; a plain number that is too large is cut."""
    if isinstance(length, SymbolicInt) or isinstance(number, SymbolicInt):
        return SymbolicBytes(length, number)
    return (number % 256**length).to_bytes(length, "big")


class SymbolicBytes:
    """A byte string by length and number."""

    __slots__ = ("length", "number")
    __hash__ = None  # type: ignore[assignment]  # equal values would need equal hashes

    def __init__(self, length: Number, number: Number) -> None:
        self.length = length
        self.number = number

    def symbolic_len(self) -> Number:
        """Bytes."""
        return self.length

    def __add__(self, other: Any) -> Any:
        right = _pair(other)
        return NotImplemented if right is None else _joined(self, right)

    def __radd__(self, other: Any) -> Any:
        left = _pair(other)
        return NotImplemented if left is None else _joined(left, self)

    def __eq__(self, other: object) -> Any:
        right = _pair(other)
        return False if right is None else every(self.length == right.length, self.number == right.number)

    def __ne__(self, other: object) -> Any:
        return negation(self == other)

    def __bool__(self) -> bool:
        return bool(self.length != 0)

    def __getitem__(self, index: Any) -> "SymbolicBytes":
        bounds = (index.start, index.stop) if isinstance(index, slice) and index.step is None else (0, 0)
        if not all(bound is None or (type(bound) is int and bound < 0) for bound in bounds):
            raise ProofError(f"{running().name}: {index!r} of symbolic bytes: only slices that count from the end")
        start, stop = bounds
        left = self if start is None else self._split(-start)[1]
        if stop is None:
            return left
        return self._split(-stop)[0] if start is None else left._split(-stop)[0]

    def _split(self, count: int) -> "tuple[SymbolicBytes, SymbolicBytes]":
        """All but the last `count` bytes, and those; Python gives all bytes where there are no more."""
        if self.length < count:
            return SymbolicBytes(0, 0), self
        head, tail = divmod(self.number, 256**count)
        return SymbolicBytes(self.length - count, head), SymbolicBytes(count, tail)

    def __repr__(self) -> str:
        return f"SymbolicBytes({self.length}, {self.number})"


def _pair(value: Any) -> SymbolicBytes | None:
    if isinstance(value, builtins.bytes):
        return SymbolicBytes(len(value), builtins.int.from_bytes(value, "big"))
    return value if isinstance(value, SymbolicBytes) else None


def _joined(left: SymbolicBytes, right: SymbolicBytes) -> SymbolicBytes:
    return SymbolicBytes(left.length + right.length, left.number * power(right.length) + right.number)


class Whole(SymbolicInt):
    """A symbolic integer that can be written as bytes and masked."""

    __slots__ = ()

    def to_bytes(self, length: int, byteorder: str = "big", *, signed: bool = False) -> Any:
        """As of `int`. OverflowError for a number that is negative or too large."""
        if byteorder != "big" or signed:
            raise ProofError(f"{running().name}: only unsigned big-endian numbers can be written as symbolic bytes")
        if self < 0:
            raise OverflowError("can't convert negative int to unsigned")
        if self >= 256**length:
            raise OverflowError("int too big to convert")
        return SymbolicBytes(length, self)

    def __and__(self, mask: Any) -> Any:
        if type(mask) is not int or mask < 0 or mask & (mask + 1):
            raise ProofError(f"{running().name}: & {mask!r}: only masks of the low bits are supported")
        return Whole((self % (mask + 1)).term)

    __rand__ = __and__


def whole(value: Number) -> Any:
    """The same number with the methods of `Whole`; a plain one as it is."""
    return Whole(value.term) if isinstance(value, SymbolicInt) else value


class _WholeNumbers(type):
    """`int` that takes symbolic integers for what they are."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, builtins.int | SymbolicInt)

    def __call__(cls, *arguments: Any) -> Any:
        if len(arguments) == 1 and isinstance(arguments[0], SymbolicInt):
            return arguments[0]
        return builtins.int(*arguments)


class Integer(metaclass=_WholeNumbers):
    """What modules under proof see for `int`."""

    @staticmethod
    def from_bytes(value: Any, byteorder: str = "big", *, signed: bool = False) -> Any:
        """As of `int`."""
        if not isinstance(value, SymbolicBytes):
            return builtins.int.from_bytes(value, byteorder, signed=signed)  # type: ignore[arg-type]
        if byteorder != "big" or signed:
            raise ProofError(f"{running().name}: only unsigned big-endian numbers can be read from symbolic bytes")
        return whole(value.number)


OPERATOR = SimpleNamespace(
    **{**vars(operator), "index": lambda value: value if isinstance(value, SymbolicInt) else operator.index(value)}
)
"""What modules under proof see for `operator`: a symbolic integer is an index."""


def any_range(*arguments: Any) -> Any:
    """`range` whose step may be symbolic, too: a loop of at most `Run.unroll` rounds, forking at each."""
    if not any(isinstance(argument, SymbolicInt) for argument in arguments):
        return range(*arguments)
    start, stop, step = (0, arguments[0], 1) if len(arguments) == 1 else (*arguments, 1)[:3]
    return unrolled(start, stop, step)


@contextmanager
def seeing(inside: dict[str, Any], replaced: Mapping[str, Any]) -> Iterator[None]:
    """While it lasts, the code whose globals these are sees other values for some names."""
    before = {name: inside[name] for name in replaced if name in inside}
    inside.update(replaced)
    try:
        yield
    finally:
        for name in replaced:
            del inside[name]
        inside.update(before)


def globals_of(function: Any) -> dict[str, Any]:
    """The globals that a function, a method of a class, or an object that is called sees."""
    code = function if hasattr(function, "__globals__") else type(function).__call__
    found: dict[str, Any] = code.__globals__
    return found


# Names.


class Name:
    """A value of some kind, of which only equality is known."""

    __slots__ = ("kind", "number")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, kind: str, number: Number) -> None:
        self.kind = kind
        self.number = number

    def __eq__(self, other: object) -> Any:
        if isinstance(other, Name):
            return self.number == other.number if self.kind == other.kind else False
        if isinstance(other, str) and self.kind == "text":
            if other:
                raise ProofError(f"{running().name}: a symbolic text is compared with {other!r}")
            return self.number == 0
        return False

    def __ne__(self, other: object) -> Any:
        return negation(self == other)

    def __bool__(self) -> bool:
        return bool(self.number != 0)

    def __repr__(self) -> str:
        return f"Name({self.kind}, {self.number})"


def text(number: Number) -> Any:
    """A text for each number, the empty one for 0; of a symbolic number a `Name`."""
    if isinstance(number, SymbolicInt):
        return Name("text", number)
    return f"t{number}" if number else ""


def alike(left: Any, right: Any) -> Any:
    """Equality of plain and symbolic values and of tuples of them, without a fork."""
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and every(*(alike(*pair) for pair in zip(left, right, strict=True)))
    return left == right


# Joining: `b"".join(parts)` runs inside Python, so parts must be real bytes, which stand for symbolic ones.


class Part(bytes):
    """Real bytes that stand for a value; all that can be done with them is joining."""

    def _refused(self, *arguments: Any) -> Any:
        raise ProofError(f"{running().name}: a part of a byte string can be joined, nothing else")

    __len__ = __getitem__ = __iter__ = __add__ = __radd__ = __mul__ = __contains__ = _refused
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __bool__ = _refused


class ByteParts:
    """Hands out parts, and takes what was joined from them apart."""

    SIZE = 32

    def __init__(self) -> None:
        self._values: list[Any] = []

    def part(self, value: Any) -> Part:
        """Bytes that stand for this value."""
        self._values.append(value)
        return Part(self._stamp(len(self._values) - 1))

    def values(self, joined: Any) -> list[Any]:
        """The values of the parts in the order in which they were joined. ProofError for anything else."""
        raw = bytes.join(b"", [joined]) if isinstance(joined, bytes) else b"?"
        stamps = [raw[at : at + self.SIZE] for at in range(0, len(raw), self.SIZE)]
        numbers = {self._stamp(number): number for number in range(len(self._values))}
        if not all(stamp in numbers for stamp in stamps):
            raise ProofError(f"{running().name}: what was made of the parts is not the parts joined")
        return [self._values[numbers[stamp]] for stamp in stamps]

    @staticmethod
    def _stamp(number: int) -> bytes:
        return hashlib.sha256(b"part %d" % number).digest()


def concatenated(values: list[Any]) -> Any:
    """The byte strings one after the other."""
    whole_string = values[0]
    for value in values[1:]:
        whole_string = whole_string + value
    return whole_string
