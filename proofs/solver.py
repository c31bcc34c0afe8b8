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
        solver = z3.Solver()
        assert_all(solver, [*self.hypotheses, z3.Not(self.claim)])
        return f"; {self.name}: unsat means proved\n(set-logic ALL)\n{solver.to_smt2()}"


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
