"""The program in the process of a core that is timed: `python -m blockproof.fuzz.bench.child SPEC CPU IN OUT`.

SPEC names the target, CPU the only processor that it runs on (-1: any); IN and OUT are inherited file descriptors. A
line is a JSON array. It begins with `["ready", version]` or `["unavailable", message]`, and then answers

* `["prepare", kind, params]` with `["done", digests]`,
* `["piece"]` with `["done", ns, operations, facts, notes]`,
* `["summary"]` and `["memory", params]` with `["done", facts]`,
* anything with `["lacks", reason]`, `["wrong", what]` or `["failed", error]`.

It runs in the target's Python environment, where only the standard library and the target are installed.
"""

import gc
import os
import sys
import traceback
from contextlib import suppress
from typing import Any

from ..opening.own_code import in_one_line
from ..opening.serve import Begun, answer_lines
from ..opening.targets import open_here
from ..opening.wire import line_of, message_of
from ..targets.driver import Driver, driver_of
from .kinds import workload
from .memory import memory_of
from .workload import BenchWorkload, WrongWorkError

NEVER = 2**31 - 1
"""Collections of the middle generation between two of the oldest one."""


def main(arguments: list[str]) -> None:
    """Answer until the parent closes the pipe."""
    spec, cpu, requests, answers = arguments[0], int(arguments[1]), int(arguments[2]), int(arguments[3])
    answer_lines(requests, answers, lambda: _opened(spec, cpu))


def _opened(spec: str, cpu: int) -> Begun:
    if cpu >= 0 and hasattr(os, "sched_setaffinity"):
        with suppress(OSError):
            os.sched_setaffinity(0, {cpu})
    target = open_here(spec)
    served = _Served(driver_of(target))
    gc.collect()
    gc.freeze()  # an engine's modules are a million objects
    gc.set_threshold(*gc.get_threshold()[:2], NEVER)  # a server freezes what lives on once it is up
    ready: list[object] = [str(getattr(target, "version", ""))]
    return ready, lambda line: line_of(served.answer(message_of(line)))


class _Served:
    """The driver, and the workload that it does at present."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._workload: BenchWorkload | None = None

    def answer(self, message: list[Any]) -> list[object]:
        """The answer to a line."""
        try:
            return ["done", *self._done(message)]
        except NotImplementedError as error:
            return ["lacks", str(error)]
        except WrongWorkError as error:
            return ["wrong", str(error)]
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            return [
                "failed",
                f"{in_one_line(error)} ({place.name}, line {place.lineno} of {os.path.basename(place.filename)})",
            ]

    def _done(self, message: list[Any]) -> list[object]:
        match message:
            case ["prepare", kind, params]:
                self._workload = None
                gc.collect()
                self._workload = workload(kind, self._driver, params)
                self._workload.prepare()
                digests = self._workload.digests()
                gc.collect()  # what lives on is old from here on, and so not walked through again and again
                return [digests]
            case ["piece"] if self._workload is not None:
                return list(self._workload.piece())
            case ["summary"] if self._workload is not None:
                return [self._workload.summary()]
            case ["memory", params]:
                return [memory_of(self._driver, params)]
        raise ValueError(f"no such question: {str(message)[:80]}")


if __name__ == "__main__":
    main(sys.argv[1:])
