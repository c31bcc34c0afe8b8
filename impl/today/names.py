"""The names of blocks by the rule of today: a block may have several, and one of a part of its tokens."""

from collections.abc import Sequence

from ..hashing.block_hash import BlockHash
from ..hashing.block_hashing import BlockHashList
from ..pool.block import KVCacheBlock, Run
from .folded import FoldedRun, FoldingMap, take_out

Name = tuple[int, BlockHash]
"""A group and the hash of a content in it."""


class _Marked(dict[int, Run]):
    """By group a run that none is."""

    def __missing__(self, group: int) -> Run:
        self[group] = Run(group, -1, [], [], whole=False)
        return self[group]


class SeveralNames(FoldingMap):
    """As before, by folded runs. The first name of a block is its `content`; further ones, and what a name leaves out,
    are kept beside it, so that blocks with one whole name, which are nearly all, cost what they did. The run of the
    others tells of them: where blocks are evicted nobody has to ask which these are."""

    def __init__(self, folding: Sequence[int] = ()) -> None:
        """`folding`: groups of which runs are folded."""
        super().__init__(folding)
        self.further: dict[int, list[Name]] = {}
        """By block, its names but the first."""
        self.partial: dict[int, int] = {}
        """By block whose first name is not that of all its tokens: tokens up to the end of what it says."""
        self.marked = _Marked()
        """By group, the run of the blocks of which more is kept."""

    def mark(self, block: KVCacheBlock, group: int) -> None:
        """Note that more is kept of this block, whose first name is in this group."""
        run = block.run
        if isinstance(run, FoldedRun) and run.folded:
            self.unfold(group)
        if run is not None and run.whole:
            if run.blocks[-1] is block:  # the end of a prompt is
                run.blocks.pop()
                run.contents.pop()
            else:
                run.whole = False
        block.run = self.marked[group]

    def is_marked(self, block: KVCacheBlock) -> bool:
        """Whether more is kept of it."""
        return block.run is not None and block.run.first < 0

    def forget(self, block: KVCacheBlock) -> bool:
        """As before, with all that is kept of it."""
        run, content = block.run, block.content
        if content is None or run is None:
            return False
        if isinstance(run, FoldedRun) and run.folded:
            blocks = run.blocks
            if blocks[-1] is not block or run.leaves is not None:
                return FoldingMap.forget(self, block)
            blocks.pop()
            run.contents.pop()
            if not blocks:
                take_out(self.folds[run.group], run, content)
            block.content = block.run = None
            return True
        if run.first < 0:
            self.partial.pop(block.block_id, None)
            for group, other in self.further.pop(block.block_id, ()):
                self.remove(group, other, block.block_id)
        folds = self.folds.get(run.group)
        registered = self.groups[run.group] if folds is None else folds.index
        if registered.get(content) is not block:
            return FoldingMap.forget(self, block)
        del registered[content]
        if run.whole:
            if run.blocks[-1] is block:
                run.blocks.pop()
                run.contents.pop()
            else:
                run.whole = False
        block.content = block.run = None
        return True

    def take_end(self, blocks: list[KVCacheBlock]) -> bool:
        """If these blocks are the end of a run, its last block first, take their identity, and hold each: as they are
        handed out all of it is one look at each. False, with nothing changed, if they are not."""
        run = blocks[0].run
        if run is None or not run.whole or run.blocks[: -len(blocks) - 1 : -1] != blocks:
            return False
        self._drop_end(run, blocks)
        for block in blocks:
            block.content = block.run = None
            block.state = 1
        return True

    def _bind(self, group: int, hashes: BlockHashList, found: list[KVCacheBlock], first: int, end: int) -> None:
        """As before, but for blocks of which more is kept."""
        FoldingMap._bind(self, group, hashes, found, first, end)
        if self.further or self.partial:
            for block in found:
                if block.block_id in self.further or block.block_id in self.partial:
                    self.mark(block, group)
