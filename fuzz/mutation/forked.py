"""Does a piece of work in a child of this process, within limits: whatever a mutant does, this process goes on."""

import json
import os
import resource
import select
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

GROWTH_BYTES = 4 << 30
"""How much the address space of a child may grow."""
REAL_S = 3600.0
"""A child that neither works nor ends is killed after so long."""


@dataclass(frozen=True)
class Ended:
    """What came of a child."""

    said: dict[str, Any] | None
    """What the work has returned; None if it did not get that far."""
    how: str
    """How the child ended if it said nothing."""
    seconds: float
    """Its processor time."""


def in_child(work: Callable[[], dict[str, Any]], most_s: int) -> Ended:
    """Do the work, whose result is JSON-ready, in a child that has so many seconds of processor time."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        _say(theirs, work, most_s)
    os.close(theirs)
    with os.fdopen(ours, "rb") as said:
        if not select.select([said], [], [], REAL_S)[0]:
            os.kill(child, signal.SIGKILL)
        text = said.read()
    _, status, used = os.wait4(child, 0)
    seconds = round(used.ru_utime + used.ru_stime, 2)
    return Ended(json.loads(text), "", seconds) if text else Ended(None, _end(status, most_s), seconds)


def _say(answer: int, work: Callable[[], dict[str, Any]], most_s: int) -> NoReturn:
    """Do the work, write what it returns, and end this process."""
    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (most_s, most_s))
        limit = _address_space() + GROWTH_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        text = json.dumps(work()).encode()
        with os.fdopen(answer, "wb") as out:
            out.write(text)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _end(status: int, most_s: int) -> str:
    """How a child ended that said nothing."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"no end within {most_s} s" if number == signal.SIGXCPU else signal.Signals(number).name
    return f"exit status {os.WEXITSTATUS(status)}"


def _address_space() -> int:
    """Of this process, in bytes; unlimited on systems without /proc."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[0]) * resource.getpagesize()
    except OSError:
        return sys.maxsize - GROWTH_BYTES
