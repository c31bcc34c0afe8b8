"""Blocks with several names: that of all its tokens, and those of ends of prompts inside it."""

from collections.abc import Sequence

from ..attention import demand
from ..decisions import stored
from ..metrics import Metrics
from ..ops import NULL
from ..state import Key, Removed, Request, State
from ..tables import Core


class NamedState(State):
    """A pool in which a block may have several names. `identity` is the first of each block."""

    def __init__(self, num_blocks: int, num_groups: int, metrics: Metrics | None = None) -> None:
        super().__init__(num_blocks, num_groups, metrics)
        self.also: dict[int, list[Key]] = {}  # further names, by block
        self.covers: dict[int, int] = {}  # tokens up to the end of what the first name of a block says
        self.copying: list[int] = []  # sources and targets of copies that have not run; each is held from outside, too
        self.watched: dict[int, None] = {}  # blocks that somebody reads who holds them no more
        self.reused: list[int] = []  # those of them that are gone now, of which he must be told
        self.given: dict[tuple[int, Key], int] = {}
        self._count = 0

    def take(self, count: int) -> list[int]:
        """As of every pool; who reads a block on is told."""
        taken = super().take(count)
        self._tell(taken)
        return taken

    def _tell(self, blocks: Sequence[int]) -> None:
        for block in [block for block in blocks if block in self.watched]:
            del self.watched[block]
            self.reused.append(block)

    def has(self, block: int, key: Key) -> bool:
        """True if the block has this name."""
        return (block, key) in self.given

    def name(self, block: int, key: Key, covers: int) -> None:
        """Give the block one more name, of so many tokens."""
        if block in self.identity:
            self.also.setdefault(block, []).append(key)
        else:
            self.identity[block], self.covers[block] = key, covers
        self._count += 1
        self.given[block, key] = self._count

    def register(self, block: int, key: Key, covers: int = 0) -> None:
        """Name a whole block; names of a part of it are no use any more. AssertionError if it is named as a whole."""
        if block in self.identity:
            demand(self.covers[block] < covers)
            self.forget(block)
        self.name(block, key, covers)

    def forget(self, block: int) -> None:
        """The block loses all its names."""
        self.events += [Removed(identity, group) for group, identity in self._unnamed(block)]

    def forget_all(self) -> None:
        """No block has a name any more."""
        for names in (self.identity, self.also, self.covers, self.given):
            names.clear()
        self._tell([*self.watched])

    def move(self, source: int, target: int) -> None:
        """The target gets the names of the source, and nobody is told."""
        covers = self.covers.get(source, 0)
        for key in self._unnamed(source):
            self.name(target, key, covers)

    def _unnamed(self, block: int) -> Sequence[Key]:
        if block not in self.identity:
            return ()
        names = [self.identity.pop(block), *self.also.pop(block, ())]
        del self.covers[block]
        for name in names:
            del self.given[block, name]
        return names

    def earliest(self) -> dict[Key, int]:
        """Per name, the block that has had it longest."""
        if not self.also:
            return super().earliest()
        return {key: block for (block, key), _ in sorted(self.given.items(), key=lambda given: -given[1])}


def named(core: Core) -> NamedState:
    """Its pool."""
    assert isinstance(core.state, NamedState)
    return core.state


def give(core: Core, group: int, request: Request, end: int, block: int) -> None:
    """Name the block for the content of the first `end` tokens; names for fewer tokens are no use any more."""
    if block == NULL:
        return
    unit, state = core.shape.hash_block_size, named(core)
    identity = request.chain[end // unit - 1]
    if state.has(block, (group, identity)):
        return
    if state.covers.get(block, end) < end:
        state.forget(block)
    state.name(block, (group, identity), end)
    place = end - unit, end
    state.events.append(stored(core, group, request, [place], place, unit))
