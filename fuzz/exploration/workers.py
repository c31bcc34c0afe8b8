"""Chunks of states are expanded here: in this process, or in several at a time."""

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing.context import BaseContext
from typing import NamedTuple, TypeAlias

from ...model.ops import Operation
from .expansion import BrokenError, Expansion
from .properties import Broken
from .scope import Scope

Plant: TypeAlias = str
"""Name of a planted fault (`faults`)."""


class Jobs(NamedTuple):
    """How many processes expand states, and where they come from: Python's own by default."""

    processes: int = 1
    context: BaseContext | None = None


class WorkerLostError(Exception):
    """A process ended before it had done what it was given, or could not be started."""


class Recipe(NamedTuple):
    """What an `Expansion` is built from in every process."""

    scope: Scope
    plant: Plant | None = None
    canonical: bool = True
    reduced: bool = True
    once: bool = True


class Expanded(NamedTuple):
    """What follows from a chunk of states, up to the first in which something is wrong."""

    counts: list[int]
    """Moves of each state."""
    states: list[bytes]
    """What they lead to, one after the other."""
    own: bytes
    """Which of them the scheduler makes on its own account."""
    reached: dict[str, int]
    """How many moves brought each situation about."""
    broken: tuple[Broken, ...] | None = None
    move: int | None = None
    last: Operation | None = None
    """Which move of the state behind the last one it was, or what was tried there in addition to the moves."""


def expander(recipe: Recipe) -> Expansion:
    """What expands states of a scope, with a fault planted if one is named."""
    from .faults import FAULTS  # which use expansions in turn

    expansion = Expansion(recipe.scope, recipe.canonical, recipe.reduced, recipe.once)
    if recipe.plant is not None:
        FAULTS[recipe.plant].plant(expansion)
    return expansion


def expand_all(expansion: Expansion, states: Iterable[bytes]) -> Expanded:
    """What follows from these states."""
    counts: list[int] = []
    found: list[bytes] = []
    own = bytearray()
    expansion.reached.clear()
    broken: tuple[Broken, ...] | None = None
    move, last = None, None
    for state in states:
        try:
            followers = expansion.expand(state)
        except BrokenError as error:
            broken, move, last = tuple(error.broken), error.move, error.last
            break
        counts.append(len(followers))
        for follower, is_own in followers:
            found.append(follower)
            own.append(is_own)
    return Expanded(counts, found, bytes(own), dict(expansion.reached), broken, move, last)


Expand: TypeAlias = Callable[[Iterator[list[bytes]]], Iterator[Expanded]]


AHEAD = 4
"""Chunks for each process that are given out before the first of them is taken back."""


@contextmanager
def expand_chunk(expansion: Expansion, recipe: Recipe, jobs: Jobs) -> Iterator[Expand]:
    """What expands the chunks of a level, in order; with more than one job in processes of their own, which end with
    the block. Taking from it raises WorkerLostError once one of them is lost: what it was doing is not done.
    """
    if jobs.processes <= 1:
        yield lambda chunks: (expand_all(expansion, chunk) for chunk in chunks)
        return
    before = multiprocessing.active_children()
    context = jobs.context or multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs.processes, context, _begin, (recipe,))
    try:
        yield lambda chunks: _in_order(pool, chunks, AHEAD * jobs.processes)
    finally:
        for process in multiprocessing.active_children():
            if process not in before:
                process.kill()
        pool.shutdown(cancel_futures=True)


def _in_order(pool: ProcessPoolExecutor, chunks: Iterator[list[bytes]], ahead: int) -> Iterator[Expanded]:
    """What follows from the chunks, of which so many are given out at a time."""
    try:
        given: deque[Future[Expanded]] = deque(pool.submit(_expand, chunk) for chunk in islice(chunks, ahead))
        while given:
            yield given.popleft().result()
            given.extend(pool.submit(_expand, chunk) for chunk in islice(chunks, 1))
    except BrokenProcessPool:
        raise WorkerLostError("a process that expands states was lost, as if memory was short") from None


_own: Expansion | None = None
"""In a worker: its model and core."""


def _begin(recipe: Recipe) -> None:
    global _own
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _own = expander(recipe)
    _own.first()


def _expand(chunk: list[bytes]) -> Expanded:
    assert _own is not None
    return expand_all(_own, chunk)
