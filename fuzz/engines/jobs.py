"""Several processes that fuzz with different seeds at the same time, and their common summary.

The workers ignore Ctrl-C: this process hears it and tells them to stop, which they do after the run at hand, or are
made to.
"""

import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING

from ..opening.targets import open_target
from ..opening.workers import worker_context
from ..reports.progress import Pace
from ..reports.summary import Summary
from ..targets.base import TargetUnavailableError, close_target
from .choice import run_engine
from .plan import Plan

if TYPE_CHECKING:
    from .live_run import LiveRun  # and pages with it, which no worker writes

GRACE_S = 0.6
"""How long the workers have to come to an end after they were told to stop."""
_REPORT_S = 0.2


class WorkerError(Exception):
    """A worker failed in an unexpected way; the text is its traceback."""


class _Stop(Exception):
    pass


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    runs: int = 0
    operations: int = 0
    seconds: float = 0.0
    """Since its target was ready."""
    so_far: Summary | None = None
    """What it has found so far, if the runs go on after findings or a page shows them: it may have to be killed."""
    seed: int = 0

    def row(self) -> list[str]:
        """How far it is, for a page (`page.live.COLUMNS`)."""
        rate = f"{self.operations / self.seconds:,.0f}" if self.seconds else ""
        state = "ended" if self.connection.closed else "running" if self.seconds else "starting"
        return [str(self.process.pid), str(self.seed), f"{self.runs:,}", f"{self.operations:,}", rate, state]


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
    """Run `jobs` workers with seeds `plan.seed`, `plan.seed + 1`, ... and add what they did to the summary.

    All stop as soon as one has found something, unless the plan goes on after findings, or at Ctrl-C. `on_progress`
    gets runs, operations and seconds so far, `live` all that they have done so far.
    TargetUnavailableError if a worker cannot open the target or is killed, and nothing was found until then: else that
    is in the summary. WorkerError if one fails otherwise.
    """
    context = worker_context()
    workers = []
    for index in range(jobs):
        ours, theirs = context.Pipe()
        share = None if plan.operations is None else -(-plan.operations // jobs)
        own = replace(plan, seed=plan.seed + index, operations=share)
        given = (theirs, spec, summary.engine, own, (isolate, live is not None))
        process = context.Process(target=_work, args=given, daemon=True)
        process.start()
        theirs.close()
        workers.append(_Worker(process, ours, seed=own.seed))
    summary.known_findings = plan.known
    try:
        _collect(workers, summary, _shown_too(on_progress, live, workers, summary), goes_on=plan.keep_going)
    except KeyboardInterrupt:
        summary.interrupted = True
        _stop(workers)
        _collect(workers, summary, on_progress, time.monotonic() + GRACE_S)
    except TargetUnavailableError as error:
        summary.lost = str(error)
        _stop(workers)
        with suppress(TargetUnavailableError):  # the others may go the same way
            _collect(workers, summary, on_progress, time.monotonic() + GRACE_S)
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()
            if not worker.connection.closed and worker.so_far is not None:
                summary.merge(worker.so_far)
    if summary.lost and not summary.found:
        raise TargetUnavailableError(summary.lost)


def _shown_too(
    on_progress: Callable[[int, int, float], None], live: "LiveRun | None", workers: Sequence[_Worker], summary: Summary
) -> Callable[[int, int, float], None]:
    """Tells the page as well, now and then, what is in the summary together with what the others have done so far."""
    if live is None:
        return on_progress

    def show(runs: int, operations: int, seconds: float) -> None:
        on_progress(runs, operations, seconds)
        if live.page.due:
            others = [worker.so_far for worker in workers if not worker.connection.closed]
            whole = _together([summary, *(one for one in others if one is not None)])
            live.grown(whole, jobs=[worker.row() for worker in workers])

    return show


def _together(parts: Sequence[Summary]) -> Summary:
    """All of them in a summary of its own: none of the parts changes."""
    first = parts[0]
    whole = replace(Summary(first.target, first.engine, first.seed), oracles=first.oracles, core_name=first.core_name)
    whole.allow_vacuous, whole.known_findings = first.allow_vacuous, first.known_findings
    for part in parts:
        own = {key: replace(found, attention=Counter(found.attention)) for key, found in part.found.items()}
        whole.merge(replace(part, found=own))
    return whole


def _collect(
    workers: Sequence[_Worker],
    summary: Summary,
    on_progress: Callable[[int, int, float], None],
    deadline: float | None = None,
    *,
    goes_on: bool = False,
) -> None:
    """Receive from the workers until all are done, or until the deadline. With `goes_on` a finding ends nothing."""
    while open_ends := [worker for worker in workers if not worker.connection.closed]:
        if deadline is not None and time.monotonic() > deadline:
            return
        for ready in wait([worker.connection for worker in open_ends], _REPORT_S):
            worker = next(worker for worker in open_ends if worker.connection is ready)
            if _receive(worker, summary) and summary.finding is not None and deadline is None and not goes_on:
                _stop(workers)
                deadline = time.monotonic() + GRACE_S
        runs, operations = (sum(getattr(worker, name) for worker in workers) for name in ("runs", "operations"))
        on_progress(runs, operations, max(worker.seconds for worker in workers))


def _receive(worker: _Worker, summary: Summary) -> bool:
    """Take one message. Returns whether it was the worker's last one."""
    try:
        message = worker.connection.recv()
    except EOFError:
        worker.connection.close()
        worker.process.join(GRACE_S)
        status = worker.process.exitcode
        memory = ", as if memory was short" if status == -signal.SIGKILL else ""
        raise TargetUnavailableError(
            f"the target ended the process it ran in (exit status {status}{memory}); add --isolate to get a trace"
        ) from None
    if isinstance(message, tuple):
        worker.runs, worker.operations, worker.seconds, so_far = message
        worker.so_far = so_far or worker.so_far
        return False
    worker.connection.close()
    if isinstance(message, Exception):
        raise message
    summary.merge(message)
    return True


def _stop(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        if not worker.connection.closed:
            try:
                worker.connection.send("stop")
            except OSError:
                continue  # it has just ended by itself


def _work(connection: Connection, spec: str, engine: str, plan: Plan, how: tuple[bool | None, bool]) -> None:
    """What a worker does: run the engine, report now and then, and send the summary at the end. `how`: in a process
    apart, and with a page that shows what it does.
    """
    last, told, pace = time.monotonic(), 0, Pace()
    isolate, live = how

    def report(summary: Summary) -> None:
        nonlocal last, told
        if connection.poll():
            raise _Stop
        news = (plan.keep_going and len(summary.found) > told) or (live and pace.due)
        if news or time.monotonic() - last > _REPORT_S:
            last, told = time.monotonic(), len(summary.found)
            with pace.telling() if news else nullcontext():
                connection.send((summary.runs, summary.operations, summary.seconds, summary if news else None))

    try:
        connection.send(_run(spec, engine, plan, isolate, report))
    except TargetUnavailableError as error:
        connection.send(TargetUnavailableError(str(error)))
    except Exception:
        connection.send(WorkerError(traceback.format_exc()))


def _run(spec: str, engine: str, plan: Plan, isolate: bool | None, report: Callable[[Summary], None]) -> Summary:
    target = open_target(spec, isolate=isolate)
    summary = Summary(target.name, engine, plan.seed, oracles=plan.oracles)
    try:
        run_engine(target, plan, summary, report)
    except _Stop:
        pass
    finally:
        close_target(target)
    return summary
