"""What a change has introduced, in a trace of its own: without a mistake of the old side that makes it shorter.

The smallest trace of a finding may lead through something that the old side has wrong, as an option that it does not
get right saves two operations. Then both are wrong in it, and nobody can tell what the change did. So a trace is looked
for in which the old side has nothing wrong: among the runs that showed the finding, and in what is simpler than these.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from ..findings.finding import Finding, Trace
from ..findings.oracle_names import DIFFERENCE
from ..traces.shrink import Keeps, NotReproducedError, Shrunk
from .verify_effects import BothSides

Shrinks: TypeAlias = Callable[[Trace, Keeps, float | None], Shrunk]
"""Shrinks a trace towards one that is so, in so many seconds. NotReproducedError if it does not show the finding."""


def smallest_introduced(
    sides: BothSides, traces: Iterable[Trace], oracles: Sequence[str], shrinks: Shrinks, seconds: float | None
) -> Shrunk | None:
    """The smallest trace of a finding in which the new side is wrong and the old one is right; None if none is found.

    `traces`: of runs that showed the finding. TooLongError if the time of the sides is over.
    """
    end = None if seconds is None else time.monotonic() + seconds

    def is_introduced(trace: Trace, finding: Finding) -> bool:
        return sides.introduces(trace, oracles, None if finding.oracle == DIFFERENCE else finding)

    mixed = []
    for trace in sorted(traces, key=lambda one: len(one.operations)):
        if sides.introduces(trace, oracles):
            mixed = [trace]
            break
        if not sides.alike(trace) and sides.is_wrong(trace, oracles):
            mixed.append(trace)
    for number, trace in enumerate(mixed):
        left = None if end is None else max(0.0, end - time.monotonic()) / (len(mixed) - number)
        try:
            small = shrinks(trace, is_introduced, left)
        except NotReproducedError:
            continue
        if sides.introduces(small.trace, oracles):
            return small
    return None
