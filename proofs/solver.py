"""What is asked of Z3: obligations, and one question at a time with a fresh solver."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import z3


class ProofError(Exception):
    """The run cannot go on without guessing: the theorem is neither proved nor refuted.

    The latest one is remembered: a function under proof that catches it does not get away with it (`Run.paths`).
    """

    latest: ClassVar["ProofError | None"] = None

    def __init__(self, message: str) -> None:
        super().__init__(message)
        ProofError.latest = self


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
    """True if it is about a branch that was not taken because it is impossible, which the solver has shown already."""

    def smtlib(self) -> str:
        """The question whether it can fail, as SMT-LIB 2: `unsat` means proved."""
        return f"; {self.name}: unsat means proved\n{question([*self.hypotheses, z3.Not(self.claim)])}"


def question(formulas: Sequence[z3.BoolRef]) -> str:
    """The question whether these can hold together, as SMT-LIB 2."""
    terms = [formula.as_ast() for formula in formulas] or [z3.BoolVal(True).as_ast()]
    others = (z3.Ast * (len(terms) - 1))(*terms[:-1])
    name = "benchmark generated from python API"
    text = z3.Z3_benchmark_to_smtlib_string(
        z3.main_ctx().ref(), name, "", "unknown", "", len(others), others, terms[-1]
    )
    return f"(set-logic ALL)\n{text}"


_KNOWN: dict[frozenset[int], tuple[Sequence[z3.BoolRef], str, z3.ModelRef | None, float]] = {}
"""Answers, and the seconds for which they were looked for, by the identities of the formulas; these are kept, so that
no other ones get their identities."""
KNOWN_MOST = 20_000
QUICK = 50_000
"""Steps of Z3's plain solver before the ones that choose a strategy are asked: nearly always enough, and no clock."""


def solve(formulas: Sequence[z3.BoolRef], seconds: float) -> tuple[str, z3.ModelRef | None]:
    """`sat` with a model, `unsat`, or `unknown`. A fresh solver each time: incremental ones time out on products.

    A question that was answered already is not asked again: model and core often lead to the very same terms.
    """
    key = frozenset([formula.get_id() for formula in formulas])
    _, status, model, spent = _KNOWN.get(key, ((), "unknown", None, 0.0))
    if status == "unknown" and seconds > spent:
        watching = sys.getprofile()
        sys.setprofile(None)  # whoever watches which functions run does not mean the solver's
        try:
            status, model = _solved(formulas, max(1, int(seconds * 1000)))
        finally:
            sys.setprofile(watching)
        if len(_KNOWN) >= KNOWN_MOST:
            _KNOWN.clear()
        _KNOWN[key] = list(formulas), status, model, seconds
    return status, model


def assert_all(solver: z3.Solver, formulas: Sequence[z3.BoolRef]) -> None:
    """`solver.add`, without the checks of each formula that take most of its time."""
    context = z3.main_ctx().ref()
    for formula in formulas:
        z3.Z3_solver_assert(context, solver.solver, formula.as_ast())


def _quick() -> z3.Solver:
    solver = z3.SimpleSolver()
    solver.set("rlimit", QUICK)
    return solver


def _strategic(logic: str | None, deadline: int) -> z3.Solver:
    solver = z3.Solver() if logic is None else z3.SolverFor(logic)
    solver.set("timeout", deadline)
    return solver


def _solved(formulas: Sequence[z3.BoolRef], deadline: int) -> tuple[str, z3.ModelRef | None]:
    for make in (_quick, lambda: _strategic(None, deadline), lambda: _strategic("QF_NIA", deadline)):
        solver = make()
        assert_all(solver, formulas)
        status = str(solver.check())
        if status != "unknown":
            return status, solver.model() if status == "sat" else None
    return "unknown", None


_PRODUCTS: dict[int, tuple[z3.ExprRef, bool]] = {}
"""What `has_product` found, by the identity of a term; the term is kept, so that no other one gets its identity."""


def has_product(formula: z3.ExprRef) -> bool:
    """True if a product, quotient or remainder of two unknowns occurs in it."""
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
