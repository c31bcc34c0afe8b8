"""How often somebody is told how far a run has come."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

EVERY_S = 1.0
SHARE = 0.01
"""Of the time of a run, at most so much goes into telling of it."""


class Pace:
    """At most once in so many seconds, and the less often the longer it takes to tell."""

    def __init__(self, every: float = EVERY_S) -> None:
        self.every = every
        """Seconds that passed between the last two times at least."""
        self._least = every
        self._next = 0.0

    @property
    def due(self) -> bool:
        """True if it is time to tell again."""
        return time.monotonic() >= self._next

    @contextmanager
    def telling(self) -> Iterator[None]:
        """What is told in the block decides when the next time is."""
        begin = time.monotonic()
        try:
            yield
        finally:
            end = time.monotonic()
            self.every = max(self._least, (end - begin) / SHARE)
            self._next = end + self.every
