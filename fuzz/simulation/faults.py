"""Mistakes of an engine that are planted from outside, one at least for each judge; and a small engine without any, on
which the judges are tried before each run.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .judges import CAPACITY, CHECKS, FATE, MEMORY, PROGRESS, TOKENS
from .protocol import (
    ClientRequest,
    Delivered,
    Engine,
    EngineShape,
    EngineView,
    Scheduled,
    ScheduledBatch,
    Slots,
    StepResults,
)


class FaultyEngine:
    """An engine with a mistake in what it answers. All else is the engine's own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    _calls = 0

    def start(self, shape: EngineShape) -> None:
        """See `Engine`."""
        self._calls = 0
        self._engine.start(shape)


class _WrongToken(FaultyEngine):
    def update(self, batch: ScheduledBatch | None, results: StepResults) -> list[Delivered]:
        told = list(self._engine.update(batch, results))
        self._calls += 1
        if self._calls % 3 == 0:
            return [replace(one, tokens=tuple(token + 1 for token in one.tokens)) for one in told]
        return told


class _OtherBlocks(FaultyEngine):
    """The worker gets the blocks of each table but one in another order."""

    def schedule(self) -> ScheduledBatch | None:
        batch = self._engine.schedule()
        if batch is None:
            return None
        self._calls += 1
        if self._calls % 3:
            return batch
        return replace(batch, parts=tuple(replace(part, slots=_turned(part.slots)) for part in batch.parts))


def _turned(slots: tuple[Slots, ...] | None) -> tuple[Slots, ...] | None:
    if slots is None:
        return None
    return tuple(
        replace(one, table=tuple(reversed(one.table))) if one.at is None else replace(one, at=_shifted(one.at))
        for one in slots
    )


def _shifted(at: Mapping[int, int]) -> dict[int, int]:
    return dict(zip(at, [*list(at.values())[1:], *list(at.values())[:1]], strict=True))


class _Forgets(FaultyEngine):
    """Of each fourth request nothing is heard again."""

    def add(self, request: ClientRequest) -> Any:
        self._calls += 1
        return self._engine.add(request) if self._calls % 4 else ()

    def cancel(self, id: str) -> Any:
        try:
            return self._engine.cancel(id)
        except Exception:  # it never came
            return ()


class _Raises(FaultyEngine):
    def update(self, batch: ScheduledBatch | None, results: StepResults) -> Any:
        self._calls += 1
        if self._calls == 5:
            raise RuntimeError("planted")
        return self._engine.update(batch, results)


class _Shrinks(FaultyEngine):
    """Each time that it is asked it has one block less."""

    def look(self) -> EngineView:
        self._calls += 1
        view: EngineView = getattr(self._engine, "look", EngineView)()
        return replace(view, free=(view.free or 0) - self._calls // 2)


class _Objects(FaultyEngine):
    """Its own checks object to something."""

    def objections(self) -> list[str]:
        self._calls += 1
        return ["planted: something is wrong"] if self._calls > 5 else []


FAULTS: Mapping[str, Callable[[Engine], Any]] = {
    "wrong-token": _WrongToken,
    "other-blocks": _OtherBlocks,
    "forgets": _Forgets,
    "raises": _Raises,
    "shrinks": _Shrinks,
    "objects": _Objects,
}
"""By name, what plants the mistake into an engine."""
SEEN_BY: Mapping[str, str] = dict(zip(FAULTS, (TOKENS, MEMORY, PROGRESS, FATE, CAPACITY, CHECKS), strict=True))
"""Which judge must notice."""


class OneAtATime:
    """The smallest engine: one request after the other, a table of its own for each."""

    name = "one-at-a-time"

    def start(self, shape: EngineShape) -> None:
        """See `Engine`."""
        self._shape = shape
        self._waiting: list[ClientRequest] = []
        self._got: list[int] = []

    def add(self, request: ClientRequest) -> tuple[Delivered, ...]:
        """See `Engine`."""
        if len(request.prompt) + request.max_tokens > self._shape.max_length:
            return (Delivered(request.id, ended="refused"),)
        self._waiting.append(request)
        return ()

    def cancel(self, id: str) -> None:
        """See `Engine`."""
        if self._waiting[0].id == id:
            self._got = []
        self._waiting = [request for request in self._waiting if request.id != id]

    def schedule(self) -> ScheduledBatch | None:
        """See `Engine`."""
        if not self._waiting:
            return None
        request, size = self._waiting[0], self._shape.groups[0].block_size
        first = len(request.prompt) + len(self._got) - 1 if self._got else 0
        many = len(request.prompt) + len(self._got) - first
        table = tuple(range(-(-(first + many) // size)))
        return ScheduledBatch((Scheduled(request.id, first, many, slots=(Slots(table),)),), own=request)

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> tuple[Delivered, ...]:
        """See `Engine`."""
        if batch is None or batch.own not in self._waiting:
            return ()
        request, tokens = self._waiting[0], results.tokens[batch.parts[0].request]
        self._got += tokens
        ended = len(self._got) == request.max_tokens
        if ended:
            self._waiting, self._got = self._waiting[1:], []
        return (Delivered(request.id, tokens, "length" if ended else ""),)

    def idle(self) -> bool:
        """See `Engine`."""
        return not self._waiting

    def look(self) -> EngineView:
        """See `Engine`."""
        return EngineView(self._shape.num_blocks)
