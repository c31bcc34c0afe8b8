"""Chunks of states are expanded here: in this process, or in several at a time."""

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from ...model.ops import Operation
from .expansion import BrokenError, Expansion
from .properties import Broken
from .scope import Scope

Plant: TypeAlias = str
"""Name of a planted fault (`faults`)."""


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


@contextmanager
def expand_chunk(expansion: Expansion, recipe: Recipe, jobs: int) -> Iterator[Expand]:
    """What expands the chunks of a level, in order; with more than one job in processes of their own."""
    if jobs <= 1:
        yield lambda chunks: (expand_all(expansion, chunk) for chunk in chunks)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, _begin, (recipe,)) as pool:  # leaving it ends the processes at once
        yield lambda chunks: pool.imap(_expand, chunks)


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
