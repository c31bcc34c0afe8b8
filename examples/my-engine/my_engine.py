"""The KV cache of a small engine: full attention, blocks shared by content, the oldest free one is reused first."""

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256


class BlockPool:
    """Blocks by number: who holds them, what they contain, and which one is reused next."""

    def __init__(self, num_blocks: int) -> None:
        self.holders = [0] * num_blocks
        self.keys: list[bytes | None] = [None] * num_blocks  # what a block is cached as
        self.cached: dict[bytes, list[int]] = {}  # the other way round; two requests may compute the same
        self.free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))  # the next to be reused in front

    def take(self) -> int:
        """A block for new content, which the cache forgets the old content of."""
        block, _ = self.free.popitem(last=False)
        self.forget(block)
        self.holders[block] = 1
        return block

    def share(self, block: int) -> None:
        """One holder more, of a block in use or of a free one that still has its content."""
        if self.holders[block] == 0:
            del self.free[block]
        self.holders[block] += 1

    def give_back(self, block: int) -> None:
        """One holder less. The block keeps its content until it is taken again."""
        self.holders[block] -= 1
        if self.holders[block] == 0:
            self.free[block] = None

    def remember(self, block: int, key: bytes) -> None:
        """From now on a lookup of this key may find the block."""
        if self.keys[block] is None:
            self.keys[block] = key
            self.cached.setdefault(key, []).append(block)

    def forget(self, block: int) -> None:
        """The block is no longer found."""
        key, self.keys[block] = self.keys[block], None
        if key is not None:
            self.cached[key].remove(block)
            if not self.cached[key]:
                del self.cached[key]


class KVCache:
    """What the scheduler of the engine calls: a table of blocks for each request."""

    def __init__(self, num_blocks: int, block_size: int, caching: bool = True) -> None:
        self.block_size = block_size
        self.caching = caching
        self.pool = BlockPool(num_blocks)
        self.tables: dict[str, list[int]] = {}

    def match(self, tokens: Sequence[int]) -> list[int]:
        """The blocks of the longest cached prefix. At least one token is left to compute."""
        hit: list[int] = []
        for key in self.block_keys(tokens[:-1]):
            if not (blocks := self.pool.cached.get(key)):
                break
            hit.append(blocks[0])
        return hit

    def allocate(self, request: str, num_tokens: int, hit: Sequence[int] = ()) -> list[int] | None:
        """Room for so many tokens, in a table that begins with `hit`. The new blocks; None, and no change, if the pool
        has too few.
        """
        table = self.tables.get(request, [])
        missing = max(0, -(-num_tokens // self.block_size) - len(table) - len(hit))
        revived = sum(self.pool.holders[block] == 0 for block in hit)  # these are free, but not to be taken
        if missing + revived > len(self.pool.free):
            return None
        for block in hit:
            self.pool.share(block)
        new = [self.pool.take() for _ in range(missing)]
        self.tables[request] = [*table, *hit, *new]
        return new

    def publish(self, request: str, tokens: Sequence[int]) -> None:
        """These tokens have been computed: other requests may use the blocks that they fill."""
        if self.caching:
            for block, key in zip(self.tables[request], self.block_keys(tokens), strict=False):
                self.pool.remember(block, key)

    def release(self, request: str) -> None:
        """Give the blocks of a request back, the last one first: a prefix is of use longer than what follows it."""
        for block in reversed(self.tables.pop(request, [])):
            self.pool.give_back(block)

    def clear(self) -> bool:
        """Forget all content, as after new weights. False, and no change, while a request is running."""
        if self.tables:
            return False
        for block in range(len(self.pool.keys)):
            self.pool.forget(block)
        return True

    def block_keys(self, tokens: Sequence[int]) -> list[bytes]:
        """A key for each full block. It stands for all tokens up to the end of the block."""
        keys, key = [], b""
        for end in range(self.block_size, len(tokens) + 1, self.block_size):
            key = sha256(key + repr(tokens[end - self.block_size : end]).encode()).digest()
            keys.append(key)
        return keys
