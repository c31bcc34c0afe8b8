"""In which situations two targets differ: found by many short comparisons, each with its smallest trace."""

from dataclasses import dataclass, field, replace

from ..engines.plan import Plan
from ..engines.seeded import run_random
from ..findings.finding import Finding, Trace
from ..reports.summary import Summary
from ..runs.pair import Pair, Strictness
from ..traces.shrink import NotReproducedError, shrink

SHRINK_SECONDS = 20.0
"""For each situation."""


@dataclass(frozen=True)
class Situation:
    """One way in which they differ."""

    finding: Finding
    trace: Trace
    times: int
    """Runs that ended with it."""


@dataclass
class Comparison:
    """All of them, as strictly as declared."""

    strictness: Strictness
    summary: Summary
    situations: list[Situation] = field(default_factory=list)
    """The most frequent first."""


def compare(pair: Pair, strictness: Strictness, plan: Plan) -> Comparison:
    """Run the plan, and shrink the shortest trace of each situation. Ctrl-C ends it with what there is so far."""
    both = replace(pair, strictness=strictness)
    comparison = Comparison(strictness, Summary(both.name, "random", plan.seed, oracles=()))
    try:
        run_random(both, replace(plan, oracles=(), keep_going=True), comparison.summary)
        for found in sorted(comparison.summary.found.values(), key=lambda found: -found.times):
            comparison.situations.append(_smallest(found.finding, found.trace, found.times, both))
    except KeyboardInterrupt:
        comparison.summary.interrupted = True
    return comparison


def _smallest(finding: Finding, trace: Trace, times: int, pair: Pair) -> Situation:
    try:
        small = shrink(trace, finding.kind, pair, max_seconds=SHRINK_SECONDS)
    except NotReproducedError:
        return Situation(finding, trace, times)
    return Situation(small.finding, small.trace, times)
