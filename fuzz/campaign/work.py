"""Does one task: the function that the processes of an executor call, wherever they are.

A process keeps its last targets open from task to task, each in a child of its own (`opening.child`), so that an engine
is imported once. A target that crashes, hangs or eats memory costs what its task was doing: that is a finding.
"""

import os
import resource
import time
import traceback
import zlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec

from ..engines.plan import OnProgress, Plan
from ..engines.reproductions import found_by, recorded_name
from ..engines.root_causes import RootCauses, small_of
from ..engines.seeded import run_engine
from ..engines.smallest import judging_of
from ..findings.finding import Finding, Trace
from ..findings.severity import severity
from ..opening.targets import open_target
from ..page.trace_page import document_beside
from ..reports.progress import Pace
from ..reports.summary import Found, Summary
from ..runs.open_run import open_run
from ..runs.run import Run
from ..targets.base import Target, TargetUnavailableError, close_target
from ..traces.files import TraceError
from ..traces.judges import Judges
from ..traces.replay import replay_in
from ..traces.trace_file import FoundWhat, TraceFile, dump_trace, load_trace
from .rows import row_of
from .stories import SIMULATION, simulated
from .tasks import (
    Cause,
    ReplayShown,
    Seed,
    Task,
    TaskFinding,
    TaskResult,
    digest,
    encoded,
    keys_of,
    result_of,
    task_of,
    unpacked,
)

_TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds() -> float:
    """Seconds since the start of this process; of a living child in steps of a tick, and nothing without /proc."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + sum(map(_used, _living(os.getpid())))


def _living(process: int) -> Iterator[int]:
    """The children of a process, and theirs."""
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from _living(child)


def _used(process: int) -> float:
    """Of one process and of its children that have ended, in seconds."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS
    return 0.0


KEPT_OPEN = 4
"""Targets that a process has open at a time: an engine may take hundreds of megabytes. One if they come in turn."""
SCRIPTED = "liveness: "
"""What the scheduler of a script reaches: the operations that it has made of it do not reach that again."""
_open: OrderedDict[tuple[str, float, int], Target] = OrderedDict()


Tell = Callable[[bytes], None]


class _LackingError(TargetUnavailableError):
    """The target has no cores of the attention types of a task."""


def run_task(task: bytes, tell: Tell | None = None) -> bytes:
    """Do a task, and return its result; what one `at_once` has come to is told on the way. Whatever goes wrong with it
    is its `problem`; never raises an Exception."""
    wanted = task_of(task)
    try:
        return encoded(done(wanted, tell))
    except _LackingError as error:
        return encoded(TaskResult(wanted.number, problem=str(error), lacks=wanted.options.at_once))
    except TargetUnavailableError as error:
        problem = str(error)
    except Exception:
        problem = f"this is a bug of blockproof: {traceback.format_exc()}"
    return encoded(TaskResult(wanted.number, problem=problem))


def close_targets() -> None:
    """Close the targets that this process has kept open."""
    while _open:
        close_target(_open.popitem()[1])


def done(task: Task, tell: Tell | None = None) -> TaskResult:
    """What the task comes to. TargetUnavailableError if its target cannot be started, or has no such core."""
    processor, wall = processor_seconds(), time.monotonic()
    result = _simulated(task, tell) if task.engine == SIMULATION else _fuzzed(task, tell)
    seconds = round(processor_seconds() - processor, 3), round(time.monotonic() - wall, 3)
    return msgspec.structs.replace(result, processor_seconds=seconds[0], wall_seconds=seconds[1])


def _simulated(task: Task, tell: Tell | None) -> TaskResult:
    """The same of an engine."""
    if tell is None or not task.options.at_once:
        return simulated(task)
    return simulated(task, lambda result: tell(encoded(result)))


def _fuzzed(task: Task, tell: Tell | None) -> TaskResult:
    """The same of a target, without the seconds."""
    with _opened(task) as target:
        counted = (
            Summary if task.options.at_once else partial(Reaching, known_keys=set(unpacked(task.options.known_keys)))
        )
        summary = counted(recorded_name(task.target, target), task.engine, task.seed, oracles=task.oracles)
        plan, own = _plan(task, target), dict[Cause, Plan]()
        replayed = tuple(_replay_all(target, summary, plan, task.options.traces, own)) if task.kind == "replay" else ()
        if task.kind == "fuzz":
            run_engine(target, plan, summary, _telling(task, target, plan, tell))
        findings = tuple(_told(found, target, task, own.get(found.key, plan)) for found in summary.ranked())
    return _result(task, summary, findings, replayed)


def _telling(task: Task, target: Target, plan: Plan, tell: Tell | None) -> OnProgress | None:
    """Tells what is found at once, as this process may be killed, and now and then how far it is."""
    if tell is None or not task.options.at_once:
        return None
    told, pace = 0, Pace()

    def so_far(summary: Summary) -> None:
        nonlocal told
        if len(summary.found) > told or pace.due:
            told = len(summary.found)
            with pace.telling():
                findings = tuple(_told(found, target, task, plan, shrinks=False) for found in summary.ranked())
                tell(encoded(_result(task, summary, findings)))

    return so_far


def _result(
    task: Task, summary: Summary, findings: tuple[TaskFinding, ...], replayed: tuple[ReplayShown, ...] = ()
) -> TaskResult:
    return TaskResult(
        task.number,
        summary.operations,
        runs=summary.runs,
        unbuilt=summary.unbuilt.total(),
        situations=dict(sorted((+summary.reached).items())),
        keys=tuple(sorted(getattr(summary, "keys", ()))),
        seeds=tuple(getattr(summary, "seeds", ())),
        findings=findings,
        replayed=replayed,
        row=row_of(task, summary, findings) if task.options.at_once else None,
    )


@dataclass
class Reaching(Summary):
    """A summary that keeps the first run that reaches something new."""

    keys: set[str] = field(default_factory=set)
    """All that was reached."""
    known_keys: set[bytes] = field(default_factory=set)
    """Digests of what need not be kept again."""
    seeds: list[Seed] = field(default_factory=list)

    def add_run(self, attention: str, run: Run, finding: Finding | None, trace: Trace | None) -> None:
        """Count one run that is over."""
        super().add_run(attention, run, finding, trace)
        keys = keys_of(run)
        self.keys.update(keys)
        new = {digest(key) for key in keys} - self.known_keys
        if new and run.built and run.operations and not any(SCRIPTED in key for key in keys):
            self.known_keys |= new
            file = TraceFile(run.trace, self.target, found_by=found_by(self.engine, self.seed), oracles=self.oracles)
            self.seeds.append(Seed(keys, len(run.operations), "trace", zlib.compress(dump_trace(file).encode())))


@contextmanager
def _opened(task: Task) -> Iterator[Target]:
    """The target of a task, in a child. It stays open, unless something went wrong that nobody has foreseen."""
    options = task.options
    key = (task.target, options.deadline_s, options.growth_bytes)
    target = _open.pop(key, None)
    if target is None:
        while len(_open) >= (1 if options.at_once else KEPT_OPEN):
            close_target(_open.popitem(last=False)[1])
        target = open_target(task.target, isolate=True, deadline_s=key[1], growth_bytes=key[2])
    try:
        yield target
    except BaseException:
        close_target(target)
        raise
    _open[key] = target


def _plan(task: Task, target: Target) -> Plan:
    """TargetUnavailableError if the target has no cores of these attention types."""
    roots = None if task.options.roots is None else {frozenset(ids): name for ids, name in task.options.roots}
    plan = Plan(
        task.seed, task.seconds, task.operations or None, (task.attention,), task.options.chaos, oracles=task.oracles
    )
    plan = replace(plan, keep_going=True, roots=roots)
    if task.kind == "replay":
        return plan
    try:
        return plan.possible_on(target)
    except ValueError as error:
        raise _LackingError(str(error)) from None


def _replay_all(
    target: Target, summary: Summary, plan: Plan, traces: Sequence[str], own: dict[Cause, Plan]
) -> Iterator[ReplayShown]:
    """What each of the traces shows. What shows something else than it was written for is a finding: `own` gets the
    plan of its cause, with the oracles that the trace names."""
    (attention,) = plan.attention
    for text in traces:
        try:
            file = load_trace(text)
        except TraceError as error:  # of another version of blockproof
            yield ReplayShown((), f"not replayed: {error}", (), 0)
            continue
        judged = replace(plan, oracles=file.oracles or plan.oracles)
        run = open_run(target, judged.judging())
        finding, applied = replay_in(run, file.trace)
        summary.add_run(attention, run, None, None)
        if finding is not None and (file.finding is None or not file.finding.is_shown_by(finding)):
            found = Found(finding, applied, attention=Counter([attention]), seed=plan.seed)
            found.root = RootCauses(target, judged).of(found)
            summary.add_found(found)
            own[found.key] = judged
        identity, text = ((), "") if finding is None else (finding.key, str(finding))
        yield ReplayShown(identity, text, keys_of(run), len(run.operations))


def _told(found: Found, target: Target, task: Task, plan: Plan, *, shrinks: bool = True) -> TaskFinding:
    """What is sent of a finding: its smallest trace, unless its cause is known."""
    apart = task.options.at_once
    cause = (*found.key, task.attention) if apart else found.key
    known = cause in task.options.known_causes
    small = None if known or not shrinks else small_of(found, target, plan, task.options.shrink_seconds)
    finding, trace, complete = found.finding, found.trace, False
    oracles = tuple(judging_of(found, plan).oracles)
    if small is not None:
        finding, trace, complete = small[0].finding, small[0].trace, small[0].complete
        oracles = small[1]
    run = found_by(task.engine, task.seed)
    file = TraceFile(trace, recorded_name(task.target, target), FoundWhat.of(finding), run, oracles)
    judges = Judges(oracles, "as in the campaign") if apart and small is not None else None
    return TaskFinding(
        cause,
        finding.oracle,
        str(finding),
        severity(finding).value,
        "" if known else dump_trace(file),
        len(trace.operations),
        complete,
        found.times,
        found.root,
        document_beside(file, target, judges) if judges else None,
    )


def checked_result(data: bytes, number: int) -> TaskResult:
    """The result of the task of this number. ValueError, in one line, if the bytes are none, or that of another."""
    try:
        result = result_of(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"what came back is no result: {error}") from None
    if result.number != number:
        raise ValueError(f"what came back is the result of task {result.number}, not of {number}")
    return result
