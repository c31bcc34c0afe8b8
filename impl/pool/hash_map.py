"""Which blocks are registered under which key (core.md §4)."""

from collections.abc import Sequence

from ..hashing.block_hash import BlockHashWithGroupId
from .block import KVCacheBlock


class BlockHashToBlockMap:
    """Key to the blocks registered under it, earliest first.

    Nearly every key has one block, which then stands in the dict itself: a container per key would double the memory of
    a large cache. From the second block on the value is a dict from block id to block.
    """

    def __init__(self) -> None:
        self._cache: dict[BlockHashWithGroupId, KVCacheBlock | dict[int, KVCacheBlock]] = {}

    def get_one_block(self, key: BlockHashWithGroupId) -> KVCacheBlock | None:
        """The earliest registered block that is still there, or None."""
        found = self._cache.get(key)
        if isinstance(found, dict):
            return next(iter(found.values()))
        return found

    def blocks_of(self, key: BlockHashWithGroupId) -> list[KVCacheBlock]:
        """All blocks registered under the key, earliest first."""
        found = self._cache.get(key)
        if isinstance(found, dict):
            return list(found.values())
        return [] if found is None else [found]

    def insert(self, key: BlockHashWithGroupId, block: KVCacheBlock) -> None:
        """Register a block; registering it again changes nothing."""
        found = self._cache.setdefault(key, block)
        if isinstance(found, dict):
            found.setdefault(block.block_id, block)
        elif found is not block:
            self._cache[key] = {found.block_id: found, block.block_id: block}

    def pop(self, key: BlockHashWithGroupId, block_id: int) -> KVCacheBlock | None:
        """Remove exactly this block and return it; None, with nothing changed, if it is not under the key."""
        found = self._cache.get(key)
        if isinstance(found, dict):
            block = found.pop(block_id, None)
            if not found:
                del self._cache[key]
            return block
        if found is None or found.block_id != block_id:
            return None
        del self._cache[key]
        return found

    def __len__(self) -> int:
        return len(self._cache)

    def check(self, blocks: Sequence[KVCacheBlock]) -> None:
        """AssertionError unless the entries are exactly the blocks that carry an identity, each under its own."""
        entries: dict[int, BlockHashWithGroupId] = {}
        for key, found in self._cache.items():
            assert found != {}, f"no key without a block: {key!r}"
            for block_id, block in found.items() if isinstance(found, dict) else [(found.block_id, found)]:
                assert blocks[block_id] is block, f"entry {block_id} under {key!r} is block {block_id}: it is {block}"
                assert block_id not in entries, f"block {block_id} under one key: {entries[block_id]!r} and {key!r}"
                entries[block_id] = key
        carried = {block.block_id: block.block_hash for block in blocks if block.block_hash is not None}
        assert entries == carried, f"registered == carried: {entries} != {carried}"
