"""Which blocks are registered under which hash, in each group (core.md §4)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import TypeAlias

from ..hashing.block_hash import BlockHash, BlockHashWithGroupId
from ..hashing.block_hashing import BlockHashList, get_block_hash, get_group_id
from .block import KVCacheBlock, Run, loose_run
from .entries_by_key import EntriesByKey

_COMPILED = not __file__.endswith(".py")
"""There a loop costs less than `map` and `zip`, which are faster else."""
_RUN = attrgetter("run")
_NO_MORE: Mapping[int, Sequence[tuple[int, BlockHash]]] = MappingProxyType({})
_WORTH_A_RUN = 8
"""From so many blocks on that a lookup finds one by one it pays to make a run of them."""

Registered: TypeAlias = dict[BlockHash, KVCacheBlock | dict[int, KVCacheBlock]]
"""Of one group: the block under each hash; from the second one on a dict from block id to block, earliest first."""


class BlockHashToBlockMap:
    """Hash to the blocks registered under it, earliest first, for each group.

    Nearly every hash has one block, which then stands in the dict itself: a container per hash would double the memory
    of a large cache. Groups have dicts of their own, so that no key is made by joining a hash and a group.
    """

    def __init__(self) -> None:
        self.groups: dict[int, Registered] = defaultdict(dict)

    def index_of(self, group: int) -> Registered:
        """What is registered in a group, by hash."""
        return self.groups[group]

    def all_groups(self) -> Mapping[int, Registered]:
        """What is registered, by group."""
        return self.groups

    @property
    def _cache(self) -> EntriesByKey:
        """The entries by key, under the name that vLLM's own map has for them."""
        return EntriesByKey(self.groups)

    def find(self, group: int, content: BlockHash) -> KVCacheBlock | None:
        """The earliest block registered under the hash in this group that is still there, or None."""
        found = self.groups[group].get(content)
        return next(iter(found.values())) if isinstance(found, dict) else found

    def found(self, group: int, contents: Iterable[BlockHash]) -> list[KVCacheBlock]:
        """Of each of these hashes that is known the block that `find` has. Most of a prompt's states are not kept: what
        is not there costs a probe and no call."""
        registered = self.groups[group]
        entries = [registered[content] for content in contents if content in registered]
        return [next(iter(entry.values())) if isinstance(entry, dict) else entry for entry in entries]

    def get_one_block(self, key: BlockHashWithGroupId) -> KVCacheBlock | None:
        """The earliest registered block that is still there, or None."""
        return self.find(get_group_id(key), get_block_hash(key))

    def blocks_of(self, key: BlockHashWithGroupId) -> list[KVCacheBlock]:
        """All blocks registered under the key, earliest first."""
        return self.blocks_in(get_group_id(key), get_block_hash(key))

    def blocks_in(self, group: int, content: BlockHash) -> list[KVCacheBlock]:
        """All blocks registered under the hash in a group, earliest first."""
        found = self.index_of(group).get(content)
        if isinstance(found, dict):
            return list(found.values())
        return [] if found is None else [found]

    def insert(self, key: BlockHashWithGroupId, block: KVCacheBlock) -> None:
        """Register a block; registering it again changes nothing."""
        self.add(get_group_id(key), get_block_hash(key), block)

    def add(self, group: int, content: BlockHash, block: KVCacheBlock) -> None:
        """Register a block; registering it again changes nothing."""
        registered = self.groups[group]
        found = registered.setdefault(content, block)
        if isinstance(found, dict):
            found.setdefault(block.block_id, block)
        elif found is not block:
            registered[content] = {found.block_id: found, block.block_id: block}

    def register(
        self,
        group: int,
        contents: Sequence[BlockHash],
        blocks: list[KVCacheBlock],
        row: tuple[int, KVCacheBlock | None] | None,
    ) -> None:
        """Register blocks that have no identity, each under its hash.

        `row` is the index of the first one in its table and the block before it, None if they are not in a row there.
        """
        run = loose_run(group) if row is None else run_for(group, row)
        if not self._add_all(group, contents, blocks):
            run = loose_run(group)
        if run.whole:
            run.contents += contents
            run.blocks += blocks
        name_all(blocks, contents, run)

    def _add_all(self, group: int, contents: Sequence[BlockHash], blocks: list[KVCacheBlock]) -> bool:
        """Add blocks under their hashes. True if none of the hashes was known before."""
        registered = self.index_of(group)
        if _COMPILED:
            found = [registered.setdefault(contents[i], block) for i, block in enumerate(blocks)]
        else:
            found = list(map(registered.setdefault, contents, blocks))
        if found == blocks:
            return True
        for content, block, earlier in zip(contents, blocks, found, strict=True):
            if earlier is not block:
                entry = registered[content]  # by now others of these blocks may stand there
                if isinstance(entry, dict):
                    entry[block.block_id] = block
                else:
                    registered[content] = {entry.block_id: entry, block.block_id: block}
        return False

    def prefix(self, group: int, hashes: BlockHashList, end: int, first: int = 0) -> list[KVCacheBlock]:
        """The blocks registered in the group under the hashes `first .. end - 1`, up to one that is not.

        One probe for each run of blocks that were registered together, and one comparison of two hashes where it ends.
        """
        found: list[KVCacheBlock] = []
        registered, loose, i, end = self.index_of(group), 0, first, min(end, len(hashes))
        while i < end:
            block = registered.get(hashes[i])
            if block is None:
                break
            if isinstance(block, dict):
                block = next(iter(block.values()))
            at = _place_in_run(block, i)
            if at >= 0 and block.run is not None:
                run = block.run
                n = agreement(run.contents, at, hashes, i, min(len(run.blocks) - at, end - i))
                found += run.blocks[at : at + n]
                i += n
                loose = 0
                continue
            found.append(block)
            i += 1
            loose += 1
            if loose == _WORTH_A_RUN:
                self._bind(group, hashes, found, first, end)
                i, loose = first + len(found), 0
        return found

    def suffix(self, group: int, hashes: BlockHashList, first: int, end: int) -> list[KVCacheBlock]:
        """The blocks registered in the group under the last of the hashes `first .. end - 1`, behind one that is not.

        One probe for each run: a hash names everything before its block, so all of a run before it agrees, too.
        """
        parts: list[list[KVCacheBlock]] = []
        registered = self.groups[group]
        while end > first:
            block = registered.get(hashes[end - 1])
            if block is None:
                break
            if isinstance(block, dict):
                block = next(iter(block.values()))
            at = _place_in_run(block, end - 1)
            if at >= 0 and block.run is not None:
                n = min(at + 1, end - first)
                parts.append(block.run.blocks[at + 1 - n : at + 1])
            else:
                n = 1
                parts.append([block])
            end -= n
        parts.reverse()
        return parts[0] if len(parts) == 1 else list(chain.from_iterable(parts))

    def _bind(self, group: int, hashes: BlockHashList, found: list[KVCacheBlock], first: int, end: int) -> None:
        """Make a run of the last blocks found, and of those that follow them in no run: the next lookup is faster."""
        start = len(found) - _WORTH_A_RUN
        while first + len(found) < end:
            entry = self.index_of(group).get(hashes[first + len(found)])
            block = next(iter(entry.values())) if isinstance(entry, dict) else entry
            if block is None or (block.run is not None and block.run.whole):
                break
            found.append(block)
        run = Run(group, first + start, list(hashes[first + start : first + len(found)]), found[start:])
        for block in run.blocks:
            if block.run is not None:
                block.run.whole = False
            block.run = run

    def pop(self, key: BlockHashWithGroupId, block_id: int) -> KVCacheBlock | None:
        """Remove exactly this block and return it; None, with nothing changed, if it is not under the key."""
        block = self.remove(get_group_id(key), get_block_hash(key), block_id)
        if block is not None and block.run is not None:
            block.run.whole = False
        return block

    def remove(self, group: int, content: BlockHash, block_id: int) -> KVCacheBlock | None:
        """Remove exactly this block and return it; None, with nothing changed, if it is not under the hash."""
        registered = self.groups[group]
        found = registered.get(content)
        if isinstance(found, dict):
            block = found.pop(block_id, None)
            if not found:
                del registered[content]
            return block
        if found is None or found.block_id != block_id:
            return None
        del registered[content]
        return found

    def forget_all(self, blocks: list[KVCacheBlock]) -> None:
        """Take the identity from each block that has one.

        Where they come in the order in which a run ends, as they do when they have been freed together, its end goes in
        one piece.
        """
        if not any(map(_RUN, blocks)):
            return
        i, size = 0, len(blocks)
        while i < size:
            block = blocks[i]
            run = block.run
            if run is not None:
                many = size - i >= _WORTH_A_RUN and run.whole and run.blocks[-1] is block
                n = _end_of_run(run, blocks, i) if many else 0
                if n > 0:
                    self._forget_end(run, blocks[i : i + n])
                    i += n
                    continue
                self.forget(block)
            i += 1

    def _forget_end(self, run: Run, blocks: list[KVCacheBlock]) -> None:
        """Take the identity from the last blocks of a whole run, its last block first."""
        self._drop_end(run, blocks)
        for block in blocks:
            block.content = block.run = None

    def _drop_end(self, run: Run, blocks: list[KVCacheBlock]) -> None:
        """The same, but that the blocks themselves are still to be told."""
        n = len(blocks)
        registered, contents = self.index_of(run.group), run.contents[: -n - 1 : -1]
        if _COMPILED:
            found = [registered.pop(content) for content in contents]
        else:
            found = list(map(registered.pop, contents))
        if found != blocks:  # others have the content of some, too
            for content, block, entry in zip(contents, blocks, found, strict=True):
                if isinstance(entry, dict):
                    del entry[block.block_id]
                    if entry:
                        registered[content] = entry
        del run.contents[-n:], run.blocks[-n:]

    def forget(self, block: KVCacheBlock) -> bool:
        """Take the identity from a block; False, with nothing changed, if it is not registered under it."""
        content, run = block.content, block.run
        if content is None or run is None:
            return False
        registered = self.index_of(run.group)
        found = registered.get(content)
        if found is block:  # nearly always
            del registered[content]
        elif not isinstance(found, dict) or found.pop(block.block_id, None) is None:
            return False
        elif not found:
            del registered[content]
        if run.whole:
            if run.blocks[-1] is block:  # eviction begins at the end
                run.blocks.pop()
                run.contents.pop()
            else:
                run.whole = False
        block.content = block.run = None
        return True

    def all_blocks(self) -> list[KVCacheBlock]:
        """All blocks that are registered; one with several names is there for each."""
        entries = chain.from_iterable(registered.values() for registered in self.groups.values())
        return [block for entry in entries for block in (entry.values() if isinstance(entry, dict) else (entry,))]

    def __len__(self) -> int:
        return sum(map(len, self.groups.values()))

    def check(
        self, blocks: Sequence[KVCacheBlock], further: Mapping[int, Sequence[tuple[int, BlockHash]]] = _NO_MORE
    ) -> None:
        """AssertionError unless the entries are exactly the blocks that carry an identity, each under its own.

        `further`: by block, groups and hashes under which it stands besides.
        """
        entries: dict[int, tuple[int, BlockHash]] = {}
        for group, registered in self.all_groups().items():
            for content, found in registered.items():
                if found == {}:
                    raise AssertionError(f"no hash without a block: {content!r} in group {group}")
                for block_id, block in found.items() if isinstance(found, dict) else [(found.block_id, found)]:
                    if blocks[block_id] is not block:
                        raise AssertionError(f"entry {block_id} under {content!r} is that block: it is {block}")
                    if (group, content) in further.get(block_id, ()):
                        continue
                    if block_id in entries:
                        raise AssertionError(f"block {block_id} under one hash: {entries[block_id]}, {content!r}")
                    entries[block_id] = group, content
        carried = {
            block.block_id: (block.run.group, block.content)
            for block in blocks
            if block.content is not None and block.run is not None
        }
        if entries != carried:
            raise AssertionError(f"registered == carried: {entries} != {carried}")
        for run in {block.run for block in blocks if block.run is not None and block.run.whole}:
            self._check_run(run)

    def _check_run(self, run: Run) -> None:
        where = f"the run of blocks {[block.block_id for block in run.blocks]} in group {run.group}"
        if len(run.blocks) != len(run.contents):
            raise AssertionError(f"as many blocks as hashes: {where}")
        for content, other in zip(run.contents, run.blocks, strict=True):
            if other.content != content:
                raise AssertionError(f"content of a whole run: {where}, {other} is not {content!r}")
            if self.find(run.group, content) is not other:
                raise AssertionError(f"a whole run is what is found: {where}, {other}")


def name_all(blocks: list[KVCacheBlock], contents: Sequence[BlockHash], run: Run) -> None:
    """Give each of these blocks its content, all in one run."""
    if _COMPILED:
        for i, block in enumerate(blocks):
            block.content = contents[i]
            block.run = run
        return
    for block, content in zip(blocks, contents, strict=True):
        block.content = content
        block.run = run


def _end_of_run(run: Run, blocks: list[KVCacheBlock], i: int) -> int:
    """How many of the blocks from the `i`-th on are the end of this run, its last block first, as that one is; 0 if too
    few for one piece. What has been hit since waits elsewhere."""
    n = min(len(run.blocks), len(blocks) - i)
    if n < _WORTH_A_RUN or run.blocks[-_WORTH_A_RUN] is not blocks[i + _WORTH_A_RUN - 1]:
        return 0
    end, given = run.blocks[: -n - 1 : -1], blocks[i : i + n]
    if end == given:
        return n
    n = 0
    while end[n] is given[n]:
        n += 1
    return n if n >= _WORTH_A_RUN else 0


def _place_in_run(block: KVCacheBlock, i: int) -> int:
    """The place in its run of a block that is entry `i` of a table, -1 if it has none there."""
    run = block.run
    if run is None or not run.whole:
        return -1
    at = i - run.first
    return at if 0 <= at < len(run.blocks) and run.blocks[at] is block else -1


def agreement(contents: list[BlockHash], at: int, hashes: BlockHashList, i: int, n: int) -> int:
    """How many of the `n` contents from `at` on are the hashes from `i` on; the first one is.

    A hash names everything before its block, too: where one agrees, all before it do.
    """
    low, high, last = 0, n, n - 1
    while low < high - 1:
        if contents[at + last] == hashes[i + last]:
            low = last
        else:
            high = last
        last = (low + high) // 2
    return low + 1


def run_for(group: int, row: tuple[int, KVCacheBlock | None]) -> Run:
    """The run that an entry of a table, of this index and behind this block, goes on with, or one that begins there."""
    first, before = row
    run = None if before is None else before.run
    if run is None or not run.whole or run.group != group or run.blocks[-1] is not before:
        return Run(group, first, [], [])
    return run if run.first + len(run.blocks) == first else Run(group, first, [], [])
