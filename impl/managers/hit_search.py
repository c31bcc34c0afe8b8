"""The longest hit: the largest boundary that one type can serve, and the largest that all types can (core.md §9).

A hit of `L` tokens is possible in a group if every block that the query at position `L` reads is registered, and, where
drafts need it, the block behind as well, that of tokens `L .. L + b - 1`. `L` is a multiple of the alignment; 0 is
always possible. A search is asked about ever smaller bounds, and remembers what it has seen.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from sys import maxsize
from typing import Any, TypeAlias

from ..hashing.block_hashing import BlockHashList
from ..pool.block import Hit, KVCacheBlock, TailHit
from ..pool.block_pool import BlockPool

HitBlocks: TypeAlias = tuple[list[KVCacheBlock], ...]
"""One list per group asked; entry `i` is the block of tokens `i*b .. (i+1)*b - 1`, null where none is read."""


@dataclass(slots=True)
class HitTerms:
    """What a hit needs in groups of one spec; a block counts as registered if it is so in all of them."""

    group_ids: Sequence[int]
    pool: BlockPool
    spec: Any
    block_size: int
    """Of a table's entries, in tokens, over all ranks."""
    ranks: int
    """Context-parallel ranks that a block spreads over."""
    per: int
    """Blocks in an alignment."""
    behind: int
    """1 where drafts need the block behind a hit, else 0."""
    need: int | None
    """Blocks in a row before a boundary that its query reads, and the one behind; None where it depends on more."""

    def registered(self, hashes: BlockHashList, end: int, first: int = 0) -> list[list[KVCacheBlock]]:
        """In each group the blocks under the hashes `first .. end - 1`, up to the first that some group lacks."""
        prefix = self.pool.cached_block_hash_to_block.prefix
        rows: list[list[KVCacheBlock]] = []
        for group in self.group_ids:
            rows.append(prefix(group, hashes, end, first))
            end = first + len(rows[-1])
        return [row[: end - first] for row in rows] if len(rows) > 1 else rows


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

    def _behind_nulls(self, num_nulls: int, rows: Iterable[list[KVCacheBlock]]) -> HitBlocks:
        nulls = [self._terms.pool.null_block] * num_nulls
        return tuple([TailHit(nulls + row) for row in rows])


class PrefixSearch(HitSearch):
    """For queries that read all before them: one run of registered blocks from the left answers every bound."""

    _rows: list[list[KVCacheBlock]] | None = None

    def longest(self, bound: int) -> int:
        """The run less the block behind, within the bound, cut to the alignment."""
        terms = self._terms
        most, per, behind = bound // terms.block_size, terms.per, terms.behind
        if most < per:
            return 0
        if self._rows is None:
            self._rows = terms.registered(self._hashes, most + behind)
        return max(0, min(most, len(self._rows[0]) - behind)) // per * per * terms.block_size

    def blocks(self, length: int) -> HitBlocks:
        """The run up to there."""
        end = length // self._terms.block_size
        return tuple([Hit(row if len(row) == end else row[:end]) for row in self._rows or ()])


class ChunkSearch(HitSearch):
    """For queries that read their own chunk: in the last chunk first, a run of registered blocks from its beginning."""

    _first = -1
    """Index of the block in which the chunk begins."""
    _rows: list[list[KVCacheBlock]]

    def longest(self, bound: int) -> int:
        """The end of the run, cut to the alignment, if that lies in the chunk; else the same in the chunk before."""
        terms = self._terms
        size, per, behind = terms.block_size, terms.per, terms.behind
        chunk: int = terms.spec.attention_chunk_size
        most = min(bound // size, len(self._hashes) - behind)
        while most >= per:
            candidate = most // per * per
            start = before_chunk(candidate * size, chunk)
            first = start // size
            if first != self._first:
                self._first, self._rows = first, terms.registered(self._hashes, candidate + behind, first)
            candidate = min(candidate, first + len(self._rows[0]) - behind) // per * per
            if candidate * size >= start:
                return candidate * size
            most = (start - 1) // size
        return 0

    def blocks(self, length: int) -> HitBlocks:
        """Nulls for the chunks before, then the run up to there."""
        end = length // self._terms.block_size - self._first
        return self._behind_nulls(self._first, [row[:end] for row in self._rows])


class TailSearch(HitSearch):
    """For queries that read the last blocks before them, always as many: looks blocks up from the right to the left.

    Where a boundary lacks block `i`, all boundaries between them lack it too, as they reach at least as far back. So
    the next candidate is the last boundary that ends, with the block behind it, before block `i`.
    """

    _first = _end = maxsize
    """Blocks `_first .. _end - 1` are registered."""
    _rows: list[list[KVCacheBlock]]
    """In each group those blocks."""

    def longest(self, bound: int) -> int:
        """The first candidate, from the bound to the left, that lacks nothing."""
        terms, hashes, need = self._terms, self._hashes, self._terms.need or 0
        per, behind = terms.per, terms.behind
        most = min(bound // terms.block_size, len(hashes) - behind)
        while most >= per:
            candidate = most // per * per
            if not need or (self._first <= max(0, candidate + behind - need) and candidate + behind <= self._end):
                return candidate * terms.block_size
            last = self._last_registered(candidate + behind - 1)
            if last is None:
                return 0
            first = max(0, last + 1 - need)
            rows = [terms.pool.cached_block_hash_to_block.suffix(g, hashes, first, last + 1) for g in terms.group_ids]
            length = min(map(len, rows))
            if length == last + 1 - first:
                self._first, self._end, self._rows = first, last + 1, rows
                return (last + 1 - behind) * terms.block_size
            most = last - length - behind
        return 0

    def _last_registered(self, last: int) -> int | None:
        """Of block `last` and those whole alignments before it, the last one that every group has."""
        terms, hashes = self._terms, self._hashes
        groups = terms.pool.cached_block_hash_to_block.groups
        one, *others = [groups[group] for group in terms.group_ids]
        for i in range(last, terms.behind - 1, -terms.per):
            if hashes[i] in one and (not others or all(hashes[i] in other for other in others)):
                return i
        return None

    def blocks(self, length: int) -> HitBlocks:
        """Nulls for what is not read, then what is."""
        terms = self._terms
        end = length // terms.block_size
        first = min(max(0, end + terms.behind - (terms.need or 0)), end)
        if first == end:
            return self._behind_nulls(end, [[] for _ in terms.group_ids])
        return self._behind_nulls(first, [row[first - self._first : end - self._first] for row in self._rows])


def before_chunk(query: int, chunk: int) -> int:
    """How many leading tokens lie before the chunk of the query at a position."""
    return query // chunk * chunk


def longest_common_hit(searches: Sequence[HitSearch], bound: int, agreed: int = 0) -> int:
    """The longest hit of at most `bound` tokens that is possible for all of them; the first `agreed` of these have said
    already that the bound is for them.

    Each in turn lowers the candidate to the longest hit that it can serve itself, until all have agreed to one. No hit
    that all can serve is passed over on the way.
    """
    length = bound
    for search in islice(cycle(searches), agreed, None):
        longest = search.longest(length)
        agreed = agreed + 1 if longest == length else 1
        length = longest
        if agreed >= len(searches) or not length:
            break
    return length
