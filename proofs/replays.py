"""What is proved is run on plain numbers: the real function, the real claim, and no symbol anywhere.

A proof is about what happens on symbols. Should anything happen otherwise on numbers, in spite of all that is refused
(`refusal`, `guard`), then a run shows it: on an example of each path, and on random models of the assumptions
(`samples`), large ones among them. One run that fails, and the theorem is refuted. The runs must leave nothing behind,
either (`state`): what counts its calls might be another function at the next one.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .claims import MET_PLAINLY
from .coverage import Watched
from .examples import Meanings, Values, plain_values, variable
from .samples import Domain, Plain, Sampler, constants
from .solver import ProofError, solve
from .state import State
from .symbolic import Condition, Run
from .verdict import Verdict

RANDOM = 60
"""Random models of the assumptions on which every proved theorem is run."""
EXAMPLES = 40
"""Examples of paths from which random models are changed."""


class Replaying:
    """The runs of one theorem on plain values."""

    def __init__(
        self, variables: Meanings, assume: Callable[[Any], Iterable[Condition]], memos: frozenset[str] = frozenset()
    ) -> None:
        """`memos`: what a run may leave behind (`Subject.memos`)."""
        self._variables, self._assume, self._memos = variables, assume, memos
        self._known: list[Plain] = []

    def note(self, values: Plain, verdict: Verdict) -> None:
        """Note a run on an example of a path."""
        if len(self._known) < EXAMPLES:
            self._known.append(values)
        verdict.note_replay(values)

    def allows(self, values: Mapping[str, int]) -> bool:
        """Whether the assumptions hold of plain values; those that raise an error do not."""
        try:
            return all(self._assume(Values(values)))
        except (ArithmeticError, ValueError, LookupError, AssertionError):
            return False

    def hold(
        self, run: Run, watched: Watched, replay: Callable[[Mapping[str, int]], tuple[bool, str]], verdict: Verdict
    ) -> bool:
        """Run the claim on random models. False, with the verdict `refuted`, if one fails.

        ProofError if there is no model, or if a run leaves something behind.
        """
        seed, codes = zlib.crc32(verdict.theorem.encode()), list(watched.codes())
        state = State(codes, self._memos)
        numbers = sorted(state.numbers() | {*constants(codes)})
        sampler = Sampler(self._domain(run), self._plain_known(run), numbers, seed)
        sampler.up_to(replay)
        MET_PLAINLY.clear()
        before = state.shown()
        ran = 0
        for values in sampler.draw(RANDOM):
            fails, how = replay(values)
            ran += 1
            verdict.note_replay(values)
            if fails or how.startswith("raises "):
                verdict.note_counterexample(values, f"{how}, although it is proved: symbols differ from numbers here")
                return False
        if ran < RANDOM:
            raise ProofError(f"{run.name}: no plain values satisfy the assumptions: a statement about nothing")
        changed = state.changed(before)
        if changed:
            raise ProofError(f"{run.name}: what is run leaves something behind: {changed} is another after {ran} runs")
        vacuous = run.vacuous(MET_PLAINLY)
        if vacuous:
            raise ProofError(f"{run.name}: the condition in {vacuous}, never holds: what it implies is not said")
        return True

    def _domain(self, run: Run) -> Domain:
        symbols = {name: variable(name, meaning).term for name, meaning in self._variables.items()}
        truths = frozenset(name for name, meaning in self._variables.items() if meaning.startswith("whether"))
        return Domain(tuple(self._variables), truths, self.allows, run.assumptions, symbols)

    def _plain_known(self, run: Run) -> list[Plain]:
        """Values from which others are changed."""
        if not self._known:
            model = solve(run.assumptions, run.seconds)[1]
            self._known += [] if model is None else [plain_values(model, self._variables)]
        return [values for values in self._known if self.allows(values)]
