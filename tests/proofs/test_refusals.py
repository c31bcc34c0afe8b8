"""Claims that are false must not come out proved, however the function under proof goes about it."""

import z3
from blockproof.proofs.quotients import divisor
from blockproof.proofs.roles.stand_ins import divisor as common
from blockproof.proofs.solver import solve
from blockproof.proofs.symbolic import Run, SymbolicInt, symbol, term
from blockproof.proofs.symbolic_builtins import common_divisor


def deep(x, choices=30):
    """A number with so many nested choices in it, without a fork: as a term it is too long for Z3 to print."""
    found = x.term
    for number in range(choices):
        found = z3.If(found > 2 * number, found + 1, z3.If(found < -number, found - 3, found + 2))
    return SymbolicInt(found)


def always(body, *assumptions):
    """True if the claim is proved on every path."""
    return all(
        solve([*path.hypotheses, z3.Not(term(path.value))], 5)[0] == "unsat"
        for path in Run("test", assumptions).paths(body)
    )


def test_two_dividends_that_z3_prints_alike_have_quotients_of_their_own():
    x, y, b = symbol("x"), symbol("y"), symbol("b")
    assert not always(lambda: deep(x) // divisor(b) == deep(y) // divisor(b), b >= 1)
    assert not always(lambda: deep(x) % divisor(b) == deep(y) % divisor(b), b >= 1)
    assert always(lambda: deep(x) // divisor(b) == deep(x) // divisor(b), b >= 1)


def test_two_pairs_that_z3_prints_alike_have_divisors_of_their_own():
    x, y = symbol("x"), symbol("y")
    tall = z3.IntVal(0)
    for number in range(60):
        tall = z3.If(x.term == number, tall + number, tall)
    one, other = SymbolicInt(z3.If(y.term > 5, tall + 6, 1)), SymbolicInt(z3.If(y.term > 5, tall + 7, 1))
    for of in (lambda a, b: common_divisor(a, b)[0], common):
        assert not always(lambda of=of: of(one, x) == of(other, x), x >= 1)
