"""Campaigns without targets: what a task comes to is drawn from its seed, so that a test takes no time."""

import os
import signal
import zlib
from collections import deque
from pathlib import Path
from random import Random
from typing import Any

from blockproof.fuzz.campaign.conduct import Session, conduct
from blockproof.fuzz.campaign.executor import Done
from blockproof.fuzz.campaign.settings import CampaignLimits, Settings
from blockproof.fuzz.campaign.store import Store
from blockproof.fuzz.campaign.tasks import (
    ReplayShown,
    Seed,
    Task,
    TaskFinding,
    TaskResult,
    digest,
    encoded,
    task_of,
    unpacked,
)
from blockproof.fuzz.findings.finding import Finding, Trace
from blockproof.fuzz.traces.trace_file import FoundWhat, TraceFile, dump_trace
from blockproof.model.ops import Done as Returned
from blockproof.model.ops import Free, Group, Shape, Submit

SHAPE = Shape((Group("full", 1),), 3, 2, hash_block_size=1, scheduler_block_size=1, max_num_batched_tokens=1)
TARGETS = {"impl": ("lockstep", "shadow"), "fault:free-order-reversed": ("lockstep", "shadow")}


def settings(folder: Path, **more: Any) -> Settings:
    values: dict[str, Any] = {"seed": 1, "targets": TARGETS, "attention": ("full", "sliding"), "task_operations": 100}
    return Settings(**(values | {"out": str(folder / "found")} | more))


def trace_of(what: str, length: int = 2) -> str:
    """A trace file that shows a finding of this name."""
    operations = (*(Submit(f"r{number}", (0,)) for number in range(length - 1)), Free("r0"))
    finding = Finding(what, Free("r0"), length - 1, Returned(), Returned())
    return dump_trace(TraceFile(Trace(SHAPE, operations), "impl", FoundWhat.of(finding), oracles=("lockstep",)))


def identity_of(what: str) -> tuple[str, ...]:
    return Finding(what, Free("r0"), 1, Returned(), Returned()).key


def found(what: str, times: int = 1, length: int = 2) -> TaskFinding:
    return TaskFinding(
        identity_of(what), "lockstep", f"{what} is wrong", 3, trace_of(what, length), length, True, times
    )


def seed(*keys: str, operations: int = 5) -> Seed:
    return Seed(keys, operations, "trace", zlib.compress(trace_of("none").encode()))


def drawn_result(task: Task) -> TaskResult:
    """What a task comes to: the same for the same target, attention types and seed."""
    if task.kind == "replay":
        traces = task.options.traces
        return TaskResult(task.number, replayed=tuple(ReplayShown(identity_of("x"), "", (), 2) for _ in traces))
    draw = Random(f"{task.target} {task.attention} {task.seed}")
    names = {draw.choice("abcdefgh") for _ in range(draw.randrange(3))}
    keys = tuple(sorted({f"key {draw.randrange(60)}" for _ in range(10)}))
    new = {digest(key) for key in keys} - unpacked(task.options.known_keys)
    return TaskResult(
        *(task.number, task.operations, draw.uniform(0.5, 1.5), 1.0, 3),
        situations={f"situation {draw.randrange(8)}": draw.randrange(1, 5)},
        keys=keys,
        seeds=(seed(*keys),) if new else (),
        findings=tuple(found(name, draw.randrange(1, 4), draw.randrange(2, 9)) for name in sorted(names)),
    )


class Serial:
    """An executor that does its tasks when it is asked for them, and may kill the process just before or after."""

    capacity = 2

    def __init__(self, result_of=drawn_result, kill_at: int | None = None) -> None:
        self._waiting, self._result_of, self._left = deque(), result_of, kill_at
        self.told: list[int] = []

    def submit(self, number: int, task: bytes) -> None:
        self._count()
        self._waiting.append((number, task))

    def done(self, timeout_s: float) -> list[Done]:
        self._count()
        number, task = self._waiting.popleft()
        self.told.append(number)
        result = self._result_of(task_of(task))
        return [result if isinstance(result, Done) else Done(number, encoded(result))]

    def close(self) -> None:
        self._waiting.clear()

    def _count(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left = None if self._left is None else self._left - 1


def run(path: Path, wanted: Settings | None, operations: int, executor: Serial | None = None, **session):
    """Go on with a campaign until it has drawn so many operations. Returns how it ended."""
    store = Store(path, wanted)
    try:
        return conduct(store, executor or Serial(), Session(CampaignLimits(operations=operations), **session))
    finally:
        store.close()
