"""Wrong variants of a free queue that is a row of batches: lines of our core's own code changed (T25)."""

from ..batch_rows import Wrong

_WHOLE = "if self.left == len(blocks) - at:"
_NONE_LOST = "if left and left == size - last.at and size < MANY:"
_SHORTER = "self.blocks, self.at = rest if len(rest) == self.left else self.members(), 0"
_SWEPT = "self.batches = deque([batch for batch in self.batches if batch.left])"
_BACK, _FRONT = "self.batches.append(self._batch(blocks))", "self.batches.appendleft(self._batch(blocks))"
_THERE = "if isinstance(batch, int) or batch.queue is not self:"

POPLEFT = (
    Wrong("the last one of a batch is taken", "batch", "take", "taken = blocks[at : at + n]", "taken = blocks[-n:]"),
    Wrong("the batch goes on counting it", "batch", "take", "self.left -= n", "pass"),
    Wrong("the counter stands still", "queue", "take", "self.num_free_blocks -= n", "pass"),
    Wrong("an empty batch that is gone is counted", "queue", "take", "self._empty -= 1", "pass"),
)

POPLEFT_EMPTY = (Wrong("nobody looks", "queue", "popleft", "if not self.num_free_blocks:", "if False:"),)

POPLEFT_N = (
    Wrong("what has left a batch is taken from it", "batch", "take", "if block.state is self:", "if True:"),
    Wrong("a batch is cut as if nothing had left it", "batch", "take", _WHOLE, "if True:"),
    Wrong("what was taken before is lost", "queue", "take", "taken += batch.take(left)", "taken = batch.take(left)"),
    Wrong("what was taken seems to wait", "queue", "popleft_n", "block.state = 0", "pass"),
)

POPLEFT_N_REFUSED = (
    Wrong(
        "a negative number passes",
        "queue",
        "popleft_n",
        "if not (0 <= n <= self.num_free_blocks):",
        "if n > self.num_free_blocks:",
    ),
)

REMOVE = (
    Wrong("the block seems to wait", "queue", "remove", "block.state = 0", "pass"),
    Wrong("nobody counts it", "queue", "remove", "self.lose(batch, 1)", "pass"),
    Wrong("its batch does not count it", "batch", "lose", "self.left -= n", "pass"),
    Wrong(
        "a batch that is made shorter loses a block",
        "batch",
        "lose",
        _SHORTER,
        _SHORTER.replace("= rest if", "= rest[1:] if").replace("self.members()", "self.members()[1:]"),
    ),
    Wrong("an empty batch is not counted", "queue", "lose", "self._empty += 1", "pass"),
    Wrong(
        "a batch of one block is swept away", "queue", "lose", _SWEPT, _SWEPT.replace("batch.left]", "batch.left > 1]")
    ),
)

REMOVE_REFUSED = (Wrong("nobody looks whether it waits", "queue", "remove", _THERE, _THERE.replace(" or ", " and ")),)

_JOINED = (
    Wrong("the last batch does not count them", "queue", "append_n", "last.left = left + n", "pass"),
    Wrong(
        "a batch is joined by what has left it",
        "queue",
        "append_n",
        _NONE_LOST,
        "if left and size < MANY:",
    ),
)

APPEND = (*_JOINED, Wrong("it goes to the front", "queue", "append_n", _BACK, _FRONT))

APPEND_N = (
    *_JOINED,
    Wrong("they do not know their batch", "queue", "append_n", "block.state = last", "pass"),
    Wrong("an empty batch is put to the back", "queue", "append_n", "if not n:", "if False:"),
)

PREPEND_N = (
    Wrong("they go to the back", "queue", "prepend_n", _FRONT, _BACK),
    Wrong("an empty batch is put to the front", "queue", "prepend_n", "if not n:", "if False:"),
    Wrong("they come in place of what is there", "queue", "prepend_n", "first.at = at - n", "first.at = at"),
    Wrong(
        "a batch is joined by what has left it",
        "queue",
        "prepend_n",
        "if n <= at and left and left == len(first.blocks) - at:",
        "if n <= at and left:",
    ),
)
