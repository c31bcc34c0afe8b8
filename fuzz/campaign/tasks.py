"""A task of a campaign and its result: data as bytes, and the function that any process on any machine does it with.

A task says all that its runs depend on, so the same task comes to the same findings wherever and whenever it is done.

What a run has reached is told as keys: a campaign looks for runs with new ones, and its corpus is a set that has them
all. A key is a text that means the same on every machine. Three kinds are read off a run that is over:

* a situation and how often it came up, in classes that double: `hit x4` is 4 to 7 times;
* two situations in one run: `hit + preemption`;
* what an operation came to, with why: `Allocate: Refused, asked for drafts`.
"""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Literal

import msgspec

from ...model.ops import Failed
from ..opening.process import ChildLimits
from ..reports.campaign import CampaignRow
from ..reports.document import TraceDocument
from ..runs.run import Run

Cause = tuple[str, ...]
"""What findings have in common that are kept as one (`reports.summary.Found.key`)."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a task is to be done."""

    chaos: bool = False
    """Break preconditions on purpose in every run."""
    roots: tuple[tuple[tuple[str, ...], str], ...] | None = None
    """To ask for root causes: what they are called, by the known deviations that they take (`Plan.roots`)."""
    shrink_seconds: float = 10.0
    """How long each finding is shrunk at most."""
    deadline_s: float = ChildLimits.operation_s
    """How long a target may take for an operation."""
    growth_bytes: int = ChildLimits.growth_bytes
    """How much its resident memory may grow."""
    known_causes: tuple[Cause, ...] = ()
    """Findings of these are counted, but not shrunk again."""
    known_keys: bytes = b""
    """Digests of what runs have reached before (`packed`): no trace is kept for it again."""
    at_once: bool = False
    """Of a campaign that is told at its end: each attention type has findings of its own, and each result a row."""
    traces: tuple[str, ...] = ()
    """What a task of kind `replay` replays: trace files as JSON."""


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One piece of a campaign."""

    number: int
    """Its own in the store, from 1."""
    target: str
    """As `--target` takes it."""
    attention: str
    """Name of the attention types of its shapes."""
    oracles: tuple[str, ...]
    engine: str
    """Name of one of `engines.seeded.ENGINES`, or `stories.SIMULATION`."""
    seed: int
    operations: int
    """After so many the run at hand is the last one."""
    seconds: float | None = None
    """The same of seconds."""
    kind: Literal["fuzz", "replay"] = "fuzz"
    options: Options = Options()


class TaskFinding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All findings of one cause in a task."""

    cause: Cause
    oracle: str
    text: str
    """What the trace shows, several lines."""
    severity: int
    """A value of `findings.severity.Severity`."""
    trace: str
    """A trace file as JSON, the shortest that is known."""
    operations: int
    """Of the trace."""
    complete: bool
    """False if a shorter trace may exist."""
    times: int
    """In how many runs it came up."""
    root: str = ""
    """Its root cause (`engines.root_causes`); empty if nobody has asked."""
    page: TraceDocument | None = None
    """What its page shows, if that was made."""


class Seed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a run was made of that has reached something new."""

    keys: tuple[str, ...]
    """All that it has reached (`keys_of`)."""
    operations: int
    form: Literal["trace", "bytes"]
    data: bytes
    """Compressed by zlib: a trace file as JSON, or the bytes that a generator was given (`workload.draw.ByteDraw`)."""


class ReplayShown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one trace shows when it is replayed."""

    identity: tuple[str, ...]
    """Of the finding (`Finding.key`); empty if there is none."""
    text: str
    keys: tuple[str, ...]
    operations: int
    """That were applied."""


class TaskResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a task came to."""

    number: int
    operations: int = 0
    processor_seconds: float = 0.0
    """Of the process that did it and of its children."""
    wall_seconds: float = 0.0
    runs: int = 0
    unbuilt: int = 0
    """Runs whose core could not be built: nothing was observed in them."""
    situations: dict[str, int] = {}
    """How often each interesting situation came up."""
    keys: tuple[str, ...] = ()
    """All that its runs have reached: abstract states, outcomes, causes (`keys_of`)."""
    seeds: tuple[Seed, ...] = ()
    """One for each run that has reached what the task did not know."""
    findings: tuple[TaskFinding, ...] = ()
    replayed: tuple[ReplayShown, ...] = ()
    """Of kind `replay`: for each of its traces, in order."""
    problem: str = ""
    """Why nothing, or not all, was done: the target cannot be started, a bug. Empty if there was none."""
    lacks: bool = False
    """True if it is `at_once`, and that is that the target has no cores of these attention types."""
    row: CampaignRow | None = None
    """The same for people, if it is `at_once`; its findings are those above."""


def encoded(value: Task | TaskResult) -> bytes:
    """As bytes, to be stored or sent."""
    return msgspec.msgpack.encode(value)


def task_of(data: bytes) -> Task:
    """The task in these bytes. msgspec.MsgspecError for anything else."""
    return msgspec.msgpack.decode(data, type=Task)


def result_of(data: bytes) -> TaskResult:
    """The result in these bytes. msgspec.MsgspecError for anything else."""
    return msgspec.msgpack.decode(data, type=TaskResult)


DIGEST_BYTES = 8


def keys_of(run: Run) -> tuple[str, ...]:
    """All that the run has reached, in the order of the alphabet."""
    return tuple(sorted(set(_keys(run))))


def _keys(run: Run) -> Iterator[str]:
    reached = {name: count for name, count in run.reached().items() if count > 0}
    for name, count in reached.items():
        yield f"{name} x{1 << (count.bit_length() - 1)}"
    yield from (" + ".join(pair) for pair in combinations(sorted(reached), 2))
    for operation, outcome in zip(run.operations, run.outcomes, strict=False):  # a target that is lost has no outcome
        yield f"{type(operation).__name__}: {outcome.error if isinstance(outcome, Failed) else type(outcome).__name__}"
    yield from (f"{operation}: {result}, {why}" for operation, result, why in run.causes)


def digest(key: str) -> bytes:
    """A short name of a key."""
    return hashlib.sha256(key.encode("utf-8", "backslashreplace")).digest()[:DIGEST_BYTES]


def packed(digests: Iterable[bytes]) -> bytes:
    """Digests in a row, sorted."""
    return b"".join(sorted(digests))


def unpacked(data: bytes) -> frozenset[bytes]:
    """The digests of `packed`."""
    return frozenset(data[at : at + DIGEST_BYTES] for at in range(0, len(data), DIGEST_BYTES))
