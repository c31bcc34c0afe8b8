"""Runs unmodified Python functions on symbolic integers, all paths of them. Everything proved rests on this file, on
`solver`, `claims` and `symbolic_builtins`.

A symbolic integer stands for every integer that the assumptions allow. Arithmetic on it builds a term; a comparison
builds a condition; and where Python asks whether a condition holds (`if`, `while`, `min`, `and`), the run forks. The
function is executed again for each combination of answers that is possible, so what is executed is always the real
code. What is trusted here, apart from the solver:

* `+ - *` and comparisons are those of the integers, which are unbounded in Python too.
* `a // b` and `a % b` round towards minus infinity. For `b > 0` they are the solver's own operations; for `b < 0`,
  `a // b == -a // -b` and `a % b == -(-a % -b)`. A zero divisor raises ZeroDivisionError, as in Python.
* `a / b` is exact, not rounded (`SymbolicReal`); theorems that use it say why rounding does no harm.
* `range`, `len` and `math.gcd` demand plain integers. While a function runs, the modules under proof see those of
  `symbolic_builtins` instead, which differ from Python's on symbolic arguments only. Of a symbolic `gcd` nothing is
  known but that it is a positive common divisor: what holds of every such holds of the greatest.
* An answer is pruned only if the solver has shown that it is impossible, and that step is an obligation like any other
  (`Path.obligations`): so the paths cover the assumptions, and a second solver confirms it.

What cannot be run faithfully is refused with an error, never guessed: hashing, conversion to a plain integer, a
loop longer than `unroll`, a question that the solver cannot decide.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import z3

from .solver import Obligation, ProofError, UndecidedError, has_product, solve

DECISIONS_MOST = 400
"""Questions on one path: a run that asks more does not end, as far as we can tell."""
PATHS_MOST = 20_000


@dataclass
class Path:
    """One way through the function: what was assumed and answered, what it came to, what must be proved for it."""

    hypotheses: list[z3.BoolRef]
    obligations: list[Obligation] = field(default_factory=list)
    value: Any = None
    error: Exception | None = None
    """What the function raised; then there is no value."""
    decisions: list[bool] = field(default_factory=list)
    answered: dict[int, bool] = field(default_factory=dict)
    """The same by the identity of the condition's term, which the hypotheses keep alive: asked again, it is known."""


class Run:
    """All paths of one function under some assumptions."""

    def __init__(self, name: str, assumptions: "Sequence[Condition]", unroll: int = 0, seconds: float = 5.0) -> None:
        """`unroll`: most rounds of a loop whose length is symbolic; `seconds`: for each question to the solver."""
        self.name = name
        self.assumptions = [term(assumption) for assumption in assumptions]
        self.unroll = unroll
        self.seconds = seconds
        self.questions = 0
        self._path = Path([])
        self._planned: Sequence[bool] = ()
        self._open: list[list[bool]] = []
        self._names = 0
        self._laws: dict[int, z3.BoolRef] = {}
        self._defined: dict[tuple[object, ...], tuple[tuple[object, ...], Any]] = {}

    def paths(self, body: Callable[[], Any]) -> Iterator[Path]:
        """Execute `body` along every possible path. ProofError if one cannot be followed to its end."""
        self._open = [[]]
        done = 0
        while self._open:
            self._planned = self._open.pop()
            self._path = path = Path(list(self.assumptions))
            self._names = 0
            self._defined = {}
            ProofError.latest = None
            try:
                with executing(self):
                    path.value = body()
            except ProofError:
                raise
            except Exception as error:
                path.error = error
            if ProofError.latest is not None:  # the function has caught it
                raise ProofError.latest
            done += 1
            if done > PATHS_MOST:
                raise ProofError(f"{self.name}: more than {PATHS_MOST:,} paths: assume more, or split the theorem")
            yield path

    def decide(self, condition: z3.BoolRef) -> bool:
        """The answer to a question of the running function; the other one, if possible, is taken later."""
        condition = z3.simplify(condition)
        if z3.is_true(condition) or z3.is_false(condition):
            return bool(z3.is_true(condition))
        path = self._path
        if condition.get_id() in path.answered:
            return path.answered[condition.get_id()]
        step = len(path.decisions)
        if step >= DECISIONS_MOST:
            raise ProofError(f"{self.name}: more than {DECISIONS_MOST} questions on one path: a loop without bound?")
        if step < len(self._planned):
            answer = self._planned[step]
        else:
            forced = self._forced(condition)
            answer = forced is not False
            if forced is None:
                self._open.append([*path.decisions, False])
        path.decisions.append(answer)
        path.hypotheses.append(condition if answer else z3.Not(condition))
        path.answered[condition.get_id()] = answer
        return answer

    def lemma(self, claim: z3.BoolRef, name: str) -> None:
        """An intermediate result: to be proved from what is known here, and known from here on."""
        self._oblige(f"lemma {name}".strip(), claim)
        self._path.hypotheses.append(claim)

    def require(self, claim: z3.BoolRef, name: str) -> None:
        """Something to be proved from what is known here."""
        self._oblige(name, claim)

    def law(self, name: str, claim: z3.BoolRef) -> None:
        """Something to be proved without any hypothesis."""
        if claim.get_id() not in self._laws:
            self._laws[claim.get_id()] = claim  # kept, so that no other term gets its identity
            self._path.obligations.append(Obligation(f"{self.name}: law {name}", (), claim))

    def assume(self, condition: z3.BoolRef) -> None:
        """Define a name made by `fresh_name`: whatever else holds, such a value exists (say why where it is used)."""
        self._path.hypotheses.append(condition)

    def once(self, key: "tuple[object, ...]", make: "Callable[[], Any]") -> Any:
        """What `make` gave when it was first called for this key on this path.

        Terms in a key are told apart by what they are, never by how they are printed: Z3 shortens long ones.
        """
        identity = _identity(key)
        if identity not in self._defined:
            self._defined[identity] = key, make()  # the key is kept, so that no other term gets the identity of one
        return self._defined[identity][1]

    def knows(self, key: "tuple[object, ...]") -> bool:
        """True if `once` was called for this key on this path."""
        return _identity(key) in self._defined

    def fresh_name(self, stem: str) -> str:
        """A name that no other symbol of this path has; the same one whenever the path is run again."""
        self._names += 1
        return f"{stem}!{self._names}"

    def _oblige(self, name: str, claim: z3.BoolRef) -> None:
        path = self._path
        path.obligations.append(Obligation(self._where(name), tuple(path.hypotheses), claim))

    def _where(self, name: str) -> str:
        taken = "".join("TF"[not answer] for answer in self._path.decisions)
        return f"{self.name}: {name} after {taken or 'no'} decisions"

    def _forced(self, condition: z3.BoolRef) -> bool | None:
        """The only possible answer, with an obligation that says so; None if both are possible.

        Hypotheses without products are tried first: they mostly suffice, and a solver is quick with them.
        """
        whole = tuple(self._path.hypotheses)
        light = whole if has_product(condition) else tuple(one for one in whole if not has_product(one))
        for hypotheses in (light, whole) if len(light) < len(whole) else (whole,):
            for answer, negated in ((False, condition), (True, z3.Not(condition))):
                if not self._possible(hypotheses, negated):
                    claim = condition if answer else z3.Not(condition)
                    self._path.obligations.append(Obligation(self._where("forced"), hypotheses, claim, forced=True))
                    return answer
        return None

    def _possible(self, hypotheses: tuple[z3.BoolRef, ...], condition: z3.BoolRef) -> bool:
        self.questions += 1
        formulas = [*hypotheses, condition]
        status, _ = solve(formulas, self.seconds)
        if status == "unknown":
            smtlib = Obligation(f"{self.name}: can this branch be taken?", tuple(formulas), z3.BoolVal(False)).smtlib()
            raise UndecidedError(f"{self.name}: cannot decide whether {condition} is possible", smtlib)
        return status == "sat"


def _identity(key: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(("term", part.get_id()) if isinstance(part, z3.AstRef) else part for part in key)


_current: Run | None = None


def running() -> Run:
    """The run that is executing a function now. ProofError if there is none."""
    if _current is None:
        raise ProofError("a symbolic value is asked for its truth outside a run: use Run.paths")
    return _current


@contextmanager
def executing(run: Run) -> Iterator[None]:
    """While it lasts, `running` is this run."""
    global _current
    outer, _current = _current, run
    try:
        yield
    finally:
        _current = outer


# Values. Both kinds mix freely with plain ones, so that a claim written for integers holds for symbols too.


def term(value: Any) -> Any:
    """The solver's term for a plain or symbolic value."""
    if isinstance(value, SymbolicInt | SymbolicBool | SymbolicReal):
        return value.term
    if isinstance(value, bool):
        return z3.BoolVal(value)
    if isinstance(value, int):
        return z3.IntVal(value)
    if isinstance(value, float) and value.is_integer():
        return z3.RealVal(int(value))
    raise TypeError(f"{value!r} cannot take part in a proof: only integers, truth values and symbols can")


def symbol(name: str) -> "SymbolicInt":
    """Any integer."""
    return SymbolicInt(z3.Int(name))


def truth(name: str) -> "SymbolicBool":
    """Any truth value."""
    return SymbolicBool(z3.Bool(name))


def integer_term(value: Any) -> Any:
    """A term of an integer for a plain or symbolic integer or truth value, else None."""
    if isinstance(value, SymbolicInt):
        return value.term
    if isinstance(value, SymbolicBool):
        return z3.If(value.term, z3.IntVal(1), z3.IntVal(0))
    return z3.IntVal(int(value)) if isinstance(value, int) else None


class SymbolicBool:
    """A condition. Asked for its truth, the run forks; in arithmetic it counts as 0 or 1, as in Python."""

    __slots__ = ("term",)
    __hash__ = None  # type: ignore[assignment]  # equal values would need equal hashes

    def __init__(self, term: z3.BoolRef) -> None:
        self.term = term

    def __bool__(self) -> bool:
        return running().decide(self.term)

    def __and__(self, other: Any) -> "SymbolicBool":
        return SymbolicBool(z3.And(self.term, term(other)))

    __rand__ = __and__

    def __or__(self, other: Any) -> "SymbolicBool":
        return SymbolicBool(z3.Or(self.term, term(other)))

    __ror__ = __or__

    def __eq__(self, other: object) -> Any:
        if isinstance(other, bool | SymbolicBool):
            return SymbolicBool(self.term == term(other))
        return SymbolicInt(integer_term(self)) == other

    def __ne__(self, other: object) -> Any:
        equal = self == other
        return SymbolicBool(z3.Not(equal.term)) if isinstance(equal, SymbolicBool) else not equal

    def __add__(self, other: Any) -> Any:
        return SymbolicInt(integer_term(self)) + other

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return SymbolicInt(integer_term(self)) - other

    def __rsub__(self, other: Any) -> Any:
        return other - SymbolicInt(integer_term(self))

    def __mul__(self, other: Any) -> Any:
        return SymbolicInt(integer_term(self)) * other

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"SymbolicBool({self.term})"


class SymbolicInt:
    """An integer of which only the term is known."""

    __slots__ = ("term",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, term: z3.ArithRef) -> None:
        self.term = term

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

    def __neg__(self) -> "SymbolicInt":
        return SymbolicInt(-self.term)

    def __pos__(self) -> "SymbolicInt":
        return self

    def __abs__(self) -> "SymbolicInt":
        return SymbolicInt(z3.If(self.term >= 0, self.term, -self.term))

    def __eq__(self, other: object) -> Any:
        right = integer_term(other)
        return False if right is None else SymbolicBool(self.term == right)

    def __ne__(self, other: object) -> Any:
        right = integer_term(other)
        return True if right is None else SymbolicBool(self.term != right)

    def __lt__(self, other: Any) -> Any:
        right = integer_term(other)
        return NotImplemented if right is None else SymbolicBool(self.term < right)

    def __le__(self, other: Any) -> Any:
        right = integer_term(other)
        return NotImplemented if right is None else SymbolicBool(self.term <= right)

    def __gt__(self, other: Any) -> Any:
        right = integer_term(other)
        return NotImplemented if right is None else SymbolicBool(self.term > right)

    def __ge__(self, other: Any) -> Any:
        right = integer_term(other)
        return NotImplemented if right is None else SymbolicBool(self.term >= right)

    def __bool__(self) -> bool:
        return running().decide(self.term != 0)

    def __index__(self) -> int:
        """The one value it can have. ProofError if there are several: then Python's own `range`, slice or list was
        asked for, which would need a plain integer."""
        value = z3.simplify(self.term)
        if z3.is_int_value(value):
            return int(value.as_long())
        raise ProofError(
            f"{running().name}: a plain integer is needed where {value} is symbolic: bound it in the theorem"
        )

    def __repr__(self) -> str:
        return f"SymbolicInt({self.term})"


class SymbolicReal:
    """An exact quotient of integers, and what is computed from it."""

    __slots__ = ("term",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, term: z3.ArithRef) -> None:
        self.term = term

    def __rsub__(self, other: Any) -> "SymbolicReal":
        return SymbolicReal(
            z3.ToReal(integer_term(other)) - self.term if isinstance(other, int) else term(other) - self.term
        )

    def __sub__(self, other: Any) -> "SymbolicReal":
        return SymbolicReal(self.term - _real(other))

    def __add__(self, other: Any) -> "SymbolicReal":
        return SymbolicReal(self.term + _real(other))

    __radd__ = __add__

    def __mul__(self, other: Any) -> "SymbolicReal":
        return SymbolicReal(self.term * _real(other))

    __rmul__ = __mul__

    def __eq__(self, other: object) -> Any:
        return SymbolicBool(self.term == _real(other))

    def __lt__(self, other: Any) -> SymbolicBool:
        return SymbolicBool(self.term < _real(other))

    def __le__(self, other: Any) -> SymbolicBool:
        return SymbolicBool(self.term <= _real(other))

    def __gt__(self, other: Any) -> SymbolicBool:
        return SymbolicBool(self.term > _real(other))

    def __ge__(self, other: Any) -> SymbolicBool:
        return SymbolicBool(self.term >= _real(other))

    def __repr__(self) -> str:
        return f"SymbolicReal({self.term})"


Condition: TypeAlias = bool | SymbolicBool
Number: TypeAlias = int | SymbolicInt


def _real(value: Any) -> Any:
    if isinstance(value, SymbolicReal):
        return value.term
    number = integer_term(value)
    return term(value) if number is None else z3.ToReal(number)


def _divided(a: z3.ArithRef, b: z3.ArithRef) -> tuple[SymbolicInt, SymbolicInt]:
    """Floor quotient and remainder. Both exist for `b != 0` only; the sign of `b` is decided, by a fork if need be."""
    run = running()
    if run.decide(b == 0):
        raise ZeroDivisionError("integer division or modulo by zero")
    if run.decide(b > 0):
        return SymbolicInt(a / b), SymbolicInt(a % b)
    return SymbolicInt(-a / -b), SymbolicInt(-(-a % -b))


def _ratio(a: z3.ArithRef, b: z3.ArithRef) -> SymbolicReal:
    if running().decide(b == 0):
        raise ZeroDivisionError("division by zero")
    return SymbolicReal(z3.ToReal(a) / z3.ToReal(b))
