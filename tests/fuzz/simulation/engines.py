"""Engines for tests of the simulation: scripted batches, and variants of the smallest one."""

from collections.abc import Sequence

from blockproof.fuzz.simulation.protocol import ClientRequest, Delivered, EngineShape, EngineView, ScheduledBatch
from blockproof.fuzz.simulation.traffic import shape_with
from blockproof.model.ops import Group


def shape_of(*groups: Group, blocks: int = 9, length: int = 12, drafts: int = 0) -> EngineShape:
    """An engine with these groups; one of full attention in blocks of two tokens if none is given."""
    kinds = groups or (Group("full", 2),)
    return EngineShape(shape_with(kinds, blocks, length, 16, caching=True), drafts=drafts)


class Scripted:
    """Plays batches, and delivers what the device has sampled; a request ends with its last token."""

    name = "scripted"

    def __init__(self, batches: Sequence[ScheduledBatch], **declared: object) -> None:
        self._batches = batches
        self.__dict__.update(declared)

    def start(self, shape: EngineShape) -> None:
        self._left = list(self._batches)
        self._owed: dict[str, int] = {}

    def add(self, request: ClientRequest) -> None:
        self._owed[request.id] = request.max_tokens

    def cancel(self, id: str) -> None:
        del self._owed[id]

    def schedule(self) -> ScheduledBatch | None:
        return self._left.pop(0) if self._left else None

    def update(self, batch, results) -> list[Delivered]:
        told = []
        for name, tokens in results.tokens.items():
            if tokens and name in self._owed:
                self._owed[name] -= len(tokens)
                told.append(Delivered(name, tokens, "length" if not self._owed[name] else ""))
        self._owed = {name: left for name, left in self._owed.items() if left}
        return told

    def idle(self) -> bool:
        return not self._owed

    def look(self) -> EngineView:
        return EngineView(8)
