"""Hits that end inside a block: at any hash block that all groups can serve."""

from collections.abc import Sequence

from ..hashing.block_hash import BlockHash
from ..managers.hit_search import HitBlocks, HitSearch, HitTerms
from ..pool.block import Hit, KVCacheBlock
from ..specs.base import cdiv


class FineSearch(HitSearch):
    """A lookup by the hashes of hash blocks, of which only those are given up to which it looks."""

    _hashes: list[BlockHash]

    def __init__(self, terms: HitTerms, hashes: list[BlockHash]) -> None:
        self._terms, self._hashes = terms, hashes
        self._unit = terms.pool.hash_block_size


class FinePrefixSearch(FineSearch):
    """Full attention: whole blocks from the left, and one more that is named for some of its tokens at least. It serves
    every end up to where its name reaches."""

    _rows: list[list[KVCacheBlock]]
    _reach: int | None = None
    """Hash blocks that every group serves."""

    def longest(self, bound: int) -> int:
        """What all groups hold, within the bound."""
        if self._reach is None:
            self._rows, reach = [], len(self._hashes)
            for group in self._terms.group_ids:
                row, end = self._look(group)
                self._rows.append(row)
                reach = min(reach, end)
            self._reach = max(0, reach - self._terms.behind)
        return min(bound // self._unit, self._reach) * self._unit

    def _look(self, group: int) -> tuple[list[KVCacheBlock], int]:
        """The blocks that the group holds, and how many hash blocks these are."""
        terms, fine = self._terms, self._hashes
        found, per = terms.pool.cached_block_hash_to_block, terms.block_size // self._unit
        hashes = fine if per == 1 else fine[per - 1 :: per]  # of a block of several hash blocks, that of the last one
        row = found.prefix(group, hashes, len(hashes))
        whole = len(row) * per
        parts, registered = fine[whole : whole + per], found.groups[group]
        if registered.keys().isdisjoint(parts):
            return row, whole
        for end in range(len(parts), 0, -1):
            entry = registered.get(parts[end - 1])
            if entry is not None:
                return [*row, next(iter(entry.values())) if isinstance(entry, dict) else entry], whole + end
        return row, whole

    def blocks(self, length: int) -> HitBlocks:
        """The blocks up to there, the last one with a part of its tokens."""
        end = cdiv(length, self._terms.block_size)
        return tuple([Hit(row if len(row) == end else row[:end]) for row in self._rows])


class FineStateSearch(FineSearch):
    """Mamba layers: the state of exactly so many tokens."""

    _states: Sequence[KVCacheBlock | None]
    """What was found last."""

    def longest(self, bound: int) -> int:
        """The last one within the bound that every group has."""
        found, most = self._terms.pool.cached_block_hash_to_block, min(bound // self._unit, len(self._hashes))
        first, *others = [found.index_of(group) for group in self._terms.group_ids]
        for end in range(most, 0, -1):
            content = self._hashes[end - 1]
            if content in first and (not others or all(content in other for other in others)):
                self._states = [found.find(group, content) for group in self._terms.group_ids]
                return end * self._unit
        return 0

    def blocks(self, length: int) -> HitBlocks:
        """Nulls, and the state."""
        nulls = cdiv(length, self._terms.block_size) - 1
        return self._behind_nulls(nulls, [[block] for block in self._states if block is not None])
