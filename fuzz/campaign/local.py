"""Tasks in processes of this machine, which live on from task to task."""

import time
from collections import deque
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from ..opening.workers import worker_context
from .doing import close_targets, run_task
from .executor import Done

_CLOSE_S = 0.5
"""How long a process has to die before it is waited for no longer."""


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    number: int | None = None
    """The task that it does; None if it is idle."""


class LocalExecutor:
    """An `Executor` of so many processes. One that dies costs the task it was doing; another takes its place."""

    def __init__(self, jobs: int) -> None:
        self.capacity = jobs
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._workers: list[_Worker] = []

    def submit(self, number: int, task: bytes) -> None:
        """See `Executor`."""
        self._waiting.append((number, task))
        self._hand_out()

    def done(self, timeout_s: float) -> list[Done]:
        """See `Executor`."""
        busy = {worker.connection: worker for worker in self._workers if worker.number is not None}
        ended = [self._received(busy[ready]) for ready in wait(list(busy), timeout_s) if isinstance(ready, Connection)]
        self._hand_out()
        return ended

    def close(self) -> None:
        """See `Executor`."""
        for worker in self._workers:
            worker.process.kill()
        end = time.monotonic() + _CLOSE_S
        for worker in self._workers:
            worker.process.join(max(0.0, end - time.monotonic()))
            worker.connection.close()
        self._workers.clear()
        self._waiting.clear()

    def _hand_out(self) -> None:
        """Waiting tasks to idle processes; new ones are started while there is work for them."""
        while self._waiting:
            idle = next((worker for worker in self._workers if worker.number is None), None)
            if idle is None:
                if len(self._workers) >= self.capacity:
                    return
                self._workers.append(idle := _started())
            number, task = self._waiting[0]
            try:
                idle.connection.send_bytes(task)
            except OSError:  # it died while it was idle
                self._forget(idle)
                continue
            self._waiting.popleft()
            idle.number = number

    def _received(self, worker: _Worker) -> Done:
        assert worker.number is not None
        number, worker.number = worker.number, None
        try:
            return Done(number, worker.connection.recv_bytes())
        except (EOFError, OSError):
            self._forget(worker)
            return Done(number, None, f"its process ended with status {worker.process.exitcode}")

    def _forget(self, worker: _Worker) -> None:
        worker.connection.close()
        worker.process.kill()
        worker.process.join()
        self._workers.remove(worker)


def _started() -> _Worker:
    context = worker_context()
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _work(connection: Connection) -> None:
    """What a process does: task after task, until nobody wants one."""
    try:
        while True:
            connection.send_bytes(run_task(connection.recv_bytes()))
    except (EOFError, OSError):
        close_targets()
