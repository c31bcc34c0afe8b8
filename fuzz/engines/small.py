"""The smallest trace of a finding, if it still shows the same cause, and the oracles that show it."""

from ..reports.summary import Found
from ..targets.base import Target
from ..traces.shrink import NotReproducedError, Shrunk
from .knowing import needed_oracles, smallest
from .plan import Plan
from .root_causes import RootCauses


def small_of(found: Found, target: Target, plan: Plan, max_seconds: float) -> tuple[Shrunk, tuple[str, ...]] | None:
    """The finding of a run, shrunk, with the oracles that show it.

    None if it does not show again, or if its smallest trace has slipped to another root cause.
    """
    try:
        small = smallest(found, target, plan, max_seconds=max_seconds)
    except NotReproducedError:
        return None
    oracles = needed_oracles(small, found, target, plan)
    again = Found(small.finding, small.trace, passed=found.passed)
    return None if RootCauses(target, plan).of(again) != found.root else (small, oracles)
