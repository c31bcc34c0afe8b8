"""A campaign is killed again and again and resumed: no task is missing or counted twice, and no finding is lost.

python benchmarks/campaign_kills.py [--kills N] [--seed N] [--operations N] [--wait S] [--keep FOLDER] [--lose WHAT]
    [--write PAGE]

Starts `blockproof campaign --store` with planted faults, kills it and all its processes (`kill -9` of the group) at a
moment that is drawn, and resumes it by the same command; the last time it may come to its end. A moment is up to three
tasks, and then up to a second and a half (`--wait`), after the start. After each kill the store must be whole, what had
ended must still be there as it was, and every file that was named must be there. In the end the same tasks are done
without a store and without a kill. Their findings, how often each came up, situations, keys and operations must be
those of the store. `--lose` takes something out of the store before that, which must be noticed. Exits with 1 if a
promise was broken.
"""

import argparse
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import msgspec
from blockproof.fuzz.campaign.checking import problems
from blockproof.fuzz.campaign.database import Database
from blockproof.fuzz.campaign.local import LocalExecutor
from blockproof.fuzz.campaign.store import read_arms
from blockproof.fuzz.campaign.tasks import Options, Task, encoded, result_of
from blockproof.fuzz.traces.trace_file import read_trace
from written import put_section

TARGETS = ("fault:free-order-reversed", "fault:touch-ignores-used-blocks", "impl")
ATTENTION = "full,sliding,full+mamba"
TASK_OPERATIONS = 500
JOBS = 2
MOST_TASKS = 3
"""So many more tasks have ended when a campaign is killed."""
POLL_S = 0.02
LOSSES = {
    "finding": ("DELETE FROM findings WHERE id = 1",),
    "finding-and-traces-of-it": (
        "UPDATE tasks SET causes = causes - 1 WHERE number IN (SELECT task FROM finding_tasks WHERE finding = 1)",
        "UPDATE tasks SET new_causes = new_causes - 1 WHERE number = (SELECT task FROM findings WHERE id = 1)",
        "DELETE FROM finding_tasks WHERE finding = 1",
        "DELETE FROM rechecks WHERE finding = 1",
        "DELETE FROM findings WHERE id = 1",
    ),
    "task": ("DELETE FROM tasks WHERE number = 2",),
    "twice": ("UPDATE findings SET times = times + 1 WHERE id = 1",),
}
"""What `--lose` does to a store. Of these only a comparison with the same tasks can notice the second."""
PAGE = """# A campaign that is killed

What `python benchmarks/campaign_kills.py --write docs/evidence/campaign-kills.md` came to: a campaign with a
store ([campaigns](../guide/campaigns.md)) is killed with all its processes and resumed, and at the end held
against the same tasks, done without a kill. Targets are two planted faults and our core. A broken promise
would be a line that begins with `WRONG`; what is taken out of the store on purpose comes to that."""
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


def main() -> int:
    """Kill, resume, compare, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--operations", type=int, default=120_000, help="of the whole campaign, in tasks of 500")
    parser.add_argument("--wait", type=float, default=1.5, help="seconds after that, at most")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--lose", choices=LOSSES)
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="campaign-kills-") as scratch:
        folder = asked.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        said = list(killed_often(folder, asked.kills, asked.wait, asked.seed, asked.operations))
        lose(folder, LOSSES.get(asked.lose or "", ()))
        said += compared(folder, asked.operations)
    broken = sum(line.startswith("WRONG") for line in said)
    said.append(f"{asked.kills} kills, {broken} broken promises")
    put_section(asked.write, f"Kills, {asked.lose} lost on purpose" if asked.lose else "Kills", PAGE, said)
    return 1 if broken else 0


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
    """Kill the campaign so often, then let it come to its end. What is to be told, a line each."""
    draw, before, begin, redone = random.Random(seed), Ended(), time.monotonic(), 0
    met = Counter[int]()
    while met.total() < kills:
        more, wait_s = draw.randint(0, MOST_TASKS), draw.uniform(0.0, most_s)
        output, ended = run_once(folder, command(folder, seed, operations), (len(before) + more, wait_s))
        if ended:
            yield f"WRONG: the campaign came to its end after {met.total()} kills; give more --operations"
            break
        now, under_way, wrong = looked_at(folder, output, before)
        yield from wrong
        met[more] += 1
        before, redone = now, redone + under_way
    output, _ = run_once(folder, command(folder, seed, operations), None)
    yield from looked_at(folder, output, before)[2]
    after = ", ".join(f"{times} after {more} more tasks" for more, times in sorted(met.items()))
    yield f"killed {met.total()} times: {after}; {redone} tasks were under way; {time.monotonic() - begin:.0f} s"


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


def looked_at(folder: Path, output: str, before: Ended) -> tuple[Ended, int, list[str]]:
    """What has ended, how many tasks were under way, and what is wrong with the store and with what was said."""
    wrong = [f"WRONG: {name} was named and is not there" for name in named(output) if not readable(Path(name))]
    store = store_in(folder)
    database = Database(store, write=True)
    try:
        if database.is_new:  # it was killed before it was made
            return before, 0, [*wrong, *(["WRONG: the store is empty"] if before else [])]
        wrong += [f"WRONG: {problem}" for problem in problems(database)]
        rows = database.rows("SELECT number, arm, seed, operations, runs, causes FROM tasks WHERE state = 'done'")
        ended = {cast(int, number): tuple(more) for number, *more in rows}
        wrong += [
            f"WRONG: task {number} had ended otherwise" for number in before if ended.get(number) != before[number]
        ]
        ((under_way,),) = database.rows("SELECT count(*) FROM tasks WHERE state = 'open'")
        return ended, cast(int, under_way), wrong
    finally:
        database.close()


def named(output: str) -> list[str]:
    """The traces that whole lines of the output name."""
    return re.findall(r"operations?: (\S+\.json)\n", output)


def readable(path: Path) -> bool:
    """True for a trace that is there and whole."""
    return path.is_file() and bool(read_trace(path).trace.operations)


def lose(folder: Path, statements: tuple[str, ...]) -> None:
    """Take something out of the store, as a mistake might."""
    if not statements:
        return
    database = Database(store_in(folder), write=True)
    database.do("PRAGMA foreign_keys = OFF")
    with database.transaction():
        for statement in statements:
            database.do(statement)
    database.close()


def compared(folder: Path, operations: int) -> Iterator[str]:
    """Hold the store against the same tasks, done here without a kill. What is to be told, a line each."""
    database = Database(store_in(folder), write=True)
    try:
        yield from (f"WRONG: {problem}" for problem in problems(database))
        tasks, stored = list(tasks_of(database)), whole_of(database)
    finally:
        database.close()
    if len(tasks) != (wanted := -(-operations // TASK_OPERATIONS)):
        yield f"WRONG: {len(tasks)} tasks instead of {wanted} have ended"
    begin = time.monotonic()
    again = done_again(tasks)
    yield from stored.without(again)
    times = sum(again.findings.values())
    yield (
        f"{len(tasks)} tasks, {stored.operations:,} operations, {len(stored.findings)} findings, "
        f"{len(stored.situations)} situations, {len(stored.keys):,} keys in the store"
    )
    yield (
        f"the same tasks without a kill: {again.operations:,} operations, {len(again.findings)} findings that came up "
        f"{times:,} times; {time.monotonic() - begin:.0f} s"
    )


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


if __name__ == "__main__":
    sys.exit(main())
