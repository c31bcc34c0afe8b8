"""Wrong ways to put blocks into a free queue, or to take them: negative controls of the theorems about
batches of any length.

Each is written out, with one loop, so that it can be cut as the core's own methods are.
"""

from typing import Any

from ..symbolic_builtins import symbolic_len


def append_right(queue: Any, blocks: Any) -> None:
    """Nothing is wrong with this one, if it is to go to the back."""
    last = queue.fake_free_list_tail.prev_free_block
    for block in blocks:
        last.next_free_block = block
        block.prev_free_block = last
        last = block
    last.next_free_block = queue.fake_free_list_tail
    queue.fake_free_list_tail.prev_free_block = last
    queue.num_free_blocks += symbolic_len(blocks)


def append_without_back_links(queue: Any, blocks: Any) -> None:
    """No block points at the one before it."""
    last = queue.fake_free_list_tail.prev_free_block
    for block in blocks:
        last.next_free_block = block
        last = block
    last.next_free_block = queue.fake_free_list_tail
    queue.fake_free_list_tail.prev_free_block = last
    queue.num_free_blocks += symbolic_len(blocks)


def append_without_advance(queue: Any, blocks: Any) -> None:
    """Every block is put behind the old last one."""
    last = queue.fake_free_list_tail.prev_free_block
    for block in blocks:
        last.next_free_block = block
        block.prev_free_block = last
        last = last.next_free_block.prev_free_block
    last.next_free_block = queue.fake_free_list_tail
    queue.fake_free_list_tail.prev_free_block = last
    queue.num_free_blocks += symbolic_len(blocks)


def append_without_end(queue: Any, blocks: Any) -> None:
    """The tail still points at the old last block."""
    last = queue.fake_free_list_tail.prev_free_block
    for block in blocks:
        last.next_free_block = block
        block.prev_free_block = last
        last = block
    last.next_free_block = queue.fake_free_list_tail
    queue.num_free_blocks += symbolic_len(blocks)


def append_counting_one(queue: Any, blocks: Any) -> None:
    """A batch counts as one block."""
    last = queue.fake_free_list_tail.prev_free_block
    for block in blocks:
        last.next_free_block = block
        block.prev_free_block = last
        last = block
    last.next_free_block = queue.fake_free_list_tail
    queue.fake_free_list_tail.prev_free_block = last
    queue.num_free_blocks += 1


def prepend_without_back_links(queue: Any, blocks: Any) -> None:
    """No block points at the one before it."""
    last, front = queue.fake_free_list_head, queue.fake_free_list_head.next_free_block
    for block in blocks:
        last.next_free_block = block
        last = block
    last.next_free_block = front
    front.prev_free_block = last
    queue.num_free_blocks += symbolic_len(blocks)


def prepend_losing_the_rest(queue: Any, blocks: Any) -> None:
    """The batch is followed by the tail."""
    last, front = queue.fake_free_list_head, queue.fake_free_list_head.next_free_block
    for block in blocks:
        last.next_free_block = block
        block.prev_free_block = last
        last = block
    last.next_free_block = queue.fake_free_list_tail
    front.prev_free_block = last
    queue.num_free_blocks += symbolic_len(blocks)


def popleft_without_clearing(queue: Any, n: Any) -> list[Any]:
    """What was taken still points at the block before it."""
    taken = []
    block = queue.fake_free_list_head.next_free_block
    for _ in range(n):
        after = block.next_free_block
        block.next_free_block = None
        taken.append(block)
        block = after
    queue.fake_free_list_head.next_free_block = block
    block.prev_free_block = queue.fake_free_list_head
    queue.num_free_blocks -= n
    return taken


def popleft_without_head(queue: Any, n: Any) -> list[Any]:
    """The head still points at the first block that was taken."""
    taken = []
    block = queue.fake_free_list_head.next_free_block
    for _ in range(n):
        after = block.next_free_block
        block.prev_free_block = block.next_free_block = None
        taken.append(block)
        block = after
    block.prev_free_block = queue.fake_free_list_head
    queue.num_free_blocks -= n
    return taken


def popleft_one_fewer(queue: Any, n: Any) -> list[Any]:
    """One round too few."""
    taken = []
    block = queue.fake_free_list_head.next_free_block
    for _ in range(n - 1):
        after = block.next_free_block
        block.prev_free_block = block.next_free_block = None
        taken.append(block)
        block = after
    queue.fake_free_list_head.next_free_block = block
    block.prev_free_block = queue.fake_free_list_head
    queue.num_free_blocks -= n
    return taken


def popleft_counting_one(queue: Any, n: Any) -> list[Any]:
    """Whatever was taken counts as one block."""
    taken = []
    block = queue.fake_free_list_head.next_free_block
    for _ in range(n):
        after = block.next_free_block
        block.prev_free_block = block.next_free_block = None
        taken.append(block)
        block = after
    queue.fake_free_list_head.next_free_block = block
    block.prev_free_block = queue.fake_free_list_head
    queue.num_free_blocks -= 1
    return taken
