"""Where the tasks of a campaign are done: the protocol that hides whether in processes here or on a cluster.

An executor knows nothing of what is in a task: bytes go in, bytes come out. What runs them is `work.run_task`.
"""

from dataclasses import dataclass
from typing import Protocol

from ..opening.workers import Desk, Pool
from .work import run_task


@dataclass(frozen=True)
class Done:
    """A task that has come to its end."""

    number: int
    result: bytes | None
    """What `run_task` returned; None if its process was lost before it could return."""
    problem: str = ""
    """How it was lost, in one line; empty if there is a result."""
    over: bool = True
    """False if the task goes on, and this is its result so far."""


class ExecutorLostError(Exception):
    """The executor as a whole cannot go on, as when a cluster has gone: one line. Tasks under way are done again by
    whoever resumes the campaign."""


class Executor(Protocol):
    """Does tasks, several at a time, and tells in any order what came of them.

    Each task that was submitted is told once, by one `Done` that is over. A task whose process dies is told with a
    problem; one whose machine is lost, through no fault of its own, the executor does again elsewhere without telling.
    """

    @property
    def capacity(self) -> int:
        """How many tasks it can do at a time, now: a cluster may grow and shrink. At least 1."""
        ...

    def submit(self, number: int, task: bytes) -> None:
        """Take on a task. Returns at once, and takes more than `capacity` as well. ExecutorLostError."""
        ...

    def done(self, timeout_s: float) -> list[Done]:
        """What has come to its end since the last call; waits for the first at most so long. ExecutorLostError."""
        ...

    def close(self) -> None:
        """End everything within a second; what is under way is given up."""
        ...


class LocalExecutor:
    """An `Executor` of so many processes of this machine. One that dies costs the task it was doing."""

    def __init__(self, jobs: int) -> None:
        self.capacity = jobs
        self._pool = Pool(_work, jobs)

    def submit(self, number: int, task: bytes) -> None:
        """See `Executor`."""
        self._pool.submit(number, task)

    def done(self, timeout_s: float) -> list[Done]:
        """See `Executor`."""
        events = self._pool.events(timeout_s)
        return [
            Done(key, said, over=over) if isinstance(said, bytes) else Done(key, None, str(said))
            for key, said, over in events
        ]

    def close(self) -> None:
        """See `Executor`."""
        self._pool.close()


def _work(task: bytes, desk: Desk) -> bytes:
    return run_task(task, desk.tell)
