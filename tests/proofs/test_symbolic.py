"""The trusted base: symbolic arithmetic is Python's, paths cover everything, and what cannot be followed is refused."""

import itertools
import math
import operator
import random
from fractions import Fraction
from types import ModuleType
from typing import Any

import pytest
import z3
from blockproof.proofs import symbolic, symbolic_run
from blockproof.proofs.claims import (
    every,
    implies,
    instance,
    lemma,
    multiples_ordered,
    negation,
    one_of,
    quotient_found,
    quotients_ordered,
    same,
    some,
    use,
)
from blockproof.proofs.solver import Obligation, ProofError, UndecidedError, solve
from blockproof.proofs.symbolic import Run, SymbolicBool, SymbolicInt, is_plain, running, symbol, truth
from blockproof.proofs.symbolic_builtins import common_divisor, symbolic_builtins

CORNERS = (-7, -3, -1, 0, 1, 3, 7)
SEED = 20261121
OPERATORS = {
    name: getattr(operator, name)
    for name in ("add", "sub", "mul", "floordiv", "mod", "truediv", "lt", "le", "gt", "ge", "eq", "ne")
}


class Paths:
    """All paths of a function of symbols; `at` gives what it comes to for plain values, by the one path that fits."""

    def __init__(self, compute, *names):
        symbols = [symbol(name) for name in names]
        self.terms = [one.term for one in symbols]
        run = Run("test", [])
        run.rounding = True
        self.found = list(run.paths(lambda: compute(*symbols)))

    def at(self, *values):
        given = list(zip(self.terms, map(z3.IntVal, values), strict=True))
        fits = [
            path
            for path in self.found
            if all(z3.is_true(z3.simplify(z3.substitute(hypothesis, given))) for hypothesis in path.hypotheses)
        ]
        assert len(fits) == 1, values
        return type(fits[0].error) if fits[0].error is not None else self.plain(fits[0].value, given)

    def plain(self, value, given):
        if isinstance(value, tuple):
            return tuple(self.plain(element, given) for element in value)
        if not isinstance(value, SymbolicInt | SymbolicBool | symbolic.SymbolicReal):
            return value
        found = z3.simplify(z3.substitute(value.term, given))
        if z3.is_bool(found):
            return z3.is_true(found)
        return found.as_long() if z3.is_int_value(found) else found.as_fraction()


def plain(value, model):
    """The value that a model gives to a result."""
    found = model.eval(value.term, model_completion=True)
    return z3.is_true(found) if z3.is_bool(found) else found.as_long()


def of_python(compute, *values):
    try:
        return compute(*values)
    except ZeroDivisionError:
        return ZeroDivisionError


def pairs():
    drawn = random.Random(SEED)
    yield from itertools.product(CORNERS, CORNERS)
    yield from ((drawn.randint(-(10**6), 10**6), drawn.randint(-50, 50)) for _ in range(12))


def exact(compute):
    """Python's operator, but for true division, which is exact here."""
    return (lambda a, b: Fraction(a) / b) if compute is operator.truediv else compute


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_on_two_symbols_is_pythons(name):
    paths = Paths(OPERATORS[name], "a", "b")
    for a, b in pairs():
        assert paths.at(a, b) == of_python(exact(OPERATORS[name]), a, b), (a, b)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_on_a_symbol_and_a_plain_number_is_pythons_on_either_side(name):
    compute = OPERATORS[name]
    for fixed in CORNERS:
        left, right = Paths(lambda a, b=fixed: compute(a, b), "a"), Paths(lambda b, a=fixed: compute(a, b), "b")
        for value in CORNERS:
            assert left.at(value) == of_python(exact(compute), value, fixed), (value, fixed)
            assert right.at(value) == of_python(exact(compute), fixed, value), (fixed, value)


def test_divmod_minus_plus_and_abs_are_pythons():
    both, signs = Paths(divmod, "a", "b"), Paths(lambda a: (-a, +a, abs(a)), "a")
    for a, b in pairs():
        assert both.at(a, b) == of_python(divmod, a, b)
        assert signs.at(a) == (-a, a, abs(a))
    for fixed in CORNERS:
        left, right = Paths(lambda a, b=fixed: divmod(a, b), "a"), Paths(lambda b, a=fixed: divmod(a, b), "b")
        for value in CORNERS:
            assert left.at(value) == of_python(divmod, value, fixed)
            assert right.at(value) == of_python(divmod, fixed, value)


def test_min_max_and_chained_comparisons_fork_as_python_decides():
    paths = Paths(lambda a, b: (min(a, b), max(a, b, 0), bool(0 <= a < b)), "a", "b")
    for a, b in pairs():
        assert paths.at(a, b) == (min(a, b), max(a, b, 0), 0 <= a < b)


def test_truth_values_count_as_zero_and_one():
    run = Run("test", [])
    flag: Any = truth("flag")
    for path in run.paths(lambda: (bool(flag), 3 + flag, 3 - flag, flag + 3, flag - 3, 2 * flag, flag * 2, flag == 1)):
        chosen, *numbers = path.value
        _, model = solve(path.hypotheses, 5)
        expected = [3 + chosen, 3 - chosen, chosen + 3, chosen - 3, 2 * chosen, chosen * 2, chosen == 1]
        assert [plain(number, model) for number in numbers] == expected


def test_all_paths_are_taken_and_each_once():
    a, b = symbol("a"), symbol("b")
    run = Run("test", [a >= 0, b >= 0])
    found = [path.value for path in run.paths(lambda: (bool(a < b), bool(b < 3), bool(a < 5)))]
    assert len(found) == len(set(found))
    assert set(found) == {(i < j, j < 3, i < 5) for i in range(9) for j in range(9)}


def test_the_paths_cover_the_assumptions_and_every_pruned_branch_is_an_obligation():
    a, b = symbol("a"), symbol("b")

    def body():
        if a < b and b < a:
            raise AssertionError("impossible")
        return a // b

    run = Run("test", [a >= 0, b > 0])
    paths = list(run.paths(body))
    forced = [obligation for path in paths for obligation in path.obligations]
    assert forced
    for obligation in forced:
        assert solve([*obligation.hypotheses, z3.Not(obligation.claim)], 5)[0] == "unsat"
    covered = z3.Or([z3.And(path.hypotheses) for path in paths])
    assert solve([*run.assumptions, z3.Not(covered)], 5)[0] == "unsat"


def test_an_exception_ends_a_path_and_is_kept():
    a = symbol("a")

    def body():
        if a > 3:
            raise ValueError("too large")
        return a

    errors = [type(path.error) for path in Run("test", []).paths(body)]
    assert sorted(map(str, errors)) == sorted(map(str, [ValueError, type(None)]))


def test_a_division_by_what_may_be_zero_has_a_path_that_raises():
    a, b = symbol("a"), symbol("b")
    errors = {type(path.error) for path in Run("test", []).paths(lambda: a // b)}
    assert errors == {ZeroDivisionError, type(None)}
    assert {type(path.error) for path in Run("test", [b != 0]).paths(lambda: a // b)} == {type(None)}


REFUSED = {
    "range of Python": lambda a: list(range(a)),
    "list index": lambda a: [1, 2, 3][a],
    "slice": lambda a: [1, 2, 3][:a],
    "loop without bound": lambda a: next(i for i in itertools.count() if i == a),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_followed_is_refused(name, monkeypatch):
    monkeypatch.setattr(symbolic_run, "DECISIONS_MOST", 50)  # each question is asked with all answers before it
    a = symbol("a")
    with pytest.raises(ProofError):
        list(Run("test", [a >= 0]).paths(lambda: REFUSED[name](a)))


def test_a_symbol_cannot_be_hashed_and_not_be_asked_outside_a_run():
    with pytest.raises(ProofError, match="hash"):
        hash(symbol("a"))
    with pytest.raises(ProofError, match="outside a run"):
        bool(symbol("a") > 0)


def test_a_question_that_the_solver_cannot_answer_ends_the_run_and_leaves_the_question():
    a, b, c, n = (symbol(name) for name in "abcn")
    fermat = a * a * a * a * a + b * b * b * b * b == c * c * c * c * c
    run = Run("test", [a > 0, b > 0, c > 0, n > 2], seconds=0.05)
    with pytest.raises(UndecidedError) as caught:
        list(run.paths(lambda: bool(fermat)))
    assert "check-sat" in caught.value.smtlib


def module_with(source: str) -> ModuleType:
    module = ModuleType("under_proof")
    exec(source, vars(module))
    return module


def test_a_loop_over_a_symbolic_range_is_unrolled_to_the_bound_and_refused_beyond():
    module = module_with("def total(n):\n    s = 0\n    for i in range(n):\n        s += i\n    return s")
    n = symbol("n")
    with symbolic_builtins([module]):
        run = Run("test", [n >= 0, n <= 4], unroll=4)
        for path in run.paths(lambda: module.total(n)):
            status, model = solve(path.hypotheses, 5)
            assert status == "sat"
            expected = sum(range(plain(n, model)))
            assert path.value == expected if is_plain(path.value) else plain(path.value, model) == expected
        with pytest.raises(ProofError, match="unroll"):
            list(Run("test", [n >= 0, n <= 5], unroll=4).paths(lambda: module.total(n)))
    assert "range" not in vars(module)


def test_len_and_range_of_plain_values_stay_pythons():
    module = module_with("def f(n):\n    return len([1, 2]), list(range(3)), list(range(n, 0, -2))")
    with symbolic_builtins([module]):
        assert module.f(5) == (2, [0, 1, 2], [5, 3, 1])


def test_a_modules_own_name_is_left_alone_and_gcd_is_put_back():
    module = module_with("from math import gcd\ndef len(x):\n    return 'own'\ndef f():\n    return len([])")
    with symbolic_builtins([module]):
        assert module.f() == "own"
        assert module.gcd is not math.gcd
        assert module.gcd(12, 18) == 6
    assert module.gcd is math.gcd


def test_a_symbolic_gcd_is_a_positive_common_divisor_and_the_same_one_each_time():
    a, b = symbol("a"), symbol("b")

    def body():
        divisor, a_part, b_part = common_divisor(a, b)
        again = common_divisor(b, a)
        return [divisor >= 1, divisor * a_part == a, divisor * b_part == b, again[0] == divisor, again[2] == a_part]

    for path in Run("test", [a > 0, b > 0]).paths(body):
        for claim in path.value:
            assert solve([*path.hypotheses, z3.Not(claim.term)], 5)[0] == "unsat"
    assert common_divisor(12, 18) == (6, 2, 3)
    with pytest.raises(ProofError, match="positive"):
        list(Run("test", []).paths(lambda: common_divisor(a, b)))


def test_words_for_claims_are_plain_logic_on_plain_values():
    for p, q in itertools.product((False, True), repeat=2):
        assert [every(p, q), some(p, q), implies(p, q), same(p, q), negation(p)] == [
            p and q,
            p or q,
            not p or q,
            p == q,
            not p,
        ]
        assert values_of_words(p, q) == [p and q, p or q, not p or q, p == q, not p]


def values_of_words(p, q):
    a, b = truth("a"), truth("b")
    run = Run("test", [a == p, b == q])
    (path,) = run.paths(lambda: (every(a, b), some(a, b), implies(a, b), same(a, b), negation(a)))
    _, model = solve(path.hypotheses, 5)
    return [plain(value, model) for value in path.value]


def obligations(body, *assumptions):
    return [obligation for path in Run("test", list(assumptions)).paths(body) for obligation in path.obligations]


def holds(obligation: Obligation) -> bool:
    return solve([*obligation.hypotheses, z3.Not(obligation.claim)], 5)[0] == "unsat"


def test_a_lemma_is_an_obligation_of_its_own_and_known_afterwards():
    a = symbol("a")
    (right,) = obligations(lambda: lemma(a >= 5), a > 4)
    assert holds(right)
    (path,) = Run("test", [a > 4]).paths(lambda: lemma(a > 5))
    assert solve([*path.hypotheses, (a == 5).term], 5)[0] == "unsat"
    assert not any(map(holds, obligations(lambda: lemma(a > 6), a > 4)))
    with pytest.raises(AssertionError):
        lemma(False)


def test_a_law_is_proved_without_hypotheses_so_a_wrong_one_is_noticed():
    a, b, c = symbol("a"), symbol("b"), symbol("c")
    assert all(map(holds, obligations(lambda: multiples_ordered(a, b, c))))
    assert all(map(holds, obligations(lambda: quotient_found(a, b, c), b > 0)))
    assert all(map(holds, obligations(lambda: quotients_ordered(a, b, c), c > 0)))
    wrong = obligations(lambda: use(lambda x, y: x <= y, a, b), a <= b)
    assert wrong
    assert not any(map(holds, wrong))
    with pytest.raises(AssertionError, match="does not hold"):
        use(lambda x, y: x <= y, 2, 1)
    multiples_ordered(2, 3, 4)
    quotient_found(7, 2, 3)
    quotients_ordered(-1, 5, 3)


def test_a_law_that_another_one_implies_does_not_excuse_that_one():
    a, b = symbol("a"), symbol("b")

    def ordered() -> None:
        running().law("follows", (a <= b).term, instance(lambda x, y: x <= y, a, b))

    assert [holds(one) for one in obligations(ordered)] == [False, True]


def test_a_law_with_a_fork_is_refused():
    a = symbol("a")
    with pytest.raises(ProofError, match="one condition"):
        obligations(lambda: use(lambda x: min(x, 0) <= x, a))


def test_an_obligation_as_smtlib_is_the_same_question():
    a = symbol("a")
    obligation = Obligation("test", ((a > 3).term,), (a > 2).term)
    solver = z3.Solver()
    solver.from_string(obligation.smtlib())
    assert solver.check() == z3.unsat
    solver = z3.Solver()
    solver.from_string(Obligation("test", ((a > 2).term,), (a > 3).term).smtlib())
    assert solver.check() == z3.sat


def test_a_run_goes_through_all_choices_and_no_number_is_left_over():
    x = symbol("x")
    found = [path.value for path in Run("choices", [x >= 0, x <= 2]).paths(lambda: one_of(x, "abc"))]
    assert sorted(found) == ["a", "b", "c"]
    assert one_of(1, "abc") == "b"
    errors = [path.error for path in Run("choices", [x >= 0, x <= 3]).paths(lambda: one_of(x, "abc"))]
    assert sum(isinstance(error, IndexError) for error in errors) == 1
