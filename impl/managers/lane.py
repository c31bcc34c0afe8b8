"""One group in the steps of running requests."""

from sys import maxsize

from ..hashing.extra_keys import CacheableRequest
from ..pool.block import KVCacheBlock
from ..specs.base import cdiv
from .base import SingleTypeKVCacheManager


class Lane:
    """What of a group's manager is read in every step, and what is done there."""

    def __init__(self, manager: SingleTypeKVCacheManager, step: int, every_block: bool) -> None:
        """Blocks are registered at multiples of `step` tokens; `every_block` says that no policy leaves any out."""
        self.manager = manager
        self.pool = manager.block_pool
        self.tables = manager.req_to_blocks
        self.registered = manager.num_cached_block
        self.group = manager.kv_cache_group_id
        self.size = manager.block_size
        self.step = step
        self.extra = manager.extra_blocks
        self.may_skip = manager.may_skip
        self.caching = manager.enable_caching
        self.moves = manager.moves_blocks
        self.notes_registered = manager.notes_registered
        self.waits = manager.waits_for_hashes
        self.keeps_states = manager.keeps_states
        self.single = every_block and manager.registers_every_block and step == self.size and not manager.use_eagle
        """Whether a block is registered as soon as it is full, whatever comes behind it."""
        self.begins = manager.is_ours and not (manager.moves_blocks or manager.keeps_states or self.extra)
        """Whether a table begins with blocks for its tokens and nothing else."""
        self.skips: dict[str, int] = {}
        """For each running request the fewest settled tokens at which it gives back blocks that it holds now."""
        self.firsts: dict[str, int] = {}
        """Where states move: the fewest tokens of a step for which the table has its states where they belong."""

    def missing(self, request: CacheableRequest, slots: int, tokens: int) -> int:
        """How many blocks a step lacks that ends at so many tokens, with so many slots."""
        request_id = request.request_id
        if self.moves:
            return self.manager.get_num_blocks_to_allocate(request_id, slots, (), request.num_computed_tokens, tokens)
        return max(0, cdiv(slots, self.size) + self.extra - len(self.tables[request_id]))

    def grow(self, table: list[KVCacheBlock], slots: int) -> list[KVCacheBlock]:
        """Add to a table what it lacks for so many tokens, which is one block at least."""
        manager, missing = self.manager, -(-slots // self.size) + self.extra - len(table)
        if missing > 1:
            return manager.grow(table, missing)
        block = self.pool.get_new_block()
        table.append(block)
        if manager.collects_new_block_ids:
            manager.new_blocks.append(block)
        return [block]

    def begin(self, missing: int) -> list[KVCacheBlock]:
        """So many new blocks, one at least, for a table that begins."""
        row = self.pool.get_new_blocks(missing) if missing > 1 else [self.pool.get_new_block()]
        if self.manager.collects_new_block_ids:
            self.manager.new_blocks += row
        return row

    def arrange(self, request: CacheableRequest, slots: int, tokens: int) -> list[KVCacheBlock]:
        """Where states move: `grow`, for a step that ends at so many tokens and may begin at any."""
        request_id, computed, size = request.request_id, request.num_computed_tokens, self.size
        table = self.tables[request_id]
        room = len(table) * size
        if (
            not self.extra
            and self.skips[request_id] == room + 1
            and room - size < computed <= room < tokens <= room + size
        ):  # in most steps that need a block: the last entry alone is a state, and stays
            block = self.pool.get_new_block()
            table.append(block)
            self.firsts[request_id] = room + 1
            return [block]
        row = self.manager.allocate_new_blocks(request_id, slots, tokens, computed)
        self.find_place(request_id)
        self.look_ahead(request_id, 0)
        return row

    def find_place(self, request_id: str) -> None:
        """Where states move: find out which steps find theirs where they belong."""
        table, null = self.tables[request_id], self.pool.null_block
        running = len(table) - 1 - self.extra
        whole = running >= 0 and table[running] is not null and (not self.extra or null not in table[running:])
        self.firsts[request_id] = running * self.size + 1 if whole else maxsize

    def look_ahead(self, request_id: str, num_settled_tokens: int) -> None:
        """Find out when a request gives back blocks that it holds now, of which so many tokens are settled."""
        if self.moves:
            self.skips[request_id] = self.manager.gives_back_at(request_id)
        else:
            self.skips[request_id] = self.manager.skips_at(num_settled_tokens)

    def register(self, request: CacheableRequest, request_id: str, table: list[KVCacheBlock], i: int) -> bool:
        """Register entry `i` of a table, the next one, which hits can use. False if it waits for its hash."""
        if self.waits and len(request.block_hashes) * self.pool.hash_block_size < (i + 1) * self.size:
            return False
        block = table[i]
        if block is not self.pool.null_block and (not self.keeps_states or self.manager.stands(request_id, i)):
            self.pool.cache_full_block(request, table, i, self.size, self.group)
            if self.notes_registered:
                self.manager.note_entry(request_id, i)
                if self.extra:  # it goes sooner than it would have
                    self.look_ahead(request_id, 0)
        self.registered[request_id] = i + 1
        return True

    def register_row(self, request: CacheableRequest, table: list[KVCacheBlock], known: int, tokens: int) -> int:
        """Register what so many tokens fill behind the first `known` entries of a table, of which none is null and hits
        can use each: how many entries are registered then."""
        size, pool = self.size, self.pool
        if self.waits:
            named = len(request.block_hashes) * pool.hash_block_size
            tokens = tokens if tokens < named else named
        end = tokens // size
        if end == known + 1:
            pool.cache_full_block(request, table, known, size, self.group)
        elif end > known:
            pool.cache_row(request, table, known, end, size, self.group)
        else:
            return known
        self.registered[request.request_id] = end
        return end

    def registers_at(self, request_id: str) -> int:
        """The fewest tokens with which there is a block to register that is not registered yet."""
        if not self.caching:
            return maxsize
        size, step = self.size, self.step
        known = self.registered.get(request_id, 0)
        if step == size:
            return (known + 1) * size
        if self.manager.use_eagle:
            return max((known + 1) * size, max(cdiv(known * size, step), 1) * step)
        return cdiv((known + 1) * size, step) * step
