"""A campaign is killed again and again and resumed: no task is missing or counted twice, and no finding is lost.

`killed_often` starts `blockproof campaign --store` with planted faults, kills it and all its processes (`kill -9` of
the group) at a moment that is drawn, and resumes it by the same command; the last time it may come to its end. After
each kill the store must be whole, what had ended must still be there as it was, and every file that was named must be
there. `compared` does the same tasks without a store and without a kill: their findings, how often each came up,
situations, keys and operations must be those of the store. `lose` takes something out of the store, as a mistake might.
"""

import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import msgspec
from blockproof.fuzz.campaign.checking import problems
from blockproof.fuzz.campaign.database import Database
from blockproof.fuzz.campaign.executor import LocalExecutor
from blockproof.fuzz.campaign.store import read_arms
from blockproof.fuzz.campaign.tasks import Options, Task, encoded, result_of
from blockproof.fuzz.traces.trace_file import read_trace

TARGETS = ("fault:free-order-reversed", "fault:touch-ignores-used-blocks", "impl")
ATTENTION = "full,sliding,full+mamba"
TASK_OPERATIONS = 500
JOBS = 2
MOST_TASKS = 3
"""So many more tasks have ended when a campaign is killed."""
POLL_S = 0.02
LOST = (
    "UPDATE tasks SET causes = causes - 1 WHERE number IN (SELECT task FROM finding_tasks WHERE finding = 1)",
    "UPDATE tasks SET new_causes = new_causes - 1 WHERE number = (SELECT task FROM findings WHERE id = 1)",
    "DELETE FROM finding_tasks WHERE finding = 1",
    "DELETE FROM rechecks WHERE finding = 1",
    "DELETE FROM findings WHERE id = 1",
)
"""Takes a finding out of a store with all that tells of it, so that only a comparison with the same tasks notices."""
Ended = dict[int, tuple[object, ...]]
Found = dict[tuple[str, tuple[str, ...]], int]


@dataclass
class Whole:
    """What tasks have come to, all together."""

    operations: int = 0
    findings: Found = field(default_factory=dict)
    """How often each came up, by target and cause."""
    situations: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """How often each was reached, by target and attention types."""
    keys: set[tuple[str, str, str]] = field(default_factory=set)

    def without(self, other: "Whole") -> Iterator[str]:
        """In what another one differs, a line each."""
        for name in ("operations", "findings", "situations", "keys"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                yield f"WRONG: {name} of the store and of the same tasks without a kill differ: {_short(mine, theirs)}"


def _short(mine: object, theirs: object) -> str:
    if isinstance(mine, int):
        return f"{mine} and {theirs}"
    one, two = (
        set(side.items()) if isinstance(side, dict) else set(cast(set[object], side)) for side in (mine, theirs)
    )
    return f"only there {sorted(map(str, one - two))[:3]}, only here {sorted(map(str, two - one))[:3]}"


def command(folder: Path, seed: int, operations: int) -> list[str]:
    """The campaign, as it is started and resumed."""
    words = [sys.executable, "-m", "blockproof.fuzz.cli", "campaign", "--store", str(store_in(folder))]
    words += [word for target in TARGETS for word in ("--target", target)]
    words += ["--attention", ATTENTION, "--seed", str(seed), "--operations", str(operations), "--jobs", str(JOBS)]
    return [*words, "--task-operations", str(TASK_OPERATIONS), "--shrink-seconds", "1", "--out", str(folder / "found")]


def store_in(folder: Path) -> Path:
    """The file of the campaign."""
    return folder / "campaign.sqlite"


def killed_often(folder: Path, kills: int, most_s: float, seed: int, operations: int) -> Iterator[str]:
    """Kill the campaign so often, then let it come to its end. What is wrong, a line each."""
    draw, before = random.Random(seed), Ended()
    for number in range(kills):
        tasks, wait_s = len(before) + draw.randint(0, MOST_TASKS), draw.uniform(0.0, most_s)
        output, ended = run_once(folder, command(folder, seed, operations), (tasks, wait_s))
        if ended:
            yield f"WRONG: the campaign came to its end after {number} kills; give more operations"
            break
        before, wrong = looked_at(folder, output, before)
        yield from wrong
    output, _ = run_once(folder, command(folder, seed, operations), None)
    yield from looked_at(folder, output, before)[1]


def run_once(folder: Path, words: list[str], kill: tuple[int, float] | None) -> tuple[str, bool]:
    """What the campaign printed until it was killed with all its processes, and whether it had ended by itself.

    It is killed once so many tasks have ended, so many seconds later.
    """
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    process = subprocess.Popen(words, text=True, start_new_session=True, stdin=subprocess.DEVNULL, **streams)  # type: ignore[call-overload]
    if kill is not None:
        tasks, wait_s = kill
        while process.poll() is None and count_ended(store_in(folder)) < tasks:
            time.sleep(POLL_S)
        time.sleep(wait_s)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            return process.communicate()[1], False
    output = process.communicate()[1]
    if process.returncode not in (0, 1):
        raise SystemExit(f"the campaign does not run: {output}")
    return output, True


def count_ended(store: Path) -> int:
    """How many tasks have ended; 0 for a file that was killed before it was made."""
    if not store.exists():
        return 0
    db = sqlite3.connect(f"{store.resolve().as_uri()}?mode=ro", uri=True)
    try:
        (count,) = db.execute("SELECT count(place) FROM tasks").fetchone()
        return cast(int, count)
    except sqlite3.OperationalError:  # it has no tables yet, or is being made
        return 0
    finally:
        db.close()


def looked_at(folder: Path, output: str, before: Ended) -> tuple[Ended, list[str]]:
    """What has ended, and what is wrong with the store and with what was said."""
    wrong = [f"WRONG: {name} was named and is not there" for name in named(output) if not readable(Path(name))]
    database = Database(store_in(folder), write=True)
    try:
        if database.is_new:  # it was killed before it was made
            return before, [*wrong, *(["WRONG: the store is empty"] if before else [])]
        wrong += [f"WRONG: {problem}" for problem in problems(database)]
        rows = database.rows("SELECT number, arm, seed, operations, runs, causes FROM tasks WHERE state = 'done'")
        ended = {cast(int, number): tuple(more) for number, *more in rows}
        changed = [number for number in before if ended.get(number) != before[number]]
        return ended, [*wrong, *(f"WRONG: task {number} had ended otherwise" for number in changed)]
    finally:
        database.close()


def named(output: str) -> list[str]:
    """The traces that whole lines of the output name."""
    return re.findall(r"operations?: (\S+\.json)\n", output)


def readable(path: Path) -> bool:
    """True for a trace that is there and whole."""
    return path.is_file() and bool(read_trace(path).trace.operations)


def lose(folder: Path) -> None:
    """Take a finding out of the store."""
    database = Database(store_in(folder), write=True)
    database.do("PRAGMA foreign_keys = OFF")
    with database.transaction():
        for statement in LOST:
            database.do(statement)
    database.close()


def compared(folder: Path, operations: int) -> Iterator[str]:
    """Hold the store against the same tasks, done here without a kill. What is wrong, a line each."""
    database = Database(store_in(folder), write=True)
    try:
        yield from (f"WRONG: {problem}" for problem in problems(database))
        tasks, stored = list(tasks_of(database)), whole_of(database)
    finally:
        database.close()
    if len(tasks) != (wanted := -(-operations // TASK_OPERATIONS)):
        yield f"WRONG: {len(tasks)} tasks instead of {wanted} have ended"
    yield from stored.without(done_again(tasks))


def tasks_of(database: Database) -> Iterator[Task]:
    """The tasks that have drawn something and ended, as they were but for what was known by then."""
    arms = read_arms(database)
    rows = database.rows("SELECT number, arm, seed, asked FROM tasks WHERE kind = 'fuzz' AND state = 'done'")
    for number, id, seed, asked in cast(list[tuple[int, int, int, int]], rows):
        arm = arms[id]
        options = Options(roots=(), shrink_seconds=0.0)
        yield Task(number, arm.target, arm.attention, arm.oracles, arm.engine, seed, asked, options=options)


def whole_of(database: Database) -> Whole:
    """What the store has counted."""
    (operations,) = database.one("SELECT sum(operations) FROM tasks WHERE kind = 'fuzz'")
    found = cast(list[tuple[str, str, int]], database.rows("SELECT target, cause, times FROM findings"))
    findings = {(target, msgspec.json.decode(cause, type=tuple[str, ...])): times for target, cause, times in found}
    situations = cast(
        list[tuple[str, str, str, int]], database.rows("SELECT target, attention, name, times FROM situations")
    )
    keys = cast(list[tuple[str, str, str]], database.rows("SELECT target, attention, key FROM keys"))
    counted = Counter({(target, attention, name): times for target, attention, name, times in situations})
    return Whole(cast(int, operations), findings, counted, set(keys))


def done_again(tasks: list[Task]) -> Whole:
    """What the tasks come to in processes that nobody kills."""
    whole, by_number = Whole(), {task.number: task for task in tasks}
    executor = LocalExecutor(JOBS)
    try:
        for task in tasks:
            executor.submit(task.number, encoded(task))
        while by_number:
            for done in executor.done(1.0):
                task = by_number.pop(done.number)
                if done.result is None:
                    raise SystemExit(f"task {done.number}: {done.problem}")
                result = result_of(done.result)
                whole.operations += result.operations
                where = (task.target, task.attention)
                whole.situations.update({(*where, name): times for name, times in result.situations.items()})
                whole.keys |= {(*where, key) for key in result.keys}
                for found in result.findings:
                    cause = (task.target, found.cause)
                    whole.findings[cause] = whole.findings.get(cause, 0) + found.times
    finally:
        executor.close()
    return whole
