"""The rules of each attention type: what a query reads, and what follows from it.

Everything here is a pure function of numbers. Lengths are in tokens; a table entry stands for `b`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from . import arith
from .ops import NULL, Group, Kind, Shape


class CoreError(Exception):
    """The call is an error. The message is the name of the built-in exception class that a core raises."""


def demand(condition: bool, kind: str = "AssertionError") -> None:
    """CoreError of this kind unless the condition holds."""
    if not condition:
        raise CoreError(kind)


class Rule:
    """What the types have in common (core.md §§6, 7); where nothing else is said, a query reads all up to itself."""

    kinds: Mapping[Kind, str] = {}  # whose rule this is, each with its name in events
    is_full = False  # are tables shared from their start, and spread over context-parallel ranks?
    windowed = False  # is a window told in events, thinned by a retention interval, and given back by identity?
    cacheable = True
    scratch = False  # is it one block that only its request uses, and that no hit needs?
    by_encoder = False  # is the table as long as the encoder's tokens need?
    needs_behind = True  # do drafts need the block behind a hit?
    again = 0  # how many of the settled tokens are prefilled again for a chain of draft models?

    def __init__(self, group: Group, shape: Shape, eagle: bool = False) -> None:
        self.group, self.shape, self.eagle = group, shape, eagle
        self.sinks = group.kind == "sink"  # is its start kept by the core itself, for all requests?
        self.b = group.block_size * shape.parallel  # tokens per block table entry
        self.w, self.k, self.p = group.window, group.chunk, group.speculative_blocks
        self.behind = self.b if eagle and self.needs_behind else 0  # tokens behind a hit that must be cached (§8)

    def attends(self, q: int, t: int) -> bool:
        """True if the query at position `q` reads the token at position `t`."""
        return arith.attends_full(q, t)

    def skipped(self, c: int) -> int:
        """How many leading tokens no query at position `c` or later reads (T1-T3)."""
        return 0

    def first(self, length: int) -> int:
        """The first block that the query behind so many tokens reads: those before it may be null."""
        return max(0, self.skipped(length)) // self.b

    def end(self, length: int) -> int:
        """The block behind the last one that a hit of so many tokens needs."""
        return (length + self.behind) // self.b

    def required(self, num_tokens: int) -> int:
        """Table entries for so many tokens."""
        return arith.cdiv(num_tokens, self.b)

    def cap(self, lookahead: int = 0) -> int | None:
        """Most blocks one request holds at once, where that is less than its length."""
        return None

    def longest(self, lookahead: int) -> int:
        """Tokens of the longest step with lookahead, as caps count: for one of it they have room (T16.lookahead)."""
        return self.shape.max_num_batched_tokens + max(0, lookahead - 1)


class Full(Rule):
    """Full attention."""

    kinds = {"full": "full_attention", "tq": "full_attention", "mla": "mla_attention", "sink": "sink_full_attention"}
    is_full = True


class Sliding(Rule):
    """Sliding window: a query reads itself and the `w - 1` tokens before it."""

    kinds = {"sliding": "sliding_window", "sliding_mla": "sliding_window_mla"}
    windowed = True

    def attends(self, q: int, t: int) -> bool:
        """The window."""
        return arith.attends_sliding(q, t, self.w)

    def skipped(self, c: int) -> int:
        """What is before the window of the query at `c` (T1)."""
        return arith.skipped_sliding(c, self.w)

    def cap(self, lookahead: int = 0) -> int:
        """See `arith.cap_sliding` (T4)."""
        return arith.cap_sliding(self.w + self.again, self.b, self.longest(lookahead), self.shape.max_model_len)


class Chunked(Rule):
    """Attention within chunks of `k` tokens, up to the query."""

    kinds = {"chunked": "chunked_local_attention"}

    def attends(self, q: int, t: int) -> bool:
        """The chunk."""
        return arith.attends_chunked(q, t, self.k)

    def skipped(self, c: int) -> int:
        """What is before the chunk of the query at `c` (T2)."""
        return arith.skipped_chunked(c, self.k)

    def cap(self, lookahead: int = 0) -> int:
        """See `arith.cap_chunked` (T6)."""
        return arith.cap_chunked(self.k, self.b, self.longest(lookahead), self.shape.max_model_len)


class Step(NamedTuple):
    """Tokens `start .. end - 1` of a request, computed at once; the last `drafts` of them are not known yet."""

    start: int
    end: int
    drafts: int = 0

    @property
    def known(self) -> int:
        """How many tokens there are with its known ones, without its drafts."""
        return self.end - self.drafts


class Mamba(Rule):
    """Mamba layers: a query reads only one state, the one after the last computed token."""

    kinds = {"mamba": "mamba"}
    needs_behind = False  # the state behind a hit says nothing of the one before it

    @property
    def align(self) -> bool:
        """True if only the running state and those of drafts are held (mode `align`)."""
        return self.group.mamba_mode == "align"

    def attends(self, q: int, t: int) -> bool:
        """The state after token `t`."""
        return t == q - 1

    def skipped(self, c: int) -> int:
        """All but the last computed token."""
        return arith.skipped_mamba(c)

    def required(self, num_tokens: int) -> int:
        """Entries for the tokens and for the states of drafts."""
        return arith.cdiv(num_tokens, self.b) + self.p

    def lasting(self, computed: int, main: int) -> int:
        """Mode `align`: the first entry whose block this step or a later one may still write.

        A step of at most `1 + p` tokens may be of drafts behind its first one, and up to `p` of the computed tokens may
        be drafts, too, whose outcome is not known yet. If all of them are rejected, this step runs further left than it
        was allocated, and the next one ends where its first draft did. A longer step has no drafts.
        """
        running, new = arith.cdiv(main, self.b) - 1, main - computed
        if new > 1 + self.p:
            return running
        return min(running, max(0, computed - self.p + (new > 1)) // self.b)

    def writes(self, step: Step, right: int | None = None) -> dict[int, int]:
        """By table entry that the step writes: of how many tokens the state is that stands there afterwards.

        The state behind its known tokens is written into the entry of its last token, drafts counted, and that behind
        each draft into the next entry. Besides, in mode `align`, the state at the last block end among the tokens that
        turned out right is copied into that block's entry, if the step wrote it; in the others a step without drafts
        writes the state at each block end that it passes. `right` says how many tokens that is; None where nobody
        knows yet, and only what is copied in any case is meant. (The workers of vLLM: `preprocess_mamba` and its
        `postprocess`, `mamba_get_block_table_tensor`, `_compute_prefix_caching_block_indices`. In mode `none` engines
        have one block for all tokens.)
        """
        if step.end <= step.start:
            return {}
        b, known, running = self.b, step.known, arith.cdiv(step.end, self.b) - 1
        states = {running + draft: known + draft for draft in range(step.drafts + 1)}
        if self.align:
            last, least = (arith.down(tokens, b) for tokens in ((step.end, known) if right is None else (right, right)))
            return {**states, last // b - 1: last} if last == least >= known else states
        passed = range(arith.down(step.start, b) + b, known + 1, b) if not step.drafts else ()
        return {**{after // b - 1: after for after in passed}, **states}


class Cross(Rule):
    """Cross attention: one allocation by encoder tokens, never cached."""

    kinds = {"cross": "cross_attention"}
    by_encoder = True
    cacheable = False
    needs_behind = False


RULES: dict[Kind, type[Rule]] = {kind: rule for rule in Rule.__subclasses__() for kind in rule.kinds}


def rule_for(group: Group, shape: Shape, eagle: bool = False) -> Rule:
    """The rule of a group in a core of this shape."""
    return RULES[group.kind](group, shape, eagle)


def rules_for(shape: Shape, reads_on: bool = True) -> list[Rule]:
    """The rules of all groups. Drafts read those with the eagle flag, or all if none has it; equal specs share it.
    Without `reads_on`, what is behind a block is in its name, so that no hit needs the block behind."""
    flagged = [group.spec for group in shape.groups if group.eagle]
    specs: Sequence[object] = flagged or [group.spec for group in shape.groups if shape.eagle]
    specs = specs if reads_on else ()
    return [rule_for(group, shape, bool(specs) and group.spec in specs) for group in shape.groups]


class Written(NamedTuple):
    """The last two steps of a request: all that can have written the states that are to be registered now."""

    last: Step = Step(0, 0)
    before: Step = Step(0, 0)
    loaded: bool = False  # the tokens before the last step came from outside

    def then(self, step: Step, *, loaded: bool) -> "Written":
        """The same after the next step; `loaded`: the tokens before it came from outside."""
        return Written(step, self.last, loaded)

    def stands(self, rule: Mamba, i: int) -> bool:
        """True if entry `i` holds the state at the end of its block, once the last step has run.

        If that end is not behind the tokens before the last step, it is the last one among them, and is not asked
        about again after a step that knew it (in mode `align`). Then only the known tokens of the step before can have
        passed it without writing; among drafts it is right, wherever that step began.
        """
        after, start = (i + 1) * rule.b, self.last.start
        if after > start:
            return rule.writes(self.last).get(i) == after
        if self.loaded:  # which brings one state only
            return after == start
        if not rule.align:
            return rule.writes(self.before).get(i) == after
        return after == arith.down(start, rule.b) and not self.before.start < after < self.before.known


NO_STEP = Written()  # of a request that has made none


class Arrangement(NamedTuple):
    """What an allocation does to the states of a request in mode align. All are indices of table entries."""

    empty: list[int]  # where a state will be written, and no block is
    moved: list[int]  # entries whose blocks go there, in this order; the blocks that are missing are new
    dropped: list[int]  # other entries that become null


def arrangement(
    rule: Mamba,
    table: Sequence[int],
    first: int,
    computed: int,
    main: int,
    own: Callable[[int], bool],
    also: Sequence[int] = (),
) -> Arrangement:
    """What a step does that begins behind `computed` tokens and ends behind `main`; before entry `first` all is null.

    Few states are held: the running one in the entry of the step's last token, those of drafts in the `p` entries
    behind. Where one is missing a block, that of another entry serves if it is the request's `own` (nobody else holds
    it or may look it up), even the one the step continues from: it reads before it writes. Entries that a step may come
    back to (`Mamba.lasting`) keep their blocks, or get them where the table has not come so far: never before its end,
    where no worker would learn of it. So do those in `also`, before them, and that of the last computed token, from
    which others may continue. So no request ever holds more than `most_states` (T15), and only the table is remembered.
    """
    running, low = arith.cdiv(main, rule.b) - 1, rule.lasting(computed, main)
    end, stays = running + 1 + rule.p, arith.cdiv(computed, rule.b) - 1
    empty = [
        i for i in (*also, *range(low, end)) if i >= len(table) or (table[i] == NULL and (i >= running or i in also))
    ]
    moved: list[int] = []
    dropped: list[int] = []
    for i in range(first, len(table)) if empty else ():
        if table[i] != NULL and i != stays and i not in also and not low <= i < end:
            (moved if len(moved) < len(empty) and own(table[i]) else dropped).append(i)
    return Arrangement(empty, moved, dropped)


def most_states(rule: Rule, num_tokens: int) -> int:
    """The most blocks of a request in mode align up to so many tokens (T15, T16).

    Beside the `p` states behind the running one there are the running one itself and those from `Mamba.lasting` on, or
    that of the last computed token: one, or as many as drafts of two steps can reach over.
    """
    reach = arith.cdiv(max(1 + rule.p, 2 * rule.p - 1), rule.b) + bool(rule.group.checkpoint)
    return rule.p + min(max(1, arith.cdiv(num_tokens, rule.b)), 1 + reach)
