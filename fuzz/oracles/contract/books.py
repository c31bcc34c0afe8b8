"""What the contract remembers of a run: what requests are made of, and which content each block was last filled with.

Content is a number: that of a prefix, from the adapter and the salt over every token (with its embedding row, and the
multimodal item that it belongs to) up to the last one. A block is filled when a step, or external tokens, have reached
the end of its table entry and all its tokens are known; then it holds the content of the prefix up to there, for one
group. Nothing here is read off the target but its tables, its hits and what it handed out.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from ....model import ops
from ....model.attention import Cross, rule_for
from ....model.ops import NULL, Done, Operation, Shape
from ....model.snapshot import Snapshot
from .properties import Break

UNFILLED = -1
"""Content of a block that nobody has filled since it was handed out."""


@dataclass
class Tracked:
    """A request; all lengths in tokens."""

    submit: ops.Submit
    contents: list[int]
    """Per known token, the number of the prefix that ends with it."""
    computed: int = 0
    scheduled: int = 0
    lookahead: int = 0
    written: int = 0
    """Leading tokens that are in the cache, those of the step in flight included."""
    arriving: bool = False
    hit: tuple[int, list[list[int]]] | None = None
    """Tokens and blocks per group of the last lookup."""
    attached: int = 0
    """Tokens of the hit that its tables began with."""
    cut: int = 0
    """Most computed tokens for which entries may have been given up."""
    longest: int = 0
    """Where the longest step ended, drafts included."""
    pending: list[tuple[int, int]] = field(default_factory=list)
    """Of each step whose outcome is not known yet, where it began, and the position of the token that will tell."""
    drafted: bool = False
    """Did a step since the last start over go beyond the known tokens?"""
    filled: list[list[tuple[int, int]]] = field(default_factory=list)
    """Per group, the block of each leading entry when it became full, and which of its fillings that was."""

    def start_over(self) -> None:
        """It has given everything back."""
        self.computed = self.scheduled = self.lookahead = self.written = 0
        self.attached = self.cut = self.longest = 0
        self.arriving = self.drafted = False
        self.pending.clear()
        for row in self.filled:
            row.clear()

    @property
    def finished(self) -> int:
        """Computed tokens of which it is known that their step is over; the others may still be computed."""
        return self.pending[0][0] if self.pending else self.computed

    def launch(self) -> None:
        """The allocated step has been given to the device.

        Its outcome is known with the token after its last known one; a chunk of the prompt is over when it is told.
        """
        start, end = self.computed, self.computed + self.scheduled
        self.pending.append((start, max(start + 1, min(end, len(self.contents)))))

    def notice_news(self) -> None:
        """Tokens have become known or were taken back: which steps are over?"""
        known, computed = len(self.contents), self.computed
        self.pending = [(start, tells) for start, tells in self.pending if start < computed and known <= tells]


class Begun(NamedTuple):
    """What a block holds: tokens of one group's entry up to `end`, whose prefixes `contents` names."""

    contents: Sequence[int]
    group: int
    entry: int
    end: int


@dataclass(frozen=True)
class Replay:
    """A prompt that was computed as a whole, and the blocks that its entries were filled into."""

    entries: tuple[tuple[tuple[int, int], ...], ...]
    """Per group and entry: block, and the number of that filling (`Books.fillings`)."""
    allocations: int
    """`Books.allocations` when it was computed."""


class Books:
    """Requests, contents and blocks of one run."""

    def __init__(self, shape: Shape, hides: Collection[str] = (), without: Collection[str] = ()) -> None:
        self.shape = shape
        self.hides = frozenset(hides)
        self.without = frozenset(without)
        self.reached: Counter[str] = Counter()
        self.rules = [rule_for(group, shape) for group in shape.groups]
        self.requests: dict[str, Tracked] = {}
        self.content = [UNFILLED] * shape.num_blocks
        """Per block, the number of prefix and group that it was last filled with."""
        self.begun: list[Begun | None] = [None] * shape.num_blocks
        """Per block, how far it is filled, whole or not."""
        self.finer = [len(shape.groups) > 1 and rule.b > shape.hash_block_size for rule in self.rules]
        """Per group, can less than a block have an identity?"""
        self.registered_in_part: set[int] = set()
        """Blocks that got their identity before they were full."""
        self.fillings = [0] * shape.num_blocks
        """Per block, how often it was filled or forgotten: the same number, the same content still registered."""
        self.filled_in_step = [0] * shape.num_blocks
        """Per block, the scheduler step in which it was filled."""
        self.scheduler_step = 1
        self.allocations = 0
        """How often blocks were asked for: without labels, content may have been evicted each time."""
        self.replays: dict[int, Replay] = {}
        """By the content of its last token, each prompt that was computed as a whole."""
        self._numbers: dict[Hashable, int] = {}
        self.needed = cache(self._needed)

    def sees(self, *names: str) -> bool:
        """Can the target show all of these?"""
        return self.hides.isdisjoint(names)

    def break_unless_known(self, loss: str | None, id: str, what: str) -> None:
        """A property does not hold: Break, or one more of a known loss."""
        if loss is None or loss in self.without:
            raise Break(id, what)
        self.reached[f"contract: known loss {loss}"] += 1

    # What a query reads.

    def _needed(self, group: int, computed: int) -> tuple[int, ...]:
        """Entries of the table that hold the tokens which the query at position `computed` reads (by `attends`)."""
        rule = self.rules[group]
        if isinstance(rule, Cross):
            return ()
        return tuple(dict.fromkeys(t // rule.b for t in range(computed) if rule.attends(computed, t)))

    # Content.

    def key(self, request: Tracked, group: int, entry: int) -> int | None:
        """What the request wants to find in a full entry of its table; None if not all tokens of it are known."""
        end = (entry + 1) * self.rules[group].b
        if end > len(request.contents) or isinstance(self.rules[group], Cross):
            return None
        return request.contents[end - 1] * len(self.rules) + group

    def submit(self, operation: ops.Submit) -> None:
        """A request has come."""
        request = Tracked(operation, [], filled=[[] for _ in self.rules])
        self.requests[operation.request] = request
        self.learn(request, operation.prompt)

    def learn(self, request: Tracked, tokens: Sequence[int]) -> None:
        """Tokens have become known."""
        submit, numbers, contents = request.submit, self._numbers, request.contents
        before = contents[-1] if contents else self._number(("root", submit.adapter or None, submit.salt or None))
        plain = submit.embeds is None and not submit.items
        for token in tokens:
            what: Hashable = (before, token) if plain else (before, token, *self._extras(submit, len(contents)))
            before = numbers.setdefault(what, len(numbers))
            contents.append(before)

    def _number(self, what: Hashable) -> int:
        return self._numbers.setdefault(what, len(self._numbers))

    def _extras(self, submit: ops.Submit, at: int) -> tuple[Hashable, ...]:
        """What else than the token decides the content of a position; nothing for a plain one."""
        items = tuple((i.identifier, at - i.offset) for i in submit.items if i.offset <= at < i.offset + i.length)
        rows = submit.embeds[at : at + 1] if submit.embeds is not None else ()
        return (items, rows) if items or rows else ()

    def is_copy(self, old: int, new: int) -> bool:
        """May an entry go from one block to the other, on a target that merges copies of one content?"""
        merges = "append_only" in self.hides
        return merges and NULL not in (old, new) and self.content[old] == self.content[new] != UNFILLED

    def fill(self, request: Tracked, tables: Sequence[dict[str, list[int]]]) -> None:
        """Note the blocks whose entries are full by now, and how far the entry behind them is."""
        name, full = request.submit.request, min(request.written, len(request.contents))
        for group, rule in enumerate(self.rules):
            filled, end = request.filled[group], full // rule.b
            if (len(filled) >= end and not self.finer[group]) or isinstance(rule, Cross):
                continue
            table = tables[group].get(name, [])
            for entry in range(len(filled), min(end, len(table))):
                block = table[entry]
                if block != NULL:
                    self.content[block] = request.contents[(entry + 1) * rule.b - 1] * len(self.rules) + group
                    self.begun[block] = Begun(request.contents, group, entry, (entry + 1) * rule.b)
                    self.fillings[block] += 1
                    self.filled_in_step[block] = self.scheduler_step
                filled.append((block, self.fillings[block]))
            if self.finer[group] and end < len(table) and table[end] != NULL and full % rule.b:
                self.begun[table[end]] = Begun(request.contents, group, end, full)

    def begins_with(self, block: int, request: Tracked, group: int, length: int) -> bool:
        """Does the block hold the request's tokens from the start of their entry up to token `length`?"""
        begun = self.begun[block]
        return (
            begun is not None
            and (begun.group, begun.entry) == (group, (length - 1) // self.rules[group].b)
            and begun.end >= length
            and begun.contents[length - 1] == request.contents[length - 1]
        )

    def may_be_registered(self, block: int) -> bool:
        """Is the block full, or at least one hash block of it?"""
        begun = self.begun[block]
        if self.content[block] != UNFILLED or begun is None:
            return self.content[block] != UNFILLED
        whole = begun.end - begun.entry * self.rules[begun.group].b
        return self.finer[begun.group] and whole >= self.shape.hash_block_size

    def handed_out(self, blocks: Collection[int]) -> None:
        """What these blocks held is gone."""
        for block in blocks:
            self.content[block] = UNFILLED
            self.begun[block] = None
            self.fillings[block] += 1

    def forgotten(self, blocks: Collection[int]) -> None:
        """These blocks hold what they held, but nobody can be expected to find it."""
        for block in blocks:
            self.fillings[block] += 1

    def attach(self, request: Tracked, tables: Sequence[dict[str, list[int]]]) -> None:
        """The tables begin with the blocks of a hit, which others have filled."""
        hit = request.hit[0] if request.hit else 0
        for group, rule in enumerate(self.rules):
            table = tables[group].get(request.submit.request, [])
            request.filled[group][:] = [(block, self.fillings[block]) for block in table[: hit // rule.b]]

    def _note_replay(self, request: Tracked, computed_before: int) -> None:
        """If the prompt has now been computed as a whole, remember where it lies."""
        if computed_before < len(request.submit.prompt) <= request.computed:
            self.note_replay(request)

    def note_replay(self, request: Tracked) -> None:
        """The request's prompt has been computed."""
        last = request.contents[len(request.submit.prompt) - 1]
        self.replays[last] = Replay(tuple(tuple(row) for row in request.filled), self.allocations)

    # Requests.

    def follow(self, operation: Operation, outcome: Done, tables: Sequence[dict[str, list[int]]]) -> None:
        """Bring the books up to date with an operation that was done, its hit and new blocks noted already."""
        request = self.requests.get(operation.request) if isinstance(operation, ops.OnRequest) else None
        match operation:
            case ops.Submit():
                self.submit(operation)
            case ops.StepStart():
                self.scheduler_step += 1
            case ops.Evict(blocks):
                self.forgotten(blocks)
            case ops.Reset() if outcome.value is True:
                self.forgotten(range(self.shape.num_blocks))
            case ops.Free(name) if request is not None:
                if not self.sees("labels") and request.computed >= len(request.submit.prompt):
                    self.note_replay(request)  # an engine may publish late, but not later than this
                del self.requests[name]
        if request is not None:
            self._follow_request(request, operation, tables)

    def _follow_request(self, request: Tracked, operation: Operation, tables: Sequence[dict[str, list[int]]]) -> None:
        match operation:
            case ops.Allocate():
                self._allocated(request, operation)
                self.fill(request, tables)
            case ops.Arrive():
                request.arriving, request.written = False, request.computed
                self.fill(request, tables)
                request.computed -= request.computed == len(request.contents)
            case ops.Advance():
                before = request.computed
                if request.scheduled:
                    request.launch()
                request.computed += request.scheduled - operation.rejected
                request.written = request.computed if request.scheduled else request.written
                request.scheduled = 0
                self.learn(request, operation.sampled)
                request.notice_news()
                self.fill(request, tables)
                if self.sees("labels"):
                    self._note_replay(request, before)
            case ops.Reject(_, count):
                request.computed -= count
                request.written = request.computed
                request.notice_news()
            case ops.RemoveSkipped():
                request.cut = max(request.cut, request.computed)
            case ops.Preempt():
                request.start_over()

    def _allocated(self, request: Tracked, op: ops.Allocate) -> None:
        hit = request.hit[0] if op.hit and request.hit else 0
        local = request.computed + hit
        total = local + op.external
        if op.hit:
            request.attached = hit
        request.cut = max(request.cut, total)
        request.computed, request.scheduled, request.lookahead = total, op.new_tokens, op.lookahead
        request.arriving = op.delay
        request.written = local if op.delay else total + op.new_tokens
        if total + op.new_tokens > len(request.contents):
            request.drafted = True


def held_by_tables(snapshot: Snapshot) -> Counter[int]:
    """How many table entries name each block; the null block is left out."""
    counts: Counter[int] = Counter()
    for tables in snapshot.tables:
        for table in tables.values():
            counts.update(table)
    del counts[NULL]
    return counts
