"""Processor time of this process and of all its children, those that live included."""

import os
import resource
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds() -> float:
    """Seconds since the start of this process; of a living child in steps of a tick, and nothing without /proc."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + sum(map(_used, _living(os.getpid())))


def _living(process: int) -> Iterator[int]:
    """The children of a process, and theirs."""
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from _living(child)


def _used(process: int) -> float:
    """Of one process and of its children that have ended, in seconds."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS
    return 0.0
