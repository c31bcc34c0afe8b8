"""Two engines as one: prefill and decode under one clock, with a network between them and a router before them.

To all else a pair is an engine. An author writes the two halves and the router; each is built with a `Port` to the
network. Both halves have pools of one size; in the device's memory the slots of decode lie behind those of prefill.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from ...model.attention import rule_for
from .memory import block_in_half
from .network import HALVES, Network, Port
from .protocol import (
    ClientRequest,
    Delivered,
    EngineShape,
    EngineView,
    PoolTooSmallError,
    Scheduled,
    ScheduledBatch,
    SlotCopy,
    Slots,
    SlotTransfer,
    StepResults,
)


class HalfEngine(Protocol):
    """One of the two engines. Blocks and slots are those of its own pool, from 0 on.

    A `SlotTransfer` whose `tier` is the name of the other half goes between the pools: `other` are slots there.
    `prefill 2` instead means its life of that number: the transfer fails where that is over, as memory of a process
    that has ended cannot be read. It fails, too, where the other half is down.
    """

    def receive(self, sender: str, message: Any) -> None:
        """A message arrives."""
        ...

    def schedule(self) -> ScheduledBatch | None:
        """See `Engine`. Nothing is delivered: clients are the router's."""
        ...

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> object:
        """See `Engine`; batches of an earlier life do not come back. Nothing is returned."""
        ...

    def idle(self) -> bool:
        """See `Engine`; False while something is held for the other half, too."""
        ...

    def look(self) -> EngineView:
        """See `OPTIONAL`: its free blocks."""
        ...


class PairRouter(Protocol):
    """Who knows the clients. It does not crash."""

    def add(self, request: ClientRequest) -> Sequence[Delivered]:
        """A request arrives. Returns what its client gets at once."""
        ...

    def cancel(self, id: str) -> None:
        """The client has gone."""
        ...

    def receive(self, sender: str, message: Any) -> Sequence[Delivered]:
        """A message arrives. Returns what clients get."""
        ...

    def tick(self) -> Sequence[Delivered]:
        """Once in each round, behind the messages: time to notice what did not come."""
        ...

    def idle(self) -> bool:
        """True if nobody is owed anything."""
        ...


class EnginePair:
    """An engine of two halves. A subclass gives it a name, and declares what it declares (`DECLARED`)."""

    name = "pair"
    lacks: frozenset[str] = frozenset({"ids"})
    """Names are not used again: a half may still be busy with a request that has ended."""
    separate_pools = False
    timeout = 150
    """Rounds after which the pair has noticed what was lost, and has begun to mend it."""
    gives_up = False
    """A request that is met by a crash or a loss may end as `failed`; else it must be served all the same."""

    def __init__(
        self,
        router: Callable[[EngineShape, Port], PairRouter],
        prefill: Callable[[EngineShape, Port], HalfEngine],
        decode: Callable[[EngineShape, Port], HalfEngine],
    ) -> None:
        """What builds each of them; a half is built again after each crash. The shape is that of one half. A half's
        maker may have an attribute `depth`: how many of its steps are in flight at most, else 1."""
        self._router_maker, self._makers = router, {"prefill": prefill, "decode": decode}
        self._depths = {name: int(getattr(maker, "depth", 1)) for name, maker in self._makers.items()}

    @property
    def depth(self) -> int:
        """Steps of both in flight at most."""
        return sum(self._depths.values())

    def start(self, shape: EngineShape) -> None:
        """See `Engine`; each half has a half of the blocks."""
        self._blocks = shape.num_blocks // len(HALVES)
        if not self._blocks:
            raise PoolTooSmallError("a pair needs a block for each half")
        self._total = shape.num_blocks
        self._width = max(rule_for(group, shape.core).b for group in shape.groups)
        self._shape = replace(shape, core=replace(shape.core, num_blocks=self._blocks))
        self._network = Network(self.timeout, gives_up=self.gives_up)
        self._router = self._router_maker(self._shape, Port(self._network, "router"))
        self._halves: dict[str, HalfEngine] = {}
        self._built: dict[str, int] = {}
        self._flying: Counter[str] = Counter()
        self._refused: list[tuple[str, str]] = []
        self._by_slot: set[tuple[str, int]] = set()
        self._build()

    def network(self) -> Network:
        """See `OPTIONAL`."""
        return self._network

    def _build(self) -> None:
        """Halves that are not down have their newest life."""
        for name, life in self._network.lives.items():
            if self._built.get(name) != life and not self._network.is_down(name):
                port = Port(self._network, "prefill" if name == "prefill" else "decode", life)
                self._halves[name], self._built[name] = self._makers[name](self._shape, port), life
                self._flying[name] = 0

    def _is_up(self, name: str) -> bool:
        return self._built[name] == self._network.lives[name] and not self._network.is_down(name)

    # The clients.

    def add(self, request: ClientRequest) -> Sequence[Delivered]:
        """See `Engine`."""
        return self._router.add(request)

    def cancel(self, id: str) -> None:
        """See `Engine`."""
        self._router.cancel(id)

    def idle(self) -> bool:
        """See `Engine`."""
        if not self._network.is_clear or not all(map(self._is_up, HALVES)):
            return False
        return self._router.idle() and all(half.idle() for half in self._halves.values())

    def look(self) -> EngineView:
        """Free blocks of both."""
        return EngineView(free=sum(half.look().free or 0 for half in self._halves.values()))

    def counts(self) -> Mapping[str, int]:
        """What became of messages."""
        return self._network.counts

    # Rounds.

    def schedule(self) -> ScheduledBatch | None:
        """A round begins: messages arrive, and one of the halves takes a step; the other one, too, if this computes
        nothing. They take turns."""
        told: list[Delivered] = []
        messages = list(self._network.tick())
        self._build()
        for sender, to, message in messages:
            if to == "router":
                told += self._router.receive(sender, message) or ()
            else:
                self._halves[to].receive(sender, message)
        told += self._router.tick() or ()
        self._tell_refused()
        taken: list[tuple[str, int, ScheduledBatch]] = []
        turn = self._network.now % 2
        for name in (HALVES[turn], HALVES[1 - turn]):
            busy = not self._is_up(name) or self._flying[name] >= self._depths[name]
            if busy or any(batch.parts for _, _, batch in taken):
                continue
            if (batch := self._halves[name].schedule()) is not None:
                taken.append((name, self._built[name], batch))
                self._flying[name] += 1
        if not taken and not told:
            return None
        batches = [self._shifted(name, batch) for name, _, batch in taken]
        return ScheduledBatch(
            tuple(part for batch in batches for part in batch.parts),
            tuple(copy for batch in batches for copy in batch.copies),
            tuple(one for batch in batches for one in batch.transfers),
            tuple(told),
            tuple(name for batch in batches for name in batch.preempted),
            own=taken,
            cleared=tuple(block for batch in batches for block in batch.cleared),
            awaited=tuple(id for batch in batches for id in batch.awaited),
        )

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> tuple[Delivered, ...]:
        """See `Engine`: each half gets what is its own, unless it has crashed since."""
        for name, life, own in batch.own if batch is not None else ():
            if self._is_up(name) and self._built[name] == life:
                self._flying[name] -= 1
                tokens = {part.request: results.tokens.get(part.request, ()) for part in own.parts}
                drafts = {id: given for id, given in results.drafts.items() if id in tokens}
                self._update(name, own, StepResults(tokens, drafts))
        for name in HALVES:
            heard = StepResults(
                transferred=tuple(self._own(name, results.transferred)),
                failed=tuple(self._own(name, results.failed)),
                by_worker=tuple((worker, id) for worker, told in results.by_worker for id in self._own(name, (told,))),
            )
            if self._is_up(name) and (heard.transferred or heard.failed or heard.by_worker):
                self._update(name, None, heard)
        return ()

    def _update(self, name: str, batch: ScheduledBatch | None, results: StepResults) -> None:
        if self._halves[name].update(batch, results) or (batch is not None and batch.delivered):
            raise TypeError(f"{name} delivers something; only the router knows clients: send it there")

    def _own(self, name: str, ids: Sequence[str]) -> list[str]:
        """Of these transfers those of a half in this life, under the names that it gave; and of nobody."""
        mine = self._named(name, "")
        return [id.removeprefix(mine) for id in ids if id.startswith(mine) or "/" not in id]

    def _tell_refused(self) -> None:
        """Transfers that could not begin have failed."""
        refused, self._refused = self._refused, []
        for name, id in refused:
            for own in self._own(name, (id,)) if self._is_up(name) else ():
                self._update(name, None, StepResults(failed=(own,)))

    # Where things lie.

    def _shifted(self, name: str, batch: ScheduledBatch) -> ScheduledBatch:
        """The batch of a half, with the blocks and slots that they are on the device."""
        for part in batch.parts:
            self._by_slot |= {(name, group) for group, one in enumerate(part.slots or ()) if one.at is not None}
        moved = [self._transfer(name, told) for told in batch.transfers]
        return replace(
            batch,
            parts=tuple(self._part(name, part) for part in batch.parts),
            copies=tuple(self._copy(name, copy) for copy in batch.copies),
            transfers=tuple(told for told in moved if told is not None),
            cleared=tuple(self._block(name, block) for block in batch.cleared),
            awaited=tuple(self._named(name, id) for id in batch.awaited),
        )

    def _named(self, name: str, id: str) -> str:
        """What all others call a transfer of a half."""
        return f"{name} {self._built[name]}/{id}"

    def _block(self, name: str, block: int) -> int:
        return block if block < 0 else block_in_half(block, HALVES.index(name), len(HALVES), self._total)

    def _slot(self, name: str, slot: int) -> int:
        return self._block(name, slot // self._width) * self._width + slot % self._width

    def _part(self, name: str, part: Scheduled) -> Scheduled:
        return part if part.slots is None else replace(part, slots=tuple(self._slots(name, one) for one in part.slots))

    def _slots(self, name: str, slots: Slots) -> Slots:
        at, written = (
            None if places is None else {position: self._slot(name, slot) for position, slot in places.items()}
            for places in (slots.at, slots.written)
        )
        return Slots(tuple(None if b is None else self._block(name, b) for b in slots.table), at, written)

    def _copy(self, name: str, copy: SlotCopy) -> SlotCopy:
        moved = self._slot if (name, copy.group) in self._by_slot else self._block
        return replace(copy, source=moved(name, copy.source), target=moved(name, copy.target))

    def _transfer(self, name: str, told: SlotTransfer) -> SlotTransfer | None:
        """None if it cannot begin: then it has failed."""
        there, _, life = told.tier.partition(" ")
        id, tier, other = self._named(name, told.id), told.tier, tuple(told.other)
        device = tuple(self._slot(name, slot) for slot in told.device)
        if there in HALVES and not told.fails:
            if not self._is_up(there) or life not in ("", str(self._network.lives[there])):
                self._refused.append((name, id))
                return None
            tier = f"device {told.group}" if self.separate_pools else "device"
            other = tuple(self._slot(there, slot) for slot in other)
        return replace(told, id=id, device=device, tier=tier, other=other)
