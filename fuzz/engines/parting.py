"""Findings that say the same at the same operation, and have two causes after all: their smallest traces tell.

Two mistakes may lead to one sentence: a salt that is left out of the name of a block, and an adapter. What the smallest
trace of a finding uses (`known.uses_of`) is what it cannot do without. If of two smallest traces each uses what the
other one does not, neither can stand for the other, and both are kept. Some calls count as one: whether a request is
freed or preempted, and whether somebody outside takes a block or shares it, is the same to most mistakes, and a
shrinker may end with either.
"""

import time
from collections.abc import Iterator

from ..findings.finding import Trace
from ..findings.known import uses_of
from ..reports.summary import Found
from ..targets.base import Target
from ..traces.shrink import NotReproducedError
from .knowing import COMPARE_CANDIDATES, smallest
from .plan import Plan

_ALIKE = {"Preempt": "Free", "Touch": "Take"}
Form = frozenset[str]


def form_of(smallest: Trace) -> Form:
    """What a smallest trace uses, as far as it tells causes apart."""
    return frozenset(_ALIKE.get(use, use) for use in uses_of(smallest))


def parted(found: Found, smallest_of_it: Trace, target: Target, plan: Plan, end: float) -> Iterator[Found]:
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
