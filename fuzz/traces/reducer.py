"""The search for something smaller that still shows the same kind of finding: for traces and for configurations alike.

Greedy: a pass proposes candidates made from the best so far, and the first one that is accepted takes its place. What
is proposed, what a candidate shows and what counts as smaller is said by a subclass.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from ..runs.judging import TooLongError

MAX_CANDIDATES = 100_000
Case = TypeVar("Case")
"""What is made smaller."""
Found = TypeVar("Found")
"""What it shows."""


OnTry: TypeAlias = Callable[[int, int], None]
"""Takes the candidates that were tried so far, and the size of the best."""


@dataclass(frozen=True)
class SearchLimits:
    """When a search ends early, besides Ctrl-C."""

    candidates: int = MAX_CANDIDATES
    seconds: float | None = None
    on_try: OnTry | None = None
    """Told before each candidate how far the search is."""


@dataclass(frozen=True)
class Reduced(Generic[Found]):
    """The finding of the smallest case that was found, and what the search cost."""

    finding: Found
    candidates: int
    """How many were tried."""
    seconds: float
    complete: bool
    """False if a limit or Ctrl-C ended the search early: a smaller case may exist."""
    interrupted: bool
    """True if Ctrl-C ended it."""


class _LimitReachedError(Exception):
    pass


class Reducer(ABC, Generic[Case, Found]):
    """The best case so far, and the search for a better one."""

    def __init__(self, best: Case, finding: Found, limits: SearchLimits) -> None:
        """`finding` is what `best`, the case to begin with, shows."""
        self.best = best
        self.finding = finding
        self._limits = limits
        self._started = time.monotonic()
        self._candidates = 0

    @abstractmethod
    def search(self) -> None:
        """Propose candidates until none of them helps any more, through `exhaust` and `accept`."""

    @abstractmethod
    def shows(self, candidate: Case) -> tuple[Case, Found] | None:
        """What is left of the candidate, and the finding that it shows; None if that is of another kind or nothing."""

    def worth_trying(self, candidate: Case) -> bool:
        """False for a candidate that needs no look, which then does not count as one."""
        return True

    def is_smaller(self, case: Case) -> bool:
        """True if the case is smaller than the best so far. Here, all that is proposed is."""
        return True

    def size(self) -> int:
        """How large the best so far is, for those who wait."""
        return 0

    def run(self) -> Reduced[Found]:
        """Search to the end, to a limit, or until Ctrl-C, which is not raised again: the best so far is kept."""
        complete = interrupted = False
        try:
            self.search()
            complete = True
        except (_LimitReachedError, TooLongError):
            pass
        except KeyboardInterrupt:
            interrupted = True
        return Reduced(self.finding, self._candidates, time.monotonic() - self._started, complete, interrupted)

    def exhaust(self, simpler: Callable[[Case], Iterable[Case]]) -> None:
        """Take what a pass proposes, each time for the best so far, until nothing of it is accepted."""
        while any(self.accept(candidate) for candidate in simpler(self.best)):
            pass

    def accept(self, candidate: Case) -> bool:
        """Try a candidate: if it is smaller and shows the same kind of finding, it is the best from now on."""
        if not self.worth_trying(candidate):
            return False
        most, seconds = self._limits.candidates, self._limits.seconds
        if self._candidates >= most or (seconds is not None and time.monotonic() - self._started > seconds):
            raise _LimitReachedError
        if self._limits.on_try is not None:
            self._limits.on_try(self._candidates, self.size())
        self._candidates += 1
        shown = self.shows(candidate)
        if shown is None or not self.is_smaller(shown[0]):
            return False
        self.best, self.finding = shown
        return True
