"""The snapshots of the model in a lockstep run: full ones, and glances (`targets.glance`) in between."""

from collections.abc import Mapping, Sequence
from itertools import compress
from operator import is_, is_not
from typing import cast

from ...model.arith import usage
from ...model.core import Model
from ...model.ops import NULL, Value
from ...model.snapshot import Snapshot
from ...model.state import Key
from ..targets.glance import Holders, Identities, Looks


class ModelLooks(Looks):
    """Glances at a model. What they show is what `Model.snapshot` shows."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def look(self) -> Snapshot:
        """Everything."""
        self._identity: dict[int, Key] = self._model.state.identity.copy()
        return self._model.snapshot()

    def tables_of(self, request: str) -> Sequence[list[int] | None]:
        """Per group, a copy of the request's table."""
        return [table.copy() if (table := tables.get(request)) else None for tables in self._model.state.tables]

    def registered_of(self, request: str) -> Sequence[int | None]:
        """Per group, how much of its table is registered."""
        return [registered.get(request) for registered in self._model.registered]

    def count_free(self, last: Snapshot) -> int:
        """As many as before: of the model it is certain that no block is free that a table holds."""
        return last.num_free

    def holders(self) -> Holders:
        """Who holds which block."""
        return self._holders_of(self._model.state.references())

    def holders_since(
        self, last: Snapshot, tables: Sequence[Mapping[str, list[int]]], requests: Sequence[str]
    ) -> Holders:
        """Counted from the last snapshot: most tables are as they were. The next full look counts anew."""
        if tables is last.tables:
            return self.holders()
        counts = last.ref_cnt.copy()
        for before, now in zip(last.tables, tables, strict=True):
            if before is now:
                continue
            for request in requests:
                had, has = before.get(request, []), now.get(request, [])
                same = len(had) if has[: len(had)] == had else 0  # most tables only grow
                for block in had[same:]:
                    counts[block] -= 1
                for block in has[same:]:
                    counts[block] += 1
        counts[NULL] = 0
        return self._holders_of(counts)

    def _holders_of(self, counts: list[int]) -> Holders:
        free = self._model.state.queue(counts)
        return free, len(free), usage(len(free), self._model.state.num_blocks), counts

    def identities(self, last: Snapshot) -> Identities:
        """Which block has which identity, and the events."""
        labels, earliest, known = last.labels, last.earliest, last.num_identities
        before, identity = self._identity, self._model.state.identity
        if identity != before:
            self._identity = identity.copy()
            labels = labels.copy()
            new = [*compress(identity, map(is_not, identity.values(), map(before.get, identity)))]
            gone = before.keys() - identity.keys()
            for block in gone:
                labels[block] = None
            for block in sorted(new):  # labels are given out in the order of the blocks, then to events
                labels[block] = self._model.labels(identity[block])
            names = len({*identity.values()})
            if known == len(before) and names == len(identity):  # each stands for itself, then and now
                earliest = earliest.copy()
                for block in gone:
                    earliest[block] = None
                for block in new:
                    earliest[block] = block
            else:
                first = cast("dict[Key | None, int]", self._model.state.earliest())
                earliest = [*map(first.get, map(identity.get, range(len(labels))))]
            known = names
        return labels, earliest, known, self._pending_events(last.events) if self._model.state.events else ()

    def _pending_events(self, shown: tuple[Value, ...]) -> tuple[Value, ...]:
        """The events that were not drained yet, each converted once; the very object `shown` if it has the same."""
        model, values = self._model, self._model.shown
        values += [model.event_value(event) for event in model.state.events[len(values) :]]
        same = len(shown) == len(values) and all(map(is_, shown, values))
        return shown if same else tuple(values)

    def new_block_ids(self) -> list[list[int]]:
        """Per group, those not drained yet."""
        return [ids.copy() for ids in self._model.new_block_ids]

    def stats(self) -> tuple[Value, ...] | None:
        """Those not drained yet."""
        return self._model.shown_stats()
