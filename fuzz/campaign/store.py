"""What a campaign knows, in a file that survives any kill: its tasks, findings, corpus, situations and keys.

A task is written before it is given out, and what it came to is one transaction. So a task is `open` until all of its
result is there: after a kill it is done again, and none is counted twice.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import cast

import msgspec

from ..reports.campaign import CampaignRow
from .arms import OF_A_CAUSE, OF_A_KEY, OF_A_SITUATION, Arm, Standing
from .database import Database, StoreError
from .settings import Settings
from .tasks import Cause, ReplayShown, Seed, Task, TaskFinding, TaskResult, digest, encoded, task_of

ATTEMPTS = 2
"""How often a task is begun whose process dies."""
ANY = ""
"""The attention types of a task that replays findings: they may be of any, and what they reach is not counted."""
Subject = Mapping[str, Sequence[int]]
"""What a task of kind `replay` replays: ids of `findings` or of `seeds`, in the order of its traces."""


class Ended(Enum):
    """Why a session came to its end."""

    LIMIT = "at its limit"
    GIVEN_UP = "no arm is left: none of the targets can be run"
    INTERRUPTED = "by Ctrl-C"


@dataclass(frozen=True)
class StoredFinding:
    """A finding as it is kept."""

    id: int
    target: str
    trace: str
    """A trace file as JSON."""


@dataclass
class Gain:
    """What was new in the result of a task."""

    causes: list[int] = field(default_factory=list)
    """Ids of findings that are new, or have a shorter trace now."""
    new_causes: int = 0
    situations: int = 0
    keys: int = 0

    @property
    def news(self) -> int:
        """As one number (`arms`)."""
        return OF_A_CAUSE * self.new_causes + OF_A_SITUATION * self.situations + OF_A_KEY * self.keys


class KeptRow(msgspec.Struct, frozen=True):
    """What is kept of a task for people."""

    row: CampaignRow
    causes: tuple[Cause, ...]
    """Of its findings, in order."""

    @classmethod
    def of(cls, result: TaskResult) -> "KeptRow":
        """That of a result that has one."""
        assert result.row is not None
        return cls(result.row, tuple(found.cause for found in result.findings))


class Store:
    """The store of a campaign, for its one writer."""

    def __init__(self, path: Path, settings: Settings | None = None) -> None:
        """Open the store; with settings a new one if there is none. StoreError if the file cannot be used."""
        if settings is None and not path.exists():
            raise StoreError(f"{path}: no such file; check the path")
        self.database = Database(path, write=True)
        try:
            self._begin(settings)
            self.settings = read_settings(self.database)
            self.arms = read_arms(self.database)
        except BaseException:
            self.database.close()
            raise
        self.rows = self._rows()
        """Those of all tasks that had one."""
        self._known_keys: dict[tuple[str, str], set[bytes]] = {}
        self._session: int | None = None

    def _begin(self, settings: Settings | None) -> None:
        if not self.database.is_new:
            return
        if settings is None:
            raise StoreError(f"{self.database.path}: is empty; name the file of a campaign")
        with self.database.transaction():
            self.database.create()
            self._write(settings)

    def change(self, settings: Settings) -> None:
        """Other settings from now on. Arms that they add get tasks, too; none is removed."""
        with self.database.transaction():
            self._write(settings)
        self.settings, self.arms = settings, read_arms(self.database)

    def _write(self, settings: Settings) -> None:
        document = msgspec.json.encode(settings).decode()
        self.database.do("INSERT OR REPLACE INTO meta VALUES ('settings', ?)", document)
        for arm in settings.arms():
            values = (arm.target, arm.attention, ",".join(arm.oracles), arm.engine)
            self.database.do(
                "INSERT OR IGNORE INTO arms (target, attention, oracles, engine) VALUES (?, ?, ?, ?)", *values
            )

    def begin_session(self) -> None:
        """The campaign runs from now on."""
        now = time.time()
        with self.database.transaction():
            self.database.do("INSERT INTO sessions (began, beat, under_way) VALUES (?, ?, 0)", now, now)
        (self._session,) = cast(tuple[int], self.database.one("SELECT max(id) FROM sessions"))

    def beat(self, under_way: int) -> None:
        """It still runs, with so many tasks under way."""
        with self.database.transaction():
            self._beat(under_way)

    def end_session(self) -> None:
        """It runs no longer, whatever Ctrl-C has cut off."""
        self.database.take_back()
        with self.database.transaction():
            self._beat(0)
            self.database.do("UPDATE sessions SET ended = beat WHERE id = ?", self._session)

    def _beat(self, under_way: int | None = None) -> None:
        same = "" if under_way is None else f", under_way = {under_way:d}"
        self.database.do(f"UPDATE sessions SET beat = ?{same} WHERE id = ?", time.time(), self._session)

    def next_number(self) -> int:
        """The number of the next task."""
        return 1 + cast(int, self.database.one("SELECT coalesce(max(number), 0) FROM tasks")[0])

    def assign(self, task: Task, arm: int | None, subject: Subject | None = None) -> bytes:
        """A task that is to be given out. Returns it as bytes."""
        body = encoded(task)
        kept = None if subject is None else msgspec.json.encode(subject).decode()
        values = (task.number, arm, task.kind, task.seed, task.operations, body, kept)
        with self.database.transaction():
            self.database.do(
                "INSERT INTO tasks (number, arm, kind, seed, asked, body, subject) VALUES (?, ?, ?, ?, ?, ?, ?)",
                *values,
            )
        return body

    def open_tasks(self) -> list[tuple[int, int | None, bytes]]:
        """Tasks that were given out and have not ended: number, arm, and the task."""
        query = "SELECT number, arm, body FROM tasks WHERE state = 'open' ORDER BY number"
        return cast(list[tuple[int, int | None, bytes]], self.database.rows(query))

    def lost(self, number: int, problem: str) -> bool:
        """The process of a task has died. True if it is to be begun again."""
        with self.database.transaction():
            self.database.do("UPDATE tasks SET attempts = attempts + 1 WHERE number = ? AND state = 'open'", number)
            (attempts,) = self.database.one("SELECT attempts FROM tasks WHERE number = ?", number)
            if cast(int, attempts) < ATTEMPTS:
                return True
            self._end(number, "lost", TaskResult(number, problem=problem), Gain())
            return False

    def finish(self, result: TaskResult, *, cut: bool = False) -> Gain | None:
        """A task has ended: count all that it came to. None if it had ended before, then nothing is counted. `cut`:
        that is what it had told, and it never comes to its end.

        StoreError if there is no such task.
        """
        with self.database.transaction():
            state, body, subject = self.database.one(
                "SELECT state, body, subject FROM tasks WHERE number = ?", result.number
            )
            if state != "open":
                return None
            task, gain = task_of(cast(bytes, body)), Gain()
            fresh = self._keep_keys(task, result, gain)
            for found in result.findings:
                self._keep_finding(task, found, gain)
            for seed in result.seeds:
                self._keep_seed(task, seed, fresh)
            if subject is not None:
                kept = msgspec.json.decode(cast(str, subject), type=dict[str, list[int]])
                self._keep_replayed(task, kept, result.replayed)
            if result.row is not None:
                row = KeptRow.of(result)
                text = msgspec.json.encode(row).decode()
                self.database.do("INSERT INTO meta VALUES (?, ?)", f"row {result.number:09}", text)
                self.rows.append(row)
            failed = result.problem and not result.lacks
            self._end(result.number, "cut" if cut else "failed" if failed else "done", result, gain)
        self._known_keys.setdefault((task.target, task.attention), set()).update(map(digest, fresh))
        return gain

    def _end(self, number: int, state: str, result: TaskResult, gain: Gain) -> None:
        figures = (result.operations, result.runs, result.unbuilt, result.processor_seconds, result.wall_seconds)
        news = (len(result.findings), gain.new_causes, gain.situations, gain.keys)
        self.database.do(
            "UPDATE tasks SET state = ?, body = NULL, ended = ?, problem = ?,"
            " place = (SELECT coalesce(max(place), 0) + 1 FROM tasks),"
            " operations = ?, runs = ?, unbuilt = ?, processor_s = ?, wall_s = ?,"
            " causes = ?, new_causes = ?, new_situations = ?, new_keys = ? WHERE number = ?",
            *(state, time.time(), result.problem, *figures, *news, number),
        )
        self._beat()

    def _keep_keys(self, task: Task, result: TaskResult, gain: Gain) -> set[str]:
        """Count situations and keys. Returns the keys that are new."""
        where, now = (task.target, task.attention), time.time()
        if task.attention == ANY:
            return set()
        for name, times in result.situations.items():
            gain.situations += self.database.do(
                "INSERT OR IGNORE INTO situations VALUES (?, ?, ?, 0, ?, ?)", *where, name, task.number, now
            ).rowcount
            self.database.do(
                "UPDATE situations SET times = times + ? WHERE target = ? AND attention = ? AND name = ?",
                *(times, *where, name),
            )
        fresh = {
            key
            for key in result.keys
            if self.database.do(
                "INSERT OR IGNORE INTO keys (target, attention, key, task) VALUES (?, ?, ?, ?)",
                *(*where, key, task.number),
            ).rowcount
        }
        gain.keys = len(fresh)
        return fresh

    def _keep_finding(self, task: Task, found: TaskFinding, gain: Gain) -> None:
        cause = msgspec.json.encode(found.cause).decode()
        known = self.database.rows(
            "SELECT id, operations FROM findings WHERE target = ? AND cause = ?", task.target, cause
        )
        shown = (found.text, found.severity, found.trace, found.operations, found.complete)
        if known:
            id, operations = cast(tuple[int, int], known[0])
            self.database.do("UPDATE findings SET times = times + ?, state = 'there' WHERE id = ?", found.times, id)
            if found.trace and found.operations < operations:
                gain.causes.append(id)
                self.database.do(
                    "UPDATE findings SET text = ?, severity = ?, trace = ?, operations = ?, complete = ? WHERE id = ?",
                    *(*shown, id),
                )
        else:
            id = cast(
                int,
                self.database.do(
                    "INSERT INTO findings (target, cause, oracle, text, severity, trace, operations, complete, root,"
                    " times, task, found) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    *(task.target, cause, found.oracle, *shown, found.root, found.times, task.number, time.time()),
                ).lastrowid,
            )
            gain.causes.append(id)
            gain.new_causes += 1
        self.database.do("INSERT INTO finding_tasks VALUES (?, ?, ?)", id, task.number, found.times)

    def _keep_seed(self, task: Task, seed: Seed, fresh: set[str]) -> None:
        """A seed is kept if it has reached a key that is new."""
        if fresh.isdisjoint(seed.keys):
            return
        id = self.database.do(
            "INSERT INTO seeds (target, attention, oracles, form, data, operations, task) VALUES (?, ?, ?, ?, ?, ?, ?)",
            *(task.target, task.attention, ",".join(task.oracles), seed.form, seed.data, seed.operations, task.number),
        ).lastrowid
        for key in seed.keys:
            self.database.do(
                "INSERT INTO seed_keys SELECT ?, id FROM keys WHERE target = ? AND attention = ? AND key = ?",
                *(id, task.target, task.attention, key),
            )

    def _keep_replayed(self, task: Task, subject: Subject, shown: Sequence[ReplayShown]) -> None:
        for id, replayed in zip(subject.get("findings", ()), shown, strict=False):
            own, trace = cast(tuple[str, str], self.database.one("SELECT target, trace FROM findings WHERE id = ?", id))
            state = _state(trace, replayed)
            self.database.do(
                "INSERT INTO rechecks VALUES (?, ?, ?, ?, ?)", id, task.number, task.target, state, replayed.text
            )
            if own == task.target:
                self.database.do("UPDATE findings SET state = ? WHERE id = ?", state, id)
        for id, replayed in zip(subject.get("seeds", ()), shown, strict=False):
            kept = self.database.rows("SELECT key FROM keys WHERE id IN (SELECT key FROM seed_keys WHERE seed = ?)", id)
            stable = {key for (key,) in kept} == set(replayed.keys)
            self.database.do("UPDATE seeds SET stable = ? WHERE id = ?", stable, id)

    def asked_operations(self) -> int:
        """Operations of all tasks that were ever drawn, those under way included."""
        query = "SELECT coalesce(sum(asked), 0) FROM tasks WHERE kind = 'fuzz'"
        return cast(int, self.database.one(query)[0])

    def rechecked_on(self, target: str) -> set[int]:
        """Ids of findings that were ever replayed on a target."""
        return {cast(int, id) for (id,) in self.database.rows("SELECT finding FROM rechecks WHERE target = ?", target)}

    def known_causes(self, target: str) -> tuple[tuple[str, ...], ...]:
        """The causes of all findings on a target."""
        rows = self.database.rows("SELECT cause FROM findings WHERE target = ? ORDER BY id", target)
        return tuple(msgspec.json.decode(cast(str, cause), type=tuple[str, ...]) for (cause,) in rows)

    def known_keys(self, target: str, attention: str) -> set[bytes]:
        """Digests of all keys that were reached."""
        where = (target, attention)
        if where not in self._known_keys:
            rows = self.database.rows("SELECT key FROM keys WHERE target = ? AND attention = ?", *where)
            self._known_keys[where] = {digest(cast(str, key)) for (key,) in rows}
        return self._known_keys[where]

    def findings(self) -> list[StoredFinding]:
        """All findings, the oldest first."""
        rows = self.database.rows("SELECT id, target, trace FROM findings ORDER BY id")
        return [StoredFinding(*cast(tuple[int, str, str], row)) for row in rows]

    def seeds(self, target: str, attention: str) -> list[tuple[int, bytes]]:
        """Ids and data of the traces in the corpus."""
        query = "SELECT id, data FROM seeds WHERE target = ? AND attention = ? AND form = 'trace' ORDER BY id"
        return cast(list[tuple[int, bytes]], self.database.rows(query, target, attention))

    def _rows(self) -> list[KeptRow]:
        kept = self.database.rows("SELECT value FROM meta WHERE name LIKE 'row %' ORDER BY name")
        return [msgspec.json.decode(cast(str, text), type=KeptRow) for (text,) in kept]

    def end_of(self, target: str) -> tuple[str, bool]:
        """Why not all tasks of a target came to their end, and whether they did."""
        query = "SELECT state, problem FROM arms LEFT JOIN tasks ON arm = arms.id WHERE target = ? ORDER BY number"
        states = cast(list[tuple[str | None, str]], self.database.rows(query, target))
        failed = [problem for state, problem in states if state in ("failed", "lost")]
        if not failed and all(state == "done" and problem for state, problem in states):
            failed = [problem for _, problem in states]  # it lacks all that was asked for
        return failed[0] if failed else "", not failed and all(state == "done" for state, _ in states)

    def close(self) -> None:
        """Close the file."""
        self.database.close()


def _state(trace: str, replayed: ReplayShown) -> str:
    """What a replay says of a finding: there, gone, or changed."""
    if not replayed.identity:
        return "gone"
    kept = msgspec.json.decode(trace, type=_Kept)
    if kept.finding is None:
        return "changed"
    key = (*kept.finding.identity, *kept.finding.manner)  # without a manner in traces of old
    return "there" if replayed.identity[: len(key)] == key else "changed"


class _Identity(msgspec.Struct):
    identity: tuple[str, ...] = ()
    manner: tuple[str, ...] = ()


class _Kept(msgspec.Struct):
    """As much of a trace file as says what it shows."""

    finding: _Identity | None = None


def read_settings(database: Database) -> Settings:
    """The settings of the campaign. StoreError if they cannot be read."""
    (document,) = database.one("SELECT value FROM meta WHERE name = 'settings'")
    try:
        return msgspec.json.decode(cast(str, document), type=Settings)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        raise StoreError(f"{database.path}: its settings cannot be read: {error}") from None


def read_arms(database: Database) -> dict[int, Arm]:
    """The arms by id, in order."""
    rows = database.rows("SELECT id, target, attention, oracles, engine FROM arms ORDER BY id")
    found = cast(list[tuple[int, str, str, str, str]], rows)
    return {
        id: Arm(target, attention, tuple(oracles.split(",")), engine)
        for id, target, attention, oracles, engine in found
    }


def read_standings(database: Database, arms: Mapping[int, Arm]) -> dict[int, Standing]:
    """What each arm has had and brought, from its tasks in the order in which they ended."""
    standings = {id: Standing(arm) for id, arm in arms.items()}
    given = database.rows("SELECT arm, count(*) FROM tasks WHERE arm IS NOT NULL GROUP BY arm")
    for id, count in cast(list[tuple[int, int]], given):
        standings[id].assigned = count
    rows = database.rows(
        "SELECT arm, operations, processor_s, new_causes, new_situations, new_keys, problem FROM tasks"
        " WHERE arm IS NOT NULL AND place IS NOT NULL ORDER BY place"
    )
    for id, operations, seconds, causes, situations, keys, problem in cast(
        list[tuple[int, int, float, int, int, int, str]], rows
    ):
        news = OF_A_CAUSE * causes + OF_A_SITUATION * situations + OF_A_KEY * keys
        standings[id].ended(operations, seconds, news, problem)
    return standings
