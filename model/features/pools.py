"""Attention that reads few tokens of a long history, so that the history need not be on the device: pools beside the
pool. What a request computes stands in *pages* on the device (`resident`), and is written back, page by page, to blocks
of a pool of the host (`hosted`), which alone have names. A request that reads from the host has a region to read into
(`hot`). Then its written pages are let go: they are read on until the pool hands them out again, and a later request
with the same prefix takes those up that are still there. A worker keeps the last pages (`given_up.TAIL`), which its
steps may be writing still.

`Pools` is what a core keeps of it. It decides in `pool_room` what there is room for, in `written_back` and `page_names`
what comes to the host, in `given_up` what leaves the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..kinds.pool_kinds import Hot, Resident, Source
from ..ops import NULL, Value
from ..snapshot import Labels
from ..state import Key, Request
from ..tables import Core
from .names import NamedState


@dataclass(eq=False)
class Pages:
    """The pages of one request, by their place in the table."""

    request: Request
    whole: set[int] = field(default_factory=set)  # the host has all of them
    ready: int = 0  # so many leading ones are whole
    moving: set[int] = field(default_factory=set)  # being copied, in either direction
    pinned: set[int] = field(default_factory=set)  # whole, and held on the device as yet
    let_go: set[int] = field(default_factory=set)  # whole, and read as long as nobody else gets the block
    taken_up: int = 0  # of so many leading ones the blocks that are still there are to be taken up
    indexed: int = 0  # so many leading ones were told to later requests
    asked: int | None = None  # tokens whose blocks are to be named, once they are whole
    left: list[int] | None = None  # blocks of the host that are held for that behind the request's end
    named: int = 0  # how many of these have their names


class Move(NamedTuple):
    """A page is being copied between the device and the host."""

    name: str
    page: int
    of: Pages
    host_block: int
    blocks: tuple[int, ...]  # on the device, by group
    restores: bool


class Pools(NamedState):
    """The pool of the device, and that of the host."""

    def __init__(self, core: Core) -> None:
        super().__init__(core.shape.num_blocks, len(core.rules), core.state.metrics)
        of = {kind: [g for g, rule in enumerate(core.rules) if isinstance(rule, kind)] for kind in (Source, Resident)}
        (self.source,), self.resident = of[Source], of[Resident]
        self.hot = {g: rule.blocks for g, rule in enumerate(core.rules) if isinstance(rule, Hot)}
        self.host = NamedState(core.shape.host_blocks, 0)
        self.host.tables = [self.tables[self.source]]
        self.pages: dict[str, Pages] = {}
        self.changed: dict[tuple[int, str], dict[int, int]] = {}  # what is read in place of the table, which only grows
        self.reads_host: set[str] = set()  # requests that need a region
        self.imports: dict[str, int] = {}  # tokens that are being brought into the host's pool
        self.moves: list[Move] = []
        self.copies: dict[Key, tuple[int, ...]] = {}  # by the name of a block of the host, its page on the device
        self.copy_of: dict[int, Key] = {}
        self.readers: dict[int, set[tuple[str, int]]] = {}  # of blocks that were let go
        self.ending = ""  # the request that has finished, while it gives its blocks back
        self._labels = Labels()

    def row(self, group: int, name: str) -> list[int]:
        """What a worker reads of the pages of a request: null is read from the host."""
        table, changed = self.tables[group].get(name, []), self.changed.get((group, name))
        return [changed.get(i, block) for i, block in enumerate(table)] if changed else table

    def held(self, group: int, name: str) -> list[int]:
        """The blocks of its pages that it holds."""
        pages, row = self.pages.get(name), self.row(group, name)
        return [block for i, block in enumerate(row) if i not in pages.let_go] if pages else row

    def references(self) -> list[int]:
        """Of blocks of the device."""
        counts = [0] * self.num_blocks
        others = [t for g, t in enumerate(self.tables) if g != self.source and g not in self.resident]
        rows = [self.held(group, name) for group in self.resident for name in self.tables[group]]
        rows += [*(row for table in others for row in table.values()), self.outside]
        for row in (*rows, *(move.blocks for move in self.moves)):
            for block in row:
                counts[block] += 1
        counts[NULL] = 0
        return counts

    def _tell(self, blocks: Sequence[int]) -> None:
        for block in [block for block in blocks if block in self.watched]:
            del self.watched[block]
            self.unlist(self.copy_of.get(block))
            for name, page in self.readers.pop(block, ()):
                self._lose(name, page)

    def unlist(self, key: Key | None) -> None:
        """The page is told to nobody any more."""
        for block in self.copies.pop(key, ()) if key else ():
            self.copy_of.pop(block, None)

    def _lose(self, name: str, page: int) -> None:
        """Somebody else has got a block of the page: it is read from the host."""
        if (pages := self.pages.get(name)) is None:
            return
        for group in self.resident:
            self.readers.get(self.drop(group, name, page), set()).discard((name, page))
        pages.let_go.discard(page)
        self.reads_host.add(name)

    def drop(self, group: int, name: str, page: int) -> int:
        """The page is read on the device no more. Returns its block."""
        block = self.row(group, name)[page]
        if block != NULL:
            self.changed.setdefault((group, name), {})[page] = NULL
        return block

    def lacking(self, group: int, name: str) -> int:
        """Blocks that the region of a request lacks: it is there as a whole or not at all."""
        return max(0, self.hot[group] - len(self.tables[group].get(name, [])))

    def has_region(self, name: str) -> bool:
        """True if the request can read from the host."""
        return not any(self.lacking(group, name) for group in self.hot)

    def shown(self) -> tuple[Value, ...]:
        """The pool of the host, what workers read, and what is being copied."""
        host, keys = self.host, self.host.identity
        moves = tuple([(move.host_block, move.restores, *move.blocks) for move in self.moves])
        labels = tuple([self._labels(keys[block]) if block in keys else None for block in range(host.num_blocks)])
        groups = [*enumerate(self.resident)]
        rows: list[Value] = [(at, name, *self.row(g, name)) for at, g in groups for name in sorted(self.tables[g])]
        return tuple(host.queue()), tuple(host.references()), labels, tuple(rows), moves


def pools(core: Core) -> Pools:
    """What a core keeps of them."""
    assert isinstance(core.state, Pools)
    return core.state


def pages_of(core: Core, name: str) -> Pages:
    """The pages of a request."""
    return pools(core).pages.setdefault(name, Pages(core.requests[name]))
