"""All groups of a model together: fan-out of calls, and the longest hit that every group can serve (core.md §9)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import lcm
from sys import maxsize
from typing import Any, NamedTuple

from ..hashing.block_hash import BlockHash
from ..hashing.block_hashing import BlockHashList, BlockHashListWithBlockSize
from ..hashing.extra_keys import CacheableRequest
from ..pool.block import KVCacheBlock
from ..pool.block_pool import BlockPool
from ..pool.metrics import KVCacheMetricsCollector
from ..specs.interface import FullAttentionSpec, KVCacheConfig, KVCacheSpec, SlidingWindowSpec
from .base import SingleTypeKVCacheManager
from .by_spec import get_manager_for_kv_cache_spec
from .hit_search import HitBlocks, HitSearch, HitTerms, longest_common_hit
from .mamba import MambaManager
from .overrides import AskedSearch, begin_tables, told_what_it_takes
from .steps import OneGroupSteps, RunningSteps, are_simple


class KVCacheCoordinator(ABC):
    """One manager per group over one pool.

    `scheduler_block_size` is what hits are aligned to, `hash_block_size` what one hash names, both in tokens.
    `retention_interval` (None, 0 or a multiple of the scheduler block size, in tokens) thins out what sliding-window
    groups register (core.md §8). AssertionError unless the scheduler block size is a multiple of the hash block size
    and of every group's; ValueError for any other retention interval or one without a sliding-window group.
    """

    _others_begin = False
    """Whether some manager begins tables in a way of its own."""
    _state_managers: Sequence[MambaManager]
    steps: RunningSteps
    """What is known of running requests; made once it is known what hits will look like."""

    def __init__(
        self,
        kv_cache_config: KVCacheConfig,
        max_model_len: int,
        max_num_batched_tokens: int,
        use_eagle: bool,
        enable_caching: bool,
        enable_kv_cache_events: bool,
        dcp_world_size: int,
        pcp_world_size: int,
        scheduler_block_size: int,
        hash_block_size: int,
        metrics_collector: KVCacheMetricsCollector | None = None,
        retention_interval: int | None = None,
    ) -> None:
        self.kv_cache_config = kv_cache_config
        self.max_model_len = max_model_len
        self.enable_caching = enable_caching
        self.scheduler_block_size = scheduler_block_size
        self.retention_interval = retention_interval
        self.block_pool = self._new_pool(
            kv_cache_config.num_blocks, enable_caching, hash_block_size, enable_kv_cache_events, metrics_collector
        )
        groups = kv_cache_config.kv_cache_groups
        self.eagle_group_ids = self._read_behind(use_eagle)
        """Groups in which drafts need the block behind a hit; a model that flags none means all."""
        self.single_type_managers: tuple[SingleTypeKVCacheManager, ...] = tuple(
            told_what_it_takes(
                self._new_manager(
                    group.kv_cache_spec,
                    max_num_batched_tokens,
                    max_model_len,
                    block_pool=self.block_pool,
                    enable_caching=enable_caching,
                    kv_cache_group_id=i,
                    scheduler_block_size=scheduler_block_size,
                    dcp_world_size=dcp_world_size,
                    pcp_world_size=pcp_world_size,
                )
            )
            for i, group in enumerate(groups)
        )
        self._state_managers = [manager for manager in self.single_type_managers if isinstance(manager, MambaManager)]
        self._skipping_managers = [manager for manager in self.single_type_managers if manager.may_skip]
        self.keeping_states = [manager for manager in self.single_type_managers if manager.keeps_states]
        if any(manager.begins_tables for manager in self.single_type_managers):
            self._others_begin = True
        block_sizes = [manager.block_size for manager in self.single_type_managers]
        if scheduler_block_size % lcm(hash_block_size, *block_sizes) != 0:
            raise AssertionError(
                f"scheduler_block_size {scheduler_block_size} is no multiple of the hash block size {hash_block_size} "
                f"and of the groups' block sizes {block_sizes}"
            )
        self._check_retention()
        self._counts_by_tokens = all(
            manager.is_ours and manager.counts_by_tokens for manager in self.single_type_managers
        )

    _new_pool: Callable[..., BlockPool] = BlockPool
    _new_manager: Callable[..., SingleTypeKVCacheManager] = staticmethod(get_manager_for_kv_cache_spec)

    def _hashed_sizes(self) -> list[int]:
        """Sizes of blocks that have to be whole hash blocks, in tokens."""
        return [manager.block_size for manager in self.single_type_managers]

    def _read_behind(self, use_eagle: bool) -> set[int]:
        groups = self.kv_cache_config.kv_cache_groups
        flagged = {i for i, group in enumerate(groups) if group.is_eagle_group}
        return flagged or (set(range(len(groups))) if use_eagle else set())

    def _check_retention(self) -> None:
        _validate_retention_interval(self.retention_interval, self.scheduler_block_size, self.kv_cache_config)

    def _registers_quietly(self) -> bool:
        """Whether running requests register every block that is full, and nobody is told, or of one group alone that
        keeps all: events then come in this order, too, and none tells of null blocks."""
        alone = len(self.single_type_managers) == 1 and not (self.keeping_states or self._skipping_managers)
        return self.retention_interval is None and (alone or not self.block_pool.enable_kv_cache_events)

    def running_steps(self, registers_at: int | None) -> RunningSteps:
        """Steps that register blocks at multiples of so many tokens; None for those of each group."""
        managers, registers = self.single_type_managers, (registers_at, self._registers_quietly())
        kind = OneGroupSteps if are_simple(managers, registers) else RunningSteps
        return kind(managers, self.block_pool, self.max_model_len, registers, self._register)

    def _register(self, request: CacheableRequest, num_computed_tokens: int) -> None:
        self.cache_blocks(request, num_computed_tokens)

    def most_blocks_to_allocate(self, num_tokens: int, new_computed_blocks: Sequence[Sequence[KVCacheBlock]]) -> int:
        """At least as many as `get_num_blocks_to_allocate` says, whatever the tables are; looks at no block."""
        if not self._counts_by_tokens:
            return maxsize
        return sum([-(-num_tokens // manager.block_size) for manager in self.single_type_managers]) + sum(
            map(len, new_computed_blocks)
        )

    def least_blocks_to_allocate(
        self, request_id: str, num_tokens: int, new_computed_blocks: Sequence[Sequence[KVCacheBlock]]
    ) -> int:
        """At most as many as `get_num_blocks_to_allocate` says, and known at once: a full pool refuses many steps."""
        return 0

    def get_num_blocks_to_allocate(
        self,
        request_id: str,
        num_tokens: int,
        new_computed_blocks: Sequence[Sequence[KVCacheBlock]],
        num_encoder_tokens: int,
        total_computed_tokens: int,
        num_tokens_main_model: int,
        apply_admission_cap: bool = False,
        num_settled_tokens: int | None = None,
        num_lookahead_tokens: int = 0,
    ) -> int:
        """How many blocks the allocation takes from the free queue, over all groups. Lengths are in tokens.

        See `SingleTypeKVCacheManager.get_num_blocks_to_allocate` for what the admission cap and the last two change.
        """
        demand = 0
        for manager, hit in zip(self.single_type_managers, new_computed_blocks, strict=True):
            if manager.sized_by_encoder:
                demand += manager.get_num_blocks_to_allocate(
                    request_id, num_encoder_tokens, (), 0, num_encoder_tokens, apply_admission_cap
                )
            else:
                demand += manager.get_num_blocks_to_allocate(
                    request_id,
                    num_tokens,
                    hit,
                    total_computed_tokens,
                    num_tokens_main_model,
                    apply_admission_cap,
                    num_settled_tokens,
                    num_lookahead_tokens,
                )
        return demand

    def allocate_new_computed_blocks(
        self,
        request_id: str,
        new_computed_blocks: Sequence[Sequence[KVCacheBlock]],
        num_local_computed_tokens: int,
        num_external_computed_tokens: int,
        num_settled_tokens: int | None = None,
    ) -> None:
        """Begin the tables of a request with its hit and room for external tokens; a running one is left alone.

        `num_settled_tokens` of the computed ones cannot be taken back, all where it is None. All groups hold their hits
        before any takes a block for external tokens: that block could be one of a hit.
        """
        if self._others_begin:
            computed = num_local_computed_tokens, num_external_computed_tokens
            managers, pool = self.single_type_managers, self.block_pool
            begin_tables(managers, new_computed_blocks, pool, request_id, computed, num_settled_tokens)
            return
        missing = [
            manager.attach_computed_blocks(
                request_id, hit, num_local_computed_tokens, num_external_computed_tokens, num_settled_tokens
            )
            for manager, hit in zip(self.single_type_managers, new_computed_blocks, strict=True)
        ]
        for manager, count in zip(self.single_type_managers, missing, strict=True):
            manager.allocate_external_blocks(request_id, count)

    def allocate_new_blocks(
        self,
        request_id: str,
        num_tokens: int,
        num_tokens_main_model: int,
        num_encoder_tokens: int = 0,
        total_computed_tokens: int | None = None,
    ) -> HitBlocks:
        """Extend the tables to the tokens that need a slot. Returns the added blocks per group."""
        return tuple(
            [
                manager.allocate_new_blocks(request_id, num_encoder_tokens, num_encoder_tokens)
                if manager.sized_by_encoder
                else manager.allocate_new_blocks(request_id, num_tokens, num_tokens_main_model, total_computed_tokens)
                for manager in self.single_type_managers
            ]
        )

    def cache_blocks(self, request: CacheableRequest, num_computed_tokens: int) -> None:
        """Register the full blocks of the first `num_computed_tokens` tokens in every group."""
        for manager in self.single_type_managers:
            manager.cache_blocks(request, num_computed_tokens, self.retention_interval)

    def renew(self, request: CacheableRequest) -> None:
        """What a lookup finds for the states of a request that is about to end counts as used now."""
        for manager in self._state_managers if self.enable_caching else ():
            manager.renew(self.block_pool.hashes_at(request, manager.block_size), request.request_id)

    def free(self, request_id: str) -> None:
        """Give back all blocks of a request."""
        self.steps.forget(request_id)
        for manager in self.single_type_managers:
            manager.free(request_id)

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """Per group, how many leading blocks of this request every request holds."""
        return [manager.get_num_common_prefix_blocks(running_request_id) for manager in self.single_type_managers]

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        """Free the blocks that no query from the computed tokens on attends to; none of these may be taken back."""
        for manager in self._skipping_managers:
            manager.remove_skipped_blocks(request_id, total_computed_tokens)

    def get_blocks(self, request_id: str) -> HitBlocks:
        """The table of a request in every group; empty for an unknown one."""
        return tuple(manager.req_to_blocks.get(request_id) or [] for manager in self.single_type_managers)

    @abstractmethod
    def find_longest_cache_hit(self, block_hashes: list[BlockHash], max_cache_hit_length: int) -> tuple[HitBlocks, int]:
        """The longest hit of at most so many tokens: blocks per group, and its length in tokens. Changes nothing."""

    def new_step_starts(self) -> None:
        """A scheduler step begins."""
        for manager in self.single_type_managers:
            manager.new_step_starts()


class KVCacheCoordinatorNoPrefixCache(KVCacheCoordinator):
    """Caching is off: any number of groups, none included, and never a hit."""

    def __init__(
        self,
        kv_cache_config: KVCacheConfig,
        max_model_len: int,
        max_num_batched_tokens: int,
        use_eagle: bool,
        enable_kv_cache_events: bool,
        dcp_world_size: int,
        pcp_world_size: int,
        scheduler_block_size: int,
        hash_block_size: int,
        metrics_collector: KVCacheMetricsCollector | None = None,
        retention_interval: int | None = None,
    ) -> None:
        super().__init__(
            kv_cache_config,
            max_model_len,
            max_num_batched_tokens,
            use_eagle,
            False,
            enable_kv_cache_events,
            dcp_world_size,
            pcp_world_size,
            scheduler_block_size,
            hash_block_size,
            metrics_collector,
            retention_interval,
        )
        self.num_single_type_manager = len(self.single_type_managers)
        self.steps = self.running_steps(None)

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """Always 0 in every group."""
        return [0] * self.num_single_type_manager

    def find_longest_cache_hit(self, block_hashes: list[BlockHash], max_cache_hit_length: int) -> tuple[HitBlocks, int]:
        """Always empty."""
        return tuple([] for _ in self.single_type_managers), 0


class UnitaryKVCacheCoordinator(KVCacheCoordinator):
    """One group. AssertionError unless one hash names one block."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        (manager,) = self.single_type_managers
        self.kv_cache_spec = manager.kv_cache_spec
        self.block_size = manager.block_size
        self.dcp_world_size = manager.dcp_world_size
        self.pcp_world_size = manager.pcp_world_size
        # Hits of a single group end at its own blocks, whatever the scheduler counts in.
        use_eagle = bool(self.eagle_group_ids) and manager.drafts_read_behind
        manager.expect_hits(self.block_size, use_eagle, self.block_size if use_eagle else 1)
        self.steps = self.running_steps(None)
        ranks = self.dcp_world_size * self.pcp_world_size
        self._terms = manager.hit_terms((0,), self.block_pool, self.kv_cache_spec, use_eagle, self.block_size, ranks)
        hash_block_size = self.block_pool.hash_block_size
        if self.enable_caching and hash_block_size != self.block_size:
            raise AssertionError(
                f"hash_block_size {hash_block_size} differs from the only group's block size {self.block_size}: "
                "use that"
            )

    def find_longest_cache_hit(self, block_hashes: list[BlockHash], max_cache_hit_length: int) -> tuple[HitBlocks, int]:
        """The longest hit of the group."""
        search = _search(type(self.single_type_managers[0]), self._terms, block_hashes)
        length = search.longest(max_cache_hit_length)
        return (search.blocks(length) if length else ([],)), length


class SpecGroup(NamedTuple):
    """Groups with equal specs, which are looked up together; one flagged member flags them all."""

    spec: KVCacheSpec
    group_ids: list[int]
    manager_cls: type[SingleTypeKVCacheManager]
    use_eagle: bool
    terms: HitTerms


class HybridKVCacheCoordinator(KVCacheCoordinator):
    """Several groups with at least two different specs.

    AssertionError with context parallelism, or unless every block size is a multiple of the hash block size.
    """

    _differ = True
    """Whether groups of one spec alone are refused."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.hash_block_size = hash_block_size = self.block_pool.hash_block_size
        ranks = {manager.dcp_world_size * manager.pcp_world_size for manager in self.single_type_managers}
        if not ranks <= {1}:
            raise AssertionError(f"several groups do not go with context parallelism over {ranks} ranks: use 1")
        block_sizes = self._hashed_sizes()
        if any(size % hash_block_size for size in block_sizes):
            raise AssertionError(
                f"block sizes {block_sizes} are not all multiples of hash_block_size {hash_block_size}"
            )
        self.attention_groups: list[SpecGroup] = []
        self.verify_and_split_kv_cache_groups()
        self.steps = self.running_steps(self.scheduler_block_size)

    def verify_and_split_kv_cache_groups(self) -> None:
        """Find the distinct specs, full attention first: its search bounds the others' at little cost."""
        ids_by_spec: list[tuple[KVCacheSpec, object, list[int]]] = []
        for i, group in enumerate(self.kv_cache_config.kv_cache_groups):
            spec, told = group.kv_cache_spec, getattr(group, "told", None)
            known = [ids for one, other, ids in ids_by_spec if one == spec and other == told]
            if known:
                known[0].append(i)
            else:
                ids_by_spec.append((spec, told, [i]))
        if len(ids_by_spec) <= 1 and self._differ:
            raise AssertionError(
                f"{len(ids_by_spec)} distinct specs: a hybrid model has at least two; put equal layers into one group"
            )
        ids_by_spec.sort(key=lambda item: not isinstance(item[0], FullAttentionSpec))
        self.attention_groups = []
        for spec, _, ids in ids_by_spec:
            manager_cls = type(self.single_type_managers[ids[0]])
            use_eagle = manager_cls.drafts_read_behind and not self.eagle_group_ids.isdisjoint(ids)
            terms = manager_cls.hit_terms(ids, self.block_pool, spec, use_eagle, self.scheduler_block_size)
            self.attention_groups.append(SpecGroup(spec, ids, manager_cls, use_eagle, terms))
        behind = max([alike.spec.block_size for alike in self.attention_groups if alike.use_eagle], default=1)
        for alike in self.attention_groups:
            for i in alike.group_ids:
                self.single_type_managers[i].expect_hits(self.scheduler_block_size, alike.use_eagle, behind)

    def cache_blocks(self, request: CacheableRequest, num_computed_tokens: int) -> None:
        """Register up to the last place where a hit can end; where drafts need it, the block behind, too."""
        aligned = num_computed_tokens // self.scheduler_block_size * self.scheduler_block_size
        for manager in self.single_type_managers:
            reach = aligned
            if manager.use_eagle and aligned > 0:
                reach = min(num_computed_tokens, aligned + manager.block_size)
            manager.cache_blocks(request, reach, self.retention_interval)

    def find_longest_cache_hit(self, block_hashes: list[BlockHash], max_cache_hit_length: int) -> tuple[HitBlocks, int]:
        """The longest length that all specs can serve."""
        searches = [self.search(group, block_hashes) for group in self.attention_groups]
        length = longest_common_hit(searches, max_cache_hit_length)
        hits: list[list[KVCacheBlock]] = [[] for _ in self.single_type_managers]
        if length:
            for group, search in zip(self.attention_groups, searches, strict=True):
                for i, blocks in zip(group.group_ids, search.blocks(length), strict=True):
                    hits[i] = blocks
        return tuple(hits), length

    def search(self, group: SpecGroup, block_hashes: list[BlockHash]) -> HitSearch:
        """The search of the groups with one spec."""
        hashes: BlockHashList = block_hashes
        if group.spec.block_size != self.hash_block_size:
            hashes = BlockHashListWithBlockSize(block_hashes, self.hash_block_size, group.spec.block_size)
        return _search(group.manager_cls, group.terms, hashes)


def _search(kind: type[SingleTypeKVCacheManager], terms: HitTerms, hashes: BlockHashList) -> HitSearch:
    """A lookup by the managers' own search, or by what somebody has written instead."""
    return AskedSearch(terms, hashes, kind.find_longest_cache_hit) if kind.finds_hits else kind.search(terms, hashes)


def get_kv_cache_coordinator(
    kv_cache_config: KVCacheConfig,
    max_model_len: int,
    max_num_batched_tokens: int,
    use_eagle: bool,
    enable_caching: bool,
    enable_kv_cache_events: bool,
    dcp_world_size: int,
    pcp_world_size: int,
    scheduler_block_size: int,
    hash_block_size: int,
    metrics_collector: KVCacheMetricsCollector | None = None,
    retention_interval: int | None = None,
) -> KVCacheCoordinator:
    """The coordinator for the configuration: without caching, for one group, or for several."""
    arguments: dict[str, Any] = {
        "kv_cache_config": kv_cache_config,
        "max_model_len": max_model_len,
        "max_num_batched_tokens": max_num_batched_tokens,
        "use_eagle": use_eagle,
        "enable_kv_cache_events": enable_kv_cache_events,
        "dcp_world_size": dcp_world_size,
        "pcp_world_size": pcp_world_size,
        "scheduler_block_size": scheduler_block_size,
        "hash_block_size": hash_block_size,
        "metrics_collector": metrics_collector,
        "retention_interval": retention_interval,
    }
    if not enable_caching:
        return KVCacheCoordinatorNoPrefixCache(**arguments)
    if len(kv_cache_config.kv_cache_groups) == 1:
        return UnitaryKVCacheCoordinator(enable_caching=True, **arguments)
    return HybridKVCacheCoordinator(enable_caching=True, **arguments)


def _validate_retention_interval(interval: int | None, scheduler_block_size: int, config: KVCacheConfig) -> None:
    if interval is None:
        return
    if not any(isinstance(group.kv_cache_spec, SlidingWindowSpec) for group in config.kv_cache_groups):
        raise ValueError(f"retention_interval {interval} without a sliding-window group: leave it at None")
    if interval < 0 or interval % scheduler_block_size:
        raise ValueError(
            f"retention_interval {interval} must be non-negative and a multiple of scheduler_block_size "
            f"{scheduler_block_size}"
        )
