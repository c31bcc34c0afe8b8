"""What stands for the library under the release's NixlConnector: its agent, its clock, and its thread for handshakes.

A read or write is a transfer on the simulated device, a message goes over the simulated network, a handshake is a
message there and back, and the clock counts rounds.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from ....simulation.protocol import SlotTransfer
from ..engine.scheduler_config import module

NIXL = "distributed.kv_transfer.kv_connector.v1.nixl"
"""The package of the connector in the release."""
HANDSHAKE_ROUNDS = 12
"""Rounds without an answer after which a handshake has failed."""
Send = Callable[[Any], None]
"""Sends a message to the other engine."""


class RoundClock:
    """In place of the module `time` in the modules of the connector: a round is a second."""

    def __init__(self) -> None:
        self.now: Callable[[], int] = lambda: 0

    def perf_counter(self) -> float:
        """The round."""
        return float(self.now())

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


CLOCK = RoundClock()


def tell_time(now: Callable[[], int]) -> None:
    """All modules of the connector read this clock from now on."""
    CLOCK.now = now
    for mode in ("base", "pull", "push"):
        for half in ("scheduler", "worker"):
            module(f"{NIXL}.{mode}_{half}").time = CLOCK


@dataclass(frozen=True)
class Notification:
    """To the agent of an engine, as NIXL delivers it."""

    engine: str
    text: bytes


@dataclass(frozen=True)
class Handshake:
    """Whoever serves at that address: are you this engine?"""

    engine: str


@dataclass(frozen=True)
class HandshakeAnswer:
    """The engine that serves there."""

    asked: str
    engine: str


@dataclass
class _Read:
    """A read of blocks of another engine; or a write there."""

    engine: str
    writes: bool
    pairs: Sequence[tuple[tuple[int, int], tuple[int, int]]]
    """Group and block here, group and block there."""
    text: bytes
    asked_by: str
    """The request for whose sake it is made, as this engine calls it; empty if as the other one does."""
    left: set[str] = field(default_factory=set)
    """Transfers of its groups that have not ended; what the library does then is over."""
    well: bool = True
    state: str = "PROC"


class Agent:
    """In place of NIXL's agent of one engine."""

    def __init__(self, width: int, send: Send) -> None:
        """`width`: slots of a block."""
        self._width, self._send = width, send
        self.may_read: Callable[[str, str], bool] = lambda engine, request: True
        """Asked at the end of a read or write: of which engine, and for which of its requests."""
        self.may_begin: Callable[[str, str], bool] = lambda engine, request: True
        """Asked at the beginning: of which engine, and for which of its requests."""
        self.asked_by = ""
        """For whose sake the next one is made."""
        self.heard: list[bytes] = []
        self.begun: list[SlotTransfer] = []
        """To be told with the step."""
        self.failed: list[str] = []
        """Requests whose blocks could not be had, as the worker logs them."""
        self._reads: dict[int, _Read] = {}
        self._number = 0

    @property
    def reading(self) -> bool:
        """True while blocks are read or written."""
        return any(read.state == "PROC" for read in self._reads.values())

    def works_for(self, request: str) -> bool:
        """True while blocks are read or written for this request of the other engine."""
        return any(read.state == "PROC" and _request_in(read.text) == request for read in self._reads.values())

    def ended(self, id: str, well: bool) -> None:
        """A transfer has ended. With the last one of a read, the other engine is told."""
        read = self._reads.get(int(id.split()[0]))
        if read is None:
            return
        read.left.discard(id)
        read.well &= well
        if read.left:
            return
        read.well &= self.may_read(read.engine, read.asked_by or _request_in(read.text))
        read.state = "DONE" if read.well else "ERR"
        if read.well:
            self._send(Notification(read.engine, read.text))

    # What the worker calls.

    def get_new_notifs(self) -> Mapping[str, list[bytes]]:
        """Messages since the last call."""
        heard, self.heard = self.heard, []
        return {"other": heard} if heard else {}

    def send_notif(self, agent_name: str, notif_msg: bytes) -> None:
        """A message to another engine's agent."""
        self._send(Notification(agent_name, notif_msg))

    def make_prepped_xfer(self, kind: str, mine: Any, here: Any, theirs: str, there: Any, notif_msg: bytes) -> int:
        """Prepare a read of the blocks `there` of an engine into those `here`, or a write. Returns its number."""
        self._number += 1
        self._reads[self._number] = _Read(
            theirs, kind == "WRITE", list(zip(here, there, strict=True)), notif_msg, self.asked_by
        )
        return self._number

    def transfer(self, number: int) -> None:
        """Begin it."""
        read = self._reads[number]
        if not self.may_begin(read.engine, _request_in(read.text)):
            read.state = "ERR"
            return
        self.begun += self._transfers(number, read)
        read.left = {one.id for one in self.begun if one.id.split()[0] == str(number)}
        if not read.left:
            self.ended(f"{number} 0", True)

    def _transfers(self, number: int, read: _Read) -> Iterator[SlotTransfer]:
        for group in sorted({group for (group, _), _ in read.pairs}):
            mine = [block for (of, block), _ in read.pairs if of == group]
            theirs = [block for (of, _), (_, block) in read.pairs if of == group]
            here, there = self._slots(mine), self._slots(theirs)
            kind: Literal["load", "store"] = "store" if read.writes else "load"
            yield SlotTransfer(f"{number} {group}", kind, group, here, tier=read.engine, other=there)

    def _slots(self, blocks: Sequence[int]) -> tuple[int, ...]:
        return tuple(block * self._width + slot for block in blocks for slot in range(self._width))

    def check_xfer_state(self, number: int) -> str:
        """PROC, DONE or ERR."""
        return self._reads[number].state

    def get_xfer_telemetry(self, number: int) -> None:
        """Nothing is measured."""

    def release_xfer_handle(self, number: int) -> None:
        """It is over."""
        del self._reads[number]

    def release_dlist_handle(self, handle: Any) -> None:
        """Nothing is kept."""

    def remove_remote_agent(self, name: str) -> None:
        """Nothing is kept."""

    def check_remote_metadata(self, name: str) -> bool:
        """True: what is known of the other engine is still known."""
        return True


def _request_in(text: bytes) -> str:
    return text.decode().rpartition(":")[0]


class Handshakes:
    """In place of the worker's thread for handshakes: the answer comes over the network, or is waited for in vain."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._open: dict[str, tuple[int, Future[Any], Callable[[], Any]]] = {}

    def submit(self, shake: Callable[..., Any], *about: Any) -> Future[Any]:
        """Ask for a handshake; `shake` is called once the engine answers, the fourth of what it is about."""
        future: Future[Any] = Future()
        engine: str = about[3]
        self._open[engine] = (CLOCK.now() + HANDSHAKE_ROUNDS, future, lambda: shake(*about))
        self._send(Handshake(engine))
        return future

    def answered(self, told: HandshakeAnswer) -> None:
        """An answer, of that engine or of the one that has taken its place."""
        if told.asked not in self._open:
            return
        _, future, shake = self._open.pop(told.asked)
        if told.engine == told.asked:
            future.set_result(shake())
        else:
            future.set_exception(RuntimeError("another engine serves there"))

    def wait(self) -> None:
        """Give up those for which it is too late."""
        for engine, (until, future, _) in list(self._open.items()):
            if CLOCK.now() >= until:
                del self._open[engine]
                future.set_exception(TimeoutError("no answer"))
