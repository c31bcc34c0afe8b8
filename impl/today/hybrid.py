"""Several groups together by the rule of today, and which coordinator serves a configuration."""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

from ..hashing.block_hash import BlockHash
from ..hashing.block_hashing import BlockHashList
from ..managers.coordinator import HybridKVCacheCoordinator, SpecGroup
from ..managers.hit_search import HitBlocks, HitSearch, PrefixSearch, longest_common_hit
from ..managers.steps import RunningSteps
from ..pool.block import KVCacheBlock
from ..specs.interface import FullAttentionSpec
from .coordinator import Found, NoPrefixCacheToday, TodayCoordinator, UnitaryToday
from .hashing import LastHashes
from .rings import RingManager
from .search import FinePrefixSearch, FineStateSearch
from .states import MambaToday


class HybridToday(TodayCoordinator, HybridKVCacheCoordinator):
    """Several groups, which may be of one spec."""

    _differ = False
    _reads_on = False
    """Whether drafts need what is behind a hit."""

    def verify_and_split_kv_cache_groups(self) -> None:
        """As before; and hits end inside blocks where states are kept for more tokens than a hash block, if all other
        groups can look up so."""
        unit, managers = self.hash_block_size, self.single_type_managers
        states = [manager for manager in managers if isinstance(manager, MambaToday)]
        inside = any(manager.moves_blocks and manager.block_size > unit for manager in states)
        narrow = [
            manager.block_size
            for manager in managers
            if not isinstance(manager, MambaToday | RingManager)
            and not isinstance(manager.kv_cache_spec, FullAttentionSpec)
        ]
        self.enable_partial_hash_hits = inside and set(narrow) <= {unit}
        super().verify_and_split_kv_cache_groups()
        self.attention_groups = [one for one in self.attention_groups if not issubclass(one.manager_cls, RingManager)]
        if not self.attention_groups:
            raise AssertionError("several groups of rings alone: nothing of them can be cached, switch caching off")
        self._reads_on = any(group.use_eagle for group in self.attention_groups)
        self._keep_before_junctions()
        self._fold()
        first = self.attention_groups[0].group_ids[0]
        one = managers[first]
        if one.is_ours and one.search_type is PrefixSearch:
            if self.enable_partial_hash_hits:
                self._from_first, self._first_hashes = first, one.block_size // unit
            elif one.block_size == unit:
                self._from_first = first
        if not self.enable_partial_hash_hits:
            return
        for at, alike in enumerate(self.attention_groups):
            read_on = alike.use_eagle
            terms = alike.manager_cls.hit_terms(alike.group_ids, self.block_pool, alike.spec, read_on, unit)
            self.attention_groups[at] = alike._replace(terms=terms)
            for i in alike.group_ids:
                managers[i].expect_hits(unit, read_on, unit if self._reads_on else 1)

    def _keep_before_junctions(self) -> None:
        """Who goes on otherwise right behind a junction has nothing of his own there for drafts: what the first group
        does not need behind a hit is missing."""
        behind = [group.spec.block_size if group.use_eagle else 0 for group in self.attention_groups]
        for manager in self.single_type_managers if max(behind) > behind[0] else ():
            manager.lacking_at_junction = max(behind) - behind[0]

    def running_steps(self, registers_at: int | None) -> RunningSteps:
        """As before; where hits end inside blocks each group registers its blocks when they are full."""
        return super().running_steps(None if self.enable_partial_hash_hits else registers_at)

    @property
    def hit_alignment(self) -> int:
        """Hash blocks where hits end inside blocks, else the scheduler's."""
        return self.hash_block_size if self.enable_partial_hash_hits else self.scheduler_block_size

    def find_hit(self, block_hashes: list[BlockHash], most_tokens: int) -> Found:
        """The longest length that all specs can serve, and what the first of them, full attention if there is any,
        could have served."""
        hashes = self._looked_up(block_hashes, most_tokens)
        first, *others = self.attention_groups
        widest = self.search(first, hashes)
        shared = widest.longest(most_tokens)
        if not shared:
            return Found(tuple([[] for _ in self.single_type_managers]), 0)
        searches = [widest, *[self.search(group, hashes) for group in others]]
        length = longest_common_hit(searches, shared, agreed=1)
        return Found(self._rows(searches, repeat(length)), length, shared if shared > length else 0)

    def find_for_connector(self, block_hashes: list[BlockHash], most_tokens: int) -> Found:
        """The longest length that all specs but states can serve, with the states of up to there."""
        states = [group.manager_cls.keeps_states for group in self.attention_groups]
        if not any(states) or not isinstance(self.attention_groups[0].spec, FullAttentionSpec):
            return self.find_hit(block_hashes, most_tokens)
        searches = self._searches(block_hashes, most_tokens)
        shared = searches[0].longest(most_tokens)
        others = [search for search, state in zip(searches, states, strict=True) if not state]
        length = longest_common_hit(others, shared) if shared else 0
        ends = [search.longest(length) if state else length for search, state in zip(searches, states, strict=True)]
        return Found(self._rows(searches, ends), length, shared if shared > length else 0, min(ends) < length)

    def _searches(self, block_hashes: list[BlockHash], most_tokens: int) -> list[HitSearch]:
        hashes = self._looked_up(block_hashes, most_tokens)
        return [self.search(group, hashes) for group in self.attention_groups]

    def _looked_up(self, block_hashes: list[BlockHash], most_tokens: int) -> list[BlockHash]:
        """The hashes of so many tokens; where whole blocks alone are looked for, all, as a search counts these."""
        if not self.enable_partial_hash_hits or self._reads_on:
            return block_hashes
        return block_hashes[: most_tokens // self.hash_block_size]

    def _rows(self, searches: Sequence[HitSearch], lengths: Iterable[int]) -> HitBlocks:
        """By group of layers, the blocks of so many tokens that each search has found, where they differ."""
        hits: list[list[KVCacheBlock]] = [[] for _ in self.single_type_managers]
        for alike, search, length in zip(self.attention_groups, searches, lengths, strict=False):
            if length:
                for i, blocks in zip(alike.group_ids, search.blocks(length), strict=True):
                    hits[i] = blocks
        return tuple(hits)

    def search(self, group: SpecGroup, block_hashes: list[BlockHash]) -> HitSearch:
        """The search of the groups with one spec."""
        terms, kind = group.terms, group.manager_cls
        if self.enable_partial_hash_hits and kind.keeps_states:
            return FineStateSearch(terms, block_hashes)
        if self.enable_partial_hash_hits and isinstance(group.spec, FullAttentionSpec):
            return FinePrefixSearch(terms, block_hashes)
        hashes: BlockHashList = block_hashes
        if terms.block_size != self.hash_block_size:
            hashes = LastHashes(block_hashes, self.hash_block_size, terms.block_size)
        return kind.search(terms, hashes)


def coordinator_of_today(enable_caching: bool, num_groups: int, **named: Any) -> TodayCoordinator:
    """The coordinator for the configuration: without caching, for one group, or for several."""
    if not enable_caching:
        return NoPrefixCacheToday(**named)
    return (UnitaryToday if num_groups == 1 else HybridToday)(enable_caching=True, **named)
