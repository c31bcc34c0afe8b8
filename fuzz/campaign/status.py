"""How far a campaign is, read from its store while it runs or afterwards, and that in words: tables, and one line while
it goes on. The model is the status of AFL++.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import msgspec

from ..findings.severity import Severity
from ..findings.words import plural
from ..reports.document import Table
from ..reports.summary import NEW
from .arms import Standing
from .database import Database
from .store import read_arms, read_settings, read_standings

STILL_S = 30.0
"""A session that was not seen for so long, and has not ended, was killed."""


class ArmStatus(msgspec.Struct, frozen=True):
    """One arm."""

    target: str
    attention: str
    oracles: tuple[str, ...]
    engine: str
    tasks: int
    operations: int
    processor_seconds: float
    share: float
    """Of the processor time of all arms, from 0 to 1."""
    news: int
    """Of all its tasks, as the budget counts them (`arms`)."""
    yield_now: float
    """News per processor second of its last tasks."""
    problem: str
    """Why it gets no more tasks; empty if it does."""


class FindingStatus(msgspec.Struct, frozen=True):
    """One finding."""

    id: int
    target: str
    severity: str
    cause: tuple[str, ...]
    root: str
    times: int
    operations: int
    """Of its trace."""
    task: int
    """That found it first."""
    found: float
    """When, in seconds since 1970."""
    state: str
    """What the last replay showed: there, gone, changed."""


class Status(msgspec.Struct, frozen=True):
    """The whole campaign."""

    store: str
    running: bool
    seed: int
    now: float
    """The moment that it is told of, in seconds since 1970: of one that does not run, when it was last seen."""
    sessions: int
    seconds: float
    """That it has run, over all sessions."""
    tasks: dict[str, int]
    """By state: open, done, failed, lost."""
    replays: int
    """Tasks among them that replay old findings or the corpus."""
    cycles: int
    """How many tasks each arm has had at least, of those that are not given up."""
    operations: int
    operations_per_second: float
    runs: int
    unbuilt: int
    processor_seconds: float
    situations: int
    keys: int
    seeds: int
    last_finding: float | None
    """When the last new cause came up, in seconds since 1970."""
    last_situation: float | None
    replayed: int
    """Old findings and seeds that were replayed on their own target."""
    stable: int
    """Those of them that showed the same as before."""
    arms: tuple[ArmStatus, ...]
    findings: tuple[FindingStatus, ...]

    @property
    def there(self) -> tuple[FindingStatus, ...]:
        """Findings that are not known to be gone."""
        return tuple(one for one in self.findings if one.state != "gone")


def read_status(path: Path) -> Status:
    """The state of the campaign in this file. StoreError if it cannot be read."""
    database = Database(path, write=False)
    try:
        with database.snapshot():
            return status_of(database)
    finally:
        database.close()


def status_of(database: Database) -> Status:
    """The same of a store that is open."""
    sessions, seconds, beat, running = _sessions(database)
    standings = [*read_standings(database, read_arms(database)).values()]
    tasks = dict(cast(list[tuple[str, int]], database.rows("SELECT state, count(*) FROM tasks GROUP BY state")))
    operations, runs, unbuilt, processor = cast(
        tuple[int, int, int, float],
        database.one(
            "SELECT coalesce(sum(operations), 0), coalesce(sum(runs), 0), coalesce(sum(unbuilt), 0),"
            " coalesce(sum(processor_s), 0.0) FROM tasks"
        ),
    )
    replayed, stable = _stability(database)
    able = [one.tasks for one in standings if not one.is_given_up]
    whole = sum(one.seconds for one in standings)
    return Status(
        store=str(database.path),
        running=running,
        seed=read_settings(database).seed,
        now=time.time() if running else beat,
        sessions=sessions,
        seconds=round(seconds, 1),
        tasks={state: tasks.get(state, 0) for state in ("open", "done", "failed", "lost")},
        replays=_count(database, "tasks WHERE kind = 'replay'"),
        cycles=min(able, default=0),
        operations=operations,
        operations_per_second=round(operations / seconds, 1) if seconds else 0.0,
        runs=runs,
        unbuilt=unbuilt,
        processor_seconds=round(processor, 1),
        situations=_count(database, "situations"),
        keys=_count(database, "keys"),
        seeds=_count(database, "seeds"),
        last_finding=cast(float | None, database.one("SELECT max(found) FROM findings")[0]),
        last_situation=cast(float | None, database.one("SELECT max(seen) FROM situations")[0]),
        replayed=replayed,
        stable=stable,
        arms=tuple(_arm(one, whole) for one in standings),
        findings=_findings(database),
    )


def _sessions(database: Database) -> tuple[int, float, float, bool]:
    """How many, their seconds in all, when the last was seen, and whether it runs."""
    rows = cast(
        list[tuple[float, float, float | None]], database.rows("SELECT began, beat, ended FROM sessions ORDER BY id")
    )
    if not rows:
        return 0, 0.0, time.time(), False
    _, beat, ended = rows[-1]
    running = ended is None and time.time() - beat < STILL_S
    return len(rows), sum(beat - began for began, beat, _ in rows), beat, running


def _count(database: Database, what: str) -> int:
    return cast(int, database.one(f"SELECT count(*) FROM {what}")[0])


def _stability(database: Database) -> tuple[int, int]:
    """How often findings and seeds were replayed on their own target, and how often that showed the same."""
    own = "rechecks JOIN findings ON finding = id AND rechecks.target = findings.target"
    findings, there = _count(database, own), _count(database, f"{own} WHERE rechecks.state = 'there'")
    seeds, same = (_count(database, f"seeds WHERE stable {which}") for which in ("IS NOT NULL", "= 1"))
    return findings + seeds, there + same


def _arm(one: Standing, whole: float) -> ArmStatus:
    arm, recent = one.arm, one.recent_seconds
    return ArmStatus(
        *(arm.target, arm.attention, arm.oracles, arm.engine, one.tasks, one.operations, round(one.seconds, 1)),
        share=round(one.seconds / whole, 4) if whole else 0.0,
        news=one.news,
        yield_now=round(one.recent_news / recent, 2) if recent else 0.0,
        problem=one.problem if one.is_given_up else "",
    )


def _findings(database: Database) -> tuple[FindingStatus, ...]:
    """The worst first."""
    rows = database.rows(
        "SELECT id, target, severity, cause, root, times, operations, task, found, state FROM findings"
        f" ORDER BY {Severity.stored_order('severity')}, id"
    )
    names = FindingStatus.__struct_fields__
    documents = [dict(zip(names, row, strict=True)) for row in rows]
    for one in documents:
        one["severity"] = str(Severity(cast(int, one["severity"])))
        one["cause"] = msgspec.json.decode(cast(str, one["cause"]))
    return msgspec.convert(tuple(documents), tuple[FindingStatus, ...])


MOST_ARMS = 40
"""Arms in the table, those with the largest share first."""


def headline(status: Status) -> str:
    """One line: what it is and whether it runs."""
    how = "runs" if status.running else "does not run"
    return f"campaign {status.store}, seed {status.seed}: {how}; {plural(status.sessions, 'session')}"


def verdict(status: Status) -> str:
    """One line: what was found."""
    there = status.there
    if not there:
        return "nothing was found" if status.operations else "TESTED NOTHING"
    new = sum(one.root == NEW for one in there)
    known = any(one.root for one in there)
    return (
        plural(len(there), "finding") + (f", {new} of them new" if known else "") + f", the worst: {there[0].severity}"
    )


def progress_line(status: Status, under_way: int) -> str:
    """One line: how far it is."""
    parts = [
        f"{span(status.seconds)}",
        plural(status.tasks["done"], "task"),
        f"{under_way} under way",
        plural(status.operations, "operation"),
        f"{status.operations_per_second:,.0f} a second",
        plural(len(status.there), "finding"),
        plural(status.situations, "situation"),
        plural(status.keys, "key"),
    ]
    return ", ".join(parts)


def tables(status: Status) -> Iterator[Table]:
    """All of it."""
    yield Table("Campaign", ("what", "value"), tuple(_whole(status)))
    yield Table(
        "Arms",
        ("target", "attention", "oracles", "engine", "tasks", "operations", "share", "news", "news/CPU s", "given up"),
        tuple(_arm_row(arm) for arm in _largest(status.arms)),
    )
    if status.findings:
        columns = ("target", "what", "operation", "severity", "runs", "shrunk to", "task", "state", "root cause")
        yield Table("Findings", columns, tuple(_finding(one) for one in status.findings))


def _whole(status: Status) -> Iterator[tuple[str, str]]:
    tasks = status.tasks
    yield "run time", span(status.seconds)
    yield "processor time", span(status.processor_seconds)
    yield "last new finding", _ago(status.last_finding, status.now)
    yield "last new situation", _ago(status.last_situation, status.now)
    yield "cycles done", f"{status.cycles:,}"
    yield "tasks", ", ".join(f"{count:,} {state}" for state, count in tasks.items() if count or state == "done")
    yield "of these, replays", f"{status.replays:,}"
    yield "operations", f"{status.operations:,}, {status.operations_per_second:,.0f} a second"
    yield "runs", f"{status.runs:,}" + (f", {status.unbuilt:,} of them not built" if status.unbuilt else "")
    yield "reached", f"{plural(status.situations, 'situation')}, {plural(status.keys, 'key')}"
    yield "corpus", plural(status.seeds, "run")
    yield (
        "stability",
        f"{status.stable / status.replayed:.1%} of {status.replayed:,}" if status.replayed else "not known",
    )


def _largest(arms: Sequence[ArmStatus]) -> list[ArmStatus]:
    return sorted(arms, key=lambda arm: -arm.processor_seconds)[:MOST_ARMS]


def _arm_row(arm: ArmStatus) -> tuple[str, ...]:
    figures = (f"{arm.tasks:,}", f"{arm.operations:,}", f"{arm.share:.1%}", f"{arm.news:,}", f"{arm.yield_now:.2f}")
    problem = arm.problem.strip().splitlines()[-1] if arm.problem else "-"
    return arm.target, arm.attention, "+".join(arm.oracles), arm.engine, *figures, problem


def _finding(one: FindingStatus) -> tuple[str, ...]:
    _, what, where, *_ = one.cause
    figures = (f"{one.times:,}", f"{one.operations:,}", f"{one.task:,}")
    return one.target, what, where, one.severity, *figures, one.state, one.root or "-"


def _ago(then: float | None, now: float) -> str:
    return "none yet" if then is None else f"{span(max(0.0, now - then))} ago"


def span(seconds: float) -> str:
    """A time in words, two units at most.

    >>> span(7.4), span(200), span(7_260), span(200_000)
    ('7 s', '3 min 20 s', '2 h 1 min', '2 d 7 h')
    """
    left, parts = int(seconds), list[str]()
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size} {unit}")
            left %= size
        elif parts:
            break
    return " ".join(parts) or "0 s"
