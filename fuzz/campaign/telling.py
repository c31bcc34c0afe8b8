"""The status of a campaign in words: tables for a terminal, and one line while it goes on."""

from collections.abc import Iterator, Sequence

from ..findings.words import plural
from ..reports.document import Table
from ..reports.summary import NEW
from .status import ArmStatus, FindingStatus, Status

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
        tuple(_arm(arm) for arm in _largest(status.arms)),
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


def _arm(arm: ArmStatus) -> tuple[str, ...]:
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
