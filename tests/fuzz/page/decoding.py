"""The state that a side shows after each step, read back from its changes: in Python, to compare with snapshots."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from blockproof.fuzz.reports.document import Change, Side, TraceDocument
from blockproof.model.snapshot import Snapshot


def unpacked(ids: Sequence[int]) -> list[int]:
    """The block ids of a packed list."""
    found, rest = [], list(ids)
    while rest:
        first = rest.pop(0)
        if first < 0:
            start = rest.pop(0)
            found += range(start, start - first)
        else:
            found.append(first)
    return found


def taken(rest: list[int], count: int) -> list[int]:
    """The next so many block ids of a packed list, which loses them."""
    found = []
    while len(found) < count:
        first = rest.pop(0)
        if first < 0:
            start = rest.pop(0)
            found += range(start, start - first)
        else:
            found.append(first)
    return found


@dataclass
class Shown:
    """What a side shows."""

    num_blocks: int
    num_groups: int
    queue: list[int] = field(default_factory=list)

    def __post_init__(self):
        self.ref = [0] * self.num_blocks
        self.label = [-1] * self.num_blocks
        self.first = [-1] * self.num_blocks
        self.tables = [{} for _ in range(self.num_groups)]
        self.registered = [{} for _ in range(self.num_groups)]
        self.small = {}

    def apply(self, change: Change) -> None:
        for name in ("ref", "label", "first"):
            pairs = getattr(change, name)
            for block, value in zip(pairs[::2], pairs[1::2], strict=True):
                getattr(self, name)[block] = value
        for place, gone, *ids in change.queue:
            self.queue[place : place + gone] = unpacked(ids)
        for group, request, length, *rest in change.tables:
            if length < 0:
                del self.tables[group][request]
                continue
            table = self.tables[group].get(request, [])[:length]
            table += [None] * (length - len(table))
            while rest:
                first, count = rest.pop(0), rest.pop(0)
                table[first : first + count] = taken(rest, count)
            self.tables[group][request] = table
        numbers = iter(change.registered)
        for group, request, count in zip(numbers, numbers, numbers, strict=True):
            if count < 0:
                del self.registered[group][request]
            else:
                self.registered[group][request] = count
        self.small |= change.small

    def as_state(self) -> dict[str, object]:
        """All of it, to compare."""
        return {
            "ref": self.ref,
            "label": self.label,
            "first": self.first,
            "queue": self.queue,
            "tables": self.tables,
            "registered": self.registered,
        }


def expected_state(snapshot: Snapshot, number: dict[str, int]) -> dict[str, object]:
    """The same of a snapshot."""
    return {
        "ref": snapshot.ref_cnt,
        "label": [-1 if label is None else label for label in snapshot.labels],
        "first": [-1 if first is None else first for first in snapshot.earliest],
        "queue": snapshot.free,
        "tables": [{number[name]: table for name, table in rows.items()} for rows in snapshot.tables],
        "registered": [{number[name]: count for name, count in rows.items()} for rows in snapshot.registered],
    }


def states(document: TraceDocument, side: Side) -> Iterator[Shown]:
    """What a side shows after its construction and after each step; always the same object."""
    shown = Shown(document.num_blocks, len(document.groups))
    shown.apply(side.start)
    yield shown
    for step, change in enumerate(side.steps):
        shown.apply(change or document.sides[0].steps[step])
        yield shown
