"""Manager of layers that keep a state per sequence instead of keys and values per token (core.md §7)."""

from collections.abc import Callable, Sequence
from typing import Any

from .block_pool import BlockPool
from .extra_keys import CacheableRequest
from .kv_cache_block import BlockHashWithGroupId, KVCacheBlock
from .kv_cache_interface import MambaSpec
from .manager_base import SingleTypeKVCacheManager
from .spec_base import cdiv


class MambaManager(SingleTypeKVCacheManager):
    """Entry `i` of a table holds the state after block `i`.

    In mode "align" only the running state and those of `num_speculative_blocks` drafts are held, at the end of a table
    padded with nulls; in the other modes the table grows like that of full attention.
    """

    drafts_read_behind = False  # a state is all or nothing: drafts have blocks of their own

    def __init__(self, kv_cache_spec: MambaSpec, block_pool: BlockPool, *args: Any, **kwargs: Any) -> None:
        super().__init__(kv_cache_spec, block_pool, *args, **kwargs)
        self.mamba_cache_mode = kv_cache_spec.mamba_cache_mode
        self.num_speculative_blocks = kv_cache_spec.num_speculative_blocks
        self.cached_blocks_this_step: set[BlockHashWithGroupId] = set()
        """States registered in this very step: they are not written yet."""
        self.last_state_block_idx: dict[str, int] = {}
        """Align mode: table index of the state before the running one."""
        self._allocated_block_reqs: set[str] = set()
        """Align mode: requests that hold their running state and its drafts."""

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """All but the last token, whose state contains the rest; -1 for 0."""
        return _before_state(num_computed_tokens)

    @classmethod
    def skipped_at(cls, kv_cache_spec: MambaSpec) -> Callable[[int], int]:
        """All but the last token before a query, whose state contains the rest; -1 at position 0."""
        return _before_state

    @classmethod
    def read_at_next_boundary(
        cls, kv_cache_spec: MambaSpec, blocks: range, block_size: int, unit: int
    ) -> list[bool] | None:
        """The block ends at the boundary."""
        if unit == block_size:
            return None
        return [(i + 1) * block_size % unit == 0 for i in blocks]

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
        """As for every type; one more than the pool has if the hit is a state that this very step still writes."""
        if any(block.block_hash in self.cached_blocks_this_step for block in new_computed_blocks if not block.is_null):
            return self.block_pool.num_gpu_blocks + 1
        if self.mamba_cache_mode != "align":
            return super().get_num_blocks_to_allocate(
                request_id,
                num_tokens + self.num_speculative_blocks * self.block_size,
                new_computed_blocks,
                total_computed_tokens,
                num_tokens_main_model,
                apply_admission_cap,
                num_settled_tokens,
                num_lookahead_tokens,
            )
        held = len(new_computed_blocks) + len(self.req_to_blocks.get(request_id, ()))
        arriving = 0
        if request_id not in self.num_cached_block and total_computed_tokens > held * self.block_size:
            # More tokens than the hit has: they come from outside, and the state after them needs a block of its own.
            arriving, held = 1, cdiv(total_computed_tokens, self.block_size)
        most = 1 if request_id in self._allocated_block_reqs else 1 + self.num_speculative_blocks
        new = max(0, min(self._required(num_tokens_main_model) - held, most))
        return arriving + new + self._get_num_evictable_blocks(new_computed_blocks)

    def allocate_new_blocks(
        self,
        request_id: str,
        num_tokens: int,
        num_tokens_main_model: int,
        total_computed_tokens: int | None = None,
    ) -> list[KVCacheBlock]:
        """Extend the table. Returns its part beyond its previous length, nulls and moved blocks included."""
        if self.mamba_cache_mode != "align":
            with_drafts = num_tokens + self.num_speculative_blocks * self.block_size
            return super().allocate_new_blocks(request_id, with_drafts, num_tokens_main_model)
        table = self.req_to_blocks[request_id]
        before, required = len(table), self._required(num_tokens_main_model)
        if required <= before:
            return []
        running = required - self.num_speculative_blocks - 1
        started = request_id in self._allocated_block_reqs
        if started:
            self.last_state_block_idx[request_id] = before - 1 - self.num_speculative_blocks
        elif before:
            self.last_state_block_idx[request_id] = before - 1
        table.extend([self._null_block] * (running - before))
        if started:
            for i in range(before - self.num_speculative_blocks, min(before, running)):
                table.append(table[i])
                table[i] = self._null_block
        self._grow(table, required - len(table))
        self._allocated_block_reqs.add(request_id)
        return table[before:]

    def cache_blocks(self, request: CacheableRequest, num_tokens: int, retention_interval: int | None = None) -> None:
        """Register the states after full blocks, and note that this step still writes them."""
        first = self.num_cached_block.get(request.request_id, 0)
        super().cache_blocks(request, num_tokens, retention_interval)
        end = self.num_cached_block.get(request.request_id, 0)
        for block in self.req_to_blocks.get(request.request_id, [])[first:end]:
            if block.block_hash is not None:
                self.cached_blocks_this_step.add(block.block_hash)

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        """As for every type, but as if the last `num_speculative_blocks` computed tokens were drafts to be rejected."""
        computed = max(0, total_computed_tokens - self.num_speculative_blocks)
        super().remove_skipped_blocks(request_id, computed)
        last = self.last_state_block_idx.get(request_id)
        if last is None or last >= cdiv(computed, self.block_size) - 1:
            return
        table = self.req_to_blocks[request_id]
        if not table[last].is_null:
            self.block_pool.free_blocks([table[last]])
            table[last] = self._null_block

    def free(self, request_id: str) -> None:
        """Give back all states."""
        self._allocated_block_reqs.discard(request_id)
        self.last_state_block_idx.pop(request_id, None)
        super().free(request_id)

    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        """Always 0: states are not shared while running."""
        return 0

    def new_step_starts(self) -> None:
        """What the last step registered is written now."""
        self.cached_blocks_this_step.clear()

    def _required(self, num_tokens_main_model: int) -> int:
        """Align mode: the length of a table for so many tokens. Lookahead plays no part: drafts have own blocks."""
        return cdiv(num_tokens_main_model, self.block_size) + self.num_speculative_blocks


def _before_state(query: int) -> int:
    return query - 1
