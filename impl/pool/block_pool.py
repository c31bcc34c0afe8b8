"""The pool of blocks: who holds them, what they contain, in which order they are reused (core.md §§4, 5)."""

import logging
from collections.abc import Iterable, Sequence
from typing import NoReturn

from ..hashing.block_hash import BlockHash
from ..hashing.block_hashing import (
    BlockHashList,
    BlockHashListWithBlockSize,
    ExternalBlockHash,
    get_block_hash,
    get_group_id,
    make_block_hash_with_group_id,
    maybe_convert_block_hash,
)
from ..hashing.extra_keys import CacheableRequest, extra_keys_of_blocks
from ..hashing.reference_keys import reference_keys_of_blocks
from .block import KVCacheBlock
from .events import MEDIUM_GPU, AllBlocksCleared, BlockRemoved, BlockStored, KVCacheEvent
from .free_queue import FreeKVCacheBlockQueue
from .hash_map import BlockHashToBlockMap
from .metrics import KVCacheMetricsCollector

logger = logging.getLogger(__name__)


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
        assert isinstance(num_gpu_blocks, int), f"num_gpu_blocks is {num_gpu_blocks!r}: give an int"
        assert num_gpu_blocks > 0, f"num_gpu_blocks is {num_gpu_blocks}: the null block alone needs one"
        self.num_gpu_blocks = num_gpu_blocks
        self.enable_caching = enable_caching
        self.hash_block_size = hash_block_size
        self.blocks = [KVCacheBlock(block_id) for block_id in range(num_gpu_blocks)]
        self.free_block_queue = FreeKVCacheBlockQueue(self.blocks)
        self.cached_block_hash_to_block = BlockHashToBlockMap()
        self.null_block = self.free_block_queue.popleft()
        self.null_block.is_null = True
        self.enable_kv_cache_events = enable_kv_cache_events
        self.kv_event_queue: list[KVCacheEvent] = []
        self.reference_keys = False
        """Set it where the block hasher has `reference_keys`: events then show the keys that it hashes."""
        self.metrics_collector = metrics_collector

    def get_cached_block(self, block_hash: BlockHash, kv_cache_group_ids: Sequence[int]) -> list[KVCacheBlock] | None:
        """The earliest block registered under the hash in each group, or None if any group has none."""
        found: list[KVCacheBlock] = []
        get_one_block = self.cached_block_hash_to_block.get_one_block
        for group_id in kv_cache_group_ids:
            block = get_one_block(make_block_hash_with_group_id(block_hash, group_id))
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
        hashes = self._hashes_at(request, block_size)
        assert len(hashes) >= num_full_blocks, (
            f"request {request.request_id} has {len(hashes)} block hashes of {block_size} tokens, {num_full_blocks} "
            "are needed: let its hasher run before caching"
        )
        chosen: list[int] = []
        for i in range(num_cached_blocks, num_full_blocks):
            block = blocks[i]
            if block.is_null or (block_mask is not None and not block_mask[i - num_cached_blocks]):
                continue
            assert block._block_hash is None, (
                f"block {block.block_id}, entry {i} of request {request.request_id} in group {kv_cache_group_id}, "
                "already carries an identity: register only new blocks"
            )
            chosen.append(i)
        insert = self.cached_block_hash_to_block.insert
        for i in chosen:
            block = blocks[i]
            key = block._block_hash = make_block_hash_with_group_id(hashes[i], kv_cache_group_id)
            insert(key, block)
        if self.enable_kv_cache_events:
            self._announce(request, hashes, chosen, num_cached_blocks, num_full_blocks, block_size, kv_cache_group_id)

    def get_new_blocks(self, num_blocks: int) -> list[KVCacheBlock]:
        """Take blocks from the front of the free queue; they lose their identity and have one reference each.

        ValueError if `num_blocks` is negative or exceeds the number of free blocks.
        """
        free = self.free_block_queue.num_free_blocks
        if not 0 <= num_blocks <= free:
            raise ValueError(
                f"asked for {num_blocks} blocks while {free} are free: ask for at least 0 and at most that many"
            )
        blocks = self.free_block_queue.popleft_n(num_blocks)
        metrics, caching = self.metrics_collector, self.enable_caching
        for block in blocks:
            if caching and (block._block_hash is not None or metrics is not None):
                self._forget_identity(block)
            block.ref_cnt = 1
            if metrics is not None:
                metrics.on_block_allocated(block)
        return blocks

    def touch(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Hold each block once more, taking it out of the free queue if nobody held it. Null blocks are passed over.

        ValueError, before anything changes, if a block is not of this pool.
        """
        own, size = self.blocks, self.num_gpu_blocks
        for block in blocks:
            if not 0 <= block.block_id < size or own[block.block_id] is not block:
                self._refuse("touch", blocks, block, "is not of this pool: pass blocks that this pool handed out")
        null, metrics, remove = self.null_block, self.metrics_collector, self.free_block_queue.remove
        for block in blocks:
            if block is not null:
                if not block.ref_cnt:
                    remove(block)
                block.ref_cnt += 1
            if metrics is not None:
                metrics.on_block_accessed(block)

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock], prepend: bool = False) -> None:
        """Give back one reference per entry; a block nobody holds any more enters the free queue, identity and all.

        Such blocks go to the back in the given order, or to the front with `prepend`. Null blocks are passed over.
        ValueError, with nothing changed, if a block is not of this pool or has fewer references than entries here.
        """
        blocks = list(ordered_blocks)
        freed: list[KVCacheBlock] = []
        own, size, null = self.blocks, self.num_gpu_blocks, self.null_block
        for i, block in enumerate(blocks):
            if block is null:
                continue
            references = block.ref_cnt
            if references <= 0 or not 0 <= block.block_id < size or own[block.block_id] is not block:
                # Undoing what was done is cheaper than a pass ahead that counts how often each block stands here.
                for earlier in blocks[:i]:
                    earlier.ref_cnt += earlier is not null
                why = "is not of this pool, or given back more often than held: free each reference once, where it is"
                self._refuse("free", blocks, block, why)
            block.ref_cnt = references - 1
            if references == 1:
                freed.append(block)
        if prepend:
            self.free_block_queue.prepend_n(freed)
        else:
            self.free_block_queue.append_n(freed)

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """Forget the identity of these blocks, in use or not. AssertionError, before any change, for an unknown id."""
        ids = list(block_ids)
        for block_id in ids:
            assert 0 <= block_id < self.num_gpu_blocks, (
                f"cannot evict block {block_id} of {ids}: ids run from 0 to {self.num_gpu_blocks - 1}"
            )
        for block_id in ids:
            self._forget_identity(self.blocks[block_id])

    def reset_prefix_cache(self) -> bool:
        """Forget every identity. False, with nothing changed, while any block but the null block is held."""
        held = self.num_gpu_blocks - 1 - self.free_block_queue.num_free_blocks
        if held:
            logger.warning("prefix cache not reset: %d blocks are held; free their requests first", held)
            return False
        self.cached_block_hash_to_block = BlockHashToBlockMap()
        for block in self.blocks:
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

    def check(self) -> None:
        """AssertionError, with the violated equation, unless queue, references and identities agree. O(blocks)."""
        self.free_block_queue.check()
        queued = {block.block_id for block in self.free_block_queue.get_all_free_blocks()}
        unheld = {block.block_id for block in self.blocks if not block.is_null and not block.ref_cnt}
        assert self.null_block is self.blocks[0], f"null block is block 0: {self.null_block} != {self.blocks[0]}"
        assert [block.block_id for block in self.blocks if block.is_null] == [0], "the null block alone is null"
        assert queued == unheld, (
            f"queued == {{block: ref_cnt == 0}}: only queued {queued - unheld}, only unheld {unheld - queued}"
        )
        negative = [block for block in self.blocks if block.ref_cnt < 0 and not block.is_null]
        assert not negative, f"ref_cnt >= 0: {negative}"
        assert self.null_block._block_hash is None, f"the null block has no identity: {self.null_block}"
        self.cached_block_hash_to_block.check(self.blocks)

    def _refuse(self, action: str, blocks: Sequence[KVCacheBlock], culprit: KVCacheBlock, why: str) -> NoReturn:
        ids = [block.block_id for block in blocks]
        raise ValueError(f"cannot {action} blocks {ids}: block {culprit.block_id} (ref_cnt {culprit.ref_cnt}) {why}")

    def _forget_identity(self, block: KVCacheBlock) -> None:
        if self.metrics_collector is not None:
            self.metrics_collector.on_block_evicted(block)
        key = block._block_hash
        if key is None or self.cached_block_hash_to_block.pop(key, block.block_id) is None:
            return
        block.reset_hash()
        if self.enable_kv_cache_events:
            self.kv_event_queue.append(
                BlockRemoved([maybe_convert_block_hash(get_block_hash(key))], MEDIUM_GPU, get_group_id(key))
            )

    def _hashes_at(self, request: CacheableRequest, block_size: int) -> BlockHashList:
        if block_size == self.hash_block_size:
            return request.block_hashes
        return BlockHashListWithBlockSize(request.block_hashes, self.hash_block_size, block_size)

    def _announce(
        self,
        request: CacheableRequest,
        hashes: BlockHashList,
        chosen: Sequence[int],
        first: int,
        end: int,
        block_size: int,
        group_id: int,
    ) -> None:
        """Tell of the registered blocks `chosen` in the range `first .. end - 1`."""
        parent: ExternalBlockHash | None = maybe_convert_block_hash(hashes[first - 1]) if first else None
        starts = [i * block_size for i in chosen]
        keys = (
            reference_keys_of_blocks(request, starts, block_size, resumed=False)
            if self.reference_keys
            else extra_keys_of_blocks(request, starts, block_size)
        )
        adapter = request.lora_request
        self.kv_event_queue.append(
            BlockStored(
                block_hashes=[maybe_convert_block_hash(hashes[i]) for i in chosen],
                parent_block_hash=parent,
                token_ids=list(request.all_token_ids[first * block_size : end * block_size]),
                block_size=block_size,
                lora_id=adapter.adapter_id if adapter is not None else None,
                medium=MEDIUM_GPU,
                lora_name=adapter.name if adapter is not None else None,
                extra_keys=list(keys) or None,
                group_idx=group_id,
            )
        )
