"""Attacks the prover for as long as one likes: what `blockproof prove --fuzz` does."""

from collections.abc import Iterator

from .structures import try_structure
from .trial import Tally, try_seed

FUNCTIONS = 19
"""Functions of integers for each program with tables, bytes, loops or a heap, which takes longer."""


def attack(claims: int, seed: int) -> Iterator[Tally]:
    """What came of all claims so far, after each program, until there are so many or an answer is wrong.

    Each program depends on the seed and its number only.
    """
    tally, first, number = Tally(), seed * 1_000_003, 0
    while tally.cases < claims and not tally.wrong:
        rounds, place = divmod(number, FUNCTIONS + 1)
        if place < FUNCTIONS:
            try_seed(first + number, tally)
        else:
            try_structure(first + rounds, tally)
        number += 1
        yield tally
