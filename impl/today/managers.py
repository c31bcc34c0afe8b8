"""The managers of one group by the rule of today: what each gives back stands by its name, blocks in which a hit ends
are copied before they are written on, and the end of a prompt gets a name inside its block."""

from bisect import bisect
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..hashing.extra_keys import CacheableRequest
from ..managers.base import SingleTypeKVCacheManager
from ..managers.full import CrossAttentionManager, FullAttentionManager, SinkFullAttentionManager
from ..managers.window import ChunkedLocalAttentionManager, SlidingWindowManager
from ..pool.block import KVCacheBlock
from ..specs.interface import SlidingWindowSpec
from .block_pool import TodayPool
from .events import Places


class Tail(NamedTuple):
    """A block that a request shares, and will write on in."""

    entry: int
    block: KVCacheBlock
    named: int = 0
    """Tokens up to the end that the request has named in it itself; 0 where its hit ends in it."""


class ByNames(SingleTypeKVCacheManager):
    """What all types have in common by the rule of today."""

    block_pool: TodayPool
    waits_for_hashes = True
    is_thinned = False
    """Whether a retention interval says anything of the type."""
    lacking_at_junction = 0
    """Tokens that drafts need behind a hit besides those that are there where a prefix ends that others share."""
    folds = False
    """Whether its blocks are looked up from the left alone, whole and by their own hashes."""
    unzeroed = False
    """Whether a load writes all of the blocks that are taken for external tokens in this call."""
    # Python keeps up to 29 fields of an object together; where there are more each is looked up in a dict. So what
    # mostly is as it stands here is no field.

    def __post_init__(self, *given: Any, **named: Any) -> None:
        super().__post_init__(*given, **named)
        self.tails: dict[str, Tail] = {}
        """By request."""
        self.unit: int = self.block_pool.hash_block_size
        """Tokens of a hash block."""

    @property
    def names_ends(self) -> bool:
        """Whether ends of prompts may get names inside blocks."""
        return False

    def expect_hits(self, alignment: int, use_eagle: bool, tokens_behind: int) -> None:
        """As before; a prompt's last tokens, which the names of blocks need, are behind every hit of it."""
        super().expect_hits(alignment, use_eagle, max(tokens_behind, self.block_pool.num_hash_lookahead_tokens))

    # What a request gets.

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
        """As before, and a block for a copy."""
        needed = super().get_num_blocks_to_allocate(
            request_id,
            num_tokens,
            new_computed_blocks,
            total_computed_tokens,
            num_tokens_main_model,
            apply_admission_cap,
            num_settled_tokens,
            num_lookahead_tokens,
        )
        # Only a hit that ends inside its last block has more room than there are tokens.
        copied = len(new_computed_blocks) * self.block_size > total_computed_tokens and bool(new_computed_blocks)
        return needed + (copied or request_id in self.tails)

    def attach_computed_blocks(
        self,
        request_id: str,
        new_computed_blocks: Sequence[KVCacheBlock],
        num_local_computed_tokens: int,
        num_external_computed_tokens: int,
        num_settled_tokens: int | None = None,
    ) -> int:
        """As before; a hit that ends inside a block leaves that to be copied."""
        missing = SingleTypeKVCacheManager.attach_computed_blocks(
            self,
            request_id,
            new_computed_blocks,
            num_local_computed_tokens,
            num_external_computed_tokens,
            num_settled_tokens,
        )
        total = num_local_computed_tokens + num_external_computed_tokens
        if missing > 0 and not self.reads_any(total, total if num_settled_tokens is None else num_settled_tokens):
            missing = 0
        if new_computed_blocks and len(new_computed_blocks) * self.block_size > num_local_computed_tokens:
            entry = len(new_computed_blocks) - 1
            self.tails[request_id] = Tail(entry, new_computed_blocks[-1])
            self.num_cached_block[request_id] = entry
        return missing

    def reads_any(self, num_tokens: int, num_settled_tokens: int) -> bool:
        """Whether a query behind the settled ones of so many tokens reads any of them: what comes from outside before a
        window is left out token by token."""
        return num_tokens > self.get_num_skipped_tokens(num_settled_tokens)

    def allocate_external_blocks(self, request_id: str, count: int) -> None:
        """As before; `unzeroed` says whether they are listed to be zeroed."""
        if count <= 0:
            return
        listed, self.collects_new_block_ids = self.collects_new_block_ids, False
        self.collects_new_block_ids = listed and not self.unzeroed
        try:
            super().allocate_external_blocks(request_id, count)
        finally:
            self.collects_new_block_ids = listed

    def allocate_new_blocks(
        self,
        request_id: str,
        num_tokens: int,
        num_tokens_main_model: int,
        total_computed_tokens: int | None = None,
    ) -> list[KVCacheBlock]:
        """As before; the copy of a block that the request writes on in comes first."""
        own = self._make_private(request_id) if self.tails and request_id in self.tails else None
        table = self.req_to_blocks[request_id]
        missing = -(-num_tokens // self.block_size) - len(table)
        added = self.grow(table, missing) if missing > 0 else []
        return own + added if own else added

    def _make_private(self, request_id: str) -> list[KVCacheBlock]:
        """Take a block for the copy: for the request, or, of what it has named itself, for the names, since a worker's
        row only grows. Source and target are held until the copy has run. Returns what is new in the table."""
        tail, pool = self.tails.pop(request_id), self.block_pool
        copy = pool.get_new_block()
        pool.copying.append((tail.block, copy))
        table = self.req_to_blocks[request_id]
        if table[tail.entry] is not tail.block:
            raise AssertionError(f"request {request_id} writes on in block {tail.block.block_id}, which it gave up")
        if tail.named:
            pool.hold(tail.block)
            pool.move_names(tail.block, copy)
            self.note_moved(request_id, copy, tail.named)
            return []
        pool.hold(copy)
        table[tail.entry] = copy
        self.note_copied(copy)
        return [copy]

    def note_moved(self, request_id: str, copy: KVCacheBlock, tokens: int) -> None:
        """What the request had named, so many tokens, is named in a copy now."""

    def note_copied(self, copy: KVCacheBlock) -> None:
        """A copy stands in a table: it is zeroed before it is written."""
        self.new_blocks.append(copy)

    # What gets a name.

    def cache_blocks(self, request: CacheableRequest, num_tokens: int, retention_interval: int | None = None) -> None:
        """As before. Of a table without nulls, where hits can use all, no block is asked whether it is one."""
        request_id, size = request.request_id, self.block_size
        first, end = self.num_cached_block.get(request_id, 0), num_tokens // size
        if end <= first:
            return
        thinned = retention_interval is not None and self.is_thinned
        if thinned or not self.registers_every_block or (self.may_skip and self._may_have_nulls(request_id, first)):
            super().cache_blocks(request, num_tokens, retention_interval)
            return
        pool, table = self.block_pool, self.req_to_blocks[request_id]
        if end - first == 1 and table[first].content is None and not pool.enable_kv_cache_events:
            pool.cache_full_block(request, table, first, size, self.kv_cache_group_id)
        else:
            pool.cache_row(request, table, first, end, size, self.kv_cache_group_id)
        self.num_cached_block[request_id] = end

    def _may_have_nulls(self, request_id: str, first: int) -> bool:
        """Whether a table of a type that skips may have a null from this entry on."""
        return True

    def wanted(
        self, request: CacheableRequest, first: int, end: int, retention_interval: int | None
    ) -> Sequence[bool] | None:
        """As before; under a retention interval also what a hit reads that ends where others share the prefix, or
        before, where drafts lack what is behind. What is not thinned out says by its names where that is."""
        if retention_interval is None or not self.is_thinned:
            return super().wanted(request, first, end, None)
        size, spec, blocks = self.block_size, self.kv_cache_spec, range(first, end)
        mask: list[bool] | None = [False for _ in blocks]
        if retention_interval:
            mask = type(self).read_at_next_boundary(spec, blocks, size, retention_interval)
            if mask is not None and self.use_eagle:
                for i in range(max(first, 1), end):
                    mask[i - first] |= i * size % retention_interval == 0
        if mask is None:
            return None
        shared = getattr(request, "shared_prefix_boundary", 0)
        for ends in (request.num_prompt_tokens - self.tokens_behind, shared, shared - self.lacking_at_junction):
            edge, rest = divmod(max(0, ends) // self.alignment * self.alignment, size)
            if edge and (not rest or not self.keeps_states):
                behind = edge + self.use_eagle  # where drafts need it
                for i in range(max(first, type(self).first_read(spec, edge, size)), min(end, behind)):
                    mask[i - first] = True
        return mask

    def _every_block_is_wanted(self) -> bool:
        """As before, though `cache_blocks` is another one."""
        return type(self).read_at_next_boundary(self.kv_cache_spec, range(1), self.block_size, self.alignment) is None

    def name_end(self, request: CacheableRequest, num_tokens: int, end: int, at_junction: bool) -> None:
        """Name the end of the prompt inside its block, where that can be found: within `num_tokens`, of a step that
        ends behind `end`. `at_junction`: that is where others share the prefix. Most types have nothing to name."""

    def give_name(self, request: CacheableRequest, end: int, entry: int, block: KVCacheBlock) -> None:
        """Name a block, an entry of the request's table, for the content of the first `end` tokens. Names for fewer
        tokens are no use any more."""
        pool, unit = self.block_pool, self.unit
        if block is self._null_block:
            return
        content, group = request.block_hashes[end // unit - 1], self.kv_cache_group_id
        whole = (entry + 1) * self.block_size
        if block.content is not None:
            if pool.is_named(block, (group, content)):
                return
            if 0 < pool.covers(block, whole) < end:
                pool.unname(block)
        pool.add_name(block, group, content, None if end == whole else end)
        if not pool.enable_kv_cache_events:
            return
        parent = request.block_hashes[end // unit - 2] if end > unit else None
        places = Places([end - unit], (end - unit, end), unit, pool.num_hash_lookahead_tokens)
        pool.tell_stored(request, self.kv_cache_group_id, places, [content], parent)

    def report(self, request: CacheableRequest, row: Sequence[KVCacheBlock], length: int) -> None:
        """Tell of the blocks of a hit of so many tokens, those that are there, as if they were stored anew."""
        size, unit, pool = self.block_size, self.unit, self.block_pool
        null, hashes = self._null_block, request.block_hashes
        first, per = next((i for i, block in enumerate(row) if block is not null), len(row)), size // unit
        starts: Sequence[int] = range(first * size, len(row) * size, size)
        if null in row[first:]:
            starts = [i * size for i, block in enumerate(row) if block is not null]
            told = [hashes[(start + size) // unit - 1] for start in starts[:-1]]
        else:
            told = hashes[(first + 1) * per - 1 : (len(row) - 1) * per : per]
        if starts:
            end = min(starts[-1] + size, length)
            told.append(hashes[end // unit - 1])
            places = Places(starts, (0, length), min(size, end - starts[0]), pool.num_hash_lookahead_tokens)
            pool.tell_stored(request, self.kv_cache_group_id, places, told, None)

    # What a request gives back.

    def _give_back(self, blocks: list[KVCacheBlock]) -> None:
        """As before."""
        self.block_pool.release_by_names(blocks)

    def most_blocks(self, num_tokens: int) -> int:
        """At least as many as `get_num_blocks_to_allocate` says beside those of the hit: a table for so many tokens,
        and a copy."""
        return -(-num_tokens // self.block_size) + 1

    def free(self, request_id: str) -> None:
        """Give back all blocks: named ones to the back, others to the front, the end of the table first."""
        null, blocks = self._null_block, self.pop_table(request_id)[::-1]
        blocks = [block for block in blocks if block is not null] if self.may_skip else blocks
        self.block_pool.release_by_names(blocks)

    def pop_table(self, request_id: str) -> list[KVCacheBlock]:
        """Forget the request; its table stays held."""
        if self.tails:
            self.tails.pop(request_id, None)
        self.num_cached_block.pop(request_id, None)
        return self.req_to_blocks.pop(request_id, [])


class FullToday(ByNames, FullAttentionManager):
    """Full attention: the end of a prompt is named wherever it lies in its block."""

    @property
    def names_ends(self) -> bool:
        """Where its blocks are more than a hash block."""
        return self.block_size != self.unit

    @property
    def folds(self) -> bool:  # type: ignore[override]
        """Where each of its blocks is a hash block, and stays."""
        return self.is_ours and not self.may_skip and self.block_size == self.unit

    def name_end(self, request: CacheableRequest, num_tokens: int, end: int, at_junction: bool) -> None:
        """Its last whole hash block before its last token, once that is computed."""
        unit, table = self.unit, self.req_to_blocks.get(request.request_id, ())
        # What drafts need behind a hit is found here, too.
        left = 0 if self.use_eagle else max(1, self.block_pool.num_hash_lookahead_tokens)
        last = min((request.num_prompt_tokens - left) // unit, len(request.block_hashes)) * unit
        entry, inside = divmod(last, self.block_size)
        if inside and 0 < last <= num_tokens and entry < len(table):
            self.give_name(request, last, entry, table[entry])


class SinkToday(FullToday, SinkFullAttentionManager):
    """The same with sinks."""


class CrossToday(ByNames, CrossAttentionManager):
    """Cross attention."""


class SlidingToday(ByNames, SlidingWindowManager):
    """A sliding window: nulls stand before all else in a table."""

    is_thinned = True

    def __init__(self, kv_cache_spec: SlidingWindowSpec, *given: Any, **named: Any) -> None:
        super().__init__(kv_cache_spec, *given, **named)
        self.sliding_window += getattr(kv_cache_spec, "extra_retained_tokens", 0)
        """Nothing is given up so far back. Hits need what is read alone."""

    def _capped(
        self, new: int, table: Sequence[KVCacheBlock], kept: Sequence[KVCacheBlock], num_lookahead_tokens: int
    ) -> int:
        """As before; where more is kept than read, some of what is kept of a hit may be null, which nobody holds."""
        if self.sliding_window > getattr(self.kv_cache_spec, "sliding_window", 0):
            kept = [block for block in kept if block is not self._null_block]
        return super()._capped(new, table, kept, num_lookahead_tokens)

    def _may_have_nulls(self, request_id: str, first: int) -> bool:
        """Only if this one is null."""
        table = self.req_to_blocks[request_id]
        return first >= len(table) or table[first] is self._null_block

    def free(self, request_id: str) -> None:
        """As before."""
        table, null = self.pop_table(request_id), self._null_block
        if table and table[0] is null:
            table = table[bisect(table, False, key=lambda block: block is not null) :]
        self.block_pool.release_by_names(table[::-1])


class ChunkedToday(ByNames, ChunkedLocalAttentionManager):
    """Attention within chunks."""


OF_TODAY: dict[type[SingleTypeKVCacheManager], type[ByNames]] = {
    FullAttentionManager: FullToday,
    SinkFullAttentionManager: SinkToday,
    CrossAttentionManager: CrossToday,
    SlidingWindowManager: SlidingToday,
    ChunkedLocalAttentionManager: ChunkedToday,
}
"""Which class stands for one of the older rule."""
