"""What is asked of Z3: obligations, and one question at a time with a fresh solver."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import z3


class ProofError(Exception):
    """The run cannot go on without guessing: the theorem is neither proved nor refuted.

    The latest one is remembered: a function under proof that catches it does not get away with it (`Run.paths`).
    """

    shown: ClassVar[bool] = False
    """Whether a message of code under proof has held the text of a symbol since a theorem was begun."""
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

    def needed(self) -> str:
        """The same for those hypotheses only that Z3 took to prove it, if that is known; else the same."""
        formulas = [*self.hypotheses, z3.Not(self.claim)]
        known = _KNOWN.get(_key(formulas))
        return f"; {self.name}: unsat means proved\n{question(formulas if known is None else known.formulas)}"


def question(formulas: Sequence[z3.BoolRef]) -> str:
    """The question whether these can hold together, as SMT-LIB 2; its names do not depend on what was made before."""
    terms = [formula.as_ast() for formula in formulas] or [z3.BoolVal(True).as_ast()]
    others = (z3.Ast * (len(terms) - 1))(*terms[:-1])
    name = "benchmark generated from python API"
    text = z3.Z3_benchmark_to_smtlib_string(
        z3.main_ctx().ref(), name, "", "unknown", "", len(others), others, terms[-1]
    )
    names: dict[str, str] = {}
    text = _SHARED.sub(lambda one: names.setdefault(one[0], f"{one[0][:2]}{len(names)}"), text)
    return f"(set-logic ALL)\n{text}"


_SHARED = re.compile(r"[?$]x[0-9]+")
"""Names that Z3 gives to shared parts of what it prints, numbered by all that its process has made before."""


@dataclass(frozen=True)
class _Answer:
    """What Z3 said to a question."""

    formulas: Sequence[z3.BoolRef]
    """Those that it takes, if the answer is `unsat`; else all."""
    status: str
    model: z3.ModelRef | None
    seconds: float
    """For which it was looked for."""
    asked: Sequence[z3.BoolRef]
    """All of them, kept so that no other ones get their identities."""

    @cached_property
    def core(self) -> frozenset[int]:
        """The identities of those that it takes."""
        return _key(self.formulas)


_KNOWN: dict[frozenset[int], _Answer] = {}
"""By the identities of the formulas."""
_CORES: dict[int, list[_Answer]] = {}
"""Those that are `unsat`, by the identity of the last one of the formulas that it takes."""
KNOWN_MOST = 20_000
_LABELS: list[z3.BoolRef] = []
"""Names of the formulas of a question, by which the solver says which of them it took."""
_QUICK: list[z3.Solver] = []
"""The plain solver, once it is made."""
QUICK = 200_000
"""Steps of Z3's plain solver before the ones that choose a strategy are asked: nearly always enough, and no clock."""


def _key(formulas: Sequence[z3.BoolRef]) -> frozenset[int]:
    return frozenset([formula.get_id() for formula in formulas])


def solve(formulas: Sequence[z3.BoolRef], seconds: float) -> tuple[str, z3.ModelRef | None]:
    """`sat` with a model, `unsat`, or `unknown`. What the plain solver cannot say in a few steps goes to a fresh one:
    incremental ones time out on products.

    A question that was answered already is not asked again: model and core often lead to the very same terms. Nor is
    one of which some formulas are known to contradict each other: paths mostly differ in what a claim does not take.
    """
    key = _key(formulas)
    known = _KNOWN.get(key)
    if known is None or (known.status == "unknown" and seconds > known.seconds):
        if len(_KNOWN) >= KNOWN_MOST:
            _KNOWN.clear()
            _CORES.clear()
        known = _contradicted(key) or _newly_solved(formulas, seconds)
        _KNOWN[key] = known
    return known.status, known.model


def _newly_solved(formulas: Sequence[z3.BoolRef], seconds: float) -> _Answer:
    """What Z3 says, noted if it is `unsat`."""
    known = _solved(formulas, seconds)
    if known.status == "unsat" and known.formulas:
        _CORES.setdefault(known.formulas[-1].get_id(), []).append(known)
    return known


def _contradicted(key: frozenset[int]) -> _Answer | None:
    """An answer `unsat` that takes only some of these formulas, if there was one."""
    for last in key & _CORES.keys():
        for known in _CORES[last]:
            if known.core <= key:
                return known
    return None


STEPS = 2_000_000
"""Of Z3 in about a second. A limit in steps gives the same answer on a slow machine, and on a busy one."""


def limit(solver: z3.Solver, seconds: float) -> None:
    """Let each question to the solver take as many steps as it makes in about so many seconds."""
    solver.set("rlimit", max(1, int(seconds * STEPS)))


def assert_all(solver: z3.Solver, formulas: Sequence[z3.BoolRef]) -> None:
    """`solver.add`, without the checks of each formula that take most of its time."""
    context = z3.main_ctx().ref()
    for formula in formulas:
        z3.Z3_solver_assert(context, solver.solver, formula.as_ast())


def forget_course() -> None:
    """Let the plain solver begin anew: what it makes of a theorem then does not depend on those before."""
    _QUICK.clear()


def _quick() -> z3.Solver:
    if not _QUICK:
        _QUICK.append(z3.SimpleSolver())
        _QUICK[0].set("rlimit", QUICK)
        _QUICK[0].set("arith.nl.grobner", False)  # most of its time on products, and seldom what settles them
    return _QUICK[0]


def _quickly_solved(asked: Sequence[z3.BoolRef], seconds: float) -> _Answer | None:
    """What Z3's plain solver says, which stays the same one: making it takes as long as most of the answers. None if it
    cannot say within its steps."""
    quick, context = _quick(), z3.main_ctx().ref()
    while len(_LABELS) < len(asked):
        _LABELS.append(z3.Bool(f"formula {len(_LABELS)}"))
    quick.push()
    try:
        for formula, label in zip(asked, _LABELS, strict=False):
            z3.Z3_solver_assert_and_track(context, quick.solver, formula.as_ast(), label.as_ast())
        status = str(quick.check())
        if status == "unsat":
            core = {label.get_id() for label in quick.unsat_core()}
            needed = [formula for formula, label in zip(asked, _LABELS, strict=False) if label.get_id() in core]
            return _Answer(needed, status, None, seconds, asked)
        return _Answer(asked, status, quick.model(), seconds, asked) if status == "sat" else None
    finally:
        quick.pop()


def _solved(formulas: Sequence[z3.BoolRef], seconds: float) -> _Answer:
    asked = list(formulas)
    known = _quickly_solved(asked, seconds)
    if known is not None:
        return known
    for logic in (None, "QF_NIA"):
        solver = z3.Solver() if logic is None else z3.SolverFor(logic)
        limit(solver, seconds)
        assert_all(solver, asked)
        status = str(solver.check())
        if status != "unknown":
            return _Answer(asked, status, solver.model() if status == "sat" else None, seconds, asked)
    return _Answer(asked, "unknown", None, seconds, asked)


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
