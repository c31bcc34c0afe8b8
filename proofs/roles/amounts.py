"""Symbolic amounts of tokens, counted in blocks of any size.

Lists have an entry per block, and a list is plain. So where a theorem is about few blocks, the number of blocks is
plain and only the block size is symbolic: an amount is `count * b + rest`. Quotients and remainders of such amounts
follow from laws, each of which is an obligation of the run that uses it. Everything else is as for any symbol.
"""

import math
from collections.abc import Callable
from typing import Any

import z3

from ..claims import lemma
from ..solver import ProofError
from ..symbolic import SymbolicInt, is_plain, running


def _oblige(name: str, law: Callable[..., z3.BoolRef]) -> None:
    """Demand a law of arithmetic, once in each run."""
    asked = running().__dict__.setdefault("laws_of_amounts", set())
    if name not in asked:
        asked.add(name)
        running().law(name, law(*z3.Ints("b x y m")))


class Positive(SymbolicInt):
    """A divisor that is known to be positive."""

    __slots__ = ()

    def __rfloordiv__(self, other: Any) -> Any:
        return SymbolicInt(_term(other) / self.term)

    def __rmod__(self, other: Any) -> Any:
        return SymbolicInt(_term(other) % self.term)

    def __neg__(self) -> Any:
        return _Negative(-self.term)


class _Negative(SymbolicInt):
    """Minus a positive divisor: `x // -b == -x // b`."""

    __slots__ = ()

    def __rfloordiv__(self, other: Any) -> Any:
        return SymbolicInt(-_term(other) / z3.simplify(-self.term))


class BlockSize(Positive):
    """A positive divisor whose multiples know how often it goes into them."""

    __slots__ = ()

    def __mul__(self, other: Any) -> Any:
        return self if is_plain(other) and other == 1 else Amount(other, self)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return Amount(1, self) // other

    def __mod__(self, other: Any) -> Any:
        return Amount(1, self) % other

    def __eq__(self, other: object) -> Any:
        return Amount(1, self) == other if isinstance(other, Amount) else super().__eq__(other)

    def __ne__(self, other: object) -> Any:
        return Amount(1, self) != other if isinstance(other, Amount) else super().__ne__(other)

    __hash__ = SymbolicInt.__hash__


class Few(Positive):
    """A positive divisor that goes into everything a few times only.

    What is divided by it is compared with its multiples, with forks, so that quotients are plain numbers and solvers
    have none to think about. A quotient beyond `Run.unroll` is a number of which only that is known.
    """

    __slots__ = ()

    def __mul__(self, other: Any) -> Any:
        return Multiple(other, self) if is_plain(other) and other >= 1 else super().__mul__(other)

    __rmul__ = __mul__

    def __rfloordiv__(self, other: Any) -> Any:
        return _times(_term(other), self.term)

    def __rmod__(self, other: Any) -> Any:
        return SymbolicInt(_term(other)) - _times(_term(other), self.term) * SymbolicInt(self.term)

    def __floordiv__(self, other: Any) -> Any:
        return other.__rfloordiv__(self) if isinstance(other, Positive) else super().__floordiv__(other)

    def __mod__(self, other: Any) -> Any:
        return other.__rmod__(self) if isinstance(other, Positive) else super().__mod__(other)

    def __neg__(self) -> Any:
        return _NegativeFew(-self.term)


class _NegativeFew(SymbolicInt):
    """Minus such a divisor: `x // -b == -x // b`."""

    __slots__ = ()

    def __rfloordiv__(self, other: Any) -> Any:
        return _times(-_term(other), z3.simplify(-self.term))


class Multiple(Few):
    """So many times such a divisor, and more than 0 times. Where `times` is symbolic, assume that it is positive."""

    __slots__ = ("of", "times")

    def __init__(self, times: Any, of: Few) -> None:
        super().__init__(_term(times) * of.term)
        self.times, self.of = times, of
        lemma(self > 0, "a multiple of a positive number is positive")

    def __mul__(self, other: Any) -> Any:
        return Multiple(other * self.times, self.of) if is_plain(other) and other >= 1 else super().__mul__(other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        if isinstance(other, Few) and other.term.eq(self.of.term):
            _oblige("x*b // b == x", lambda b, x, y, m: z3.Implies(b > 0, (x * b) / b == x))
            return self.times
        return super().__floordiv__(other)

    def __mod__(self, other: Any) -> Any:
        if isinstance(other, Few) and other.term.eq(self.of.term):
            _oblige("x*b % b == 0", lambda b, x, y, m: z3.Implies(b > 0, (x * b) % b == 0))
            return 0
        return super().__mod__(other)


class Chunk(Positive):
    """The size of chunks, a positive divisor of which only the borders matter: `x // k * k` is an integer of its own.

    Of a border is known in which chunk it is, and how it lies to the other borders; no product is left for solvers to
    think about.
    """

    __slots__ = ()

    def __rfloordiv__(self, other: Any) -> Any:
        return _ChunkNumber(z3.simplify(_term(other)), self.term)


class _ChunkNumber(SymbolicInt):
    """The number of the chunk of a token."""

    __slots__ = ("token", "unit")

    def __init__(self, token: Any, unit: Any) -> None:
        super().__init__(token / unit)
        self.token, self.unit = token, unit

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Chunk) and other.term.eq(self.unit):
            return SymbolicInt(_border(self.token, self.unit))
        return super().__mul__(other)


def _border(x: Any, unit: Any) -> Any:
    """Where the chunk of a token begins."""
    run = running()
    known: list[tuple[Any, Any]] = run.once(("borders", unit), lambda: [(z3.IntVal(0), z3.IntVal(0))])

    def defined() -> Any:
        border = z3.Int(run.fresh_name("border"))
        # `x // unit * unit` is such a number, for a positive unit: this assumes nothing.
        run.assume(z3.And(border <= x, x < border + unit))
        for y, other in known:
            run.assume(z3.Implies(z3.And(border <= y, y < border + unit), other == border))
            run.assume(z3.Implies(border < other, border + unit <= other))
            run.assume(z3.Implies(other < border, other + unit <= border))
        known.append((x, border))
        return border

    return run.once(("border", x, unit), defined)


def _times(x: Any, unit: Any) -> Any:
    """How often a positive unit goes into `x`, found by comparing."""
    run, x = running(), z3.simplify(x)

    def found() -> Any:
        times = 0
        while run.decide(x >= (times + 1) * unit):
            times += 1
            if times > run.unroll:
                return _beyond(lambda quotient: quotient >= times)
        while not run.decide(x >= times * unit):
            times -= 1
            if times < -run.unroll:
                return _beyond(lambda quotient: quotient < times + 1)
        return times

    def _beyond(bound: Callable[[Any], Any]) -> Any:
        quotient = z3.Int(run.fresh_name("times"))
        # For a positive unit there is exactly one such number, so this assumes nothing.
        run.assume(z3.And(quotient * unit <= x, x < quotient * unit + unit))
        run.lemma(bound(quotient), "so many times at least, or at most")
        return SymbolicInt(quotient)

    return run.once(("times", x, unit), found)


class Amount(SymbolicInt):
    """`count * size + rest` tokens with `0 <= rest < size`; without a rest, whole blocks."""

    __slots__ = ("count", "size", "whole")

    def __init__(self, count: Any, size: BlockSize, rest: Any = None) -> None:
        tokens = _term(count) * size.term
        super().__init__(tokens if rest is None else tokens + rest.term)
        self.count, self.size, self.whole = count, size, rest is None

    def __floordiv__(self, other: Any) -> Any:
        if isinstance(other, Amount) and other.whole and is_plain(self.count):
            return self._quotient(self.count, other.count)
        if not isinstance(other, SymbolicInt) or not other.term.eq(self.size.term):
            return super().__floordiv__(other)
        _oblige("(x*b + y) // b == x", lambda b, x, y, m: z3.Implies(z3.And(y >= 0, y < b), (x * b + y) / b == x))
        return self.count

    def _quotient(self, few: int, many: Any) -> Any:
        if is_plain(many):
            quotient = few // many
            _oblige(
                f"({few}*b + y) // ({many}*b) == {quotient}",
                lambda b, x, y, m: z3.Implies(z3.And(y >= 0, y < b), (few * b + y) / (many * b) == quotient),
            )
            return quotient
        lemma(many > few, "fewer blocks than the divisor has")
        _oblige(
            "(x*b + y) // (m*b) == 0",
            lambda b, x, y, m: z3.Implies(z3.And(y >= 0, y < b, x >= 0, x < m), (x * b + y) / (m * b) == 0),
        )
        return 0

    def __mul__(self, other: Any) -> Any:
        if self.whole and isinstance(other, int):
            return Amount(0 if is_plain(other) and other == 0 else other * self.count, self.size)
        return super().__mul__(other)

    __rmul__ = __mul__

    def __rfloordiv__(self, other: Any) -> Any:
        return SymbolicInt(_term(other) / self.term) if self._positive() else super().__rfloordiv__(other)

    def __rmod__(self, other: Any) -> Any:
        return SymbolicInt(_term(other) % self.term) if self._positive() else super().__rmod__(other)

    def _positive(self) -> bool:
        _oblige("x*b > 0", lambda b, x, y, m: z3.Implies(z3.And(b > 0, x > 0), x * b > 0))
        return self.whole and (isinstance(self.count, Positive) or (is_plain(self.count) and self.count > 0))

    def __mod__(self, other: Any) -> Any:
        other = Amount(1, other) if isinstance(other, BlockSize) else other
        if not self._both_whole(other):
            return super().__mod__(other)
        few, many = self.count, other.count
        if is_plain(many) and many == 1:
            _oblige("x*b % b == 0", lambda b, x, y, m: z3.Implies(b > 0, (x * b) % b == 0))
            return Amount(0, self.size)
        if not is_plain(few):
            return super().__mod__(other)
        if is_plain(many):
            rest = few % many
            _oblige(
                f"{few}*b % ({many}*b) == {rest}*b",
                lambda b, x, y, m: z3.Implies(b > 0, (few * b) % (many * b) == rest * b),
            )
        elif few < many:
            rest = few
            _oblige(
                "x*b % (m*b) == x*b",
                lambda b, x, y, m: z3.Implies(z3.And(b > 0, x >= 0, x < m), (x * b) % (m * b) == x * b),
            )
        else:
            return super().__mod__(other)
        return Amount(rest, self.size)

    def __neg__(self) -> Any:
        return Amount(-self.count, self.size) if self.whole else super().__neg__()

    def __eq__(self, other: object) -> Any:
        if self.whole and is_plain(other):
            _oblige("x*b == 0", lambda b, x, y, m: z3.Implies(b > 0, (x * b == 0) == (x == 0)))
            return self.count == 0 if other == 0 else super().__eq__(other)
        if not self._both_whole(other):
            return super().__eq__(other)
        _oblige("x*b == y*b", lambda b, x, y, m: z3.Implies(b > 0, (x * b == y * b) == (x == y)))
        return self.count == other.count  # type: ignore[attr-defined]

    def __ne__(self, other: object) -> Any:
        equal = self == other
        return not equal if is_plain(equal) else super().__ne__(other)

    def __bool__(self) -> bool:
        return bool(self != 0)

    __hash__ = SymbolicInt.__hash__

    def __le__(self, other: Any) -> Any:
        if not isinstance(other, Amount):
            return super().__le__(other)
        if not self.whole:
            if not (is_plain(self.count) and is_plain(other.count) and self.count < other.count):
                return super().__le__(other)
            _oblige(
                "x*b + y <= m*b",
                lambda b, x, y, m: z3.Implies(z3.And(y >= 0, y < b, x < m), x * b + y <= m * b),
            )
            return True
        _oblige(
            "x*b <= m*b + y",
            lambda b, x, y, m: z3.Implies(z3.And(y >= 0, y < b), (x * b <= m * b + y) == (x <= m)),
        )
        return self.count <= other.count

    def _both_whole(self, other: Any) -> bool:
        return self.whole and isinstance(other, Amount) and other.whole and self.size.term.eq(other.size.term)


class Count(SymbolicInt):
    """A number that is compared with plain ones. The run does not ask again what the answers have told already."""

    __slots__ = ("added", "bounds", "number")

    def __init__(self, number: z3.ArithRef, added: int = 0, bounds: list[float] | None = None) -> None:
        super().__init__(number + added if added else number)
        self.number, self.added = number, added
        self.bounds = [-math.inf, math.inf] if bounds is None else bounds  # of the number; its sums share them

    def __add__(self, other: Any) -> Any:
        return Count(self.number, self.added + other, self.bounds) if is_plain(other) else super().__add__(other)

    def __neg__(self) -> Any:
        return _NegatedCount(self)

    def __rsub__(self, other: Any) -> Any:
        """Plain, unless it is negative."""
        if is_plain(other):
            for left in range(other - 1, -1, -1):
                if self <= other - left:
                    return left
        return super().__rsub__(other)

    def __le__(self, other: Any) -> Any:
        if not is_plain(other):
            return super().__le__(other)
        least, most = self.bounds
        limit = other - self.added
        if not least <= limit < most:
            return limit >= most
        answer = bool(super().__le__(other))
        self.bounds[answer] = limit if answer else limit + 1
        return answer

    def __gt__(self, other: Any) -> Any:
        return not self <= other if is_plain(other) else super().__gt__(other)


class _NegatedCount(SymbolicInt):
    """Minus a count, until it is negated again."""

    __slots__ = ("count",)

    def __init__(self, count: Count) -> None:
        super().__init__(-count.term)
        self.count = count

    def __neg__(self) -> Any:
        return self.count


class Window(SymbolicInt):
    """A window that reaches `need` blocks back: `w == need*b - rest + 1` with `0 <= rest < b`."""

    __slots__ = ("need", "rest", "size")

    def __init__(self, need: Count, rest: Any, size: BlockSize) -> None:
        super().__init__(need.term * size.term - rest.term + 1)
        self.need, self.rest, self.size = need, rest, size

    def __sub__(self, other: Any) -> Any:
        return _Reach(self) if is_plain(other) and other == 1 else super().__sub__(other)


class _Reach(SymbolicInt):
    """`w - 1` tokens. Rounded up to blocks, it is what the window needs."""

    __slots__ = ("window",)

    def __init__(self, window: Window) -> None:
        super().__init__(window.term - 1)
        self.window = window

    def __neg__(self) -> Any:
        return Amount(-self.window.need, self.window.size, self.window.rest)

    def __floordiv__(self, other: Any) -> Any:
        negated = isinstance(other, SymbolicInt) and other.term.eq(-self.window.size.term)
        return -self // self.window.size if negated else super().__floordiv__(other)


class Position(SymbolicInt):
    """Where a range begins. The distance of another symbolic index from it is a plain number: lists are indexed so."""

    __slots__ = ()

    def __rsub__(self, other: Any) -> Any:
        distance = plain(super().__rsub__(other))
        if is_plain(distance):
            return distance
        raise ProofError(
            f"{running().name}: the distance {distance} is not bounded: raise `unroll`, or assume that it is"
        )


def positive(value: Any, kind: type[Positive] = Positive) -> Any:
    """A divisor that the assumptions make positive; a plain one stays plain."""
    if not isinstance(value, SymbolicInt):
        return value
    lemma(value > 0, "a divisor is positive")
    return kind(value.term)


def ordinary(value: Any) -> Any:
    """The number without what is known of it, for laws that are to be spelt out."""
    return SymbolicInt(value.term) if isinstance(value, SymbolicInt) else value


def amount(count: Any, size: Any, rest: Any) -> Any:
    """`count * size + rest` tokens; the assumptions make `0 <= rest < size`."""
    if not isinstance(size, BlockSize):
        return count * size + rest
    lemma((rest >= 0) & (rest < size), "the rest is less than a block")
    return Amount(count, size, rest)


def last_token(block: Any, size: Any) -> Any:
    """Position of the last token of a block."""
    return Amount(block, size, size - 1) if isinstance(size, BlockSize) else block * size + size - 1


def window(need: Any, rest: Any, size: Any) -> Any:
    """A window of `need * size - rest + 1` tokens; the assumptions make `0 <= rest < size`."""
    if not isinstance(size, BlockSize):
        return need * size - rest + 1
    lemma((rest >= 0) & (rest < size), "the rest is less than a block")
    return Window(Count(need.term), rest, size)


def position(value: Any) -> Any:
    """`Position` of a symbolic index; a plain one stays plain."""
    return Position(value.term) if isinstance(value, SymbolicInt) else value


def plain(value: Any) -> Any:
    """The number, plain where it is at most `Run.unroll` in size: the run forks over the values that are possible."""
    if isinstance(value, SymbolicInt):
        most = running().unroll
        for candidate in range(most, -most - 1, -1):
            if value == candidate:
                return candidate
    return value


def _term(value: Any) -> Any:
    return value.term if isinstance(value, SymbolicInt) else z3.IntVal(value)


class _NextRoundError(Exception):
    """A loop has counted down once."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class _SymbolicRound(SymbolicInt):
    """A loop variable that ends the run where it is counted down."""

    __slots__ = ()

    def __sub__(self, other: Any) -> Any:
        raise _NextRoundError(super().__sub__(other))


class _PlainRound(int):
    """The same for a plain number."""

    def __sub__(self, other: Any) -> Any:
        raise _NextRoundError(int(self) - other)


def next_round(loop: Callable[..., Any], start: Any, *arguments: Any) -> tuple[Any, bool]:
    """One round of a function that counts its first argument down: the value after it, and whether the loop ended.

    What holds of one round from any value holds of the whole loop by induction.
    """
    begin = _SymbolicRound(start.term) if isinstance(start, SymbolicInt) else _PlainRound(start)
    try:
        return loop(begin, *arguments), True
    except _NextRoundError as reached:
        return reached.value, False
