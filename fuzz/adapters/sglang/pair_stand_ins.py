"""What stands for sockets, threads, the clock and the web server under SGLang's disaggregation: see `pair_world`.

A round of the clock is a second. All of it is that of the engine that runs.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

from .engine import imported
from .pair_world import World, WorldThread

DISAGGREGATION = "sglang.srt.disaggregation"
BOOTSTRAP = "prefill", 8998
"""Where the first engine's web server is reached, whichever life it has."""


def _here() -> World:
    assert World.current is not None
    return World.current


class _Clock:
    """In place of the module `time`: a round is a second."""

    def time(self) -> float:
        return float(_here().port.now)

    monotonic = perf_counter = time

    def sleep(self, seconds: float) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class _Event:
    """A thread that waits for it goes on in time."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float) -> bool:
        world = _here()
        until = world.port.now + timeout
        world.wait(lambda: self._is_set or world.port.now >= until)
        return self._is_set


class _DeviceEvent:
    """In place of the device's: it is behind the steps that were launched before."""

    def __init__(self) -> None:
        self._has_run: Callable[[], bool] = lambda: True

    def record(self, stream: object) -> None:
        self._has_run = _here().newest()

    def synchronize(self) -> None:
        _here().wait(self._has_run)


class _Torch:
    """In place of the module `torch`, where a device is asked for its events."""

    cuda = SimpleNamespace(Event=_DeviceEvent)

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Threading:
    """In place of the module `threading`."""

    Event = _Event

    def Thread(self, target: Callable[..., object], args: Sequence[Any] = (), **named: object) -> WorldThread:
        return WorldThread(_here(), target, args)

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


class _Queue:
    """In place of the release's queue between its threads."""

    def __init__(self) -> None:
        self._held: deque[Any] = deque()

    def put(self, item: Any) -> None:
        self._held.append(item)

    def get(self) -> Any:
        _here().wait(lambda: bool(self._held))
        return self._held.popleft()


class _Socket:
    """One that sends."""

    def __init__(self, again: type[Exception]) -> None:
        self._endpoint, self._again = "", again

    def connect(self, endpoint: str) -> None:
        self._endpoint = endpoint

    def setsockopt(self, option: int, value: int) -> None: ...

    def send_multipart(self, parts: Sequence[bytes]) -> None:
        _here().send(self._endpoint, parts)

    def get_monitor_socket(self, events: int) -> "_Socket":
        """It is told of nothing."""
        return self

    def recv_multipart(self, flags: int) -> list[bytes]:
        raise self._again

    def close(self, linger: int = 0) -> None: ...


class _Zmq:
    """In place of the module `zmq`."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def Context(self) -> Any:
        return SimpleNamespace(set=lambda option, value: None, socket=lambda kind: _Socket(self._real.Again))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Answer:
    """Of a web server."""

    def __init__(self, status_code: int, text: str) -> None:
        self.status_code, self.text = status_code, text

    def json(self) -> Any:
        return json.loads(self.text)


class _Web:
    """In place of a client's session, and of the module that has it: the release's own server is asked at once."""

    def get(self, url: str, **named: object) -> _Answer:
        return self._asked("GET", url, None)

    def put(self, url: str, json: Any = None, **named: object) -> _Answer:
        return self._asked("PUT", url, json)

    def _asked(self, method: str, url: str, data: Any) -> _Answer:
        world, parts = _here(), urlsplit(url)
        at = world if world.port.name == "prefill" else world.other()
        if at is None or at.server is None:
            raise ConnectionError(f"nobody serves {url}")

        async def told() -> Any:
            return data

        query = {name: value[0] for name, value in parse_qs(parts.query).items()}
        request = SimpleNamespace(method=method, query=query, json=told)
        handle = at.server._handle_health_check if parts.path == "/health" else at.server._handle_route
        answer = _done(handle(request))
        return _Answer(answer.status, answer.text)

    def Session(self) -> "_Web":
        return self


def _done(todo: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine comes to that waits for nobody."""
    try:
        todo.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("it waits for somebody")


def put_in() -> None:
    """The release's modules have these stand-ins from now on."""
    common, mooncake = imported(f"{DISAGGREGATION}.common.conn"), imported(f"{DISAGGREGATION}.mooncake.conn")
    clock, web, turns, zmq = _Clock(), _Web(), _Threading(), _Zmq(imported("zmq"))
    for name in ("common.conn", "mooncake.conn", "decode", "prefill"):
        imported(f"{DISAGGREGATION}.{name}").time = clock
    utils = imported(f"{DISAGGREGATION}.utils")
    utils.dist = SimpleNamespace(get_world_size=lambda group: 1, ReduceOp=utils.dist.ReduceOp)
    common.threading = mooncake.threading = turns
    mooncake.MooncakeKVSender.supports_host_tensor_indices = False  # that takes pinned memory
    prefill = imported(f"{DISAGGREGATION}.prefill")
    prefill.torch = _Torch(imported("torch"))
    common.zmq, common.requests = zmq, web
    common._get_bootstrap_session = lambda address: web
    common.get_local_ip_auto = lambda: _here().port.name
    common.get_zmq_socket_on_host = lambda context, kind, host: (_here().number, _here())
    common.CommonKVReceiver._ctx = zmq.Context()
    common.CommonKVReceiver._socket_cache.clear()
    mooncake.FastQueue = _Queue
    mooncake.get_mooncake_transfer_engine = lambda: SimpleNamespace(
        get_session_id=lambda: _here().session,
        batch_register=lambda pointers, lengths: None,
        batch_transfer_sync=lambda *given: _here().batch_transfer_sync(*given),
    )


def new_server() -> Any:
    """The release's web server, which is asked without a socket."""
    server = imported(f"{DISAGGREGATION}.common.conn").CommonKVBootstrapServer
    return type("AskedServer", (server,), {"run": lambda self: None})(*BOOTSTRAP)
