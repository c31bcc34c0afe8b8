"""Theorems about linked blocks: settled path by path, each with one obligation.

A symbolic heap asks many questions (is this link that block?), most of which have one answer only. So paths are looked
for with one solver that keeps what it has learnt, and what it says is not relied on: for each path one obligation says
that the answers taken for granted are right and that the claim holds, from the facts and the answers that were really
chosen. That covers all cases. Follow, in any heap that satisfies the assumptions, the tree of answers, taking at each
choice the one that is true there: it ends at some path, whose obligation says that no answer taken for granted was
wrong on the way. It takes facts to hold on every path, which those of the scenes do: they are guarded by conditions.

Each path is also run on real objects with an example of it: so a heap that behaves unlike Python's own is noticed, and
what a theorem covers is measured there.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import z3

from .claims import FailedError, every
from .coverage import Watched
from .examples import Values, conditions, fixed_to, plain_values, satisfiable_question, variable
from .kernel import Account, each_follows
from .replays import Replaying
from .solver import Obligation, ProofError, UndecidedError, limit, solve
from .symbolic import DECISIONS_MOST, Condition, Path, Run, symbol, term
from .symbolic_builtins import symbolic_builtins
from .theorem import Functions, NegativeControl, Subject, Theorem, UnavailableError, asked_of, refuse_careless
from .verdict import Verdict

SMALL = (2, 6, 40)
"""Examples are looked for with numbers up to these: real objects are made of them."""


class HeapRun(Run):
    """All paths of one function on a symbolic heap; `granted` are the answers taken for granted on the current one."""

    def __init__(self, name: str, assumptions: Sequence[Condition], unroll: int, seconds: float) -> None:
        super().__init__(name, assumptions, unroll, seconds)
        self.granted: list[z3.BoolRef] = []
        self._only: set[tuple[bool, ...]] = set()
        self._solver = z3.SimpleSolver()
        self._told = 0
        self._of: Path | None = None

    def decide(self, condition: z3.BoolRef) -> bool:
        """The answer to a question of the running function; the other one, if it seems possible, is taken later."""
        condition = z3.simplify(condition)
        if z3.is_true(condition) or z3.is_false(condition):
            return bool(z3.is_true(condition))
        path = self._path
        self._tell(path)
        step = len(path.decisions)
        if step >= DECISIONS_MOST:
            raise ProofError(f"{self.name}: more than {DECISIONS_MOST} questions on one path: it does not end")
        if step < len(self._planned):
            answer = self._planned[step]
        else:
            answer = self._seems_possible(condition)
            if not answer or not self._seems_possible(z3.Not(condition)):
                self._only.add((*path.decisions, answer))
                path.forced.add(step)
            else:
                self._open.append([*path.decisions, False])
        path.decisions.append(answer)
        path.asked.append(condition)
        taken = condition if answer else z3.Not(condition)
        (self.granted if tuple(path.decisions) in self._only else path.hypotheses).append(taken)
        return answer

    def example(self, path: Path, more: Sequence[z3.BoolRef]) -> z3.ModelRef | None:
        """Some heap of the path, if one is found at once."""
        self._tell(path)
        return self._solver.model() if self._solver.check(*more) == z3.sat else None

    def _tell(self, path: Path) -> None:
        if self._of is not path:
            self._of, self._told, self._solver, self.granted = path, 0, z3.SimpleSolver(), []
            limit(self._solver, self.seconds)
        self._solver.add(*path.hypotheses[self._told :])
        self._told = len(path.hypotheses)

    def _seems_possible(self, condition: z3.BoolRef) -> bool:
        self.questions += 1
        return bool(self._solver.check(condition) != z3.unsat)


@dataclass(frozen=True, kw_only=True)
class HeapTheorem(Theorem):
    """A statement about all heaps that a scene allows, and all integers that satisfy the assumptions."""

    def settle(self, subject: Subject, seconds: float = 5.0, with_controls: bool = True) -> Verdict:
        """As every theorem; an example of a path that does not satisfy the claim on real objects refutes it, too."""
        start = time.perf_counter()
        verdict = _Settling(self, subject, seconds).verdict
        if with_controls and verdict.status in ("proved", "refuted"):
            for control in self.controls:
                verdict.note_control(control.wrong, control.raises, _Settling(self, subject, seconds, control).verdict)
        verdict.seconds = time.perf_counter() - start
        return verdict


@dataclass
class _Settling:
    """One theorem, or one negative control of it, for one core."""

    theorem: HeapTheorem
    subject: Subject
    seconds: float
    control: NegativeControl | None = None
    verdict: Verdict = field(init=False)

    def __post_init__(self) -> None:
        theorem, control = self.theorem, self.control
        self.verdict = Verdict(theorem.id, self.subject.name, "undecided", bounded=theorem.bounded)
        self._watched = Watched(self.subject.modules(), ignore=control is not None)
        self._claim = control.claim if control is not None and control.claim is not None else theorem.claim
        assume = control.assume if control is not None and control.assume is not None else theorem.assume
        self._functions = Functions(self.subject.find, control.roles if control is not None else {})
        self._replaying = Replaying(theorem.variables, assume, self.subject.memos)
        symbols = Values({name: variable(name, meaning) for name, meaning in theorem.variables.items()})
        try:
            assumptions = [condition for condition in assume(symbols) if condition is not True]
            self._run = HeapRun(f"{theorem.id} on {self.subject.name}", assumptions, theorem.unroll, self.seconds)
            self._account = Account(self._run.name, self._run.assumptions, self.seconds)
            question = satisfiable_question(f"{self._run.name}: the assumptions", self._run.assumptions)
            self.verdict.satisfiable.append(question)
            with symbolic_builtins(self.subject.modules()):
                for path in self._run.paths(lambda: conditions(self._claim(self._functions, symbols))):
                    self.verdict.paths += 1
                    if not self._settled(path):
                        break
                else:
                    refuse_careless(self._run.name, self._watched)
                    proved = self._account.proved()
                    if control is not None or self._replaying.hold(
                        self._run, self._watched, self._replay, self.verdict
                    ):
                        self.verdict.status = proved
            self.verdict.questions = self._run.questions
        except UnavailableError as error:
            self.verdict.status, self.verdict.message = "unavailable", str(error)
        except ProofError as error:
            self.verdict.status, self.verdict.message = "undecided", str(error)
            self.verdict.smtlib += [error.smtlib] if isinstance(error, UndecidedError) else []
        self.verdict.covered, self.verdict.roles = self._watched.functions(), asked_of(self._functions)

    def _settled(self, path: Path) -> bool:
        """Prove what the path owes. False, with the verdict changed, if it does not hold."""
        name = f"{self._run.name}: path {self.verdict.paths}"
        if isinstance(path.error, UnavailableError):
            raise path.error
        if path.obligations:
            raise ProofError(f"{name}: lemmas and laws have no place in a claim about a heap")
        granted = z3.And(*self._run.granted)
        claims, proofs = [granted], []
        if path.error is None:
            claims += map(term, path.value)
        else:
            name += f" raises {type(path.error).__name__}: {path.error}"
            claims.append(z3.BoolVal(False))
        claims = [claim for claim in claims if not z3.is_true(z3.simplify(claim))]
        found = each_follows(name, path.hypotheses, claims, self.seconds)
        for number, (claim, proved) in enumerate(zip(claims, found, strict=False)):
            if proved is None:
                return self._fails(path, claim, f"{name}, claim {number}")
            proofs.append(proved)
            self.verdict.smtlib.append(proved.obligation.smtlib())
        self._account.enter(path, proofs, [granted])
        return self.control is not None or self._example_holds(path)

    def _fails(self, path: Path, claim: z3.BoolRef, name: str) -> bool:
        """Find the counterexample, and run it on real objects. False."""
        formulas = [*path.hypotheses, z3.Not(claim)]
        models = (solve([*formulas, *self._small(most)], self._run.seconds)[1] for most in SMALL)
        model = next((model for model in models if model is not None), None)
        if model is None:
            smtlib = Obligation(name, tuple(path.hypotheses), claim).smtlib()
            raise UndecidedError(f"{name}: not proved, and no counterexample with numbers up to {SMALL[-1]}", smtlib)
        self.verdict.status = "refuted"
        self.verdict.counterexample = values = plain_values(model, self.theorem.variables)
        with self._watched:
            self.verdict.replayed, self.verdict.message = self._replay(values)
        fixed = [*formulas, *(fixed_to(unknown, value, self.theorem.variables) for unknown, value in values.items())]
        self.verdict.satisfiable.append(satisfiable_question(f"{name}: the counterexample", fixed))
        if not self.verdict.replayed:
            raise ProofError(f"{name}: {values} is a counterexample, but the real code: {self.verdict.message}")
        return False

    def _example_holds(self, path: Path) -> bool:
        """Run the claim on real objects, as they may be on this path. False, with the verdict changed, if it fails.

        The proof then says nothing about the core: it makes its real objects unlike the symbolic ones. Those satisfy
        the invariant at first, for instance, which a constructor may not bring about.
        """
        model = self._run.example(path, self._small(SMALL[1]))
        if model is None:
            return True
        values = plain_values(model, self.theorem.variables)
        with self._watched:
            fails, how = self._replay(values)
        self._replaying.note(values, self.verdict)
        if not fails:
            return True
        self.verdict.status, self.verdict.counterexample, self.verdict.replayed = "refuted", values, True
        self.verdict.message = f"{how}, on real objects, though path {self.verdict.paths} is proved on symbolic ones"
        fixed = [
            *path.hypotheses,
            *(fixed_to(unknown, value, self.theorem.variables) for unknown, value in values.items()),
        ]
        self.verdict.satisfiable.append(satisfiable_question(f"{self._run.name}: the counterexample", fixed))
        return False

    def _replay(self, values: Mapping[str, int]) -> tuple[bool, str]:
        """Run the claim on real objects. Whether it fails, and how."""
        try:
            results = conditions(self._claim(self._functions, Values(values)))
        except (UnavailableError, MemoryError):
            raise
        except FailedError as error:
            return True, str(error)
        except (TypeError, NameError) as error:  # more likely a role that is bound to the wrong thing
            return False, f"raises {type(error).__name__}: {error}"
        except AttributeError as error:  # a link that leads to None is what may well happen
            return error.obj is None, f"raises AttributeError: {error}"
        except Exception as error:
            return True, f"raises {type(error).__name__}: {error}"
        failed = [number for number, result in enumerate(results) if not result]
        return bool(failed), f"claim {failed[0]} of {len(results)} fails" if failed else "the claim holds"

    def _small(self, most: int) -> list[z3.BoolRef]:
        numbers = [
            symbol(name) for name, meaning in self.theorem.variables.items() if not meaning.startswith("whether")
        ]
        return [term(every(number >= -most - 1, number <= most)) for number in numbers]
