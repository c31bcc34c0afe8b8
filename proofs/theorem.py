"""What a theorem is, and how it is settled for one core.

A theorem speaks of *roles*: `skipped_sliding(c, w)` is whatever function of a core says how many tokens a window has
left behind. Which function plays a role is the business of `roles`. Its claim is a Python function over roles and
variables that returns truth; executed on symbols it yields obligations for the solver, executed on plain integers it is
the replay of a counterexample on the real code.
"""

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeAlias

import z3

from .claims import FailedError, every
from .coverage import Watched
from .examples import Values, conditions, fixed_to, plain_values, satisfiable_question, variable
from .formula import stated
from .identity import is_unguarded
from .kernel import Account, Proved, follows
from .replays import Replaying
from .solver import Obligation, ProofError, UndecidedError, has_product, solve
from .symbolic import Condition, Path, Run, symbol, term
from .symbolic_builtins import symbolic_builtins
from .verdict import Verdict
from .weights import SECONDS, USUAL_S

SMALL = (2, 6, 20, 100)
"""A counterexample is looked for with variables up to these values first: small ones are read more easily."""

COUNTEREXAMPLES = 12
"""So many are run on the real code before it is said that none fails there."""


class UnavailableError(Exception):
    """The core has no function for a role; the message says which."""


class Functions:
    """The roles of a core as attributes. UnavailableError for one that it has no function for."""

    def __init__(self, find: Callable[[str], Callable[..., Any]], replaced: Mapping[str, Callable[..., Any]]) -> None:
        self._find = find
        self._replaced = replaced
        self._played: set[str] = set()

    def __getattr__(self, role: str) -> Callable[..., Any]:
        self._played.add(role)
        return self._replaced[role] if role in self._replaced else self._find(role)


def asked_of(functions: Functions) -> list[str]:
    """The roles that were asked for so far."""
    return sorted(functions._played)


@dataclass(frozen=True)
class Subject:
    """A core whose functions theorems are about."""

    name: str
    """`model`, `impl`, `vllm==0.23.0`."""
    find: Callable[[str], Callable[..., Any]]
    """The function that plays a role. UnavailableError if there is none."""
    packages: tuple[str, ...]
    """Its modules: those with one of these names, or inside one of these packages."""
    memos: frozenset[str] = frozenset()
    """Names, `module.name`, under which it remembers what is the same whenever it is made anew: all else that a run
    leaves behind is held against it."""

    def modules(self) -> list[ModuleType]:
        """Its modules that are loaded."""
        inside = tuple(f"{package}." for package in self.packages)
        return [
            module
            for name, module in sorted(sys.modules.items())
            if isinstance(module, ModuleType) and (name in self.packages or name.startswith(inside))
        ]


Claim: TypeAlias = Callable[[Functions, Any], Condition | Iterable[Condition]]
Replay: TypeAlias = Callable[[Mapping[str, int]], tuple[bool, str]]
"""Runs a claim on the real code with plain values. Whether it fails, and how."""


@dataclass(frozen=True)
class NegativeControl:
    """A wrong variant that the theorem must refute: of a function, of the claim, or of what is assumed.

    If it does not, the theorem would have missed such a defect in a core, too, so nothing follows from it.
    """

    wrong: str
    """What is wrong with it, in a few words."""
    roles: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """Wrong functions in place of the core's."""
    claim: Claim | None = None
    assume: Callable[[Any], Iterable[Condition]] | None = None
    raises: str = ""
    """The error by which it must be refuted; empty if a claim must fail. An error says nothing of what is claimed, but
    where a theorem is about errors."""


def on_releases(reason: str) -> Mapping[str, str]:
    """What is refuted on both releases that are settled, for the same reason (`Statement.refuted_on`)."""
    return dict.fromkeys(("vllm==0.23.0", "vllm==0.33.0"), reason)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """Something that is claimed of a core, and how the claim was settled."""

    id: str
    """`T4`, or `T4.eagle` for a statement that belongs to T4."""
    sentence: str
    """In words."""
    bounded: str = ""
    """What is not symbolic, and why that is no loss; empty if everything is."""
    refuted_on: Mapping[str, str] = field(default_factory=dict)
    """Cores for which the answer is no, with what that means for a user; `expectations` decides whether it is."""
    meaning: str = ""
    """What it means for a user, in blocks and bytes."""

    @property
    def weight(self) -> float:
        """About how many seconds it takes."""
        return SECONDS.get(self.id, USUAL_S)

    @property
    def stated(self) -> str:
        """What is claimed, generated from the claim itself; empty if only the sentence says it."""
        return ""

    @property
    def number(self) -> tuple[int, str]:
        """Sort key: `T4.eagle` comes after `T4`, and what is about a safety property (`S1`) after all theorems."""
        head, _, rest = self.id[1:].partition(".")
        return int(head) + (100 if self.id.startswith("S") else 0), rest

    def settle(self, subject: Subject, seconds: float = 5.0, with_controls: bool = True) -> "Verdict":
        """Prove or refute it for a core; `seconds` bounds each question to the solver.

        With `with_controls` every negative control must be refuted too, else the verdict is `undecided`: a statement
        that cannot tell right from wrong says nothing.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Theorem(Statement):
    """A statement about all integers that satisfy its assumptions."""

    variables: Mapping[str, str]
    """Name to meaning, with unit; a meaning that begins with `whether` makes a truth value, any other an integer."""
    assume: Callable[[Any], Iterable[Condition]]
    claim: Claim
    controls: tuple[NegativeControl, ...]
    unroll: int = 0
    """Most rounds of a loop over a symbolic bound."""
    rounding: str = ""
    """Why it does no harm that Python rounds `a / b`, which is exact in a proof; empty if nothing is divided so."""

    @property
    def stated(self) -> str:
        """The source of what is assumed and claimed."""
        return stated(self.assume, self.claim)

    def settle(self, subject: Subject, seconds: float = 5.0, with_controls: bool = True) -> "Verdict":
        """As every statement; a negative control's counterexample is run on the real code as well."""
        return settle(self, subject, seconds, with_controls)


def settle(theorem: Theorem, subject: Subject, seconds: float = 5.0, with_controls: bool = True) -> Verdict:
    """See `Statement.settle`."""
    start = time.perf_counter()
    verdict = _settle(theorem, subject, seconds)
    if with_controls and verdict.status in ("proved", "refuted"):
        for control in theorem.controls:
            verdict.note_control(control.wrong, control.raises, _settle(theorem, subject, seconds, control))
    verdict.seconds = time.perf_counter() - start
    return verdict


def _settle(theorem: Theorem, subject: Subject, seconds: float, control: NegativeControl | None = None) -> Verdict:
    claim, assume = theorem.claim, theorem.assume
    if control is not None:
        claim, assume = control.claim or claim, control.assume or assume
    functions = Functions(subject.find, control.roles if control is not None else {})
    symbols = Values({name: variable(name, meaning) for name, meaning in theorem.variables.items()})
    verdict = Verdict(theorem.id, subject.name, "undecided", bounded=theorem.bounded)
    watched = Watched(subject.modules(), ignore=control is not None)
    try:
        assumptions = [condition for condition in assume(symbols) if condition is not True]
        run = Run(f"{theorem.id} on {subject.name}", assumptions, theorem.unroll, seconds)
        run.rounding = bool(theorem.rounding)
        account = Account(run.name, run.assumptions, seconds)
        verdict.satisfiable.append(satisfiable_question(f"{run.name}: the assumptions", run.assumptions))

        replaying = Replaying(theorem.variables, assume, subject.memos)

        def body() -> list[Condition]:
            with watched:
                return conditions(claim(functions, symbols))

        def replay(values: Mapping[str, int]) -> tuple[bool, str]:
            with watched:
                if not all(assume(Values(values))):
                    return False, "the assumptions do not hold"
                return _replay(functions, claim, values)

        with symbolic_builtins(subject.modules()):
            for path in run.paths(body):
                verdict.paths += 1
                if not _settle_path(run, path, theorem, replay, verdict, account, replaying):
                    break
            else:
                refuse_careless(run.name, watched)
                proved = account.proved()
                if control is not None or replaying.hold(run, watched, lambda v: _replay(functions, claim, v), verdict):
                    verdict.status = proved
        verdict.questions = run.questions
    except UnavailableError as error:
        verdict.status, verdict.message = "unavailable", str(error)
    except ProofError as error:
        verdict.status, verdict.message = "undecided", str(error)
        verdict.smtlib += [error.smtlib] if isinstance(error, UndecidedError) else []
    verdict.covered = {} if verdict.status == "unavailable" else watched.functions()
    verdict.roles = asked_of(functions)
    return verdict


def refuse_careless(name: str, watched: Watched) -> None:
    """ProofError if a function that ran catches what only a symbol may raise, and goes on."""
    for said in watched.careless(ProofError.shown):
        raise ProofError(f"{name}: {said}: a symbol may raise where a number does not")
    for code in (*watched.codes(), *watched.lambdas()):
        if is_unguarded(code):
            raise ProofError(f"{name}: {code.co_qualname} is reached in a way that is not watched: call it by its name")
    for code in watched.made_from_text():
        if code.co_exceptiontable:
            raise ProofError(f"{name}: {code.co_qualname}, made from a text, catches what a symbol may raise")


def _settle_path(
    run: Run, path: Path, theorem: Theorem, replay: Replay, verdict: Verdict, account: Account, replaying: Replaying
) -> bool:
    """Prove what one path owes. False, with the verdict changed, at the first failure."""
    obligations, proofs = list(path.obligations), list(path.proofs)
    if path.error is not None:
        if isinstance(path.error, UnavailableError):
            raise path.error
        reason = f"raises {type(path.error).__name__}: {path.error}"
        obligations.append(Obligation(f"{run.name}: {reason}", tuple(path.hypotheses), z3.BoolVal(False)))
    else:
        for number, condition in enumerate(path.value):
            name = f"{run.name}: claim {number} on path {verdict.paths}"
            obligations.append(Obligation(name, tuple(path.hypotheses), term(condition)))
    for obligation in obligations:
        if z3.is_true(z3.simplify(obligation.claim)):
            continue
        if obligation.forced:  # proved on the way: only the second solver is asked now
            verdict.note_proof(obligation)
            continue
        proved, model = _decide(obligation, theorem, run)
        if proved is not None:
            proofs.append(proved)
            verdict.note_proof(proved.obligation)
            continue
        if model is None:
            raise UndecidedError(f"{obligation.name}: the solver cannot say", obligation.smtlib())
        values, how = _counterexample(obligation, theorem, run, model, replay)
        verdict.note_counterexample(values, how)
        formulas = [*obligation.hypotheses, z3.Not(obligation.claim)]
        fixed = [*formulas, *(fixed_to(name, value, theorem.variables) for name, value in values.items())]
        verdict.satisfiable.append(satisfiable_question(f"{obligation.name}: the counterexample", fixed))
        return False
    account.enter(path, proofs)
    for model in (run.case(), solve(run.assumptions, run.seconds)[1] if verdict.paths == 1 else None):
        if model is not None:
            values = plain_values(model, theorem.variables)
            fails, how = replay(values)
            replaying.note(values, verdict)
            if fails:
                how += f", although path {verdict.paths} is proved: symbols differ from numbers here"
                verdict.note_counterexample(values, how)
                return False
    return True


def _counterexample(
    obligation: Obligation, theorem: Theorem, run: Run, model: z3.ModelRef | None, replay: Replay
) -> tuple[dict[str, int], str]:
    """A counterexample that fails on the real code, and how.

    ProofError if none of the first few does: symbols may allow more than there is, such as quotients of their own.
    """
    formulas = [*obligation.hypotheses, z3.Not(obligation.claim)]
    for _ in range(COUNTEREXAMPLES):
        values = plain_values(model, theorem.variables)
        fails, how = replay(values)
        if fails:
            return values, how
        formulas.append(z3.Not(z3.And([fixed_to(name, value, theorem.variables) for name, value in values.items()])))
        model = _smallest(formulas, theorem, run, None)
        if model is None:
            break
    raise ProofError(f"{obligation.name}: {values} is a counterexample, but the real code: {how}")


def _decide(obligation: Obligation, theorem: Theorem, run: Run) -> tuple[Proved | None, z3.ModelRef | None]:
    """What was proved, with the hypotheses that it took; or a model in which it fails, small if possible; or neither.

    Products that have nothing to do with the claim make a solver wander, so the hypotheses without any are tried too.
    """
    light = tuple(formula for formula in obligation.hypotheses if not has_product(formula))
    lighter = Obligation(obligation.name, light, obligation.claim)
    attempts = [(obligation, 0.5), (lighter, 0.5), (obligation, run.seconds)]
    if not has_product(obligation.claim):
        attempts.insert(0, attempts.pop(1))
    for attempt, seconds in attempts:
        proved, model = follows(attempt, min(seconds, run.seconds))
        if proved is not None:
            return proved, None
        if attempt is obligation:
            formulas = [*obligation.hypotheses, z3.Not(obligation.claim)]
            small = _smallest(formulas, theorem, run, model)
            if small is not None:
                return None, small
    return None, None


def _smallest(
    formulas: Sequence[z3.BoolRef], theorem: Theorem, run: Run, model: z3.ModelRef | None
) -> z3.ModelRef | None:
    """A model with small values, if one is found at once; else the one given."""
    integers = [symbol(name) for name, meaning in theorem.variables.items() if not meaning.startswith("whether")]
    for most in SMALL:
        bounds = [term(every(-most <= value, value <= most)) for value in integers]
        status, found = solve([*formulas, *bounds], min(1.0, run.seconds))
        if status == "sat":
            return found
    return model


def _replay(functions: Functions, claim: Claim, values: Mapping[str, int]) -> tuple[bool, str]:
    """Run the claim on the real code with plain values. Whether it fails, and how."""
    try:
        results = conditions(claim(functions, Values(values)))
    except (UnavailableError, MemoryError):
        raise
    except FailedError as error:
        return True, str(error)
    except (TypeError, AttributeError, NameError) as error:  # more likely a role that is bound to the wrong thing
        return False, f"raises {type(error).__name__}: {error}"
    except Exception as error:
        return True, f"raises {type(error).__name__}: {error}"
    failed = [number for number, result in enumerate(results) if not result]
    return bool(failed), f"claim {failed[0]} of {len(results)} fails" if failed else "the claim holds"
