"""Reads LMDeploy's block manager and prefix trie as a `Snapshot`.

A block is a physical block: LMDeploy has logical ones, too, each of which stands for one physical block from the time
it is allocated until it is freed. Physical block 0 is reserved, and is the null block here.

A block is free if the allocator has it, or if the trie would give it up when asked to (`BlockTrie.evict`): the trie
owns it, no request does, and all that comes after it in the trie goes first. Which leaves the trie asks is read from
the trie's own list of leaves. A request's table begins with a null entry for each block behind its window.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ....model.ops import NULL
from ....model.snapshot import Snapshot
from .engine import Core


class LmdeployObserver:
    """Takes the snapshots of one scheduler."""

    def __init__(self, core: Core, num_blocks: int) -> None:
        self._manager = core.scheduler.block_manager
        self._trie = core.scheduler.block_trie
        self._block_size = core.block_size
        self._num_blocks = num_blocks

    def snapshot(self, sequences: Mapping[str, Any]) -> Snapshot:
        """The present state; `sequences` by the name of their request."""
        nodes = list(self._nodes())
        evictable = self._physical([int(node.block_id) for node in self._evictable()])
        tables = {name: self.table(sequence) for name, sequence in sequences.items() if sequence.num_blocks}
        return Snapshot(
            free=sorted([*self._unused(), *evictable]),
            num_free=int(self._manager.get_num_free_gpu_blocks()) + len(evictable),
            usage=0.0,
            ref_cnt=self._holders(Counter(int(node.block_id) for node in nodes)),
            tables=[tables],
            registered=[{}],
            labels=[None] * self._num_blocks,
            earliest=[None] * self._num_blocks,
            num_identities=0,
            events=(),
            new_block_ids=[[]],
            stats=None,
        )

    def num_free(self) -> int:
        """Free blocks by LMDeploy's own count, and those that the trie would give up."""
        return int(self._manager.get_num_free_gpu_blocks()) + len(self._evictable())

    def table(self, sequence: Any) -> list[int]:
        """The blocks of a sequence by position, null for those that its window has left behind."""
        behind = int(sequence.num_ignored_history) // self._block_size
        blocks: list[int] = self._manager.get_block_table(sequence).tolist()
        return [NULL] * behind + blocks if blocks else []

    def _unused(self) -> list[int]:
        """Blocks that the allocator has; a block that it has twice is listed twice."""
        allocator = self._manager.allocator.get_phy_allocator("gpu")
        used = allocator._num_blocks - allocator._free_count
        blocks: list[int] = allocator._free_blocks[used:].tolist()
        return blocks

    def _holders(self, owned: Counter[int]) -> list[int]:
        """Per physical block, references that are not the trie's."""
        memory = self._manager.allocator._log_mem
        counts = [0] * self._num_blocks
        for logical, references in enumerate(memory.ref_count.tolist()):
            if references or owned[logical]:
                counts[int(memory.phy_map[logical])] += references - owned[logical]
        return counts

    def _nodes(self) -> Iterator[Any]:
        """The nodes of the trie, without its roots."""
        pending = list(self._trie._roots.values())
        while pending:
            children = pending.pop().children.values()
            yield from children
            pending.extend(children)

    def _evictable(self) -> list[Any]:
        """The nodes that the trie gives up if it is asked for as many blocks as it has."""
        pending = [leaf for leaf in self._trie.leaves if leaf.is_attached() and not leaf.children]
        gone: set[int] = set()
        found = []
        while pending:
            node = pending.pop()
            if int(self._manager.allocator.get_ref_count(node.block_id)) != 1:
                continue
            found.append(node)
            gone.add(id(node))
            parent = node.parent
            if parent.parent is not None and all(id(child) in gone for child in parent.children.values()):
                pending.append(parent)
        return found

    def _physical(self, logical: list[int]) -> list[int]:
        memory = self._manager.allocator._log_mem
        return [int(memory.phy_map[block]) for block in logical]
