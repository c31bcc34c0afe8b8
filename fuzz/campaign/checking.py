"""Whether a store is whole: what it has counted must be what its tasks came to, each once, and nothing is missing."""

from collections.abc import Iterator
from typing import cast

from ..findings.words import plural
from ..traces.files import TraceError
from ..traces.trace_file import load_trace
from .database import Database
from .stories import kept_story

_NONE_MAY_BE: tuple[tuple[str, str], ...] = (
    (
        "{} that ended found causes that are not kept",
        "SELECT number FROM tasks WHERE causes != (SELECT count(*) FROM finding_tasks WHERE task = number)",
    ),
    (
        "{} counted for a finding that is missing",
        "SELECT task FROM finding_tasks WHERE finding NOT IN (SELECT id FROM findings)",
    ),
    (
        "{} counted before it has ended",
        "SELECT task FROM finding_tasks JOIN tasks ON task = number WHERE state = 'open'",
    ),
    (
        "the finding of {} came up another number of times than its tasks say",
        "SELECT task FROM findings WHERE times !="
        " (SELECT coalesce(sum(finding_tasks.times), 0) FROM finding_tasks WHERE finding = id)",
    ),
    (
        "{} found more new causes, or fewer, than there are findings of it",
        "SELECT number FROM tasks WHERE new_causes != (SELECT count(*) FROM findings WHERE task = number)",
    ),
    (
        "{} reached more new situations, or fewer, than are kept of it",
        "SELECT number FROM tasks WHERE new_situations != (SELECT count(*) FROM situations WHERE task = number)",
    ),
    (
        "{} reached more new keys, or fewer, than are kept of it",
        "SELECT number FROM tasks WHERE new_keys != (SELECT count(*) FROM keys WHERE task = number)",
    ),
    (
        "{} is open and cannot be done again: it is not kept",
        "SELECT number FROM tasks WHERE state = 'open' AND body IS NULL",
    ),
    ("{} ended, nobody knows when", "SELECT number FROM tasks WHERE state != 'open' AND place IS NULL"),
)
"""What is wrong, of a task; and the query that names such tasks."""


def problems(database: Database) -> list[str]:
    """A line for each thing that is wrong with a store; none if it is whole."""
    with database.snapshot():
        return [*_broken_pages(database), *_contradictions(database), *_gaps(database), *_traces(database)]


def _broken_pages(database: Database) -> Iterator[str]:
    for (line,) in database.rows("PRAGMA quick_check(10)"):
        if line != "ok":
            yield f"the file is damaged: {line}"


def _contradictions(database: Database) -> Iterator[str]:
    for text, query in _NONE_MAY_BE:
        numbers = [cast(int, number) for (number,) in database.rows(query)]
        if numbers:
            more = f" and {plural(len(numbers) - 1, 'other')}" if len(numbers) > 1 else ""
            yield text.format(f"task {numbers[0]}{more}")


def _gaps(database: Database) -> Iterator[str]:
    for column, what in (("number", "were given out"), ("place", "have ended")):
        (count,) = database.one(f"SELECT count({column}) FROM tasks")
        (last,) = database.one(f"SELECT coalesce(max({column}), 0) FROM tasks")
        if count != last:
            yield f"{last} tasks {what}, {count} of them are kept"


def _traces(database: Database) -> Iterator[str]:
    for id, trace in database.rows("SELECT id, trace FROM findings"):
        try:
            text, source = cast(str, trace), f"finding {id}"
            kept_story(text, source) or load_trace(text, source)
        except TraceError as error:
            yield str(error)
