"""Runs unmodified Python functions on symbolic integers, all paths of them. Everything proved rests on this file.

A symbolic integer stands for every integer that the assumptions allow. Arithmetic on it builds a term; a comparison
builds a condition; and where Python asks whether a condition holds (`if`, `while`, `min`, `and`), the run forks. The
function is executed again for each combination of answers that is possible, so what is executed is always the real
code. What is trusted here, beside the solver:

* `+ - *` and comparisons are those of the integers, which are unbounded in Python too.
* `a // b` and `a % b` round towards minus infinity. For `b > 0` they are the solver's own operations; for `b < 0`,
  `a // b == -a // -b` and `a % b == -(-a % -b)`. A zero divisor raises ZeroDivisionError, as in Python.
* `a / b` is exact, not rounded (`SymbolicReal`); theorems that use it say why rounding does no harm.
* `range`, `len` and `math.gcd` demand plain integers. While a function runs, the modules under proof see those of this
  file instead, which differ from Python's on symbolic arguments only. Of a symbolic `gcd` nothing is known but that it
  is a positive common divisor: what holds of every such holds of the greatest.
* An answer is pruned only if the solver has shown that it is impossible, and that step is an obligation like any other
  (`Path.obligations`): so the paths cover the assumptions, and a second solver confirms it.

What cannot be run faithfully is refused with an error, never guessed: hashing, conversion to a plain integer, a
loop longer than `unroll`, a question that the solver cannot decide.
"""

import builtins
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeAlias

import z3

DECISIONS_MOST = 400
"""Questions on one path: a run that asks more does not end, as far as we can tell."""
PATHS_MOST = 20_000


class ProofError(Exception):
    """The run cannot go on without guessing: the theorem is neither proved nor refuted."""


class UndecidedError(ProofError):
    """The solver could not say whether a branch is possible. `smtlib` is the question."""

    def __init__(self, message: str, smtlib: str) -> None:
        super().__init__(message)
        self.smtlib = smtlib


@dataclass(frozen=True)
class Obligation:
    """Something to be proved: the claim follows from the hypotheses."""

    name: str
    hypotheses: tuple[z3.BoolRef, ...]
    claim: z3.BoolRef
    forced: bool = False
    """Is it about a branch that was not taken because it is impossible? Then the solver has shown it already."""

    def smtlib(self) -> str:
        """The question whether it can fail, as SMT-LIB 2: `unsat` means proved."""
        solver = z3.Solver()
        assert_all(solver, [*self.hypotheses, z3.Not(self.claim)])
        return f"; {self.name}: unsat means proved\n(set-logic ALL)\n{solver.to_smt2()}"


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
        self._laws: set[str] = set()
        self.divisors: dict[tuple[str, str], tuple[SymbolicInt, SymbolicInt, SymbolicInt]] = {}
        """Results of `gcd` on this path, each with the quotients of the two numbers."""

    def paths(self, body: Callable[[], Any]) -> Iterator[Path]:
        """Execute `body` along every possible path. ProofError if one cannot be followed to its end."""
        global _current
        self._open = [[]]
        done = 0
        while self._open:
            self._planned = self._open.pop()
            self._path = path = Path(list(self.assumptions))
            self._names = 0
            self.divisors = {}
            outer, _current = _current, self
            try:
                path.value = body()
            except ProofError:
                raise
            except Exception as error:
                path.error = error
            finally:
                _current = outer
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

    def demand(self, claim: z3.BoolRef, name: str) -> None:
        """Something to be proved from what is known here."""
        self._oblige(name, claim)

    def law(self, name: str, claim: z3.BoolRef) -> None:
        """Something to be proved without any hypothesis."""
        if str(claim) not in self._laws:
            self._laws.add(str(claim))
            self._path.obligations.append(Obligation(f"{self.name}: law {name}", (), claim))

    def assume(self, condition: z3.BoolRef) -> None:
        """Define a name made by `fresh_name`: whatever else holds, such a value exists (say why where it is used)."""
        self._path.hypotheses.append(condition)

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


_current: Run | None = None


def running() -> Run:
    """The run that is executing a function now. ProofError if there is none."""
    if _current is None:
        raise ProofError("a symbolic value is asked for its truth outside a run: use Run.paths")
    return _current


def solve(formulas: Sequence[z3.BoolRef], seconds: float) -> tuple[str, z3.ModelRef | None]:
    """`sat` with a model, `unsat`, or `unknown`. A fresh solver each time: incremental ones time out on products."""
    deadline = max(1, int(seconds * 1000))
    watching = sys.getprofile()
    sys.setprofile(None)  # whoever watches which functions run does not mean the solver's
    try:
        return _solved(formulas, deadline)
    finally:
        sys.setprofile(watching)


def assert_all(solver: z3.Solver, formulas: Sequence[z3.BoolRef]) -> None:
    """`solver.add`, without the checks of each formula that take most of its time."""
    context = z3.main_ctx().ref()
    for formula in formulas:
        z3.Z3_solver_assert(context, solver.solver, formula.as_ast())


def _solved(formulas: Sequence[z3.BoolRef], deadline: int) -> tuple[str, z3.ModelRef | None]:
    for make in (z3.Solver, lambda: z3.SolverFor("QF_NIA")):
        solver = make()
        solver.set("timeout", deadline)
        assert_all(solver, formulas)
        status = str(solver.check())
        if status != "unknown":
            return status, solver.model() if status == "sat" else None
    return "unknown", None


_PRODUCTS: dict[int, tuple[z3.ExprRef, bool]] = {}
"""What `has_product` found, by the identity of a term; the term is kept, so that no other one gets its identity."""


def has_product(formula: z3.ExprRef) -> bool:
    """Does a product, quotient or remainder of two unknowns occur in it?"""
    identity = formula.get_id()
    if identity not in _PRODUCTS:
        kind = formula.decl().kind() if z3.is_app(formula) else None
        children = formula.children()
        if kind in (z3.Z3_OP_MUL, z3.Z3_OP_IDIV, z3.Z3_OP_MOD):
            found = sum(not z3.is_int_value(child) for child in children) > 1
        else:
            found = any(has_product(child) for child in children)
        _PRODUCTS[identity] = formula, found
    return _PRODUCTS[identity][1]


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


def _number(value: Any) -> Any:
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
        return SymbolicInt(_number(self)) == other

    def __ne__(self, other: object) -> Any:
        return negation(self == other)

    def __add__(self, other: Any) -> Any:
        return SymbolicInt(_number(self)) + other

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return SymbolicInt(_number(self)) - other

    def __rsub__(self, other: Any) -> Any:
        return other - SymbolicInt(_number(self))

    def __mul__(self, other: Any) -> Any:
        return SymbolicInt(_number(self)) * other

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
        right = _number(other)
        return NotImplemented if right is None else SymbolicInt(self.term + right)

    def __radd__(self, other: Any) -> Any:
        left = _number(other)
        return NotImplemented if left is None else SymbolicInt(left + self.term)

    def __sub__(self, other: Any) -> Any:
        right = _number(other)
        return NotImplemented if right is None else SymbolicInt(self.term - right)

    def __rsub__(self, other: Any) -> Any:
        left = _number(other)
        return NotImplemented if left is None else SymbolicInt(left - self.term)

    def __mul__(self, other: Any) -> Any:
        right = _number(other)
        return NotImplemented if right is None else SymbolicInt(self.term * right)

    def __rmul__(self, other: Any) -> Any:
        left = _number(other)
        return NotImplemented if left is None else SymbolicInt(left * self.term)

    def __floordiv__(self, other: Any) -> Any:
        right = _number(other)
        return NotImplemented if right is None else _divided(self.term, right)[0]

    def __rfloordiv__(self, other: Any) -> Any:
        left = _number(other)
        return NotImplemented if left is None else _divided(left, self.term)[0]

    def __mod__(self, other: Any) -> Any:
        right = _number(other)
        return NotImplemented if right is None else _divided(self.term, right)[1]

    def __rmod__(self, other: Any) -> Any:
        left = _number(other)
        return NotImplemented if left is None else _divided(left, self.term)[1]

    def __divmod__(self, other: Any) -> Any:
        right = _number(other)
        return NotImplemented if right is None else _divided(self.term, right)

    def __rdivmod__(self, other: Any) -> Any:
        left = _number(other)
        return NotImplemented if left is None else _divided(left, self.term)

    def __truediv__(self, other: Any) -> Any:
        right = _number(other)
        return NotImplemented if right is None else _ratio(self.term, right)

    def __rtruediv__(self, other: Any) -> Any:
        left = _number(other)
        return NotImplemented if left is None else _ratio(left, self.term)

    def __neg__(self) -> "SymbolicInt":
        return SymbolicInt(-self.term)

    def __pos__(self) -> "SymbolicInt":
        return self

    def __abs__(self) -> "SymbolicInt":
        return SymbolicInt(z3.If(self.term >= 0, self.term, -self.term))

    def __eq__(self, other: object) -> Any:
        right = _number(other)
        return False if right is None else SymbolicBool(self.term == right)

    def __ne__(self, other: object) -> Any:
        right = _number(other)
        return True if right is None else SymbolicBool(self.term != right)

    def __lt__(self, other: Any) -> Any:
        right = _number(other)
        return NotImplemented if right is None else SymbolicBool(self.term < right)

    def __le__(self, other: Any) -> Any:
        right = _number(other)
        return NotImplemented if right is None else SymbolicBool(self.term <= right)

    def __gt__(self, other: Any) -> Any:
        right = _number(other)
        return NotImplemented if right is None else SymbolicBool(self.term > right)

    def __ge__(self, other: Any) -> Any:
        right = _number(other)
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
            z3.ToReal(_number(other)) - self.term if isinstance(other, int) else term(other) - self.term
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
    number = _number(value)
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


# Words for claims; with plain values they are plain logic, so that a counterexample is run with the same claim.


def negation(condition: Condition) -> Any:
    """Not the condition."""
    return SymbolicBool(z3.Not(condition.term)) if isinstance(condition, SymbolicBool) else not condition


def every(*conditions: Condition) -> Any:
    """All of them."""
    if any(isinstance(condition, SymbolicBool) for condition in conditions):
        return SymbolicBool(z3.And([term(condition) for condition in conditions]))
    return all(conditions)


def some(*conditions: Condition) -> Any:
    """At least one of them."""
    if any(isinstance(condition, SymbolicBool) for condition in conditions):
        return SymbolicBool(z3.Or([term(condition) for condition in conditions]))
    return any(conditions)


def implies(condition: Condition, claim: Condition) -> Any:
    """Where the condition holds, so does the claim."""
    return some(negation(condition), claim)


def same(left: Condition, right: Condition) -> Any:
    """Both or neither."""
    if isinstance(left, SymbolicBool) or isinstance(right, SymbolicBool):
        return SymbolicBool(term(left) == term(right))
    return left == right


def lemma(claim: Condition, name: str = "") -> None:
    """An intermediate result, proved on its own and used from here on. AssertionError if it is plain and false."""
    if isinstance(claim, SymbolicBool):
        running().lemma(claim.term, name)
    else:
        assert claim, f"lemma {name} does not hold"


def use(law: Callable[..., Any], *values: Number) -> None:
    """Use a law of arithmetic for these values: it is proved once, for any integers and without other hypotheses.

    A law is a function from integers to a condition; solvers need some of them spelt out where products occur. What it
    divides by must be assumed positive in it. AssertionError if the values are plain and it does not hold.
    """
    if not any(isinstance(value, SymbolicInt) for value in values):
        assert law(*values), f"the law {law.__name__} does not hold for {values}"
        return
    run = running()
    general = [symbol(f"any_{number}") for number in builtins.range(builtins.len(values))]
    run.law(law.__name__, _without_forks(law, general))
    run.assume(_without_forks(law, values))


def _without_forks(law: Callable[..., Any], values: Sequence[Any]) -> z3.BoolRef:
    """The law as one term; division in it is the solver's own, since the law assumes that divisors are positive."""
    global _current
    outer, _current = _current, _Plain(f"law {law.__name__}", [])
    try:
        return term(law(*values))
    finally:
        _current = outer


class _Plain(Run):
    """Takes every divisor for positive, and forks nowhere."""

    def decide(self, condition: z3.BoolRef) -> bool:
        if z3.is_eq(condition):
            return False
        if condition.decl().kind() == z3.Z3_OP_GT:
            return True
        raise ProofError(f"{self.name}: a law must be one condition, without `if`, `min` or `and`: found {condition}")


def multiples_ordered(small: Number, large: Number, unit: Number) -> None:
    """Law: for `unit >= 0`, `small <= large` gives `small * unit <= large * unit`."""
    use(_multiples_ordered, small, large, unit)


def _multiples_ordered(small: Any, large: Any, unit: Any) -> Any:
    return implies(every(small <= large, unit >= 0), small * unit <= large * unit)


def quotient_found(x: Number, unit: Number, quotient: Number) -> None:
    """Law: for `unit > 0`, `quotient * unit <= x < quotient * unit + unit` gives `x // unit == quotient`."""
    use(_quotient_found, x, unit, quotient)


def _quotient_found(x: Any, unit: Any, quotient: Any) -> Any:
    between = every(quotient * unit <= x, x < quotient * unit + unit)
    if not isinstance(unit, SymbolicInt) and unit <= 0:
        return True
    return implies(every(unit > 0, between), x // unit == quotient)


def quotients_ordered(small: Number, large: Number, unit: Number) -> None:
    """Law: for `unit > 0`, `small <= large` gives `small // unit <= large // unit`."""
    use(_quotients_ordered, small, large, unit)


def _quotients_ordered(small: Any, large: Any, unit: Any) -> Any:
    if not isinstance(unit, SymbolicInt) and unit <= 0:
        return True
    return implies(every(unit > 0, small <= large), small // unit <= large // unit)


# What the modules under proof see in place of two built-in functions.


def symbolic_len(sequence: Any) -> Any:
    """`len`; a sequence of symbolic length says it by its method `symbolic_len`."""
    method = getattr(sequence, "symbolic_len", None)
    return builtins.len(sequence) if method is None else method()


def symbolic_range(*arguments: Any) -> Any:
    """`range`; with a symbolic bound, a loop of at most `Run.unroll` rounds, forking at each."""
    if not any(isinstance(argument, SymbolicInt | SymbolicBool) for argument in arguments):
        return builtins.range(*arguments)
    start, stop, step = (0, arguments[0], 1) if builtins.len(arguments) == 1 else (*arguments, 1)[:3]
    if not isinstance(step, int) or step == 0:
        raise ProofError(f"{running().name}: a range with step {step!r} cannot be followed: only plain steps")
    return _unrolled(start, stop, step)


def _unrolled(start: Any, stop: Any, step: int) -> Iterator[Any]:
    run, rounds, i = running(), 0, start
    while i < stop if step > 0 else i > stop:
        if rounds == run.unroll:
            raise ProofError(
                f"{run.name}: a loop over a symbolic bound goes on after {rounds} rounds: bound it in the theorem "
                "(`unroll`), and assume that it is no longer"
            )
        yield i
        rounds, i = rounds + 1, i + step


def symbolic_gcd(*numbers: Any) -> Any:
    """`math.gcd`; of two numbers of which one is symbolic, some positive common divisor (both must be positive)."""
    if not any(isinstance(number, SymbolicInt) for number in numbers):
        return math.gcd(*numbers)
    if builtins.len(numbers) != 2:
        raise ProofError(f"{running().name}: gcd of {builtins.len(numbers)} symbolic numbers: only two are supported")
    return common_divisor(*numbers)[0]


def common_divisor(x: Number, y: Number) -> tuple[Any, Any, Any]:
    """What `gcd` of two positive numbers gives, and how often it goes into each: for lemmas about it."""
    if not isinstance(x, SymbolicInt) and not isinstance(y, SymbolicInt):
        divisor = math.gcd(x, y)
        return divisor, x // divisor, y // divisor
    run, left, right = running(), _number(x), _number(y)
    if run.decide(z3.Or(left <= 0, right <= 0)):
        raise ProofError(f"{run.name}: gcd of a number that may be 0 or negative: assume that it is positive")
    if (str(right), str(left)) in run.divisors:
        common, y_part, x_part = run.divisors[str(right), str(left)]
        return common, x_part, y_part
    if (str(left), str(right)) not in run.divisors:
        parts = [symbol(run.fresh_name(stem)) for stem in ("gcd", "times", "times")]
        common, x_part, y_part = parts
        # The greatest common divisor is such a number, so this assumes nothing.
        run.assume(z3.And(common.term >= 1, left == (common * x_part).term, right == (common * y_part).term))
        run.divisors[str(left), str(right)] = common, x_part, y_part
    return run.divisors[str(left), str(right)]


@contextmanager
def symbolic_builtins(modules: Sequence[ModuleType]) -> Iterator[None]:
    """While it lasts, these modules see `range`, `len` and `gcd` of this file."""
    ours = (("range", range, symbolic_range), ("len", builtins.len, symbolic_len), ("gcd", math.gcd, symbolic_gcd))
    with ExitStack() as restored:
        for module in modules:
            for name, original, function in ours:
                if vars(module).get(name) is original:
                    restored.callback(setattr, module, name, original)
                    setattr(module, name, function)
                elif name not in vars(module) and name != "gcd":  # a module's own `len` is left alone
                    restored.callback(delattr, module, name)
                    setattr(module, name, function)
        yield
