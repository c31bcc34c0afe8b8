"""What a target that runs in this process may change of it, and how that is taken back: the report needs it.

A target in a process of its own changes nothing here. One in this process may end it (`os._exit`), close or replace the
streams, lower the recursion limit, leave the folder or take the signals that end a command.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NoReturn

from ..findings.interruption import ENDING

_RECURSION = sys.getrecursionlimit()
_PACKAGE = __name__.rpartition(".targets.")[0]
_really_exit = os._exit
_handler: Callable[[int], Any] = getattr(sys.modules.get("_signal"), "getsignal", signal.getsignal)
"""As `signal.getsignal`, but a number stays a number: to look for its name takes twenty times as long."""


def allow_recursion() -> None:
    """At least as deep as when this program began."""
    if sys.getrecursionlimit() < _RECURSION:
        sys.setrecursionlimit(_RECURSION)


def notice_exits() -> None:
    """From now on `os._exit` raises SystemExit where a target calls it that we have called, in this process: a run that
    ends without a word would be taken for one that has found nothing."""
    os._exit = partial(_exit, os.getpid())


def really_exit(status: int) -> NoReturn:
    """`os._exit` as it is."""
    _really_exit(status)


def _exit(process: int, status: int) -> NoReturn:
    if threading.current_thread() is threading.main_thread() and os.getpid() == process and _is_called_by_us():
        raise SystemExit(f"os._exit({status})")
    _really_exit(status)


def _is_called_by_us() -> bool:
    frame = sys._getframe(2)
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(_PACKAGE):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


class ProcessState:
    """What this process was like when this was made."""

    def __init__(self) -> None:
        self._out, self._err = sys.stdout, sys.stderr
        self._folder: str | None = None
        with suppress(OSError):  # it may have been removed
            self._folder = os.getcwd()
        self._signals: dict[int, Any] = {number: _handler(number) for number in ENDING}

    def restore(self) -> None:
        """Make it so again."""
        allow_recursion()
        if sys.stdout is not self._out:
            sys.stdout = self._out
        if sys.stderr is not self._err:
            sys.stderr = self._err
        with suppress(OSError):
            if self._folder is not None and os.getcwd() != self._folder:
                os.chdir(self._folder)
        if threading.current_thread() is threading.main_thread():
            for number, before in self._signals.items():
                if before is not None and _handler(number) != before:
                    signal.signal(number, before)


@contextmanager
def unharmed() -> Iterator[None]:
    """What the block changes of this process is taken back."""
    before = ProcessState()
    try:
        yield
    finally:
        before.restore()
