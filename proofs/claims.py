"""Words for claims, and laws of arithmetic that a solver needs spelt out where products occur.

With plain values they are plain logic, so that a counterexample is run with the same claim.
"""

import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Final

import z3

from .solver import ProofError
from .symbolic import Condition, Number, Run, SymbolicBool, SymbolicInt, SymbolicReal, executing, running, symbol, term
from .symbolic_run import Site, under_way


class FailedError(AssertionError):
    """Something that is claimed besides what a claim returns, such as a lemma, does not hold of plain values."""


def negation(condition: Condition) -> Any:
    """Not the condition."""
    return SymbolicBool(z3.Not(condition.term)) if isinstance(condition, SymbolicBool) else not condition


def every(*conditions: Condition) -> Any:
    """All of them."""
    for condition in conditions:
        if isinstance(condition, SymbolicBool):
            return SymbolicBool(z3.And([term(each) for each in conditions]))
    return all(conditions)


def some(*conditions: Condition) -> Any:
    """At least one of them."""
    for condition in conditions:
        if isinstance(condition, SymbolicBool):
            return SymbolicBool(z3.Or([term(each) for each in conditions]))
    return any(conditions)


MET_PLAINLY: set[Site] = set()
"""Where an implication stands whose condition has held of plain values."""


def implies(condition: Condition, claim: Condition) -> Any:
    """Where the condition holds, so does the claim. It must hold somewhere, or nothing is said (`Run.vacuous`)."""
    met = type(condition) is bool and condition
    if met or under_way():
        frame = sys._getframe(1)
        site = frame.f_code, frame.f_lasti, frame.f_lineno
        if under_way():
            running().suppose(site, term(condition))
        else:
            MET_PLAINLY.add(site)
    if type(condition) is bool and type(claim) is bool:  # plain numbers in their millions
        return claim or not condition
    return some(negation(condition), claim)


def one_of(number: Number, choices: Sequence[Any]) -> Any:
    """The choice with this number; a run on symbols goes through all of them. IndexError if the number may be any
    other: what holds of the choices would then not be all that is claimed."""
    for place, choice in enumerate(choices):
        if number == place:
            return choice
    raise IndexError(f"there are {len(choices)} choices")


def same(left: Condition, right: Condition) -> Any:
    """Both or neither."""
    if isinstance(left, SymbolicBool) or isinstance(right, SymbolicBool):
        return SymbolicBool(term(left) == term(right))
    return left == right


def ratio_is(value: Any, numerator: Any, denominator: Any) -> Any:
    """`value` is this quotient: exactly in a proof; of plain numbers it is the nearest floating-point number, or one of
    those beside it, since quotients and differences are rounded there. `denominator` is not 0."""
    if isinstance(value, SymbolicReal):
        return value * denominator == numerator
    exact = Fraction(numerator, denominator)
    size = abs(exact) if abs(exact) > 1 else Fraction(1)
    return abs(Fraction(value) - exact) <= size * EPSILON


EPSILON: Final = Fraction(1, 2**52)
"""How far two roundings may lie from the exact number, as a share of it, or of 1 if it is smaller."""


def refuses(error: type[Exception], call: Callable[[], object]) -> bool:
    """True if the call raises this error."""
    try:
        call()
    except error as raised:
        if under_way():
            running().leave(raised)
        return True
    return False


def lemma(claim: Condition, name: str = "") -> None:
    """An intermediate result, proved on its own and used from here on. FailedError if it is plain and false."""
    if isinstance(claim, SymbolicBool):
        running().lemma(claim.term, name)
    else:
        require_plain(claim, f"lemma {name}")


def require_plain(claim: Condition, what: str) -> None:
    """FailedError unless it holds."""
    if not claim:
        raise FailedError(f"{what} does not hold")


def use(law: Callable[..., Any], *values: Number) -> None:
    """Use a law of arithmetic for these values: it is proved once, for any integers and without other hypotheses.

    A law is a function from integers to a condition; solvers need some of them spelt out where products occur. What it
    divides by must be assumed positive in it. FailedError if the values are plain and it does not hold.
    """
    if not any(isinstance(value, SymbolicInt) for value in values):
        require_plain(law(*values), f"the law {law.__name__}")
        return
    running().use(instance(law, *values))


def instance(law: Callable[..., Any], *values: Number) -> z3.BoolRef:
    """What a law says of these values; that it holds of all is then an obligation of the run."""
    general = [symbol(f"any_{number}") for number in range(len(values))]
    running().law(law.__name__, _without_forks(law, general))
    return _without_forks(law, values)


def _without_forks(law: Callable[..., Any], values: Sequence[Any]) -> z3.BoolRef:
    """The law as one term; division in it is the solver's own, since the law assumes that divisors are positive."""
    with executing(_Plain(f"law {law.__name__}", [])):
        return term(law(*values))


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
    use(ordered_multiples, small, large, unit)


def ordered_multiples(small: Any, large: Any, unit: Any) -> Any:
    """The law of `multiples_ordered`."""
    return implies(every(small <= large, unit >= 0), small * unit <= large * unit)


def quotient_found(x: Number, unit: Number, quotient: Number) -> None:
    """Law: for `unit > 0`, `quotient * unit <= x < quotient * unit + unit` gives `x // unit == quotient`."""
    use(found_quotient, x, unit, quotient)


def found_quotient(x: Any, unit: Any, quotient: Any) -> Any:
    """The law of `quotient_found`."""
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
