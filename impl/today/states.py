"""States of Mamba layers by the rule of today: they may be named inside a block, and are offered to a connector."""

from collections.abc import Sequence
from sys import maxsize

from ..hashing.extra_keys import CacheableRequest
from ..managers.mamba import MambaManager
from ..pool.block import KVCacheBlock
from .managers import OF_TODAY, ByNames, Tail


class MambaToday(ByNames, MambaManager):
    """A state at the end of a prompt is named if the step ended exactly there."""

    is_thinned = True
    leaves_one_state = True
    """Whether a step without drafts leaves one state alone, behind it."""

    def __post_init__(self, *given: object, **named: object) -> None:
        super().__post_init__(*given, **named)
        self.offers: list[tuple[str, int, int, int]] = []
        """States that a connector may read in this step: request, group, block and tokens."""

    @property
    def names_ends(self) -> bool:
        """Of states that are moved."""
        return self.moves_blocks

    @property
    def leaves_running_state(self) -> bool:
        """Whether a step leaves the running state alone, whatever it is."""
        return self.moves_blocks and self.leaves_one_state and not self.num_speculative_blocks

    def most_blocks(self, num_tokens: int) -> int:
        """Besides, those of drafts of two steps, a running state, and that of a checkpoint."""
        return super().most_blocks(num_tokens) + 4 * self.num_speculative_blocks + 4

    def attach_computed_blocks(
        self,
        request_id: str,
        new_computed_blocks: Sequence[KVCacheBlock],
        num_local_computed_tokens: int,
        num_external_computed_tokens: int,
        num_settled_tokens: int | None = None,
    ) -> int:
        """As before; where states move, nothing looks at the nulls before them again."""
        given = request_id, new_computed_blocks, num_local_computed_tokens, num_external_computed_tokens
        begins = self.moves_blocks and request_id not in self.num_cached_block
        missing = ByNames.attach_computed_blocks(self, *given, num_settled_tokens)
        if begins:
            total = num_local_computed_tokens + num_external_computed_tokens
            settled = total if num_settled_tokens is None else num_settled_tokens
            self.num_leading_nulls[request_id] = self._num_skipped_blocks(settled)
        return missing

    def allocate_new_blocks(
        self,
        request_id: str,
        num_tokens: int,
        num_tokens_main_model: int,
        total_computed_tokens: int | None = None,
    ) -> list[KVCacheBlock]:
        """As before; behind a table of nulls the states stand at its end. Where the table ends before the running
        state, and the only other one is what the step continues from, nothing has to move."""
        own = self._make_private(request_id) if request_id in self.tails else []
        table, null = self.req_to_blocks[request_id], self._null_block
        had, leading, computed = len(table), self.num_leading_nulls.get(request_id, 0), total_computed_tokens
        begins = self.moves_blocks and leading >= had
        if self.moves_blocks and not self.num_speculative_blocks and computed is not None:
            running, last, pool = (num_tokens_main_model - 1) // self.block_size, had - 1, self.block_pool
            first = running if self.leaves_one_state else self.first_left(computed, num_tokens_main_model, running)
            if first == running == last and table[running] is not null:
                return own
            stays = begins or leading == last == (computed - 1) // self.block_size
            if first >= had and stays and pool.free_block_queue.num_free_blocks > running - first:
                table += [null] * (first - had)
                table += [pool.get_new_block()] if first == running else pool.get_new_blocks(running + 1 - first)
                if begins:
                    self.num_leading_nulls[request_id] = first
                return own + table[had:]
        added = MambaManager.allocate_new_blocks(self, request_id, num_tokens, num_tokens_main_model, computed)
        if own:
            added = own + added
        if begins and added:
            nulls = len(table)
            while nulls and table[nulls - 1] is not null:
                nulls -= 1
            if null not in table[nulls:]:
                self.num_leading_nulls[request_id] = nulls
        return added

    def first_left(self, start: int, end: int, running: int) -> int:
        """The first entry of a table in which a step `start .. end - 1` leaves a state; `running` is the last one."""
        return running

    def cache_blocks(self, request: CacheableRequest, num_tokens: int, retention_interval: int | None = None) -> None:
        """As before. A step that moves its states leaves few: these alone are looked at, where nobody has to be told of
        all that count as registered."""
        request_id, pool, size = request.request_id, self.block_pool, self.block_size
        if not self.moves_blocks or pool.enable_kv_cache_events or request_id not in self.steps:
            super().cache_blocks(request, num_tokens, retention_interval)
            return
        first, end = self.num_cached_block.get(request_id, 0), num_tokens // size
        if end <= first:
            return
        table, everything = self.req_to_blocks[request_id], self.registers_every_block and retention_interval is None
        for i in self.entries_of_step(request_id):
            if not first <= i < end or table[i] is self._null_block or not self.stands(request_id, i):
                continue
            if everything or (self.wanted(request, i, i + 1, retention_interval) or (True,))[0]:
                pool.cache_full_block(request, table, i, size, self.kv_cache_group_id)
        self.num_cached_block[request_id] = end

    def name_end(self, request: CacheableRequest, num_tokens: int, end: int, at_junction: bool) -> None:
        """Name the state behind so many tokens, if that is the end of the prompt or a junction, and stands there."""
        unit, size, request_id = self.unit, self.block_size, request.request_id
        if not self.moves_blocks or num_tokens <= 0 or num_tokens % unit:
            return
        left = max(min(unit, self.tokens_behind), self.block_pool.num_hash_lookahead_tokens)
        last = (request.num_prompt_tokens - left) // unit * unit
        if num_tokens != last and not at_junction:
            return
        entry, table = (num_tokens - 1) // size, self.req_to_blocks.get(request_id, ())
        block = table[entry] if entry < len(table) else self._null_block
        if block is self._null_block:
            return
        if num_tokens != end and not self.stands(request_id, entry):
            return
        if block.content is not None and self.block_pool.covers(block, (entry + 1) * size) == num_tokens:
            return
        self.give_name(request, num_tokens, entry, block)
        self.cached_blocks_this_step.add(request.block_hashes[num_tokens // unit - 1])
        if num_tokens % size:
            self.tails[request_id] = Tail(entry, block, num_tokens)
            self.num_cached_block[request_id] = entry

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        """Null all states but that behind so many tokens. Drafts whose outcome is open are none of these tokens, so
        nothing has to stay for them."""
        first, end = self.num_leading_nulls.get(request_id, 0), self._num_skipped_blocks(total_computed_tokens)
        if first >= end:
            return
        table, null = self.req_to_blocks.get(request_id, []), self._null_block
        end = min(end, len(table))
        if first >= end:
            return
        gone = [block for block in table[first:end] if block is not null]
        table[first:end] = [null] * (end - first)
        self.num_leading_nulls[request_id] = end
        if len(gone) == 1:
            self.block_pool.release_one(gone[0])
        elif gone:
            self._give_back(gone[::-1])

    def _num_skipped_blocks(self, num_computed_tokens: int) -> int:
        """All before that of the last token."""
        return (num_computed_tokens - 1) // self.block_size if num_computed_tokens > 1 else 0

    def skips_at(self, num_settled_tokens: int) -> int:
        """Where the last token has left one block more."""
        return (self._num_skipped_blocks(num_settled_tokens) + 1) * self.block_size + 1

    def gives_back_at(self, request_id: str) -> int:
        """Where the first state goes that the request holds now, but for the running one and those of drafts."""
        states, null = self.req_to_blocks.get(request_id, ()), self._null_block
        for i in range(self.num_leading_nulls.get(request_id, 0), len(states) - self.num_speculative_blocks):
            if states[i] is not null:
                return (i + 1) * self.block_size + 1
        return maxsize

    def renew_states(self, request: CacheableRequest) -> None:
        """As `renew`: of each block the name is that of its last hash block."""
        per, hashes = self.block_size // self.unit, request.block_hashes
        count = min(self.num_cached_block.get(request.request_id, 0), len(hashes) // per)
        if count:
            known = self.block_pool.cached_block_hash_to_block
            found = known.found(self.kv_cache_group_id, hashes[count * per - 1 :: -per])
            if found:
                self.block_pool.renew(found)

    def note_registered(self, blocks: Sequence[KVCacheBlock]) -> None:
        """`offer` says more."""

    def note_entry(self, request_id: str, i: int) -> None:
        """It is offered."""
        self.offer(request_id, i, i + 1)

    def offer(self, request_id: str, first: int, end: int) -> None:
        """Entries `first .. end - 1` of a table count as registered: this step writes their states."""
        table = self.req_to_blocks.get(request_id, ())
        written = self.entries_of_step(request_id) if self.moves_blocks and request_id in self.steps else ()
        for entry in written or range(first, min(end, len(table))):
            if first <= entry < end and (content := (block := table[entry]).content) is not None:
                self.cached_blocks_this_step.add(content)
                if self.moves_blocks:
                    block_id, tokens, partial = block.block_id, (entry + 1) * self.block_size, self.block_pool.partial
                    tokens = partial.get(block_id, tokens) if partial else tokens
                    self.offers.append((request_id, self.kv_cache_group_id, block_id, tokens))

    def note_moved(self, request_id: str, copy: KVCacheBlock, tokens: int) -> None:
        """The copy is what a connector reads."""
        self.offers.append((request_id, self.kv_cache_group_id, copy.block_id, tokens))
        if copy.content is not None:
            self.cached_blocks_this_step.add(copy.content)

    def note_copied(self, copy: KVCacheBlock) -> None:
        """Only states of mode align are no tokens to be zeroed."""
        if not self.moves_blocks:
            super().note_copied(copy)

    def free(self, request_id: str) -> None:
        """Give back all states, of which most entries hold none any more."""
        first, null = self.num_leading_nulls.get(request_id, 0), self._null_block
        states = [block for block in self.pop_table(request_id)[first:] if block is not null]
        self.block_pool.release_by_names(states[::-1])

    def pop_table(self, request_id: str) -> list[KVCacheBlock]:
        """What the request has offered and nobody has taken is not offered any more."""
        self.num_leading_nulls.pop(request_id, None)
        self.steps.pop(request_id, None)
        if self.offers:
            self.offers = [offer for offer in self.offers if offer[0] != request_id]
        return ByNames.pop_table(self, request_id)

    def last_offer(self, request: CacheableRequest) -> list[tuple[int, int, int]]:
        """The state at the end of a request's prompt, if it has named it itself and computed nothing behind it."""
        tail = self.tails.get(request.request_id)
        if tail is None or not tail.named or tail.named != request.num_computed_tokens:
            return []
        return [(self.kv_cache_group_id, tail.block.block_id, tail.named)]


OF_TODAY[MambaManager] = MambaToday
