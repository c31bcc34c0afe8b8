"""A small engine with a lower tier, and a mistake of a tier that is planted from outside."""

from collections.abc import Sequence
from dataclasses import replace

from .faults import FaultyEngine, OneAtATime
from .protocol import ClientRequest, Delivered, EngineShape, ScheduledBatch, SlotTransfer, StepResults
from .tiers import LowerTier, TierEvent

PLACES = 4


class OneWithTier(OneAtATime):
    """One request after the other, as in `OneAtATime`; what each has computed is stored, and looked for, not loaded."""

    name = "one-with-tier"

    def start(self, shape: EngineShape) -> None:
        """See `Engine`."""
        super().start(shape)
        self._size = shape.groups[0].block_size
        self._found: dict[tuple[int, ...], int] = {}
        self._storing: list[tuple[tuple[int, ...], int, int]] = []
        self._begun = 0
        self._events: list[TierEvent] = []

    def tiers(self) -> dict[str, LowerTier]:
        """See `tiers`."""
        return {"host": LowerTier(PLACES, "fifo", frozenset({"ended"}))}

    def tier_events(self) -> list[TierEvent]:
        """See `tiers`."""
        told, self._events = self._events, []
        return told

    def add(self, request: ClientRequest) -> tuple[Delivered, ...]:
        """See `Engine`."""
        keys = self._keys(request.prompt)
        places: list[int] = []
        for key in keys:
            if key not in self._found:
                break
            places.append(self._found[key])
        self._events.append(TierEvent("looked", places=tuple(places), request=request.id, asked=len(keys)))
        return super().add(request)

    def schedule(self) -> ScheduledBatch | None:
        """See `Engine`; nothing is computed while something is stored."""
        if not self._storing:
            return super().schedule()
        if self._begun:
            return None
        self._begun = len(self._storing)
        stores = [
            SlotTransfer(f"s{place}", "store", 0, self._slots(block), other=self._slots(place))
            for _, block, place in self._storing
        ]
        return ScheduledBatch(transfers=tuple(stores))

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> tuple[Delivered, ...]:
        """See `Engine`."""
        for id in results.transferred:
            key, _, place = next(one for one in self._storing if f"s{one[2]}" == id)
            self._storing = [one for one in self._storing if one[2] != place]
            self._found[key] = place
            self._events.append(TierEvent("stored", places=(place,)))
        self._begun = len(self._storing) if self._begun else 0
        if batch is None or not batch.parts:
            return ()
        told = super().update(batch, results)
        if told and told[0].ended:
            request: ClientRequest = batch.own
            part = batch.parts[0]
            assert part.first is not None
            tokens = (*request.prompt, *self._answered, *told[0].tokens)[: part.first + part.count]
            self._store(request.id, self._keys(tokens))
        self._answered = () if told and told[0].ended else (*self._answered, *(told[0].tokens if told else ()))
        return told

    def idle(self) -> bool:
        """See `Engine`."""
        return super().idle() and not self._storing

    _answered: tuple[int, ...] = ()

    def _store(self, id: str, keys: Sequence[tuple[int, ...]]) -> None:
        for number, key in enumerate(keys[:PLACES]):
            if key in self._found:
                continue
            taken = {*self._found.values(), *(place for _, _, place in self._storing)}
            place = next((place for place in range(PLACES) if place not in taken), None)
            if place is None:
                oldest = next(other for other in self._found if other not in keys)
                place = self._found.pop(oldest)
                self._events.append(TierEvent("evicted", places=(place,)))
            self._events.append(TierEvent("reserved", places=(place,), request=id, first=number))
            self._storing.append((key, number, place))

    def _keys(self, tokens: Sequence[int]) -> list[tuple[int, ...]]:
        return [tuple(tokens[: end + 1]) for end in range(self._size - 1, len(tokens), self._size)]

    def _slots(self, block: int) -> tuple[int, ...]:
        return tuple(range(block * self._size, (block + 1) * self._size))


class LosesKeys(FaultyEngine):
    """Of the blocks that a look in a lower tier finds, the last one is not found."""

    def tier_events(self) -> list[TierEvent]:
        """See `tiers`."""
        told: list[TierEvent] = getattr(self._engine, "tier_events", list)()
        return [replace(one, places=one.places[:-1]) if one.what == "looked" else one for one in told]
