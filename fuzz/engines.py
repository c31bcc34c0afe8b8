"""Engines: how runs are drawn. Both end in a `Summary`, which holds the first finding with the trace that shows it.

`random` draws from a seed and does the bulk; `hypothesis` runs the state machine that outsiders use under pytest.
"""

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..model.ops import Shape
from .finding import Finding, Trace
from .liveness import draw_script, judge
from .oracles import LIVENESS, LOCKSTEP, ORACLES
from .replaying import open_run, usable
from .report import Summary
from .run import Run
from .shadow import ListMemory, Memory
from .shapes import ATTENTION, draw_shape
from .targets.base import LOST, Target, adapted_shape, lacking
from .workload import SeededDraw, Workload

RUN_OPERATIONS = 200
"""Operations of one run before its pool is drained."""
HYPOTHESIS_RUN_OPERATIONS = 50
HYPOTHESIS_RUNS = 20
"""Runs between two looks at the clock."""
LOST_LIMIT = 5
"""So often may a target be lost before a run that goes on after findings gives it up."""
SCRIPTS_EVERY = 4
"""Under the liveness oracle every so-manyth round over the attention types is one of scripts for its scheduler."""


@dataclass(frozen=True)
class Plan:
    """What to run, and for how long. Runs end at whichever limit comes first.

    A run whose core cannot be built counts as one operation, so that a target which builds none comes to an end.
    """

    seed: int
    seconds: float | None = None
    operations: int | None = None
    attention: Sequence[str] = tuple(ATTENTION)
    """Names of `shapes.ATTENTION`, taken in turn."""
    chaos: bool = False
    """Break preconditions on purpose in every run."""
    without: tuple[str, ...] = ()
    """Known deviations that count as findings all the same (engine `random`)."""
    oracles: tuple[str, ...] = ORACLES
    keep_going: bool = False
    """Go on after a finding, and keep the shortest trace of each kind (engine `random`)."""
    tensors: str | None = None
    """Where the shadow memory keeps its tags: as `data_plane.open_tensor_memory` takes it; None for lists."""

    def new_memory(self) -> Callable[[Shape], Memory]:
        """What makes the shadow memory of a run. Errors as from `memory_named`."""
        return memory_named(self.tensors)

    def is_over(self, summary: Summary) -> bool:
        """Has the run come to one of its limits?"""
        return (self.seconds is not None and summary.seconds >= self.seconds) or (
            self.operations is not None and summary.operations + summary.unbuilt.total() >= self.operations
        )


def memory_named(tensors: str | None) -> Callable[[Shape], Memory]:
    """What makes the shadow memory of a run: lists for None, else tensors there.

    ValueError for an unknown place, TargetUnavailableError without torch or without the device.
    """
    if tensors is None:
        return ListMemory
    from .targets.data_plane import open_tensor_memory  # needs torch, which nothing else does

    return open_tensor_memory(tensors)


OnProgress: TypeAlias = Callable[[Summary], None]


def run_engine(target: Target, plan: Plan, summary: Summary, on_progress: OnProgress | None = None) -> Summary:
    """Run the engine that the summary names; it fills the summary in. KeyError for an unknown one."""
    return ENGINES[summary.engine](target, plan, summary, on_progress)


def run_random(target: Target, plan: Plan, summary: Summary, on_progress: OnProgress | None = None) -> Summary:
    """Seeded runs, one after the other, until a limit is reached or something is found.

    Run `i` of a seed is the same whatever was run before it. Ctrl-C ends it: the summary holds what was done. With
    `keep_going` it also ends when the target was lost `LOST_LIMIT` times, each of which may cost a deadline.
    """
    start = time.monotonic()
    run = open_run(target, plan.without, plan.oracles, plan.new_memory())
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
    """Was the target lost too often to go on with it?"""
    return sum(found.times for kind, found in summary.found.items() if kind[0] in LOST) >= LOST_LIMIT


def _run(run: Run, draw: SeededDraw, attention: str, chaos: bool) -> tuple[Finding, Trace] | None:
    """Operations of a workload until something is found, then everything is given back."""
    shape = adapted_shape(draw_shape(draw, ATTENTION[attention]), lacking(run.target))
    finding = run.start(shape)
    if run.built and finding is None:
        finding = _drive(run, Workload(draw, shape, chaos=chaos, sober=LOCKSTEP not in run.oracles))
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


def run_hypothesis(target: Target, plan: Plan, summary: Summary, on_progress: OnProgress | None = None) -> Summary:
    """Runs of the Hypothesis state machine, in batches, until a limit is reached or something is found.

    Hypothesis generates only: what is found goes to the reducer that both engines share, whose result is minimal in
    operations and is a trace.
    """
    from hypothesis import HealthCheck, Phase, Verbosity, seed, settings  # costs a second, which `random` need not pay
    from hypothesis.errors import Flaky
    from hypothesis.stateful import run_state_machine_as_test

    from .machine import DifferenceError, LockstepMachine, lockstep_machine

    start = time.monotonic()

    machine = lockstep_machine(
        target, attention=plan.attention, chaos=plan.chaos, oracles=plan.oracles, new_memory=plan.new_memory()
    )

    class Counted(machine):  # type: ignore[misc, valid-type]
        shrinks = False

        def count(self: LockstepMachine, run: Run) -> None:
            if summary.finding is not None:
                return  # Hypothesis runs again what has failed
            summary.seconds = time.monotonic() - start
            summary.add_run(self.name, run, run.found, run.trace)
            if on_progress is not None:
                on_progress(summary)
            if pressed:
                raise KeyboardInterrupt

    generate_only = settings(
        max_examples=HYPOTHESIS_RUNS,
        stateful_step_count=HYPOTHESIS_RUN_OPERATIONS,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
        deadline=None,
        database=None,
    )
    batch = 0
    with _remembered_interrupt() as pressed:
        while summary.finding is None and not plan.is_over(summary):
            try:
                run_state_machine_as_test(seed(plan.seed * 1_000_003 + batch)(Counted), settings=generate_only)
            except DifferenceError:
                break
            except Flaky:  # it did not fail again: the target is not deterministic, but what it did is a finding
                if summary.finding is None:
                    raise
            batch += 1
    return summary


@contextmanager
def _remembered_interrupt() -> Iterator[list[int]]:
    """Ctrl-C raises as ever, and is noted: an exception in one of Hypothesis' garbage-collection hooks gets lost."""
    pressed: list[int] = []

    def note(number: int, frame: object) -> None:
        pressed.append(number)
        raise KeyboardInterrupt

    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a worker of `--jobs` ignores it
    if usual:
        signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        if usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)


ENGINES: Mapping[str, Callable[[Target, Plan, Summary, OnProgress | None], Summary]] = {
    "random": run_random,
    "hypothesis": run_hypothesis,
}
