"""One physical page of KV cache, as the core sees it (core.md §2)."""

from collections.abc import Iterable
from typing import Final, Optional, Protocol

from ..hashing.block_hash import BlockHash, BlockHashWithGroupId
from ..hashing.block_hashing import get_block_hash, get_group_id, make_block_hash_with_group_id

NULL_STATE: Final = -1
"""The state of a null block."""


MANY = 64
"""So many batches, or entries of one, are worth a sweep."""
SPARSE = 16
"""A batch with one block left of so many entries is sparse."""


class Queue(Protocol):
    """What a block asks of the free queue in which it waits."""

    def neighbours(self, block: "KVCacheBlock") -> tuple[Optional["KVCacheBlock"], Optional["KVCacheBlock"]]:
        """The blocks before and behind it."""


class Batch:
    """Blocks that came into the queue together, in the order of eviction.

    Of `blocks[at:]` those are still here whose state is this batch, `left` in number: to take a block out of the middle
    is to give it another state.
    """

    __slots__ = ("at", "blocks", "left", "queue")

    def __init__(self, queue: "Queue", blocks: list["KVCacheBlock"]) -> None:
        self.queue = queue
        self.blocks = blocks
        self.at = 0
        self.left = len(blocks)

    def take(self, n: int) -> list["KVCacheBlock"]:
        """The first `n` of those that are left, which are no more than `left`. Their state is for the caller to set."""
        at, blocks = self.at, self.blocks
        if self.left == len(blocks) - at:
            taken = blocks[at : at + n]
            at += n
        else:
            taken = []
            while len(taken) < n:
                block = blocks[at]
                if block.state is self:
                    taken.append(block)
                at += 1
        self.at = at
        self.left -= n
        return taken

    def members(self) -> list["KVCacheBlock"]:
        """Those that are left."""
        rest = self.blocks[self.at :]
        return rest if self.left == len(rest) else [block for block in rest if block.state is self]

    def lose(self, n: int) -> None:
        """Note that `n` of its blocks have another state now."""
        self.left -= n
        size = len(self.blocks) - self.at
        if size > MANY and self.left * SPARSE < size:
            first = self.blocks[self.at : self.at + self.left]  # mostly those that came first are left
            rest = [block for block in first if block.state is self]
            self.blocks, self.at = rest if len(rest) == self.left else self.members(), 0


class Run:
    """Blocks that were registered one after another: `blocks[i]` under `contents[i]`, as entry `first + i` of a table.

    While it is `whole`, each of them is the one that a lookup finds under its content: one comparison of two lists of
    hashes then answers for the whole run.
    """

    __slots__ = ("blocks", "contents", "first", "group", "whole")

    def __init__(
        self, group: int, first: int, contents: list[BlockHash], blocks: list["KVCacheBlock"], whole: bool = True
    ) -> None:
        self.group = group
        self.first = first
        self.contents = contents
        self.blocks = blocks
        self.whole = whole


_LOOSE = {group: Run(group, 0, [], [], whole=False) for group in range(64)}
"""Made ahead, so that what runs does not depend on what ran before."""


def loose_run(group: int) -> Run:
    """What stands for the run of a block of this group that belongs to none."""
    found = _LOOSE.get(group)
    if found is None:
        found = _LOOSE[group] = Run(group, 0, [], [], whole=False)
    return found


def ids_of(blocks: Iterable["KVCacheBlock"]) -> list[int]:
    """The ids of these blocks."""
    return [block.block_id for block in blocks]


def with_and_without_identity(blocks: list["KVCacheBlock"]) -> tuple[list["KVCacheBlock"], list["KVCacheBlock"]]:
    """These blocks in their order, in two lists."""
    registered = [block for block in blocks if block.content is not None]
    if len(registered) == len(blocks):
        return registered, []
    return registered, [block for block in blocks if block.content is None]


class KVCacheBlock:
    """A block: its id, who holds it, and what it contains.

    `state` is the number of holders, or the batch of the free queue in which it waits: it cannot be held and free.
    `content` is None while the content has no registered identity, and `run` says with which others it was registered.
    These three are the pool's; others read `ref_cnt` and `block_hash`. Setting `block_hash` over an identity is an
    AssertionError: two owners would then disagree about the content; `reset_hash` comes first.
    """

    __slots__ = ("block_id", "content", "run", "state")

    def __init__(self, block_id: int, ref_cnt: int = 0, is_null: bool = False) -> None:
        self.block_id = block_id
        self.state: int | Batch = NULL_STATE if is_null else ref_cnt
        self.content: BlockHash | None = None
        self.run: Run | None = None

    @property
    def ref_cnt(self) -> int:
        """The number of holders."""
        state = self.state
        return state if isinstance(state, int) and state > 0 else 0

    @ref_cnt.setter
    def ref_cnt(self, count: int) -> None:
        if self.state != NULL_STATE:
            self.state = count

    @property
    def is_null(self) -> bool:
        """Whether it stands for what is not there."""
        return self.state == NULL_STATE

    @is_null.setter
    def is_null(self, null: bool) -> None:
        self.state = NULL_STATE if null else self.ref_cnt

    @property
    def block_hash(self) -> BlockHashWithGroupId | None:
        """The key under which the block is registered, or None."""
        if self.content is None or self.run is None:
            return None
        return make_block_hash_with_group_id(self.content, self.run.group)

    @block_hash.setter
    def block_hash(self, key: BlockHashWithGroupId) -> None:
        if self.content is not None:
            raise AssertionError(
                f"block {self.block_id} already carries identity {self.block_hash!r} and cannot take {key!r}: "
                "call reset_hash() first"
            )
        self.content = get_block_hash(key)
        self.run = loose_run(get_group_id(key))

    @property
    def _block_hash(self) -> BlockHashWithGroupId | None:
        """The same under the name of vLLM's field, which its connectors set whatever was there."""
        return self.block_hash

    @_block_hash.setter
    def _block_hash(self, key: BlockHashWithGroupId | None) -> None:
        self.reset_hash()
        if key is not None:
            self.block_hash = key

    def reset_hash(self) -> None:
        """Forget the identity."""
        self.content = self.run = None

    @property
    def prev_free_block(self) -> Optional["KVCacheBlock"]:
        """The block before it in the free queue, None outside. O(free blocks), for those who inspect a queue."""
        return None if isinstance(self.state, int) else self.state.queue.neighbours(self)[0]

    @property
    def next_free_block(self) -> Optional["KVCacheBlock"]:
        """The block behind it in the free queue, None outside. O(free blocks), for those who inspect a queue."""
        return None if isinstance(self.state, int) else self.state.queue.neighbours(self)[1]

    def __repr__(self) -> str:
        null = ", null" if self.is_null else ""
        return f"KVCacheBlock(block_id={self.block_id}, ref_cnt={self.ref_cnt}, block_hash={self.block_hash!r}{null})"


class Hit(list[KVCacheBlock]):
    """Blocks that one lookup has found: none of them is null or stands here twice, and all are of one pool."""

    __slots__ = ()


class TailHit(list[KVCacheBlock]):
    """The same behind nulls."""

    __slots__ = ()
