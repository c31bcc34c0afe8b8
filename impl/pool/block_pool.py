"""The pool of blocks: who holds them, what they contain, in which order they are reused (core.md §§4, 5)."""

import logging
from collections.abc import Iterable, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any, NoReturn

from ..hashing.block_hash import BlockHash
from ..hashing.block_hashing import BlockHashList, BlockHashListWithBlockSize, external_hashes
from ..hashing.extra_keys import CacheableRequest
from .block import Batch, Hit, KVCacheBlock, loose_run
from .events import MEDIUM_GPU, AllBlocksCleared, BlockRemoved, KVCacheEvent, blocks_stored
from .free_queue import FreeKVCacheBlockQueue
from .hash_map import BlockHashToBlockMap
from .metrics import KVCacheMetricsCollector

logger = logging.getLogger(__name__)

_STATE = attrgetter("state")
_BULK = 8
"""From so many blocks on it pays to look at all of them together first."""


class BlockPool:
    """All blocks of a device. Block 0 is the null block: never handed out, freed, registered or evicted.

    `num_gpu_blocks` counts the null block, `hash_block_size` is in tokens. AssertionError unless `num_gpu_blocks` is a
    positive int. Misuse raises before anything changes (core.md §5).
    """

    def __init__(
        self,
        num_gpu_blocks: int,
        enable_caching: bool,
        hash_block_size: int,
        enable_kv_cache_events: bool = False,
        metrics_collector: KVCacheMetricsCollector | None = None,
    ) -> None:
        if not isinstance(num_gpu_blocks, int):
            raise AssertionError(f"num_gpu_blocks is {num_gpu_blocks!r}: give an int")
        if num_gpu_blocks <= 0:
            raise AssertionError(f"num_gpu_blocks is {num_gpu_blocks}: the null block alone needs one")
        self.num_gpu_blocks = num_gpu_blocks
        self.enable_caching = enable_caching
        self.hash_block_size = hash_block_size
        self.null_block = KVCacheBlock(0, is_null=True)
        self._made = [self.null_block]
        """The blocks that exist, by id: a block is made when it is first handed out or looked at."""
        self.free_block_queue = self._new_queue()
        self.free_block_queue.reserve(num_gpu_blocks - 1, self._make)
        self.cached_block_hash_to_block = self._new_names()
        self.enable_kv_cache_events = enable_kv_cache_events
        self.kv_event_queue: list[KVCacheEvent] = []
        self.reference_keys = False
        """Set it where the block hasher has `reference_keys`: events then show the keys that it hashes."""
        self.metrics_collector = metrics_collector
        self._num_shared = 0
        """How many blocks have two holders or more."""
        self._trusting = True
        """Whether nobody but the tables' owners has given back blocks."""

    def _new_queue(self) -> FreeKVCacheBlockQueue:
        return FreeKVCacheBlockQueue(())

    def _new_names(self) -> BlockHashToBlockMap:
        return BlockHashToBlockMap()

    @property
    def blocks(self) -> list[KVCacheBlock]:
        """All blocks, by id. Read only."""
        if len(self._made) < self.num_gpu_blocks:
            self.free_block_queue.make_all()
        return self._made

    def get_cached_block(self, block_hash: BlockHash, kv_cache_group_ids: Sequence[int]) -> list[KVCacheBlock] | None:
        """The earliest block registered under the hash in each group, or None if any group has none."""
        found: list[KVCacheBlock] = []
        find = self.cached_block_hash_to_block.find
        for group_id in kv_cache_group_ids:
            block = find(group_id, block_hash)
            if block is None:
                return None
            found.append(block)
        return found

    def cache_full_blocks(
        self,
        request: CacheableRequest,
        blocks: Sequence[KVCacheBlock],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        kv_cache_group_id: int,
        block_mask: Sequence[bool] | None = None,
    ) -> None:
        """Register `blocks[num_cached_blocks:num_full_blocks]` under the request's hashes of `block_size` tokens.

        Null blocks and those that `block_mask` (one entry per block of the range) marks False are left out. With events
        on, one `BlockStored` tells of the range. AssertionError, before anything changes, if the request has too few
        hashes, a block has an identity already, or `block_size` is no multiple of `hash_block_size`.
        """
        if num_cached_blocks >= num_full_blocks:
            return
        hashes = self.hashes_at(request, block_size)
        if len(hashes) < num_full_blocks:
            raise AssertionError(
                f"request {request.request_id} has {len(hashes)} block hashes of {block_size} tokens, "
                f"{num_full_blocks} are needed: let its hasher run before caching"
            )
        first, end, group_id = num_cached_blocks, num_full_blocks, kv_cache_group_id
        chosen, contents = list(blocks[first:end]), hashes[first:end]
        mask = self._mask(chosen, block_mask)
        if mask is not None:
            chosen, contents = list(compress(chosen, mask)), list(compress(contents, mask))
        for block in chosen:
            if block.content is not None:
                raise AssertionError(
                    f"block {block.block_id} of request {request.request_id} in group {group_id} already carries an "
                    "identity: register only new blocks"
                )
        row = None if mask is not None else (first, blocks[first - 1] if first else None)
        self.cached_block_hash_to_block.register(group_id, contents, chosen, row)
        if self.enable_kv_cache_events:
            places = range(first, end) if mask is None else list(compress(range(first, end), mask))
            self._announce(request, hashes, places, (first, end, block_size, group_id))

    def cache_row(
        self, request: CacheableRequest, table: list[KVCacheBlock], first: int, end: int, size: int, group_id: int
    ) -> None:
        """`cache_full_blocks` for entries of a table of which none is null, and a hit can use each."""
        self.cache_full_blocks(request, table, first, end, size, group_id)

    def cache_full_block(
        self, request: CacheableRequest, table: Sequence[KVCacheBlock], i: int, block_size: int, group_id: int
    ) -> None:
        """`cache_full_blocks` for entry `i` of a table alone, which is not null."""
        if self.enable_kv_cache_events:
            self.cache_full_blocks(request, table, i, i + 1, block_size, group_id)
            return
        hashes: BlockHashList = request.block_hashes
        if block_size != self.hash_block_size:
            hashes = self.hashes_at(request, block_size)
        block = table[i]
        if len(hashes) <= i or block.content is not None:
            self.cache_full_blocks(request, table, i, i + 1, block_size, group_id)  # says what is wrong
            return
        content = hashes[i]
        block.content = content
        block.run = loose_run(group_id)  # a lookup that finds several of these makes a run of them
        registered = self.cached_block_hash_to_block.groups[group_id]
        if registered.setdefault(content, block) is not block:
            self.cached_block_hash_to_block.add(group_id, content, block)

    def get_new_blocks(self, num_blocks: int) -> list[KVCacheBlock]:
        """Take blocks from the front of the free queue; they lose their identity and have one reference each.

        ValueError if `num_blocks` is negative or exceeds the number of free blocks.
        """
        free = self.free_block_queue.num_free_blocks
        if not 0 <= num_blocks <= free:
            raise ValueError(
                f"asked for {num_blocks} blocks while {free} are free: ask for at least 0 and at most that many"
            )
        blocks = self.free_block_queue.take(num_blocks)
        metrics = self.metrics_collector
        if self.enable_caching:
            if metrics is None and not self.enable_kv_cache_events:
                self.cached_block_hash_to_block.forget_all(blocks)
            else:
                self._forget_loudly(blocks)
        for block in blocks:
            block.state = 1
        if metrics is not None:
            for block in blocks:
                metrics.on_block_allocated(block)
        return blocks

    def get_new_block(self) -> KVCacheBlock:
        """`get_new_blocks` for one, where one is free."""
        queue = self.free_block_queue
        batch = queue.batches[0]
        at, left = batch.at, batch.left
        if left and left == len(batch.blocks) - at:
            block = batch.blocks[at]
            if left == 1:
                queue.batches.popleft()
            batch.at = at + 1
            batch.left = left - 1
            queue.num_free_blocks -= 1
        else:
            (block,) = queue.take(1)
        metrics = self.metrics_collector
        if metrics is None and not self.enable_kv_cache_events:
            if block.content is not None:
                self.cached_block_hash_to_block.forget(block)
        elif block.content is not None or (metrics is not None and self.enable_caching):
            self._forget_identity(block)
        block.state = 1
        if metrics is not None:
            metrics.on_block_allocated(block)
        return block

    def touch(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Hold each block once more, taking it out of the free queue if nobody held it. Null blocks are passed over.

        ValueError, before anything changes, if a block is not of this pool.
        """
        metrics = self.metrics_collector
        if len(blocks) >= _BULK and metrics is None and self._touch_many(blocks):
            return
        own = self._made
        for block in blocks:
            if not 0 <= block.block_id < len(own) or own[block.block_id] is not block:
                self._refuse("touch", blocks, block, "is not of this pool: pass blocks that this pool handed out")
        null, queue = self.null_block, self.free_block_queue
        for block in blocks:
            state = block.state
            if block is null:
                pass
            elif isinstance(state, int) and state > 0:
                block.state = state + 1
                self._num_shared += state == 1
            else:
                queue.remove(block)
                block.state = 1
            if metrics is not None:
                metrics.on_block_accessed(block)

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock], prepend: bool = False) -> None:
        """Give back one reference per entry; a block nobody holds any more enters the free queue, identity and all.

        Such blocks go to the back in the given order, or to the front with `prepend`. Null blocks are passed over.
        ValueError, with nothing changed, if a block is not of this pool or has fewer references than entries here.
        """
        self._trusting = False
        self._give_back(list(ordered_blocks), prepend)

    def release(self, blocks: list[KVCacheBlock], prepend: bool = False) -> None:
        """As `free_blocks`, for the blocks of a table, nulls left out, none of which stands in it twice.

        Such blocks are held, so that nothing needs to be asked of each, unless somebody else has given back blocks, who
        may have given back one of these.
        """
        if (self._num_shared or not self._trusting) and any(state != 1 for state in set(map(_STATE, blocks))):
            if self._trusting:
                self._let_go(blocks, prepend)
            else:
                self._give_back(blocks, prepend)
        elif prepend:
            self.free_block_queue.prepend_n(blocks)
        else:
            self.free_block_queue.append_n(blocks)

    def _let_go(self, blocks: list[KVCacheBlock], prepend: bool) -> None:
        """As `_give_back`, for different blocks that are all held. What others hold, too, is mostly a prefix: it stands
        behind the rest."""
        states: list[Any] = [block.state for block in blocks]
        own = states.count(1)
        freed, shared, left = blocks[:own], blocks[own:], states[own:]
        if 1 in left:
            freed = [block for block, state in zip(blocks, states, strict=True) if state == 1]
            shared = [block for block, state in zip(blocks, states, strict=True) if state != 1]
            left = [state for state in states if state != 1]
        for block, state in zip(shared, left, strict=True):
            block.state = state - 1
        self._num_shared -= left.count(2)
        if prepend:
            self.free_block_queue.prepend_n(freed)
        else:
            self.free_block_queue.append_n(freed)

    def release_one(self, block: KVCacheBlock) -> None:
        """As `release`, for one block: to the back if a lookup can find its content, else to the front."""
        if block.state != 1 and (self._num_shared or not self._trusting):
            self._give_back([block], block.content is None)
        elif block.content is None:
            self.free_block_queue.prepend_n((block,))
        else:
            self.free_block_queue.append_n((block,))

    def renew(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Put those of the blocks that nobody holds to the back of the queue, in this order."""
        queue, left = self.free_block_queue, dict[Batch, int]()
        free = [block for block in blocks if block.state.__class__ is not int]
        for block in free:
            batch: Any = block.state
            left[batch] = left.get(batch, 0) + 1
            block.state = 0
        for batch, n in left.items():
            queue.lose(batch, n)
        queue.append_n(free)

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """Forget the identity of these blocks, in use or not. AssertionError, before any change, for an unknown id."""
        ids = list(block_ids)
        for block_id in ids:
            if not (0 <= block_id < self.num_gpu_blocks):
                raise AssertionError(
                    f"cannot evict block {block_id} of {ids}: ids run from 0 to {self.num_gpu_blocks - 1}"
                )
        for block_id in ids:
            if block_id < len(self._made):
                self._forget_identity(self._made[block_id])

    def _maybe_evict_cached_block(self, block: KVCacheBlock) -> bool:
        """Take the identity from a block; False if it had none. vLLM's name for it, which its tests call."""
        had = block.content is not None
        self._forget_identity(block)
        return had and block.content is None

    def reset_prefix_cache(self) -> bool:
        """Forget every identity. False, with nothing changed, while any block but the null block is held."""
        held = self.num_gpu_blocks - 1 - self.free_block_queue.num_free_blocks
        if held:
            logger.warning("prefix cache not reset: %d blocks are held; free their requests first", held)
            return False
        named = self.cached_block_hash_to_block.all_blocks()
        self.cached_block_hash_to_block = self._new_names()
        for block in named:
            block.reset_hash()
        if self.metrics_collector is not None:
            self.metrics_collector.reset()
        if self.enable_kv_cache_events:
            self.kv_event_queue.append(AllBlocksCleared())
        return True

    def get_num_free_blocks(self) -> int:
        """Number of blocks that nobody holds."""
        return self.free_block_queue.num_free_blocks

    def get_usage(self) -> float:
        """Share of the blocks in use, 0 to 1; 0 for a pool of the null block alone."""
        usable = self.num_gpu_blocks - 1
        return 1.0 - self.get_num_free_blocks() / usable if usable else 0

    def take_events(self) -> list[KVCacheEvent]:
        """The events since the last call; always empty with events off."""
        if not self.enable_kv_cache_events:
            return []
        events, self.kv_event_queue = self.kv_event_queue, []
        return events

    def free_ids(self) -> list[int]:
        """The ids of the free blocks, in the order of eviction."""
        return [block.block_id for block in self.free_block_queue.get_all_free_blocks()]

    def ref_counts(self) -> list[int]:
        """How many holders each block has, by id; 0 for the null block."""
        return [one.state if type(one.state) is int and one.state > 0 else 0 for one in self.blocks]

    def identities(self) -> list[tuple[int, BlockHash] | None]:
        """For each block, by id, the group and the hash that it is registered under; None if it is not."""
        return [
            None if block.content is None or block.run is None else (block.run.group, block.content)
            for block in self.blocks
        ]

    def check(self) -> None:
        """AssertionError, with the violated equation, unless queue, references and identities agree. O(blocks)."""
        self.free_block_queue.check()
        queued = {block.block_id for block in self.free_block_queue.get_all_free_blocks()}
        unheld = {block.block_id for block in self.blocks if not block.is_null and not block.ref_cnt}
        if self.null_block is not self.blocks[0]:
            raise AssertionError(f"null block is block 0: {self.null_block} != {self.blocks[0]}")
        if [block.block_id for block in self.blocks if block.is_null] != [0]:
            raise AssertionError("the null block alone is null")
        if queued != unheld:
            raise AssertionError(
                f"queued == {{block: ref_cnt == 0}}: only queued {queued - unheld}, only unheld {unheld - queued}"
            )
        shared = [block.block_id for block in self.blocks if block.ref_cnt > 1]
        if self._num_shared != len(shared):
            raise AssertionError(f"blocks with two holders or more: {self._num_shared} != {shared}")
        if self.null_block.content is not None:
            raise AssertionError(f"the null block has no identity: {self.null_block}")
        self._check_names()

    def _check_names(self) -> None:
        self.cached_block_hash_to_block.check(self.blocks)

    def _make(self, count: int) -> list[KVCacheBlock]:
        """The next `count` blocks that nobody has had yet."""
        first = len(self._made)
        blocks = list(map(KVCacheBlock, range(first, first + count)))
        self._made += blocks
        return blocks

    def _touch_many(self, blocks: Sequence[KVCacheBlock]) -> bool:
        """`touch`, looking at all blocks together. False, with nothing changed, where each is to be looked at."""
        states = [block.state for block in blocks]
        kinds, queue, own = set(states), self.free_block_queue, self._made
        if len(kinds) > _BULK or (not isinstance(blocks, Hit) and len(set(blocks)) < len(blocks)):
            return False
        held = [kind for kind in kinds if isinstance(kind, int)]
        if held:
            if min(held) <= 0:
                return False
            asked = blocks[:1] if isinstance(blocks, Hit) else blocks  # those of a hit are all of one pool
            for block in asked:
                if isinstance(block.state, int) and not (
                    0 <= block.block_id < len(own) and own[block.block_id] is block
                ):
                    return False
        for kind in kinds:
            if not isinstance(kind, int) and kind.queue is not queue:
                return False
        if not held:
            for block in blocks:
                block.state = 1
        elif len(kinds) == 1:
            more = held[0] + 1
            for block in blocks:
                block.state = more
            self._num_shared += len(blocks) if more == 2 else 0
            return True
        else:
            for block, state in zip(blocks, states, strict=True):
                block.state = state + 1 if isinstance(state, int) else 1
            self._num_shared += states.count(1)
        rest = len(states)
        for i, kind in enumerate(kinds, 1):
            n = rest if i == len(kinds) else len([state for state in states if state is kind])
            rest -= n
            if not isinstance(kind, int):
                queue.lose(kind, n)
        return True

    def _give_back(self, blocks: list[KVCacheBlock], prepend: bool) -> None:
        """As `free_blocks`."""
        freed: list[KVCacheBlock] = []
        own, null, unshared = self._made, self.null_block, 0
        for i, block in enumerate(blocks):
            if block is null:
                continue
            state = block.state
            known = 0 <= block.block_id < len(own) and own[block.block_id] is block
            if not isinstance(state, int) or state <= 0 or not known:
                # Undoing what was done is cheaper than a pass ahead that counts how often each block stands here.
                for earlier in blocks[:i]:
                    if earlier is not null:
                        earlier.state = earlier.ref_cnt + 1
                why = "is not of this pool, or given back more often than held: free each reference once, where it is"
                self._refuse("free", blocks, block, why)
            block.state = state - 1
            unshared += state == 2
            if state == 1:
                freed.append(block)
        self._num_shared -= unshared
        if prepend:
            self.free_block_queue.prepend_n(freed)
        else:
            self.free_block_queue.append_n(freed)

    def _refuse(self, action: str, blocks: Sequence[KVCacheBlock], culprit: KVCacheBlock, why: str) -> NoReturn:
        ids = [block.block_id for block in blocks]
        raise ValueError(f"cannot {action} blocks {ids}: block {culprit.block_id} (ref_cnt {culprit.ref_cnt}) {why}")

    def _forget_identity(self, block: KVCacheBlock) -> None:
        self._forget_loudly((block,))

    def _forget_loudly(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Take the identity from each of these blocks that has one, and tell of it."""
        gone: list[BlockHash] = []
        groups: list[int] = []
        for block in blocks:
            if self.metrics_collector is not None:
                self.metrics_collector.on_block_evicted(block)
            content, run = block.content, block.run
            if content is not None and run is not None and self.cached_block_hash_to_block.forget(block):
                gone.append(content)
                groups.append(run.group)
        if self.enable_kv_cache_events:
            shown = zip(external_hashes(gone), groups, strict=True)
            self.kv_event_queue += [BlockRemoved([content], MEDIUM_GPU, group) for content, group in shown]

    def _mask(self, chosen: Sequence[KVCacheBlock], wanted: Sequence[bool] | None) -> list[bool] | None:
        """Which of these blocks are to be registered: those that are wanted, and not null; None if it is all."""
        null = self.null_block
        if wanted is None:
            for block in chosen:
                if block is null:
                    return [block is not null for block in chosen]
            return None
        return [block is not null and want for block, want in zip(chosen, wanted, strict=True)]

    def hashes_at(self, request: CacheableRequest, block_size: int) -> BlockHashList:
        """Hashes of so many tokens each. AssertionError unless that is a multiple of `hash_block_size`."""
        if block_size == self.hash_block_size:
            return request.block_hashes
        return BlockHashListWithBlockSize(request.block_hashes, self.hash_block_size, block_size)

    def _announce(
        self, request: CacheableRequest, hashes: BlockHashList, chosen: Sequence[int], part: tuple[int, int, int, int]
    ) -> None:
        """Tell of the registered entries `chosen` of the part: its first and its end, the block size, the group."""
        self.kv_event_queue.append(blocks_stored(request, hashes, chosen, part, self.reference_keys))
