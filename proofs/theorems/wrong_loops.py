"""Wrong ways to put blocks into a free queue, or to take them: negative controls of the theorems about
batches of any length.

Each is a right one with one line of its source changed. It has one loop, so that it can be cut as the core's own
methods are.
"""

from typing import Any

from ..symbolic_builtins import symbolic_len
from ..wrong_code import changed


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


def prepend_right(queue: Any, blocks: Any) -> None:
    """Nothing is wrong with this one, if it is to go to the front."""
    last, front = queue.fake_free_list_head, queue.fake_free_list_head.next_free_block
    for block in blocks:
        last.next_free_block = block
        block.prev_free_block = last
        last = block
    last.next_free_block = front
    front.prev_free_block = last
    queue.num_free_blocks += symbolic_len(blocks)


def popleft_right(queue: Any, n: Any) -> list[Any]:
    """Nothing is wrong with this one, but that it takes what is not there."""
    taken = []
    block = queue.fake_free_list_head.next_free_block
    for _ in range(n):
        after = block.next_free_block
        block.prev_free_block = block.next_free_block = None
        taken.append(block)
        block = after
    queue.fake_free_list_head.next_free_block = block
    block.prev_free_block = queue.fake_free_list_head
    queue.num_free_blocks -= n
    return taken


append_without_back_links = changed(append_right, "block.prev_free_block = last")
append_without_advance = changed(append_right, "last = block", "last = last.next_free_block.prev_free_block")
append_without_end = changed(append_right, "queue.fake_free_list_tail.prev_free_block = last")
append_counting_one = changed(
    append_right, "queue.num_free_blocks += symbolic_len(blocks)", "queue.num_free_blocks += 1"
)

prepend_without_back_links = changed(prepend_right, "block.prev_free_block = last")
prepend_losing_the_rest = changed(
    prepend_right, "last.next_free_block = front", "last.next_free_block = queue.fake_free_list_tail"
)

popleft_without_clearing = changed(
    popleft_right, "block.prev_free_block = block.next_free_block = None", "block.next_free_block = None"
)
popleft_without_head = changed(popleft_right, "queue.fake_free_list_head.next_free_block = block")
popleft_one_fewer = changed(popleft_right, "for _ in range(n):", "for _ in range(n - 1):")
popleft_counting_one = changed(popleft_right, "queue.num_free_blocks -= n", "queue.num_free_blocks -= 1")
