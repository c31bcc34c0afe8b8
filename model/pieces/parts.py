"""Pieces that a core is made of, each for itself: hashes and their keys, the free queue, the identity of a block, the
rate of hits (§7; core.md §§2, 3, 10). Hashes are texts in hexadecimal digits.
"""

from collections import deque
from collections.abc import Sequence

from ..attention import demand
from ..core import Model
from ..ops import Failed, Shape

GROUP_BYTES = 4
"""Bytes of the group's number in a key, the highest first."""
EXTERNAL_BYTES = 8
"""Bytes of a hash that events show as an integer: its last ones."""


class PieceRules:
    """What a record of rules says of these pieces; releases differ in it."""

    def hash_at(self, hashes: Sequence[str], times: int, index: int, is_int: bool) -> str:
        """§7: the item of a view whose items are `times` hashes in a row, at an index as lists take it [C-01];
        `is_int`: whether it is an int, or an object that only stands for one."""
        length = len(hashes) // times
        demand(-length <= index < length, "IndexError")
        start = index % length * times
        return "".join(hashes[start : start + times])

    def build(self, shape: Shape) -> None:
        """core.md §9: refuses shapes of which no core may be built [C-18]."""
        outcome = Model(shape).construction
        if isinstance(outcome, Failed):
            demand(False, outcome.error)


def key_of(block_hash: str, group: int) -> str:
    """core.md §2: the key under which a block of this group is registered."""
    demand(0 <= group < 1 << 8 * GROUP_BYTES, "OverflowError")
    return block_hash + group.to_bytes(GROUP_BYTES, "big").hex()


def split_key(key: str) -> tuple[str, int]:
    """core.md §2: hash and group of a key."""
    place = len(key) - 2 * GROUP_BYTES
    return key[:place], int(key[place:], 16)


def external(block_hash: str, as_int: bool) -> str | int:
    """core.md §10: a hash as events show it."""
    return int(block_hash[-2 * EXTERNAL_BYTES :] or "0", 16) if as_int else block_hash


class FreeQueue:
    """core.md §2: the blocks that nothing holds, in the order in which they are taken. What fails changes nothing."""

    def __init__(self, blocks: Sequence[int]) -> None:
        self.blocks = list(blocks)

    def popleft(self) -> list[int]:
        """Take the first one."""
        demand(bool(self.blocks), "ValueError")
        return self.popleft_n(1)

    def popleft_n(self, n: int) -> list[int]:
        """Take the first `n`."""
        demand(n <= len(self.blocks))
        taken, self.blocks = self.blocks[:n], self.blocks[n:]
        return taken

    def remove(self, block: int) -> None:
        """Take out this one, wherever it is."""
        demand(block in self.blocks, "RuntimeError")
        self.blocks.remove(block)

    def append(self, block: int) -> None:
        """Give one back, to the end."""
        self.append_n([block])

    def append_n(self, blocks: Sequence[int]) -> None:
        """Give some back, to the end, in this order."""
        self.blocks += blocks

    def prepend_n(self, blocks: Sequence[int]) -> None:
        """Give some back, to the front, in this order: they are taken next."""
        self.blocks = [*blocks, *self.blocks]


class BlockIdentity:
    """core.md §2: the key of a block's content, which is forgotten before another one is set."""

    def __init__(self) -> None:
        self.key: str | None = None

    def set(self, key: str) -> None:
        """Give it a key."""
        demand(self.key is None)
        self.key = key

    def reset(self) -> None:
        """Forget the key."""
        self.key = None


class RecentRate:
    """core.md §10: hits for what was queried by the last requests: updates leave whole, the oldest first, while there
    are more requests than `most`; the last one stays. An update without requests is none."""

    def __init__(self, most: int = 1000) -> None:
        self.most = most
        self.updates: deque[tuple[int, int, int]] = deque()

    def observe(self, requests: int, queries: int, hits: int, reset: bool) -> None:
        """An update; `reset`: what was seen before it counts no more."""
        if reset:
            self.updates.clear()
        if requests:
            self.updates.append((requests, queries, hits))
        while len(self.updates) > 1 and self.requests > self.most:
            self.updates.popleft()

    @property
    def requests(self) -> int:
        """Requests in the updates that are left."""
        return sum(requests for requests, _, _ in self.updates)

    @property
    def rate(self) -> float:
        """Hits for each token queried, 0 if there is none."""
        queries = sum(queries for _, queries, _ in self.updates)
        return sum(hits for _, _, hits in self.updates) / queries if queries else 0.0
