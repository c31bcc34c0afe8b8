"""The hit that all groups of a core have in common (T14), settled on every cache in small scopes."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

from ..coverage import Watched
from ..hybrid_scopes import Scope, scopes
from ..hybrid_search import Counterexample, Search, Searches, exhaust
from ..hybrid_subjects import WRONG, repaired_search
from ..kernel import Evidence, exhausted
from ..theorem import Statement, Subject, UnavailableError
from ..verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Exhausted(Statement):
    """Something that every search in some small scopes must satisfy. Its negative controls are altered searches."""

    wrong: tuple[str, ...]
    """Names of the altered searches (`hybrid_subjects.WRONG`) that it must refute."""

    def settle(self, subject: Subject, seconds: float = 5.0, with_controls: bool = True) -> Verdict:
        """Try every cache and limit in every scope. The counterexample is the search itself, run on the real code."""
        start = time.perf_counter()
        settled = Verdict(self.id, subject.name, "undecided", bounded=self.bounded)
        try:
            search = subject.find("hybrid_search")
        except UnavailableError as error:
            settled.status, settled.message = "unavailable", str(error)
            return settled
        self._exhaust(subject, search, settled)
        for name in self.wrong if with_controls else ():
            self._refute(name, settled)
        settled.seconds = time.perf_counter() - start
        return settled

    def _exhaust(self, subject: Subject, search: Callable[[Scope], Search], settled: Verdict) -> None:
        worst: list[tuple[Counterexample, str]] = []
        watched, evidence = Watched(subject.modules()), Evidence()
        for scope in scopes():
            # Watching slows a search down by half, and a short one goes through the same functions as a long one.
            with watched if scope.tokens <= 3 else nullcontext():
                tally = exhaust(scope, search(scope), evidence)
            worst += [(example, f"{scope.family}: {verdict}") for verdict, example in tally.smallest.items()]
            if not tally.smallest and (problem := _untidy(tally)):
                worst.append((Counterexample(0, (), None, 0, ()), f"{scope.family}: {problem}"))
        settled.covered = watched.functions()
        settled.note_evidence(evidence)
        if worst:
            example, text = min(worst, key=lambda found: (not found[0].registered, found[0].limit))
            settled.status, settled.replayed = "refuted", True
            settled.message = f"{text}: {example}" if example.registered else text
            settled.counterexample = {"limit": example.limit, "found": example.found or 0, "longest": example.longest}
        else:
            settled.status = exhausted(self.id, evidence, self.bounded)

    def _refute(self, name: str, settled: Verdict) -> None:
        """The altered search must fail in a scope in which the right one does not."""
        for scope in scopes():
            if not _right(exhaust(scope, WRONG[name](scope))) and _right(exhaust(scope, repaired_search(scope))):
                settled.controls[name] = "refuted"
                return
        settled.controls[name] = settled.status = "undecided"
        settled.message = f"negative control '{name}' is not refuted. {settled.message}"


def _right(tally: Searches) -> bool:
    return not tally.smallest and not _untidy(tally)


def _untidy(tally: Searches) -> str:
    """What is wrong with the rows of the answers; empty if nothing is."""
    return f"{tally.untidy} answers with a row of another length than the hit, or a spare block" if tally.untidy else ""


T14 = Exhausted(
    id="T14",
    sentence="A lookup finds the longest hit that all groups have in common: behind it every token that the next query "
    "reads is cached and, where drafts need it, the block behind; its rows hold these blocks and nulls.",
    wrong=(
        "ends after one round",
        "gives up no block",
        "gives up a block in the first round only",
        "leaves no token to compute",
        "does not cut to the common length",
        "looks for states beyond the candidate",
        "forgets the first block that is read",
    ),
    bounded="every cache and every limit up to 10 tokens in small scopes of 2 and 3 groups",
    refuted_on={
        "vllm==0.23.0": "its search loses hits, and an eagle model with mamba counts tokens as computed whose state is "
        "not there: wrong output"
    },
    meaning="What is cached and can be used is used, and what is used is there.",
)

THEOREMS = (T14,)
