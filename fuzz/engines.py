"""Engines: how runs are drawn. Both end in a `Summary`, which holds the first finding with the trace that shows it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .lockstep import Finding, Lockstep, Trace
from .report import Summary
from .shapes import ATTENTION, draw_shape
from .targets.base import Target
from .workload import SeededDraw, Workload

RUN_OPERATIONS = 200
"""Operations of one run before its pool is drained."""


@dataclass(frozen=True)
class Plan:
    """What to run, and for how long. Runs end at whichever limit comes first."""

    seed: int
    seconds: float | None = None
    operations: int | None = None
    attention: Sequence[str] = tuple(ATTENTION)
    """Names of `shapes.ATTENTION`, taken in turn."""
    chaos: bool = False
    """Break preconditions on purpose in every run."""


def run_random(
    target: Target, plan: Plan, summary: Summary, on_progress: Callable[[Summary], None] | None = None
) -> Summary:
    """Seeded runs, one after the other, until a limit is reached or something is found.

    Run `i` of a seed is the same whatever was run before it. Ctrl-C ends it: the summary holds what was done.
    """
    start = time.monotonic()
    lockstep = Lockstep(target)
    index = 0
    while summary.finding is None:
        draw = SeededDraw(f"{plan.seed}/{index}")
        attention = plan.attention[index % len(plan.attention)]
        finding = _run(lockstep, draw, attention, plan.chaos)
        summary.seconds = time.monotonic() - start
        summary.add_run(attention, lockstep, finding)
        if on_progress is not None:
            on_progress(summary)
        index += 1
        if plan.seconds is not None and summary.seconds >= plan.seconds:
            break
        if plan.operations is not None and summary.operations >= plan.operations:
            break
    return summary


def _run(lockstep: Lockstep, draw: SeededDraw, attention: str, chaos: bool) -> Finding | None:
    shape = draw_shape(draw, ATTENTION[attention])
    finding = lockstep.start(shape)
    if finding is not None or not lockstep.built:
        return finding
    workload = Workload(draw, shape, chaos=chaos)
    for _ in range(RUN_OPERATIONS):
        finding = lockstep.step(workload.next(lockstep.model))
        if finding is not None or lockstep.model.dead:
            return finding
    for operation in workload.drain(lockstep.model):
        finding = lockstep.step(operation)
        if finding is not None:
            return finding
    return None


def trace_of(lockstep: Lockstep) -> Trace:
    """What the run has applied so far."""
    return Trace(lockstep.shape, tuple(lockstep.operations))
