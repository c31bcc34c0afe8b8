"""Runs unmodified Python functions on symbolic integers, all paths of them (`symbolic_run`).

A symbolic integer stands for every integer that the assumptions allow. Arithmetic on it builds a term; a comparison
builds a condition; and where Python asks whether a condition holds (`if`, `while`, `min`, `and`), the run forks. The
function is executed again for each combination of answers that is possible, so what is executed is always the real
code. What is trusted here, apart from the solver:

* `+ - *` and comparisons are those of the integers, which are unbounded in Python too.
* `a // b` and `a % b` round towards minus infinity. For `b > 0` they are the solver's own operations; for `b < 0`,
  `a // b == -a // -b` and `a % b == -(-a % -b)`. A zero divisor raises ZeroDivisionError, as in Python.
* `isinstance` takes a symbol for what it stands for: its `__class__` is `int`, `bool` or `float`.
* `a / b` is exact, not rounded (`SymbolicReal`), so it is refused unless the theorem says why rounding does no harm
  (`Run.rounding`).
* `range`, `len`, `type`, `id` and `math.gcd` cannot be told by a symbol what to do. While a function runs, the modules
  under proof see those of `symbolic_builtins` instead, which differ from Python's on symbolic arguments only. Of a
  symbolic `gcd` nothing is known but that it is a positive common divisor: what holds of every such holds of the
  greatest.
* An answer is pruned only if the solver has shown that it is impossible, and that step is an obligation like any other
  (`Path.obligations`): so the paths cover the assumptions, and a second solver confirms it.

Whatever else an integer can do is refused with an error, never guessed (`refusal`): to be hashed, printed, written as
bits or bytes, or turned into a plain integer or a float; a loop longer than `unroll`; a question that the solver cannot
decide. An error of this kind that the function catches ends the run all the same (`Run.paths`).
"""

import math
import operator
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from numbers import Number as AnyNumber
from typing import Any, TypeAlias

import z3

from .kernel import Path
from .refusal import refusal, shown
from .symbolic_run import DECISIONS_MOST, PATHS_MOST, Run, executing, running, under_way

__all__ = (
    "DECISIONS_MOST",
    "PATHS_MOST",
    "Condition",
    "Number",
    "Path",
    "Run",
    "SymbolicBool",
    "SymbolicInt",
    "SymbolicReal",
    "executing",
    "integer_term",
    "is_plain",
    "numeral",
    "running",
    "symbol",
    "term",
    "truth",
)

# Symbols mix freely with plain values, so that a claim written for integers holds for symbols too.


def term(value: Any) -> Any:
    """The solver's term for a plain or symbolic value."""
    if isinstance(value, SymbolicInt | SymbolicBool | SymbolicReal):
        return value.term
    if isinstance(value, bool):
        return z3.BoolVal(value)
    if isinstance(value, int):
        return numeral(value)
    raise TypeError(f"{value!r} cannot take part in a proof: only integers, truth values and symbols can")


@lru_cache(maxsize=1024)
def numeral(value: int) -> Any:
    """The solver's term for a plain integer: the same few are asked for again and again."""
    return z3.IntVal(value)


def symbol(name: str) -> "SymbolicInt":
    """Any integer."""
    return SymbolicInt(z3.Int(name))


def truth(name: str) -> "SymbolicBool":
    """Any truth value."""
    return SymbolicBool(z3.Bool(name))


def is_plain(value: Any) -> bool:
    """True for Python's own integers and truth values. `isinstance(value, int)` is true of symbols, too."""
    return isinstance(value, int) and not isinstance(value, SymbolicInt | SymbolicBool)


def integer_term(value: Any) -> Any:
    """A term of an integer for a plain or symbolic integer or truth value, else None. ProofError for a plain number of
    another kind, whose arithmetic rounds, or which says itself what its operators do."""
    if isinstance(value, SymbolicInt):
        return value.term
    if isinstance(value, SymbolicBool):
        return z3.If(value.term, z3.IntVal(1), z3.IntVal(0))
    if isinstance(value, SymbolicReal):
        return None
    if isinstance(value, int):
        if type(value) not in (int, bool) and _has_operators(type(value)):
            raise refusal(f"an operator of {type(value).__name__} instead of that")
        return numeral(int(value))
    if isinstance(value, AnyNumber):
        raise refusal(f"arithmetic with {value!r}")
    return None


def _has_operators(kind: type) -> bool:
    """True if a kind of integers has an operator of its own."""
    own = kind.__mro__[: kind.__mro__.index(int)]
    return any(name.startswith("__") and callable(vars(operator).get(name)) for one in own for name in _operators(one))


def _operators(kind: type) -> Iterator[str]:
    for name in vars(kind):
        yield name
        yield name.replace("__r", "__", 1)


ARRAYS = ("__array", "__cuda_array", "__dlpack", "__torch", "__jax")
"""Beginnings of what arrays ask a value for: one that does not answer becomes an element without arithmetic of its own,
so that nothing wraps or rounds as it does for a number."""


class _Symbol:
    """What all symbols refuse, and that they are taken for what they stand for."""

    __slots__ = ("term",)
    _stands_for: type

    def __init__(self, term: Any) -> None:
        self.term = term

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """What `isinstance` goes by."""
        return type(self)._stands_for

    def __getattr__(self, name: str) -> Any:
        kind = type(self)._stands_for
        if hasattr(kind, name) or name.startswith(ARRAYS):
            raise refusal(f"`{name}`")
        raise AttributeError(f"'{kind.__name__}' object has no attribute {name!r}")

    def __hash__(self) -> int:
        raise refusal("the hash")

    def __repr__(self) -> str:
        text = f"{type(self).__name__}({self.term})"
        return shown(text) if under_way() else text

    def __format__(self, specification: str) -> str:
        return repr(self)

    def __index__(self) -> int:
        """The one value it can have. ProofError if there are several: then Python's own `int`, `range`, slice or list
        was asked for, which would need a plain integer."""
        value = z3.simplify(self.term)
        if z3.is_int_value(value):
            return int(value.as_long())
        name = running().name if under_way() else "?"
        raise refusal(f"{name}: the plain integer instead")

    __int__ = __index__

    def __float__(self) -> float:
        raise refusal("the floating-point number")

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self


def _refused(name: str) -> Callable[..., Any]:
    def operation(self: Any, *operands: Any) -> Any:
        raise refusal(f"`{name}`")

    return operation


def _ordered(compare: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def operation(self: Any, other: Any) -> Any:
        right = integer_term(other)
        return NotImplemented if right is None else SymbolicBool(compare(self.term, right))

    return operation


def _counted(name: str) -> Callable[..., Any]:
    def operation(self: "SymbolicBool", *operands: Any) -> Any:
        return getattr(SymbolicInt, name)(SymbolicInt(integer_term(self)), *operands)

    return operation


class SymbolicBool(_Symbol):
    """A condition. Asked for its truth, the run forks; in arithmetic it counts as 0 or 1, as in Python."""

    __slots__ = ()
    _stands_for = bool

    def __bool__(self) -> bool:
        return running().decide(self.term)

    def __index__(self) -> int:
        return int(bool(self))

    __int__ = __index__

    def __hash__(self) -> int:
        return hash(bool(self))

    def __and__(self, other: Any) -> Any:
        return SymbolicBool(z3.And(self.term, _truth_term(other)))

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        return SymbolicBool(z3.Or(self.term, _truth_term(other)))

    __ror__ = __or__

    def __eq__(self, other: object) -> Any:
        if isinstance(other, bool):  # a symbolic one, too
            return SymbolicBool(self.term == term(other))
        return SymbolicInt(integer_term(self)) == other

    def __ne__(self, other: object) -> Any:
        equal = self == other
        return SymbolicBool(z3.Not(equal.term)) if isinstance(equal, SymbolicBool) else not equal


def _truth_term(value: Any) -> Any:
    if isinstance(value, bool):
        return term(value)
    raise refusal(f"the bits together with those of {value!r}")


class SymbolicInt(_Symbol):
    """An integer of which only the term is known."""

    __slots__ = ()
    _stands_for = int

    def __add__(self, other: Any) -> Any:
        right = integer_term(other)
        return NotImplemented if right is None else SymbolicInt(self.term + right)

    def __radd__(self, other: Any) -> Any:
        left = integer_term(other)
        return NotImplemented if left is None else SymbolicInt(left + self.term)

    def __sub__(self, other: Any) -> Any:
        right = integer_term(other)
        return NotImplemented if right is None else SymbolicInt(self.term - right)

    def __rsub__(self, other: Any) -> Any:
        left = integer_term(other)
        return NotImplemented if left is None else SymbolicInt(left - self.term)

    def __mul__(self, other: Any) -> Any:
        right = integer_term(other)
        return NotImplemented if right is None else SymbolicInt(self.term * right)

    def __rmul__(self, other: Any) -> Any:
        left = integer_term(other)
        return NotImplemented if left is None else SymbolicInt(left * self.term)

    def __floordiv__(self, other: Any) -> Any:
        right = integer_term(other)
        return NotImplemented if right is None else _divided(self.term, right)[0]

    def __rfloordiv__(self, other: Any) -> Any:
        left = integer_term(other)
        return NotImplemented if left is None else _divided(left, self.term)[0]

    def __mod__(self, other: Any) -> Any:
        right = integer_term(other)
        return NotImplemented if right is None else _divided(self.term, right)[1]

    def __rmod__(self, other: Any) -> Any:
        left = integer_term(other)
        return NotImplemented if left is None else _divided(left, self.term)[1]

    def __divmod__(self, other: Any) -> Any:
        right = integer_term(other)
        return NotImplemented if right is None else _divided(self.term, right)

    def __rdivmod__(self, other: Any) -> Any:
        left = integer_term(other)
        return NotImplemented if left is None else _divided(left, self.term)

    def __truediv__(self, other: Any) -> Any:
        right = integer_term(other)
        return NotImplemented if right is None else _ratio(self.term, right)

    def __rtruediv__(self, other: Any) -> Any:
        left = integer_term(other)
        return NotImplemented if left is None else _ratio(left, self.term)

    def __pow__(self, power: Any, modulus: Any = None) -> Any:
        if not is_plain(power) or not 0 <= power <= MOST_POWER or modulus is not None:
            raise refusal(f"the power {power!r}")
        result: Any = 1
        for _ in range(power):
            result = self * result
        return result

    def __neg__(self) -> Any:
        return SymbolicInt(-self.term)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return SymbolicInt(z3.If(self.term >= 0, self.term, -self.term))

    def __round__(self, digits: Any = None) -> Any:
        if digits is not None:
            raise refusal("rounding to digits")
        return self

    __trunc__ = __floor__ = __ceil__ = __pos__

    __eq__ = _ordered(operator.eq)
    __ne__ = _ordered(operator.ne)
    __lt__ = _ordered(operator.lt)
    __le__ = _ordered(operator.le)
    __gt__ = _ordered(operator.gt)
    __ge__ = _ordered(operator.ge)
    __hash__ = _Symbol.__hash__

    def __bool__(self) -> bool:
        return running().decide(self.term != 0)


def _compared(compare: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def operation(self: Any, other: Any) -> Any:
        if type(other) is float and not math.isfinite(other):
            return compare(0.0, other)  # as of any number
        return SymbolicBool(compare(self.term, _real(other)))

    return operation


class SymbolicReal(_Symbol):
    """An exact quotient of integers, and what is computed from it."""

    __slots__ = ()
    _stands_for = float

    def __sub__(self, other: Any) -> Any:
        return SymbolicReal(self.term - _real(other))

    def __rsub__(self, other: Any) -> Any:
        return SymbolicReal(_real(other) - self.term)

    def __add__(self, other: Any) -> Any:
        return SymbolicReal(self.term + _real(other))

    __radd__ = __add__

    def __mul__(self, other: Any) -> Any:
        return SymbolicReal(self.term * _real(other))

    __rmul__ = __mul__

    __eq__ = _compared(operator.eq)
    __ne__ = _compared(operator.ne)
    __lt__ = _compared(operator.lt)
    __le__ = _compared(operator.le)
    __gt__ = _compared(operator.gt)
    __ge__ = _compared(operator.ge)
    __hash__ = _Symbol.__hash__

    def __bool__(self) -> bool:
        return running().decide(self.term != 0)

    def __index__(self) -> int:
        raise refusal("the plain integer instead")

    __int__ = __index__


_OF_THE_OBJECT = ("sizeof", "reduce", "reduce_ex", "getstate", "dir", "complex", "bytes")
_OF_ARRAYS = ("array", "array_ufunc", "array_function", "array_wrap", "array_finalize", "torch_function", "dlpack")
for _name in (*_OF_THE_OBJECT, *_OF_ARRAYS):
    setattr(_Symbol, f"__{_name}__", _refused(f"__{_name}__"))
for _name in ("array_interface", "array_struct", "array_priority", "array_namespace"):
    setattr(_Symbol, f"__{_name}__", property(_refused(f"__{_name}__")))

MOST_POWER = 4
"""A symbol may be raised to a plain power up to this: to a product of so many."""
_BITS = ("lshift", "rshift", "and", "or", "xor")
_ARITHMETIC = ("add", "sub", "mul", "floordiv", "mod", "divmod", "truediv", "pow", "lshift", "rshift", "xor")
for _name in (*_BITS, *(f"r{_one}" for _one in _BITS), "rpow", "invert"):
    setattr(SymbolicInt, f"__{_name}__", _refused(_name))
for _name in (*_ARITHMETIC, *(f"r{_one}" for _one in _ARITHMETIC), "lt", "le", "gt", "ge", "neg", "pos", "abs"):
    setattr(SymbolicBool, f"__{_name}__", _counted(f"__{_name}__"))
for _name in ("invert", "round", "trunc", "floor", "ceil"):
    setattr(SymbolicBool, f"__{_name}__", _counted(f"__{_name}__"))
for _name in ("truediv", "floordiv", "mod", "divmod", "pow", "neg", "pos", "abs", "round", "trunc", "floor", "ceil"):
    setattr(SymbolicReal, f"__{_name}__", _refused(_name))
for _name in ("truediv", "floordiv", "mod", "divmod", "pow"):
    setattr(SymbolicReal, f"__r{_name}__", _refused(_name))


Condition: TypeAlias = bool | SymbolicBool
Number: TypeAlias = int | SymbolicInt


def _real(value: Any) -> Any:
    if isinstance(value, SymbolicReal):
        return value.term
    if isinstance(value, float):
        exact = Fraction(value)
        return z3.Q(exact.numerator, exact.denominator)
    number = integer_term(value)
    if number is None:
        raise refusal(f"arithmetic with {value!r}")
    return z3.ToReal(number)


def _divided(a: z3.ArithRef, b: z3.ArithRef) -> tuple[SymbolicInt, SymbolicInt]:
    """Floor quotient and remainder. Both exist for `b != 0` only; the sign of `b` is decided, by a fork if need be."""
    run = running()
    if run.decide(b == 0):
        raise ZeroDivisionError("integer division or modulo by zero")
    if run.decide(b > 0):
        return SymbolicInt(a / b), SymbolicInt(a % b)
    return SymbolicInt(-a / -b), SymbolicInt(-(-a % -b))


def _ratio(a: z3.ArithRef, b: z3.ArithRef) -> SymbolicReal:
    run = running()
    if not run.rounding:
        raise refusal("division with a rounded result")
    if run.decide(b == 0):
        raise ZeroDivisionError("division by zero")
    return SymbolicReal(z3.ToReal(a) / z3.ToReal(b))
