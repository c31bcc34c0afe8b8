"""Statements that are settled by trying every case of a small scope, on the real code."""

import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from .coverage import Watched
from .kernel import Evidence, exhausted
from .theorem import Statement, Subject, UnavailableError
from .verdict import Verdict

Wrong = tuple[str, str, str, str]
"""A negative control: what is wrong, the function, one line of it, and what stands there instead."""


@dataclass(frozen=True, kw_only=True)
class TriedStatement(Statement):
    """What is claimed holds in every case that `bounded` speaks of."""

    wrong: ClassVar[Sequence[Wrong]] = ()

    @abstractmethod
    def parts(self, subject: Subject) -> Any:
        """What of the core is tried. UnavailableError if it has no such thing."""

    @abstractmethod
    def tried(self, parts: Any) -> tuple[Evidence, str]:
        """The cases that were tried, and what is wrong in the last of them; nothing if all are right."""

    @abstractmethod
    def is_refuted(self, parts: Any, name: str, line: str, instead: str) -> bool:
        """Whether the core with this line changed is found wrong; a line that does not stand there is no control."""

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
        with watched:
            evidence, problem = self.tried(parts)
        verdict.note_evidence(evidence)
        verdict.covered = watched.functions()
        if problem:
            verdict.status, verdict.replayed, verdict.message = "refuted", True, problem
            verdict.counterexample = {"case": verdict.paths}
        else:
            verdict.status = exhausted(self.id, evidence, self.bounded)
        for what, *change in self.wrong if with_controls else ():
            verdict.controls[what] = "refuted" if self.is_refuted(parts, *change) else "undecided"
        if "undecided" in verdict.controls.values():
            verdict.status, verdict.message = "undecided", f"not every negative control is refuted: {verdict.controls}"
        verdict.seconds = time.perf_counter() - start
        return verdict
