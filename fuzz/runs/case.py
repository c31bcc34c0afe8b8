"""The one loop: something is drawn, run and judged, and what is found is kept, until it is enough.

What differs is a `Case`: runs of a target (`engines.seeded`), engines under their own scheduler (`engines.stories`),
configurations (`configuration.check`). Campaigns, hunts of mutants, trials and comparisons are runs of a target. How
something gets smaller is a `traces.reducer.Reducer`.
"""

from collections.abc import Iterable
from itertools import count
from typing import Protocol, TypeVar

Drawn = TypeVar("Drawn")
Found = TypeVar("Found")


class Case(Protocol[Drawn, Found]):
    """What is done again and again."""

    def draw(self, number: int) -> Drawn:
        """The one of this number: the same for a seed whatever came before it."""

    def judge(self, drawn: Drawn) -> Iterable[Found]:
        """Run it, and say what is wrong with it, in order."""

    def keep(self, drawn: Drawn, found: Found) -> None:
        """Count what was found, and whatever is to be done with it at once."""

    def over(self) -> bool:
        """Whether it is enough; asked after each, and tells whoever waits how far it is."""


def loop(case: Case[Drawn, Found], first: int = 0) -> None:
    """Do it, from this number on, until it is enough. Whatever a method raises ends it."""
    for number in count(first):
        drawn = case.draw(number)
        for found in case.judge(drawn):
            case.keep(drawn, found)
        if case.over():
            return
