"""The shadow memory of a core with a pool of the host (`model.features.pools`): what is written back to the host is
read from there once the device has it no more.

A worker reads each page where it was told last to find it: on the device, or in the host's block of the same page. For
the latter it fills the request's region. What the core has sent to be copied is copied late: to the host when the next
step begins, to the device before the step that needs it.
"""

from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

from ....model import ops
from ....model.arith import cdiv
from ....model.attention import Rule
from ....model.kinds.pool_kinds import Hot, Resident, Source
from ....model.ops import NULL, Operation, Outcome, Shape, Value
from ....model.snapshot import Snapshot
from .engine import Shadow
from .engine_state import EngineRequest
from .memory import POISON, Corruption, ListMemory

Move: TypeAlias = Sequence[int]
"""A block of the host, whether it is the source, and the blocks of the device."""


class PooledShadow(Shadow):
    """The same for such a core, with tags in lists. Two pools have blocks of the same ids, so those of the host are
    kept apart."""

    def __init__(self, shape: Shape, *, losses: Collection[str] = (), designs: Collection[str] = ()) -> None:
        self._lists = ListMemory(shape)
        super().__init__(shape, lambda shape: self._lists, losses=losses, designs=designs)
        of = {kind: [g for g, rule in enumerate(self.rules) if isinstance(rule, kind)] for kind in (Resident, Hot)}
        self._regions = {group: cdiv(self.rules[group].w, self.rules[group].b) for group in of[Hot]}
        self._pages = {group: place for place, group in enumerate(of[Resident])}
        (self._source,) = [group for group, rule in enumerate(self.rules) if isinstance(rule, Source)]
        for group in self._pages:
            self.rules[group] = Source(shape.groups[group], shape)  # all of its tokens are there to be read
        self._attention = [
            (g, rule) for g, rule in enumerate(self.rules) if g != self._source and g not in self._regions
        ]
        size = self.rules[self._source].b
        self._host = [[[POISON] * size for _ in self._pages] for _ in range(shape.host_blocks)]
        self._moves: list[Move] = []  # under way
        self._sent: list[Move] = []  # those of them that the operation has sent
        self._tables: dict[str, list[int]] = {}

    def step(
        self,
        operation: Operation,
        outcome: Outcome,
        snapshot: Snapshot,
        copies: Collection[tuple[int, int]] = (),
        told: Sequence[Value] = (),
    ) -> None:
        """As before; `told`: what the core says of the pool of the host besides (`targets.base.handed_of`)."""
        if type(operation) is ops.StepStart:
            self._copy([move for move in self._moves if not move[1]])
        if len(told) > 4:
            rows: Any = told[3]
            moves: Any = told[4]
            self._sent, self._moves = [move for move in moves if move not in self._moves], [*moves]
            tables = [*snapshot.tables]
            self._tables, tables[self._source] = tables[self._source], {}
            for group, place in self._pages.items():
                tables[group] = {name: row for at, name, *row in rows if at == place}
            snapshot = snapshot._replace(tables=tables)
        super().step(operation, outcome, snapshot, copies)

    def _copy(self, moves: Sequence[Move]) -> None:
        """Make copies."""
        for host_block, is_source, *blocks in moves:
            for block, (group, place) in zip(blocks, self._pages.items(), strict=True):
                if is_source:
                    self._lists.write_page(block, self._host[host_block][place])
                else:
                    self._host[host_block][place] = self._lists.read_page(block)[: self.rules[group].b]
                self.reached["shadow: pages copied"] += 1

    def _receive(self, request: EngineRequest, start: int, end: int, snapshot: Snapshot) -> None:
        """External tokens come to the host; of layers that have all of theirs on the device, there."""
        self.reached["shadow: external tokens"] += end - start
        for group, rule in self._attention:
            if group not in self._pages:
                self._write(request, group, start, end, snapshot)
                continue
            for position, tag in enumerate(self._tags(request, group, start, end), start):
                block = self._on_host(request, group, position)
                self._host[block][self._pages[group]][position % rule.b] = tag
        self._copy([move for move in self._sent if move[1]])

    def _run(self, request: EngineRequest, snapshot: Snapshot) -> None:
        """A step fills its region with what it reads from the host; nobody else may have anything there."""
        for group in self._regions if request.scheduled else ():
            region = snapshot.tables[group].get(request.submit.request, [])
            self.memory.overwrite(region, next(self._draft_numbers))
        super()._run(request, snapshot)

    def _read(self, request: EngineRequest, group: int, rule: Rule, start: int, end: int, snapshot: Snapshot) -> None:
        """Pages are read where the worker was told to find them."""
        if group not in self._pages:
            return super()._read(request, group, rule, start, end, snapshot)
        name, size = request.submit.request, rule.b
        row = snapshot.tables[group].get(name, [])
        for page in range(start // size, cdiv(end, size)):
            low, high = max(start, page * size), min(end, (page + 1) * size)
            if page < len(row) and row[page] != NULL:
                super()._read(request, group, rule, low, high, snapshot)
            else:
                self._read_host(request, group, low, high, snapshot)
        return None

    def _read_host(self, request: EngineRequest, group: int, start: int, end: int, snapshot: Snapshot) -> None:
        name, size = request.submit.request, self.rules[group].b
        if any(len(snapshot.tables[one].get(name, [])) < blocks for one, blocks in self._regions.items()):
            raise Corruption(name, group, start, "is read from the host, but there is no region for it", "no region")
        block = self._on_host(request, group, start)
        found = self._host[block][self._pages[group]][start % size : start % size + end - start]
        expected = self._expected_run(request, group, start, end)
        for position, (tag, right) in enumerate(zip(found, expected, strict=True), start):
            if tag != right:
                there = self._describe(tag)
                what = f"reads {there} in block {block} of the host, offset {position % size}"
                raise Corruption(name, group, position, what, f"reads {there} from the host")
        self.reached["shadow: tokens read from the host"] += end - start

    def _on_host(self, request: EngineRequest, group: int, position: int) -> int:
        name = request.submit.request
        table, page = self._tables.get(name, []), position // self.rules[group].b
        if page >= len(table) or table[page] == NULL:
            raise Corruption(name, group, position, f"has no block of the host: its blocks are {table}", "not there")
        return table[page]
