"""The engines by name."""

from collections.abc import Callable

from ..reports.summary import Summary
from ..targets.base import Target
from .plan import OnProgress, Plan
from .seeded import run_random

ENGINES: dict[str, Callable[[Target, Plan, Summary, OnProgress | None], Summary]] = {
    "random": run_random,
}
"""The command line has this one alone. A script may add one of its own, for the benchmark of detection."""


def run_engine(target: Target, plan: Plan, summary: Summary, on_progress: OnProgress | None = None) -> Summary:
    """Run the engine that the summary names; it fills the summary in. KeyError for an unknown one."""
    return ENGINES[summary.engine](target, plan, summary, on_progress)
