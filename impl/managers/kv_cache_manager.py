"""The core as the scheduler sees it (core.md §10)."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from sys import maxsize
from typing import Any

from ..hashing.extra_keys import CacheableRequest
from ..pool.block import KVCacheBlock, ids_of
from ..pool.events import BlockStored, KVCacheEvent
from ..pool.metrics import KVCacheMetricsCollector
from ..request import Request
from ..specs.interface import KVCacheConfig, get_kv_cache_spec_kind, get_kv_cache_spec_sliding_window
from .coordinator import KVCacheCoordinator, get_kv_cache_coordinator
from .stats import PrefixCacheStats
from .steps import Rows, settled_tokens, steps_behind_horizons

logger = logging.getLogger(__name__)

_READS_OWN = not __file__.endswith(".py")
"""Whether this is the compiled build, which reads the fields of its own requests at no cost."""
_OWN: object = Request


@dataclass
class KVCacheBlocks:
    """Blocks of a request: a sequence per group, entry `i` for its `i`-th part."""

    blocks: tuple[Sequence[KVCacheBlock], ...]

    def __add__(self, other: "KVCacheBlocks") -> "KVCacheBlocks":
        return KVCacheBlocks(tuple([*mine, *theirs] for mine, theirs in zip(self.blocks, other.blocks, strict=True)))

    def get_block_ids(
        self, allow_none: bool = False, *, group_ids: Iterable[int] | None = None
    ) -> tuple[list[int], ...] | None:
        """The ids per group, of all groups or of these. With `allow_none`, None if every one of them is empty."""
        groups = self.blocks if group_ids is None else tuple([self.blocks[i] for i in group_ids])
        if allow_none and not any(groups):
            return None
        return tuple([ids_of(group) for group in groups])

    def get_unhashed_block_ids(self) -> list[int]:
        """Ids of the blocks without identity. AssertionError unless there is one group."""
        if len(self.blocks) != 1:
            raise AssertionError(
                f"{len(self.blocks)} groups: use get_unhashed_block_ids_all_groups() for other than one"
            )
        return [block.block_id for block in self.blocks[0] if block.block_hash is None]

    def get_unhashed_block_ids_all_groups(self) -> list[list[int]]:
        """Ids of the blocks without identity per group, nulls left out."""
        return [
            [block.block_id for block in group if block.block_hash is None and not block.is_null]
            for group in self.blocks
        ]

    def new_empty(self) -> "KVCacheBlocks":
        """Nothing, for as many groups."""
        return KVCacheBlocks(tuple(() for _ in self.blocks))


class KVCacheManager:
    """Hands out blocks to requests, finds cached prefixes, and takes blocks back.

    Lengths are in tokens; `max_num_batched_tokens` defaults to `max_model_len`. See `KVCacheCoordinator` for the block
    sizes, the retention interval, and what a configuration must satisfy.
    """

    def __init__(
        self,
        kv_cache_config: KVCacheConfig,
        max_model_len: int,
        scheduler_block_size: int,
        hash_block_size: int,
        max_num_batched_tokens: int | None = None,
        enable_caching: bool = True,
        use_eagle: bool = False,
        log_stats: bool = False,
        enable_kv_cache_events: bool = False,
        dcp_world_size: int = 1,
        pcp_world_size: int = 1,
        metrics_collector: KVCacheMetricsCollector | None = None,
        retention_interval: int | None = None,
    ) -> None:
        self.max_model_len = max_model_len
        self.enable_caching = enable_caching
        self.use_eagle = use_eagle
        self.log_stats = log_stats
        self.metrics_collector = metrics_collector
        self.prefix_cache_stats = PrefixCacheStats() if log_stats else None
        self.coordinator = self._new_coordinator(
            kv_cache_config,
            max_model_len,
            max_model_len if max_num_batched_tokens is None else max_num_batched_tokens,
            use_eagle,
            enable_caching,
            enable_kv_cache_events,
            dcp_world_size,
            pcp_world_size,
            scheduler_block_size,
            hash_block_size,
            metrics_collector,
            retention_interval,
        )
        self.num_kv_cache_groups = len(kv_cache_config.kv_cache_groups)
        self.block_pool = self.coordinator.block_pool
        self._steps = self.coordinator.steps
        self._horizons, self._due = self._steps.horizons, self._steps.due
        self._firsts = self._steps.firsts
        self._begins = self._steps.known and self._steps.begins
        self.kv_cache_config = kv_cache_config
        specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
        self.kv_cache_event_metadata = [
            (get_kv_cache_spec_kind(spec).value, get_kv_cache_spec_sliding_window(spec)) for spec in specs
        ]
        self.empty_kv_cache_blocks = KVCacheBlocks(tuple(() for _ in specs))
        """One object for every empty answer: most decode steps have one, and it costs nothing to hand it out."""

    def _new_coordinator(self, *given: Any) -> KVCacheCoordinator:
        return get_kv_cache_coordinator(*given)

    @property
    def usage(self) -> float:
        """Share of the pool in use, 0 to 1."""
        return self.block_pool.get_usage()

    def make_prefix_cache_stats(self) -> PrefixCacheStats | None:
        """The statistics since the last call; None without `log_stats`."""
        stats = self.prefix_cache_stats
        if stats is not None:
            self.prefix_cache_stats = PrefixCacheStats()
        return stats

    def get_computed_blocks(self, request: CacheableRequest) -> tuple[KVCacheBlocks, int]:
        """The longest cached prefix and its length in tokens, at most all tokens but the last, which is recomputed.

        Empty with caching off or if the request declines.
        """
        if not self.enable_caching or request.skip_reading_prefix_cache:
            return self.empty_kv_cache_blocks, 0
        blocks, num_hits = self.coordinator.find_longest_cache_hit(request.block_hashes, request.num_tokens - 1)
        if self.prefix_cache_stats is not None:
            self.prefix_cache_stats.record(request.num_tokens, num_hits, request.num_preemptions > 0)
        return self.create_kv_cache_blocks(blocks), num_hits

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
    ) -> KVCacheBlocks | None:
        """Reserve room for a request's next step. Returns the new blocks per group, or None if there is no room now.

        The tables will hold, in this order, what is computed already, the hit (`num_new_computed_tokens` tokens in
        `new_computed_blocks`), tokens that come from outside, the new ones, and the lookahead for drafts. What is
        certain to be computed is registered, unless `delay_cache_blocks` says that it arrives later.
        `full_sequence_must_fit` refuses unless the whole sequence finds room; `reserved_blocks` are left in the pool.
        A block out of sight counts as needed until no token before it can be taken back: tokens of steps that still
        run can (`request.num_in_flight_tokens`, none where the request does not say), and all from the last known
        token on, which is computed again where it came from outside.
        ValueError, with nothing changed, for a negative count or if there are neither new nor external tokens. A
        refusal changes nothing but that blocks out of every query's sight are given back.
        """
        # Most steps of decoding end before the horizon: they change nothing, and these comparisons are all they cost.
        if num_new_tokens > 0 <= num_lookahead_tokens and not (
            new_computed_blocks
            or num_new_computed_tokens
            or num_external_computed_tokens
            or num_encoder_tokens
            or full_sequence_must_fit
            or reserved_blocks
        ):
            if _READS_OWN and type(request) is _OWN:
                own = request
                request_id, tokens = own.request_id, own.num_computed_tokens + num_new_tokens
            else:
                request_id, tokens = request.request_id, request.num_computed_tokens + num_new_tokens
            try:
                horizon = self._horizons[request_id]
            except KeyError:
                horizon = self._steps.look(request_id, num_new_tokens) if request_id in self._due else 0
            if tokens + num_lookahead_tokens <= horizon and not (self._firsts and tokens < self._firsts[request_id]):
                return self.empty_kv_cache_blocks
            if horizon and tokens <= self.max_model_len:
                register = self.enable_caching and not delay_cache_blocks
                rows = self._steps.advance(request, request_id, tokens, num_lookahead_tokens, register)
                return KVCacheBlocks(rows) if rows else None if rows is None else self.empty_kv_cache_blocks
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
                return KVCacheBlocks(rows) if rows else None
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

    def _allocate_behind_horizon(
        self,
        request: CacheableRequest,
        num_new_tokens: int,
        num_new_computed_tokens: int,
        new_computed_blocks: KVCacheBlocks | None,
        num_lookahead_tokens: int,
        num_external_computed_tokens: int,
        delay_cache_blocks: bool,
        num_encoder_tokens: int,
        full_sequence_must_fit: bool,
        reserved_blocks: int,
    ) -> KVCacheBlocks | None:
        """As `allocate_slots`, for a step of which no horizon says anything."""
        # The bits of several integers or-ed together are negative exactly if one of the integers is: one test for all.
        counts = (
            num_new_tokens
            | num_new_computed_tokens
            | num_lookahead_tokens
            | num_external_computed_tokens
            | num_encoder_tokens
            | reserved_blocks
        )
        if counts < 0 or not (num_new_tokens or num_external_computed_tokens):
            raise ValueError(
                f"cannot allocate for request {request.request_id}: {num_new_tokens} new, {num_new_computed_tokens} "
                f"newly computed, {num_lookahead_tokens} lookahead, {num_external_computed_tokens} external and "
                f"{num_encoder_tokens} encoder tokens, {reserved_blocks} reserved blocks: no count may be negative, "
                "and new or external tokens are needed"
            )
        request_id = request.request_id
        coordinator, pool, max_model_len = self.coordinator, self.block_pool, self.max_model_len
        hit = (self.empty_kv_cache_blocks if new_computed_blocks is None else new_computed_blocks).blocks
        local_tokens = request.num_computed_tokens + num_new_computed_tokens
        total_computed = min(local_tokens + num_external_computed_tokens, max_model_len)
        num_tokens = request.num_tokens
        settled = settled_tokens(request, total_computed, num_tokens)
        if full_sequence_must_fit:
            lengths = num_lookahead_tokens, num_encoder_tokens, total_computed, settled
            if self._needs(request, hit, lengths) > pool.get_num_free_blocks() - reserved_blocks:
                return None
        main_tokens = total_computed + num_new_tokens
        slots = min(main_tokens + num_lookahead_tokens, max_model_len)
        # Even a refused request gives back what it no longer needs, so that others can use it.
        coordinator.remove_skipped_blocks(request_id, settled)
        room = pool.get_num_free_blocks() - reserved_blocks
        if coordinator.most_blocks_to_allocate(slots, hit) > room:
            if coordinator.least_blocks_to_allocate(request_id, slots, hit) > room:
                return None
            needed = coordinator.get_num_blocks_to_allocate(
                request_id, slots, hit, num_encoder_tokens, total_computed, main_tokens, False, settled
            )
            if needed > room:
                return None
        if any(hit) or num_external_computed_tokens:
            coordinator.allocate_new_computed_blocks(
                request_id, hit, local_tokens, num_external_computed_tokens, settled
            )
        new_blocks = coordinator.allocate_new_blocks(request_id, slots, main_tokens, num_encoder_tokens, total_computed)
        for manager in coordinator.keeping_states:
            if num_external_computed_tokens:
                manager.note_load(request_id, total_computed)
            if num_new_tokens:
                manager.note_step(request_id, total_computed, num_tokens, main_tokens)
        if self.enable_caching and not delay_cache_blocks:
            # Drafts may be rejected, hence never beyond the tokens that the request really has.
            coordinator.cache_blocks(request, min(main_tokens, num_tokens))
        coordinator.steps.note(request_id, settled)
        return KVCacheBlocks(new_blocks) if any(new_blocks) else self.empty_kv_cache_blocks

    def _needs(
        self,
        request: CacheableRequest,
        hit: tuple[Sequence[KVCacheBlock], ...],
        lengths: tuple[int, int, int, int],
    ) -> int:
        """How many blocks the whole sequence takes, of which it may not hold all at once.

        `lengths` are the lookahead, the encoder's tokens, the computed tokens, and those of them that are settled.
        """
        num_lookahead_tokens, num_encoder_tokens, total_computed, settled = lengths
        num_tokens, most = request.num_tokens, self.max_model_len
        return self.coordinator.get_num_blocks_to_allocate(
            request.request_id,
            min(num_tokens + num_lookahead_tokens, most),
            hit,
            num_encoder_tokens,
            total_computed,
            min(num_tokens, most),
            apply_admission_cap=True,
            num_settled_tokens=settled,
            num_lookahead_tokens=num_lookahead_tokens,
        )

    def allocate_slots_batch(
        self, requests: Iterable[CacheableRequest], num_new_tokens: int = 1, num_lookahead_tokens: int = 0
    ) -> list[KVCacheBlocks | None]:
        """`allocate_slots` for one request after the other, each for the same counts: the answers in their order.

        Those behind a refusal are asked for all the same. Errors as there; what was given before it stays given.
        """
        horizons = {} if self._firsts else self._horizons  # where states move, a horizon does not say all
        beyond = num_new_tokens + num_lookahead_tokens if num_new_tokens > 0 <= num_lookahead_tokens else maxsize
        asked = list(requests)
        if self._due:
            for one in asked:
                if one.request_id in self._due:
                    self._steps.look(one.request_id, num_new_tokens)
        answers: list[KVCacheBlocks | None] = [self.empty_kv_cache_blocks] * len(asked)
        taken: list[Rows | None] = []
        try:
            due = steps_behind_horizons(asked, horizons, beyond)
        except TypeError:  # the compiled build reads requests of its own class only; all others are asked one by one
            due = list(range(len(asked)))
        else:
            if horizons and beyond < maxsize:
                taken = self._steps.advance_each(asked, due, num_new_tokens, num_lookahead_tokens, self.enable_caching)
        for i, rows in zip(due, taken, strict=False):
            answers[i] = KVCacheBlocks(rows) if rows else None if rows is None else self.empty_kv_cache_blocks
        for i in due[len(taken) :]:
            answers[i] = self.allocate_slots(asked[i], num_new_tokens, 0, None, num_lookahead_tokens)
        return answers

    def free(self, request: CacheableRequest) -> None:
        """Take back all blocks of a request; the end of its tables will be reused first."""
        self.coordinator.renew(request)
        self.coordinator.free(request.request_id)

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        """Take back the blocks that no query from the computed tokens on attends to.

        None of these tokens may be taken back later, unlike in `allocate_slots`, which finds out itself.
        """
        self.coordinator.remove_skipped_blocks(request_id, total_computed_tokens)

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """Forget the identity of these blocks. AssertionError, with nothing changed, for an id out of range."""
        self.block_pool.evict_blocks(block_ids)

    def reset_prefix_cache(self) -> bool:
        """Forget every identity; False while any block is in use. The next statistics say so."""
        if not self.block_pool.reset_prefix_cache():
            return False
        if self.prefix_cache_stats is not None:
            self.prefix_cache_stats.reset = True
        return True

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """Per group, how many leading blocks of this request every running request holds."""
        return self.coordinator.get_num_common_prefix_blocks(running_request_id)

    def take_events(self) -> list[KVCacheEvent]:
        """The events since the last call; `BlockStored` tells its group's kind and sliding window."""
        pool, known = self.block_pool, self.kv_cache_event_metadata
        events: list[KVCacheEvent] = pool.kv_event_queue
        pool.kv_event_queue = []
        for event in events:
            if isinstance(event, BlockStored) and event.group_idx is not None:
                try:
                    event.kv_cache_spec_kind, event.kv_cache_spec_sliding_window = known[event.group_idx]
                except IndexError:
                    logger.warning("Group index `%d` not in KV cache metadata", event.group_idx)
        return events

    def get_blocks(self, request_id: str) -> KVCacheBlocks:
        """The tables of a request; empty for an unknown one."""
        return self.create_kv_cache_blocks(self.coordinator.get_blocks(request_id))

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        """The tables of a request as ids."""
        return tuple(
            [ids_of(manager.req_to_blocks.get(request_id, ())) for manager in self.coordinator.single_type_managers]
        )

    def cache_blocks(self, request: CacheableRequest, num_computed_tokens: int) -> None:
        """Register what has arrived from outside; nothing with caching off."""
        if self.enable_caching:
            self.coordinator.cache_blocks(request, num_computed_tokens)

    def create_kv_cache_blocks(self, blocks: tuple[Sequence[KVCacheBlock], ...]) -> KVCacheBlocks:
        """The blocks as a `KVCacheBlocks`: the shared empty one if every group is empty."""
        return KVCacheBlocks(blocks) if any(blocks) else self.empty_kv_cache_blocks

    def take_new_block_ids(self) -> list[int]:
        """Ids newly handed to attention groups since the last call, group after group."""
        return [i for manager in self.coordinator.single_type_managers for i in manager.take_new_block_ids()]

    def new_step_starts(self) -> None:
        """A scheduler step begins."""
        self.coordinator.new_step_starts()

    def check(self) -> None:
        """AssertionError, with the violated equation, unless pool, tables and references fit together.

        Blocks may have more references than table entries: outside holders may hold them, too.
        """
        self.block_pool.check()
        holders: Counter[int] = Counter()
        for manager in self.coordinator.single_type_managers:
            manager.check()
            holders.update(block.block_id for block in manager.held_blocks())
        for block_id, count in holders.items():
            references = self.block_pool.blocks[block_id].ref_cnt
            if references < count:
                raise AssertionError(f"ref_cnt >= table entries: {references} < {count} for block {block_id}")
