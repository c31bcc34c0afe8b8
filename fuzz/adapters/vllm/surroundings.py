"""What a core finds around it while it is called: the clock and the chance of its metrics collector, and what the
environment says of events.

Clock and chance are the harness's own, so that what is collected follows from the operations alone: each of them takes
a second, and of every so many blocks the first is followed. All of it is in place during a call only.
"""

import os
import random
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeAlias

from ....model import ops
from ....model.ops import OPERATIONS, Operation, Shape, Value

SECOND = 1_000_000_000
"""In nanoseconds."""
NUMBERS_VARIABLE = "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"
"""The environment variable that says whether events name blocks by numbers; they do where it is not set."""

Changed: TypeAlias = tuple[dict[str, Any], str, Any, Any]
"""The names of a module, one of them, what it is during a call, and what it is by itself."""
BLOCKS_MOVE = frozenset(OPERATIONS.values()) - {
    *(ops.Submit, ops.Advance, ops.Reject, ops.Landed, ops.StepStart),
    *(ops.TakeEvents, ops.TakeNewBlockIds, ops.TakeStats, ops.ReadTable, ops.CommonPrefix),
}
"""Operations that find, take, register or give back blocks: only these make events."""
_CLOCK, _CHANCE = time.monotonic_ns, random.random
"""As they are: taken once, since a core may be made while another one is in a call."""


class Surroundings:
    """A context manager around calls on one core, its construction included."""

    def __init__(self, shape: Shape) -> None:
        self._every = shape.sampling
        self._digests = shape.event_digests
        told: frozenset[type[Operation]] = BLOCKS_MOVE | {ops.TakeEvents} if shape.event_digests else frozenset()
        self.operations = frozenset(OPERATIONS.values()) if shape.sampling else told
        """The operations around which it is needed: on a core of this shape they would notice others."""
        self._now = -SECOND
        self._drawn = 0
        self._changed: list[Changed] = []
        if shape.sampling:
            self._changed.append((vars(time), "monotonic_ns", self._tell_time, _CLOCK))
            self._changed.append((vars(random), "random", self._draw, _CHANCE))
        self._environment: str | None = None

    def __enter__(self) -> None:
        self._now += SECOND
        if self._digests:
            self._environment = os.environ.get(NUMBERS_VARIABLE)
        try:
            for names, name, ours, _ in self._changed:
                names[name] = ours
            if self._digests:
                os.environ[NUMBERS_VARIABLE] = "0"
        except BaseException:  # Ctrl-C; nobody leaves what was not entered
            self._change_back()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._change_back()
        except BaseException:  # Ctrl-C
            self._change_back()
            raise

    def _change_back(self) -> None:
        for names, name, _, other in self._changed:
            names[name] = other
        if self._digests:
            os.environ.pop(NUMBERS_VARIABLE, None)
            if self._environment is not None:
                os.environ[NUMBERS_VARIABLE] = self._environment

    def _tell_time(self) -> int:
        return self._now

    def _draw(self) -> float:
        """0, and every so many times again; otherwise at least the share of blocks that are followed."""
        number, self._drawn = self._drawn % self._every, self._drawn + 1
        return number / self._every


@contextmanager
def at_once(now: int, chance: float) -> Iterator[None]:
    """Context manager: a moment, in nanoseconds, at which nothing passes, and what chance has to say in it."""
    places = ((time, "monotonic_ns", lambda: now), (random, "random", lambda: chance))
    others = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    try:
        for owner, name, ours in places:
            setattr(owner, name, ours)
        yield
    finally:
        for owner, name, other in others:
            setattr(owner, name, other)


def followed(collector: Any) -> Value:
    """The blocks that a collector follows, as `model.metrics.Metrics.followed`."""
    return tuple(
        [
            (block, life.birth_time_ns // SECOND, life.last_access_ns // SECOND, _seconds(life.access_history))
            for block, life in sorted(collector.block_metrics.items())
        ]
    )


def _seconds(times: Iterable[int]) -> tuple[int, ...]:
    return tuple([time // SECOND for time in times])


def lives(events: Iterable[Any]) -> Value:
    """What has become of blocks that were followed, as `model.metrics.Gone`."""
    return tuple([(event.lifetime_seconds, event.idle_seconds, tuple(event.reuse_gaps_seconds)) for event in events])
