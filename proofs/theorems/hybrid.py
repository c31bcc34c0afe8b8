"""The hit that all groups of a core have in common (T14), settled on every cache in small scopes."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

from ...model.ops import SLIDING_FAMILY
from ..hybrid_scopes import Scope, scopes
from ..hybrid_search import Counterexample, Search, Tally, exhaust
from ..hybrid_subjects import WRONG, exact_search
from ..theorem import Statement, Subject, UnavailableError
from ..theorem import Verdict as Settled
from ..watched import Watched


def loops(scope: Scope) -> bool:
    """True if types are asked more than once. One round is enough for full attention and one other type."""
    return len({group.spec for group in scope.groups}) > 2 or scope.groups[0].kind != "full"


def chunk_astride(scope: Scope) -> bool:
    """Full attention with chunks that begin inside a block, and without a second round."""
    return not loops(scope) and any(
        group.kind == "chunked" and group.chunk % group.block_size and group.block_size % group.chunk
        for group in scope.groups
    )


def _eagle_windows(scope: Scope) -> list[int]:
    return [i for i, group in enumerate(scope.groups) if group.kind in SLIDING_FAMILY and scope.is_eagle(i)]


def cut_twice(scope: Scope) -> bool:
    """An eagle window longer than the alignment, in smaller blocks."""
    windows = [scope.groups[i] for i in _eagle_windows(scope)]
    return any(group.block_size < scope.alignment < group.window - 1 for group in windows)


def stale_eagle(scope: Scope) -> bool:
    """Several eagle groups of which one is a window, or one that is a window of one token, asked in several rounds."""
    windows = _eagle_windows(scope)
    several = len({scope.groups[i].spec for i in windows}) > 1
    return loops(scope) and (several or any(scope.groups[i].window == 1 for i in windows))


EXCEPTIONS: dict[str, Callable[[Scope], bool]] = {
    "chunk astride": chunk_astride,
    "cut twice": cut_twice,
    "stale eagle": stale_eagle,
}


def usual(scope: Scope) -> bool:
    """True outside of the situations in which the search is known to go wrong."""
    return not any(known(scope) for known in EXCEPTIONS.values())


@dataclass(frozen=True, kw_only=True)
class Exhausted(Statement):
    """Something that every search in some small scopes must satisfy. Its negative controls are altered searches."""

    concerns: Callable[[Scope], bool]
    wrong: tuple[str, ...]
    """Names of the altered searches (`hybrid_subjects.WRONG`) that it must refute."""

    def settle(self, subject: Subject, seconds: float = 5.0, with_controls: bool = True) -> Settled:
        """Try every cache and limit in every scope. The counterexample is the search itself, run on the real code."""
        start = time.perf_counter()
        settled = Settled(self.id, subject.name, "proved")
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

    def _exhaust(self, subject: Subject, search: Callable[[Scope], Search], settled: Settled) -> None:
        worst: list[tuple[Counterexample, str]] = []
        watched = Watched(subject.modules())
        for scope in filter(self.concerns, scopes()):
            # Watching slows a search down by half, and a short one goes through the same functions as a long one.
            with watched if scope.tokens <= 3 else nullcontext():
                tally = exhaust(scope, search(scope))
            settled.paths += tally.searches
            worst += [(example, f"{scope.family}: {verdict}") for verdict, example in tally.smallest.items()]
            if not tally.smallest and (problem := _untidy(tally)):
                worst.append((Counterexample(0, (), None, 0, ()), f"{scope.family}: {problem}"))
        settled.covered = watched.functions()
        if worst:
            example, text = min(worst, key=lambda found: (not found[0].registered, found[0].limit))
            settled.status, settled.replayed = "refuted", True
            settled.message = f"{text}: {example}" if example.registered else text
            settled.counterexample = {"limit": example.limit, "found": example.found or 0, "longest": example.longest}

    def _refute(self, name: str, settled: Settled) -> None:
        """The altered search must fail in a scope in which the right one does not."""
        for scope in filter(self.concerns, scopes()):
            if not _right(exhaust(scope, WRONG[name](scope))) and _right(exhaust(scope, exact_search(scope))):
                settled.controls[name] = "refuted"
                return
        settled.controls[name], settled.status = "proved", "undecided"
        settled.message = f"negative control '{name}' is not refuted. {settled.message}"


def _right(tally: Tally) -> bool:
    return not tally.smallest and not _untidy(tally)


def _untidy(tally: Tally) -> str:
    """What is wrong with the way to the answers and their rows; empty if nothing is."""
    if tally.growing:
        return f"the candidate grew in {tally.growing} searches"
    return f"{tally.untidy} answers with a row of another length than the hit, or a spare block" if tally.untidy else ""


_ALWAYS = (
    "kept as in the reference: an eagle window in smaller blocks than the alignment loses one alignment on hits "
    "shorter than the window; full attention with chunks that begin inside a block counts a hit whose tokens are not "
    "there; several eagle windows that are asked in turn may find no block to give up"
)
_BOUNDED = (
    "every cache and every limit up to 10 tokens in 170 scopes of 2 and 3 groups; why a descent is right for any "
    "length if each type's answer is its greatest valid length, stands in proofs/hybrid_search.py"
)

T14 = Exhausted(
    id="T14",
    sentence="The search for the hit of several groups ends, its candidate never grows, and it finds the longest hit "
    "that all have in common, but for the three situations of T14.always.",
    formal="longest_hit(limit) == max {L <= limit: every group has all that the query at L reads, aligned}; "
    "limit >= L1 >= L2 >= ... >= 0; len(row) * b == L in every group",
    concerns=usual,
    wrong=(
        "ends after one round",
        "gives up no block",
        "leaves no token to compute",
        "does not cut to the common length",
        "looks for states beyond the candidate",
    ),
    bounded=_BOUNDED,
    refuted_on={
        "vllm==0.23.0": "an eagle model with mamba counts tokens as computed whose state is not there: wrong output"
    },
    meaning="What is cached and can be used is used, and what is used is there.",
)

T14_ALWAYS = Exhausted(
    id="T14.always",
    sentence="The hit of several groups is the longest one that all have in common, always.",
    formal="as T14, without exceptions",
    concerns=lambda scope: not usual(scope),
    wrong=("gives up a block in every round",),
    bounded=_BOUNDED,
    refuted_on=dict.fromkeys(("model", "impl", "vllm==0.23.0"), _ALWAYS),
)

THEOREMS = (T14, T14_ALWAYS)
