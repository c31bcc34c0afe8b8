"""Words for claims, and laws of arithmetic that a solver needs spelt out where products occur.

With plain values they are plain logic, so that a counterexample is run with the same claim.
"""

from collections.abc import Callable, Sequence
from typing import Any

import z3

from .solver import ProofError
from .symbolic import Condition, Number, Run, SymbolicBool, SymbolicInt, executing, running, symbol, term


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


def refuses(error: type[Exception], call: Callable[[], object]) -> bool:
    """True if the call raises this error."""
    try:
        call()
    except error:
        return True
    return False


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
