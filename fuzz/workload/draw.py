"""The source of random choices: a seed, or bytes that another tool provides."""

import random
from collections.abc import Sequence
from typing import TypeVar

from ..kinds.draw import Draw as Draw

T = TypeVar("T")


def made(kind: type[T], **values: object) -> T:
    """`kind(**values)` of a frozen dataclass, faster than by its `__init__`, which sets each field by a call.

    Fields that are not given have their defaults; the others must all be given.
    """
    one = object.__new__(kind)
    one.__dict__.update(values)
    return one


class SeededDraw:
    """Choices from a seed. The fastest source."""

    def __init__(self, seed: int | str) -> None:
        source = random.Random(seed)
        self._random = source.random
        self._bits = source.getrandbits

    def integer(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        size = high - low + 1
        if size < 1 << 32:
            return low + int(self._random() * size)
        return low + self._bits(size.bit_length() + 32) * size // (1 << size.bit_length() + 32)

    def choose(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[int(self._random() * len(options))]


class ByteDraw:
    """Choices read from bytes, which another tool (Hypothesis) generates and shrinks.

    Once the bytes are used up, every choice is the lowest or first one.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def integer(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        size = high - low + 1
        start, self._at = self._at, self._at + (size.bit_length() + 7) // 8
        return low + int.from_bytes(self._data[start : self._at], "big") % size

    def choose(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[self.integer(0, len(options) - 1)]
