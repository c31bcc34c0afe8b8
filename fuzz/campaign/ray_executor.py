"""Tasks on a Ray cluster: an `Executor` whose processes are wherever the cluster has cores.

The driver of the campaign, with its store, runs on a machine of the cluster; workers need nothing but blockproof and
what their targets need. Every task is told once: what a lost machine was doing is done again elsewhere.

A process of its own talks to Ray. Ray ends a program that has lost its cluster, and some of its calls wait for a
minute; here that ends nothing but this process. Workers keep their targets open from task to task (`work`): Ray gives a
task of the same function to a process that has done one before.
"""

import os
import signal
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from ..opening.workers import worker_context
from ..targets.base import TargetUnavailableError
from .executor import Done, ExecutorLostError
from .work import run_task

PER_CORE = 2
"""Tasks that are with Ray at a time: one that runs and one that waits behind it, so that no core waits for us."""
MOST_DEATHS = 3
"""Processes that a task may cost before it is given up."""
MOST_LOSSES = 10
"""Machines that may be lost under a task before it is given up: it may be what takes their memory."""
WAIT_S = 0.2
LOOK_S = 2.0
"""How often the cluster is asked how large it is."""


class RayTasks:
    """Tasks that are with Ray, or wait to be."""

    def __init__(self, ray: Any) -> None:
        """`ray`: the module, connected. ray.exceptions.RayError if it does not answer."""
        self._ray, self._errors = ray, ray.exceptions
        self._run = ray.remote(num_cpus=1, max_retries=0)(run_task)
        self._waiting: deque[int] = deque()
        self._bytes: dict[int, bytes] = {}
        self._running: dict[Any, int] = {}
        self._deaths: Counter[int] = Counter()
        self._losses: Counter[int] = Counter()
        self.look()

    def look(self) -> None:
        """Ask how large the cluster is now."""
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        self.cores = int(sum(node["Resources"].get("CPU", 0) for node in nodes))

    @property
    def capacity(self) -> int:
        """See `Executor`."""
        return max(1, PER_CORE * self.cores)

    def submit(self, number: int, task: bytes) -> None:
        """Take a task on."""
        self._bytes[number] = task
        self._waiting.append(number)

    def done(self, timeout_s: float) -> list[Done]:
        """Tasks that have come to their end; waits for the first at most so long."""
        while self._waiting and len(self._running) < self.capacity:
            number = self._waiting.popleft()
            self._running[self._run.remote(self._bytes[number])] = number
        if not self._running:
            time.sleep(timeout_s)
            return []
        first, _ = self._ray.wait([*self._running], num_returns=1, timeout=timeout_s)
        if not first:
            return []
        ready, _ = self._ray.wait([*self._running], num_returns=len(self._running), timeout=0)
        return [done for reference in ready for done in self._ended(reference)]

    def _ended(self, reference: Any) -> Iterator[Done]:
        """What came of a task: nothing yet if it is to be done again."""
        number, errors = self._running.pop(reference), self._errors
        try:
            yield self._told(Done(number, self._ray.get(reference)))
        except errors.RayTaskError as error:  # raised by the task, or by Python before it
            yield self._told(Done(number, None, str(error).strip().splitlines()[-1]))
        except (errors.WorkerCrashedError, errors.OutOfMemoryError) as error:
            yield from self._again(number, self._deaths, MOST_DEATHS, error)
        except errors.RayError as error:  # its machine has gone, or what it returned with it
            yield from self._again(number, self._losses, MOST_LOSSES, error)

    def _again(self, number: int, lost: Counter[int], most: int, error: Exception) -> Iterator[Done]:
        """To be done again, unless it was lost too often."""
        lost[number] += 1
        if lost[number] < most:
            self._waiting.appendleft(number)
        else:
            yield self._told(Done(number, None, f"lost {most} times on the cluster, at last: {type(error).__name__}"))

    def _told(self, done: Done) -> Done:
        del self._bytes[done.number]
        return done


def serve(connection: Connection, address: str) -> None:
    """What the process does: connect, then take tasks and tell what came of them, until nobody listens.

    It sends `Done` for a task, the capacity now and then, and a text if it cannot go on.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _be_quiet()
    try:
        ray = import_module("ray")
        ray.init(address, log_to_driver=False, configure_logging=False, include_dashboard=None)
        tasks = RayTasks(ray)
    except Exception as error:
        connection.send(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
        return
    inbox: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
    Thread(target=_take, args=(connection, inbox), daemon=True).start()
    connection.send(tasks.capacity)
    looked = time.monotonic()
    try:
        while True:
            for number, task in _arrived(inbox):
                tasks.submit(number, task)
            for done in tasks.done(WAIT_S):
                connection.send(done)
            if time.monotonic() - looked > LOOK_S:
                tasks.look()
                connection.send(tasks.capacity)
                looked = time.monotonic()
    except OSError:
        return  # nobody listens any more
    except Exception as error:
        connection.send(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")


def _take(connection: Connection, inbox: "SimpleQueue[tuple[int, bytes]]") -> None:
    """Take what is sent at once, also while a call of Ray waits. Ends the process when nobody sends any more."""
    try:
        while True:
            inbox.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)


def _arrived(inbox: "SimpleQueue[tuple[int, bytes]]") -> Iterator[tuple[int, bytes]]:
    try:
        while True:
            yield inbox.get_nowait()
    except Empty:
        return


def _be_quiet() -> None:
    """What Ray logs is not for whoever runs a campaign; what matters is told in one line."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


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
