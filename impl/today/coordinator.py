"""All groups of a model together by the rule of today: what coordinators have in common, and those of one group."""

from collections.abc import Sequence
from sys import maxsize
from typing import Any, NamedTuple

from ..hashing.block_hash import BlockHash
from ..hashing.extra_keys import CacheableRequest
from ..managers.base import SingleTypeKVCacheManager
from ..managers.coordinator import KVCacheCoordinator, KVCacheCoordinatorNoPrefixCache, UnitaryKVCacheCoordinator
from ..managers.hit_search import HitBlocks, PrefixSearch
from ..managers.steps import RunningSteps
from ..pool.block import Hit, KVCacheBlock
from ..specs.interface import KVCacheSpec, SlidingWindowSpec
from .block_pool import TodayPool
from .by_spec import manager_of_today
from .checkpoints import CheckpointManager
from .managers import ByNames
from .reference_window import ReferenceWindowManager
from .rings import RingManager
from .states import MambaToday
from .steps import StepsBehindPrompts


class Found(NamedTuple):
    """What a lookup finds."""

    blocks: HitBlocks
    tokens: int
    boundary: int = 0
    """Tokens up to which others share the prefix, where the hit ends before; else 0."""
    lags: bool = False
    """Whether states end before it: then tokens from outside must follow, which bring the one that is needed."""


class TodayCoordinator(KVCacheCoordinator):
    """What the coordinators have in common."""

    enable_partial_hash_hits = False
    """Whether hits end inside blocks."""
    num_hash_lookahead_tokens = 0
    names_junctions = False
    _from_first: int | None = None
    """A group whose hits all begin with the first hash, if there is one in which no other hit is looked for."""
    _first_hashes = 1
    """How many of its hashes may be the first that is found: those of a block, where hits end inside it."""
    _registers_at: int | None = None
    """At multiples of how many tokens groups register their blocks; None for each group's own."""
    block_pool: TodayPool
    _state_managers: Sequence[MambaToday]
    single_type_managers: tuple[ByNames, ...]

    def __init__(self, *given: Any, num_hash_lookahead_tokens: int, names_junctions: bool, **named: Any) -> None:
        self.num_hash_lookahead_tokens = num_hash_lookahead_tokens
        super().__init__(*given, **named)
        for manager in self.single_type_managers:
            # States are read before they are written, so what else lies in their pages has to be cleared.
            manager.collects_new_block_ids = bool(self._state_managers) and manager not in self._state_managers
        managers = self.single_type_managers
        self.leaving_checkpoints = [manager for manager in managers if isinstance(manager, CheckpointManager)]
        gaps = [manager for manager in managers if isinstance(manager, ReferenceWindowManager)]
        self.told_of_requests: list[CheckpointManager | ReferenceWindowManager] = [*self.leaving_checkpoints, *gaps]
        """Those that have to know of which request a step is."""
        for manager in self.leaving_checkpoints:
            manager.retention_interval = self.retention_interval
            manager.drafts_read_on = bool(self.eagle_group_ids)
            manager.only_ends = self.retention_interval == 0
            if len(self.single_type_managers) > 1:
                manager.checkpoint_unit = self.hit_alignment
        rings = [manager for manager in self.single_type_managers if isinstance(manager, RingManager)]
        for ring in rings:
            ring.collects_new_block_ids = False
            ring.make_endless()
        if rings:
            self.steps = self.running_steps(self._registers_at)
        flagged = any(group.is_eagle_group for group in self.kv_cache_config.kv_cache_groups)
        if names_junctions and flagged:
            self.names_junctions = True
        self._names_junctions_inside = self.names_junctions and self.enable_partial_hash_hits
        self._alignment = self.hit_alignment
        self._every = self.enable_partial_hash_hits or len(managers) == 1
        """Whether ends are named wherever they are, not at the last place where a hit can end."""
        self._naming = [
            (
                *(one, one.names_ends, isinstance(one, CheckpointManager)),
                *(one if isinstance(one, MambaToday) else None, one.block_size if one.use_eagle else 0),
            )
            for one in managers
        ]
        unit = self.block_pool.hash_block_size
        self._ends_within = unit + max(unit, self.num_hash_lookahead_tokens)
        """An end of a prompt that may be named is no more tokens before it."""
        first = managers[0] if len(managers) == 1 else None
        plain = first is not None and not (first.names_ends or first.keeps_states or first.sized_by_encoder)
        self._only = first if plain else None
        """The manager of the only group, if nothing of it gets a name but whole blocks, and tokens fill them."""
        self._kept_whole = [
            (i, one) for i, one in enumerate(managers) if one.is_ours and not (one.sized_by_encoder or one.may_skip)
        ]
        """Those whose tables have a block for all tokens, with their places."""
        self._bounded = all(manager.is_ours and not manager.sized_by_encoder for manager in managers)
        self._least_size = min([manager.block_size for manager in managers], default=1)
        self._most_apart = sum([manager.most_blocks(0) + 1 for manager in managers]) if self._bounded else 0

    def _fold(self) -> None:
        """Fold runs of groups whose blocks are found from the left alone, whole and by their own hashes."""
        whole = self.enable_caching and not self.enable_partial_hash_hits
        self.block_pool.fold([i for i, one in enumerate(self.single_type_managers) if whole and one.folds])

    def _new_pool(self, *given: Any) -> TodayPool:
        return TodayPool(*given, num_hash_lookahead_tokens=self.num_hash_lookahead_tokens)

    def _new_manager(
        self, spec: KVCacheSpec, max_num_batched_tokens: int, max_model_len: int, **named: Any
    ) -> SingleTypeKVCacheManager:
        return manager_of_today(spec, max_num_batched_tokens, max_model_len, **named)

    def _read_behind(self, use_eagle: bool) -> set[int]:
        """None where names look ahead."""
        return set() if self.num_hash_lookahead_tokens else super()._read_behind(use_eagle)

    def _hashed_sizes(self) -> list[int]:
        """Rings have no names."""
        managers = [one for one in self.single_type_managers if not isinstance(one, RingManager)]
        return [manager.block_size for manager in managers]

    def _check_retention(self) -> None:
        """ValueError for an interval that is no multiple of the scheduler's block, or that thins out nothing; 0 says
        nothing where there are neither windows nor states."""
        interval = self.retention_interval
        thinned = any(
            isinstance(group.kv_cache_spec, SlidingWindowSpec) for group in self.kv_cache_config.kv_cache_groups
        ) or any(isinstance(manager, MambaToday) for manager in self.single_type_managers)
        if interval is None or not (thinned or interval):
            return
        if not thinned or interval < 0 or interval % self.scheduler_block_size:
            raise ValueError(
                f"retention interval {interval}: it must be a non-negative multiple of the scheduler's block size "
                f"{self.scheduler_block_size}, for a model with windows or states"
            )

    @property
    def names_ends(self) -> bool:
        """Whether ends of prompts may get names inside blocks."""
        return self.enable_caching and any(manager.names_ends for manager in self.single_type_managers)

    def _registers_quietly(self) -> bool:
        """As before. Behind a prompt states are registered like other blocks, and offered, where a step leaves one
        alone and no block is more than a hash block."""
        unit, named = self.block_pool.hash_block_size, bool(self.keeping_states) or self.names_ends
        if named and all(one.block_size == unit for one in self.single_type_managers):
            named = not all(isinstance(one, MambaToday) and one.leaves_running_state for one in self.keeping_states)
        return not self.num_hash_lookahead_tokens and not named and super()._registers_quietly()

    def running_steps(self, registers_at: int | None) -> RunningSteps:
        """As before; where ends of prompts get names, only behind the prompt."""
        self._registers_at = registers_at
        if self.names_ends:
            given = (registers_at, self._registers_quietly()), self._register
            steps: RunningSteps = StepsBehindPrompts(
                self.single_type_managers, self.block_pool, self.max_model_len, *given
            )
        else:
            steps = super().running_steps(registers_at)
        # Where a gap opens depends on the prompt, which steps do not know.
        steps.known &= not any(isinstance(manager, ReferenceWindowManager) for manager in self.single_type_managers)
        return steps

    def get_num_blocks_to_allocate(
        self,
        *given: Any,
        num_local_computed_tokens: int | None = None,
        prefill_end: int | None = None,
        **named: Any,
    ) -> int:
        """As before. A scheduler asks, too, and says what is known here: how many of the computed tokens come from no
        outside, and where the request stops to be in its prompt."""
        if prefill_end is not None:
            for manager in self.leaving_checkpoints:
                manager.prompt_ends = prefill_end
        return super().get_num_blocks_to_allocate(*given, **named)

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        """As before. Before the first token nothing is skipped."""
        if total_computed_tokens > 0:
            for manager in self._skipping_managers:
                manager.remove_skipped_blocks(request_id, total_computed_tokens)

    def allocate_new_computed_blocks(
        self,
        request_id: str,
        new_computed_blocks: Sequence[Sequence[KVCacheBlock]],
        num_local_computed_tokens: int,
        num_external_computed_tokens: int,
        num_settled_tokens: int | None = None,
    ) -> None:
        """As before; a hit alone takes no block."""
        computed = num_local_computed_tokens, num_external_computed_tokens
        if num_external_computed_tokens:
            super().allocate_new_computed_blocks(request_id, new_computed_blocks, *computed, num_settled_tokens)
            return
        for manager, hit in zip(self.single_type_managers, new_computed_blocks, strict=True):
            manager.attach_computed_blocks(request_id, hit, *computed, num_settled_tokens)

    def allocate_new_blocks(
        self,
        request_id: str,
        num_tokens: int,
        num_tokens_main_model: int,
        num_encoder_tokens: int = 0,
        total_computed_tokens: int | None = None,
    ) -> HitBlocks:
        """As before."""
        given = num_tokens, num_tokens_main_model, total_computed_tokens
        if self._only is not None:
            return (self._only.allocate_new_blocks(request_id, *given),)
        if self._bounded:
            return tuple([one.allocate_new_blocks(request_id, *given) for one in self.single_type_managers])
        return super().allocate_new_blocks(request_id, *given[:2], num_encoder_tokens, total_computed_tokens)

    def most_blocks_to_allocate(self, num_tokens: int, new_computed_blocks: Sequence[Sequence[KVCacheBlock]]) -> int:
        """As before, with states: but of a hit, which this very step may still write."""
        hits = sum(map(len, new_computed_blocks))
        if not self._bounded:
            return maxsize
        for manager in self._state_managers if hits else ():
            if manager.cached_blocks_this_step:
                return maxsize
        rough = num_tokens // self._least_size * len(self.single_type_managers) + self._most_apart
        if hits + rough <= self.block_pool.free_block_queue.num_free_blocks:
            return hits + rough
        return hits + sum([one.most_blocks(num_tokens) for one in self.single_type_managers])

    def least_blocks_to_allocate(
        self, request_id: str, num_tokens: int, new_computed_blocks: Sequence[Sequence[KVCacheBlock]]
    ) -> int:
        """As before; groups that give nothing back count what their tables lack."""
        least = 0
        for i, manager in self._kept_whole:
            hit = len(new_computed_blocks[i])
            if hit and request_id in manager.num_cached_block:
                return 0  # which is an error
            table = manager.req_to_blocks.get(request_id, ())
            lacks = -(-num_tokens // manager.block_size) - len(table) - hit
            if lacks > 0:
                least += lacks
        return least

    # Names.

    @property
    def hit_alignment(self) -> int:
        """Hits end at multiples of so many tokens."""
        return self.scheduler_block_size

    def cache_blocks(self, request: CacheableRequest, num_computed_tokens: int) -> None:
        """Register what hits can use of the first `num_computed_tokens` tokens, and the end of the prompt."""
        if (only := self._only) is not None:
            known = len(request.block_hashes) * self.block_pool.hash_block_size
            only.cache_blocks(request, min(num_computed_tokens, known), self.retention_interval)
            return
        request_id, alignment = request.request_id, self._alignment
        reach = num_computed_tokens // alignment * alignment  # up to the last place where a hit can end
        named = len(request.block_hashes) * self.block_pool.hash_block_size
        at_junction = self._names_junctions_inside and self._is_junction(request, num_computed_tokens)
        every = self._every
        at_end = at_junction or num_computed_tokens >= request.num_prompt_tokens - self._ends_within
        for manager, names_ends, in_every_step, states, behind in self._naming:
            most = min(num_computed_tokens, reach + behind) if behind and reach else reach
            whole = most if most < named else named
            first = 0 if states is None else states.num_cached_block.get(request_id, 0)
            manager.cache_blocks(request, whole, self.retention_interval)
            if names_ends and (at_end or in_every_step):
                manager.name_end(request, num_computed_tokens if every else most, num_computed_tokens, at_junction)
            if states is not None:
                end = states.num_cached_block.get(request_id, 0)
                if first < end:
                    states.offer(request_id, first, end)
        if isinstance(steps := self.steps, StepsBehindPrompts):
            if (num_computed_tokens if every else reach) >= request.num_prompt_tokens:
                for manager in self.single_type_managers:
                    if manager.tails and request_id in manager.tails:
                        break  # a state that is named there is copied by the next step
                else:
                    steps.behind.add(request_id)
                    return
            if request_id in steps.behind or request_id in steps.horizons or request_id in steps.due:
                steps.forget(request_id)

    def _is_junction(self, request: CacheableRequest, num_tokens: int) -> bool:
        """Whether a step of the prompt ends where its prefix goes on otherwise than that of other requests."""
        inside = request.num_computed_tokens < num_tokens <= request.num_prompt_tokens
        return inside and num_tokens == getattr(request, "shared_prefix_boundary", 0)

    def finds_nothing(self, block_hashes: list[BlockHash]) -> bool:
        """Whether a look at the first hashes says that there is no hit: most prompts begin as no other does."""
        group = self._from_first
        if group is None:
            return False
        if not block_hashes:
            return True
        known = self.block_pool.cached_block_hash_to_block
        if self._first_hashes == 1:
            return not known.begins(group, block_hashes[0])
        return known.groups[group].keys().isdisjoint(block_hashes[: self._first_hashes])

    def find_hit(self, block_hashes: list[BlockHash], most_tokens: int) -> Found:
        """The longest hit of at most so many tokens, and where the prefix ends that others share; none here."""
        return Found(tuple([[] for _ in self.single_type_managers]), 0)

    def find_longest_cache_hit(self, block_hashes: list[BlockHash], max_cache_hit_length: int) -> tuple[HitBlocks, int]:
        """The same without where the prefix ends."""
        found = self.find_hit(block_hashes, max_cache_hit_length)
        return found.blocks, found.tokens

    def find_for_connector(self, block_hashes: list[BlockHash], most_tokens: int) -> Found:
        """The same for a request whose other tokens a connector may bring, with the states that are needed."""
        return self.find_hit(block_hashes, most_tokens)

    def evicted(self) -> None:
        """Blocks have lost their names by order."""
        if isinstance(self.steps, StepsBehindPrompts):
            self.steps.forget_horizons()

    # Giving back.

    def renew(self, request: CacheableRequest) -> None:
        """As before."""
        for manager in self._state_managers if self.enable_caching else ():
            manager.renew_states(request)

    def pop_tables(self, request_id: str) -> list[KVCacheBlock]:
        """Forget a request; its blocks, group by group and nulls left out, stay held."""
        self.steps.forget(request_id)
        blocks = [block for manager in self.single_type_managers for block in manager.pop_table(request_id)]
        return [block for block in blocks if block is not self.block_pool.null_block]


class NoPrefixCacheToday(TodayCoordinator, KVCacheCoordinatorNoPrefixCache):
    """Caching is off."""


class UnitaryToday(TodayCoordinator, UnitaryKVCacheCoordinator):
    """One group."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._fold()
        kind = type(self.single_type_managers[0])
        self._is_ring = issubclass(kind, RingManager)
        self._search_type = kind.search_type if kind.spreads_over_ranks or self._terms.ranks == 1 else None
        """None where `search` says why there is none."""
        if self._search_type is PrefixSearch and self.single_type_managers[0].is_ours:
            self._from_first = 0
        self._plain = self._from_first == 0 and self._terms.per == 1 and not self._terms.behind
        """Whether the hit is what stands under the first hashes, and nothing else."""

    def find_hit(self, block_hashes: list[BlockHash], most_tokens: int) -> Found:
        """The longest hit of the group; a ring has none."""
        if self._plain:
            size: int = self._terms.block_size
            row = self.block_pool.cached_block_hash_to_block.prefix(0, block_hashes, most_tokens // size)
            return Found((Hit(row),), len(row) * size)
        kind = self._search_type
        if kind is None:
            if self._is_ring:
                return Found(([],), 0)
            return Found(*UnitaryKVCacheCoordinator.find_longest_cache_hit(self, block_hashes, most_tokens))
        search = kind(self._terms, block_hashes)
        length = search.longest(most_tokens)
        return Found(search.blocks(length) if length else ([],), length)

    @property
    def hit_alignment(self) -> int:
        """Its own blocks."""
        return self.block_size
