"""What blockproof calls to simulate the pair: the one file that had to be written for it."""

from collections.abc import Sequence
from typing import Any

from blockproof.fuzz.simulation.network import Port
from blockproof.fuzz.simulation.pair import EnginePair
from blockproof.fuzz.simulation.protocol import (
    ClientRequest,
    Delivered,
    EngineShape,
    EngineView,
    Scheduled,
    ScheduledBatch,
    Slots,
    SlotTransfer,
    StepResults,
)
from pair_engine import Decoder, Job, Load, Piece, Prefill, Router


class SimulatedRouter:
    """The router; it refuses what never fits."""

    def __init__(self, shape: EngineShape, port: Port) -> None:
        self.shape, self.router = shape, Router(port)

    def add(self, request: ClientRequest) -> list[Delivered]:
        """A request arrives."""
        prompt, end = list(request.prompt), min(len(request.prompt) + request.max_tokens, self.shape.max_length)
        if end <= len(prompt) or -(-end // self.shape.groups[0].block_size) > self.shape.num_blocks:
            return [Delivered(request.id, ended="refused", why="it never fits")]
        self.router.add(Job(request.id, prompt, end, request.stop))
        return []

    def cancel(self, id: str) -> None:
        """The client has gone."""
        self.router.cancel(id)

    def receive(self, sender: str, message: Any) -> list[Delivered]:
        """A message arrives."""
        return [Delivered(*told) for told in self.router.receive(sender, message)]

    def tick(self) -> Sequence[Delivered]:
        """A round."""
        self.router.tick()
        return ()

    def idle(self) -> bool:
        """True if nobody is owed anything."""
        return not self.router.jobs


class SimulatedPrefill:
    """The half that computes prompts."""

    def __init__(self, shape: EngineShape, port: Port) -> None:
        size = shape.groups[0].block_size
        self.engine = Prefill(shape.num_blocks, size, shape.max_tokens, shape.max_requests, port)

    def receive(self, sender: str, message: Any) -> None:
        """A message arrives."""
        self.engine.receive(message)

    def schedule(self) -> ScheduledBatch | None:
        """What the next step computes, and where."""
        pieces = self.engine.step()
        return ScheduledBatch(parts_of(pieces), own=pieces) if pieces else None

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> None:
        """A step has ended."""
        self.engine.update(batch.own if batch else [], dict(results.tokens))

    def idle(self) -> bool:
        """True if nothing is computed or kept."""
        return self.engine.idle()

    def look(self) -> EngineView:
        """Its free blocks."""
        return EngineView(free=len(self.engine.free))


class SimulatedDecode:
    """The half that computes answers."""

    def __init__(self, shape: EngineShape, port: Port) -> None:
        self.size = shape.groups[0].block_size
        most = min(shape.max_requests, shape.max_tokens)
        self.engine = Decoder(shape.num_blocks, self.size, most, port)

    def receive(self, sender: str, message: Any) -> None:
        """A message arrives."""
        self.engine.receive(message)

    def schedule(self) -> ScheduledBatch | None:
        """What the next step computes, and what is loaded beside it."""
        pieces, loads = self.engine.step()
        if not pieces and not loads:
            return None
        return ScheduledBatch(parts_of(pieces), transfers=tuple(map(self.moved, loads)), own=pieces)

    def moved(self, load: Load) -> SlotTransfer:
        """A block of prefill, from its life in which it was computed."""
        source, one = load.whose.asked.source, load.whose
        here, there = (
            tuple(range(block * self.size, (block + 1) * self.size))
            for block in (one.blocks[load.number], source.blocks[load.number])
        )
        return SlotTransfer(load.id, "load", 0, here, tier=f"prefill {source.life}", other=there)

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> None:
        """A step has ended, or a load."""
        for id in results.transferred:
            self.engine.loaded(id, True)
        for id in results.failed:
            self.engine.loaded(id, False)
        self.engine.update(batch.own if batch else [], dict(results.tokens))

    def idle(self) -> bool:
        """True if it works on nothing."""
        return self.engine.idle()

    def look(self) -> EngineView:
        """Its free blocks."""
        return EngineView(free=len(self.engine.free))


def parts_of(pieces: list[Piece]) -> tuple[Scheduled, ...]:
    """What is computed of whom, in which blocks."""
    return tuple(
        Scheduled(_name(one), piece.first, piece.count, slots=(Slots(tuple(one.blocks)),), samples=piece.samples)
        for piece in pieces
        for one in (piece.whose,)
    )


def _name(one: Any) -> str:
    return str(one.id if hasattr(one, "id") else one.asked.id)


class MyPair(EnginePair):
    """The two of them."""

    name = "my-pair"
    offers = frozenset({"failures"})


def make_engine() -> MyPair:
    """What --target names."""
    return MyPair(SimulatedRouter, SimulatedPrefill, SimulatedDecode)
