"""What the managers of all attention types have in common: block tables, predictions, registration (core.md §6)."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass
from math import lcm
from typing import Any, ClassVar

from ..hashing.block_hashing import BlockHashList
from ..hashing.extra_keys import CacheableRequest
from ..pool.block import Hit, KVCacheBlock, TailHit, ids_of, with_and_without_identity
from ..pool.block_pool import BlockPool
from ..specs.base import cdiv
from ..specs.interface import FullAttentionSpec, KVCacheSpec, MLAAttentionSpec, TQFullAttentionSpec
from .hit_search import HitBlocks, HitSearch, HitTerms, PrefixSearch
from .overrides import AskedPool, Overridable
from .reachable import ReachableBlocks

_SPECS_WITH_NEW_BLOCK_IDS = (FullAttentionSpec, TQFullAttentionSpec, MLAAttentionSpec)


@dataclass(eq=False, repr=False)
class SingleTypeKVCacheManager(Overridable, ReachableBlocks, ABC):
    """Block tables of the requests in one group.

    `block_size` counts tokens over all context-parallel ranks; `scheduler_block_size` is what hits are aligned to,
    unless `expect_hits` says otherwise.
    """

    sized_by_encoder = False
    """Whether a table has room for the encoder's tokens, not for those of the request."""
    extra_blocks = 0
    """How many blocks a table has beside those that its tokens fill."""
    counts_by_tokens = True
    """Whether a table never has more blocks than its tokens fill, and no hit is refused."""
    moves_blocks = False
    """Whether a table is more than added to and nulled."""
    notes_registered = False
    """Whether `note_registered` is to be told of blocks."""
    waits_for_hashes = False
    """Whether a full block that has no hash yet stays unregistered; else it is an error."""
    keeps_states = False
    """Whether blocks hold states, of which a step writes few: then `note_step` is to be told of steps."""
    drafts_read_behind = True
    """Whether drafts may need the block behind a hit; a running state is no such block."""
    spreads_over_ranks = False
    """Whether hits go with context parallelism."""
    search_type: ClassVar[type[HitSearch] | None] = PrefixSearch
    """How hits are searched; None for a type that has none."""

    kv_cache_spec: KVCacheSpec
    block_pool: BlockPool
    enable_caching: bool
    kv_cache_group_id: int
    scheduler_block_size: int
    dcp_world_size: int = 1
    pcp_world_size: int = 1
    max_admission_blocks_per_request: InitVar[int | None] = None

    admission_limits: ClassVar[tuple[int, int] | None] = None
    """Of a manager with a cap, what it was made of: tokens of a step and of a request. Few have it, so it is none of
    the fields that Python keeps together."""

    def __post_init__(self, max_admission_blocks_per_request: int | None) -> None:
        self.block_size = self.kv_cache_spec.block_size * self.dcp_world_size * self.pcp_world_size
        self.use_eagle = False
        """Whether drafts need the block behind a hit."""
        self.alignment = self.scheduler_block_size
        self.tokens_behind = 1
        self.req_to_blocks: defaultdict[str, list[KVCacheBlock]] = defaultdict(list)
        self.num_cached_block: dict[str, int] = {}
        """How many leading entries count as registered; the keys are the running requests."""
        self.new_blocks: list[KVCacheBlock] = []
        """Blocks newly handed out whose ids nobody has asked for: few engines ask, and reading each id costs."""
        self._new_block_ids: list[int] = []
        self.collects_new_block_ids = type(self.kv_cache_spec) in _SPECS_WITH_NEW_BLOCK_IDS
        self._max_admission_blocks_per_request = max_admission_blocks_per_request
        self._null_block = self.block_pool.null_block
        self.registers_every_block = self._every_block_is_wanted()

    def expect_hits(self, alignment: int, use_eagle: bool, tokens_behind: int) -> None:
        """Say what hits will look like: multiples of `alignment` tokens, with or without need of the block behind.

        `tokens_behind` of the prompt must be left behind a hit of a replay, on account of any group.
        """
        self.alignment, self.use_eagle, self.tokens_behind = alignment, use_eagle, tokens_behind
        self.registers_every_block = self._every_block_is_wanted()

    def _every_block_is_wanted(self) -> bool:
        """Whether, without a retention interval, a hit can use every block: then nothing is to be asked of any."""
        mask = type(self).read_at_next_boundary(self.kv_cache_spec, range(1), self.block_size, self.alignment)
        return self.is_ours and mask is None and type(self).cache_blocks is SingleTypeKVCacheManager.cache_blocks

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """How many leading tokens no query at position `num_computed_tokens` or later attends to."""
        return 0

    def get_num_blocks_to_allocate(
        self,
        request_id: str,
        num_tokens: int,
        new_computed_blocks: Sequence[KVCacheBlock],
        total_computed_tokens: int,
        num_tokens_main_model: int,
        apply_admission_cap: bool = False,
        num_settled_tokens: int | None = None,
        num_lookahead_tokens: int = 0,
    ) -> int:
        """How many blocks `allocate_new_computed_blocks` and `allocate_new_blocks` will take from the free queue.

        `num_tokens` and `num_tokens_main_model` are the tokens that need a slot with and without lookahead;
        `num_settled_tokens` are the computed ones that cannot be taken back, all where it is None. With
        `apply_admission_cap` no more new blocks are counted than a request with so much lookahead can hold at once,
        beside those of the hit. Changes nothing.
        """
        required = cdiv(num_tokens, self.block_size)
        table = self.req_to_blocks.get(request_id, ())
        if request_id in self.num_cached_block:
            self._check_no_hit(request_id, new_computed_blocks)
            new = required - len(table) if required > len(table) else 0
            return self._capped(new, table, (), num_lookahead_tokens) if apply_admission_cap else new
        skipped = self._num_skipped_blocks(total_computed_tokens if num_settled_tokens is None else num_settled_tokens)
        new = max(required - max(skipped, len(table) + len(new_computed_blocks)), 0)
        kept = new_computed_blocks[max(0, skipped - len(table)) :]
        if apply_admission_cap:
            new = self._capped(new, table, kept, num_lookahead_tokens)
        return new + self._get_num_evictable_blocks(kept)

    def allocate_new_computed_blocks(
        self,
        request_id: str,
        new_computed_blocks: Sequence[KVCacheBlock],
        num_local_computed_tokens: int,
        num_external_computed_tokens: int,
        num_settled_tokens: int | None = None,
    ) -> None:
        """Begin the table of a request: `attach_computed_blocks`, then `allocate_external_blocks`.

        Only right for a core of one group: with several, all attach before any allocates.
        """
        missing = self.attach_computed_blocks(
            request_id,
            new_computed_blocks,
            num_local_computed_tokens,
            num_external_computed_tokens,
            num_settled_tokens,
        )
        self.allocate_external_blocks(request_id, missing)

    def attach_computed_blocks(
        self,
        request_id: str,
        new_computed_blocks: Sequence[KVCacheBlock],
        num_local_computed_tokens: int,
        num_external_computed_tokens: int,
        num_settled_tokens: int | None = None,
    ) -> int:
        """Begin the table of a request: nulls for what is skipped already, and the hit.

        `num_settled_tokens` of the local and external tokens cannot be taken back, all where it is None. Returns how
        many blocks the external tokens still need. A running request, and one whose table is sized by its encoder, is
        left alone; AssertionError if it comes with a hit.
        """
        if self.sized_by_encoder:
            if new_computed_blocks:
                raise AssertionError(f"request {request_id}: cross attention has no hits")
            return 0
        if request_id in self.num_cached_block:
            self._check_no_hit(request_id, new_computed_blocks)
            return 0
        table = self.req_to_blocks[request_id]
        if table:
            raise AssertionError(f"request {request_id} is not running but holds {len(table)} blocks: free it first")
        total = num_local_computed_tokens + num_external_computed_tokens
        settled = total if num_settled_tokens is None else num_settled_tokens
        skipped = self._num_skipped_blocks(settled) if self.may_skip else 0
        if skipped > 0:
            found, new_computed_blocks = new_computed_blocks, new_computed_blocks[skipped:]
            if isinstance(found, TailHit) and new_computed_blocks[:1] != [self._null_block]:
                new_computed_blocks = Hit(new_computed_blocks)
            still_needed = total - self.get_num_skipped_tokens(settled)
            num_external_computed_tokens = min(still_needed, num_external_computed_tokens)
        if self.enable_caching:
            self.block_pool.touch(new_computed_blocks)
        else:
            if new_computed_blocks:
                raise AssertionError(f"request {request_id} comes with a hit while caching is off")
        table.extend([self._null_block] * skipped)
        table.extend(new_computed_blocks)
        self.num_cached_block[request_id] = len(table)
        return cdiv(total, self.block_size) - len(table) if num_external_computed_tokens > 0 else 0

    def allocate_external_blocks(self, request_id: str, count: int) -> None:
        """Extend the table by so many blocks, whose content arrives from outside."""
        if count > 0:
            self.grow(self.req_to_blocks[request_id], count)

    def allocate_new_blocks(
        self,
        request_id: str,
        num_tokens: int,
        num_tokens_main_model: int,
        total_computed_tokens: int | None = None,
    ) -> list[KVCacheBlock]:
        """Extend the table to hold `num_tokens` tokens. Returns the added blocks.

        `total_computed_tokens` says where the step begins; only states have use for it.
        """
        table = self.req_to_blocks[request_id]
        missing = cdiv(num_tokens, self.block_size) - len(table)
        return self.grow(table, missing) if missing > 0 else []

    def take_new_block_ids(self) -> list[int]:
        """Ids of the blocks newly handed out since the last call; kept for full-attention, TQ and MLA specs only."""
        ids, self.new_block_ids = self.new_block_ids, []
        return ids

    @property
    def new_block_ids(self) -> list[int]:
        """Ids of the blocks newly handed out since they were last taken."""
        if self.new_blocks:
            new, self.new_blocks = self.new_blocks, []
            self._new_block_ids += ids_of(new)
        return self._new_block_ids

    @new_block_ids.setter
    def new_block_ids(self, ids: list[int]) -> None:
        self.new_blocks, self._new_block_ids = [], ids

    def cache_blocks(self, request: CacheableRequest, num_tokens: int, retention_interval: int | None = None) -> None:
        """Register the full blocks of the first `num_tokens` tokens, as far as a later hit can want them."""
        registered = self.num_cached_block.get(request.request_id, 0)
        full = num_tokens // self.block_size
        if full <= registered:
            return
        mask: Sequence[bool] | None = None
        if not self.registers_every_block or retention_interval is not None:
            mask = self.wanted(request, registered, full, retention_interval)
        if self.keeps_states:
            mask = self.mask_of_written(request.request_id, registered, full, mask)
        self.block_pool.cache_full_blocks(
            request,
            self.req_to_blocks[request.request_id],
            registered,
            full,
            self.block_size,
            self.kv_cache_group_id,
            mask,
        )
        self.num_cached_block[request.request_id] = full
        if self.notes_registered:
            self.note_registered(self.req_to_blocks[request.request_id][registered:full])

    def wanted(
        self, request: CacheableRequest, first: int, end: int, retention_interval: int | None
    ) -> Sequence[bool] | None:
        """For each entry `first .. end - 1` of a table whether a later hit can want its block; None for all."""
        return self.reachable_block_mask(
            first,
            end,
            self.alignment,
            self.kv_cache_spec,
            self.use_eagle,
            retention_interval,
            request.num_prompt_tokens,
            *((self.tokens_behind, self.block_size) if self.mask_knows_tables else ()),
        )

    def note_step(self, request_id: str, start: int, num_known_tokens: int, end: int) -> None:  # most have no states
        """A step computes tokens `start .. end - 1` of a request, of which so many tokens are known."""

    def note_load(self, request_id: str, end: int) -> None:
        """Leading tokens of a request come from outside, up to `end`."""

    def stands(self, request_id: str, i: int) -> bool:
        """Whether entry `i` of a table, the next to be registered, holds what its block is registered for."""
        return True

    def mask_of_written(
        self, request_id: str, first: int, end: int, mask: Sequence[bool] | None
    ) -> Sequence[bool] | None:
        """`mask` for entries `first .. end - 1` of a table, without those that hold another state than their block's;
        None for all of them."""
        return mask

    def note_entry(self, request_id: str, i: int) -> None:
        """Entry `i` of a table has just been registered, as `note_registered` says."""
        self.note_registered([self.req_to_blocks[request_id][i]])

    def note_registered(self, blocks: Sequence[KVCacheBlock]) -> None:  # most types have nothing to do
        """These entries of a table count as registered from now on; some may have no identity."""

    def free(self, request_id: str) -> None:
        """Give back all blocks of a request, the end of its table first. Nothing happens for an unknown one."""
        self.num_cached_block.pop(request_id, None)
        blocks = self.req_to_blocks.pop(request_id, [])[::-1]
        if self.may_skip:
            blocks = [block for block in blocks if block is not self._null_block]
        self.block_pool.release(blocks)

    @abstractmethod
    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        """How many leading blocks of this request every request holds."""

    @classmethod
    def find_longest_cache_hit(
        cls,
        block_hashes: BlockHashList,
        max_length: int,
        kv_cache_group_ids: list[int],
        block_pool: BlockPool,
        kv_cache_spec: Any,
        drop_eagle_block: bool,
        alignment_tokens: int,
        dcp_world_size: int = 1,
        pcp_world_size: int = 1,
    ) -> HitBlocks:
        """The longest hit of at most `max_length` tokens that ends at a multiple of `alignment_tokens`.

        A block counts as registered if it is in every group asked. With `drop_eagle_block` the block behind the hit
        must be registered as well, since drafts need it; it is no part of the hit, and `max_length` does not bound it.
        Changes nothing. NotImplementedError for a type that has no hits, AssertionError for one that does not go with
        context parallelism.
        """
        pool: Any = block_pool
        if not hasattr(pool, "cached_block_hash_to_block"):
            pool = AskedPool(pool, block_hashes, kv_cache_group_ids)
        terms = cls.hit_terms(
            kv_cache_group_ids,
            pool,
            kv_cache_spec,
            drop_eagle_block,
            alignment_tokens,
            dcp_world_size * pcp_world_size,
        )
        search = cls.search(terms, block_hashes)
        length = search.longest(max_length)
        hit = search.blocks(length) if length else tuple([[] for _ in kv_cache_group_ids])
        return pool.theirs(hit) if isinstance(pool, AskedPool) else hit

    @classmethod
    def hit_terms(
        cls,
        kv_cache_group_ids: Sequence[int],
        block_pool: BlockPool,
        kv_cache_spec: Any,
        use_eagle: bool,
        alignment_tokens: int,
        ranks: int = 1,
    ) -> HitTerms:
        """What hits need in these groups, which have the same spec; good for every lookup."""
        block_size = kv_cache_spec.block_size * ranks
        if alignment_tokens % block_size:
            alignment_tokens = lcm(alignment_tokens, block_size)
        behind = 1 if use_eagle and cls.drafts_read_behind else 0
        need = cls.blocks_read_before(kv_cache_spec, block_size)
        return HitTerms(
            kv_cache_group_ids,
            block_pool,
            kv_cache_spec,
            block_size,
            ranks,
            alignment_tokens // block_size,
            behind,
            None if need is None else need + behind,
        )

    @classmethod
    def search(cls, terms: HitTerms, block_hashes: BlockHashList) -> HitSearch:
        """A lookup, to be asked about several lengths; errors as for `find_longest_cache_hit`."""
        if cls.search_type is None:
            raise NotImplementedError(f"{cls.__name__} has no prefix cache: switch caching off for this model")
        if terms.ranks != 1 and not cls.spreads_over_ranks:
            raise AssertionError(f"{cls.__name__} does not go with context parallelism over {terms.ranks} ranks: use 1")
        return cls.search_type(terms, block_hashes)

    def quiet_tokens(self, request_id: str, num_settled_tokens: int) -> range:
        """For how many tokens up to the end of a step such a step takes no block and gives none back.

        `num_settled_tokens` were settled at the last allocation; more will be by then, and not all computed ones.
        """
        room = (len(self.req_to_blocks.get(request_id, ())) - self.extra_blocks) * self.block_size
        return range(1, (min(room, self.skips_at(num_settled_tokens)) if self.may_skip else room) + 1)

    def skips_at(self, num_settled_tokens: int) -> int:
        """The fewest settled tokens at which more blocks are skipped than at so many."""
        raise NotImplementedError(f"{type(self).__name__} skips nothing, or does not say when")

    def gives_back_at(self, request_id: str) -> int:
        """Where blocks are moved: the fewest settled tokens at which a request gives back a block that it holds now."""
        raise NotImplementedError(f"{type(self).__name__} moves no blocks")

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        """Null the table's entries that no query from the computed tokens on attends to, and free their blocks.

        None of `total_computed_tokens` may be taken back later: that is the caller's to know. Blocks without identity
        go to the front of the queue, since no lookup can find their content.
        """
        skipped = self._num_skipped_blocks(total_computed_tokens)
        table = self.req_to_blocks.get(request_id)
        if not skipped or not table:
            return
        null, last = self._null_block, min(skipped, len(table)) - 1
        first = last
        while first >= 0 and table[first] is not null:  # everything before was removed earlier
            first -= 1
        if first == last - 1:
            self.block_pool.release_one(table[last])
            table[last] = null
        elif first < last:
            gone = table[first + 1 : last + 1][::-1]
            table[first + 1 : last + 1] = [null] * (last - first)
            self._give_back(gone)

    def new_step_starts(self) -> None:  # most types have nothing to do
        """A scheduler step begins."""

    def check(self) -> None:
        """AssertionError, with the violated equation, unless tables and registered counts fit together. O(tables)."""
        for request_id, table in self.req_to_blocks.items():
            real = [block.block_id for block in table if not block.is_null]
            where = f"group {self.kv_cache_group_id}, request {request_id}"
            if len(real) != len(set(real)):
                raise AssertionError(f"no block stands twice in a table: {where}, {real}")
            for block in table:
                if self.block_pool.blocks[block.block_id] is not block:
                    raise AssertionError(f"block of this pool: {where}, {block}")
        for request_id, registered in self.num_cached_block.items():
            length = len(self.req_to_blocks.get(request_id, ()))
            if registered > length:
                raise AssertionError(
                    f"num_cached_block <= len(table): {registered} > {length} in group {self.kv_cache_group_id}, "
                    f"request {request_id}"
                )

    def held_blocks(self) -> list[KVCacheBlock]:
        """Every block this group holds, once per reference: what its tables contain, nulls left out."""
        return [block for table in self.req_to_blocks.values() for block in table if not block.is_null]

    @classmethod
    def _get_num_evictable_blocks(cls, blocks: Sequence[KVCacheBlock]) -> int:
        """How many of these blocks are eviction candidates: touching them takes them out of the free queue."""
        states = [block.state for block in blocks]
        kinds = set(states)
        held = [kind for kind in kinds if isinstance(kind, int) and kind]
        if not held or len(held) == len(kinds):
            return 0 if held else len(blocks)
        return len([state for state in states if not state or state.__class__ is not int])

    def _num_skipped_blocks(self, num_computed_tokens: int) -> int:
        skipped = self.get_num_skipped_tokens(num_computed_tokens)
        return skipped // self.block_size if skipped > 0 else 0

    def _capped(
        self, new: int, table: Sequence[KVCacheBlock], kept: Sequence[KVCacheBlock], num_lookahead_tokens: int
    ) -> int:
        """Of `new` blocks, as many as a request can hold at once beside those in its table and of its hit."""
        cap = self._max_admission_blocks_per_request
        if cap is None:
            return new
        inside = len(table) - table.count(self._null_block) + len(kept)
        return min(new, max(cap + self._room_for_drafts(num_lookahead_tokens) - inside, 0))

    def _room_for_drafts(self, num_lookahead_tokens: int) -> int:
        """Blocks that lookahead takes beyond the cap, in which one token of it has room (T16.lookahead)."""
        if num_lookahead_tokens <= 1:
            return 0
        if self.admission_limits is None:
            return cdiv(num_lookahead_tokens - 1, self.block_size)
        most: Callable[..., int] = self.kv_cache_spec.max_admission_blocks_per_request  # type: ignore[attr-defined]
        longest, length = self.admission_limits
        return most(longest + num_lookahead_tokens - 1, length) - most(longest, length)

    def _give_back(self, blocks: list[KVCacheBlock]) -> None:
        """Free blocks in this order: those without identity go to the front, since no lookup can find their content."""
        registered, others = with_and_without_identity(blocks)
        if registered:
            self.block_pool.release(registered)
        if others:
            self.block_pool.release(others, prepend=True)

    def grow(self, table: list[KVCacheBlock], count: int) -> list[KVCacheBlock]:
        """Add so many new blocks to a table, and return them."""
        new = self.block_pool.get_new_blocks(count)
        table.extend(new)
        if self.collects_new_block_ids:
            self.new_blocks += new
        return new

    def _check_no_hit(self, request_id: str, new_computed_blocks: Sequence[KVCacheBlock]) -> None:
        if new_computed_blocks:
            raise AssertionError(
                f"running request {request_id} comes with a hit of {len(new_computed_blocks)} blocks: "
                "only a request that is not running can use one"
            )
