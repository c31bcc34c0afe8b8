"""Smallest traces of findings, and what they tell: which finding is a known one, and which has a second cause.

Two mistakes may lead to one sentence: a salt that is left out of the name of a block, and an adapter. What the smallest
trace of a finding uses (`known.uses_of`) is what it cannot do without. If of two smallest traces each uses what the
other one does not, neither can stand for the other, and both are kept. Some calls count as one: whether a request is
freed or preempted, and whether somebody outside takes a block or shares it, is the same to most mistakes, and a
shrinker may end with either.
"""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from ..findings.finding import Trace
from ..findings.known import attention_of, uses_of
from ..findings.oracle_names import without
from ..reports.summary import Found, Summary
from ..runs.judging import Judging
from ..targets.base import Target
from ..traces.reducer import MAX_CANDIDATES
from ..traces.replay import replay
from ..traces.shrink import NotReproducedError, Shrunk, shrink
from .plan import Plan

ALWAYS = 4
"""So many findings of one cause are shrunk and compared; of those behind, the 8th, 16th, 32nd, ..."""
COMPARE_CANDIDATES = 5_000
"""Replays for a comparison at most. No limit in seconds: the same seed finds the same on every machine."""
_ALIKE = {"Preempt": "Free", "Touch": "Take"}
Form = frozenset[str]


class KnownCounter:
    """Compares the findings of one engine with the known ones."""

    def __init__(self, target: Target, plan: Plan) -> None:
        self._target, self._plan = target, plan
        self._times: Counter[tuple[object, ...]] = Counter()
        self._last: dict[tuple[object, ...], str | None] = {}

    def counts(self, found: Found, summary: Summary) -> bool:
        """Count the finding in the summary if it is a known one; False if it is new.

        KeyboardInterrupt if Ctrl-C ends the comparison; what is not known by then is in the summary as a finding.
        """
        if not any(entry.concerns(found.finding, found.trace) for entry in self._plan.known):
            return False
        key = (found.finding.key, attention_of(found.trace))
        self._times[key] += 1
        times = self._times[key]
        compared = times <= ALWAYS or times & (times - 1) == 0
        if compared:
            self._last[key] = self._compared(found, summary)
        id = self._last[key]
        if id is None:
            return False
        summary.known[id] += 1
        summary.compared[id] += compared
        return True

    def _compared(self, found: Found, summary: Summary) -> str | None:
        """Id of the entry that the finding with its smallest trace matches."""
        try:
            small = smallest(found, self._target, self._plan, max_candidates=COMPARE_CANDIDATES)
        except NotReproducedError:
            return None
        entries = (entry for entry in self._plan.known if entry.matches(small.finding, small.trace))
        id = next((entry.id for entry in entries), None)
        if small.interrupted:
            if id is None:
                summary.add_found(found)
            raise KeyboardInterrupt
        return id


def smallest(
    found: Found,
    target: Target,
    plan: Plan,
    *,
    max_candidates: int = MAX_CANDIDATES,
    max_seconds: float | None = None,
) -> Shrunk:
    """Shrink what a run has found, the properties left out that were violated before. Arguments and errors as of
    `shrink`."""
    trace, kind, judging = found.trace, found.finding.kind, judging_of(found, plan)
    return shrink(trace, kind, target, judging, max_candidates=max_candidates, max_seconds=max_seconds)


def judging_of(found: Found, plan: Plan) -> Judging:
    """What shows the finding again: the plan's oracles without what was violated before it in its run."""
    judging = plan.judging()
    return replace(judging, oracles=without(tuple(judging.oracles), found.passed))


def needed_oracles(shrunk: Shrunk, found: Found, target: Target, plan: Plan) -> tuple[str, ...]:
    """The oracles that show the smallest trace's finding: those of the plan, without what they report before it."""
    if found.passed:
        shown, _ = replay(shrunk.trace, target, plan.judging())
        if shown is None or shown.key != shrunk.finding.key:
            return tuple(judging_of(found, plan).oracles)
    return plan.oracles


def form_of(smallest: Trace) -> Form:
    """What a smallest trace uses, as far as it tells causes apart."""
    return frozenset(_ALIKE.get(use, use) for use in uses_of(smallest))


def with_other_causes(found: Found, smallest_of_it: Trace, target: Target, plan: Plan, end: float) -> Iterator[Found]:
    """Those of the samples of a finding whose smallest traces are of another form than its own, one of each form.

    They are counted for themselves from now on. What has not been looked at by `end`, on the monotonic clock, stays
    with the finding; Ctrl-C ends it, too.
    """
    forms = [form_of(smallest_of_it)]
    for sample in found.samples:
        seconds = end - time.monotonic()
        if seconds <= 0:
            return
        try:
            small = smallest(sample, target, plan, max_candidates=COMPARE_CANDIDATES, max_seconds=seconds)
        except NotReproducedError:
            continue
        form = form_of(small.trace)
        if small.complete and not any(form <= other or form >= other for other in forms):
            forms.append(form)
            sample.form = tuple(sorted(form))
            found.times -= 1
            yield sample
        if small.interrupted:
            return
