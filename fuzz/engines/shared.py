"""Findings that another target shows, too: those of a release do not drown those of what is put over it.

A finding is put aside if the other target, asked the same, shows the same at the same operation. Where
it goes another way before, the smallest trace is asked.
"""

from collections import Counter
from dataclasses import replace

from ..findings.finding import Finding, Trace
from ..findings.known import attention_of
from ..findings.oracle_names import LOCKSTEP
from ..opening.targets import open_target
from ..reports.summary import Found, Summary
from ..runs.judging import Judging
from ..targets.base import Target, close_target
from ..traces.replay import replay
from ..traces.shrink import NotReproducedError
from .plan import Plan
from .smallest import ALWAYS, COMPARE_CANDIDATES, judging_of, smallest


class SharedFindings:
    """Asks the target that `Plan.known_of` names, which is opened when it is needed."""

    def __init__(self, target: Target, plan: Plan) -> None:
        self._target, self._plan = target, plan
        self._other: Target | None = None
        self._shrunk: Counter[tuple[object, ...]] = Counter()

    def counts(self, found: Found, summary: Summary) -> bool:
        """Count the finding in the summary if the other target shows it; False if it does not.

        TargetUnavailableError if that one cannot be started.
        """
        if not self._plan.known_of or found.finding.is_our_bug:
            return False
        if self._other is None:
            self._other = open_target(self._plan.known_of, isolate=None)
        judging = judging_of(found, self._plan)
        if self._shows(found.finding, found.trace, judging) or self._small_shows(found, judging):
            what, where = found.finding.kind
            summary.shared[f"{found.finding.oracle}: {what} at {where}"] += 1
            return True
        return False

    def _small_shows(self, found: Found, judging: Judging) -> bool:
        """Ask the smallest trace; of many findings of one kind the first few, and then ever fewer."""
        key = (found.finding.key, attention_of(found.trace))
        self._shrunk[key] += 1
        times = self._shrunk[key]
        if times > ALWAYS and times & (times - 1):
            return False
        try:
            small = smallest(found, self._target, self._plan, max_candidates=COMPARE_CANDIDATES)
        except NotReproducedError:
            return False
        return self._shows(small.finding, small.trace, judging)

    def _shows(self, finding: Finding, trace: Trace, judging: Judging) -> bool:
        assert self._other is not None
        without_model = [name for name in judging.oracles if name != LOCKSTEP]
        judging = replace(judging, oracles=without_model or judging.oracles, notes=False)
        shown, _ = replay(trace, self._other, judging)
        return shown is not None and any(one.key == finding.key and one.step == finding.step for one in shown.every)

    def close(self) -> None:
        """End the other target."""
        if self._other is not None:
            close_target(self._other)
