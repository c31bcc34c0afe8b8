"""The longest hit: the largest boundary that one type can serve, and the largest that all types can (core.md §9).

A hit of `L` tokens is possible in a group if every block that the query at position `L` reads is registered, and, where
drafts need it, the block behind as well, that of tokens `L .. L + b - 1`. `L` is a multiple of the alignment; 0 is
always possible. A search is asked about ever smaller bounds, and looks no block up twice.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TypeAlias

from .block_hashing import BlockHashList
from .block_pool import BlockPool
from .kv_cache_block import KVCacheBlock

HitBlocks: TypeAlias = tuple[list[KVCacheBlock], ...]
"""One list per group asked; entry `i` is the block of tokens `i*b .. (i+1)*b - 1`, null where none is read."""


class HitSearch(ABC):
    """One lookup in groups of one spec; a block counts as registered if it is so in all of them.

    `block_size` is that of a table's entries and `alignment` a multiple of it, both in tokens; `behind` is 1 where
    drafts need the block behind a hit, else 0. `skipped(q)` counts the leading tokens that the query at position `q`
    does not read; it never falls as `q` grows. A block without a hash is not registered.
    """

    def __init__(
        self,
        hashes: BlockHashList,
        group_ids: Sequence[int],
        pool: BlockPool,
        block_size: int,
        alignment: int,
        behind: int,
        skipped: Callable[[int], int],
    ) -> None:
        self._hashes, self._group_ids, self._pool = hashes, group_ids, pool
        self._block_size, self._behind, self._skipped = block_size, behind, skipped
        self._per = alignment // block_size
        """Blocks in an alignment."""

    @abstractmethod
    def longest(self, bound: int) -> int:
        """The longest possible hit of at most `bound` tokens. No bound may exceed the one before it."""

    @abstractmethod
    def blocks(self, length: int) -> HitBlocks:
        """The blocks of a hit of so many tokens, the last answer."""


class PrefixSearch(HitSearch):
    """For queries that read all before them: one run of registered blocks from the left answers every bound."""

    _run: list[list[KVCacheBlock]] | None = None

    def longest(self, bound: int) -> int:
        """The run less the block behind, within the bound, cut to the alignment."""
        most, run = bound // self._block_size, self._run
        if run is None:
            run = self._run = []
            get_cached_block, group_ids = self._pool.get_cached_block, self._group_ids
            for block_hash in islice(self._hashes, most + self._behind):
                found = get_cached_block(block_hash, group_ids)
                if found is None:
                    break
                run.append(found)
        return max(0, min(most, len(run) - self._behind)) // self._per * self._per * self._block_size

    def blocks(self, length: int) -> HitBlocks:
        """The run up to there."""
        run = (self._run or [])[: length // self._block_size]
        return tuple([[found[i] for found in run] for i in range(len(self._group_ids))])


class RecentPastSearch(HitSearch):
    """For queries that read the tokens from `skipped(q)` on: looks blocks up from the right to the left.

    Where a boundary lacks block `i`, all boundaries between them lack it too, as they reach at least as far back. So
    the next candidate is the last boundary that ends, with the block behind it, before block `i`.
    """

    _first = _end = -1
    """Blocks `_first .. _end - 1` are registered; -1 before the first answer."""
    _found: list[list[KVCacheBlock]]
    """Those blocks, the last one first."""

    def longest(self, bound: int) -> int:
        """The first candidate, from the bound to the left, that lacks nothing."""
        per, behind = self._per, self._behind
        candidate = min(bound // self._block_size, len(self._hashes) - behind) // per * per
        while candidate > 0:
            missing = self._missing(candidate)
            if missing is None:
                return candidate * self._block_size
            candidate = (missing - behind) // per * per
        return 0

    def blocks(self, length: int) -> HitBlocks:
        """Nulls for what is not read, then what is."""
        num_blocks = length // self._block_size
        first = min(num_blocks, self._first_read(num_blocks))
        found = self._found[self._end - num_blocks : self._end - first] if num_blocks else []
        null = self._pool.null_block
        return tuple([[null] * first + [row[i] for row in reversed(found)] for i in range(len(self._group_ids))])

    def _missing(self, candidate: int) -> int | None:
        """The last block, by index, that a hit of so many blocks lacks; None if it lacks none."""
        end = candidate + self._behind
        if self._first < 0 or end <= self._first:
            self._first = self._end = end
            self._found = []
        get_cached_block, group_ids = self._pool.get_cached_block, self._group_ids
        for i in range(self._first - 1, self._first_read(candidate) - 1, -1):
            found = get_cached_block(self._hashes[i], group_ids)
            if found is None:
                return i
            self._found.append(found)
            self._first = i
        return None

    def _first_read(self, num_blocks: int) -> int:
        """Index of the first block that the query behind so many blocks reads, or `num_blocks` if it reads none."""
        return max(0, self._skipped(num_blocks * self._block_size)) // self._block_size


def longest_common_hit(searches: Sequence[HitSearch], bound: int) -> int:
    """The longest hit of at most `bound` tokens that is possible for all of them.

    Each in turn lowers the candidate to the longest hit that it can serve itself. That never passes over a hit that all
    can serve, and when none lowers the candidate any more, all can serve it.
    """
    before, length = -1, bound
    while length != before:
        before = length
        for search in searches:
            length = search.longest(length)
            if not length:
                return 0
    return length
