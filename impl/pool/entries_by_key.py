"""What is registered, by the keys that vLLM gives it: a view for its tests and for programs that look inside."""

from collections.abc import Iterator, MutableMapping
from typing import TypeAlias

from ..hashing.block_hash import BlockHash, BlockHashWithGroupId
from ..hashing.block_hashing import get_block_hash, get_group_id, make_block_hash_with_group_id
from .block import KVCacheBlock

Entry: TypeAlias = KVCacheBlock | dict[int, KVCacheBlock]
"""A block, or from the second one on a dict from block id to block."""


class EntriesByKey(MutableMapping[BlockHashWithGroupId, Entry]):
    """The entries of all groups (`BlockHashToBlockMap.groups`) in one mapping; a change of it is one of those."""

    def __init__(self, groups: MutableMapping[int, dict[BlockHash, Entry]]) -> None:
        self._groups = groups

    def __getitem__(self, key: BlockHashWithGroupId) -> Entry:
        try:
            return self._groups[get_group_id(key)][get_block_hash(key)]
        except KeyError:
            raise KeyError(key) from None

    def __setitem__(self, key: BlockHashWithGroupId, entry: Entry) -> None:
        _loosen(entry)
        self._groups[get_group_id(key)][get_block_hash(key)] = entry

    def __delitem__(self, key: BlockHashWithGroupId) -> None:
        _loosen(self[key])
        del self._groups[get_group_id(key)][get_block_hash(key)]

    def __iter__(self) -> Iterator[BlockHashWithGroupId]:
        for group, registered in self._groups.items():
            for content in registered:
                yield make_block_hash_with_group_id(content, group)

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def __copy__(self) -> dict[BlockHashWithGroupId, Entry]:
        return dict(self)


def _loosen(entry: Entry) -> None:
    """A run with such a block is no longer what a lookup finds: it has to ask for each of its blocks."""
    for block in entry.values() if isinstance(entry, dict) else [entry]:
        if block.run is not None:
            block.run.whole = False
