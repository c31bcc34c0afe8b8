"""The hit that all groups of a core have in common (T14), settled on every cache in small scopes."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

from ..coverage import Watched
from ..exhaustion import Trial, TriedStatement
from ..hybrid_scopes import Scope, scopes
from ..hybrid_search import Counterexample, Search, Searches, exhaust
from ..hybrid_subjects import WRONG, repaired_search
from ..kernel import Evidence
from ..theorem import Subject


@dataclass(frozen=True, kw_only=True)
class Exhausted(TriedStatement):
    """Something that every search in some small scopes must satisfy. Its negative controls are altered searches."""

    altered: tuple[str, ...]
    """Names of the altered searches (`hybrid_subjects.WRONG`) that it must refute."""

    def parts(self, subject: Subject) -> Callable[[Scope], Search]:
        """The search of a scope."""
        search: Callable[[Scope], Search] = subject.find("hybrid_search")
        return search

    def tried(self, parts: Callable[[Scope], Search], watched: Watched) -> Trial:
        """Every cache and limit in every scope. The counterexample is the search itself, run on the real code."""
        worst: list[tuple[Counterexample, str]] = []
        evidence = Evidence()
        for scope in scopes():
            # Watching slows a search down by half, and a short one goes through the same functions as a long one.
            with watched if scope.tokens <= 3 else nullcontext():
                tally = exhaust(scope, parts(scope), evidence)
            worst += [(example, f"{scope.family}: {verdict}") for verdict, example in tally.smallest.items()]
            if not tally.smallest and (problem := _untidy(tally)):
                worst.append((Counterexample(0, (), None, 0, ()), f"{scope.family}: {problem}"))
        if not worst:
            return Trial(evidence)
        example, text = min(worst, key=lambda found: (not found[0].registered, found[0].limit))
        numbers = {"limit": example.limit, "found": example.found or 0, "longest": example.longest}
        return Trial(evidence, f"{text}: {example}" if example.registered else text, numbers)

    def refutations(self, parts: object) -> Iterator[tuple[str, bool]]:
        """Each altered search must fail in a scope in which the right one does not."""
        return ((name, any(map(partial(_fails_alone, name), scopes()))) for name in self.altered)


def _fails_alone(name: str, scope: Scope) -> bool:
    return not _right(exhaust(scope, WRONG[name](scope))) and _right(exhaust(scope, repaired_search(scope)))


def _right(tally: Searches) -> bool:
    return not tally.smallest and not _untidy(tally)


def _untidy(tally: Searches) -> str:
    """What is wrong with the rows of the answers; empty if nothing is."""
    return f"{tally.untidy} answers with a row of another length than the hit, or a spare block" if tally.untidy else ""


T14 = Exhausted(
    id="T14",
    sentence="A lookup finds the longest hit that all groups have in common: behind it every token that the next query "
    "reads is cached and, where drafts need it, the block behind; its rows hold these blocks and nulls.",
    altered=(
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
        "not there: wrong output",
        "vllm==0.33.0": "chunks and eagle together are an AssertionError (T9.chunked), and its search loses hits "
        "(`eagle-in-turn`, `eagle-cut-twice`)",
    },
    meaning="What is cached and can be used is used, and what is used is there.",
)

THEOREMS = (T14,)
