"""What stands for MoRI's library, sockets and threads under the release's MoRIIOConnector in read mode.

A read is a load on the simulated device that is over before its step computes, or fails within it: the worker waits for
it. What is sent on a socket comes once. The clock counts rounds.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from ....simulation.protocol import SlotTransfer
from ..engine.scheduler_config import module
from .nixl_agent import CLOCK, RoundClock

MORIIO = "distributed.kv_transfer.kv_connector.v1.moriio"
"""The package of the connector in the release."""
PAGE = 64
"""Bytes of a block."""


class _Clock(RoundClock):
    """In place of the module `time`."""

    def __init__(self) -> None:
        self.now = lambda: CLOCK.now()

    monotonic = RoundClock.perf_counter


def put_in(now: Callable[[], int]) -> None:
    """The modules of the connector read this clock from now on; one rank votes alone."""
    CLOCK.now = now
    for name in ("moriio_connector", "moriio_engine"):
        module(f"{MORIIO}.{name}").time = _Clock()
    distributed = __import__("torch.distributed").distributed
    distributed.all_reduce = lambda vote, **about: None


@dataclass(frozen=True)
class Released:
    """To the worker of the first engine, by one of the second, which numbers what it sends on its sockets."""

    sender: str
    number: int
    transfer: str
    kind: str
    about: tuple[tuple[str, object], ...]


class AtOnce:
    """In place of the worker's thread for handshakes: whoever asks waits for it."""

    def submit(self, call: Callable[..., Any], *about: Any) -> "Future[Any]":
        """Do it."""
        future: Future[Any] = Future()
        try:
            future.set_result(call(*about))
        except Exception as error:
            future.set_exception(error)
        return future


@dataclass
class ReadStatus:
    """What the library says of a read."""

    left: set[str] = field(default_factory=set)
    """Its transfers that have not ended."""
    is_well: bool = True

    def Succeeded(self) -> bool:  # the library's names
        """All is there."""
        return not self.left and self.is_well

    def Failed(self) -> bool:
        """It is over, and not all is there."""
        return not self.left and not self.is_well

    def Message(self) -> str:
        """More on that."""
        return "" if self.is_well else "the other side does not answer"

    def Code(self) -> int:
        """A number for it."""
        return 0 if self.is_well else 1


@dataclass(frozen=True)
class ReadSession:
    """The memory of one group here, and there in one life of the other engine."""

    reader: "Reader"
    group: int
    engine: str

    def batch_read(self, here: Sequence[int], there: Sequence[int], sizes: Sequence[int], number: int) -> ReadStatus:
        """Read these spans of bytes."""
        spans = zip(here, there, sizes, strict=True)
        pairs = [(mine // PAGE + at, theirs // PAGE + at) for mine, theirs, size in spans for at in range(size // PAGE)]
        return self.reader.read(self, number, pairs)


class Reader:
    """In place of the library's engine, in one of ours."""

    def __init__(self, width: int) -> None:
        """`width`: slots of a block."""
        self._width = width
        self.serves: Callable[[], str] = lambda: ""
        """Which life of the other engine there is now; empty: none."""
        self.may_read: Callable[[str, str], bool] = lambda engine, transfer: True
        """Asked before a read: of which life of the other engine, and for which transfer."""
        self.transfer = ""
        """For which one reads."""
        self.begun: list[SlotTransfer] = []
        self.failed: list[str] = []
        self._reads: dict[int, ReadStatus] = {}
        self._number = 0

    @property
    def reading(self) -> bool:
        """True while blocks are read."""
        return any(read.left for read in self._reads.values())

    def ended(self, id: str, well: bool) -> None:
        """A transfer has ended."""
        number = int(id.split()[0])
        read = self._reads[number]
        read.left.discard(id)
        read.is_well &= well
        if not read.left:
            del self._reads[number]

    # What the worker calls.

    def allocate_transfer_uid(self) -> int:
        """A number for a read."""
        self._number += 1
        return self._number

    def create_session(self, here: int, there: str) -> ReadSession:
        """For the memory of this group, here and in that life of the other engine."""
        return ReadSession(self, here, there)

    def read(self, session: ReadSession, number: int, pairs: Sequence[tuple[int, int]]) -> ReadStatus:
        """Blocks here and there; it fails where that engine has gone."""
        fails = self.serves() != session.engine or not self.may_read(session.engine, self.transfer)
        if not pairs:
            return ReadStatus()
        here, there = (self._slots(blocks) for blocks in zip(*pairs, strict=True))
        id = f"{number} {session.group}"
        self.begun.append(SlotTransfer(id, "load", session.group, here, session.engine, there, fails=fails))
        self._reads[number] = read = ReadStatus({id})
        return read

    def _slots(self, blocks: Sequence[int]) -> tuple[int, ...]:
        return tuple(block * self._width + slot for block in blocks for slot in range(self._width))
