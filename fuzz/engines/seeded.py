"""Engine `random`: runs that are drawn from a seed."""

import time
from dataclasses import replace

from ..findings.finding import LOST, Finding, Trace
from ..findings.oracle_names import LIVENESS, LOCKSTEP
from ..oracles.liveness import draw_script, judge
from ..reports.summary import Summary
from ..runs.open_run import open_run, usable
from ..runs.run import Run
from ..targets.base import Target, adapted_shape, lacking
from ..workload.draw import SeededDraw
from ..workload.operations import Workload
from ..workload.shapes import ATTENTION, draw_shape
from .plan import RUN_OPERATIONS, OnProgress, Plan

LOST_LIMIT = 5
"""How often a target may be lost before a run that goes on after findings gives it up."""
SCRIPTS_EVERY = 4
"""Under the liveness oracle every Nth round over the attention types is one of scripts for its scheduler."""


def run_random(target: Target, plan: Plan, summary: Summary, on_progress: OnProgress | None = None) -> Summary:
    """Seeded runs, one after the other, until a limit is reached or something is found.

    Run `i` of a seed is the same whatever was run before it. Ctrl-C ends it: the summary holds what was done. With
    `keep_going` it also ends when the target was lost `LOST_LIMIT` times, each of which may cost a deadline.
    """
    start = time.monotonic()
    run = open_run(target, plan.judging())
    index = 0
    while summary.finding is None or plan.keep_going:
        draw = SeededDraw(f"{plan.seed}/{index}")
        turn, place = divmod(index, len(plan.attention))
        attention = plan.attention[place]
        if LIVENESS in plan.oracles and (plan.oracles == (LIVENESS,) or turn % SCRIPTS_EVERY == SCRIPTS_EVERY - 1):
            script = draw_script(draw, ATTENTION[attention])
            found = judge(run, replace(script, shape=adapted_shape(script.shape, lacking(target))))
        else:
            found = _run(run, draw, attention, plan.chaos)
        summary.seconds = time.monotonic() - start
        summary.add_run(attention, run, *(found or (None, None)))
        if on_progress is not None:
            on_progress(summary)
        index += 1
        if plan.is_over(summary) or is_given_up(summary):
            break
    return summary


def is_given_up(summary: Summary) -> bool:
    """True once the target was lost too often to go on with it."""
    return sum(found.times for kind, found in summary.found.items() if kind[0] in LOST) >= LOST_LIMIT


def _run(run: Run, draw: SeededDraw, attention: str, chaos: bool) -> tuple[Finding, Trace] | None:
    """Operations of a workload until something is found, then everything is given back."""
    shape = adapted_shape(draw_shape(draw, ATTENTION[attention]), lacking(run.target))
    finding = run.start(shape)
    if run.built and finding is None:
        finding = _drive(run, Workload(draw, shape, chaos=chaos, realistic=LOCKSTEP not in run.oracles))
    return None if finding is None else (finding, run.trace)


def _drive(run: Run, workload: Workload) -> Finding | None:
    for _ in range(RUN_OPERATIONS):
        operation = usable(run, workload.next(run.scene))
        finding = None if operation is None else run.step(operation)
        if finding is not None or run.dead:
            return finding
    for last in workload.drain(run.scene):
        operation = usable(run, last)
        finding = None if operation is None else run.step(operation)
        if finding is not None or run.dead:
            return finding
    return None
