"""How often somebody is told how far a run has come."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

EVERY_S = 1.0
SHARE = 0.01
"""Of the time of a run, at most so much goes into telling of it."""


class Pace:
    """At most once in `EVERY_S` seconds, and the less often the longer it takes to tell."""

    def __init__(self) -> None:
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
            self._next = end + max(EVERY_S, (end - begin) / SHARE)
