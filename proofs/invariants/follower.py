"""Finds the moves of a step that a core has taken, and makes them: is every step a sequence of allowed moves?

A `Replayed` is told each operation with its outcome and the snapshot after it, of the model or of any core that shows
what a snapshot has. It keeps the state in its own way (`PlainWorld`): it follows from the moves alone. After each
operation that state must show exactly the tables, references, free blocks and identities that the core shows, and what
the next query reads must be there. A step that is no such sequence raises `StepError`: the proof says nothing of it.

What the tokens of a request are, and how many of them are computed, is taken from the operations, not from the core.
What queries read is the model's (`Rule.skipped`).
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from ...model import ops
from ...model.attention import Mamba, Rule, rules_for
from ...model.ops import NULL, Done, Operation, Outcome, Shape
from ...model.snapshot import Snapshot
from . import moves
from .moves import OUTSIDE, NotAllowedError
from .plain_world import Entry, PlainWorld, TableOf, emptied, uncut


class StepError(Exception):
    """A step that is no sequence of allowed moves, or leads elsewhere; says what, and where."""


@dataclass
class Known:
    """What the operations say of a request."""

    number: int
    submit: ops.Submit
    tokens: list[int]
    computed: int = 0
    scheduled: int = 0
    hit_tokens: int = 0
    arriving: bool = False
    drafted: bool = False
    """Whether a step has gone beyond the known tokens."""

    @property
    def settled(self) -> int:
        """Computed tokens that cannot be taken back."""
        return min(self.computed, len(self.tokens) - 1)

    def content(self, end: int) -> tuple[Any, ...] | None:
        """What the tokens before `end` are, with all that tells them apart; None while some are not known."""
        if end > len(self.tokens):
            return None
        submit = self.submit
        items = tuple(sorted((item.offset, item.length, item.identifier) for item in submit.items if item.offset < end))
        rows = submit.embeds[:end] if submit.embeds is not None else ()
        embeds = tuple((place, row) for place, row in enumerate(rows) if row is not None)
        rest = tuple(
            getattr(submit, name)
            for name in submit.__dataclass_fields__
            if name not in ("request", "prompt", "items", "embeds", "skip_lookup", "reports_hits")
        )
        return tuple(self.tokens[:end]), items, embeds, rest


@dataclass
class Replayed:
    """One run of a core of this shape; `first` is the snapshot after its construction."""

    shape: Shape
    first: Snapshot
    world: PlainWorld = field(init=False)
    made: Counter[str] = field(init=False, default_factory=Counter)
    """How often each move was made."""
    steps: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.rules: list[Rule] = rules_for(self.shape)
        self.world = PlainWorld(self.shape.num_blocks)
        self._requests: dict[str, Known] = {}
        self._numbers: dict[str, int] = {}
        self._tables: dict[tuple[int, str], int] = {}
        self._places: dict[int, list[int]] = {}
        self._block_sizes: dict[int, int] = {}
        self._contents: dict[object, int] = {}
        self._labels: dict[int, int] = {}
        self._outside: dict[int, list[int]] = {}
        self._spare: list[int] = []
        for block, count in enumerate(self.first.ref_cnt):
            for _ in range(count):
                self._hold_outside(block, "take")  # sinks are held for ever
        self._compare(self.first)

    def step(self, operation: Operation, outcome: Outcome, after: Snapshot) -> None:
        """Find and make the moves of a step. StepError if they do not exist."""
        self.steps += 1
        try:
            self._operation(operation, outcome, after)
        except NotAllowedError as error:
            raise StepError(f"{operation}: {error}") from error
        self._compare(after)
        problems = self.world.problems() + list(self._unreadable())
        if problems:
            raise StepError(f"{operation}: {'; '.join(problems)}")

    # What each operation does.

    def _operation(self, op: Operation, outcome: Outcome, after: Snapshot) -> None:
        match op:
            case ops.Submit() if isinstance(outcome, Done):
                self._submit(op)
            case ops.Lookup(name) if isinstance(outcome, Done) and name in self._requests:
                assert isinstance(outcome.value, tuple)
                length = outcome.value[0]
                assert isinstance(length, int)
                self._requests[name].hit_tokens = length
            case ops.Allocate(name) if name in self._requests:
                self._allocate(self._requests[name], op, isinstance(outcome, Done), after)
            case ops.Advance(name) if name in self._requests and isinstance(outcome, Done):
                request = self._requests[name]
                request.computed += request.scheduled - op.rejected
                request.scheduled = 0
                request.tokens += op.sampled
                self._learn(request)
            case ops.Reject(name) if name in self._requests and isinstance(outcome, Done):
                self._requests[name].computed -= op.count
            case ops.Arrive(name) if name in self._requests:
                request = self._requests[name]
                request.computed, request.arriving = request.computed - op.missing, False
                self._register(request, after)
                request.computed -= request.computed == len(request.tokens)
            case ops.RemoveSkipped(name) if name in self._requests:
                self._tables_of(self._requests[name], after, 0)
            case ops.Free(name) | ops.Preempt(name):
                self._give_back(name, for_ever=isinstance(op, ops.Free))
            case ops.Evict(blocks) if isinstance(outcome, Done):
                for block in set(blocks):
                    self._make("forget", block)
            case ops.Reset() if outcome == Done(True):
                for block in range(1, self.world.size):
                    self._make("forget", block)
            case ops.Take() if isinstance(outcome, Done):
                assert isinstance(outcome.value, tuple)
                for taken in outcome.value:
                    assert isinstance(taken, int)
                    self._hold_outside(taken, "take")
            case ops.Touch(blocks) if isinstance(outcome, Done):
                for block in filter(None, blocks):
                    self._hold_outside(block, "touch")
            case ops.Release(blocks) if isinstance(outcome, Done):
                for block in filter(None, blocks):
                    if not self._outside.get(block):
                        raise StepError(f"{op}: block {block} is given back by who does not hold it")
                    place = self._outside[block].pop()
                    self._make("drop", place)
                    self._spare.append(place)

    def _submit(self, op: ops.Submit) -> None:
        number = self._numbers.setdefault(op.request, len(self._numbers) + 1)
        self._requests[op.request] = Known(number, op, list(op.prompt))
        for group in range(len(self.rules)):
            for place in self._places[self._table(group, op.request)]:
                self._make("renew", place)
        self._learn(self._requests[op.request])

    def _allocate(self, request: Known, op: ops.Allocate, done: bool, after: Snapshot) -> None:
        hit_tokens = request.hit_tokens if op.hit else 0
        if done:
            request.computed += hit_tokens + op.external
            request.scheduled, request.arriving = op.new_tokens, op.delay
            request.drafted |= request.computed + op.new_tokens > len(request.tokens)
        self._tables_of(request, after, hit_tokens)
        self._register(request, after)

    def _tables_of(self, request: Known, after: Snapshot, hit_tokens: int) -> None:
        """The request's tables become what they are after the operation."""
        name, settled = request.submit.request, self._settled(request, after)
        if self.world.floor[request.number] < settled:
            self._make("settle", request.number, settled)
        for group in range(len(self.rules)):
            table = self._table(group, name)
            if self.world.cut[table] < settled:
                self._make("cut", table, settled)
        # All that leaves a table first: a block that was just given up may be taken again.
        grown: list[tuple[str, int, int]] = []
        for group in range(len(self.rules)):
            now = after.tables[group].get(name, [])
            grown += self._shrink(name, group, now, hit_tokens)
        self._grow(grown)

    def _settled(self, request: Known, after: Snapshot) -> int:
        """The tokens by which tables are cut: while a load may still fail, no more than what is null says."""
        if not request.arriving:
            return request.settled
        tables = [of_group.get(request.submit.request, []) for of_group in after.tables]
        nulls = [len([*takewhile(lambda block: block == NULL, table)]) for table in tables]
        cuts = list(zip(self.rules, nulls, strict=True))
        enough = (c for c in range(request.settled) if all(rule.first(c) >= count for rule, count in cuts))
        return next(enough, request.settled)

    def _shrink(self, name: str, group: int, now: list[int], hit_tokens: int) -> list[tuple[str, int, int]]:
        """Entries become null, states move. Returns the new entries, each with how it comes about."""
        table, world, b = self._table(group, name), self.world, self.rules[group].b
        before = world.length[table]
        grown: list[tuple[str, int, int]] = []
        leaving = {world.block[self._place(table, i)]: i for i in range(before) if i < len(now) and not now[i]}
        leaving.pop(0, None)
        for i in range(len(now)):
            place, block = self._place(table, i), now[i]
            if i < before and (world.block[place] or not block):
                continue
            if block in leaving and not world.reads(table):
                grown.append(("shift", self._place(table, leaving.pop(block)), place))
            elif block:
                grown.append(("hit" if (i + 1) * b <= hit_tokens else "take", place, block))
            else:
                grown.append(("pad", place, 0))
        for i in sorted(leaving.values(), reverse=True):
            self._make("drop", self._place(table, i))
        return grown

    def _grow(self, grown: Iterable[tuple[str, int, int]]) -> None:
        """Tables grow entry by entry: first all that hold hits, so that none of these is taken."""
        waiting = list(grown)
        for last in ("hit", "take"):
            stopped: set[int] = set()
            left = []
            for move, place, what in waiting:
                table = self.world.table(place if move != "shift" else what)
                if table in stopped or (move in ("take", "shift") and last == "hit"):
                    stopped.add(table)
                    left.append((move, place, what))
                elif move == "pad":
                    self._make(move, place)
                else:
                    self._make(move, place, what)
            waiting = left

    def _register(self, request: Known, after: Snapshot) -> None:
        """What carries an identity now and did not before is registered in an entry of the request."""
        for group in range(len(self.rules)):
            for place in self._entries_of(group, request.submit.request):
                block = self.world.block[place]
                if block and after.labels[block] is not None and not self.world.key[block]:
                    self._make("register", place)

    def _give_back(self, name: str, *, for_ever: bool) -> None:
        number = self._numbers.get(name)
        if number is None:
            return
        for group in range(len(self.rules)):
            table = self._table(group, name)
            self._make("leave", table)
            for place in reversed(self._entries_of(group, name)):
                if self.world.block[place]:
                    self._make("drop", place)
            self._make("close", table, emptied)
        self._make("restart", number, uncut)
        request = self._requests.get(name)
        if request is not None:
            request.computed = request.scheduled = 0
            request.drafted = request.arriving = False
        if for_ever:
            self._requests.pop(name, None)

    def _learn(self, request: Known) -> None:
        """The contents of the entries that the request's tokens fill are known."""
        for group, rule in enumerate(self.rules):
            table = self._table(group, request.submit.request)
            for i in range(len(request.tokens) // rule.b):
                place = self._place(table, i)
                if not self.world.content[place]:
                    content = (group, request.content((i + 1) * rule.b))
                    self._make("learn", place, self._contents.setdefault(content, len(self._contents) + 1))

    def _hold_outside(self, block: int, move: str) -> None:
        place = self._spare.pop() if self._spare else self.world.add_place(Entry(OUTSIDE))
        self._make(move, place, block)
        self._outside.setdefault(block, []).append(place)

    # Places and tables.

    def _table(self, group: int, name: str) -> int:
        if (group, name) not in self._tables:
            rule = self.rules[group]
            reads = rule.cacheable and not (isinstance(rule, Mamba) and rule.align)
            self._tables[group, name] = len(self.world.tables)
            self.world.tables.append(TableOf(self._numbers[name], reads, lambda c: max(0, rule.skipped(c))))
            self._places[len(self.world.tables) - 1] = []
            self._block_sizes[len(self.world.tables) - 1] = rule.b
        return self._tables[group, name]

    def _place(self, table: int, index: int) -> int:
        places, b = self._places[table], self._block_sizes[table]
        while len(places) <= index:
            places.append(self.world.add_place(Entry(table, len(places), (len(places) + 1) * b)))
        return places[index]

    def _entries_of(self, group: int, name: str) -> list[int]:
        table = self._table(group, name)
        return [self._place(table, i) for i in range(self.world.length[table])]

    def _make(self, name: str, *about: Any) -> None:
        getattr(moves, name)(self.world, *about)
        self.made[name] += 1

    # What must come out.

    def _compare(self, shown: Snapshot) -> None:
        """StepError unless the state is what the core shows."""
        world, blocks = self.world, range(1, self.world.size)
        counts = [world.count[x] for x in blocks]
        free = sorted(world.free[number] for number in range(world.num_free))
        tables = [
            {name: [world.block[place] for place in self._entries_of(group, name)] for name in self._numbers}
            for group in range(len(self.rules))
        ]
        if counts != shown.ref_cnt[1:]:
            raise StepError(f"references are {shown.ref_cnt[1:]}; by the moves they are {counts}")
        if (free, len(free)) != (sorted(shown.free), shown.num_free):
            raise StepError(f"free are {sorted(shown.free)}, counted {shown.num_free}; by the moves {free}")
        for group, of_group in enumerate(tables):
            found = {name: table for name, table in of_group.items() if table}
            if found != shown.tables[group]:
                raise StepError(f"group {group}: tables are {shown.tables[group]}; by the moves {found}")
        for x in blocks:
            label, key = shown.labels[x], world.key[x]
            if (label is None) != (key == 0):
                raise StepError(f"block {x} carries label {label}; by the moves its content is {key or 'none'}")
            if label is not None and self._labels.setdefault(label, key) != key:
                raise StepError(f"label {label} of block {x} stood for content {self._labels[label]}, not {key}")
        if shown.labels and shown.labels[0] is not None:
            raise StepError(f"the null block carries label {shown.labels[0]}")

    def _unreadable(self) -> Iterable[str]:
        """S6, in the end: entries that the next query of a request reads and that are not there."""
        for name, request in self._requests.items():
            q = request.computed
            if self.world.floor[request.number] > q:
                yield f"{name}: the next query is at {q}, and {self.world.floor[request.number]} tokens were settled"
            for group, rule in enumerate(self.rules):
                table = self._table(group, name)
                if not rule.cacheable or (request.drafted and isinstance(rule, Mamba)):
                    continue  # where a state lies behind drafts depends on how many were accepted
                for t in range(q):
                    if rule.attends(q, t) and not self._there(table, t // rule.b):
                        yield f"group {group}, {name}: the query at {q} reads token {t}, which is in no block"
                        break

    def _there(self, table: int, index: int) -> bool:
        return bool(index < self.world.length[table] and self.world.block[self._place(table, index)])
