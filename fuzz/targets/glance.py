"""What of a core's state an operation can change, so that only this must be looked at: a *glance*.

A full look reads everything. A glance takes over from the last snapshot, as the very same objects, whatever the
operation leaves as it is by the specification. A core that changes something else by mistake is seen at the next full
look. Both sides of a lockstep run glance in the same way, so labels are given out in the same order.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Flag, auto
from typing import Protocol, TypeAlias, TypeVar

from ...model import ops
from ...model.ops import Operation, Outcome, Value
from ...model.snapshot import Snapshot
from ..findings.starved import Starved

T = TypeVar("T")


class SnapshotPart(Flag):
    """Parts of a snapshot that change together."""

    ROWS = auto()
    """What is shown of the operation's own requests: its tables, and how much of them is registered."""
    HOLDERS = auto()
    """Who holds which block: `free`, `num_free`, `usage`, `ref_cnt`."""
    IDENTITIES = auto()
    """`labels`, `num_identities`, `events`; `earliest` where a label has changed."""
    NEW_BLOCK_IDS = auto()
    STATS = auto()
    """`stats`, to which the blocks belong that a metrics collector follows."""


_NOTHING = SnapshotPart(0)
_ROWS, _HOLDERS, _IDENTITIES, _STATS = (
    SnapshotPart.ROWS,
    SnapshotPart.HOLDERS,
    SnapshotPart.IDENTITIES,
    SnapshotPart.STATS,
)
CHANGES: Mapping[type[Operation], SnapshotPart] = {
    ops.Submit: _NOTHING,
    ops.Lookup: _STATS,
    ops.Allocate: _ROWS | _HOLDERS | _IDENTITIES | SnapshotPart.NEW_BLOCK_IDS | _STATS,
    Starved: _ROWS | _HOLDERS | _IDENTITIES | SnapshotPart.NEW_BLOCK_IDS | _STATS,
    ops.AllocateBatch: _ROWS | _HOLDERS | _IDENTITIES | SnapshotPart.NEW_BLOCK_IDS | _STATS,
    ops.Advance: _NOTHING,
    ops.Reject: _NOTHING,
    ops.Arrive: _ROWS | _IDENTITIES,
    ops.Landed: _NOTHING,
    ops.Free: _ROWS | _HOLDERS,
    ops.Preempt: _ROWS | _HOLDERS,
    ops.RemoveSkipped: _ROWS | _HOLDERS,
    ops.CommonPrefix: _NOTHING,
    ops.ReadTable: _NOTHING,
    ops.Evict: _IDENTITIES | _STATS,
    ops.Reset: _IDENTITIES | _STATS,
    ops.StepStart: _NOTHING,
    ops.TakeEvents: _IDENTITIES,
    ops.TakeNewBlockIds: SnapshotPart.NEW_BLOCK_IDS,
    ops.TakeStats: _STATS,
    ops.Take: _HOLDERS | _IDENTITIES | _STATS,
    ops.Touch: _HOLDERS | _STATS,
    ops.Release: _HOLDERS,
}
"""What each kind of operation can change by the specification. Where it has rows, holders and identities change with
them: while a request's rows stay as they are, no block is taken, given back or registered for it."""
_PARTS = {
    kind: tuple(part in changes for part in SnapshotPart) if changes else None  # written so for speed
    for kind, changes in CHANGES.items()
}


Holders: TypeAlias = tuple[list[int], int, float, list[int]]
"""Fields of a snapshot that change when blocks are taken or given back: `free`, `num_free`, `usage`, `ref_cnt`."""
Identities: TypeAlias = tuple[list[int | None], list[int | None], int, tuple[Value, ...]]
"""Those that change when blocks get or lose an identity: `labels`, `earliest`, `num_identities`, `events`."""


class Glancing(Protocol):
    """A target that can look at less than everything."""

    def glance(
        self, operation: Operation, last: Snapshot, expected: Snapshot | None = None
    ) -> tuple[Outcome, Snapshot]:
        """As `Target.step`, but of the state only what the operation can have changed since `last` is read. `expected`
        is the model's glance (`Looks.glance`)."""
        ...

    def look(self) -> Snapshot:
        """Everything, as the last operation left it."""
        ...


class Answering(Protocol):
    """A target that can apply an operation without a look at its state."""

    def answer(self, operation: Operation) -> Outcome:
        """As `Target.step`, but nothing of the state is read."""
        ...


class Looks(ABC):
    """The snapshots of one side, each made from the one before.

    That may as well be the other side's: where both agree, what neither has read again is one object, into which a
    comparison need not look.
    """

    def glance(self, operation: Operation, last: Snapshot, expected: Snapshot | None = None) -> Snapshot:
        """What can be observed after this operation, the one since the snapshot `last`.

        `expected` is the other side's glance at the same operation, made from `last` too: rows that are the same are
        its objects.
        """
        parts = _PARTS[type(operation)]
        if parts is None:
            return last
        rows, holders, identities, new_ids, stats = parts
        tables, registered = last.tables, last.registered
        requests: Sequence[str] = ()
        if rows:
            requests = operation.requests if type(operation) is ops.AllocateBatch else (operation.request,)  # type: ignore[attr-defined]
            if expected is not None and self._has_rows(requests, expected):
                tables, registered = expected.tables, expected.registered
            else:
                for request in requests:
                    now, counted = self.tables_of(request), self.registered_of(request)
                    if counted != [of_group.get(request) for of_group in registered]:
                        registered = with_rows(registered, request, counted)
                    if now != [of_group.get(request) for of_group in tables]:
                        tables = with_rows(tables, request, now)
            if tables is last.tables and self.count_free(last) == last.num_free:
                if registered is last.registered:
                    return last
                holders = False
        shown = (
            *(self.holders_since(last, tables, requests) if holders else last[:4]),
            tables,
            registered,
            *(self.identities(last) if identities else last[6:10]),
            self.new_block_ids() if new_ids else last.new_block_ids,
            self.stats() if stats else last.stats,
        )
        if expected is not None and shown == expected:
            return expected  # the lists that were made go at once, and there is nothing left to compare
        return tuple.__new__(Snapshot, shown)  # half as long as `Snapshot(*shown)`

    def _has_rows(self, requests: Sequence[str], shown: Snapshot) -> bool:
        """True if the rows of these requests are as in `shown`."""
        for request in requests:
            if self.registered_of(request) != [of_group.get(request) for of_group in shown.registered]:
                return False
            if self.tables_of(request) != [of_group.get(request) for of_group in shown.tables]:
                return False
        return True

    @abstractmethod
    def tables_of(self, request: str) -> Sequence[list[int] | None]:
        """Per group, a copy of the request's table; None if it has none."""

    @abstractmethod
    def registered_of(self, request: str) -> Sequence[int | None]:
        """Per group, how many entries count as registered; None for a request that is not running."""

    @abstractmethod
    def count_free(self, last: Snapshot) -> int:
        """How many blocks are free, where no table has changed since this snapshot."""

    @abstractmethod
    def holders(self) -> Holders:
        """Who holds which block."""

    def holders_since(
        self, last: Snapshot, tables: Sequence[Mapping[str, list[int]]], requests: Sequence[str]
    ) -> Holders:
        """The same, where of all tables at most those of these requests have changed since `last`: to `tables`."""
        return self.holders()

    @abstractmethod
    def identities(self, last: Snapshot) -> Identities:
        """Which block has which identity, and the events; lists of `last` that still hold."""

    @abstractmethod
    def new_block_ids(self) -> list[list[int]]:
        """Per group, the new block ids that were not drained yet."""

    @abstractmethod
    def stats(self) -> tuple[Value, ...] | None:
        """Statistics that were not drained yet; None with statistics off."""


def with_rows(shown: list[dict[str, T]], request: str, rows: Sequence[T | None]) -> list[dict[str, T]]:
    """What is shown per group with these rows for the request, None for no row; groups that stay are the same objects.

    >>> with_rows([{"a": 1}, {"a": 2, "b": 3}], "a", [1, None])
    [{'a': 1}, {'b': 3}]
    """
    changed = shown.copy()
    for group, row in enumerate(rows):
        of_group = shown[group]
        if of_group.get(request) == row:
            continue
        if row is None:
            changed[group] = {name: other for name, other in of_group.items() if name != request}
        else:
            changed[group] = {**of_group, request: row}
    return changed
