"""Copies between the simulated device and what lies outside of it: each is carried out some moments after it is begun.

A step has two moments, one before its computation and one behind it. Between the moment at which a transfer is begun
and the one at which its end is reported, every copy of it may happen; which one it is, is drawn.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from ...simulation.device import SimulatedDevice
from ...simulation.memory import NOTHING, Slot
from ...simulation.protocol import ClientRequest, ScheduledBatch
from .loads import ExternalLoad

Page = list[int]


class TransferMemory(Protocol):
    """What a transfer needs of the device."""

    def page(self, block: int) -> Page:
        """The tags in a block, one for each token."""

    def set_page(self, block: int, tags: Sequence[int]) -> None:
        """Write all tags of a block."""


class DeviceBlocks:
    """The memory of a simulated device, by blocks."""

    def __init__(self, device: SimulatedDevice, clients: Mapping[str, ClientRequest]) -> None:
        """`clients`: by the scheduler's names."""
        self.rules, self._device, self._clients = device.rules, device, clients
        self._acts: list[Callable[[], None]] = []
        prepare = device.prepare

        def prepared(batch: ScheduledBatch, now: int, flying: frozenset[Slot]) -> None:
            prepare(batch, now, flying)
            acts, self._acts = self._acts, []
            for act in acts:
                act()

        vars(device)["prepare"] = prepared

    def page(self, block: int) -> Page:
        """The tags in a block's slots."""
        return list(self._device.cells.page("device", block))

    def set_page(self, block: int, tags: Sequence[int]) -> None:
        """Write these tags into a block's slots, the first of them first."""
        self._device.cells.page("device", block)[: len(tags)] = tags

    def when_cleared(self, act: Callable[[], None]) -> None:
        """Do this in the next step, after its blocks are cleared and copied and before anything is computed."""
        self._acts.append(act)

    def load_now(self, name: str, tables: list[list[int]], start: int, end: int) -> None:
        """Positions `start .. end - 1` of a request are written where the tables have a block."""
        load, width = ExternalLoad(name, tables, start, end), self._device.cells.width
        for told in load.transfers(self.rules, width, self._clients[name].id, now=True):
            self._device.transfer(told)


@dataclass
class Copy:
    """One block of a transfer; `act` carries it out and returns an objection, or nothing."""

    block: int
    act: Callable[[], str]
    wait: int = 0
    """Moments until it is carried out."""


@dataclass
class Transfer:
    """A transfer under way, which is reported under `name` once all of its copies are carried out."""

    name: Hashable
    loads: bool
    copies: list[Copy]
    silent: int = 0
    """Moments for which it is not reported yet."""


class Transfers:
    """All transfers of an engine. `delay`: most moments that one takes; `pool`: the engine's block pool."""

    def __init__(self, memory: TransferMemory, pool: Any, random: Random, delay: int) -> None:
        self.memory = memory
        self.wrong: list[str] = []
        """Objections since they were last taken."""
        self.begun = {True: 0, False: 0}
        """Number of copies that were begun: loads, and stores."""
        self._pool, self._random, self._delay = pool, random, delay
        self._under_way: list[Transfer] = []

    def begin(self, name: Hashable, loads: bool, copies: Iterable[Copy], silent: int = 0) -> None:
        """Begin a transfer. It is not reported for `silent` moments."""
        transfer, most = Transfer(name, loads, list(copies), silent), self._random.randint(0, self._delay)
        for copy in transfer.copies:
            copy.wait = self._random.randint(0, most)
        self.begun[loads] += len(transfer.copies)
        self._under_way.append(transfer)

    def moment(self) -> None:
        """A moment passes: carry out the copies that are due."""
        for transfer in self._under_way:
            transfer.silent -= 1
            for copy in transfer.copies:
                copy.wait -= 1
                if transfer.loads:
                    self._look(transfer, copy)
            self._carry_out(transfer, [copy for copy in transfer.copies if copy.wait < 0])

    def finish(self, names: Iterable[Hashable] | None = None) -> None:
        """Carry out these transfers now (all of them if None), as a worker that waits for them."""
        chosen = None if names is None else set(names)
        for transfer in self._under_way:
            if chosen is None or transfer.name in chosen:
                self._carry_out(transfer, list(transfer.copies))

    def ended(self, loads: bool) -> list[Hashable]:
        """Transfers of a direction that ended since the last call, in the order in which they were begun; one that has
        not ended holds up those behind it."""
        names: list[Hashable] = []
        for transfer in [transfer for transfer in self._under_way if transfer.loads is loads]:
            if transfer.copies or transfer.silent > 0:
                break
            names.append(transfer.name)
            self._under_way.remove(transfer)
        return names

    def __len__(self) -> int:
        return len(self._under_way)

    def take_wrong(self) -> tuple[str, ...]:
        """Objections since the last call."""
        lines, self.wrong = tuple(self.wrong), []
        return lines

    def _carry_out(self, transfer: Transfer, copies: Sequence[Copy]) -> None:
        for copy in copies:
            if objection := copy.act():
                self.wrong.append(objection)
            transfer.copies.remove(copy)

    def _look(self, transfer: Transfer, copy: Copy) -> None:
        """A block into which something is loaded belongs to somebody."""
        if not self._pool.blocks[copy.block].ref_cnt:
            self.wrong.append(f"block {copy.block} is free while transfer {transfer.name} loads into it")

    # Copies between a block and a place in a store.

    def into(self, store: dict[Hashable, Page], place: Hashable, block: int) -> Copy:
        """A copy of a block into a store. An objection if another owner writes over the block before it is carried out;
        who goes on behind the tokens that are stored does not."""
        before = self.memory.page(block)[0]

        def act() -> str:
            now = self.memory.page(block)
            store[place] = list(now)
            return f"block {block} is written over while it is stored" if before > NOTHING and now[0] != before else ""

        return Copy(block, act)

    def out_of(self, store: dict[Hashable, Page], place: Hashable, block: int) -> Copy:
        """A copy from a store into a block. An objection if nothing is there."""

        def act() -> str:
            if place not in store:
                return f"block {block} is loaded from {place}, where nothing was stored"
            self.memory.set_page(block, store[place])
            return ""

        return Copy(block, act)
