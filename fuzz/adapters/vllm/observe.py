"""Reads the state of a core with vLLM's API as a `Snapshot`.

This runs after every operation, so it is written for speed: a glance (`targets.glance`) where it is asked for, what the
pool gives in bulk where it does, comprehensions over attributes, and each event is converted to plain values once.
"""

import traceback
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import compress, repeat
from operator import attrgetter, is_, is_not
from typing import Any

from ....model.ops import NULL, Value
from ....model.snapshot import Snapshot
from ...findings.cause import cause_of
from ...targets.base import TargetLostError
from ...targets.glance import Holders, Identities, Looks
from .binding import ADAPTERS
from .event_names import EventNames
from .surroundings import followed, lives

_STATS = attrgetter("reset", "requests", "queries", "hits", "preempted_requests", "preempted_queries", "preempted_hits")


class _Numbers(dict[Hashable, int]):
    """As `model.snapshot.Labels`, but a dictionary: `map(numbers.__getitem__, keys)` is faster than calls."""

    def __missing__(self, identity: Hashable) -> int:
        number = self[identity] = len(self)
        return number


NAMES = frozenset({"labels", "earliest", "num_identities", "registered", "events"})
"""What is shown of the contents of blocks."""


def unseen_in(pool: Any) -> frozenset[str]:
    """Fields of a snapshot that a pool cannot show, one that stands in for the release's own, say.

    What a pool must have: `blocks`, each with `block_id`, `ref_cnt` and `block_hash`, and `get_num_free_blocks`. The
    free ids in their order are read from `free_ids()`, or from a `free_block_queue` with `get_all_free_blocks`; what
    can be hit from `cached_block_hash_to_block`, with `len` and `get_one_block`; `identities()` and `ref_counts()` give
    the attributes of all blocks at once.
    """
    order = hasattr(pool, "free_ids") or hasattr(pool, "free_block_queue")
    named = hasattr(pool, "cached_block_hash_to_block")
    return (frozenset() if order else frozenset({"free"})) | (frozenset() if named else NAMES)


class Observer(Looks):
    """Takes the snapshots of one manager, from its construction to its end."""

    def __init__(
        self,
        manager: Any,
        adapters: Mapping[str, int],
        hides: frozenset[str] = frozenset(),
        names: EventNames | None = None,
    ) -> None:
        """`adapters`: name to number of each adapter in use. Fields in `hides` stay empty. `names` are those that
        events may use; None if that is not looked at."""
        blocks, groups = len(manager.block_pool.blocks), len(manager.coordinator.single_type_managers)
        empty = Snapshot(
            free=[],
            num_free=0,
            usage=0.0,
            ref_cnt=[0] * blocks,
            tables=[{} for _ in range(groups)],
            registered=[{} for _ in range(groups)],
            labels=[None] * blocks,
            earliest=[None] * blocks,
            num_identities=0,
            events=(),
            new_block_ids=[[] for _ in range(groups)],
            stats=None,
        )
        self._hidden: Mapping[str, Any] = {name: getattr(empty, name) for name in hides if name in Snapshot._fields}
        self._manager = manager
        self._adapters = adapters
        self._pool = manager.block_pool
        self._collector = getattr(manager.block_pool, "metrics_collector", None)
        self._managers: Sequence[Any] = manager.coordinator.single_type_managers
        self._label = _Numbers()
        self._keys: list[Any] = []  # of each block: few operations change any
        self._registered: list[int] = []  # the blocks that have one
        self._labels: list[int | None] = []  # of these keys
        self._earliest: list[int | None] = []  # the block that a lookup of each yields
        self._seen_events: list[object] = []
        self._event_values: tuple[Value, ...] = ()  # of these
        self._names = names
        self._read_in_bulk()

    def _read_in_bulk(self) -> None:
        """Take what the pool gives in bulk from there, the rest from the attributes of its blocks; of what the pool
        cannot show (`unseen_in`), nothing."""
        pool, hidden = self._pool, self._hidden
        walks = hasattr(getattr(pool, "free_block_queue", None), "fake_free_list_head")
        one_by_one = {
            "free_ids": list if "free" in hidden else self._walk_free_queue if walks else self._list_free_queue,
            "identities": lambda: [block.block_hash for block in pool.blocks],
            "ref_counts": lambda: [block.ref_cnt for block in pool.blocks],
        }
        read = {name: getattr(pool, name, slow) for name, slow in one_by_one.items()}
        self._free_ids: Callable[[], list[int]] = read["free_ids"]
        self._ref_counts: Callable[[], list[int]] = read["ref_counts"]
        self._splits = hasattr(pool, "identities")
        """True if an identity is a pair, of a group and a hash."""
        blocks = len(pool.blocks)
        unnamed = "labels" in hidden and not hasattr(pool, "cached_block_hash_to_block")
        self._block_keys: Callable[[], list[Any]] = (lambda: [None] * blocks) if unnamed else read["identities"]
        self._unnamed = unnamed

    def snapshot(self) -> Snapshot:
        """The present state. On a corrupt core, any exception."""
        tables = [
            {request: [block.block_id for block in table] for request, table in manager.req_to_blocks.items() if table}
            for manager in self._managers
        ]
        registered = [dict(manager.num_cached_block) for manager in self._managers]
        self._note(self._block_keys())
        known = self._labels, self._earliest, self._count_contents(), self._pending_events()
        now = (*self.holders(), tables, registered, *known, self.new_block_ids(), self.stats())
        shown = Snapshot(*now)
        return shown._replace(**self._hidden) if self._hidden else shown

    def tables_of(self, request: str) -> Sequence[list[int] | None]:
        """Per group, the request's table."""
        return [
            [block.block_id for block in table] if (table := manager.req_to_blocks.get(request)) else None
            for manager in self._managers
        ]

    def registered_of(self, request: str) -> Sequence[int | None]:
        """Per group, how much of its table is registered."""
        return [manager.num_cached_block.get(request) for manager in self._managers]

    def count_free(self, last: Snapshot) -> int:
        """How many blocks are free."""
        number: int = self._pool.get_num_free_blocks()
        return number

    def holders(self) -> Holders:
        """Who holds which block."""
        counts = self._ref_counts()
        counts[NULL] = 0
        return self._free_ids(), self._pool.get_num_free_blocks(), self._manager.usage, counts

    def identities(self, last: Snapshot) -> Identities:
        """Which block has which identity, and the events."""
        keys, labels, earliest = self._block_keys(), last.labels, last.earliest
        if keys != self._keys:
            self._note(keys)
            labels, earliest = self._labels, self._earliest
        return labels, earliest, self._count_contents(), self._pending_events(last.events)

    def _note(self, keys: list[Any]) -> None:
        """The blocks have these identities now."""
        if self._unnamed:
            self._keys, self._labels, self._earliest = keys, [None] * len(keys), [None] * len(keys)
            return
        index, label, splits = self._pool.cached_block_hash_to_block, self._label, self._splits
        find = index.find if splits else index.get_one_block
        if keys != self._keys:
            self._registered = [*compress(range(len(keys)), map(is_not, keys, repeat(None)))]  # most are not
            self._keys, self._labels = keys, [None] * len(keys)
            for block in self._registered:
                self._labels[block] = label[keys[block]]
        self._earliest = [None] * len(keys)
        for block in self._registered:
            if splits:
                group, content = keys[block]
                found = find(group, content)  # half as long as `find(*keys[block])`
            else:
                found = find(keys[block])
            self._earliest[block] = None if found is None else found.block_id

    def _count_contents(self) -> int:
        """How many contents a lookup can find."""
        return 0 if self._unnamed else len(self._pool.cached_block_hash_to_block)

    def new_block_ids(self) -> list[list[int]]:
        """Per group, those not drained yet."""
        return [list(manager.new_block_ids) for manager in self._managers]

    def stats(self) -> tuple[Value, ...] | None:
        """Those not drained yet."""
        stats, collector = self._manager.prefix_cache_stats, self._collector
        shown = None if stats is None else tuple(map(int, _STATS(stats)))
        return shown if collector is None else (shown, followed(collector), lives(collector._eviction_events))

    def stats_values(self, stats: Any) -> Value:
        """Prefix-cache statistics in the form of `TakeStats`; what was collected is drained with them."""
        values = None if stats is None else _STATS(stats)
        return values if self._collector is None else (values, lives(self._collector.drain_events()))

    def event_values(self, events: Iterable[Any]) -> tuple[Value, ...]:
        """Events as plain tuples, with labels in place of hashes. KeyError for an event of an unknown class."""
        return tuple([self._event_value(event) for event in events])

    def _pending_events(self, shown: tuple[Value, ...] = ()) -> tuple[Value, ...]:
        """The undrained events as plain values. Events that the last call has converted are not converted again: they
        are those of `shown`, which were found right. A comparison need not look into the same objects once more."""
        queue: Sequence[Any] = self._pool.kv_event_queue or ()
        seen, values = self._seen_events, self._event_values
        if not queue and not seen:
            return ()
        if len(queue) < len(seen) or not all(map(is_, queue, seen)):
            seen.clear()
            values = ()
        elif len(shown) == len(values):
            values = shown
        if new := queue[len(seen) :]:
            seen += new
            values += self.event_values(new)
        self._event_values = values
        return values

    def _event_value(self, event: Any) -> Value:
        return _EVENTS[type(event).__name__](self, event)

    def _stored(self, event: Any) -> Value:
        label = self._label
        hashes = tuple([label["event", value] for value in event.block_hashes])
        parent = event.parent_block_hash
        return (
            "stored",
            hashes,
            None if parent is None else label["event", parent],
            tuple(event.token_ids),
            event.block_size,
            event.lora_name,
            None if event.extra_keys is None else tuple([self._plain_keys(keys) for keys in event.extra_keys]),
            getattr(event, "group_idx", 0),
            None if (kind := getattr(event, "kv_cache_spec_kind", None)) is None else str(kind),
            getattr(event, "kv_cache_spec_sliding_window", None),
            *_told_ahead(event),
            *_odd_medium(event),
            *self._odd_adapter(event),
            *self._odd_names(event.block_hashes if parent is None else [parent, *event.block_hashes]),
        )

    def _odd_names(self, names: Sequence[object]) -> tuple[Value, ...]:
        """What is wrong with the names of blocks in an event, if anything is."""
        return () if self._names is None else self._names.odd(names)

    def _odd_adapter(self, event: Any) -> tuple[Value, ...]:
        """The adapter's number in the event, if it is not the number of the adapter that the event names."""
        return () if event.lora_id == self._adapters.get(event.lora_name) else (("lora_id", event.lora_id),)

    def _plain_keys(self, keys: Iterable[Any] | None) -> Value:
        return None if keys is None else tuple([self._plain_key(key) for key in keys])

    def _plain_key(self, key: Any) -> Value:
        """An extra key without its kind, as the model shows it: a digest as a label, an adapter's path as its
        version."""
        if isinstance(key, bytes):
            return ("bytes", self._label["bytes", key])
        if isinstance(key, str):
            return key
        kind, *values = key
        if kind == "lora":
            name, path = values
            return (name, path.removeprefix(ADAPTERS))
        if kind in ("cache_salt", "prompt_embeds"):
            return self._plain_key(values[0])
        return tuple(values) if kind == "mm" else tuple(key)

    def _removed(self, event: Any) -> Value:
        hashes = tuple([self._label["event", value] for value in event.block_hashes])
        group = getattr(event, "group_idx", 0)
        return ("removed", hashes, group, *_odd_medium(event), *self._odd_names(event.block_hashes))

    def _cleared(self, event: Any) -> Value:
        return ("cleared",)

    def _walk_free_queue(self) -> list[int]:
        """Block ids in the free queue, read by following its links. RuntimeError if a corrupt queue is circular."""
        ids: list[int] = []
        queue = self._pool.free_block_queue
        block, end = queue.fake_free_list_head.next_free_block, queue.fake_free_list_tail
        for _ in self._pool.blocks:
            if block is end:
                return ids
            ids.append(block.block_id)
            block = block.next_free_block
        raise RuntimeError(f"free queue: more than {len(ids) - 1} links, so it runs in a circle: {ids}")

    def _list_free_queue(self) -> list[int]:
        return [block.block_id for block in self._pool.free_block_queue.get_all_free_blocks()]


def _told_ahead(event: Any) -> tuple[Value, ...]:
    """The tokens behind each block that its name covers, too."""
    ahead = getattr(event, "lookahead_token_ids", None)
    return (("ahead", *map(tuple, ahead)),) if ahead else ()


def _odd_medium(event: Any) -> tuple[Value, ...]:
    """The storage medium in the event, if it is not GPU memory."""
    return () if event.medium == "GPU" else (("medium", event.medium),)


_EVENTS: Mapping[str, Callable[[Observer, Any], Value]] = {
    "BlockStored": Observer._stored,
    "BlockRemoved": Observer._removed,
    "AllBlocksCleared": Observer._cleared,
}


def unreadable(error: Exception) -> TargetLostError:
    """The loss of a core whose state raised this when it was read."""
    last_line = "".join(traceback.format_exception_only(error)).strip()
    place = traceback.extract_tb(error.__traceback__)[-1]
    what = f"the state can no longer be read: {last_line} ({place.name}, line {place.lineno})"
    return TargetLostError("protocol", what, cause_of(error))
