"""What stands for Mooncake's library, sockets and web server under the release's MooncakeConnector, and its loop.

A write is a transfer on the simulated device. A socket is a connection: what is sent on it comes in order and once, or
breaks off. The loop's clock counts rounds, and it runs only in turns.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace, TracebackType
from typing import Any

from ....simulation.protocol import SlotTransfer
from ..engine.scheduler_config import module
from .nixl_agent import CLOCK, Send

MOONCAKE = "distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_connector"
"""The module of the connector in the release."""
QUERY_ROUNDS = 12
"""Rounds without an answer after which a query of the web server has failed."""
PAGE, REGION = 64, 1 << 40
"""Bytes of a block, and from the memory of one group to that of the next."""


class TurnsLoop(asyncio.BaseEventLoop):
    """Runs what is due when it is told to. A write in a thread is begun, and its thread waits for the device."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = SimpleNamespace(select=lambda timeout: [])
        self.web: Connections | None = None
        """What a query of a web server goes by."""
        self.set_exception_handler(lambda loop, about: None)  # tasks of a crashed engine are never ended

    def time(self) -> float:
        """The round."""
        return CLOCK.perf_counter()

    def turn(self) -> None:
        """Run until nothing is left to do in this round. Whatever loop runs in this thread goes on behind that."""
        running = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            while True:
                self.call_soon(self.stop)
                self.run_forever()
                if not self._ready:  # type: ignore[attr-defined]
                    return
        finally:
            asyncio._set_running_loop(running)

    def end(self) -> None:
        """Its engine has gone: so have its tasks."""
        for task in asyncio.all_tasks(self):
            task.cancel()
        self.turn()
        self.close()

    def run_in_executor(self, executor: Any, func: Any, *about: Any) -> Any:  # type: ignore[override]
        """See above."""
        return executor.begin(self, func, about)

    def _process_events(self, events: Sequence[object]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody waits."""


class _Asyncio:
    """In place of the module in that of the connector: what is handed to a loop runs at once."""

    @staticmethod
    def run_coroutine_threadsafe(todo: Coroutine[Any, Any, Any], loop: TurnsLoop) -> Any:
        """Run it as far as it goes."""
        future = asyncio.run_coroutine_threadsafe(todo, loop)
        loop.turn()
        return future

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


class QueryError(Exception):
    """The web server does not answer."""


class _Web:
    """In place of the client of the web server."""

    def __init__(self, timeout: float) -> None:
        pass

    async def __aenter__(self) -> "_Web":
        return self

    async def __aexit__(self, *about: object) -> None:
        """Nothing is kept."""

    async def get(self, address: str) -> Any:
        """Which engine serves there, and the addresses of its workers."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TurnsLoop)
        assert loop.web is not None
        return await loop.web.query()


def put_in(now: Callable[[], int], timeout: int) -> None:
    """The module of the connector has these stand-ins from now on. `timeout`: rounds for which blocks are kept."""
    CLOCK.now = now
    found = module(MOONCAKE)
    found.time, found.asyncio = CLOCK, _Asyncio()
    found.make_zmq_socket = lambda connections, address, kind, **more: connections.to(address)
    found.httpx = SimpleNamespace(AsyncClient=_Web, RequestError=QueryError)
    found.envs = SimpleNamespace(
        VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT=timeout, VLLM_MOONCAKE_CONNECTOR_TIMEOUT=QUERY_ROUNDS
    )


# Messages.


@dataclass(frozen=True)
class Asked:
    """On a new connection to this worker."""

    address: str
    connection: str
    payload: bytes


@dataclass(frozen=True)
class WrittenTo:
    """The answers on a connection, by number."""

    connection: str
    number: int
    payload: bytes


@dataclass(frozen=True)
class Query:
    """To the web server."""

    number: int


@dataclass(frozen=True)
class QueryAnswer:
    """The engine that serves there."""

    number: int
    engine: str


class _Dealer:
    """One end of a connection: who asks."""

    def __init__(self, connections: "Connections", address: str, name: str) -> None:
        self._connections, self._address, self._name = connections, address, name
        self._rounds = 0.0
        self.answers: asyncio.Queue[bytes] = asyncio.Queue()
        self.early: dict[int, bytes] = {}
        self.next = 0

    def __enter__(self) -> "_Dealer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._connections.close(self._name)

    def setsockopt(self, option: int, milliseconds: int) -> None:
        """How long an answer is waited for."""
        self._rounds = milliseconds / 1000

    async def send(self, payload: bytes) -> None:
        """Ask."""
        self._connections.tell(Asked(self._address, self._name, payload))

    async def recv(self) -> bytes:
        """The next answer. TimeoutError if none comes."""
        return await asyncio.wait_for(self.answers.get(), self._rounds)


class Connections:
    """In place of the context of sockets of one engine, and of its web server."""

    def __init__(self, engine: str, tell: Send) -> None:
        self.engine, self.tell = engine, tell
        self._open: dict[str, _Dealer] = {}
        self._heard: dict[str, int] = {}
        """Answers so far, by connection."""
        self._asked: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self._queries: dict[int, asyncio.Future[str]] = {}
        self._number = 0

    def to(self, address: str) -> _Dealer:
        """A new connection."""
        self._number += 1
        name = f"{self.engine}, {self._number}"
        self._open[name] = _Dealer(self, address, name)
        return self._open[name]

    def close(self, name: str) -> None:
        """What comes on it is not heard any more."""
        del self._open[name]

    def hear(self, message: Any) -> None:
        """A message of the other engine."""
        match message:
            case Asked(address, connection, payload):
                if address == self.engine and connection not in self._heard:
                    self._heard[connection] = 0
                    self._asked.put_nowait((connection, payload))
            case WrittenTo(connection, number, payload):
                if (dealer := self._open.get(connection)) is not None and number >= dealer.next:
                    dealer.early[number] = payload
                    while dealer.next in dealer.early:
                        dealer.answers.put_nowait(dealer.early.pop(dealer.next))
                        dealer.next += 1
            case Query(number):
                self.tell(QueryAnswer(number, self.engine))
            case QueryAnswer(number, engine):
                if (query := self._queries.pop(number, None)) is not None and not query.done():
                    query.set_result(engine)

    async def query(self) -> Any:
        """Ask the other engine's web server. QueryError if it does not answer."""
        self._number += 1
        self._queries[self._number] = answer = asyncio.get_running_loop().create_future()
        self.tell(Query(self._number))
        try:
            engine = await asyncio.wait_for(answer, QUERY_ROUNDS)
        except TimeoutError:
            raise QueryError from None
        entry = {"engine_id": engine, "worker_addr": {"0": {"0": engine}}}
        return SimpleNamespace(raise_for_status=lambda: None, json=lambda: {"0": entry})

    # The socket of who is asked.

    def socket(self, kind: int) -> "Connections":
        """It stands for that socket, too."""
        return self

    def bind_to_random_port(self, path: str) -> int:
        """Its address is the name of the engine."""
        return 1

    async def recv_multipart(self) -> tuple[str, bytes]:
        """What is asked next, and on which connection."""
        return await self._asked.get()

    async def send_multipart(self, told: tuple[str, bytes]) -> None:
        """An answer."""
        connection, payload = told
        self.tell(WrittenTo(connection, self._heard[connection], payload))
        self._heard[connection] += 1


# Writes.


@dataclass
class _Write:
    """Blocks that are written into another engine."""

    end: Callable[[], None]
    left: set[str] = field(default_factory=set)
    well: bool = True


class Writer:
    """In place of the library of one engine, and of the threads that wait for it."""

    def __init__(self, width: int) -> None:
        """`width`: slots of a block."""
        self._width = width
        self.begun: list[SlotTransfer] = []
        self.failed: list[str] = []
        self._writes: dict[int, _Write] = {}
        self._number = self._code = 0

    @property
    def reading(self) -> bool:
        """True while blocks are written."""
        return bool(self._writes)

    def begin(self, loop: TurnsLoop, write: Callable[..., int], about: tuple[Any, ...]) -> "asyncio.Future[int]":
        """Write; `write` asks for the result when all is there."""
        future: asyncio.Future[int] = loop.create_future()
        session, sources, targets, lengths = about
        self._number += 1

        def end() -> None:
            if not future.done():
                future.set_result(write(*about))
            loop.turn()

        transfers = list(self._transfers(session.rpartition(":")[0], zip(sources, targets, lengths, strict=True)))
        self._writes[self._number] = _Write(end, {one.id for one in transfers})
        self.begun += transfers
        return future

    def _transfers(self, engine: str, spans: Iterator[tuple[int, int, int]]) -> Iterator[SlotTransfer]:
        pairs: dict[int, list[tuple[int, int]]] = {}
        for source, target, length in spans:
            for at in range(0, length, PAGE):
                mine, theirs = (source + at) % REGION // PAGE, (target + at) % REGION // PAGE
                pairs.setdefault(source // REGION, []).append((mine, theirs))
        for group, moved in pairs.items():
            here, there = (self._slots(blocks) for blocks in zip(*moved, strict=True))
            yield SlotTransfer(f"{self._number} {group}", "store", group, here, tier=engine, other=there)

    def _slots(self, blocks: Sequence[int]) -> tuple[int, ...]:
        return tuple(block * self._width + slot for block in blocks for slot in range(self._width))

    def ended(self, id: str, well: bool) -> None:
        """A transfer has ended."""
        number = int(id.split()[0])
        write = self._writes.get(number)
        if write is None:
            return
        write.left.discard(id)
        write.well &= well
        if not write.left:
            del self._writes[number]
            self._code = 0 if write.well else -1
            write.end()

    def batch_transfer_sync_write(self, *about: object) -> int:
        """Whether what was written is there: 0 if it is."""
        return self._code


def regions(groups: Sequence[Any]) -> Mapping[str, object]:
    """Where the blocks lie: those of each group in a region of their own."""
    numbers = range(len(groups))
    return {
        "kv_caches_base_addr": [number * REGION for number in numbers],
        "block_len_per_layer": [PAGE for _ in numbers],
        "kv_block_len_per_layer": [PAGE for _ in numbers],
        "registered_layer_names": [group.layer_names[0] for group in groups],
        "registered_layer_indices": list(numbers),
        "registered_group_indices": list(numbers),
        "region_shared_groups": [(number,) for number in numbers],
        "region_row_offsets": [-1 for _ in numbers],
        "opaque_packed_storages": set(),
    }
