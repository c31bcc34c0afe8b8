"""Two ways to divide by a symbolic block size that leave solvers no product to think about.

With a `Divisor`, `x // b` becomes an integer of its own, of which is known that `q * b <= x < q * b + b`: for `b > 0`,
which is proved once where the divisor is made, there is exactly one such integer, so this assumes nothing. That is
enough where a goal does not depend on what the quotient is, but only on its being the same one everywhere. It is the
same one for the same two terms, which are simplified first; two ways to write one dividend may get two quotients.

`Tokens` are so many whole blocks and a rest of a few blocks more or less, and are divided by looking at the rest:
`(q * b + r) // b == q + r // b`, and what `r // b` is, is found by comparing `r` with multiples of `b`, with forks.
"""

from typing import Any

import z3

from .solver import ProofError
from .symbolic import SymbolicInt, numeral, running
from .symbolic_table import Count, count


class Divisor(Count):
    """A positive symbolic integer; what is divided by it gets a named quotient."""

    __slots__ = ()

    def __rfloordiv__(self, other: Any) -> Any:
        return _quotient(_term(other), self.term)

    def __rmod__(self, other: Any) -> Any:
        left = _term(other)
        return Count(left - (_quotient(left, self.term) * Count(self.term)).term)

    def __neg__(self) -> "NegativeDivisor":
        return NegativeDivisor((-Count(self.term)).term)


class NegativeDivisor(Count):
    """Minus a `Divisor`: `x // -b == -x // b`."""

    __slots__ = ()

    def __rfloordiv__(self, other: Any) -> Any:
        return _quotient(-_term(other), -self.term)

    def __neg__(self) -> Divisor:
        return Divisor((-Count(self.term)).term)


def divisor(value: Any) -> Any:
    """A symbolic integer as a divisor, with the obligation that it is positive; a plain one as it is."""
    if not isinstance(value, SymbolicInt):
        return value
    running().require(value.term > 0, "a block size is positive")
    return Divisor(value.term)


def _term(value: Any) -> Any:
    return value.term if isinstance(value, SymbolicInt) else numeral(int(value))


def _quotient(x: Any, b: Any) -> Count:
    x, b = z3.simplify(x), z3.simplify(b)
    run = running()

    def defined() -> z3.ArithRef:
        quotient = z3.Int(run.fresh_name("quotient"))
        run.assume(z3.And(quotient * b <= x, x < quotient * b + b))
        return quotient

    return Count(run.once(("quotient", x, b), defined))


FAR = 8
"""The rest of `Tokens` may be up to so many blocks."""


class Tokens(Count):
    """`blocks * unit + rest` tokens; adding and subtracting changes the rest."""

    __slots__ = ("blocks", "rest", "unit")

    def __init__(self, blocks: Any, rest: Any, unit: Any) -> None:
        self.blocks, self.rest, self.unit = count(blocks), count(rest), count(unit)
        super().__init__(_term(self.blocks * self.unit + self.rest))

    def __add__(self, other: Any) -> "Tokens":
        if isinstance(other, Tokens) and z3.simplify(_term(self.unit) - _term(other.unit)).eq(z3.IntVal(0)):
            return Tokens(self.blocks + other.blocks, self.rest + other.rest, self.unit)
        # Blocks of another size are a rest like any other.
        return Tokens(self.blocks, self.rest + other, self.unit)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __neg__(self) -> "Tokens":
        return Tokens(-self.blocks, -self.rest, self.unit)

    def __floordiv__(self, other: Any) -> Any:
        run, unit, divisor = running(), _term(self.unit), _term(other)
        if not run.once(("positive", unit), lambda: run.decide(unit > 0)):
            raise ProofError(f"{run.name}: a block size may not be positive: assume that it is")
        sign = run.once(("sign", divisor, unit), lambda: _sign(divisor, unit))
        if not sign:
            return count(Count(self.term) // other)
        rest = _term(sign * self.rest)
        return count(sign * self.blocks + run.once(("blocks", rest, unit), lambda: _blocks(rest, unit)))


def _sign(divisor: Any, unit: Any) -> int:
    """1 if the divisor is the unit, -1 if it is minus the unit, 0 if it is another one."""
    return next((sign for sign in (1, -1) if z3.simplify(divisor - sign * unit).eq(z3.IntVal(0))), 0)


def _blocks(rest: Any, unit: Any) -> int:
    """How many blocks of so many tokens are in the rest, rounded down; found by comparing, with forks."""
    run, further = running(), 0
    while run.decide(rest >= (further + 1) * unit):
        further += 1
        _require_near(further)
    while run.decide(rest < further * unit):
        further -= 1
        _require_near(further)
    return further


def _require_near(blocks: int) -> None:
    if abs(blocks) > FAR:
        raise ProofError(f"{running().name}: a rest of more than {FAR} blocks: bound it in the theorem")


def tokens(blocks: Any, rest: Any, unit: Any) -> Any:
    """`blocks * unit + rest`, to be divided by `unit`; plain if all are."""
    if any(isinstance(value, SymbolicInt) for value in (blocks, rest, unit)):
        return Tokens(blocks, rest, unit)
    return blocks * unit + rest
