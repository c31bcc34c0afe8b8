"""The file of a campaign: an SQLite database with one writer. What is wrong with a file is said in one line.

Every change is one transaction: whatever ends the program, also between two instructions, leaves the state before it or
the one after it. Those who only read, such as `campaign status`, do so while somebody writes.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VERSION = 1
APPLICATION = 0x626B7063
"""In the head of each file of ours."""
_HEAD = b"SQLite format 3\0"
_PATIENCE_S = 10.0
"""How long to wait for a reader that holds the file up."""
_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
-- beat: when it was last seen to run. ended: NULL while it runs, and for ever if it was killed.
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY, began REAL NOT NULL, beat REAL NOT NULL, ended REAL, under_way INTEGER NOT NULL);
CREATE TABLE arms (
    id INTEGER PRIMARY KEY, target TEXT NOT NULL, attention TEXT NOT NULL, oracles TEXT NOT NULL, engine TEXT NOT NULL,
    UNIQUE (target, attention, oracles, engine));
-- state: open, done, failed (it told a problem), lost (its process died, twice), cut (by Ctrl-C). body: the task, while
-- it is open.
-- place: how many had ended before. causes: of findings in it. subject: ids of the findings or seeds that it replays.
CREATE TABLE tasks (
    number INTEGER PRIMARY KEY, arm INTEGER REFERENCES arms, kind TEXT NOT NULL, seed INTEGER NOT NULL,
    asked INTEGER NOT NULL, state TEXT NOT NULL DEFAULT 'open', attempts INTEGER NOT NULL DEFAULT 0, body BLOB,
    subject TEXT, place INTEGER UNIQUE, ended REAL, operations INTEGER NOT NULL DEFAULT 0,
    runs INTEGER NOT NULL DEFAULT 0, unbuilt INTEGER NOT NULL DEFAULT 0, processor_s REAL NOT NULL DEFAULT 0,
    wall_s REAL NOT NULL DEFAULT 0, causes INTEGER NOT NULL DEFAULT 0, new_causes INTEGER NOT NULL DEFAULT 0,
    new_situations INTEGER NOT NULL DEFAULT 0, new_keys INTEGER NOT NULL DEFAULT 0, problem TEXT NOT NULL DEFAULT '');
CREATE INDEX open_tasks ON tasks (state) WHERE state = 'open';
-- state: there, gone, changed: what the last replay showed.
CREATE TABLE findings (
    id INTEGER PRIMARY KEY, target TEXT NOT NULL, cause TEXT NOT NULL, oracle TEXT NOT NULL, text TEXT NOT NULL,
    severity INTEGER NOT NULL, trace TEXT NOT NULL, operations INTEGER NOT NULL, complete INTEGER NOT NULL,
    root TEXT NOT NULL, times INTEGER NOT NULL, task INTEGER NOT NULL REFERENCES tasks, found REAL NOT NULL,
    state TEXT NOT NULL DEFAULT 'there', UNIQUE (target, cause));
CREATE TABLE finding_tasks (
    finding INTEGER NOT NULL REFERENCES findings, task INTEGER NOT NULL REFERENCES tasks, times INTEGER NOT NULL,
    PRIMARY KEY (finding, task)) WITHOUT ROWID;
CREATE INDEX findings_of_task ON finding_tasks (task);
CREATE TABLE rechecks (
    finding INTEGER NOT NULL REFERENCES findings, task INTEGER NOT NULL REFERENCES tasks, target TEXT NOT NULL,
    state TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (finding, task)) WITHOUT ROWID;
CREATE TABLE situations (
    target TEXT NOT NULL, attention TEXT NOT NULL, name TEXT NOT NULL, times INTEGER NOT NULL,
    task INTEGER NOT NULL REFERENCES tasks, seen REAL NOT NULL, PRIMARY KEY (target, attention, name)) WITHOUT ROWID;
CREATE TABLE keys (
    id INTEGER PRIMARY KEY, target TEXT NOT NULL, attention TEXT NOT NULL, key TEXT NOT NULL,
    task INTEGER NOT NULL REFERENCES tasks, UNIQUE (target, attention, key));
-- stable: NULL if it was never replayed, else whether that reached the same keys.
CREATE TABLE seeds (
    id INTEGER PRIMARY KEY, target TEXT NOT NULL, attention TEXT NOT NULL, oracles TEXT NOT NULL, form TEXT NOT NULL,
    data BLOB NOT NULL, operations INTEGER NOT NULL, task INTEGER NOT NULL REFERENCES tasks, stable INTEGER);
CREATE TABLE seed_keys (
    seed INTEGER NOT NULL REFERENCES seeds ON DELETE CASCADE, key INTEGER NOT NULL REFERENCES keys,
    PRIMARY KEY (seed, key)) WITHOUT ROWID;
"""


class StoreError(ValueError):
    """A file that cannot be used as the store of a campaign. The text is one line."""


class Database:
    """An open file."""

    def __init__(self, path: Path, *, write: bool) -> None:
        """Open a file; a writer makes it if it is missing. StoreError if that is not possible."""
        self.path = path
        self._lock = _locked(path) if write else None
        try:
            if not write or (path.exists() and path.stat().st_size):
                _check_head(path)
            with self.refused():
                self._db = self._connected(write)
                self.is_new = write and not self.rows("SELECT 1 FROM sqlite_master LIMIT 1")
                if not self.is_new:
                    self._check()
        except BaseException:
            self._unlock()
            raise

    def _connected(self, write: bool) -> sqlite3.Connection:
        uri = f"{self.path.resolve().as_uri()}?mode={'rwc' if write else 'ro'}"
        db = sqlite3.connect(uri, uri=True, timeout=_PATIENCE_S, isolation_level=None)
        if write:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA foreign_keys = ON")
        return db

    def create(self) -> None:
        """Make the tables in a file that `is_new`, within `transaction`."""
        for statement in _SCHEMA.split(";\n"):
            self._db.execute(statement)
        self._db.execute(f"PRAGMA application_id = {APPLICATION}")
        self._db.execute(f"PRAGMA user_version = {VERSION}")

    def _check(self) -> None:
        """StoreError for the file of another program, or of another version."""
        (application,), (version,) = self.one("PRAGMA application_id"), self.one("PRAGMA user_version")
        if application != APPLICATION:
            raise StoreError(f"{self.path}: is no store of a campaign; name another file")
        if version != VERSION:
            raise StoreError(
                f"{self.path}: is of version {version}, this blockproof reads {VERSION}; use the other one"
            )

    def rows(self, query: str, *values: object) -> list[tuple[object, ...]]:
        """What a query comes to."""
        return self._db.execute(query, values).fetchall()

    def one(self, query: str, *values: object) -> tuple[object, ...]:
        """The only row of a query. StoreError if there is none."""
        row: tuple[object, ...] | None = self._db.execute(query, values).fetchone()
        if row is None:
            raise StoreError(f"{self.path}: something is missing in it; take a copy that is whole")
        return row

    def do(self, statement: str, *values: object) -> sqlite3.Cursor:
        """Change something, within `transaction`."""
        return self._db.execute(statement, values)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes in the block happen, or none. StoreError if the file cannot be changed."""
        with self.refused(), _Transaction(self._db, "IMMEDIATE", "COMMIT"):
            yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All that is read in the block is of one moment."""
        with self.refused(), _Transaction(self._db, "DEFERRED", "ROLLBACK"):
            yield

    def take_back(self) -> None:
        """Undo what Ctrl-C has left half done: it can come between a statement and the block that it begins or ends."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    @contextmanager
    def refused(self) -> Iterator[None]:
        """What SQLite objects to becomes a StoreError."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{self.path}: cannot be used: {error}") from None

    def compact(self) -> None:
        """Give back the room of what was removed."""
        with self.refused():
            self._db.execute("VACUUM")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the file."""
        self._db.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class _Transaction:
    """A block between two statements. No generator: a generator that Ctrl-C has cut off ends whenever it is collected,
    maybe within the next block."""

    def __init__(self, db: sqlite3.Connection, kind: str, end: str) -> None:
        self._db, self._kind, self._end = db, kind, end

    def __enter__(self) -> None:
        self._db.execute(f"BEGIN {self._kind}")

    def __exit__(self, error: object, *_: object) -> None:
        try:
            if error is None:
                self._db.execute(self._end)
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")


def _locked(path: Path) -> int:
    """The lock of the one writer, in a file beside: it ends with the process, however that ends."""
    beside = path.with_name(f"{path.name}-writer")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(beside, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror}); name a file in a folder of yours") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise StoreError(f"{path}: another campaign writes to it; wait for its end, or name another file") from None
    return lock


def _check_head(path: Path) -> None:
    """StoreError for what is no database: SQLite itself would make one of what is empty."""
    try:
        if not path.is_file():
            raise StoreError(f"{path}: no such file; check the path")
        with path.open("rb") as file:
            head = file.read(len(_HEAD))
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
    if head != _HEAD:
        raise StoreError(f"{path}: is no store of a campaign; name another file")
