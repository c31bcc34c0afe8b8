"""Attacks the prover for as long as one likes: what `blockproof prove --fuzz` does."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count

from .apart import PROGRAM_S, Lost, apart
from .structures import try_structure
from .trial import CLAIMS, Tally, try_seed

FUNCTIONS = 19
"""Functions of integers for each program with tables, bytes, loops or a heap, which takes longer."""
LOST_MOST = 0.01
"""Share of the claims that may be lost, as Z3 came to no end; a prover that loses more has a fault of its own."""


@contextmanager
def attack(claims: int, seed: int, first: int = 0, seconds: int = 0) -> Iterator[Iterator[Tally]]:
    """What came of all claims so far, after each program from the `first` on, until there are so many or an answer is
    wrong.

    Each program, and what comes of it, depends on the seed and its number only. One that does not end within so many
    seconds of processor time (`PROGRAM_S` without any) is lost: its claims are undecided.
    """
    with apart(partial(try_program, seed), seconds or PROGRAM_S) as tried:
        yield _tallies(claims, first, tried)


def try_program(seed: int, number: int) -> Tally:
    """What comes of one program."""
    tally, begin = Tally(), seed * 1_000_003
    rounds, place = divmod(number, FUNCTIONS + 1)
    if place < FUNCTIONS:
        try_seed(begin + number, tally)
    else:
        try_structure(begin + rounds, tally)
    return tally


def _tallies(claims: int, first: int, tried: Callable[[int], Tally | Lost]) -> Iterator[Tally]:
    tally = Tally()
    for number in count(first):
        if tally.cases >= claims or tally.wrong:
            return
        came = tried(number)
        if isinstance(came, Lost):
            tally.lose(number, came.how, CLAIMS)
        else:
            tally.add(came)
        tally.program = number
        yield tally


def loses_too_much(tally: Tally) -> bool:
    """Whether more claims were lost than may be."""
    return tally.lost_claims > LOST_MOST * tally.cases
