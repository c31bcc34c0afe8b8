"""The surroundings of one of two SGLang engines: its threads, its connections, and what Mooncake's library writes.

Threads run in turns, until they would wait; a write is a transfer on the simulated device. A socket is a connection:
what is sent on it comes in order and once, or breaks off. What the release sees of it is in `pair_stand_ins`.
"""

import ctypes
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...simulation.network import Node, Port
from ...simulation.own_turns import Turns
from ...simulation.protocol import SlotTransfer
from .engine import imported

_FIRST_PORT = 20000


@dataclass(frozen=True)
class Frames:
    """A message on a connection, by its number."""

    endpoint: str
    connection: str
    number: int
    parts: tuple[bytes, ...]


@dataclass(frozen=True)
class Region:
    """Memory that the library knows: of a group, so many bytes for each slot; of no group, what is copied as it is."""

    begin: int
    end: int
    group: int | None
    item: int = 1


@dataclass
class Write:
    """A write of the library into the other engine."""

    left: set[str] = field(default_factory=set)
    """Transfers that have not ended."""
    failed: bool = False


def _is_over(write: Write) -> bool:
    return not write.left


class WorldThread:
    """A thread of the release: it waits until something is so."""

    def __init__(self, world: "World", run: Callable[..., object], arguments: Sequence[Any]) -> None:
        self._world, self._run, self._arguments = world, run, arguments
        self.ready: Callable[[], bool] = lambda: True

    def start(self) -> None:
        """It begins with the next turn of its world."""
        self.turns = Turns(lambda: self._run(*self._arguments))
        self._world.threads.append(self)


class World:
    """One engine's surroundings, in one life."""

    current: "World | None" = None
    """That of the engine that runs."""

    def __init__(self, port: Port, other: Callable[[], "World | None"], counts: Counter[str]) -> None:
        """`other`: the world of the other engine, if that is up."""
        self.port, self.other, self.counts = port, other, counts
        self.number = _FIRST_PORT + port.life
        self.threads: list[WorldThread] = []
        self.begun: list[SlotTransfer] = []
        self.regions: list[Region] = []
        self.manager: Any = None
        """The release's, of its connections."""
        self.server: Any = None
        """The web server, of the first engine."""
        self.newest: Callable[[], Callable[[], bool]] = lambda: lambda: True
        """Whether the step that was launched last has run."""
        self.accepts: Callable[[list[bytes]], bool] = lambda parts: True
        """Whether the release is told of a message."""
        self._inbox: deque[list[bytes]] = deque()
        self._running: WorldThread | None = None
        self._writes: dict[str, Write] = {}
        self._sent: Counter[str] = Counter()
        self._heard: dict[str, int] = {}
        module = imported("sglang.srt.runtime_context")
        self._use, self._context = module.use_context, module.RuntimeContext(parallel=module.ParallelContext())

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Its engine runs."""
        before, World.current = World.current, self
        try:
            with self._use(self._context):
                yield
        finally:
            World.current = before

    @property
    def session(self) -> str:
        """What the library calls it: another one in each life."""
        return f"{self.port.name}:{self.number}"

    # Threads.

    def turn(self) -> None:
        """Let all threads run until each waits for something."""
        again = True
        while again:
            again = False
            for thread in list(self.threads):
                if not thread.turns.is_over and thread.ready():
                    again, self._running = True, thread
                    try:
                        thread.turns.go_on()
                    finally:
                        self._running = None

    def wait(self, ready: Callable[[], bool]) -> None:
        """Called in a thread: it goes on when this is so."""
        thread = self._running
        assert thread is not None
        if not ready():
            thread.ready = ready
            thread.turns.stop()
        thread.ready = lambda: True

    def end(self) -> None:
        """Its process has ended."""
        for thread in self.threads:
            thread.turns.leave()
        self.threads.clear()

    # Sockets.

    def send(self, endpoint: str, parts: Sequence[bytes]) -> None:
        """To the other engine, whatever life it has."""
        connection, to = f"{self.port.name} {self.port.life}", self._node(endpoint)
        self.port.send(to, Frames(endpoint, connection, self._sent[endpoint], tuple(parts)))
        self._sent[endpoint] += 1

    def _node(self, endpoint: str) -> Node:
        return "prefill" if endpoint.startswith("tcp://prefill:") else "decode"

    def hear(self, message: Frames) -> None:
        """A message arrives: one to another life, one that is overtaken, or one that was there already, does not."""
        last = self._heard.get(message.connection, -1)
        if message.endpoint == f"tcp://{self.session}" and message.number > last:
            self._heard[message.connection] = message.number
            self._inbox.append(list(message.parts))

    def recv_multipart(self) -> list[bytes]:
        """Of the socket that it listens on."""
        while True:
            self.wait(lambda: bool(self._inbox))
            if self.accepts(parts := self._inbox.popleft()):
                return parts

    # The library.

    def knows(self, pointers: Sequence[int], lengths: Sequence[int], items: Sequence[int], group: int | None) -> None:
        """These are buffers of a group, with so many bytes for each slot."""
        for begin, length, item in zip(pointers, lengths, items, strict=True):
            self.regions.append(Region(begin, begin + length, group, item))

    def batch_transfer_sync(self, session: str, sources: list[int], targets: list[int], lengths: list[int]) -> int:
        """In place of the library's: 0 if all was written. It has failed where another process is there by now. As the
        library does, it tries again; once."""
        for _ in range(2):
            if (other := self._peer(session)) is None:
                self.counts["writes to a life that is over"] += 1
                return -1
            slots, copies = self._sorted(other, sources, targets, lengths)
            write = self._begin(slots, f"decode {other.port.life}")
            self.wait(partial(_is_over, write))
            if not write.failed and self._peer(session) is not None:
                for source, target, length in copies:
                    ctypes.memmove(target, source, length)
                return 0
            self.counts["writes that failed"] += 1
        return -1

    def _peer(self, session: str) -> "World | None":
        """The other engine, if that is what the library calls it."""
        other = self.other()
        return other if other is not None and other.session == session else None

    def _begin(self, slots: Mapping[int, tuple[list[int], list[int]]], tier: str) -> Write:
        write = Write()
        for group, (here, there) in slots.items():
            name = f"write {self.counts['writes']}"
            self.counts["writes"] += 1
            self.begun.append(SlotTransfer(name, "store", group, tuple(here), tier, tuple(there)))
            self._writes[name] = write
            write.left.add(name)
        return write

    def _sorted(
        self, other: "World", sources: list[int], targets: list[int], lengths: list[int]
    ) -> tuple[dict[int, tuple[list[int], list[int]]], tuple[tuple[int, int, int], ...]]:
        """By group, slots here and there, of the first buffer of each; and what is copied as it is."""
        slots: dict[int, tuple[list[int], list[int]]] = {}
        first: dict[int, Region] = {}
        copies = []
        for source, target, length in zip(sources, targets, lengths, strict=True):
            one, two = self._region(source), other._region(target)
            if one.group is None:
                copies.append((source, target, length))
            elif first.setdefault(one.group, one) is one:
                here, there = slots.setdefault(one.group, ([], []))
                many = length // one.item
                here += range((source - one.begin) // one.item, (source - one.begin) // one.item + many)
                there += range((target - two.begin) // two.item, (target - two.begin) // two.item + many)
        return slots, tuple(copies)

    def _region(self, address: int) -> Region:
        return next(region for region in self.regions if region.begin <= address < region.end)

    def ended(self, id: str, well: bool) -> None:
        """A transfer of the device has ended."""
        write = self._writes.pop(id)
        write.left.discard(id)
        write.failed |= not well

    @property
    def writing(self) -> bool:
        """True while something is written."""
        return bool(self._writes)
