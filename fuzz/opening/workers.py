"""Processes of ours beside this one, for `multiprocessing`: started so that nothing around them gets in their way.

* Modules in the current folder do not hide those of Python (`-P`), whose place a file such as `types.py` would take.
* The signals that end a command are for its first process, which tells the others; they hear none.
* One whose parent is gone ends at once and says nothing, even in the middle of a run.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process, resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext, SpawnProcess

from ..findings.interruption import ENDING
from ..targets.base import TargetUnavailableError

_SAFE_PATH = "PYTHONSAFEPATH"


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
