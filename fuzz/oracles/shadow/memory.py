"""Where the shadow memory stores its tags (`Memory`), and the error that it raises (`Corruption`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from ....model.arith import cdiv
from ....model.ops import Shape
from ....model.snapshot import Snapshot

POISON = 0
"""The tag of a slot that was never written."""
GARBAGE = -(2**31)
"""The tag that is read from a slot whose bytes do not belong together."""


@dataclass(eq=False)
class Corruption(Exception):
    """A request reads, or is about to read, something that was not written for it."""

    request: str
    group: int
    position: int
    what: str
    kind: str = ""
    """Which sentence this is, without what it names."""

    def __str__(self) -> str:
        """The message, one line."""
        return f"{self.request}, group {self.group}, position {self.position}: {self.what}"


class Memory(Protocol):
    """Storage for tags: lists in this process, or tensors on a device.

    Position `p` of a request is in entry `p // b` of its table, at offset `p % b`. A Mamba state fills a whole block.
    """

    def follow(self, snapshot: Snapshot) -> None:
        """Take over the target's tables after an operation, before anything is read or written through them."""
        ...

    def write(self, group: int, request: str, start: int, tags: Sequence[int]) -> None:
        """Write tags to `start` and the following positions, none of them in a null entry."""
        ...

    def read(self, group: int, request: str, start: int, end: int) -> list[int]:
        """The tags at positions `start .. end - 1`, none of them in a null entry."""
        ...

    def write_block(self, group: int, block: int, tag: int) -> None:
        """Write the tag of a Mamba state."""
        ...

    def read_block(self, group: int, block: int) -> int:
        """The tag of the Mamba state in a block."""
        ...

    def overwrite(self, blocks: Sequence[int], tag: int) -> None:
        """An outside holder fills these blocks."""
        ...

    def copy(self, source: int, destination: int) -> None:
        """Copy a block's content to another block."""
        ...

    def damage(self) -> str | None:
        """A description of memory that changed without a write; None if there is none. Called after each operation."""
        ...


class ListMemory:
    """Tags in lists, one list for each block. All groups share it, as they share the bytes of a page."""

    def __init__(self, shape: Shape) -> None:
        self._sizes = [group.block_size * shape.parallel for group in shape.groups]
        self._pages = [[POISON] * max(self._sizes, default=0) for _ in range(shape.num_blocks)]
        self._tables: list[dict[str, list[int]]] = []

    def follow(self, snapshot: Snapshot) -> None:
        """Keep the tables of the snapshot."""
        self._tables = snapshot.tables

    def write(self, group: int, request: str, start: int, tags: Sequence[int]) -> None:
        """Write block by block."""
        table, size, at, end = self._tables[group][request], self._sizes[group], start, start + len(tags)
        while at < end:
            offset = at % size
            stop = min(end, at + size - offset)
            self._pages[table[at // size]][offset : offset + stop - at] = tags[at - start : stop - start]
            at = stop

    def read(self, group: int, request: str, start: int, end: int) -> list[int]:
        """Read whole blocks, of which the first and the last may be too much."""
        table, size, pages = self._tables[group][request], self._sizes[group], self._pages
        first = start // size
        tags = [*chain.from_iterable([pages[block][:size] for block in table[first : cdiv(end, size)]])]
        return tags[start - first * size : end - first * size]

    def write_block(self, group: int, block: int, tag: int) -> None:
        """Fill the whole block."""
        self._pages[block] = [tag] * len(self._pages[block])

    def read_block(self, group: int, block: int) -> int:
        """The tag of the block, or `POISON` if it holds different ones."""
        first, *rest = self._pages[block]
        return first if all(tag == first for tag in rest) else POISON

    def overwrite(self, blocks: Sequence[int], tag: int) -> None:
        """Fill the whole blocks."""
        for block in blocks:
            self._pages[block] = [tag] * len(self._pages[block])

    def read_page(self, block: int) -> list[int]:
        """The tags of a block."""
        return self._pages[block].copy()

    def write_page(self, block: int, tags: Sequence[int]) -> None:
        """Fill a block with so many tags."""
        self._pages[block][: len(tags)] = tags

    def copy(self, source: int, destination: int) -> None:
        """Copy the whole block."""
        self._pages[destination] = self._pages[source].copy()

    def damage(self) -> str | None:
        """Always None: lists change only by writes."""
        return None
