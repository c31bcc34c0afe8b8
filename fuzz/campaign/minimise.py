"""The corpus made small: the fewest runs that reach all that the whole corpus reaches.

The smallest such set is a set cover, which nobody finds fast; the greedy choice is at most `1 + ln(keys)` times as
large. Of a target and its attention types the run with the most keys that are missing comes next, of two alike the
shorter one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from .database import Database, StoreError


@dataclass(frozen=True)
class Size:
    """Of a corpus."""

    seeds: int
    keys: int
    """That some seed reaches."""
    operations: int
    bytes: int
    """As it is stored."""


@dataclass(frozen=True)
class SeedRun:
    """A seed, as far as it matters here."""

    operations: int
    keys: frozenset[int]


def minimise(database: Database) -> tuple[Size, Size]:
    """Remove seeds that are not needed. Returns the size before and after: the keys are the same.

    StoreError if the file cannot be changed.
    """
    with database.transaction():
        before, keys = size(database), _covered(database)
        for runs in _by_place(database):
            kept = cover(runs)
            for id in runs.keys() - kept:
                database.do("DELETE FROM seeds WHERE id = ?", id)
        if _covered(database) != keys:
            raise StoreError(f"{database.path}: keys would be lost, nothing was removed; this is a bug of blockproof")
        after = size(database)
    database.compact()
    return before, after


def cover(runs: Mapping[int, SeedRun]) -> set[int]:
    """Ids of runs that reach all that all of them reach."""
    missing = frozenset[int]().union(*(run.keys for run in runs.values()))
    left, kept = dict(runs), set[int]()
    while missing:
        best = max(left, key=lambda id: (len(left[id].keys & missing), -left[id].operations, -id))
        missing -= left.pop(best).keys
        kept.add(best)
    return kept


def size(database: Database) -> Size:
    """The size of the corpus."""
    seeds, operations, stored = database.one(
        "SELECT count(*), coalesce(sum(operations), 0), coalesce(sum(length(data)), 0) FROM seeds"
    )
    return Size(cast(int, seeds), len(_covered(database)), cast(int, operations), cast(int, stored))


def _covered(database: Database) -> set[object]:
    return {key for (key,) in database.rows("SELECT DISTINCT key FROM seed_keys")}


def _by_place(database: Database) -> Iterator[dict[int, SeedRun]]:
    """The seeds of each target and its attention types."""
    for place in database.rows("SELECT DISTINCT target, attention FROM seeds"):
        runs = {}
        query = "SELECT id, operations FROM seeds WHERE target = ? AND attention = ?"
        for id, operations in cast(list[tuple[int, int]], database.rows(query, *place)):
            keys = database.rows("SELECT key FROM seed_keys WHERE seed = ?", id)
            runs[id] = SeedRun(operations, frozenset(cast(int, key) for (key,) in keys))
        yield runs
