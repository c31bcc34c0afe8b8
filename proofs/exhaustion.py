"""Statements that are settled by trying every case of a small scope, on the real code."""

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from .coverage import Watched
from .kernel import Evidence, exhausted
from .theorem import Statement, Subject, UnavailableError
from .verdict import Verdict

Wrong = tuple[str, str, str, str]
"""A negative control: what is wrong, the function, one line of it, and what stands there instead."""


class Trial(NamedTuple):
    """What trying all cases came to."""

    evidence: Evidence
    """The cases that were tried."""
    problem: str = ""
    """What is wrong in the last of them; nothing if all are right."""
    counterexample: Mapping[str, int] | None = None
    """In numbers; by default that of the case."""


def first_wrong(cases: Iterable[tuple[object, Callable[[], str]]]) -> Trial:
    """Try cases, of which each says what is wrong in it, up to the first in which something is; an error is, too."""
    evidence = Evidence()
    for case, said in cases:
        try:
            wrong = said()
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        evidence.tried(case, not wrong)
        if wrong:
            return Trial(evidence, f"{case}: {wrong}")
    return Trial(evidence)


@dataclass(frozen=True, kw_only=True)
class TriedStatement(Statement):
    """What is claimed holds in every case that `bounded` speaks of."""

    wrong: ClassVar[Sequence[Wrong]] = ()

    @abstractmethod
    def parts(self, subject: Subject) -> Any:
        """What of the core is tried. UnavailableError if it has no such thing."""

    @abstractmethod
    def tried(self, parts: Any, watched: Watched) -> Trial:
        """Try the cases; within `watched` as many as come to every function that the claim is about."""

    def is_refuted(self, parts: Any, name: str, line: str, instead: str) -> bool:
        """Whether the core with this line changed is found wrong; a line that does not stand there is no control."""
        raise NotImplementedError

    def refutations(self, parts: Any) -> Iterator[tuple[str, bool]]:
        """What is wrong in each negative control, and whether it is refuted."""
        return ((what, self.is_refuted(parts, *change)) for what, *change in self.wrong)

    def settle(self, subject: Subject, seconds: float = 5.0, with_controls: bool = True) -> Verdict:
        """Try each case; no question goes to a solver, so that `seconds` bounds none."""
        start = time.perf_counter()
        verdict = Verdict(self.id, subject.name, "undecided", bounded=self.bounded)
        try:
            parts = self.parts(subject)
        except UnavailableError as error:
            verdict.status, verdict.message = "unavailable", str(error)
            return verdict
        watched = Watched(subject.modules())
        trial = self.tried(parts, watched)
        verdict.covered = watched.functions()
        decide(verdict, trial, self.refutations(parts) if with_controls else ())
        verdict.seconds = time.perf_counter() - start
        return verdict


def decide(verdict: Verdict, trial: Trial, controls: Iterable[tuple[str, bool]]) -> None:
    """Write down what the trial and the negative controls came to."""
    verdict.note_evidence(trial.evidence)
    if trial.problem:
        verdict.status, verdict.replayed, verdict.message = "refuted", True, trial.problem
        verdict.counterexample = dict(trial.counterexample or {"case": verdict.paths})
    else:
        verdict.status = exhausted(verdict.theorem, trial.evidence, verdict.bounded)
    verdict.controls |= {what: "refuted" if refuted else "undecided" for what, refuted in controls}
    if "undecided" in verdict.controls.values():
        missed = f"not every negative control is refuted: {verdict.controls}"
        verdict.status, verdict.message = "undecided", f"{missed}. {verdict.message}" if verdict.message else missed
