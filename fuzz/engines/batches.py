"""Engine `hypothesis`: the state machine that users run under pytest, here in batches."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

from ..findings.interruption import ENDING, interrupts
from ..findings.oracle_names import LIVENESS
from ..reports.summary import Summary
from ..runs.run import Run
from ..targets.base import Target
from .plan import OnProgress, Plan

HYPOTHESIS_RUN_OPERATIONS = 50
HYPOTHESIS_RUNS = 20
"""Runs of a batch, after which the clock is read."""


def run_hypothesis(target: Target, plan: Plan, summary: Summary, on_progress: OnProgress | None = None) -> Summary:
    """Runs of the Hypothesis state machine, in batches, until a limit is reached or something is found.

    Hypothesis generates only: what is found goes to the reducer that both engines share, whose result is minimal in
    operations and is a trace. The clock starts when the target is ready, and oracles are tried first, as in
    `run_random`.
    """
    from hypothesis import HealthCheck, Phase, Verbosity, seed, settings  # costs a second, which `random` need not pay
    from hypothesis.errors import Flaky
    from hypothesis.stateful import run_state_machine_as_test

    from .failing import FindingError
    from .machine import LockstepMachine, lockstep_machine

    machine = lockstep_machine(
        target, attention=plan.attention, chaos=plan.chaos, oracles=plan.oracles, tensors=plan.tensors
    )

    judging = machine.tested.judging
    drawn_for = [name for name in judging.oracles if name != LIVENESS]  # it judges scripts, which no machine draws
    summary.canary = plan.tried(target, replace(judging, oracles=drawn_for))
    start, launched = time.monotonic(), list[float]()

    class Counted(machine):  # type: ignore[misc, valid-type]
        shrinks = False

        def count(self: LockstepMachine, run: Run) -> None:
            if summary.finding is not None:
                return  # Hypothesis runs again what has failed
            if summary.runs == 0:
                launched.append(run.launch_s or 0.0)
            summary.seconds = time.monotonic() - start - launched[0]
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
            except FindingError:
                break
            except Flaky:  # it did not fail again: the target is not deterministic, but what it did is a finding
                if summary.finding is None:
                    raise
            batch += 1
    return summary


@contextmanager
def _remembered_interrupt() -> Iterator[list[int]]:
    """Notes what interrupts, besides raising it: an exception in a garbage-collection hook of Hypothesis gets lost."""
    pressed: list[int] = []

    before: dict[int, Any] = {
        number: signal.getsignal(number) for number in ENDING if interrupts(number)
    }  # none in a worker

    def note(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        if callable(usual := before[number]):
            usual(number, frame)

    for number in before:
        signal.signal(number, note)
    try:
        yield pressed
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)
