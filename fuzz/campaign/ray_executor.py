"""Tasks on a Ray cluster: an `Executor` whose processes are wherever the cluster has cores.

The driver of the campaign, with its store, runs on a machine of the cluster; workers need nothing but blockproof and
what their targets need. Every task is told once: what a lost machine was doing is done again elsewhere.
"""

import socket
import time
from importlib.util import find_spec

from ..opening.workers import worker_context
from ..targets.base import TargetUnavailableError
from .executor import Done, ExecutorLostError
from .ray_driver import serve

REACHED_S = 3.0
"""Within which a cluster's port must answer."""
START_S = 60.0
"""Within which Ray must be connected."""
SILENT_S = 30.0
"""After which a cluster of which nothing was heard has gone."""
_CLOSE_S = 0.5


class RayExecutor:
    """An `Executor` on the cluster at an address: `auto` for the one that this machine belongs to, or HOST:PORT."""

    def __init__(self, address: str, start_s: float = START_S) -> None:
        """ValueError for what is no address; TargetUnavailableError, within `start_s` and mostly at once, if Ray is not
        installed or there is no cluster."""
        check_address(address)
        if find_spec("ray") is None:
            raise TargetUnavailableError("--ray needs Ray: pip install '/path/to/blockproof[cluster]'")
        self._address = address
        _reach(address)
        context = worker_context()
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, address), daemon=True)
        self._process.start()
        theirs.close()
        self._capacity = 0
        self._heard = time.monotonic()
        self._told: list[Done] = []
        try:
            while not self._capacity and time.monotonic() - self._heard < start_s:
                self._hear(start_s)
        except ExecutorLostError as error:
            self.close()
            raise TargetUnavailableError(f"no Ray cluster at {address}: {error}") from None
        if not self._capacity:
            self.close()
            raise TargetUnavailableError(f"no Ray cluster at {address}: nothing was heard of it for {start_s:.0f} s")

    @property
    def capacity(self) -> int:
        """See `Executor`; a core is given a second task before it has done the first."""
        return self._capacity

    @property
    def driver(self) -> int:
        """Id of the process here that talks to Ray."""
        return self._process.pid or 0

    def submit(self, number: int, task: bytes) -> None:
        """See `Executor`."""
        try:
            self._connection.send((number, task))
        except OSError:
            raise self._lost("its connection is closed") from None

    def done(self, timeout_s: float) -> list[Done]:
        """See `Executor`."""
        end = time.monotonic() + timeout_s
        while not self._told and (left := end - time.monotonic()) > 0:
            self._hear(left)
        if not self._told:
            self._hear(0.0)
            if time.monotonic() - self._heard > SILENT_S:
                raise self._lost(f"nothing was heard of it for {SILENT_S:.0f} s")
        told, self._told = self._told, []
        return told

    def close(self) -> None:
        """See `Executor`. Ray gives up what its driver has submitted once that is gone."""
        self._process.kill()
        self._process.join(_CLOSE_S)
        self._connection.close()

    def _hear(self, timeout_s: float) -> None:
        """Take everything that has come; waits for the first at most so long. ExecutorLostError."""
        try:
            while self._connection.poll(timeout_s):
                message, timeout_s = self._connection.recv(), 0.0
                self._heard = time.monotonic()
                if isinstance(message, Done):
                    self._told.append(message)
                elif isinstance(message, int):
                    self._capacity = message
                else:
                    raise self._lost(message)
        except (EOFError, OSError):
            if not self._told:  # else the next call says so
                raise self._lost("Ray has ended its driver") from None

    def _lost(self, why: str) -> ExecutorLostError:
        return ExecutorLostError(f"the Ray cluster at {self._address} has gone: {why}")


def check_address(address: str) -> None:
    """ValueError, with what to write instead, for anything but `auto` and HOST:PORT."""
    host, _, port = address.rpartition(":")
    if address != "auto" and (not host or not port.isdigit() or "/" in host):
        raise ValueError(f"{address!r} is no address of a Ray cluster; write HOST:PORT of its head (6379), or auto")


def _reach(address: str) -> None:
    """TargetUnavailableError if nothing listens there: Ray itself would try for a minute."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACHED_S).close()
    except (OSError, OverflowError) as error:
        raise TargetUnavailableError(f"no Ray cluster at {address}: {error}") from None
