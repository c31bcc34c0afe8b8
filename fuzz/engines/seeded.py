"""Engine `random`: runs that are drawn from a seed."""

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from ..findings.finding import LOST, Finding, Trace, our_bug
from ..findings.oracle_names import EVERY, LIVENESS, LOCKSTEP
from ..oracles.liveness import judge
from ..reports.summary import Found, Summary
from ..runs.guarding import guarded
from ..runs.open_run import drawn_script, drawn_shape, open_run, usable, workload_of
from ..runs.run import Run
from ..targets.base import Target, TargetLostError, TargetUnavailableError, adapted_shape
from ..traces.replay import replay
from ..workload.draw import SeededDraw
from ..workload.operations import Workload
from ..workload.refused import refused_shapes
from ..workload.rounds import about_rounds
from ..workload.steps import about_steps
from ..workload.tuning import Tuning
from ..workload.turns import About, in_turn
from .plan import OnProgress, Plan
from .root_causes import RootCauses
from .smallest import KnownCounter

LOST_LIMIT = 5
"""How often a target may be lost before a run that goes on after findings gives it up."""
SCRIPTS_EVERY = 4
"""Under the liveness oracle every Nth round over the attention types is one of scripts for its scheduler."""

REFUSED_EVERY = 7
"""Before every Nth run a core is asked for that must be refused; prime to the number of attention types."""

_TUNED: Mapping[About, Callable[[Tuning], Tuning]] = {"rounds": about_rounds, "steps": about_steps}
FULL_LOOK_EVERY = 32
"""Operations between two comparisons of the whole state, see `Judging.full_look_every`."""


def run_random(target: Target, plan: Plan, summary: Summary, on_progress: OnProgress | None = None) -> Summary:
    """Seeded runs, one after the other, until a limit is reached or something is found that is not known.

    Run `i` of a seed is the same whatever was run before it. Ctrl-C ends it: the summary holds what was done. With
    `keep_going` it also ends when the target was lost `LOST_LIMIT` times, each of which may cost a deadline. The clock
    starts when the target is ready: launching a process and importing an engine do not count.
    BlindOracleError, before anything else, if an oracle does not see what is planted for it (`runs.canary`).
    """
    goes_on = plan.keep_going or bool(plan.known)
    judging = replace(plan.judging(), notes=goes_on, full_look_every=FULL_LOOK_EVERY)
    summary.canary = plan.tried(target, judging)
    run = open_run(target, judging)  # asks the target what it lacks: a child is launched
    start = time.monotonic()
    knowing, roots = KnownCounter(target, plan), RootCauses(target, plan)
    summary.known_findings = plan.known
    with _heap_set_aside():
        _run_all(run, plan, summary, (knowing, roots), start, on_progress)
    return summary


@contextmanager
def _heap_set_aside() -> Iterator[None]:
    """The garbage collector leaves alone what is there now, such as imported engines: walking through it again and
    again takes longer than all that it finds."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _run_all(
    run: Run,
    plan: Plan,
    summary: Summary,
    asked: tuple[KnownCounter, RootCauses],
    start: float,
    on_progress: OnProgress | None,
) -> None:
    """Run after run, as `run_random` says. `asked`: about each finding; `start`: when the first run began."""
    knowing, roots = asked
    alone = {*plan.oracles}.intersection(EVERY) == {LIVENESS}
    rounds = 0 if alone else getattr(plan.tuning, "rounds", 0)  # the generator of an earlier commit may have none
    steps = 0 if LIVENESS in plan.oracles else getattr(plan.tuning, "steps", 0)  # scripts are to come as often as ever
    for index, (turn, attention, about) in enumerate(in_turn(plan.attention, rounds, steps)):
        draw = SeededDraw(f"{plan.seed}/{index}")
        scripted = LIVENESS in plan.oracles and turn % SCRIPTS_EVERY == SCRIPTS_EVERY - 1 and not about
        if alone or scripted:
            script = drawn_script(run, draw, attention)
            found = guarded(run, partial(judge, run, script), script)
        else:
            found = None if index % REFUSED_EVERY else refused_run(run, plan, index, summary)
            found = found or guarded(run, partial(_run, run, draw, attention, plan, about))
        summary.seconds = time.monotonic() - start - (run.launch_s or 0.0)
        summary.add_run(attention, run, None, None)
        for one in came_up(run, found, attention, summary.seed):
            for new in _told_apart(one, knowing, roots, summary):
                summary.add_found(new)
        if on_progress is not None:
            on_progress(summary)
        ends = summary.finding is not None and not plan.keep_going
        if ends or plan.is_over(summary) or is_given_up(summary):
            break


def _told_apart(one: Found, knowing: KnownCounter, roots: RootCauses, summary: Summary) -> Iterator[Found]:
    """The finding, with its root cause, unless it is known. If asking about it fails that is told as well."""
    try:
        if knowing.counts(one, summary):
            return
        one.root = roots.of(one)
    except (TargetLostError, TargetUnavailableError):
        raise
    except Exception as error:
        bug = our_bug(error, one.finding.operation, one.finding.step)
        yield Found(bug, one.trace, attention=one.attention.copy(), seed=one.seed)
    yield one


def came_up(run: Run, last: tuple[Finding, Trace] | None, attention: str, seed: int) -> Iterator[Found]:
    """What a run has noted, and what has ended it, in order; each with the trace that leads there."""
    noted: list[str] = []
    for finding in run.noted:
        trace = Trace(run.shape, run.trace.operations[: finding.step + 1])
        yield Found(finding, trace, attention=Counter([attention]), passed=tuple(noted), seed=seed)
        noted.append(finding.observable)
    if last is not None:
        yield Found(*last, attention=Counter([attention]), passed=tuple(noted), seed=seed)


def is_given_up(summary: Summary) -> bool:
    """True once the target was lost too often to go on with it, or blockproof fails before it has done anything."""

    def hopeless(one: Found) -> bool:
        return one.finding.observable in LOST or (one.finding.is_our_bug and not one.trace.operations)

    return sum(one.times for one in summary.found.values() if hopeless(one)) >= LOST_LIMIT


def refused_run(run: Run, plan: Plan, index: int, summary: Summary) -> tuple[Finding, Trace] | None:
    """The shape of run `index` with something wrong about it, of which no core may be built."""
    if LOCKSTEP not in run.oracles or "refused_shapes" in run.lacks:
        return None
    attention = plan.attention[index % len(plan.attention)]
    every = refused_shapes(drawn_shape(run, SeededDraw(f"{plan.seed}/{index}"), attention))
    wrong = {what: one for what, one in every.items() if adapted_shape(one, run.lacks) == one}
    if not wrong:
        return None
    what = sorted(wrong)[index // REFUSED_EVERY % len(wrong)]
    finding = run.start(wrong[what])
    summary.reached[f"shape refused: {what}"] += finding is None and not run.built
    return None if finding is None else (finding, run.trace)


def _run(run: Run, draw: SeededDraw, attention: str, plan: Plan, about: About) -> tuple[Finding, Trace] | None:
    """Operations of a workload until something is found, then everything is given back."""
    tuning = _TUNED[about](plan.tuning) if about else plan.tuning
    shape = drawn_shape(run, draw, attention, tuning, about=about)
    finding = run.start(shape)
    if run.built and finding is None:
        workload = workload_of(run, draw, shape, chaos=plan.chaos, tuning=tuning)
        finding = _drive(run, workload, tuning) or run.finish()
    return None if finding is None else located(run, finding)


def located(run: Run, late: Finding) -> tuple[Finding, Trace]:
    """The finding where it begins: the same trace again, now with a full look after every operation."""
    judging = replace(run.judging, full_look_every=1)
    finding, trace = (None, run.trace) if LOCKSTEP not in judging.oracles else replay(run.trace, run.target, judging)
    return (late, run.trace) if finding is None else (finding, trace)


def _drive(run: Run, workload: Workload, tuning: Tuning) -> Finding | None:
    scene, step, has_all = run.scene, run.step, not run.lacks
    for _ in range(tuning.operations):
        drawn = workload.next(scene)
        operation = drawn if has_all else usable(run, drawn)
        finding = None if operation is None else step(operation)
        if finding is not None or run.dead:
            return finding
    for last in workload.drain(run.scene) if tuning.drain else ():
        operation = usable(run, last)
        finding = None if operation is None else run.step(operation)
        if finding is not None or run.dead:
            return finding
    return None
