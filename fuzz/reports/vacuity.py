"""Whether a run tested anything: a target that refuses everything, builds nothing or never hits looks green otherwise.

Each judgement needs runs of a least size; what is smaller is not failed for it. Our core, on every attention type, is
far from all limits: in runs of 4,000 operations at most 55% of its allocations were refused, and at least 1.7% of its
lookups hit (EPYC, 2026-11-22).
"""

from collections.abc import Iterator
from typing import NamedTuple

from ..findings.oracle_names import EVERY, SHADOW
from ..findings.words import plural
from ..runs.run import MAY_STARVE, SERVED_AGAIN, STARVED_REFUSED
from ..targets.declarations import STARVED
from .summary import Summary

LEAST_OPERATIONS = 100
"""Operations from which on at least one allocation must have succeeded."""
LEAST_ALLOCATIONS = 100
"""Allocations from which on their share of refusals is judged."""
LEAST_LOOKUPS = 1_000
"""Lookups, with caching on, from which on one must have hit; a fifth of them is enough for a warning."""
MOST_REFUSED, MANY_REFUSED = 0.9, 0.75
"""Share of allocations that may be refused before the run counts for nothing, and before there is a warning.

Of all calls of `Allocate`, not of requests: a request that was refused may be asked for again at once.
"""

MOST_NAMES = 4
"""Attention types that a warning names."""


class Vacuity(NamedTuple):
    """What is to be said about how much a run tested."""

    problem: str | None
    """Why it tested nothing, and what to look at, in one line; None if it did, or found something."""
    warnings: tuple[str, ...] = ()
    """What else looks wrong, a line each."""


def vacuity(summary: Summary) -> Vacuity:
    """How much a run tested. What Ctrl-C ended, or is allowed to test nothing, has warnings only."""
    if summary.finding is not None:
        return Vacuity(None)
    problems, warnings = [*_problems(summary)], [*_warnings(summary)]
    if summary.interrupted or summary.allow_vacuous:
        return Vacuity(None, (*problems[:1], *warnings))
    return Vacuity(problems[0], tuple(warnings)) if problems else Vacuity(None, tuple(warnings))


def _problems(summary: Summary) -> Iterator[str]:
    """Reasons why the run tested nothing, the first cause first."""
    allocations, done = _allocations(summary)
    if not summary.runs:
        yield "no run was made; give more time or operations"
    elif summary.unbuilt.total() == summary.runs:
        yield (
            f"no core was built in {plural(summary.runs, 'run')}: {_most(summary, 'start')}; look at what start does "
            "with the shape, or say in `lacks` and `block_sizes` what it cannot have"
        )
    elif not summary.operations:
        yield "cores were built, but no operation was made; give more time or operations"
    elif summary.operations >= LEAST_OPERATIONS and not done:
        where = "Allocate" if allocations else "Submit"
        yield (
            f"no allocation succeeded in {plural(summary.operations, 'operation')}: {_most(summary, where)}; look at "
            f"what step does with {where}"
        )
    elif allocations >= LEAST_ALLOCATIONS and done < (1 - MOST_REFUSED) * allocations:
        yield (
            f"{_refused(summary)}, most of them: {_most(summary, 'Allocate')}; look at Allocate, or say in `lacks` "
            "what it cannot do"
        )
    elif _is_blind(summary):
        yield "the shadow memory saw no block tables; show them, or choose contract and liveness with --oracle"
    if summary.reached[MAY_STARVE] and not summary.reached[SERVED_AGAIN]:
        yield (
            "calls were to be refused, and none was whose allocation is served when asked again (asked "
            f"{plural(summary.operation_counts[STARVED], 'time')}, {summary.reached[STARVED_REFUSED]:,} refused); "
            "look at whether an allocation makes the calls that REFUSES or --refuse names, or run more operations"
        )
    lookups, hits = summary.hits["lookups"], summary.hits["hits"]
    if lookups >= LEAST_LOOKUPS and not hits:
        yield (
            f"none of {plural(lookups, 'lookup')} with caching on found anything; look at Lookup and at what Advance "
            "makes known to it, or say `Shape.caching` in `lacks`"
        )


def _is_blind(summary: Summary) -> bool:
    """True if the shadow memory alone was to judge, and had no tables to read through."""
    alone = {*summary.oracles}.intersection(EVERY) == {SHADOW}
    hidden = "S3" in {name for name, _ in summary.unobserved}
    return alone and hidden and not summary.reached["shadow: tokens read back"]


def _warnings(summary: Summary) -> Iterator[str]:
    allocations, done = _allocations(summary)
    lookups, hits = summary.hits["lookups"], summary.hits["hits"]
    never = [name for name in sorted(summary.attention) if summary.unbuilt[name] == summary.attention[name]]
    if never and summary.operations:
        more = f" and {len(never) - MOST_NAMES} more" if len(never) > MOST_NAMES else ""
        yield f"never built: {', '.join(never[:MOST_NAMES])}{more} ({_most(summary, 'start')})"
    if 0 < summary.operations < LEAST_OPERATIONS:
        yield f"{plural(summary.operations, 'operation')} are too few to say that anything was tested"
    elif allocations >= LEAST_ALLOCATIONS and (1 - MOST_REFUSED) <= done / allocations < 1 - MANY_REFUSED:
        yield f"{_refused(summary)}, most of them: {_most(summary, 'Allocate')}"
    if LEAST_LOOKUPS // 5 <= lookups < LEAST_LOOKUPS and not hits:
        yield f"none of {plural(lookups, 'lookup')} with caching on has found anything so far"


def _allocations(summary: Summary) -> tuple[int, int]:
    """How many allocations were asked for, and how many of them succeeded."""
    results = {result: times for (kind, result), times in summary.outcomes.items() if kind == "Allocate"}
    return sum(results.values()), results.get("Done", 0)


def _refused(summary: Summary) -> str:
    allocations, done = _allocations(summary)
    return f"{1 - done / allocations:.0%} of {plural(allocations, 'allocation')} were refused or failed"


def _most(summary: Summary, kind: str) -> str:
    """The most frequent reason why operations of this kind did not return."""
    reasons = {why: times for (operation, _, why), times in summary.causes.items() if operation == kind}
    if not reasons:
        return "it was never asked for" if kind != "start" else "it did not say why"
    why = max(reasons, key=lambda reason: reasons[reason])
    return f"{why} ({plural(reasons[why], 'time')})"
