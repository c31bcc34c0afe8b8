"""How long blocks live, lie idle and wait between uses, for one block in so many (core.md §5). The clock counts
operations: each takes one second, and nothing passes within one."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

KEPT_ACCESSES = 4

Gone: TypeAlias = tuple[int, int, tuple[int, ...]]  # seconds: of its life, since its last use, between its last uses


class Life(NamedTuple):
    """One block that is followed, since it was handed out. Times in seconds."""

    born: int
    used: tuple[int, ...] = ()  # the last uses, oldest first

    @property
    def last(self) -> int:
        """When it was used last, or handed out."""
        return self.used[-1] if self.used else self.born


class Metrics:
    """Follows the first of every `every` blocks that are handed out, none if that is 0."""

    def __init__(self, every: int, caching: bool) -> None:
        self.every, self.caching = every, caching
        self.now = 0
        self.lives: dict[int, Life] = {}
        self.gone: list[Gone] = []  # of blocks taken for another use, not drained yet
        self._handed_out = 0

    def taken(self, blocks: Sequence[int]) -> None:
        """The pool hands these blocks out, in this order. Without a cache nobody is told what was in them before."""
        for block in blocks if self.every else ():
            if self.caching:
                self.evicted(block)
            if self._handed_out % self.every == 0:
                self.lives[block] = Life(self.now)
            self._handed_out += 1

    def touched(self, blocks: Sequence[int]) -> None:
        """Each of these blocks is held once more."""
        for block in blocks if self.lives else ():
            if life := self.lives.get(block):
                self.lives[block] = life._replace(used=(*life.used, self.now)[-KEPT_ACCESSES:])

    def evicted(self, block: int) -> None:
        """The block is taken for another use, or loses its identity."""
        if life := self.lives.pop(block, None):
            gaps = tuple(later - earlier for earlier, later in pairwise(life.used))
            self.gone.append((self.now - life.born, self.now - life.last, gaps))

    def reset(self) -> None:
        """Nothing is followed any more, and what was not drained is forgotten."""
        self.lives, self.gone = {}, []

    def followed(self) -> tuple[tuple[int, int, int, tuple[int, ...]], ...]:
        """The blocks that are followed, in order: id, when it was handed out and used last, its last uses."""
        return tuple((block, life.born, life.last, life.used) for block, life in sorted(self.lives.items()))

    def drain(self) -> tuple[Gone, ...]:
        """What has gone since the last call."""
        gone, self.gone = tuple(self.gone), []
        return gone
