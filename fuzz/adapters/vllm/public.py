"""Reads the state of a core that has the methods of vLLM's `KVCacheManager` and nothing behind them: one in another
language, say, with a class in Python in front of it."""

from collections.abc import Iterable
from typing import Any

from ....model.ops import Operation, Shape, Value
from ....model.snapshot import Snapshot

SHOWN = frozenset({"tables", "num_free", "usage"})
"""Fields of a snapshot that follow from methods."""


def shows_parts(manager: Any) -> bool:
    """True if the manager has the pool and the managers of groups that vLLM's own has, to be looked into."""
    return hasattr(getattr(manager, "block_pool", None), "blocks") and hasattr(manager, "coordinator")


def unseen_of(manager: Any) -> frozenset[str]:
    """Fields of a snapshot that such a manager does not show. AttributeError, with what is missing, if it has no
    `get_block_ids`."""
    if not hasattr(manager, "get_block_ids"):
        what = f"{type(manager).__name__} has no get_block_ids(request_id), by which its tables are read"
        raise AttributeError(f"{what}; or show block_pool.blocks and coordinator.single_type_managers, as vLLM does")
    hidden = frozenset(Snapshot._fields) - SHOWN
    hidden |= frozenset() if hasattr(manager, "usage") else {"usage"}
    return hidden | (frozenset() if hasattr(manager, "get_num_free_blocks") else {"num_free"})


class PublicObserver:
    """Takes the snapshots of one such manager."""

    def __init__(self, manager: Any, shape: Shape, requests: Iterable[str]) -> None:
        """`requests`: the names of those that it knows, at any time."""
        self._manager, self._shape, self._requests = manager, shape, requests

    def snapshot(self) -> Snapshot:
        """The present state, with empty values for what is not shown. On a corrupt core, any exception."""
        manager, groups = self._manager, range(len(self._shape.groups))
        tables: list[dict[str, list[int]]] = [{} for _ in groups]
        for name in self._requests:
            for group, ids in zip(tables, manager.get_block_ids(name), strict=True):
                if ids:
                    group[name] = list(ids)
        blocks = self._shape.num_blocks
        return Snapshot(
            free=[],
            num_free=manager.get_num_free_blocks() if hasattr(manager, "get_num_free_blocks") else 0,
            usage=getattr(manager, "usage", 0.0),
            ref_cnt=[0] * blocks,
            tables=tables,
            registered=[{} for _ in groups],
            labels=[None] * blocks,
            earliest=[None] * blocks,
            num_identities=0,
            events=(),
            new_block_ids=[[] for _ in groups],
            stats=None,
        )

    def glance(self, operation: Operation, last: Snapshot, expected: Snapshot | None = None) -> Snapshot:
        """As much as ever: there is little to read."""
        return self.snapshot()

    def event_values(self, events: Iterable[Any]) -> tuple[Value, ...]:
        """Nothing: events are not shown."""
        return ()

    def stats_values(self, stats: Any) -> Value:
        """Nothing: statistics are not shown."""
        return None
