"""Breadth first through all states of a scope, with what it takes to say how a state was reached.

States are numbered in the order in which they are met, so a level is a range of numbers and the work to be done is one
number: the next state to be expanded. That is also what a checkpoint keeps (`checkpoint`). Several processes expand
states (`workers`); one collects what they find, in order, so the numbers do not depend on how many there are.
"""

import resource
import signal
import sys
import threading
import time
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from ...model.ops import Operation
from ..targets.garbage import without_collector
from .expansion import BrokenError
from .liveness import first_stuck
from .packing import RESTING
from .paths import operations
from .properties import Broken
from .scope import Scope
from .workers import Expanded, Jobs, Plant, Recipe, WorkerLostError, expand_chunk, expander

CHUNK = 128
"""States that are expanded between two looks at the clock and at Ctrl-C: some hundredths of a second."""
EXHAUSTED, STATES, MEMORY, INTERRUPTED, BROKEN = "exhausted", "state limit", "memory limit", "interrupted", "broken"
LOST = "a process was lost"
"""How a search has ended; only the first one says something about all states."""


class Limits(NamedTuple):
    """When to give up. None: never."""

    states: int | None = None
    memory: int | None = None
    """Mebibytes, of this process at its largest."""


@dataclass(frozen=True)
class ExploredFinding:
    """Properties that do not hold, and the shortest way there."""

    broken: tuple[Broken, ...]
    operations: tuple[Operation, ...]
    """From a new core to where it shows; a trace together with the shape."""

    @property
    def names(self) -> tuple[str, ...]:
        """Ids of the properties, each once."""
        return tuple(dict.fromkeys(name for name, _ in self.broken))


@dataclass
class Exploration:
    """What became of a scope."""

    scope: str
    states: int
    resting: int
    """States in which no operation has left a request in the middle of something."""
    transitions: int
    depth: int
    """Operations on the longest of the shortest ways to a state."""
    seconds: float
    cpu_seconds: float
    """Of this process alone."""
    ended: str
    reached: dict[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    """Situations that no transition brought about although the scope says so; known once it is exhausted."""
    finding: ExploredFinding | None = None
    levels: tuple[int, ...] = ()
    """By the operations on the shortest way there, from 0 on: how many states. The last of a search that has not come
    to its end may lack some."""

    @property
    def passed(self) -> bool:
        """True if all states were visited, every property held, and every situation was reached."""
        return self.ended == EXHAUSTED and self.finding is None and not self.missing


class Search:
    """The states of one scope as far as they are known."""

    def __init__(self, scope: Scope, plant: Plant | None = None, **reductions: bool) -> None:
        self.scope, self.plant = scope, plant
        self.recipe = Recipe(scope, plant, **reductions)
        self.expansion = expander(self.recipe)
        self.index: dict[bytes, int] = {}
        self.states: list[bytes] = []
        self.parents, self.moves = array("I"), array("B")
        """How each state was met first: from which state, by which of its moves."""
        self.own_from, self.own_to = array("I"), array("I")
        """The transitions that the scheduler makes on its own account."""
        self.at = 0
        """The next state to be expanded."""
        self.level_end = 1
        self.depth = 0
        self.transitions = 0
        self.reached: Counter[str] = Counter()
        self.seconds = self.cpu_seconds = 0.0
        self.ended = INTERRUPTED
        self.finding: ExploredFinding | None = None

    def run(
        self,
        limits: Limits = Limits(),  # noqa: B008  # immutable
        jobs: Jobs = Jobs(),  # noqa: B008  # immutable
        on_progress: Callable[["Search"], None] = lambda search: None,
        on_level: Callable[["Search"], None] = lambda search: None,
    ) -> Exploration:
        """Go on until all states are visited, something is found, a limit is reached, a process is lost or Ctrl-C is
        pressed."""
        started, cpu, seconds, cpu_seconds = time.monotonic(), time.process_time(), self.seconds, self.cpu_seconds
        with _ctrl_c() as interrupted, without_collector(), expand_chunk(self.expansion, self.recipe, jobs) as expand:
            try:
                if not self.states:
                    self._meet(self.expansion.first(), 0, 0)
                while self.at < len(self.states) and self.finding is None:
                    for found in expand(self._chunks()):
                        self._take(found)
                        self.seconds = seconds + time.monotonic() - started
                        self.cpu_seconds = cpu_seconds + time.process_time() - cpu
                        on_progress(self)
                        if self.finding is not None or self._must_end(limits, interrupted()):
                            return self._report()
                    self.depth += self.level_end < len(self.states)
                    self.level_end = len(self.states)
                    on_level(self)
            except BrokenError as error:
                self.ended, self.finding = BROKEN, ExploredFinding(tuple(error.broken), ())
                return self._report()
            except WorkerLostError:
                self.ended = LOST
                return self._report()
        self.ended = EXHAUSTED
        self._check_liveness()
        self.seconds = seconds + time.monotonic() - started
        self.cpu_seconds = cpu_seconds + time.process_time() - cpu
        return self._report()

    def _chunks(self) -> Iterator[list[bytes]]:
        """What is left of the level."""
        for start in range(self.at, self.level_end, CHUNK):
            yield self.states[start : min(start + CHUNK, self.level_end)]

    def _take(self, found: Expanded) -> None:
        """Add what was found from the next states."""
        index, own = self.index, iter(found.own)
        followers = iter(found.states)
        self.reached.update(found.reached)
        for count in found.counts:
            at = self.at
            for move in range(count):
                state = next(followers)
                number = index.get(state)
                if number is None:
                    number = self._meet(state, at, move)
                if next(own):
                    self.own_from.append(at)
                    self.own_to.append(number)
            self.transitions += count
            self.at += 1
        if found.broken is not None:
            self.ended = BROKEN
            last = () if found.last is None else (found.last,)
            self.finding = ExploredFinding(found.broken, self.path(self.at, found.move) + last)

    def _meet(self, state: bytes, parent: int, move: int) -> int:
        number = self.index[state] = len(self.states)
        self.states.append(state)
        self.parents.append(parent)
        self.moves.append(move)
        return number

    def path(self, number: int, move: int | None = None) -> tuple[Operation, ...]:
        """Operations from a new core to a state and, if given, one of its moves: the fewest there are."""
        steps = [] if move is None else [(self.states[number], move)]
        while number:
            number, move = self.parents[number], self.moves[number]
            steps.append((self.states[number], move))
        return operations(expander(self.recipe), steps[::-1])

    def _must_end(self, limits: Limits, interrupted: bool) -> bool:
        self.ended = INTERRUPTED
        if interrupted:
            return True
        if limits.states is not None and len(self.states) >= limits.states and self.at < len(self.states):
            self.ended = STATES
        elif limits.memory is not None and memory_mib() > limits.memory:
            self.ended = MEMORY
        return self.ended != INTERRUPTED

    def _check_liveness(self) -> None:
        goals = [number for number, state in enumerate(self.states) if self.is_goal(state)]
        stuck = first_stuck(len(self.states), self.own_from, self.own_to, goals)
        if stuck is not None:
            text = "from here the scheduler's own moves lead to no state in which all requests have finished"
            self.finding = ExploredFinding((("L1", text),), self.path(stuck))

    def is_goal(self, state: bytes) -> bool:
        """True if no request is left."""
        return not any(state[1 : 1 + 3 * self.scope.requests : 3])

    def _report(self) -> Exploration:
        missing = [name for name in self.scope.must_reach if not self.reached[name]]
        return Exploration(
            scope=self.scope.name,
            states=len(self.states),
            resting=sum(state[0] >> 4 == RESTING for state in self.states),
            transitions=self.transitions,
            depth=self.depth,
            seconds=self.seconds,
            cpu_seconds=self.cpu_seconds,
            ended=self.ended,
            reached={name: count for name, count in sorted(self.reached.items()) if count},
            missing=tuple(missing) if self.ended == EXHAUSTED and self.finding is None else (),
            finding=self.finding,
            levels=self.levels(),
        )

    def levels(self) -> tuple[int, ...]:
        """How many states there are by depth: those of a level are met from those of the level before, in order."""
        ends = [0, min(1, len(self.states))]
        while ends[-1] < len(self.states):
            ends.append(bisect_left(self.parents, ends[-1], lo=ends[-1]))
        return tuple(end - begin for begin, end in pairwise(ends) if end > begin)


def memory_mib() -> float:
    """Largest memory of this process so far, in mebibytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


@contextmanager
def _ctrl_c() -> Iterator[Callable[[], bool]]:
    """Inside, Ctrl-C, and what else interrupts the program, is only noted: a state is expanded wholly or not at all."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    pressed = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    noted = [number for number, what in before.items() if number == signal.SIGINT or callable(what)]
    for number in noted:
        signal.signal(number, lambda number, frame: pressed.set())
    try:
        yield pressed.is_set
    finally:
        for number in noted:
            signal.signal(number, before[number])
