"""Runs that are folded: only their first hash stands in the map of their group, which says where all others are.

A hash names everything before its block. So a lookup from the left that has left one run can only go on at the first
hash of another one, and nobody has to find what is in the middle of a run. To register a prompt is then one entry, not
one a block, and so is to forget it. Whoever asks otherwise has the runs of that group unfolded: their hashes are put
into the map, as by the older rule. A prompt that is registered again from its beginning is one more run beside the
first (`FoldedRun.again`); any other hash that is known already unfolds the run in which it stands.
"""

from collections.abc import Mapping, Sequence

from ..hashing.block_hash import BlockHash
from ..hashing.block_hashing import BlockHashList
from ..pool import hash_map
from ..pool.block import KVCacheBlock, Run, loose_run
from ..pool.entries_by_key import EntriesByKey
from ..pool.hash_map import BlockHashToBlockMap, Registered, name_all, run_for

_MANY = 16
"""So many runs that left another one are worth a look at which of them are there."""


class FoldedRun(Run):
    """A run; while it is `folded`, none of its hashes is registered elsewhere in its group, but in runs of the same
    beginning, `again` and so on, in the order in which they were registered. Of these each is the beginning of the
    longest one, and a block is found in the first of them that reaches so far."""

    __slots__ = ("again", "folded", "leaves", "looked")

    def __init__(self, group: int, first: int, contents: list[BlockHash], blocks: list[KVCacheBlock]) -> None:
        self.group, self.first, self.contents, self.blocks = group, first, contents, blocks  # without a call for it
        self.whole = self.folded = True
        self.again: FoldedRun | None = None
        self.leaves: list[tuple[int, BlockHash]] | None = None  # of most runs nobody leaves
        """Where others have left it: behind how many of its blocks, and their first hash."""
        self.looked = _MANY
        """With so many of these it pays to look who of them is gone."""


class Folds:
    """What is folded in one group."""

    __slots__ = ("heads", "index", "orphans")

    def __init__(self) -> None:
        self.heads: dict[BlockHash, FoldedRun] = {}
        """Folded runs by their first hash."""
        self.index: Registered = {}
        """All other hashes of the group."""
        self.orphans = False
        """Whether what stands before a folded run may have been forgotten: then a prompt may come to its first hash
        behind one that nobody knows."""


class FoldingMap(BlockHashToBlockMap):
    """As before; of the groups in `folds` runs are folded. The map of such a group is missing in `groups` while some
    are, so that whoever asks for it has them unfolded."""

    def __init__(self, groups: Sequence[int] = ()) -> None:
        super().__init__()
        self.folds: dict[int, Folds] = {group: Folds() for group in groups}
        self.groups = UnfoldedGroups(self)

    @property
    def _cache(self) -> EntriesByKey:
        """As before. Who looks so deep finds all, also later: nothing is folded any more."""
        self.unfold_all()
        self.folds = {}
        return EntriesByKey(self.groups)

    def unfold_all(self) -> None:
        """Put all hashes into the maps."""
        for group in self.folds:
            self.unfold(group)

    def unfold(self, group: int) -> Registered:
        """Put all hashes of a group into its map, and return that."""
        folds = self.folds.get(group)
        if folds is None:
            return self.groups.setdefault(group, {})
        for run in folds.heads.values():
            _put(folds.index, run)
        folds.heads.clear()
        folds.orphans = False
        self.groups[group] = folds.index
        return folds.index

    def _unfold_run(self, run: FoldedRun) -> None:
        """Put the hashes of one run, and of those with its beginning, into the map of its group."""
        folds = self.folds[run.group]
        first = folds.heads.pop(run.contents[0])
        for one in _all(first):
            self._drop_leaves(folds, one, 0)
        _put(folds.index, first)

    def _unfold_end(self, run: FoldedRun, left: int) -> None:
        """Put the hashes of a run behind so many of its blocks, one at least, into the map of its group."""
        if run.again is not None or self.folds[run.group].heads[run.contents[0]] is not run:
            self._unfold_run(run)
            return
        folds, contents, blocks = self.folds[run.group], run.contents[left:], run.blocks[left:]
        self._drop_leaves(folds, run, left)
        self._note_leaf(folds, run, left, contents[0])
        del run.contents[left:], run.blocks[left:]
        folds.index.update(zip(contents, blocks, strict=True))
        if len(blocks) == 1:
            blocks[0].run = loose_run(run.group)
            return
        end = Run(run.group, run.first + left, contents, blocks)
        for block in blocks:
            block.run = end

    def _drop_leaves(self, folds: Folds, run: FoldedRun, left: int) -> None:
        """A run has only so many blocks from now on: note whether somebody stands behind what is gone."""
        stay: list[tuple[int, BlockHash]] = []
        for at, content in run.leaves or ():
            if at <= left:
                stay.append((at, content))
            elif content in folds.heads or content in folds.index:
                folds.orphans = True
        run.leaves = stay

    def _note_leaf(self, folds: Folds, run: FoldedRun, at: int, content: BlockHash) -> None:
        """Somebody leaves a run behind so many of its blocks."""
        if run.leaves is None:
            run.leaves = []
        elif len(run.leaves) >= run.looked:
            run.leaves = [leaf for leaf in run.leaves if leaf[1] in folds.heads or leaf[1] in folds.index]
            run.looked = max(_MANY, 2 * len(run.leaves))
        run.leaves.append((at, content))

    def index_of(self, group: int) -> Registered:
        """As before, without what is folded."""
        folds = self.folds.get(group)
        return self.groups[group] if folds is None else folds.index

    # Looking up.

    def begins(self, group: int, content: BlockHash) -> bool:
        """Whether a first hash of a prompt is registered."""
        folds = self.folds.get(group)
        return content in self.groups[group] if folds is None else content in folds.heads or content in folds.index

    def prefix(self, group: int, hashes: BlockHashList, end: int, first: int = 0) -> list[KVCacheBlock]:
        """As before; a folded run is found by its first hash."""
        folds = self.folds.get(group)
        if folds is None or not folds.heads:
            return BlockHashToBlockMap.prefix(self, group, hashes, end, first)
        found: list[KVCacheBlock] = []
        heads, i, end = folds.heads, first, min(end, len(hashes))
        while i < end:
            run = heads.get(hashes[i])
            if run is None:
                more = BlockHashToBlockMap.prefix(self, group, hashes, end, i) if folds.index else None
                if not more:
                    break
                found += more
                i += len(more)
                continue
            n = hash_map.agreement(run.contents, 0, hashes, i, min(len(run.blocks), end - i))
            found += run.blocks[:n]
            i += n
            while run.again is not None and i < end:
                run = run.again
                if n < len(run.blocks) and run.contents[n] == hashes[i]:
                    more = run.blocks[
                        n : n + hash_map.agreement(run.contents, n, hashes, i, min(len(run.blocks) - n, end - i))
                    ]
                    found += more
                    i += len(more)
                    n += len(more)
        return found

    def find(self, group: int, content: BlockHash) -> KVCacheBlock | None:
        """As before. O(registered) for what is folded, for those who inspect a map."""
        entry = self.index_of(group).get(content)
        if entry is None:
            found = self.blocks_in(group, content)
            return found[0] if found else None
        return next(iter(entry.values())) if isinstance(entry, dict) else entry

    def blocks_in(self, group: int, content: BlockHash) -> list[KVCacheBlock]:
        """As before."""
        found = BlockHashToBlockMap.blocks_in(self, group, content)
        if not found and group in self.folds:
            for first in self.folds[group].heads.values():
                found += [run.blocks[run.contents.index(content)] for run in _all(first) if content in run.contents]
        return found

    # Registering.

    def register(
        self,
        group: int,
        contents: Sequence[BlockHash],
        blocks: list[KVCacheBlock],
        row: tuple[int, KVCacheBlock | None] | None,
    ) -> None:
        """As before, in a folded run where that can be."""
        folds, run = self.folds.get(group), None
        if row is None:
            self.unfold(group)
        elif folds is not None:
            if row[1] is None and len(contents) == 1 and self.register_first(group, contents[0], blocks[0]):
                return
            run = self._room(folds, group, contents, *row)
        if run is None:
            BlockHashToBlockMap.register(self, group, contents, blocks, row)
            return
        run.contents += contents
        run.blocks += blocks
        name_all(blocks, contents, run)

    def register_first(self, group: int, content: BlockHash, block: KVCacheBlock) -> bool:
        """Register the first block of a prompt, which has no identity, alone: many a prompt has no second one. False,
        with nothing changed, if its hash is known, or the group is not folded."""
        folds = self.folds.get(group)
        if folds is None or content in folds.heads or content in folds.index:
            return False
        folds.index[content] = block
        block.content, block.run = content, loose_run(group)
        return True

    def register_new(
        self,
        group: int,
        contents: Sequence[BlockHash],
        blocks: list[KVCacheBlock],
        row: tuple[int, KVCacheBlock | None],
    ) -> bool:
        """`register`, if none of the blocks has an identity; else False, with nothing changed. There is one look at
        each, as what has been named is easily undone."""
        folds = self.folds.get(group)
        made = None if folds is None else self._room(folds, group, contents, *row)
        run = run_for(group, row) if made is None else made
        for block, content in zip(blocks, contents, strict=True):
            if block.content is not None:
                break
            block.content = content
            block.run = run
        else:
            if made is None and not self._add_all(group, contents, blocks):
                loose = loose_run(group)
                for block in blocks:
                    block.run = loose
            else:
                run.contents += contents
                run.blocks += blocks
            return True
        for other in blocks:
            if other is block:
                break
            other.content = other.run = None
        if made is not None and folds is not None and not made.blocks:
            take_out(folds, made, contents[0])
        return False

    def _room(
        self, folds: Folds, group: int, contents: Sequence[BlockHash], first: int, before: KVCacheBlock | None
    ) -> FoldedRun | None:
        """The folded run that entry `first` of a table goes on with or begins; None where one of the hashes is known,
        or may be: what knows it is unfolded then."""
        heads, index, head = folds.heads, folds.index, contents[0]
        if before is None:
            parent, at, behind = None, 0, None
        else:
            if first == 1 and before.content is not None and index.get(before.content) is before:
                self._fold_first(folds, group, before, before.content)
            run = before.run
            if not isinstance(run, FoldedRun) or not run.folded or run.group != group:
                self._unfold_known(folds, contents, run is None)
                return None
            parent, at = run, first - run.first
            if (
                run.blocks[-1] is before
                and at == len(run.blocks)
                and not (run.again or folds.orphans or head in heads)
                and heads[run.contents[0]] is run
                and (not index or index.keys().isdisjoint(contents))
            ):  # mostly: it goes on, with what nobody has
                return run
            if not 0 < at <= len(run.blocks) or run.blocks[at - 1] is not before:
                self.unfold(group)
                return None
            behind = run.contents[at] if at < len(run.contents) else self._behind_others(folds, run, at, head)
        others = heads.get(head)
        goes_on = parent is None or behind is not None or self._goes_on(folds, parent, at, contents)
        if (
            not goes_on
            or behind == head
            or (index and not index.keys().isdisjoint(contents))
            or (folds.orphans and not heads.keys().isdisjoint(contents))
            or (others is not None and not _agrees(folds, others, None, 0, contents))
        ):
            if parent is not None and behind == head:
                self._unfold_end(parent, at)
            elif parent is not None and (not goes_on or heads[parent.contents[0]].again is not None):
                self._unfold_run(parent)
            self._unfold_known(folds, contents, False)
            return None
        if others is None and parent is not None:
            if behind is None:
                return parent
            self._note_leaf(folds, parent, at, head)
        made = FoldedRun(group, first, [], [])
        if others is not None:
            _all(others)[-1].again = made
            return made
        if not heads:
            self.groups.pop(group, None)
            folds.orphans = False
        heads[head] = made
        return made

    def _behind_others(self, folds: Folds, run: FoldedRun, at: int, head: BlockHash) -> BlockHash | None:
        """What runs of the same beginning have behind this one, which is so long, if that is not this hash: then who
        goes on with it leaves them all."""
        first = folds.heads[run.contents[0]]
        if first.again is None:
            return None
        longest = max([one.contents for one in _all(first)], key=len)
        return longest[at] if at < len(longest) and longest[at] != head else None

    def _goes_on(self, folds: Folds, run: FoldedRun, at: int, contents: Sequence[BlockHash]) -> bool:
        """Whether a run, which is so long, can go on with these hashes; others of its beginning may have."""
        first = folds.heads[run.contents[0]]
        return first.again is None or _agrees(folds, first, run, at, contents)

    def _fold_first(self, folds: Folds, group: int, block: KVCacheBlock, content: BlockHash) -> None:
        """The first block of a prompt, registered alone, begins a run now that another one comes behind it."""
        run = block.run
        if run is None or run.whole or run.first < 0:  # a marked one has more names
            return
        del folds.index[content]
        if not folds.heads:
            self.groups.pop(group, None)
            folds.orphans = False
        folds.heads[content] = block.run = FoldedRun(group, 0, [content], [block])

    def _unfold_known(self, folds: Folds, contents: Sequence[BlockHash], any_of_them: bool) -> None:
        """Unfold what begins with one of these hashes; or all, where it may be in the middle of `any_of_them`."""
        if any_of_them:
            self.unfold_all()
            return
        for content in folds.heads.keys() & contents:
            self._unfold_run(folds.heads[content])

    # Forgetting.

    def _drop_end(self, run: Run, blocks: list[KVCacheBlock]) -> None:
        """As before."""
        if not isinstance(run, FoldedRun) or not run.folded:
            BlockHashToBlockMap._drop_end(self, run, blocks)
            return
        n, folds = len(blocks), self.folds[run.group]
        left = len(run.blocks) - n
        if not left:
            take_out(folds, run, run.contents[0])
        if run.leaves:
            self._drop_leaves(folds, run, left)
        del run.contents[-n:], run.blocks[-n:]

    def forget(self, block: KVCacheBlock) -> bool:
        """As before."""
        run = block.run
        if isinstance(run, FoldedRun) and run.folded:
            if run.blocks[-1] is block:
                self._drop_end(run, [block])
                block.content = block.run = None
                return True
            self._unfold_run(run)
        return BlockHashToBlockMap.forget(self, block)

    # Looking at all of it.

    def all_blocks(self) -> list[KVCacheBlock]:
        """As before."""
        firsts = [first for folds in self.folds.values() for first in folds.heads.values()]
        blocks = [block for first in firsts for run in _all(first) for block in run.blocks]
        for registered in {**self.groups, **{group: folds.index for group, folds in self.folds.items()}}.values():
            for entry in registered.values():
                blocks += entry.values() if isinstance(entry, dict) else (entry,)
        return blocks

    def dissolve(self) -> None:
        """Nobody asks any more: let go of the blocks now. It stands in a circle, which lives on for a while."""
        self.folds, self.groups = {}, {}

    def _check_run(self, run: Run) -> None:
        """As before; a folded run may be the second one with its hashes."""
        if not isinstance(run, FoldedRun) or not run.folded:
            BlockHashToBlockMap._check_run(self, run)
        elif [block.content for block in run.blocks] != run.contents:
            raise AssertionError(f"content of a folded run: blocks {[block.block_id for block in run.blocks]}")

    def __len__(self) -> int:
        return sum(map(len, self.all_groups().values()))

    def all_groups(self) -> Mapping[int, Registered]:
        """As before. AssertionError where what is folded contradicts the rest."""
        every: dict[int, Registered] = dict(self.groups.items())
        for group, folds in self.folds.items():
            all_of_it = every[group] = dict(folds.index)
            for head, first in folds.heads.items():
                where = f"the folded run of blocks {[block.block_id for block in first.blocks]} in group {group}"
                longest = max([run.contents for run in _all(first)], key=len)
                for run in _all(first):
                    if not run.folded or not run.whole or run.group != group or run.contents[:1] != [head]:
                        raise AssertionError(f"a folded run stands under its first hash: {where}")
                    if run.contents != longest[: len(run.contents)]:
                        raise AssertionError(f"runs of one beginning go on alike: {where}")
                if not all_of_it.keys().isdisjoint(longest):
                    raise AssertionError(f"what is folded is registered once: {where}")
                _insert(all_of_it, first)
        return every


def _all(run: FoldedRun) -> list[FoldedRun]:
    """The first run of a beginning, and the others."""
    runs = [run]
    while run.again is not None:
        run = run.again
        runs.append(run)
    return runs


def _agrees(folds: Folds, first: FoldedRun, run: FoldedRun | None, at: int, contents: Sequence[BlockHash]) -> bool:
    """Whether entries from `at` on with these hashes go with runs of one beginning, as those of `run`, None for a new
    one: the others have the same there, those that have any come before it, and what nobody has, no run begins with."""
    runs = _all(first)
    longest = max([one.contents for one in runs], key=len)
    if run is not None and any(len(one.contents) > at for one in runs[runs.index(run) :]):
        return False
    known = longest[at : at + len(contents)]
    return known == contents[: len(known)] and folds.heads.keys().isdisjoint(contents[max(len(known), at == 0) :])


def take_out(folds: Folds, run: FoldedRun, head: BlockHash) -> None:
    """A run has no block any more."""
    run.folded, one, again = False, folds.heads[head], run.again
    run.again = None
    if one is not run:
        while one.again is not None and one.again is not run:
            one = one.again
        one.again = again
    elif again is None:
        del folds.heads[head]
    else:
        folds.heads[head] = again


def _put(index: Registered, first: FoldedRun) -> None:
    """Unfold runs of one beginning into a map that has none of their hashes."""
    _insert(index, first)
    runs = _all(first)
    for run in runs:
        run.folded, run.again = False, None
        run.whole = run is first


def _insert(index: Registered, first: FoldedRun) -> None:
    index.update(zip(first.contents, first.blocks, strict=True))
    for run in _all(first)[1:]:
        for content, block in zip(run.contents, run.blocks, strict=True):
            found = index.setdefault(content, block)
            if isinstance(found, dict):
                found[block.block_id] = block
            elif found is not block:
                index[content] = {found.block_id: found, block.block_id: block}


class UnfoldedGroups(dict[int, Registered]):
    """The maps of the groups; a missing one is that of a group of which runs are folded, or a new one."""

    def __init__(self, names: FoldingMap) -> None:
        super().__init__()
        self._names = names

    def __missing__(self, group: int) -> Registered:
        return self._names.unfold(group)
