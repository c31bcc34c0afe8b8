"""Runs a script on a core and returns the first violation of liveness."""

from ....model.ops import Advance, Submit
from ...findings.finding import Finding, Trace
from ...findings.oracle_names import LIVENESS
from ...findings.severity import worst_of
from ...targets.base import lacking
from .bounds import Bounds
from .driven import DrivenRun
from .rules import Excused, Violated, Watch
from .scheduler import Scheduler, Stopped
from .script import is_script


def judge(run: DrivenRun, script: Trace) -> tuple[Finding, Trace] | None:
    """Run the script. Returns the first finding and the trace that replays it; None if there is no finding.

    A finding of liveness has one of `PROPERTIES` as its observable, names the submission of the request concerned, and
    is replayed by the script. A finding of another oracle of the run is replayed by the operations of the run. None,
    too, if the core cannot be built, or does what its target is known for. ValueError for a trace that is not a script.
    """
    if not is_script(script):
        raise ValueError(
            "no liveness script: write each request as Submit, then Advance with all that it samples, and StepStart for"
            " each step before the next one"
        )
    finding = run.start(script.shape)
    if finding is not None or not run.built:
        return None if finding is None else (finding, run.trace)
    bounds = Bounds(script.shape, run.losses, "Advance.rejected" in lacking(run.target), run.designs)
    scheduler = Scheduler(run, bounds, Watch(bounds, run.seen))
    try:
        _play(scheduler, script)
    except Stopped as stopped:
        return None if stopped.finding is None else (stopped.finding, run.trace)
    except Excused:
        return None if scheduler.objection is None else (scheduler.objection, run.trace)
    except Violated as violated:
        mine, other = _finding(run, script, violated), scheduler.objection
        worst = worst_of([mine, *(other.every if other is not None else ())]) or mine
        return worst, script if worst.oracle == LIVENESS else run.trace
    if scheduler.objection is not None:
        return scheduler.objection, run.trace
    run.seen["liveness: script finished"] += 1
    return None


def _play(scheduler: Scheduler, script: Trace) -> None:
    """Run the script, and then steps until all requests are finished."""
    submits: list[Submit] = []
    for operation in script.operations:
        if isinstance(operation, Submit):
            submits.append(operation)
        elif isinstance(operation, Advance):
            scheduler.arrive(submits[-1], operation.sampled)
        else:
            scheduler.step()
    while scheduler.live:
        scheduler.step()
    scheduler.end()


def _finding(run: DrivenRun, script: Trace, violated: Violated) -> Finding:
    step = next(
        index
        for index, operation in enumerate(script.operations)
        if isinstance(operation, Submit) and operation.request == violated.request
    )
    last = run.outcomes[-1] if run.outcomes else None
    return Finding(
        violated.observable,
        script.operations[step],
        step,
        None,
        last,
        detail=violated.detail,
        oracle=LIVENESS,
        said=violated.kind,
    )
