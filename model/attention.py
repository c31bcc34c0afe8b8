"""The rules of each attention type: what a query reads, what may be skipped, what a hit is, which blocks to register.

Everything here is a pure function of numbers and of the predicate `found(i)`: True if block `i` of the request's
content is registered in every group of the lookup. Indices and lengths of tables are in entries of `b` tokens.
"""

from collections.abc import Callable
from typing import TypeAlias

from . import arith
from .ops import FULL_FAMILY, SLIDING_FAMILY, Group, Shape

Found: TypeAlias = Callable[[int], bool]
Hit: TypeAlias = range
"""Indices of the real blocks of a hit. Indices before its start belong to the hit, too, but are null in the table."""


class CoreError(Exception):
    """The call is an error. The message is the name of the built-in exception class that a core raises."""


def demand(condition: bool, kind: str = "AssertionError") -> None:
    """CoreError of this kind unless the condition holds."""
    if not condition:
        raise CoreError(kind)


class Rule:
    """Full attention, and what the other types have in common with it (core.md §§6, 7)."""

    cacheable = True
    drops = True  # with eagle a hit gives up its last block, and its search may reach one block further

    def __init__(self, group: Group, shape: Shape) -> None:
        self.group, self.shape = group, shape
        self.is_full = group.kind in FULL_FAMILY
        self.b = group.block_size * shape.parallel  # tokens per block table entry
        self.w, self.k, self.p = group.window, group.chunk, group.speculative_blocks

    def attends(self, q: int, t: int) -> bool:
        """True if the query at position `q` reads the token at position `t`."""
        return arith.attends_full(q, t)

    def skipped(self, c: int) -> int:
        """How many leading tokens no query at position `c` or later reads."""
        return 0

    def removable(self, c: int) -> int:
        """How many leading tokens of a running request may be given up with `c` tokens computed."""
        return self.skipped(c)

    def required(self, num_tokens: int) -> int:
        """Number of table entries for so many tokens."""
        return arith.cdiv(num_tokens, self.b)

    def cap(self) -> int | None:
        """Most blocks one request holds at once, where that is less than its length (admission gate)."""
        return None

    def hit(self, found: Found, limit: int, drop: bool, alignment: int) -> Hit:
        """Blocks of the longest cached prefix of at most `limit` tokens (`drop`: eagle gives its last block up)."""
        run = self.run(found, 0, limit)
        return range(self.aligned(run - 1 if drop and run else run, alignment))

    def run(self, found: Found, start: int, limit: int) -> int:
        """End of the longest run of registered blocks from block `start` on, within `limit` tokens."""
        end = start
        while (end + 1) * self.b <= limit and found(end):
            end += 1
        return end

    def aligned(self, blocks: int, alignment: int) -> int:
        """The most blocks, up to `blocks`, whose tokens are a multiple of the alignment (T12)."""
        while blocks * self.b % alignment:
            blocks -= 1
        return blocks

    def keeps(self, i: int, eagle: bool, num_prompt_tokens: int) -> bool:
        """True if some later hit can use block `i`; only such blocks are registered (core.md §8)."""
        return True


class Sliding(Rule):
    """Sliding window of `w` tokens."""

    def attends(self, q: int, t: int) -> bool:
        """The query and the `w - 1` tokens before it."""
        return arith.attends_sliding(q, t, self.w)

    def skipped(self, c: int) -> int:
        """The tokens before the window of the query at `c` (T1)."""
        return arith.skipped_sliding(c, self.w)

    def cap(self) -> int:
        """See `arith.cap_sliding` (T4)."""
        return arith.cap_sliding(self.w, self.b, self.shape.max_num_batched_tokens, self.shape.max_model_len)

    def need(self, eagle: bool) -> int:
        """Number of registered blocks with which a hit must end; with eagle one more, which is given up (T8, T9)."""
        return arith.window_blocks(self.w, self.b) + eagle

    def hit(self, found: Found, limit: int, drop: bool, alignment: int) -> Hit:
        """Ends at the last aligned edge before which all blocks that the next query reads are registered.

        At least one registered block is needed, even if the window reaches none (w = 1). An edge with fewer blocks
        before it than needed counts if all of these are registered; it is then cut to the alignment twice, before and
        after the eagle drop.
        """
        demand(self.shape.parallel == 1)
        need = max(1, self.need(drop))
        for end in range(limit // self.b, 0, -1):
            first = max(0, end - need)
            if (end - drop) * self.b % alignment == 0 and all(found(i) for i in range(end - 1, first - 1, -1)):
                if end < need:
                    end = self.aligned(end, alignment)
                return range(first, self.aligned(max(0, end - drop), alignment))
        return range(0)

    def keeps(self, i: int, eagle: bool, num_prompt_tokens: int) -> bool:
        """True for the tails of all segments, and for the tail before the replay boundary of the prompt (T10, T11)."""
        need, alignment, retention = self.need(eagle), self.shape.scheduler_block_size, self.shape.retention_interval
        segment = alignment if retention is None else retention
        per = segment // self.b
        if segment and (need >= per or arith.in_segment_tail(i, eagle, per, need)):
            return True
        boundary = arith.replay_boundary(num_prompt_tokens, alignment)
        return retention is not None and arith.in_boundary_tail(i, eagle, boundary // self.b, need)


class Chunked(Rule):
    """Attention within chunks of `k` tokens."""

    def attends(self, q: int, t: int) -> bool:
        """Up to the query, within its chunk."""
        return arith.attends_chunked(q, t, self.k)

    def skipped(self, c: int) -> int:
        """The tokens before the chunk of the query at `c` (T2)."""
        return arith.skipped_chunked(c, self.k)

    def cap(self) -> int:
        """See `arith.cap_chunked` (T6)."""
        batched, max_len = self.shape.max_num_batched_tokens, self.shape.max_model_len
        return arith.cap_chunked(self.k, self.b, batched, max_len)

    def hit(self, found: Found, limit: int, drop: bool, alignment: int) -> Hit:
        """Blocks before the chunk of position `limit` count as hit; from there on the longest registered run."""
        demand(not drop and self.shape.parallel == 1 and alignment == self.b)
        first = self.skipped(limit) // self.b
        return range(first, self.run(found, first, limit))


class Mamba(Rule):
    """Mamba layers: a query reads only one state, the one after the last computed token.

    A hit has one real block, so eagle cannot drop the last one. Its search must not reach beyond the common length
    either, since it would then enlarge that length (vllm-project/vllm#43559, vllm-project/vllm#48375).
    """

    drops = False

    @property
    def align(self) -> bool:
        """True if only the running state and the states of drafts are held (mode `align`)."""
        return self.group.mamba_mode == "align"

    def attends(self, q: int, t: int) -> bool:
        """True only for `t == q - 1`: the query reads the state after that token."""
        return t == q - 1

    def skipped(self, c: int) -> int:
        """All but the last computed token."""
        return arith.skipped_mamba(c)

    def removable(self, c: int) -> int:
        """Up to `p` of the computed tokens may still be rejected."""
        return self.skipped(max(0, c - self.p))

    def required(self, num_tokens: int) -> int:
        """Entries for the tokens and for the states of drafts."""
        return arith.cdiv(num_tokens, self.b) + self.p

    def hit(self, found: Found, limit: int, drop: bool, alignment: int) -> Hit:
        """The right-most registered block with an aligned end."""
        for end in range(limit // self.b, 0, -1):
            if end * self.b % alignment == 0 and found(end - 1):
                return range(end - 1, end)
        return range(0)


class Cross(Rule):
    """Cross attention: one allocation by encoder tokens, never cached."""

    cacheable = False

    def hit(self, found: Found, limit: int, drop: bool, alignment: int) -> Hit:
        """CoreError: cross attention has no hits."""
        raise CoreError("NotImplementedError")


def rule_for(group: Group, shape: Shape) -> Rule:
    """The rule of a group in a core of this shape."""
    if group.kind in FULL_FAMILY:
        return Rule(group, shape)
    if group.kind in SLIDING_FAMILY:
        return Sliding(group, shape)
    return {"chunked": Chunked, "mamba": Mamba, "cross": Cross}[group.kind](group, shape)
