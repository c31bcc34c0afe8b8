"""Each program is tried in a process of its own, which can be ended.

Z3 counts its steps, but some of what it does counts none: such a question does not end, and does not hear that it is
interrupted, either. And what Z3 makes of a question depends on all that its process has asked before. A fresh process
for each program settles both: what comes of a program follows from its seed and number alone.
"""

import multiprocessing
import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

PROGRAM_S = 30
"""Processor time of one program, which takes less than one second, seldom three."""
REAL_S = 900.0
"""A process that neither works nor ends is killed after so long."""


class Lost(NamedTuple):
    """A program of which nothing is known, as its process had to be ended, or has crashed."""

    how: str


class _Failed(NamedTuple):
    """What was raised where the program was tried."""

    trace: str


@contextmanager
def apart(work: Callable[[int], Any], seconds: int = PROGRAM_S) -> Iterator[Callable[[int], Any]]:
    """What does `work` for a number in a process of its own, with so many seconds of processor time, and gives what it
    returns, or `Lost`. RuntimeError if the work raises. Begin it before there are threads: it forks this process once,
    and that one for each number."""
    fork: Any = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    server = fork.Process(target=_serve, args=(fork, theirs, ours, work, seconds))
    server.start()
    theirs.close()

    def done(number: int) -> Any:
        try:
            ours.send(number)
            came = ours.recv()
        except (EOFError, OSError):
            return Lost("the process that begins the others has ended")
        if isinstance(came, _Failed):
            raise RuntimeError(came.trace)
        return came

    try:
        yield done
    finally:
        ours.close()
        server.join()


def _serve(fork: Any, asked: Connection, other: Connection, work: Callable[[int], Any], seconds: int) -> None:
    """Begin a process for each number that is asked for, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then asks no more
    other.close()
    while True:
        try:
            number = asked.recv()
        except EOFError:
            return
        said, says = fork.Pipe(duplex=False)
        process = fork.Process(target=_work, args=(says, work, number, seconds))
        process.start()
        says.close()
        ready = wait([said, asked], REAL_S)
        came = None
        if said in ready:
            with suppress(EOFError):
                came = said.recv()
        else:  # it takes too long, or nobody waits for it any more
            process.kill()
        process.join()
        said.close()
        if came is None:
            came = Lost(_end(process, seconds) if said in ready else f"no answer within {REAL_S:g} s")
        with suppress(OSError):
            asked.send(came)


def _work(says: Connection, work: Callable[[int], Any], number: int, seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    try:
        came = work(number)
    except BaseException:
        came = _Failed(traceback.format_exc())
    says.send(came)


def _end(process: BaseProcess, seconds: int) -> str:
    """How a process ended that said nothing."""
    code = process.exitcode or 0
    if -code in (signal.SIGXCPU, signal.SIGKILL):
        return f"no end within {seconds} s of processor time"
    return signal.Signals(-code).name if code < 0 else f"exit status {code}"
