"""The rules of each attention type: what a query reads, and what follows from it.

Everything here is a pure function of numbers. Lengths are in tokens; a table entry stands for `b`.
"""

from collections.abc import Sequence

from . import arith
from .ops import FULL_FAMILY, SLIDING_FAMILY, Group, Shape


class CoreError(Exception):
    """The call is an error. The message is the name of the built-in exception class that a core raises."""


def demand(condition: bool, kind: str = "AssertionError") -> None:
    """CoreError of this kind unless the condition holds."""
    if not condition:
        raise CoreError(kind)


class Rule:
    """Full attention, and what the other types have in common with it (core.md §§6, 7)."""

    cacheable = True
    parallel = False  # does a lookup go with context parallelism?
    needs_behind = True  # do drafts need the block behind a hit?

    def __init__(self, group: Group, shape: Shape, eagle: bool = False) -> None:
        self.group, self.shape, self.eagle = group, shape, eagle
        self.is_full = group.kind in FULL_FAMILY
        self.b = group.block_size * shape.parallel  # tokens per block table entry
        self.w, self.k, self.p = group.window, group.chunk, group.speculative_blocks
        self.behind = self.b if eagle and self.needs_behind else 0
        """Tokens right behind a hit whose block must be cached, too: the draft model reads on (core.md §8)."""

    def attends(self, q: int, t: int) -> bool:
        """True if the query at position `q` reads the token at position `t`."""
        return arith.attends_full(q, t)

    def skipped(self, c: int) -> int:
        """How many leading tokens no query at position `c` or later reads (T1-T3)."""
        return 0

    def first(self, length: int) -> int:
        """The first block that the query behind a hit of so many tokens reads."""
        return max(0, self.skipped(length)) // self.b

    def end(self, length: int) -> int:
        """The block behind the last one that the hit needs."""
        return (length + self.behind) // self.b

    def required(self, num_tokens: int) -> int:
        """Number of table entries for so many tokens."""
        return arith.cdiv(num_tokens, self.b)

    def cap(self, lookahead: int = 0) -> int | None:
        """Most blocks one request holds at once, where that is less than its length (admission gate)."""
        return None


class Full(Rule):
    """Full attention: a query reads everything up to itself."""

    parallel = True


class Sliding(Rule):
    """Sliding window: a query reads itself and the `w - 1` tokens before it."""

    def attends(self, q: int, t: int) -> bool:
        """The query and the `w - 1` tokens before it."""
        return arith.attends_sliding(q, t, self.w)

    def skipped(self, c: int) -> int:
        """The tokens before the window of the query at `c` (T1)."""
        return arith.skipped_sliding(c, self.w)

    def cap(self, lookahead: int = 0) -> int:
        """See `arith.cap_sliding` (T4)."""
        batched, max_len = self.shape.max_num_batched_tokens, self.shape.max_model_len
        return arith.cap_sliding(self.w, self.b, batched, max_len) + arith.cdiv(lookahead, self.b)


class Chunked(Rule):
    """Attention within chunks of `k` tokens, up to the query."""

    def attends(self, q: int, t: int) -> bool:
        """Up to the query, within its chunk."""
        return arith.attends_chunked(q, t, self.k)

    def skipped(self, c: int) -> int:
        """The tokens before the chunk of the query at `c` (T2)."""
        return arith.skipped_chunked(c, self.k)

    def cap(self, lookahead: int = 0) -> int:
        """See `arith.cap_chunked` (T6)."""
        batched, max_len = self.shape.max_num_batched_tokens, self.shape.max_model_len
        return arith.cap_chunked(self.k, self.b, batched, max_len) + arith.cdiv(lookahead, self.b)


class Mamba(Rule):
    """Mamba layers: a query reads only one state, the one after the last computed token.

    Drafts need no block behind a hit: the state there says nothing of the one before it.
    """

    needs_behind = False

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

    def required(self, num_tokens: int) -> int:
        """Entries for the tokens and for the states of drafts."""
        return arith.cdiv(num_tokens, self.b) + self.p


class Cross(Rule):
    """Cross attention: one allocation by encoder tokens, never cached."""

    cacheable = False
    needs_behind = False


def rule_for(group: Group, shape: Shape, eagle: bool = False) -> Rule:
    """The rule of a group in a core of this shape."""
    if group.kind in FULL_FAMILY:
        return Full(group, shape, eagle)
    if group.kind in SLIDING_FAMILY:
        return Sliding(group, shape, eagle)
    return {"chunked": Chunked, "mamba": Mamba, "cross": Cross}[group.kind](group, shape, eagle)


def rules_for(shape: Shape) -> list[Rule]:
    """The rules of all groups. Drafts read those with the eagle flag, or all if none has it; equal specs share it."""
    flagged = [group.spec for group in shape.groups if group.eagle]
    specs: Sequence[object] = flagged or [group.spec for group in shape.groups if shape.eagle]
    return [rule_for(group, shape, group.spec in specs) for group in shape.groups]
