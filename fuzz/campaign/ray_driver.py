"""The side of a `RayExecutor` that talks to Ray, in a process of its own.

Ray ends a program that has lost its cluster, and some of its calls wait for a minute; here that ends nothing but this
process. Workers keep their targets open from task to task (`doing`): Ray gives a task of the same function to a process
that has done one before.
"""

import os
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from importlib import import_module
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from .doing import run_task
from .executor import Done

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
