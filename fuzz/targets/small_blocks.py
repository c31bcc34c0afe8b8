"""What the question `manager` asks about lookups and masks, the same of both sides. Blocks are of two tokens there, so
that a window or a chunk of a few tokens has several."""

from collections.abc import Iterator, Sequence

BLOCK, UNIT, BLOCKS = 2, 8, 24
"""Tokens of a block, tokens between two boundaries of masks, and how many blocks have a hash."""
MASKED = 12
"""Blocks of a mask."""
SPAN = BLOCK * BLOCKS - 7
"""Lengths are taken modulo this, so that no lookup goes beyond the hashes."""
THERE: Sequence[range] = (range(BLOCKS), range(0, BLOCKS, 2), range(1, BLOCKS, 2))
"""Which blocks are registered: all, or every other one, so that one is missing before one that is there."""


def lookups(length: int, ranks: Sequence[int]) -> Iterator[tuple[int, range, tuple[int, int]]]:
    """For each lookup its tokens at most, the blocks that are there and the ranks of each kind."""
    most = length % SPAN
    for decode, prefill in ((1, 1), ranks):
        for tokens in (most, most + BLOCK, most + 2 * BLOCK):
            for there in THERE:
                yield tokens, there, (decode, prefill)


def masks(length: int) -> Iterator[tuple[bool, int | None, int]]:
    """For each mask whether drafts read on, the retention interval and the length of the prompt."""
    for prompt in (length % SPAN, 1 + length % UNIT):
        for eagle, interval in ((False, None), (True, None), (False, 0), (False, 2 * UNIT)):
            yield eagle, interval, prompt
