"""The longest hit: the largest boundary that one type can serve, and the largest that all types can (core.md §9).

A hit of `L` tokens is possible in a group if every block that the query at position `L` reads is registered, and, where
drafts need it, the block behind as well, that of tokens `L .. L + b - 1`. `L` is a multiple of the alignment; 0 is
always possible. A search is asked about ever smaller bounds, and remembers what it has seen.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from sys import maxsize
from typing import TypeAlias

from .block_hashing import BlockHashList
from .block_pool import BlockPool
from .kv_cache_block import KVCacheBlock

HitBlocks: TypeAlias = tuple[list[KVCacheBlock], ...]
"""One list per group asked; entry `i` is the block of tokens `i*b .. (i+1)*b - 1`, null where none is read."""


@dataclass(slots=True)
class HitTerms:
    """What a hit needs in groups of one spec; a block counts as registered if it is so in all of them."""

    group_ids: Sequence[int]
    pool: BlockPool
    block_size: int
    """Of a table's entries, in tokens, over all ranks."""
    ranks: int
    """Context-parallel ranks that a block spreads over."""
    per: int
    """Blocks in an alignment."""
    behind: int
    """1 where drafts need the block behind a hit, else 0."""
    skipped: Callable[[int], int]
    """How many leading tokens the query at a position does not read; never falls as the position grows."""

    def registered(self, hashes: BlockHashList, first: int, end: int) -> list[list[KVCacheBlock]]:
        """The run of registered blocks that begins at index `first` and ends before `end`."""
        get_cached_block, group_ids = self.pool.get_cached_block, self.group_ids
        run: list[list[KVCacheBlock]] = []
        for block_hash in islice(hashes, first, end):
            found = get_cached_block(block_hash, group_ids)
            if found is None:
                break
            run.append(found)
        return run


class HitSearch(ABC):
    """One lookup. A block without a hash is not registered."""

    def __init__(self, terms: HitTerms, hashes: BlockHashList) -> None:
        self._terms, self._hashes = terms, hashes

    @abstractmethod
    def longest(self, bound: int) -> int:
        """The longest possible hit of at most `bound` tokens. No bound may exceed the one before it."""

    @abstractmethod
    def blocks(self, length: int) -> HitBlocks:
        """The blocks of a hit of so many tokens, the last answer, which is not 0."""

    def _behind_nulls(self, num_nulls: int, found: list[list[KVCacheBlock]]) -> HitBlocks:
        null = self._terms.pool.null_block
        rows = tuple([[null] * num_nulls for _ in self._terms.group_ids])
        if found:
            for row, blocks in zip(rows, zip(*found, strict=True), strict=True):
                row.extend(blocks)
        return rows


class PrefixSearch(HitSearch):
    """For queries that read all before them: one run of registered blocks from the left answers every bound."""

    _run: list[list[KVCacheBlock]] | None = None

    def longest(self, bound: int) -> int:
        """The run less the block behind, within the bound, cut to the alignment."""
        terms = self._terms
        most, per, behind = bound // terms.block_size, terms.per, terms.behind
        if most < per:
            return 0
        if self._run is None:
            self._run = terms.registered(self._hashes, 0, most + behind)
        return max(0, min(most, len(self._run) - behind)) // per * per * terms.block_size

    def blocks(self, length: int) -> HitBlocks:
        """The run up to there."""
        return self._behind_nulls(0, (self._run or [])[: length // self._terms.block_size])


class ChunkSearch(HitSearch):
    """For queries that read their own chunk: in the last chunk first, a run of registered blocks from its beginning."""

    _first = -1
    """Index of the block in which the chunk begins."""
    _run: list[list[KVCacheBlock]]

    def longest(self, bound: int) -> int:
        """The end of the run, cut to the alignment, if that lies in the chunk; else the same in the chunk before."""
        terms = self._terms
        size, per, behind = terms.block_size, terms.per, terms.behind
        most = min(bound // size, len(self._hashes) - behind)
        while most >= per:
            candidate = most // per * per
            start = terms.skipped(candidate * size)
            first = start // size
            if first != self._first:
                self._first, self._run = first, terms.registered(self._hashes, first, candidate + behind)
            candidate = min(candidate, first + len(self._run) - behind) // per * per
            if candidate * size >= start:
                return candidate * size
            most = (start - 1) // size
        return 0

    def blocks(self, length: int) -> HitBlocks:
        """Nulls for the chunks before, then the run up to there."""
        return self._behind_nulls(self._first, self._run[: length // self._terms.block_size - self._first])


class RecentPastSearch(HitSearch):
    """For queries that read the tokens from `skipped(q)` on: looks blocks up from the right to the left.

    Where a boundary lacks block `i`, all boundaries between them lack it too, as they reach at least as far back. So
    the next candidate is the last boundary that ends, with the block behind it, before block `i`.
    """

    _first = _end = maxsize
    """Blocks `_first .. _end - 1` are registered."""
    _found: list[list[KVCacheBlock]]
    """Those blocks, the last one first."""

    def longest(self, bound: int) -> int:
        """The first candidate, from the bound to the left, that lacks nothing."""
        terms, hashes = self._terms, self._hashes
        per, behind, get_cached_block, group_ids = terms.per, terms.behind, terms.pool.get_cached_block, terms.group_ids
        most = min(bound // terms.block_size, len(hashes) - behind)
        while most >= per:
            candidate = most // per * per
            end, first_read = candidate + behind, self._first_read(candidate)
            if first_read >= end:
                return candidate * terms.block_size  # a window of one token: it needs nothing
            if end <= self._first:
                # Nothing is known of its last block: go on to a candidate that has this one at least.
                for i in range(end - 1, behind - 1, -per):
                    found = get_cached_block(hashes[i], group_ids)
                    if found is not None:
                        break
                else:
                    return 0
                self._first, self._end, self._found = i, i + 1, [found]
                if i + 1 < end:
                    candidate = i + 1 - behind
                    first_read = self._first_read(candidate)
            for i in range(self._first - 1, first_read - 1, -1):
                found = get_cached_block(hashes[i], group_ids)
                if found is None:
                    most = i - behind
                    break
                self._found.append(found)
                self._first = i
            else:
                return candidate * terms.block_size
        return 0

    def blocks(self, length: int) -> HitBlocks:
        """Nulls for what is not read, then what is."""
        num_blocks = length // self._terms.block_size
        first = min(num_blocks, self._first_read(num_blocks))
        found = self._found[self._end - num_blocks : self._end - first] if first < num_blocks else []
        found.reverse()
        return self._behind_nulls(first, found)

    def _first_read(self, num_blocks: int) -> int:
        """Index of the first block that the query behind so many blocks reads, or `num_blocks` if it reads none."""
        return max(0, self._terms.skipped(num_blocks * self._terms.block_size)) // self._terms.block_size


def longest_common_hit(searches: Sequence[HitSearch], bound: int) -> int:
    """The longest hit of at most `bound` tokens that is possible for all of them.

    Each in turn lowers the candidate to the longest hit that it can serve itself, until all have agreed to one. No hit
    that all can serve is passed over on the way.
    """
    length, agreed = bound, 0
    for search in cycle(searches):
        longest = search.longest(length)
        agreed = agreed + 1 if longest == length else 1
        length = longest
        if agreed == len(searches) or not length:
            break
    return length
