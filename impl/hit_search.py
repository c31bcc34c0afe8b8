"""The longest hit: the largest boundary that one type can serve, and the largest that all types can (core.md §9).

A hit of `L` tokens is possible in a group if every block that the query at position `L` reads is registered, and, where
drafts need it, the block behind as well, that of tokens `L .. L + b - 1`. `L` is a multiple of the alignment; 0 is
always possible. A search is asked about ever smaller bounds, and looks no block up twice.
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
    blind: int
    """At every multiple of so many blocks, a multiple of `per`, a hit needs nothing; 0 if that is so at 0 alone."""


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


class PrefixSearch(HitSearch):
    """For queries that read all before them: one run of registered blocks from the left answers every bound."""

    _run: list[list[KVCacheBlock]] | None = None

    def longest(self, bound: int) -> int:
        """The run less the block behind, within the bound, cut to the alignment."""
        terms, run = self._terms, self._run
        most = bound // terms.block_size
        if run is None:
            run = self._run = []
            get_cached_block, group_ids = terms.pool.get_cached_block, terms.group_ids
            for block_hash in islice(self._hashes, most + terms.behind):
                found = get_cached_block(block_hash, group_ids)
                if found is None:
                    break
                run.append(found)
        return max(0, min(most, len(run) - terms.behind)) // terms.per * terms.per * terms.block_size

    def blocks(self, length: int) -> HitBlocks:
        """The run up to there."""
        return _of_each_group((self._run or [])[: length // self._terms.block_size])


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
        candidate = min(bound // terms.block_size, len(hashes) - behind) // per * per
        least = candidate // terms.blind * terms.blind if terms.blind else 0
        while candidate > least:
            if candidate + behind <= self._first:
                # Nothing is known of its last block: go on to a candidate that has this one at least.
                for i in range(candidate + behind - 1, least + behind - 1, -per):
                    found = get_cached_block(hashes[i], group_ids)
                    if found is not None:
                        break
                else:
                    break
                candidate = i + 1 - behind
                self._first, self._end, self._found = i, i + 1, [found]
            for i in range(self._first - 1, self._first_read(candidate) - 1, -1):
                found = get_cached_block(hashes[i], group_ids)
                if found is None:
                    candidate = (i - behind) // per * per
                    break
                self._found.append(found)
                self._first = i
            else:
                return candidate * terms.block_size
        return least * terms.block_size

    def blocks(self, length: int) -> HitBlocks:
        """Nulls for what is not read, then what is."""
        num_blocks = length // self._terms.block_size
        first = min(num_blocks, self._first_read(num_blocks))
        nulls = [self._terms.pool.null_block] * first
        if first == num_blocks:
            return tuple([nulls.copy() for _ in self._terms.group_ids])
        found = self._found[self._end - num_blocks : self._end - first]
        found.reverse()
        return tuple([nulls + blocks for blocks in _of_each_group(found)])

    def _first_read(self, num_blocks: int) -> int:
        """Index of the first block that the query behind so many blocks reads, or `num_blocks` if it reads none."""
        return max(0, self._terms.skipped(num_blocks * self._terms.block_size)) // self._terms.block_size


def _of_each_group(found: list[list[KVCacheBlock]]) -> HitBlocks:
    return tuple(map(list, zip(*found, strict=True)))


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
