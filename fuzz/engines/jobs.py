"""Several processes that fuzz with different seeds at the same time, and their common summary.

At Ctrl-C this process tells the workers to stop, which they do after the run at hand, or are made to.
"""

import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ..opening.targets import open_target
from ..opening.workers import Desk, DiedError, Event, Pool
from ..reports.progress import Pace
from ..reports.summary import Summary
from ..targets.base import TargetUnavailableError, close_target
from .plan import Plan
from .seeded import run_engine

if TYPE_CHECKING:
    from .live_run import LiveRun  # and pages with it, which no worker writes

GRACE_S = 0.6
"""How long the workers have to come to an end after they were told to stop."""
_REPORT_S = 0.2


class _StopError(Exception):
    """The runs are to end."""


class _Lane(NamedTuple):
    """What one process is given."""

    spec: str
    engine: str
    plan: Plan
    isolate: bool | None
    live: bool
    """True if a page shows what it does."""


@dataclass
class _Progress:
    """How far a process is."""

    seed: int
    runs: int = 0
    operations: int = 0
    seconds: float = 0.0
    """Since its target was ready."""
    so_far: Summary | None = None
    """What it has found so far, if the runs go on after findings or a page shows them: it may have to be killed."""
    pid: int | None = None
    over: bool = False

    def row(self) -> list[str]:
        """How far it is, for a page (`page.live.COLUMNS`)."""
        rate = f"{self.operations / self.seconds:,.0f}" if self.seconds else ""
        state = "ended" if self.over else "running" if self.seconds else "starting"
        return [str(self.pid), str(self.seed), f"{self.runs:,}", f"{self.operations:,}", rate, state]


class _Jobs:
    """All processes, and the summary that they fill."""

    def __init__(self, pool: Pool, lanes: Sequence[_Lane], summary: Summary) -> None:
        self._pool, self._summary = pool, summary
        self.progress = [_Progress(lane.plan.seed) for lane in lanes]
        for number, lane in enumerate(lanes):
            pool.submit(number, lane)
            self.progress[number].pid = pool.pid(number)

    def collect(
        self, on_progress: Callable[[int, int, float], None], deadline: float | None = None, *, goes_on: bool = False
    ) -> None:
        """Take what comes until all are done, or until the deadline. With `goes_on` a finding ends nothing."""
        while self._pool.busy and (deadline is None or time.monotonic() <= deadline):
            for event in self._pool.events(_REPORT_S):
                if self._take(event) and self._summary.finding is not None and deadline is None and not goes_on:
                    self._pool.stop()
                    deadline = time.monotonic() + GRACE_S
            runs, operations = (sum(getattr(one, name) for one in self.progress) for name in ("runs", "operations"))
            on_progress(runs, operations, max(one.seconds for one in self.progress))

    def _take(self, event: Event) -> bool:
        """Take one event. Returns whether it was the last one of a process. Errors as from `run_jobs`."""
        one, said = self.progress[event.key], event.said
        one.over = event.over
        if not event.over:
            one.runs, one.operations, one.seconds, so_far = said
            one.so_far = so_far or one.so_far
        elif isinstance(said, DiedError):
            memory = ", as if memory was short" if said.status == -signal.SIGKILL else ""
            what = f"the target ended the process it ran in (exit status {said.status}{memory})"
            raise TargetUnavailableError(f"{what}; add --isolate to get a trace")
        elif isinstance(said, Exception):
            raise said
        else:
            self._summary.merge(said)
        return event.over

    def so_far(self) -> Summary:
        """What is in the summary together with what those have done that still run, in a summary of its own."""
        parts = [self._summary, *(one.so_far for one in self.progress if not one.over and one.so_far is not None)]
        first = self._summary
        whole = replace(Summary(first.target, first.engine, first.seed), oracles=first.oracles)
        whole.core_name, whole.allow_vacuous = first.core_name, first.allow_vacuous
        whole.known_findings = first.known_findings
        for part in parts:
            own = {key: replace(found, attention=Counter(found.attention)) for key, found in part.found.items()}
            whole.merge(replace(part, found=own))
        return whole


def run_jobs(
    spec: str,
    summary: Summary,
    plan: Plan,
    jobs: int,
    *,
    isolate: bool | None,
    on_progress: Callable[[int, int, float], None],
    live: "LiveRun | None" = None,
) -> None:
    """Run `jobs` processes with seeds `plan.seed`, `plan.seed + 1`, ... and add what they did to the summary.

    All stop as soon as one has found something, unless the plan goes on after findings, or at Ctrl-C. `on_progress`
    gets runs, operations and seconds so far, `live` all that they have done so far.
    TargetUnavailableError if a process cannot open the target or is killed, and nothing was found until then: else that
    is in the summary. WorkerError if one fails otherwise.
    """
    share = None if plan.operations is None else -(-plan.operations // jobs)
    plans = [replace(plan, seed=plan.seed + number, operations=share) for number in range(jobs)]
    lanes = [_Lane(spec, summary.engine, own, isolate, live is not None) for own in plans]
    summary.known_findings = plan.known
    with Pool(_work, jobs) as pool:
        all_jobs = _Jobs(pool, lanes, summary)

        def show(runs: int, operations: int, seconds: float) -> None:
            on_progress(runs, operations, seconds)
            if live is not None and live.page.due:
                live.grown(all_jobs.so_far(), jobs=[one.row() for one in all_jobs.progress])

        try:
            all_jobs.collect(show, goes_on=plan.keep_going)
        except KeyboardInterrupt:
            summary.interrupted = True
            pool.stop()
            all_jobs.collect(on_progress, time.monotonic() + GRACE_S)
        except TargetUnavailableError as error:
            summary.lost = str(error)
            pool.stop()
            with suppress(TargetUnavailableError):  # the others may go the same way
                all_jobs.collect(on_progress, time.monotonic() + GRACE_S)
    for one in all_jobs.progress:
        if not one.over and one.so_far is not None:
            summary.merge(one.so_far)
    if summary.lost and not summary.found:
        raise TargetUnavailableError(summary.lost)


def _work(lane: _Lane, desk: Desk) -> Summary:
    """What a process does: run the engine, and tell now and then how far it is."""
    last, told, pace = time.monotonic(), 0, Pace()

    def report(summary: Summary) -> None:
        nonlocal last, told
        if desk.stopped:
            raise _StopError
        news = (lane.plan.keep_going and len(summary.found) > told) or (lane.live and pace.due)
        if news or time.monotonic() - last > _REPORT_S:
            last, told = time.monotonic(), len(summary.found)
            with pace.telling() if news else nullcontext():
                desk.tell((summary.runs, summary.operations, summary.seconds, summary if news else None))

    target = open_target(lane.spec, isolate=lane.isolate)
    summary = Summary(target.name, lane.engine, lane.plan.seed, oracles=lane.plan.oracles)
    with suppress(_StopError):
        try:
            run_engine(target, lane.plan, summary, report)
        finally:
            close_target(target)
    return summary
