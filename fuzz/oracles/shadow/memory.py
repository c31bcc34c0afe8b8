"""Where the shadow memory keeps its tags, and what it reports."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ....model.ops import Shape
from ....model.snapshot import Snapshot

POISON = 0
"""The tag of a slot that was never written."""
GARBAGE = -(2**31)
"""The tag of a slot whose bytes were not written together."""


@dataclass(eq=False)
class Corruption(Exception):
    """A request reads, or is about to read, something else than was written for it."""

    request: str
    group: int
    position: int
    what: str

    def __str__(self) -> str:
        """One line for a person."""
        return f"{self.request}, group {self.group}, position {self.position}: {self.what}"


class Memory(Protocol):
    """Where the tags lie: a list in this process, or tensors on a device.

    Position `p` of a request lies in entry `p // b` of its table, at offset `p % b`. A Mamba state fills a whole block.
    """

    def follow(self, snapshot: Snapshot) -> None:
        """The target's tables after an operation, before anything is read or written through them."""
        ...

    def write(self, group: int, request: str, start: int, tags: Sequence[int]) -> None:
        """Store tags at `start` and the positions that follow. No entry of theirs is null."""
        ...

    def read(self, group: int, request: str, start: int, end: int) -> list[int]:
        """The tags at positions `start .. end - 1`, none of them in a null entry."""
        ...

    def write_block(self, group: int, block: int, tag: int) -> None:
        """Store a Mamba state."""
        ...

    def read_block(self, group: int, block: int) -> int:
        """The Mamba state in a block."""
        ...

    def overwrite(self, blocks: Sequence[int], tag: int) -> None:
        """Somebody outside fills these blocks."""
        ...

    def copy(self, source: int, destination: int) -> None:
        """The core has a block's content copied to another block."""
        ...

    def damage(self) -> str | None:
        """What has changed although nobody wrote it, if anything; asked after each operation."""
        ...


class ListMemory:
    """Tags in lists: one per block, which all groups share, as they share the bytes of a page."""

    def __init__(self, shape: Shape) -> None:
        self._sizes = [group.block_size * shape.parallel for group in shape.groups]
        self._pages = [[POISON] * max(self._sizes, default=0) for _ in range(shape.num_blocks)]
        self._tables: list[dict[str, list[int]]] = []

    def follow(self, snapshot: Snapshot) -> None:
        """Nothing is kept on a device: the tables themselves are used."""
        self._tables = snapshot.tables

    def write(self, group: int, request: str, start: int, tags: Sequence[int]) -> None:
        """Page by page."""
        table, size, at, end = self._tables[group][request], self._sizes[group], start, start + len(tags)
        while at < end:
            offset = at % size
            stop = min(end, at + size - offset)
            self._pages[table[at // size]][offset : offset + stop - at] = tags[at - start : stop - start]
            at = stop

    def read(self, group: int, request: str, start: int, end: int) -> list[int]:
        """Page by page."""
        table, size, at, tags = self._tables[group][request], self._sizes[group], start, []
        while at < end:
            offset = at % size
            stop = min(end, at + size - offset)
            tags += self._pages[table[at // size]][offset : offset + stop - at]
            at = stop
        return tags

    def write_block(self, group: int, block: int, tag: int) -> None:
        """The whole page."""
        self._pages[block] = [tag] * len(self._pages[block])

    def read_block(self, group: int, block: int) -> int:
        """The page's tag, or poison if it holds several."""
        first, *rest = self._pages[block]
        return first if all(tag == first for tag in rest) else POISON

    def overwrite(self, blocks: Sequence[int], tag: int) -> None:
        """The whole pages."""
        for block in blocks:
            self._pages[block] = [tag] * len(self._pages[block])

    def copy(self, source: int, destination: int) -> None:
        """The whole page."""
        self._pages[destination] = self._pages[source].copy()

    def damage(self) -> str | None:
        """Lists change only where they are written."""
        return None


def check_block_ids(snapshot: Snapshot, shape: Shape) -> None:
    """Corruption if a table of a target that is not known to be sound names a block that the pool does not have."""
    if len(snapshot.ref_cnt) != shape.num_blocks:
        counts = f"references are counted of {len(snapshot.ref_cnt)} blocks, the pool has {shape.num_blocks}"
        raise Corruption("nobody", 0, 0, counts)
    for group, tables in enumerate(snapshot.tables):
        for name, table in tables.items():
            if wrong := [block for block in table if not 0 <= block < shape.num_blocks]:
                what = f"its table names block {wrong[0]}, the pool has 0 .. {shape.num_blocks - 1}"
                raise Corruption(name, group, 0, what)
