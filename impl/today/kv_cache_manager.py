"""The core of today as the scheduler sees it, under the interface of vLLM 0.33."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..hashing.extra_keys import CacheableRequest
from ..managers.kv_cache_manager import KVCacheBlocks, KVCacheManager
from ..pool.block import KVCacheBlock, ids_of
from ..pool.metrics import KVCacheMetricsCollector
from ..specs.base import cdiv
from ..specs.interface import KVCacheConfig
from .block_pool import TodayPool
from .coordinator import Found, TodayCoordinator
from .hybrid import coordinator_of_today
from .managers import ByNames
from .request import RequestStatus, TodayRequest
from .rings import RingManager
from .states import MambaToday

_OF_A_COORDINATOR = (
    *("kv_cache_config", "max_model_len", "max_num_batched_tokens", "use_eagle", "enable_caching"),
    *("enable_kv_cache_events", "dcp_world_size", "pcp_world_size", "scheduler_block_size", "hash_block_size"),
    *("metrics_collector", "retention_interval"),
)
"""What a coordinator is given, in this order."""
_READS_OWN = not __file__.endswith(".py")
"""Whether this is the compiled build, which reads the fields of its own requests at no cost."""
_OWN: object = TodayRequest


@dataclass
class TodayConfig(KVCacheConfig):
    """As before, and how much of the cached windows and states is kept."""

    prefix_cache_retention_interval: int | None = None
    """In tokens (docs/reference/today.md); None keeps all that a hit can use."""


@dataclass(frozen=True, slots=True)
class KVCacheBlockCopy:
    """A block whose content is to be copied into another one before the step runs."""

    src_block_id: int
    dst_block_id: int


class TodayManager(KVCacheManager):
    """As by the older rule, with what is new.

    `max_in_flight_tokens` is the most tokens of a request in steps that run. With `num_hash_lookahead_tokens` the names
    of blocks cover so many tokens behind them; give the block hasher the same number. `num_prefill_lookahead` draft
    models follow each other: names look ahead as far at least, and windows keep what is prefilled again
    (`extra_retained_tokens` of their specs). `watermark` is the share of the blocks that stays free when a request is
    admitted while others run. With `use_eagle`, or groups that are flagged, drafts need what is behind a hit, unless
    names look ahead.
    """

    coordinator: TodayCoordinator
    block_pool: TodayPool

    def __init__(
        self,
        kv_cache_config: KVCacheConfig,
        max_model_len: int,
        scheduler_block_size: int,
        hash_block_size: int,
        max_in_flight_tokens: int | None = None,
        enable_caching: bool = True,
        use_eagle: bool = False,
        num_hash_lookahead_tokens: int = 0,
        num_prefill_lookahead: int = 0,
        log_stats: bool = False,
        enable_kv_cache_events: bool = False,
        dcp_world_size: int = 1,
        pcp_world_size: int = 1,
        metrics_collector: KVCacheMetricsCollector | None = None,
        watermark: float = 0.0,
        enable_mamba_shared_prefix_checkpoint: bool = False,
    ) -> None:
        chained = num_prefill_lookahead > 1
        if chained and enable_caching:
            _check_chain(kv_cache_config, num_prefill_lookahead, num_hash_lookahead_tokens, scheduler_block_size)
        self._ahead, self._junctions = num_hash_lookahead_tokens, enable_mamba_shared_prefix_checkpoint and not chained
        super().__init__(
            kv_cache_config,
            max_model_len,
            scheduler_block_size,
            hash_block_size,
            max_in_flight_tokens,
            enable_caching,
            use_eagle,
            log_stats,
            enable_kv_cache_events,
            dcp_world_size,
            pcp_world_size,
            metrics_collector,
            getattr(kv_cache_config, "prefix_cache_retention_interval", None),
        )
        self.watermark_blocks = int(watermark * kv_cache_config.num_blocks)

    def _new_coordinator(self, *given: Any) -> TodayCoordinator:
        named = dict(zip(_OF_A_COORDINATOR, given, strict=True))
        named |= {"num_hash_lookahead_tokens": self._ahead, "names_junctions": self._junctions}
        return coordinator_of_today(named.pop("enable_caching"), len(given[0].kv_cache_groups), **named)

    # Lookups.

    def get_computed_blocks(  # type: ignore[override]
        self, request: CacheableRequest, max_cache_hit_length: int | None = None
    ) -> tuple[KVCacheBlocks, int, int]:
        """The longest cached prefix, of at most so many tokens, its length, and up to where others share the prefix if
        the hit ends before; else 0. It counts in the statistics when the request is admitted."""
        if (
            not self.enable_caching
            or request.skip_reading_prefix_cache
            or self.coordinator.finds_nothing(request.block_hashes)
        ):
            return self.empty_kv_cache_blocks, 0, 0
        found = self._find(request, max_cache_hit_length)
        blocks = KVCacheBlocks(found.blocks) if found.tokens else self.empty_kv_cache_blocks
        return blocks, found.tokens, found.boundary

    def _looks_up(self, request: CacheableRequest) -> bool:
        return self.enable_caching and not request.skip_reading_prefix_cache

    def get_computed_blocks_for_connector(
        self, request: CacheableRequest, max_cache_hit_length: int | None = None
    ) -> tuple[KVCacheBlocks, int, int, bool]:
        """The same for a request whose other tokens a connector may bring, and whether states end before the hit: then
        tokens from outside must follow, or the lookup is made again without a connector."""
        if not self._looks_up(request):
            return self.empty_kv_cache_blocks, 0, 0, False
        found = self._find(request, max_cache_hit_length, for_connector=True)
        return self.create_kv_cache_blocks(found.blocks), found.tokens, found.boundary, found.lags

    def _find(self, request: CacheableRequest, most: int | None, for_connector: bool = False) -> Found:
        coordinator, most = self.coordinator, request.num_tokens - 1 if most is None else most
        find = coordinator.find_for_connector if for_connector else coordinator.find_hit
        found = find(request.block_hashes, most)
        reports = self.block_pool.enable_kv_cache_events and getattr(request, "kv_cache_report_mode", None) == "full"
        if found.tokens and reports:
            for manager, row in zip(coordinator.single_type_managers, found.blocks, strict=True):
                manager.report(request, row, found.tokens)
        return found

    def record_prefix_cache_stats(self, request: CacheableRequest, num_hits: int) -> None:
        """A request is admitted that was looked up, with a hit of so many tokens."""
        if self.prefix_cache_stats is not None and self._looks_up(request):
            self.prefix_cache_stats.record(request.num_tokens, num_hits, request.num_preemptions > 0)

    def truncate_computed_blocks(self, blocks: KVCacheBlocks, num_computed_tokens: int) -> KVCacheBlocks:
        """The start of a hit up to so many tokens, the end of a block in every group. AssertionError where a group of
        tokens does not reach so far."""
        rows: list[Sequence[KVCacheBlock]] = []
        for manager, row in zip(self.coordinator.single_type_managers, blocks.blocks, strict=True):
            whole, rest = divmod(num_computed_tokens, manager.block_size)
            if isinstance(manager, RingManager):
                whole = rest = 0
            if rest or (len(row) < whole and not manager.keeps_states):
                raise AssertionError(f"a hit of {len(row)} blocks cannot be cut at {num_computed_tokens} tokens")
            rows.append(row[:whole])
        return self.create_kv_cache_blocks(tuple(rows))

    # Steps.

    def allocate_slots(
        self,
        request: CacheableRequest,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: KVCacheBlocks | None = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        num_encoder_tokens: int = 0,
        full_sequence_must_fit: bool = False,
        reserved_blocks: int = 0,
        has_scheduled_reqs: bool = True,
        skip_zeroing_group_ids: tuple[int, ...] = (),
    ) -> KVCacheBlocks | None:
        """As before. The watermark stays free for a request that does not run yet, if others are scheduled in this step
        (`has_scheduled_reqs`). In the groups `skip_zeroing_group_ids` a load writes all of the blocks that are taken
        for external tokens, so that they are not listed."""
        if (
            num_new_tokens > 0
            and num_lookahead_tokens >= 0
            and not (
                new_computed_blocks
                or num_new_computed_tokens
                or num_external_computed_tokens
                or num_encoder_tokens
                or full_sequence_must_fit
                or reserved_blocks
                # One whose load has arrived has its blocks, and waits all the same.
                or (self.watermark_blocks and has_scheduled_reqs and not _runs(request))
            )
        ):
            # The one comparison of most decode steps, and what is due in the others, without a call of the long way.
            if _READS_OWN and type(request) is _OWN:
                own = request
                request_id, end = own.request_id, own.num_computed_tokens + num_new_tokens
            else:
                request_id, end = request.request_id, request.num_computed_tokens + num_new_tokens
            horizon = self._horizons.get(request_id, 0)
            if not horizon and request_id in self._due:
                horizon = self._steps.look(request_id, num_new_tokens)
            if end + num_lookahead_tokens <= horizon and not (self._firsts and end < self._firsts[request_id]):
                return self.empty_kv_cache_blocks
            if horizon and end <= self.max_model_len:
                for manager in self.coordinator.told_of_requests:
                    manager.note_request(request)
                register = self.enable_caching and not delay_cache_blocks
                rows = self._steps.advance(request, request_id, end, num_lookahead_tokens, register)
                return KVCacheBlocks(rows) if rows else None if rows is None else self.empty_kv_cache_blocks
        if self.watermark_blocks and has_scheduled_reqs and reserved_blocks >= 0 and not _runs(request):
            reserved_blocks += self.watermark_blocks
        if (
            self._begins
            and num_new_tokens > 0 <= num_lookahead_tokens
            and reserved_blocks >= 0
            and not (num_external_computed_tokens or num_encoder_tokens)
        ):
            hit = num_new_computed_tokens, None if new_computed_blocks is None else new_computed_blocks.blocks
            room = self.block_pool.get_num_free_blocks() - reserved_blocks
            register = self.enable_caching and not delay_cache_blocks
            rows = self._steps.begin(
                request, hit, num_new_tokens, num_lookahead_tokens, room, full_sequence_must_fit, register
            )
            if rows is not None:
                return KVCacheBlocks(rows) if any(rows) else self.empty_kv_cache_blocks if rows else None
        for manager in self.coordinator.told_of_requests:
            manager.note_request(request)
        unzeroed: Sequence[ByNames] = ()
        if skip_zeroing_group_ids:
            unzeroed = [self.coordinator.single_type_managers[group] for group in skip_zeroing_group_ids]
        for one in unzeroed:
            one.unzeroed = True
        try:
            return self._allocate_behind_horizon(
                request,
                num_new_tokens,
                num_new_computed_tokens,
                new_computed_blocks,
                num_lookahead_tokens,
                num_external_computed_tokens,
                delay_cache_blocks,
                num_encoder_tokens,
                full_sequence_must_fit,
                reserved_blocks,
            )
        finally:
            for one in unzeroed:
                one.unzeroed = False

    def allocate_slots_batch(
        self, requests: Iterable[CacheableRequest], num_new_tokens: int = 1, num_lookahead_tokens: int = 0
    ) -> list[KVCacheBlocks | None]:
        """As before. Where something has to be known of each request, it is asked for one after the other."""
        if not (self.watermark_blocks or self.coordinator.told_of_requests):
            return KVCacheManager.allocate_slots_batch(self, requests, num_new_tokens, num_lookahead_tokens)
        return [self.allocate_slots(one, num_new_tokens, 0, None, num_lookahead_tokens) for one in requests]

    def take_kv_cache_block_copies(self) -> tuple[list[KVCacheBlockCopy], list[KVCacheBlock]]:
        """The copies that have to run before this step, and the blocks that are held for them: give these back once
        they have run."""
        pool = self.block_pool
        asked, pool.copying = pool.copying, []
        if not asked:
            return [], []
        copies = [KVCacheBlockCopy(source.block_id, target.block_id) for source, target in asked]
        held = [block for pair in asked for block in pair]
        pool.lend(held)
        return copies, held

    def take_boundary_state_offloads(self) -> dict[str, list[tuple[int, int, int]]]:
        """By request, states that a connector may read in this step: group, block and tokens."""
        offered: dict[str, list[tuple[int, int, int]]] = {}
        for manager in self.coordinator.keeping_states:
            if isinstance(manager, MambaToday):
                taken, manager.offers = manager.offers, []
                for request_id, *offer in taken:
                    offered.setdefault(request_id, []).append((offer[0], offer[1], offer[2]))
        return offered

    # Giving back.

    def finalize_partial_tail_offloads(self, request: CacheableRequest) -> list[tuple[int, int, int]]:
        """The states at the end of the prompt of a request that ends right there, with nothing in flight."""
        if getattr(request, "num_in_flight_tokens", 0):
            return []
        states = [one for one in self.coordinator.keeping_states if isinstance(one, MambaToday)]
        return [offer for manager in states for offer in manager.last_offer(request)]

    def free(self, request: CacheableRequest) -> None:
        """As before."""
        if self.coordinator.keeping_states:
            self.coordinator.renew(request)
        self.coordinator.free(request.request_id)

    def pop_blocks_for_free(self, request: CacheableRequest) -> list[KVCacheBlock]:
        """Forget a request whose blocks are still written: they stay held, and are to be freed later, each table's end
        first."""
        self.coordinator.renew(request)
        blocks = self.coordinator.pop_tables(request.request_id)
        self.block_pool.lend(blocks)
        return blocks

    def remove_skipped_blocks(
        self, request_id: str, processed_computed_tokens: int, num_prompt_tokens: int | None = None
    ) -> None:
        """Take back what no query behind the processed tokens attends to: those of steps whose outcome is known."""
        super().remove_skipped_blocks(request_id, processed_computed_tokens)

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """As before."""
        super().evict_blocks(block_ids)
        self.coordinator.evicted()

    # What else a scheduler asks.

    def record_blocks_for_zeroing(self, request_id: str, start_token: int) -> None:
        """List the blocks of a request from so many tokens on, the end of a block: a load has left them unwritten."""
        for manager in self.coordinator.single_type_managers:
            if manager.collects_new_block_ids:
                manager.new_blocks += manager.req_to_blocks.get(request_id, [])[start_token // manager.block_size :]

    def get_block_ids_for_computed_tokens(self, request_id: str, num_computed_tokens: int) -> tuple[list[int], ...]:
        """Per group the ids of the blocks with these tokens; of states and of an encoder all."""
        rows: list[list[int]] = []
        for manager in self.coordinator.single_type_managers:
            ids, size = ids_of(manager.req_to_blocks.get(request_id, [])), manager.block_size
            whole = manager.keeps_states or manager.sized_by_encoder
            rows.append(ids if whole else ids[: cdiv(num_computed_tokens, size)])
        return tuple(rows)

    def estimate_cached_tokens(self, request: CacheableRequest) -> int:
        """How many tokens of a request are cached in every group that can be: as far as a block of it has a name."""
        pool, reached = self.block_pool, list[int]()
        for manager in self.coordinator.single_type_managers:
            if not (manager.sized_by_encoder or isinstance(manager, RingManager)):
                table, size = manager.req_to_blocks.get(request.request_id, []), manager.block_size
                named = [pool.covers(block, (i + 1) * size) for i, block in enumerate(table)]
                reached.append(max(named, default=0))
        return min(reached, default=0)


def _check_chain(config: KVCacheConfig, models: int, ahead: int, scheduler_block_size: int) -> None:
    """ValueError for a chain of draft models that reads further than a scheduler block. NotImplementedError where names
    of blocks do not look as far as it does, as with a connector under vLLM: what is registered may be prefilled again.
    """
    if scheduler_block_size < models and any(group.is_eagle_group for group in config.kv_cache_groups):
        raise ValueError(
            f"a chain of {models} draft models reads further than a scheduler block of {scheduler_block_size} tokens"
        )
    if ahead < models:
        raise NotImplementedError(f"names look {ahead} tokens ahead, a chain of draft models {models}: let names do so")


def _runs(request: object) -> bool:
    """Whether the request was admitted before."""
    return getattr(request, "status", None) == RequestStatus.RUNNING
