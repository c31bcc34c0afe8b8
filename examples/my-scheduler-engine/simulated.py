"""What blockproof calls to simulate the engine: the one file that had to be written for it."""

from dataclasses import replace
from typing import Literal

from blockproof.fuzz.simulation.protocol import (
    ClientRequest,
    Delivered,
    EngineShape,
    EngineView,
    Scheduled,
    ScheduledBatch,
    SlotCopy,
    Slots,
    SlotTransfer,
    StepResults,
)
from offloading import OffloadingScheduler, Transfer
from scheduler_engine import Pool, Scheduler, Sequence


class SimulatedEngine:
    """The engine without its device. Steps may be begun while one is in flight."""

    name = "my-scheduler-engine"
    depth = 2
    offers = frozenset({"drafts", "priorities", "adapters", "items", "salts"})

    def start(self, shape: EngineShape) -> None:
        """A new engine."""
        pool = Pool(shape.num_blocks, shape.groups[0].block_size, shape.core.caching)
        self.engine = Scheduler(pool, shape.max_length, shape.max_tokens, shape.max_requests)

    def add(self, request: ClientRequest) -> list[Delivered]:
        """Refused is what never fits."""
        sequence = Sequence(request.id, list(request.prompt), len(request.prompt), request.max_tokens, request.stop)
        sequence.priority, sequence.apart = request.priority, (request.adapter, request.salt)
        sequence.items = tuple((item.identifier, item.offset, item.length) for item in request.items)
        return [] if self.engine.add(sequence) else [Delivered(request.id, ended="refused", why="it never fits")]

    def cancel(self, id: str) -> None:
        """The client has gone."""
        self.engine.cancel(id)

    def reset(self) -> None:
        """Forget the prefix cache."""
        self.engine.reset()

    def reweigh(self) -> None:
        """There are new weights."""
        self.engine.reweigh()

    def pause(self, id: str) -> None:
        """It is not ready to go on."""
        self.engine.park(id, True)

    def resume(self, id: str) -> None:
        """It is ready again."""
        self.engine.park(id, False)

    def fork(self, id: str, new: str) -> None:
        """Another one goes on from the same tokens."""
        self.engine.fork(id, new)

    def truncate(self, id: str, length: int, then: tuple[int, ...]) -> list[Delivered]:
        """Its tokens are others from there on, and may be too many."""
        goes_on = self.engine.truncate(id, length, then)
        return [] if goes_on else [Delivered(id, ended="refused", why="it never fits")]

    def schedule(self) -> ScheduledBatch | None:
        """What the next step computes, and where."""
        pieces = self.engine.schedule()
        if not pieces:
            return None
        parts = [
            Scheduled(
                *(piece.sequence.id, piece.first, piece.count, piece.drafts, (Slots(piece.table),)),
                samples=piece.samples,
            )
            for piece in pieces
        ]
        copies = [SlotCopy(0, source, target) for source, target in self.engine.copies]
        self.engine.copies.clear()
        return ScheduledBatch(tuple(parts), tuple(copies), preempted=tuple(self.engine.preempted), own=pieces)

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> list[Delivered]:
        """A step has ended."""
        told = self.engine.update(batch.own if batch else [], results.tokens, results.drafts)
        return [Delivered(id, tokens, ended) for id, tokens, ended in told]

    def idle(self) -> bool:
        """True if nothing is left to do."""
        return not self.engine.sequences and not self.engine.in_flight

    def look(self) -> EngineView:
        """Its free blocks."""
        return EngineView(free=len(self.engine.pool.free))


class OffloadingEngine(SimulatedEngine):
    """The engine with a second memory, in which a load may fail."""

    name = "my-scheduler-engine, offloading"
    offers = SimulatedEngine.offers | {"failures"}

    def start(self, shape: EngineShape) -> None:
        """A new engine; the host has as many blocks as the device."""
        self.size, self.blocks = shape.groups[0].block_size, shape.num_blocks
        limits = (shape.max_length, shape.max_tokens, shape.max_requests)
        self.engine = OffloadingScheduler(Pool(self.blocks, self.size, shape.core.caching), *limits, self.blocks)

    def schedule(self) -> ScheduledBatch | None:
        """What is stored and loaded goes with the step; there may be no more of it than that."""
        batch, engine = super().schedule(), self.engine
        moved = [self.moved(one, "store", True) for one in engine.stores]
        moved += [self.moved(one, "load", False) for one in engine.loads]
        engine.stores.clear()
        engine.loads.clear()
        if batch is None and not moved:
            return None
        return replace(batch or ScheduledBatch(own=[]), transfers=tuple(moved))

    def moved(self, one: Transfer, kind: Literal["load", "store"], now: bool) -> SlotTransfer:
        """The slots of the blocks, here and there."""
        device, host = (
            tuple(block * self.size + slot for block in blocks for slot in range(self.size))
            for blocks in (one.blocks, one.host)
        )
        return SlotTransfer(one.id, kind, 0, device, other=host, now=now)

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> list[Delivered]:
        """A step has ended, or a load."""
        for id in results.transferred:
            self.engine.loaded(id, True)
        for id in results.failed:
            self.engine.loaded(id, False)
        return super().update(batch, results)

    def idle(self) -> bool:
        """True if nothing is on its way, either."""
        return super().idle() and not self.engine.loading

    def look(self) -> EngineView:
        """Its free blocks, those of the host among them."""
        return EngineView(free=len(self.engine.pool.free) + len(self.engine.host_free))


def make_engine() -> SimulatedEngine:
    """What --target names."""
    return SimulatedEngine()


def make_offloading_engine() -> OffloadingEngine:
    """The same with a second memory."""
    return OffloadingEngine()
