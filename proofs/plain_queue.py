"""A free queue of real objects, for a replay: what `free_list` has for a proof."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any


class PlainOrder:
    """A list of blocks."""

    def __init__(self, blocks: Sequence[Any]) -> None:
        self.blocks = list(blocks)

    @property
    def length(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    def shows(self, place: int, block: Any) -> bool:
        """True if this is the block at the place."""
        return 0 <= place < len(self.blocks) and self.blocks[place] is block

    def dropped(self, count: int) -> "PlainOrder":
        """Without the first `count`."""
        return PlainOrder(self.blocks[count:])

    def without(self, block: Any) -> "PlainOrder":
        """Without a block that stands in it."""
        return PlainOrder([other for other in self.blocks if other is not block])

    def inserted(self, place: int, blocks: Sequence[Any]) -> "PlainOrder":
        """With more blocks, the first of them at this place."""
        return PlainOrder([*self.blocks[:place], *blocks, *self.blocks[place:]])


class OutOfOrderError(Exception):
    """The core's own constructor makes a queue in which the invariant does not hold."""


class PlainQueue:
    """A scene for a replay: the core's real queue with `n` real blocks, and real blocks that are not in it."""

    def __init__(self, f: Any, n: int, gap: int | None = None) -> None:
        self._kind = f.block_kind
        queued = [self._kind(10 + number) for number in range(n)]
        self._spares: dict[int, Any] = {}
        self.order = PlainOrder(queued)
        self.queue = f.queue_kind(queued)
        self._require_order()

    def block(self, place: int) -> Any:
        """The block at this place of the queue; below 0, the block of this number among those that are not in it."""
        if 0 <= place < self.order.length:
            return self.order.blocks[place]
        return self._spares.setdefault(place, self._kind(1000 - place))

    def reads(self, order: PlainOrder) -> list[bool]:
        """True if the queue is in order and reads like this."""
        head, tail = self.queue.fake_free_list_head, self.queue.fake_free_list_tail
        chain = [head, *order.blocks, tail]
        inside = {id(block) for block in order.blocks}
        outside = [block for block in (*self.order.blocks, *self._others()) if id(block) not in inside]
        ends = head.prev_free_block is None and tail.next_free_block is None
        return [
            ends,
            len(inside) == len(order.blocks),
            all(one.next_free_block is two and two.prev_free_block is one for one, two in pairwise(chain)),
            all(block.prev_free_block is None and block.next_free_block is None for block in outside),
            self.queue.num_free_blocks == order.length,
        ]

    def unchanged(self) -> list[bool]:
        """True if links and counter are those of the beginning."""
        return self.reads(self.order)

    def _require_order(self) -> None:
        """OutOfOrderError unless the queue reads as it should at first: a proof begins with one that does."""
        if not all(self.reads(self.order)):
            raise OutOfOrderError(
                f"the core's constructor makes no queue of {self.order.length} blocks that is in order"
            )

    def _others(self) -> Sequence[Any]:
        """Blocks that were not in the queue."""
        return list(self._spares.values())
