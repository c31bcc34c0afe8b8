"""The engines by name; the one of all commands, `random`: runs that are drawn from a seed."""

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

from ...model.ops import AllocateBatch
from ..findings.finding import LOST, Finding, Trace, our_bug
from ..findings.offered import OF_TODAY
from ..findings.oracle_names import EVERY, LIVENESS, LOCKSTEP
from ..kinds import HYBRIDS_OF_POOLS
from ..oracles.liveness import judge
from ..reports.summary import Found, Summary
from ..runs.case import loop
from ..runs.open_run import drawn_script, drawn_shape, guarded, open_run, usable, workload_of
from ..runs.run import Run
from ..targets.base import Target, TargetLostError, TargetUnavailableError, adapted_shape
from ..targets.declarations import KINDS_OF_FEW, STARVED
from ..traces.replay import replay
from ..workload.draw import SeededDraw
from ..workload.operations import Workload
from ..workload.refused import refused_shapes
from ..workload.rounds import about_rounds
from ..workload.shapes import EVERY_ATTENTION, possible_attention
from ..workload.steps import about_steps
from ..workload.tuning import Tuning
from ..workload.turns import About, in_turn
from .plan import OnProgress, Plan
from .root_causes import RootCauses
from .shared import SharedFindings
from .smallest import KnownCounter

LOST_LIMIT = 5
"""How often a target may be lost before a run that goes on after findings gives it up."""
SCRIPTS_EVERY = 4
"""Under the liveness oracle every Nth round over the attention types is one of scripts for its scheduler."""

REFUSED_EVERY = 7
"""Before every Nth run a core is asked for that must be refused; prime to the number of attention types."""

_TUNED: Mapping[About, Callable[[Tuning], Tuning]] = {"rounds": about_rounds, "steps": about_steps}
COLLECTED_EVERY = 100_000
"""Objects made and not yet gone between two collections of garbage."""
FULL_LOOK_EVERY = 32
"""Operations between two comparisons of the whole state, see `Judging.full_look_every`."""


def run_random(target: Target, plan: Plan, summary: Summary, on_progress: OnProgress | None = None) -> Summary:
    """Seeded runs, one after the other, until a limit is reached or something is found that is not known.

    Run `i` of a seed is the same whatever was run before it. Ctrl-C ends it: the summary holds what was done. With
    `keep_going` it also ends when the target was lost `LOST_LIMIT` times, each of which may cost a deadline. The clock
    starts when the target is ready: launching a process and importing an engine do not count.
    BlindOracleError, before anything else, if an oracle does not see what is planted for it (`runs.canary`).
    """
    goes_on = plan.keep_going or bool(plan.known or plan.known_of)
    judging = replace(plan.judging(), notes=goes_on, full_look_every=FULL_LOOK_EVERY)
    summary.canary = plan.tried(target, judging)
    run = open_run(target, judging)  # asks the target what it lacks: a child is launched
    summary.known_findings = plan.known
    runs = _SeededRuns(run, plan, summary, on_progress)
    try:
        with _heap_set_aside():
            loop(runs)
    finally:
        runs.shared.close()
    return summary


@cache
def _is_set_aside() -> bool:
    """Whether somebody had set a heap aside before our first run. Asked once: Python counts all that was set aside, a
    million objects in twenty milliseconds."""
    return gc.get_freeze_count() > 0


@contextmanager
def _heap_set_aside() -> Iterator[None]:
    """The garbage collector leaves alone what is there now, such as imported engines, and comes seldom: walking through
    it again and again takes longer than all that it finds. A run of 100 operations leaves few circles. Where somebody
    has set a heap aside already, it stays so."""
    often, aside = gc.get_threshold(), _is_set_aside()
    if not aside:
        gc.freeze()
    gc.set_threshold(COLLECTED_EVERY, *often[1:])
    try:
        yield
    finally:
        if not aside:
            gc.freeze()  # else all that has not been walked through is, as soon as collections come often again
        gc.set_threshold(*often)
        if not aside:
            gc.unfreeze()


MORE_INSIDE = 3
"""Runs of types whose hits may end inside a block, beside the usual one of each turn: few of them have such hits."""


class _Drawn(NamedTuple):
    """One run of a seed."""

    number: int
    turn: int
    attention: str
    about: About
    draw: SeededDraw


class _SeededRuns:
    """The `Case` of `run_random`."""

    def __init__(self, run: Run, plan: Plan, summary: Summary, on_progress: OnProgress | None) -> None:
        self._run, self._plan, self._summary, self._on_progress = run, plan, summary, on_progress
        self._start = time.monotonic()
        self._knowing, self._roots = KnownCounter(run.target, plan), RootCauses(run.target, plan)
        self.shared = SharedFindings(run.target, plan)
        alone = {*plan.oracles}.intersection(EVERY) == {LIVENESS}
        rounds = 0 if alone else getattr(plan.tuning, "rounds", 0)  # the generator of an earlier commit may have none
        # Scripts are to come as often as ever.
        steps = 0 if LIVENESS in plan.oracles else getattr(plan.tuning, "steps", 0)
        inside = 0 if "hits_inside_blocks" in run.lacks else MORE_INSIDE
        judged = possible_attention(plan.attention, run.lacks | plan.unjudged) if plan.unjudged else plan.attention
        self._alone, self._turns = alone, in_turn(judged, rounds, steps, inside)

    def draw(self, number: int) -> _Drawn:
        """See `Case`."""
        turn, attention, about = next(self._turns)
        return _Drawn(number, turn, attention, about, SeededDraw(f"{self._plan.seed}/{number}"))

    def judge(self, drawn: _Drawn) -> Iterator[Found]:
        """See `Case`."""
        run, plan, summary, attention = self._run, self._plan, self._summary, drawn.attention
        if self._alone or self._is_scripted(drawn):
            script = drawn_script(run, drawn.draw, attention)
            found = guarded(run, partial(judge, run, script), script)
        else:
            found = None if drawn.number % REFUSED_EVERY else refused_run(run, plan, drawn.number, summary)
            found = found or guarded(run, partial(_run, run, drawn.draw, attention, plan, drawn.about))
        summary.seconds = time.monotonic() - self._start - (run.launch_s or 0.0)
        summary.add_run(attention, run, None, None)
        return came_up(run, found, attention, summary.seed)

    def _is_scripted(self, drawn: _Drawn) -> bool:
        two_pools = EVERY_ATTENTION[drawn.attention] in HYBRIDS_OF_POOLS  # of which liveness knows nothing
        turns = drawn.turn % SCRIPTS_EVERY == SCRIPTS_EVERY - 1
        return LIVENESS in self._plan.oracles and turns and not drawn.about and not two_pools

    def keep(self, drawn: _Drawn, found: Found) -> None:
        """Add it, with its root cause, unless it is known. If asking about it fails that is told as well."""
        try:
            if self._knowing.counts(found, self._summary) or self.shared.counts(found, self._summary):
                return
            found.root = self._roots.of(found)
        except (TargetLostError, TargetUnavailableError):
            raise
        except Exception as error:
            bug = our_bug(error, found.finding.operation, found.finding.step)
            self._summary.add_found(Found(bug, found.trace, attention=found.attention.copy(), seed=found.seed))
        self._summary.add_found(found)

    def over(self) -> bool:
        """See `Case`."""
        if self._on_progress is not None:
            self._on_progress(self._summary)
        ends = self._summary.finding is not None and not self._plan.keep_going
        return ends or self._plan.is_over(self._summary) or is_given_up(self._summary)


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


UNDRAWN = OF_TODAY | KINDS_OF_FEW | {STARVED, AllocateBatch.__name__}
"""What is not even drawn for a target that lacks it."""


def _drive(run: Run, workload: Workload, tuning: Tuning) -> Finding | None:
    scene, step, has_all = run.scene, run.step, run.lacks <= UNDRAWN
    asked, waits = 0, workload.waits
    draw = workload.next if waits else workload.drawn
    while asked < tuning.operations:
        drawn = draw(scene)
        asked += not (waits and workload.is_waiting)
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


ENGINES: dict[str, Callable[[Target, Plan, Summary, OnProgress | None], Summary]] = {
    "random": run_random,
}
"""The command line has this one alone. A script may add one of its own, for the benchmark of detection."""


def run_engine(target: Target, plan: Plan, summary: Summary, on_progress: OnProgress | None = None) -> Summary:
    """Run the engine that the summary names; it fills the summary in. KeyError for an unknown one."""
    return ENGINES[summary.engine](target, plan, summary, on_progress)
