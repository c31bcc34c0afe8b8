"""What the managers of all attention types have in common: block tables, predictions, registration (core.md §6)."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import InitVar, dataclass
from typing import Any, TypeAlias

from .block_hashing import BlockHashList
from .block_pool import BlockPool
from .extra_keys import CacheableRequest
from .kv_cache_block import KVCacheBlock
from .kv_cache_interface import (
    FullAttentionSpec,
    KVCacheSpec,
    MLAAttentionSpec,
    TQFullAttentionSpec,
)
from .spec_base import cdiv

HitBlocks: TypeAlias = tuple[list[KVCacheBlock], ...]
"""One list per group asked; entry `i` is the block of tokens `i*b .. (i+1)*b - 1`, null where none is needed."""

HitQuery: TypeAlias = tuple[BlockHashList, int, list[int], BlockPool, Any, bool, int, int]
"""What `find_longest_cache_hit` is asked, in the order of its parameters; the last entry is how many context-parallel
ranks a block spreads over. A plain tuple: one with names takes longer to make than a block to look up."""

_SPECS_WITH_NEW_BLOCK_IDS = (FullAttentionSpec, TQFullAttentionSpec, MLAAttentionSpec)


@dataclass(eq=False, repr=False)
class SingleTypeKVCacheManager(ABC):
    """Block tables of the requests in one group.

    `block_size` counts tokens over all context-parallel ranks; `scheduler_block_size` is what hits are aligned to.
    """

    sized_by_encoder = False
    """Whether a table has room for the encoder's tokens, not for those of the request."""
    can_drop_eagle_block = True
    """Whether a hit can give up its last block, so that its search may reach one block further."""

    kv_cache_spec: KVCacheSpec
    block_pool: BlockPool
    enable_caching: bool
    kv_cache_group_id: int
    scheduler_block_size: int
    dcp_world_size: int = 1
    pcp_world_size: int = 1
    max_admission_blocks_per_request: InitVar[int | None] = None

    def __post_init__(self, max_admission_blocks_per_request: int | None) -> None:
        self.block_size = self.kv_cache_spec.block_size * self.dcp_world_size * self.pcp_world_size
        self.use_eagle = False
        self.req_to_blocks: defaultdict[str, list[KVCacheBlock]] = defaultdict(list)
        self.num_cached_block: dict[str, int] = {}
        """How many leading entries count as registered; the keys are the running requests."""
        self.new_block_ids: list[int] = []
        self._collects_new_block_ids = type(self.kv_cache_spec) in _SPECS_WITH_NEW_BLOCK_IDS
        self._max_admission_blocks_per_request = max_admission_blocks_per_request
        self._null_block = self.block_pool.null_block
        # Full attention skips nothing, ever; to know that spares a coordinator two calls in every step.
        self.may_skip = type(self).get_num_skipped_tokens is not SingleTypeKVCacheManager.get_num_skipped_tokens

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
    ) -> int:
        """How many blocks `allocate_new_computed_blocks` and `allocate_new_blocks` will take from the free queue.

        `num_tokens` and `num_tokens_main_model` are the tokens that need a slot with and without lookahead. With
        `apply_admission_cap` no more than the blocks a request can hold at once are counted. Changes nothing.
        """
        required = cdiv(num_tokens, self.block_size)
        if apply_admission_cap and self._max_admission_blocks_per_request is not None:
            required = min(required, self._max_admission_blocks_per_request)
        held = len(self.req_to_blocks.get(request_id, ()))
        if request_id in self.num_cached_block:
            self._check_no_hit(request_id, new_computed_blocks)
            return max(required - held, 0)
        skipped = self._num_skipped_blocks(total_computed_tokens)
        new = max(required - max(skipped, len(new_computed_blocks) + held), 0)
        return new + self._get_num_evictable_blocks(new_computed_blocks[max(0, skipped - held) :])

    def allocate_new_computed_blocks(
        self,
        request_id: str,
        new_computed_blocks: Sequence[KVCacheBlock],
        num_local_computed_tokens: int,
        num_external_computed_tokens: int,
    ) -> None:
        """Begin the table of a request: `attach_computed_blocks`, then `allocate_external_blocks`.

        Only right for a core of one group: with several, all attach before any allocates.
        """
        missing = self.attach_computed_blocks(
            request_id, new_computed_blocks, num_local_computed_tokens, num_external_computed_tokens
        )
        self.allocate_external_blocks(request_id, missing)

    def attach_computed_blocks(
        self,
        request_id: str,
        new_computed_blocks: Sequence[KVCacheBlock],
        num_local_computed_tokens: int,
        num_external_computed_tokens: int,
    ) -> int:
        """Begin the table of a request: nulls for what is skipped already, and the hit.

        Returns how many blocks the external tokens still need. A running request, and one whose table is sized by its
        encoder, is left alone; AssertionError if it comes with a hit.
        """
        if self.sized_by_encoder:
            assert not new_computed_blocks, f"request {request_id}: cross attention has no hits"
            return 0
        if request_id in self.num_cached_block:
            self._check_no_hit(request_id, new_computed_blocks)
            return 0
        table = self.req_to_blocks[request_id]
        assert not table, f"request {request_id} is not running but holds {len(table)} blocks: free it first"
        total = num_local_computed_tokens + num_external_computed_tokens
        skipped = self._num_skipped_blocks(total)
        if skipped > 0:
            new_computed_blocks = new_computed_blocks[skipped:]
            still_needed = total - self.get_num_skipped_tokens(total)
            num_external_computed_tokens = min(still_needed, num_external_computed_tokens)
        if self.enable_caching:
            self.block_pool.touch(new_computed_blocks)
        else:
            assert not new_computed_blocks, f"request {request_id} comes with a hit while caching is off"
        table.extend([self._null_block] * skipped)
        table.extend(new_computed_blocks)
        self.num_cached_block[request_id] = len(table)
        return cdiv(total, self.block_size) - len(table) if num_external_computed_tokens > 0 else 0

    def allocate_external_blocks(self, request_id: str, count: int) -> None:
        """Extend the table by so many blocks, whose content arrives from outside."""
        if count > 0:
            self._grow(self.req_to_blocks[request_id], count)

    def allocate_new_blocks(self, request_id: str, num_tokens: int, num_tokens_main_model: int) -> list[KVCacheBlock]:
        """Extend the table to hold `num_tokens` tokens. Returns the added blocks."""
        table = self.req_to_blocks[request_id]
        missing = cdiv(num_tokens, self.block_size) - len(table)
        return self._grow(table, missing) if missing > 0 else []

    def take_new_block_ids(self) -> list[int]:
        """Ids of the blocks newly handed out since the last call; kept for full-attention, TQ and MLA specs only."""
        ids, self.new_block_ids = self.new_block_ids, []
        return ids

    def cache_blocks(self, request: CacheableRequest, num_tokens: int, retention_interval: int | None = None) -> None:
        """Register the full blocks of the first `num_tokens` tokens, as far as a later hit can want them."""
        registered = self.num_cached_block.get(request.request_id, 0)
        full = num_tokens // self.block_size
        if full <= registered:
            return
        self.block_pool.cache_full_blocks(
            request,
            self.req_to_blocks[request.request_id],
            registered,
            full,
            self.block_size,
            self.kv_cache_group_id,
            self.reachable_block_mask(
                registered,
                full,
                self.scheduler_block_size,
                self.kv_cache_spec,
                self.use_eagle,
                retention_interval,
                request.num_prompt_tokens,
            ),
        )
        self.num_cached_block[request.request_id] = full

    @classmethod
    def reachable_block_mask(
        cls,
        start_block: int,
        end_block: int,
        alignment_tokens: int | None,
        kv_cache_spec: KVCacheSpec,
        use_eagle: bool,
        retention_interval: int | None = None,
        num_prompt_tokens: int | None = None,
    ) -> list[bool] | None:
        """For each block `start_block .. end_block - 1` whether a hit can use it; None if all can (core.md §8).

        A block counts if it is one of `blocks_before_a_hit` before some place where a hit can end.
        """
        need = cls.blocks_before_a_hit(kv_cache_spec, use_eagle)
        if need is None or alignment_tokens is None:
            return None
        block_size = kv_cache_spec.block_size
        shift = 1 if use_eagle else 0
        segment = alignment_tokens if retention_interval is None else retention_interval
        per_segment = segment // block_size
        if segment and need >= per_segment:
            return None
        mask = [
            bool(segment) and i >= shift and (i - shift) % per_segment >= per_segment - need
            for i in range(start_block, end_block)
        ]
        if retention_interval is not None and num_prompt_tokens is not None:
            boundary = (num_prompt_tokens - 1) // alignment_tokens * alignment_tokens // block_size + shift
            for i in range(max(start_block, boundary - need), min(end_block, boundary)):
                mask[i - start_block] = True
        return mask

    @classmethod
    def blocks_before_a_hit(cls, kv_cache_spec: KVCacheSpec, use_eagle: bool) -> int | None:
        """How many blocks before its end a hit needs; None if it needs all."""
        return None

    def free(self, request_id: str) -> None:
        """Give back all blocks of a request, the end of its table first. Nothing happens for an unknown one."""
        self.num_cached_block.pop(request_id, None)
        self.block_pool.free_blocks(reversed(self.req_to_blocks.pop(request_id, [])))

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

        A block counts as registered if it is in every group asked. `drop_eagle_block` gives up the last block matched,
        whose hidden state the draft model needs. Changes nothing. NotImplementedError for a type that has no hits.
        """
        ranks = dcp_world_size * pcp_world_size
        return cls.search(
            (
                block_hashes,
                max_length,
                kv_cache_group_ids,
                block_pool,
                kv_cache_spec,
                drop_eagle_block,
                alignment_tokens,
                ranks,
            )
        )

    @classmethod
    def search(cls, query: HitQuery) -> HitBlocks:
        """What `find_longest_cache_hit` gives, for one type of attention."""
        raise NotImplementedError(f"{cls.__name__} has no prefix cache: switch caching off for this model")

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        """Null the table's entries that no query from the computed tokens on attends to, and free their blocks.

        Blocks without identity go to the front of the queue, since no lookup can find their content.
        """
        skipped = self._num_skipped_blocks(total_computed_tokens)
        table = self.req_to_blocks.get(request_id)
        if not skipped or not table:
            return
        registered: list[KVCacheBlock] = []
        others: list[KVCacheBlock] = []
        for i in range(min(skipped, len(table)) - 1, -1, -1):
            block = table[i]
            if block is self._null_block:
                break  # everything before was removed earlier
            (others if block.block_hash is None else registered).append(block)
            table[i] = self._null_block
        if registered:
            self.block_pool.free_blocks(registered)
        if others:
            self.block_pool.free_blocks(others, prepend=True)

    def new_step_starts(self) -> None:  # noqa: B027  # most types have nothing to do
        """A scheduler step begins."""

    def check(self) -> None:
        """AssertionError, with the violated equation, unless tables and registered counts fit together. O(tables)."""
        for request_id, table in self.req_to_blocks.items():
            real = [block.block_id for block in table if not block.is_null]
            where = f"group {self.kv_cache_group_id}, request {request_id}"
            assert len(real) == len(set(real)), f"no block stands twice in a table: {where}, {real}"
            for block in table:
                assert self.block_pool.blocks[block.block_id] is block, f"block of this pool: {where}, {block}"
        for request_id, registered in self.num_cached_block.items():
            length = len(self.req_to_blocks.get(request_id, ()))
            assert registered <= length, (
                f"num_cached_block <= len(table): {registered} > {length} in group {self.kv_cache_group_id}, "
                f"request {request_id}"
            )

    def held_blocks(self) -> list[KVCacheBlock]:
        """Every block this group holds, once per reference: what its tables contain, nulls left out."""
        return [block for table in self.req_to_blocks.values() for block in table if not block.is_null]

    @classmethod
    def _get_num_evictable_blocks(cls, blocks: Sequence[KVCacheBlock]) -> int:
        """How many of these blocks are eviction candidates: touching them takes them out of the free queue."""
        return sum(not block.ref_cnt and not block.is_null for block in blocks)

    def _num_skipped_blocks(self, num_computed_tokens: int) -> int:
        return max(0, self.get_num_skipped_tokens(num_computed_tokens)) // self.block_size

    def _grow(self, table: list[KVCacheBlock], count: int) -> list[KVCacheBlock]:
        new = self.block_pool.get_new_blocks(count)
        table.extend(new)
        if self._collects_new_block_ids:
            self.new_block_ids.extend([block.block_id for block in new])
        return new

    def _check_no_hit(self, request_id: str, new_computed_blocks: Sequence[KVCacheBlock]) -> None:
        assert not new_computed_blocks, (
            f"running request {request_id} comes with a hit of {len(new_computed_blocks)} blocks: "
            "only a request that is not running can use one"
        )


def cut_to_aligned(hit: HitBlocks, drop_eagle_block: bool, block_size: int, alignment_tokens: int) -> None:
    """Give up the last block if asked to, and what then ends at no multiple of `alignment_tokens`."""
    found = len(hit[0])
    kept = aligned(found - 1 if drop_eagle_block and found else found, block_size, alignment_tokens)
    if kept < found:
        cut_to(hit, kept)


def cut_to(hit: HitBlocks, length: int) -> None:
    """Keep the first `length` entries of every group's list."""
    for blocks in hit:
        del blocks[length:]


def aligned(num_blocks: int, block_size: int, alignment_tokens: int) -> int:
    """The most blocks, up to `num_blocks`, that end at a multiple of `alignment_tokens`."""
    while num_blocks * block_size % alignment_tokens:
        num_blocks -= 1
    return num_blocks
