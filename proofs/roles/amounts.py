"""Symbolic amounts of tokens, counted in blocks of any size.

Lists have an entry per block, and a list is plain. So where a theorem is about few blocks, the number of blocks is
plain and only the block size is symbolic (`Few`). Where it is about any number of blocks, quotients of lengths follow
from laws (`Length`). Everything else is as for any symbol.
"""

from collections.abc import Callable
from typing import Any

import z3

from ..claims import found_quotient, instance, lemma, ordered_multiples
from ..solver import ProofError
from ..symbolic import SymbolicInt, is_plain, running


def _oblige(name: str, law: Callable[..., z3.BoolRef], *follows_from: Callable[..., z3.BoolRef]) -> None:
    """Demand a law of arithmetic, once in each run; where that says it all to a solver, from instances of others."""
    asked = running().__dict__.setdefault("laws_of_amounts", set())
    if name not in asked:
        asked.add(name)
        numbers = z3.Ints("b x y m")
        running().law(name, law(*numbers), *(given(*map(SymbolicInt, numbers)) for given in follows_from))


class Positive(SymbolicInt):
    """A divisor that is known to be positive."""

    __slots__ = ()

    def __rfloordiv__(self, other: Any) -> Any:
        return 0 if is_plain(other) and other == 0 else SymbolicInt(_term(other) / self.term)

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
        return Length(other, self)

    __rmul__ = __mul__


class Length(SymbolicInt):
    """`blocks * size + rest` tokens, whatever the rest is; without one, whole blocks.

    Divided by the size, or by whole blocks, it is divided by laws, each of which is an obligation of the run.
    """

    __slots__ = ("blocks", "rest", "size")

    def __init__(self, blocks: Any, size: BlockSize, rest: Any = None) -> None:
        tokens = _term(blocks) * size.term
        super().__init__(tokens if rest is None else tokens + _term(rest))
        self.blocks, self.size, self.rest = blocks, size, rest

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Length):
            return super().__add__(other)
        return Length(self.blocks, self.size, other if self.rest is None else self.rest + other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return super().__sub__(other) if isinstance(other, Length) else self + -other

    def __neg__(self) -> Any:
        return Length(-self.blocks, self.size, None if self.rest is None else -self.rest)

    def __mul__(self, other: Any) -> Any:
        return Length(self.blocks * other, self.size) if self.rest is None else super().__mul__(other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        if isinstance(other, BlockSize) and other.term.eq(self.size.term):
            _oblige(
                "(x*b + y) // b == x + y // b",
                lambda b, x, y, m: z3.Implies(b > 0, (x * b + y) / b == x + y / b),
                lambda b, x, y, m: instance(found_quotient, x * b + y, b, SymbolicInt(x.term + y.term / b.term)),
            )
            return self.blocks if self.rest is None else self.blocks + self.rest // other
        if isinstance(other, Length) and self.rest is None is other.rest and other.size.term.eq(self.size.term):
            _oblige(
                "x*b // (m*b) == x // m",
                lambda b, x, y, m: z3.Implies(z3.And(b > 0, m > 0), (x * b) / (m * b) == x / m),
                lambda b, x, y, m: instance(found_quotient, x * b, m * b, SymbolicInt(x.term / m.term)),
                lambda b, x, y, m: instance(ordered_multiples, 1, m, b),
                lambda b, x, y, m: instance(ordered_multiples, SymbolicInt(x.term / m.term) * m, x, b),
                lambda b, x, y, m: instance(ordered_multiples, x + 1, SymbolicInt(x.term / m.term) * m + m, b),
            )
            unit = other.blocks if isinstance(other.blocks, Positive) else positive(other.blocks)
            return self.blocks // unit
        if isinstance(other, Positive | Length):
            return other.__rfloordiv__(self)
        return super().__floordiv__(other)

    def __rfloordiv__(self, other: Any) -> Any:
        lemma(self > 0, "a multiple of a positive number is positive")
        return _Segments(z3.simplify(_term(other)), self)

    def __gt__(self, other: Any) -> Any:
        if self.rest is None and is_plain(other) and other == 0:
            _oblige("x*b > 0", lambda b, x, y, m: z3.Implies(b > 0, (x * b > 0) == (x > 0)))
            return self.blocks > 0
        return super().__gt__(other)

    __hash__ = SymbolicInt.__hash__


class _Segments(SymbolicInt):
    """How often whole blocks go into tokens: `x // (m*b)`. So many times the blocks are whole blocks again."""

    __slots__ = ("tokens", "unit")

    def __init__(self, tokens: Any, unit: Length) -> None:
        super().__init__(tokens / unit.term)
        self.tokens, self.unit = tokens, unit

    def __mul__(self, other: Any) -> Any:
        if not (isinstance(other, Length) and other.term.eq(self.unit.term)):
            return super().__mul__(other)
        run, size = running(), other.size.term

        def defined() -> Any:
            blocks = z3.Int(run.fresh_name("blocks"))
            # `x // (m*b) * m` is such a number, for positive `m` and `b`: this assumes nothing.
            run.assume(z3.And(blocks * size <= self.tokens, self.tokens < blocks * size + other.term))
            _multiple(blocks, _term(other.blocks))
            known: list[Any] = run.once(("all segments", other.term), list)
            for tokens, same in known:
                run.assume(z3.Implies(tokens == self.tokens, same == blocks))
            known.append((self.tokens, blocks))
            return blocks

        return Length(SymbolicInt(run.once(("segments", self.tokens, other.term), defined)), other.size)


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

    Of a border is known in which chunk it is, and that borders are as far apart as chunks are long; no product is left
    for solvers to think about.
    """

    __slots__ = ()

    def __rfloordiv__(self, other: Any) -> Any:
        return _ChunkNumber(z3.simplify(_term(other)), self.term)

    def __rmod__(self, other: Any) -> Any:
        return SymbolicInt(_term(other) - _border(z3.simplify(_term(other)), self.term))

    def __mul__(self, other: Any) -> Any:
        return Length(self, other) if isinstance(other, BlockSize) else super().__mul__(other)


class _ChunkNumber(SymbolicInt):
    """The number of the chunk of a token, or minus that."""

    __slots__ = ("sign", "token", "unit")

    def __init__(self, token: Any, unit: Any, sign: int = 1) -> None:
        super().__init__(sign * (token / unit))
        self.token, self.unit, self.sign = token, unit, sign

    def __neg__(self) -> Any:
        return _ChunkNumber(self.token, self.unit, -self.sign)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Length) and other.rest is None and _term(other.blocks).eq(self.unit):
            return Length(self * positive(other.blocks, Chunk), other.size)
        if isinstance(other, Chunk) and other.term.eq(self.unit):
            return SymbolicInt(self.sign * _border(self.token, self.unit))
        return super().__mul__(other)


def _multiple(number: Any, unit: Any) -> None:
    """Know of a multiple of a positive unit that it is 0, the unit, or further away, on either side."""
    for least in (0, unit):
        running().assume(z3.Implies(number > least, number >= least + unit))
        running().assume(z3.Implies(number < -least, number <= -least - unit))


def _border(x: Any, unit: Any) -> Any:
    """Where the chunk of a token begins."""
    run = running()
    known: list[Any] = run.once(("borders", unit), lambda: [z3.IntVal(0)])

    def defined() -> Any:
        border = z3.Int(run.fresh_name("border"))
        # `x // unit * unit` is such a number, for a positive unit: this assumes nothing.
        run.assume(z3.And(border <= x, x < border + unit))
        for other in known:
            for apart in (border - other, border + other):
                _multiple(apart, unit)
        known.append(border)
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
                return _beyond(times)
        while not run.decide(x >= times * unit):
            times -= 1
            if times < -run.unroll:
                return _beyond(times)
        return times

    def _beyond(reached: int) -> Any:
        quotient = z3.Int(run.fresh_name("times"))
        # For a positive unit there is exactly one such number, so this assumes nothing.
        run.assume(z3.And(quotient * unit <= x, x < quotient * unit + unit))
        run.lemma(quotient >= reached if reached > 0 else quotient <= reached, "as often, or further from 0")
        return SymbolicInt(quotient)

    return run.once(("times", x, unit), found)


class _Distance(SymbolicInt):
    """From where a range begins to an index that may be far away: a list can be asked for it where it is near."""

    __slots__ = ()

    def __index__(self) -> int:
        distance = plain(self)
        if is_plain(distance):
            return int(distance)
        raise ProofError(
            f"{running().name}: the distance {distance} is not bounded: raise `unroll`, or assume that it is"
        )


class Position(SymbolicInt):
    """Where a range begins. The distance of another symbolic index from it is a plain number: lists are indexed so."""

    __slots__ = ()

    def __mul__(self, other: Any) -> Any:
        return ordinary(self) * other

    def __mod__(self, other: Any) -> Any:
        return ordinary(self) % other

    def __rsub__(self, other: Any) -> Any:
        distance = plain(super().__rsub__(other))
        return distance if is_plain(distance) else _Distance(distance.term)


def positive(value: Any, kind: type[Positive] = Positive) -> Any:
    """A divisor that the assumptions make positive; a plain one stays plain."""
    if not isinstance(value, SymbolicInt):
        return value
    lemma(value > 0, "a divisor is positive")
    return kind(value.term)


def ordinary(value: Any) -> Any:
    """The number without what is known of it, for laws that are to be spelt out."""
    return SymbolicInt(value.term) if isinstance(value, SymbolicInt) else value


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
