"""Where all that is generated gets its choices from."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Draw(Protocol):
    """Everything that is generated makes its choices through these two methods only."""

    def integer(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        ...

    def choose(self, options: Sequence[T]) -> T:
        """One of the options."""
        ...
