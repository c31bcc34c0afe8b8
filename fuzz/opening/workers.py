"""Processes of ours beside this one: a pool of them for tasks, started so that nothing around them gets in their way.

* Modules in the current folder do not hide those of Python (`-P`), whose place a file such as `types.py` would take.
* The signals that end a command are for its first process, which tells the others; they hear none.
* One whose parent is gone ends at once and says nothing, even in the middle of a run.
"""

import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from ..findings.interruption import ENDING
from ..targets.base import TargetUnavailableError

_SAFE_PATH = "PYTHONSAFEPATH"
_CLOSE_S = 0.5
"""How long a process has to die before it is waited for no longer."""


class Worker(SpawnProcess):
    """A process of a context from `worker_context`."""

    def start(self) -> None:
        """See `multiprocessing.Process`. TargetUnavailableError if it cannot be started or ends before it begins."""
        self._users_own = os.environ.get(_SAFE_PATH)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # until it has begun; it inherits this
        try:
            with safe_path():
                super().start()
        except OSError as error:
            raise TargetUnavailableError(f"a process could not be started: {error.strerror}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def run(self) -> None:
        """Runs in the process: what it was given to do."""
        if self._users_own is None:  # for its own children the user has not asked for it
            os.environ.pop(_SAFE_PATH, None)
        deaf()
        threading.Thread(target=_end_with_parent, daemon=True).start()
        try:
            super().run()
        except (BrokenPipeError, ConnectionError, EOFError):
            if _has_parent():
                raise
            os._exit(1)  # nobody is left to be told


class _Workers(SpawnContext):
    Process = Worker


def worker_context() -> SpawnContext:
    """Where such processes and their pipes come from."""
    with safe_path():
        resource_tracker.ensure_running()  # a process of Python's own, which queues would start
    return _Workers()


@contextmanager
def safe_path() -> Iterator[None]:
    """Python processes that are started in the block look for modules as with `-P`."""
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before


def deaf() -> None:
    """This process hears no signal that ends a command. What it starts does: unlike a signal that is ignored, one that
    is handled is not inherited."""
    for number in ENDING:
        signal.signal(number, _nothing)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def _nothing(number: int, frame: object) -> None:
    """What a deaf process does at a signal."""


def _end_with_parent() -> None:
    """End this process as soon as its parent is gone, even while it is busy."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        sys.stderr = None  # whatever fails meanwhile, nobody is to be told
        os._exit(1)


def _has_parent() -> bool:
    parent = parent_process()
    return parent is not None and parent.is_alive()


class WorkerError(Exception):
    """A process of ours failed in an unexpected way; the text is its traceback."""


class DiedError(Exception):
    """A process of ours ended in the middle of a task."""

    def __init__(self, status: int | None) -> None:
        """`status`: as of `multiprocessing.Process.exitcode`."""
        super().__init__(f"its process ended with status {status}")
        self.status = status


class Event(NamedTuple):
    """Something that came of a task."""

    key: int
    said: Any
    """What was told; of a task that is over what it returned, or a TargetUnavailableError, WorkerError or DiedError."""
    over: bool


class Desk:
    """Where a task is done: what the process that does it has to do with the one that gave it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def stopped(self) -> bool:
        """True once the task is to come to its end."""
        return self._connection.poll()

    def tell(self, said: object) -> None:
        """Say something while the task goes on."""
        self._connection.send((said, False))


@dataclass
class _Hand:
    """One process."""

    process: BaseProcess
    connection: Connection
    key: int | None = None
    """The task that it does; None if it is idle."""


class Pool:
    """So many processes of ours, started as there is work, each of which does one task after the other.

    One that dies costs the task it was doing; another takes its place. Leaving the block ends them all, whatever they
    do: Ctrl-C is heard by this process alone.
    """

    def __init__(self, work: Callable[[Any, Desk], object], size: int) -> None:
        """`work` does a task in one of the processes; it is a function of a module, and what it takes, tells and
        returns is pickled."""
        self._work, self._size = work, size
        self._waiting: deque[tuple[int, object]] = deque()
        self._hands: list[_Hand] = []

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def busy(self) -> bool:
        """True while some task is not over."""
        return bool(self._waiting) or any(hand.key is not None for hand in self._hands)

    def submit(self, key: int, given: object) -> None:
        """Take on a task. Returns at once. TargetUnavailableError if no process can be started."""
        self._waiting.append((key, given))
        self._hand_out()

    def events(self, timeout_s: float | None = None) -> list[Event]:
        """What has come since the last call; waits for the first at most so long."""
        at_work = {hand.connection: hand for hand in self._hands if hand.key is not None}
        found = [
            self._received(at_work[ready]) for ready in wait([*at_work], timeout_s) if isinstance(ready, Connection)
        ]
        self._hand_out()
        return found

    def pid(self, key: int) -> int | None:
        """The process that does this task."""
        return next((hand.process.pid for hand in self._hands if hand.key == key), None)

    def stop(self) -> None:
        """All that work are to come to their end (`Desk.stopped`); what waits is not begun."""
        self._waiting.clear()
        for hand in self._hands:
            with suppress(OSError):  # it has just ended by itself
                hand.connection.send(None)

    def close(self) -> None:
        """End all processes, within half a second; what is under way is given up."""
        for hand in self._hands:
            hand.process.kill()
        end = time.monotonic() + _CLOSE_S
        for hand in self._hands:
            hand.process.join(max(0.0, end - time.monotonic()))
            hand.connection.close()
        self._hands.clear()
        self._waiting.clear()

    def _hand_out(self) -> None:
        """Waiting tasks to idle processes; new ones are started while there is work for them."""
        while self._waiting:
            idle = next((hand for hand in self._hands if hand.key is None), None)
            if idle is None:
                if len(self._hands) >= self._size:
                    return
                self._hands.append(idle := self._started())
            key, given = self._waiting[0]
            try:
                idle.connection.send((given,))
            except OSError:  # it died while it was idle
                self._forget(idle)
                continue
            self._waiting.popleft()
            idle.key = key

    def _started(self) -> _Hand:
        context = worker_context()
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self._work), daemon=True)
        process.start()
        theirs.close()
        return _Hand(process, ours)

    def _received(self, hand: _Hand) -> Event:
        assert hand.key is not None
        key = hand.key
        try:
            said, over = hand.connection.recv()
        except (EOFError, OSError):
            self._forget(hand)
            return Event(key, DiedError(hand.process.exitcode), True)
        if over:
            hand.key = None
        return Event(key, said, over)

    def _forget(self, hand: _Hand) -> None:
        hand.connection.close()
        hand.process.join(_CLOSE_S)
        hand.process.kill()
        hand.process.join()
        self._hands.remove(hand)


def _serve(connection: Connection, work: Callable[[Any, Desk], object]) -> None:
    """What a process does: task after task, until nobody wants one."""
    desk = Desk(connection)
    with suppress(EOFError, OSError):
        while (message := connection.recv()) is not None:
            connection.send((_come_to(work, message[0], desk), True))


def _come_to(work: Callable[[Any, Desk], object], given: Any, desk: Desk) -> object:
    try:
        return work(given, desk)
    except TargetUnavailableError as error:
        return TargetUnavailableError(str(error))
    except Exception:
        return WorkerError(traceback.format_exc())
