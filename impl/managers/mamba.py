"""Manager of layers that keep a state per sequence instead of keys and values per token (core.md §7)."""

from collections.abc import Sequence
from sys import maxsize
from typing import Any

from ..hashing.block_hash import BlockHash
from ..hashing.block_hashing import BlockHashList
from ..pool.block import KVCacheBlock
from ..pool.block_pool import BlockPool
from ..specs.base import cdiv
from ..specs.interface import MambaSpec
from .base import SingleTypeKVCacheManager
from .hit_search import TailSearch


class MambaManager(SingleTypeKVCacheManager):
    """Entry `i` of a table holds the state after block `i`.

    In mode "align" a step writes its running state into the entry of its last token and those of drafts into the
    `num_speculative_blocks` entries behind, and continues from a state that stands at or behind the entry of the last
    token that cannot be taken back. Everything else is null: a request never holds more than 2 blocks beside those of
    drafts. In the other modes the table grows like that of full attention.
    """

    search_type = TailSearch
    counts_by_tokens = False
    notes_registered = keeps_states = True
    drafts_read_behind = False  # a state is all or nothing: drafts have blocks of their own

    def __init__(self, kv_cache_spec: MambaSpec, block_pool: BlockPool, *args: Any, **kwargs: Any) -> None:
        super().__init__(kv_cache_spec, block_pool, *args, **kwargs)
        self.mamba_cache_mode = kv_cache_spec.mamba_cache_mode
        self.num_speculative_blocks = self.extra_blocks = kv_cache_spec.num_speculative_blocks
        self.moves_blocks = self.mamba_cache_mode == "align"
        self.cached_blocks_this_step: set[BlockHash] = set()
        """States registered in this very step: they are not written yet."""
        self.num_leading_nulls: dict[str, int] = {}
        """Mode "align": so many entries of a table are null at least; the blocks that it holds are looked for behind
        them, as a table grows with the context."""
        self.steps: dict[str, tuple[tuple[int, int], int, int, int]] = {}
        """The last step of a request that reached the end of a block: where it starts, the end of its known tokens and
        its own; before these between how many tokens the step before left no state, bounds excluded."""

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """All but the last token, whose state contains the rest; -1 for 0."""
        return num_computed_tokens - 1

    @classmethod
    def blocks_read_before(cls, kv_cache_spec: MambaSpec, block_size: int) -> int:
        """One: its state contains the rest."""
        return 1

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
        """As for every type; one more than the pool has if the hit is a state that this very step still writes.

        In mode "align" lookahead plays no part, since drafts have blocks of their own; with `apply_admission_cap` the
        most states are counted that a request of `num_tokens` tokens will hold.
        """
        unwritten = self.cached_blocks_this_step
        if unwritten and any(block.content in unwritten for block in new_computed_blocks):
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
        table = self.req_to_blocks.get(request_id, [])
        candidates = arriving = 0
        if request_id not in self.num_cached_block and not table:
            settled = total_computed_tokens if num_settled_tokens is None else num_settled_tokens
            behind = self._num_skipped_blocks(settled)
            table = [self._null_block] * behind
            table += new_computed_blocks[behind:]
            candidates = self._get_num_evictable_blocks(table)
            if not apply_admission_cap and total_computed_tokens > len(new_computed_blocks) * self.block_size:
                # More tokens than the hit has: they come from outside, and their state needs a block of its own.
                arriving = cdiv(total_computed_tokens, self.block_size) - len(table)
                table += [KVCacheBlock(-1, ref_cnt=1) for _ in range(arriving)]
        if apply_admission_cap:
            return max(0, self._most_held(num_tokens) - (len(table) - table.count(self._null_block))) + candidates
        empty, rest = self._to_arrange(request_id, table, total_computed_tokens, num_tokens_main_model)
        new = max(0, len(empty) - sum(_is_own(table[i]) for i in rest)) if empty else 0
        return candidates + arriving + new

    def allocate_new_blocks(
        self,
        request_id: str,
        num_tokens: int,
        num_tokens_main_model: int,
        total_computed_tokens: int | None = None,
    ) -> list[KVCacheBlock]:
        """Extend the table. Returns its part beyond its previous length, nulls and moved blocks included.

        In mode "align" the step begins behind `total_computed_tokens`; None means one in the block before its last one.
        """
        if self.mamba_cache_mode != "align":
            with_drafts = num_tokens + self.num_speculative_blocks * self.block_size
            return super().allocate_new_blocks(request_id, with_drafts, num_tokens_main_model)
        table = self.req_to_blocks[request_id]
        before = len(table)
        if total_computed_tokens is None:
            total_computed_tokens = num_tokens_main_model - self.block_size
        empty, rest = self._to_arrange(request_id, table, total_computed_tokens, num_tokens_main_model)
        if not empty:
            return []
        if self.num_leading_nulls.get(request_id, 0) > empty[0]:
            self.num_leading_nulls[request_id] = empty[0]
        null = self._null_block
        table.extend([null] * (empty[-1] + 1 - before))
        if not rest:  # in most steps
            for i, new in zip(empty, self.block_pool.get_new_blocks(len(empty)), strict=True):
                table[i] = new
            return table[before:]
        places, dropped = iter(empty), []
        for i in rest:
            block, table[i] = table[i], null
            place = next(places, None) if _is_own(block) else None
            if place is None:
                dropped.append(block)
            else:
                table[place] = block
        missing = list(places)
        for place, block in zip(missing, self.block_pool.get_new_blocks(len(missing)), strict=True):
            table[place] = block
        self._give_back(dropped[::-1])
        return table[before:]

    def _most_held(self, num_tokens: int) -> int:
        """Mode "align": the most blocks of a request of so many tokens; rejected drafts of two steps may lead back."""
        drafts, size = self.num_speculative_blocks, self.block_size
        return drafts + min(max(1, cdiv(num_tokens, size)), 1 + cdiv(max(1 + drafts, 2 * drafts - 1), size))

    def _to_arrange(
        self, request_id: str, table: Sequence[KVCacheBlock], num_computed_tokens: int, num_tokens: int
    ) -> tuple[list[int], list[int]]:
        """Mode "align": the entries where a step up to `num_tokens` tokens lacks a block, and those that give theirs.

        A block moves if no other request holds it or may come to; the others are given back. This may even be the block
        that the step continues from, as it reads before it writes. Two kinds stay in their places: the block of the
        last computed token, as others may continue from the state there, and those that a step may still write if
        drafts are rejected, of this one or of the one before. Where the table ends before those, they get blocks, too.
        """
        null, drafts, size = self._null_block, self.num_speculative_blocks, self.block_size
        running, had = (num_tokens - 1) // size, len(table)
        end = running + 1 + drafts
        if end <= had and null not in table[running:end]:
            return [], []
        low, new = running, num_tokens - num_computed_tokens
        if new <= 1 + drafts:  # a longer step has no drafts
            low = min(low, max(0, num_computed_tokens - drafts + (new > 1)) // size)
        empty = [i for i in range(low, end) if i >= had or (i >= running and table[i] is null)]
        stays = (num_computed_tokens - 1) // size
        first = self.num_leading_nulls.get(request_id, 0)
        held = [i for i in range(first, had) if table[i] is not null]
        return empty, [i for i in held if i != stays and not low <= i < end]

    def note_step(self, request_id: str, start: int, num_known_tokens: int, end: int) -> None:
        """The first token of a step is never a draft."""
        known = end if end < num_known_tokens else num_known_tokens
        if known <= start:
            known = start + 1
        lost = -1, 0
        if (before := self.steps.get(request_id)) is not None:
            _, before_start, before_known, before_end = before
            if before_start == before_end:
                lost = before[0]
            elif self.moves_blocks:
                lost = before_start, before_known
            else:
                lost = -1, before_start + 1 if before_known == before_end else maxsize
        self.steps[request_id] = lost, start, known, end

    def note_load(self, request_id: str, end: int) -> None:
        """They bring the state behind them and no other."""
        self.steps[request_id] = (-1, end), end, end, end

    def stands(self, request_id: str, i: int) -> bool:
        """Whether entry `i` of a table, the next to be registered, holds the state of its block after the last step.

        In mode "align" a step leaves the state behind its known tokens; among its drafts the last block end that turns
        out right gets its state, too. In the others a step without drafts leaves one in each block that it fills, and
        one with drafts none in its place. Who asks for registering without telling of steps knows what he does.
        """
        if (step := self.steps.get(request_id)) is None:
            return True
        (lost, kept), start, known, end = step
        size = self.block_size
        after = (i + 1) * size
        if after > start:
            return after == known and end - known < size if self.moves_blocks else known == end
        return (after > start - size or not self.moves_blocks) and not lost < after < kept

    def entries_of_step(self, request_id: str) -> Sequence[int]:
        """Mode "align": the entries of a table whose states the last step can have left, the one before it and the one
        behind."""
        _, start, known, _ = self.steps[request_id]
        before, behind = start // self.block_size - 1, known // self.block_size - 1
        return (before, behind) if before < behind else (before,)

    def mask_of_written(
        self, request_id: str, first: int, end: int, mask: Sequence[bool] | None
    ) -> Sequence[bool] | None:
        """In mode "align" only those of the step hold theirs."""
        if (step := self.steps.get(request_id)) is None:
            return mask
        if not self.moves_blocks:
            if step[2] == step[3] and (first + 1) * self.block_size > step[1]:
                return mask
            candidates: Sequence[int] = range(first, end)
        else:
            candidates = self.entries_of_step(request_id)
        written = [False] * (end - first)
        for i in candidates:
            if first <= i < end and self.stands(request_id, i):
                written[i - first] = mask is None or mask[i - first]
        return written

    def note_registered(self, blocks: Sequence[KVCacheBlock]) -> None:
        """This step still writes these states."""
        for block in blocks:
            if block.content is not None:
                self.cached_blocks_this_step.add(block.content)

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        """As for every type; in mode "align" also behind entries that are null already.

        No state is needed but that after the last token, and those of tokens that are not settled stand further right.
        All stay for as many tokens more as there can be drafts: where accepted ones have reached the end of a block,
        its state is registered by the allocation that is about to come. In mode "align" those that are registered go at
        once: the step that is about to come may need their room.
        """
        without_drafts = max(0, total_computed_tokens - self.num_speculative_blocks)
        if self.mamba_cache_mode != "align":
            super().remove_skipped_blocks(request_id, without_drafts)
            return
        table, end = self.req_to_blocks.get(request_id, []), self._num_skipped_blocks(without_drafts)
        first, null = self.num_leading_nulls.get(request_id, 0), self._null_block
        gone: list[KVCacheBlock] = []
        for i in range(first, min(self._num_skipped_blocks(total_computed_tokens), len(table))):
            block = table[i]
            if block is not null and (i < end or block.content is not None):
                gone.append(block)
                table[i] = null
        if len(gone) == 1:
            self.block_pool.release_one(gone[0])
        elif gone:
            self._give_back(gone[::-1])
        if first < (end := min(end, len(table))):
            self.num_leading_nulls[request_id] = end

    def skips_at(self, num_settled_tokens: int) -> int:
        """As for every type; drafts may be rejected."""
        drafts = self.num_speculative_blocks
        skipped = self._num_skipped_blocks(max(0, num_settled_tokens - drafts))
        return (skipped + 1) * self.block_size + 1 + drafts

    def quiet_tokens(self, request_id: str, num_settled_tokens: int) -> range:
        """As for every type; in mode "align" the steps that end in the block of the running state.

        The states before it are given back as `remove_skipped_blocks` says.
        """
        if not self.moves_blocks:
            return super().quiet_tokens(request_id, num_settled_tokens)
        size, drafts, table = self.block_size, self.num_speculative_blocks, self.req_to_blocks.get(request_id, [])
        null, running = self._null_block, len(table) - 1 - drafts
        if running < 0 or null in table[running:]:
            return range(0)
        end = min((running + 1) * size, self.gives_back_at(request_id))
        return range(running * size + 1, end + 1)

    def gives_back_at(self, request_id: str) -> int:
        """Mode "align": the fewest settled tokens at which the request gives back a state that it holds now."""
        size, drafts, null = self.block_size, self.num_speculative_blocks, self._null_block
        states, least = self.req_to_blocks.get(request_id, ()), maxsize
        for i in range(self.num_leading_nulls.get(request_id, 0), len(states) - drafts):
            if states[i] is not null:
                at = (i + 1) * size + 1 + (0 if states[i].content is not None else drafts)
                if not drafts:
                    return at
                least = min(least, at)
        return least

    def renew(self, hashes: BlockHashList, request_id: str) -> None:
        """States that lookups find for the registered entries of a request that is about to end count as used now.

        It gave most of them up on its way. Where they stayed in the queue they would be reused long before the blocks
        of other groups, which no lookup can use without them: on recorded traffic up to a tenth of the hits
        (docs/evidence/hits.md). The free queue's order, which lockstep compares, guards it.
        """
        count = min(self.num_cached_block.get(request_id, 0), len(hashes))
        if count:
            known = self.block_pool.cached_block_hash_to_block
            self.block_pool.renew(known.found(self.kv_cache_group_id, hashes[count - 1 :: -1]))

    def free(self, request_id: str) -> None:
        """Give back all states."""
        self.num_leading_nulls.pop(request_id, None)
        self.steps.pop(request_id, None)
        super().free(request_id)

    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        """Always 0: states are not shared while running."""
        return 0

    def new_step_starts(self) -> None:
        """What the last step registered is written now."""
        self.cached_blocks_this_step.clear()


def _is_own(block: KVCacheBlock) -> bool:
    """Whether the block may be overwritten: nobody else holds it, and no lookup finds it."""
    return block.state == 1 and block.content is None
