"""Has mutants hunted, in one process of the core's interpreter or in several at the same time."""

import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, cast

from ..opening.child import PythonChild
from ..opening.process import ChildLimits
from ..opening.wire import line_of, message_of
from ..targets.base import TargetLostError, TargetUnavailableError
from .places import Mutant
from .stages import Budget
from .subject import Subject

_SERVER = f"{__package__}.serve"
LIMITS = ChildLimits(operation_s=3600.0, start_s=3600.0, growth_bytes=1 << 40)
"""A child that hunts has limits of its own, in processor time; these end a process that does not answer at all."""


@dataclass(frozen=True)
class Hunted:
    """A mutant, and what became of it."""

    mutant: Mutant
    status: str
    """`killed`; `import` if it cannot be imported or opened; `survived`."""
    by: str
    """The stage that has found it."""
    finding: str
    operations: int
    cases: int
    seconds: float
    """Processor time of its child."""


class Hunters(PythonChild):
    """A process in the core's interpreter, which hunts one mutant after the other."""

    seconds: float
    """Processor time of all stages on the core as it stands."""

    def __init__(self, subject: Subject, seed: int, budget: Budget) -> None:
        """TargetUnavailableError if it does not come up, or if the core as it stands is found already."""
        asked = [subject.opened, *map(str, (seed, budget.operations, budget.cases))]
        super().__init__(subject.name, _SERVER, asked, subject.place, LIMITS)

    def _begin(self, ready: list[object]) -> None:
        (self.seconds,) = map(float, cast(list[float], ready))

    def hunt(self, mutant: Mutant) -> Hunted:
        """What becomes of a mutant. TargetLostError if the process is lost over it."""
        about = f"a mutant of {mutant.function}"
        line = line_of(["hunt", mutant.module, mutant.source, mutant.lines])
        return self.exchange(line, about, LIMITS.operation_s, lambda raw: _hunted(mutant, message_of(raw)))


def hunt_all(subject: Subject, mutants: Sequence[Mutant], seed: int, budget: Budget, jobs: int = 1) -> Iterator[Hunted]:
    """Hunt all, as they come; with several jobs not in order. Whatever ends this early ends the processes.

    TargetUnavailableError as for `Hunters`, TargetLostError if one of these is lost.
    """
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    done: queue.SimpleQueue[Hunted | BaseException] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)
    with ExitStack() as opened:
        started: list[Hunters] = []
        opened.callback(_end, started)
        for _ in range(min(jobs, len(mutants))):
            threading.Thread(target=_work, args=(subject, seed, budget, waiting, done, started), daemon=True).start()
        for _ in mutants:
            one = done.get()
            if isinstance(one, BaseException):
                raise one
            yield one


def _work(
    subject: Subject,
    seed: int,
    budget: Budget,
    waiting: "queue.SimpleQueue[Mutant]",
    done: "queue.SimpleQueue[Hunted | BaseException]",
    started: list[Hunters],
) -> None:
    """Hunt what waits, until nothing does."""
    try:
        hunters = Hunters(subject, seed, budget)
        started.append(hunters)
        while True:
            done.put(hunters.hunt(waiting.get_nowait()))
    except queue.Empty:
        return
    except (TargetLostError, TargetUnavailableError, OSError, ValueError) as error:
        done.put(error)


def _end(started: list[Hunters]) -> None:
    for one in started:
        one.end()


def _hunted(mutant: Mutant, message: list[Any]) -> Hunted:
    """ValueError if the message is malformed."""
    match message:
        case ["fate", dict(fate)]:
            return Hunted(
                mutant, *(fate[name] for name in ("status", "by", "finding", "operations", "cases", "seconds"))
            )
    raise ValueError("no fate of a mutant")
