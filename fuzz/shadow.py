"""The shadow memory: is what a query reads what was once written there for it (properties.md §3)?

Every slot of the pool remembers a *tag*: which content was last written into it, for which group. A step writes the
tags of its tokens through the block tables that the target shows; before and after the step everything that its queries
attend to is read back through the same tables. A wrong tag is what a user would see as wrong output.

The oracle needs the rule of what attends to what (`model.attention`) and nothing else of the model: it believes the
target's tables and hits, and judges whether they are safe. It plays the engine as vLLM's workers do:

* A step runs when its allocation succeeds; with external tokens that are on their way, when they have arrived.
* Tokens that are not known yet (drafts, lookahead) are written as drafts. A draft becomes content when its token is
  known and counts as computed; one that was rejected is overwritten later. Known tokens in the lookahead wait for their
  step.
* Mamba layers keep one state. It is written into the table entry of the step's last token, and at each block's end into
  that block's entry; the states of drafts go into the entries behind. The next step reads the state where it was put.
* Blocks that somebody outside takes are overwritten by him.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from ..model import ops
from ..model.arith import cdiv
from ..model.attention import Chunked, Cross, Mamba, Rule, rule_for
from ..model.ops import NULL, Done, Operation, Outcome, Shape
from ..model.snapshot import Snapshot

POISON = 0
"""The tag of a slot that was never written."""
GARBAGE = -(2**31)
"""The tag of a slot whose bytes were not written together."""


@dataclass(eq=False)
class Corruption(Exception):
    """A request reads, or is about to read, something else than was written for it."""

    request: str
    group: int
    position: int
    what: str

    def __str__(self) -> str:
        """One line for a person."""
        return f"{self.request}, group {self.group}, position {self.position}: {self.what}"


class Memory(Protocol):
    """Where the tags lie: a list in this process, or tensors on a device.

    Position `p` of a request lies in entry `p // b` of its table, at offset `p % b`. A Mamba state fills a whole block.
    """

    def follow(self, snapshot: Snapshot) -> None:
        """The target's tables after an operation, before anything is read or written through them."""
        ...

    def write(self, group: int, request: str, start: int, tags: Sequence[int]) -> None:
        """Store tags at `start` and the positions that follow. No entry of theirs is null."""
        ...

    def read(self, group: int, request: str, start: int, end: int) -> list[int]:
        """The tags at positions `start .. end - 1`, none of them in a null entry."""
        ...

    def write_block(self, group: int, block: int, tag: int) -> None:
        """Store a Mamba state."""
        ...

    def read_block(self, group: int, block: int) -> int:
        """The Mamba state in a block."""
        ...

    def overwrite(self, blocks: Sequence[int], tag: int) -> None:
        """Somebody outside fills these blocks."""
        ...

    def damage(self) -> str | None:
        """What has changed although nobody wrote it, if anything; asked after each operation."""
        ...


class ListMemory:
    """Tags in lists: one per block, which all groups share, as they share the bytes of a page."""

    def __init__(self, shape: Shape) -> None:
        self._sizes = [group.block_size * shape.parallel for group in shape.groups]
        self._pages = [[POISON] * max(self._sizes, default=0) for _ in range(shape.num_blocks)]
        self._tables: list[dict[str, list[int]]] = []

    def follow(self, snapshot: Snapshot) -> None:
        """Nothing is kept on a device: the tables themselves are used."""
        self._tables = snapshot.tables

    def write(self, group: int, request: str, start: int, tags: Sequence[int]) -> None:
        """Page by page."""
        table, size, at, end = self._tables[group][request], self._sizes[group], start, start + len(tags)
        while at < end:
            offset = at % size
            stop = min(end, at + size - offset)
            self._pages[table[at // size]][offset : offset + stop - at] = tags[at - start : stop - start]
            at = stop

    def read(self, group: int, request: str, start: int, end: int) -> list[int]:
        """Page by page."""
        table, size, at, tags = self._tables[group][request], self._sizes[group], start, []
        while at < end:
            offset = at % size
            stop = min(end, at + size - offset)
            tags += self._pages[table[at // size]][offset : offset + stop - at]
            at = stop
        return tags

    def write_block(self, group: int, block: int, tag: int) -> None:
        """The whole page."""
        self._pages[block] = [tag] * len(self._pages[block])

    def read_block(self, group: int, block: int) -> int:
        """The page's tag, or poison if it holds several."""
        first, *rest = self._pages[block]
        return first if all(tag == first for tag in rest) else POISON

    def overwrite(self, blocks: Sequence[int], tag: int) -> None:
        """The whole pages."""
        for block in blocks:
            self._pages[block] = [tag] * len(self._pages[block])

    def damage(self) -> str | None:
        """Lists change only where they are written."""
        return None


@dataclass
class _Request:
    """A request as the engine sees it; lengths in tokens."""

    submit: ops.Submit
    contents: list[int]
    """Per known token, the number of the content up to and including it."""
    hit: int = 0  # tokens of the last lookup's hit
    attached: int = 0  # those of the hit with which the tables began
    computed: int = 0
    most_computed: int = 0  # when tokens were skipped: the window has been cut for it
    longest: int = 0  # where the longest step has ended
    taken_back_to: int = 0  # computed tokens after the last late rejection
    scheduled: int = 0
    arriving: tuple[int, int] | None = None  # first and last + 1 of the external tokens on their way
    lookahead: int = 0
    encoder_tokens: int = 0
    drafts: list[dict[int, int]] = field(default_factory=list)
    """Per group, tags of positions whose token was not known when they were written."""
    states: list[dict[int, int]] = field(default_factory=list)
    """Per group of Mamba layers: tokens seen by a state to the block that holds it."""
    started: bool = False
    """Has a step run since the tables were empty?"""
    lost: set[int] = field(default_factory=set)
    """Groups of Mamba layers whose state a scheduler has given up by more drafts than blocks are set aside for."""

    def cut(self) -> None:
        """What no query from the computed tokens on reads may be gone now."""
        self.most_computed = max(self.most_computed, self.computed)

    def start_again(self) -> None:
        """Nothing is held any more."""
        self.computed = self.most_computed = self.scheduled = self.lookahead = self.encoder_tokens = 0
        self.attached = self.longest = self.taken_back_to = 0
        self.arriving, self.started = None, False
        self.lost.clear()
        for row in (*self.drafts, *self.states):
            row.clear()


class Shadow:
    """Follows one run of one target. `step` raises `Corruption`."""

    def __init__(self, shape: Shape, new_memory: Callable[[Shape], Memory] = ListMemory) -> None:
        self.shape = shape
        self.memory = new_memory(shape)
        self.reached: Counter[str] = Counter()
        self.rules = [rule_for(group, shape) for group in shape.groups]
        self._requests: dict[str, _Request] = {}
        self._numbers: dict[Hashable, int] = {}
        self._draft_numbers = count(-1, -1)
        self._states_of_this_step: set[tuple[int, int]] = set()

    # What is told.

    def step(self, operation: Operation, outcome: Outcome, snapshot: Snapshot) -> None:
        """The target has answered an operation. Corruption if somebody reads what was not written for him."""
        self.memory.follow(snapshot)
        unknown = isinstance(operation, ops.OnRequest) and operation.request not in self._requests
        if unknown and not isinstance(operation, ops.Submit):
            return
        if isinstance(outcome, Done):
            self._apply(operation, outcome, snapshot)
        elif isinstance(operation, ops.Allocate):
            self._requests[operation.request].cut()  # a refusal comes after the window was cut
        if damage := self.memory.damage():
            raise Corruption("nobody", 0, 0, damage)

    def _apply(self, operation: Operation, outcome: Done, snapshot: Snapshot) -> None:
        match operation:
            case ops.Submit(name):
                groups = range(len(self.rules))
                self._requests[name] = request = _Request(operation, [], 0, 0, 0)
                request.drafts, request.states = [{} for _ in groups], [{} for _ in groups]
                self._learn(request, operation.prompt)
            case ops.Lookup(name):
                tokens = outcome.value[0] if isinstance(outcome.value, tuple) and outcome.value else None
                self._requests[name].hit = tokens if isinstance(tokens, int) else 0
            case ops.Allocate(name):
                self._allocate(operation, self._requests[name], snapshot)
            case ops.Arrive(name):
                self._arrive(self._requests[name], snapshot)
            case ops.Advance(name):
                self._advance(operation, self._requests[name], snapshot)
            case ops.Reject(name, rejected):
                request = self._requests[name]
                request.computed -= rejected
                request.taken_back_to = request.computed
            case ops.RemoveSkipped(name):
                self._requests[name].cut()
            case ops.Preempt(name):
                self._requests[name].start_again()
            case ops.Free(name):
                del self._requests[name]
            case ops.StepStart():
                self._states_of_this_step.clear()
            case ops.Take():
                blocks = outcome.value if isinstance(outcome.value, tuple) else ()
                there = [block for block in blocks if isinstance(block, int) and 0 < block < self.shape.num_blocks]
                self.memory.overwrite(there, self._number("outside") * len(self.rules))

    def _number(self, what: Hashable) -> int:
        return self._numbers.setdefault(what, len(self._numbers) + 1)

    def _learn(self, request: _Request, tokens: Sequence[int]) -> None:
        """Tokens become known: number the contents that end with them."""
        submit, contents = request.submit, request.contents
        for token in tokens:
            at = len(contents)
            before: Hashable = contents[-1] if at else (submit.adapter, submit.salt)
            row = submit.embeds[at] if submit.embeds is not None and at < len(submit.embeds) else None
            item = next(
                ((i.identifier, at - i.offset) for i in submit.items if i.offset <= at < i.offset + i.length), None
            )
            contents.append(self._number((at, before, token, row, item)))

    # The engine.

    def _allocate(self, op: ops.Allocate, request: _Request, snapshot: Snapshot) -> None:
        local = request.computed + (request.hit if op.hit else 0)
        total = min(local + op.external, self.shape.max_model_len)
        first, request.started = not request.started, True
        request.attached = request.hit if op.hit else request.attached
        request.most_computed = max(request.most_computed, total)
        request.computed, request.scheduled, request.lookahead = local + op.external, op.new_tokens, op.lookahead
        if first:
            self._find_states(request, local, snapshot)
        if op.encoder_tokens:
            self._encode(request, op.encoder_tokens, snapshot)
        if op.delay:
            request.arriving = (local, total)
            return
        if op.external:
            self._receive(request, local, total, snapshot)
        self._run(request, snapshot)

    def _arrive(self, request: _Request, snapshot: Snapshot) -> None:
        """The external tokens are there. A fully loaded prompt computes its last token again."""
        assert request.arriving is not None
        (start, end), request.arriving = request.arriving, None
        request.computed -= request.computed == len(request.contents)
        self._receive(request, start, end, snapshot)
        self._run(request, snapshot)

    def _run(self, request: _Request, snapshot: Snapshot) -> None:
        """The step: its queries read, its tokens are written."""
        if not request.scheduled:
            return
        start, end = request.computed, request.computed + request.scheduled
        ahead = min(end + request.lookahead, self.shape.max_model_len)
        for group, rule in enumerate(self.rules):
            if isinstance(rule, Mamba):
                if self._gives_state_up(request, rule, start, end):
                    request.lost.add(group)
                self._read_state(request, group, start, snapshot)
                self._write_states(request, group, rule, start, end, snapshot)
            elif not isinstance(rule, Cross):
                self._read(request, group, rule, rule.skipped(start), start, snapshot)
                self._write(request, group, start, end, snapshot)
                if (drafts := max(end, len(request.contents))) < ahead:
                    self._write(request, group, drafts, ahead, snapshot)
            else:
                self._read(request, group, rule, 0, request.encoder_tokens, snapshot)
        request.longest = max(request.longest, end)

    def _advance(self, op: ops.Advance, request: _Request, snapshot: Snapshot) -> None:
        """The step is over: it must still have found everything when it ran. Then drafts are judged."""
        start, end = request.computed, request.computed + request.scheduled
        if request.scheduled:
            for group, rule in enumerate(self.rules):
                if not isinstance(rule, Mamba | Cross):
                    self._read(request, group, rule, rule.skipped(start), end, snapshot)
                elif isinstance(rule, Cross):
                    self._read(request, group, rule, 0, request.encoder_tokens, snapshot)
        request.computed, request.scheduled = end - op.rejected, 0
        self._learn(request, op.sampled)
        for group, rule in enumerate(self.rules):
            self._judge_drafts(request, group, snapshot)
            if isinstance(rule, Mamba):
                self._keep_state_of_block_end(request, group, rule, snapshot)

    # Keys and values.

    def _tag(self, request: _Request, group: int, position: int) -> int | None:
        """What the group holds for a position whose token is known."""
        known = position < len(request.contents)
        return request.contents[position] * len(self.rules) + group if known else None

    def _encoder_tag(self, request: _Request, group: int, position: int) -> int:
        return self._number(("encoder", request.submit.request, position)) * len(self.rules) + group

    def _expected(self, request: _Request, group: int, position: int) -> int | None:
        if isinstance(self.rules[group], Cross):
            return self._encoder_tag(request, group, position)
        tag = self._tag(request, group, position)
        return request.drafts[group].get(position) if tag is None else tag

    def _write(self, request: _Request, group: int, start: int, end: int, snapshot: Snapshot) -> None:
        """Content where it is known, drafts elsewhere."""
        tags = []
        for position in range(start, end):
            tag = self._tag(request, group, position)
            request.drafts[group].pop(position, None)
            if tag is None:
                tag = request.drafts[group][position] = next(self._draft_numbers)
            tags.append(tag)
        self._store(request, group, start, tags, snapshot)

    def _store(self, request: _Request, group: int, start: int, tags: Sequence[int], snapshot: Snapshot) -> None:
        name, end = request.submit.request, start + len(tags)
        first = self._first_with_block(request, group, start, end, "written", snapshot)
        if first >= end:
            return
        start, tags = first, tags[first - start :]
        self._demand_alone(name, group, start, tags, snapshot)
        self.memory.write(group, name, start, tags)
        self.reached["shadow: tokens written"] += len(tags)

    def _demand_alone(self, name: str, group: int, start: int, tags: Sequence[int], snapshot: Snapshot) -> None:
        """What another request holds too may only be written with what it holds already."""
        table, size = snapshot.tables[group][name], self.rules[group].b
        for entry in range(start // size, cdiv(start + len(tags), size)):
            if snapshot.ref_cnt[table[entry]] < 2:
                continue
            low, high = max(start, entry * size), min(start + len(tags), (entry + 1) * size)
            if self.memory.read(group, name, low, high) == list(tags[low - start : high - start]):
                continue
            for other in self._holders(table[entry], snapshot):
                if other != name:
                    what = f"is written into block {table[entry]}, which {other} holds with another content"
                    raise Corruption(name, group, low, what)

    def _holders(self, block: int, snapshot: Snapshot) -> list[str]:
        return sorted({name for tables in snapshot.tables for name, table in tables.items() if block in table})

    def _missing(self, name: str, group: int, start: int, end: int, snapshot: Snapshot) -> int | None:
        """The last of these positions that has no block, or the null block."""
        table, size = snapshot.tables[group].get(name, ()), self.rules[group].b
        for entry in reversed(range(start // size, cdiv(end, size))):
            if entry >= len(table) or table[entry] == NULL:
                return min(end, (entry + 1) * size) - 1
        return None

    def _first_with_block(
        self, request: _Request, group: int, start: int, end: int, use: str, snapshot: Snapshot
    ) -> int:
        """All these positions must have a block, but for those that are a known loss: the first behind them."""
        name = request.submit.request
        missing = self._missing(name, group, start, end, snapshot)
        if missing is None:
            return start
        if not self._is_known_loss(request, group, missing):
            raise Corruption(name, group, missing, f"is {use}, but has no block: {_table(name, group, snapshot)}")
        return missing + 1

    def _read(self, request: _Request, group: int, rule: Rule, start: int, end: int, snapshot: Snapshot) -> None:
        """Positions `start .. end - 1` must hold what was written for this request."""
        name = request.submit.request
        start = self._first_with_block(request, group, max(0, start), end, "read", snapshot)
        if start >= end:
            return
        found = self.memory.read(group, name, start, end)
        for position, tag in zip(range(start, end), found, strict=True):
            if tag != self._expected(request, group, position):
                block = snapshot.tables[group][name][position // rule.b]
                where = f"block {block}, offset {position % rule.b}"
                raise Corruption(name, group, position, f"reads {self._describe(tag)} in {where}")
        self.reached["shadow: tokens read back"] += end - start

    def _is_known_loss(self, request: _Request, group: int, position: int) -> bool:
        """Is it one of `KNOWN_LOSSES` that this position has no block? Then it is counted."""
        rule = self.rules[group]
        if request.computed < request.most_computed and position < rule.skipped(request.most_computed):
            known = "computed-taken-back"
        elif isinstance(rule, Chunked) and rule.k % rule.b and position < request.attached:
            known = "chunk-astride-block"
        else:
            return False
        self.reached[f"shadow: known loss {known}"] += 1
        return True

    def _judge_drafts(self, request: _Request, group: int, snapshot: Snapshot) -> None:
        """Drafts that were accepted are content from now on; they must still be where they were written."""
        drafts, name = request.drafts[group], request.submit.request
        for position in [at for at in drafts if at < request.computed]:
            tag = self._tag(request, group, position)
            if tag is None:
                continue
            draft = drafts.pop(position)
            if isinstance(self.rules[group], Mamba):
                self._rename_state(request, group, position + 1, draft, tag)
            elif self._missing(name, group, position, position + 1, snapshot) is None:
                (found,) = self.memory.read(group, name, position, position + 1)
                if found != draft:
                    raise Corruption(name, group, position, f"holds {self._describe(found)} instead of its draft")
                self.memory.write(group, name, position, [tag])
            self.reached["shadow: drafts accepted"] += 1

    def _receive(self, request: _Request, start: int, end: int, snapshot: Snapshot) -> None:
        """External tokens are written, as far as they have blocks or somebody will read them."""
        name = request.submit.request
        self.reached["shadow: external tokens"] += end - start
        for group, rule in enumerate(self.rules):
            if isinstance(rule, Mamba):
                table = snapshot.tables[group].get(request.submit.request, [])
                entry = (end - 1) // rule.b
                if end > start and entry < len(table) and table[entry] != NULL:
                    self._put_state(request, group, end, table[entry])
                if request.computed < end:
                    request.lost.add(group)  # nobody has the state before the last token
            elif not isinstance(rule, Cross):
                first = start
                while first < rule.skipped(end) and self._missing(name, group, first, first + 1, snapshot) is not None:
                    first += 1
                self._write(request, group, first, end, snapshot)

    def _encode(self, request: _Request, num_tokens: int, snapshot: Snapshot) -> None:
        """Keys and values of the encoder's output, once for a request."""
        for group, rule in enumerate(self.rules):
            if isinstance(rule, Cross) and not request.encoder_tokens:
                tags = [self._encoder_tag(request, group, position) for position in range(num_tokens)]
                self._store(request, group, 0, tags, snapshot)
        request.encoder_tokens = request.encoder_tokens or num_tokens

    def _describe(self, tag: int) -> str:
        if tag == POISON:
            return "what nobody wrote"
        if tag == GARBAGE:
            return "bytes that were not written together"
        if tag < 0:
            return "a draft"
        return "another content"

    # Mamba states.

    def _find_states(self, request: _Request, local: int, snapshot: Snapshot) -> None:
        """After a hit the state is in the entry of the last token."""
        for group, rule in enumerate(self.rules):
            table = snapshot.tables[group].get(request.submit.request, [])
            if not isinstance(rule, Mamba) or not local or (local - 1) // rule.b >= len(table):
                continue
            block = table[(local - 1) // rule.b]
            if block != NULL:
                request.states[group][local] = block
                if (group, block) in self._states_of_this_step:
                    what = f"continues from block {block}, whose state is computed in this very step"
                    raise Corruption(request.submit.request, group, local - 1, what)

    def _gives_state_up(self, request: _Request, rule: Mamba, start: int, end: int) -> bool:
        """Does the scheduler ask for more than the states of drafts can do? More drafts than blocks are set aside for,
        drafts behind a chunk of the prompt, or more tokens taken back."""
        known = _known(request, start, end)
        return end - known > rule.p or end > known > start + 1 or start < request.most_computed - rule.p

    def _read_state(self, request: _Request, group: int, start: int, snapshot: Snapshot) -> None:
        """The state after `start` tokens must be where it was put, in a block that the request holds."""
        name, states = request.submit.request, request.states[group]
        if not start:
            return
        if group in request.lost or (start not in states and start == request.taken_back_to):
            self.reached["shadow: mamba states given up"] += 1
            return
        table = _table(name, group, snapshot)
        if start not in states:
            raise Corruption(name, group, start - 1, f"its state is in no block any more: {table}")
        block = states[start]
        if block not in snapshot.tables[group].get(name, ()):
            raise Corruption(name, group, start - 1, f"its state is in block {block}, which is not held: {table}")
        found = self.memory.read_block(group, block)
        if found != self._expected(request, group, start - 1):
            raise Corruption(name, group, start - 1, f"reads {self._describe(found)} as its state in block {block}")
        self.reached["shadow: mamba states read back"] += 1

    def _write_states(
        self, request: _Request, group: int, rule: Mamba, start: int, end: int, snapshot: Snapshot
    ) -> None:
        """The running state, those of block ends on the way, and those of drafts (core.md §7)."""
        table = snapshot.tables[group].get(request.submit.request, [])
        known = _known(request, start, end)
        running = cdiv(end, rule.b) - 1 if rule.align else (known - 1) // rule.b
        if group not in request.lost and self._misses_states(request, group, known, end, running, snapshot):
            request.lost.add(group)
        if group in request.lost:
            self._write_block_ends(request, group, rule, min(end, len(request.contents)), table)
            return
        for after in range((start // rule.b + 1) * rule.b, known + 1, rule.b):
            if after <= len(table) * rule.b:
                self._put_state(request, group, after, table[after // rule.b - 1])
        for after in range(known, end + 1):
            self._put_state(request, group, after, table[running + after - known])

    def _misses_states(
        self, request: _Request, group: int, known: int, end: int, running: int, snapshot: Snapshot
    ) -> bool:
        """Has the running state or that of a draft no block, by one of `KNOWN_LOSSES`? Then it is counted."""
        rule, name = self.rules[group], request.submit.request
        table = snapshot.tables[group].get(name, [])
        for after in range(known, end + 1):
            entry = running + after - known
            if entry < len(table) and table[entry] != NULL:
                continue
            if rule.group.mamba_mode != "align" or cdiv(end, rule.b) >= cdiv(request.longest, rule.b):
                what = f"has no block for its state: {_table(name, group, snapshot)}"
                raise Corruption(name, group, after - 1, what)
            self.reached["shadow: known loss running-state-moved-on"] += 1
            return True
        return False

    def _write_block_ends(self, request: _Request, group: int, rule: Mamba, end: int, table: Sequence[int]) -> None:
        """A state that was given up is not followed any more, but what others may hit is right."""
        for entry in range(min(end // rule.b, len(table))):
            tag = self._tag(request, group, (entry + 1) * rule.b - 1)
            if tag is not None and table[entry] != NULL and self.memory.read_block(group, table[entry]) != tag:
                self.memory.write_block(group, table[entry], tag)
                self._states_of_this_step.add((group, table[entry]))

    def _put_state(self, request: _Request, group: int, after: int, block: int) -> None:
        if block == NULL:
            return
        states, drafts = request.states[group], request.drafts[group]
        self._forget_states_in(request, group, block)
        drafts.pop(after - 1, None)
        tag = self._tag(request, group, after - 1)
        if tag is None:
            tag = drafts[after - 1] = next(self._draft_numbers)
        states[after] = block
        self.memory.write_block(group, block, tag)
        self._states_of_this_step.add((group, block))

    def _forget_states_in(self, request: _Request, group: int, block: int) -> None:
        states = request.states[group]
        for tokens in [tokens for tokens, held in states.items() if held == block]:
            del states[tokens]

    def _rename_state(self, request: _Request, group: int, after: int, draft: int, tag: int) -> None:
        block = request.states[group].get(after)
        if block is not None and self.memory.read_block(group, block) == draft:
            self.memory.write_block(group, block, tag)

    def _keep_state_of_block_end(self, request: _Request, group: int, rule: Mamba, snapshot: Snapshot) -> None:
        """A block's end that was reached by an accepted draft: its state is copied into the block's own entry."""
        after = request.computed // rule.b * rule.b
        block = request.states[group].get(after)
        table = snapshot.tables[group].get(request.submit.request, [])
        entry = after // rule.b - 1
        if block is None or not after or entry >= len(table) or table[entry] in (NULL, block):
            return
        if request.states[group].get(request.computed) != table[entry]:
            tag = self.memory.read_block(group, block)
            self._forget_states_in(request, group, table[entry])
            self.memory.write_block(group, table[entry], tag)


def demand_blocks(snapshot: Snapshot, shape: Shape) -> None:
    """Corruption if a table of a target that is not known to be sound names a block that the pool does not have."""
    if len(snapshot.ref_cnt) != shape.num_blocks:
        counts = f"references are counted of {len(snapshot.ref_cnt)} blocks, the pool has {shape.num_blocks}"
        raise Corruption("nobody", 0, 0, counts)
    for group, tables in enumerate(snapshot.tables):
        for name, table in tables.items():
            if wrong := [block for block in table if not 0 <= block < shape.num_blocks]:
                what = f"its table names block {wrong[0]}, the pool has 0 .. {shape.num_blocks - 1}"
                raise Corruption(name, group, 0, what)


def _known(request: _Request, start: int, end: int) -> int:
    """Where the drafts of the step `start .. end - 1` begin; its first token is never one."""
    return max(start + 1, min(end, len(request.contents)))


KNOWN_LOSSES: Mapping[str, str] = {
    "chunk-astride-block": "where a block lies astride two chunks, a hit that is cut can end before the chunk for "
    "which it was made, behind null blocks that the next query reads",
    "computed-taken-back": "tokens that count as computed no more (drafts rejected late, as with asynchronous "
    "scheduling; the last token of a prompt that was loaded as a whole) did count when the window was cut, so the next "
    "query reads behind the cut",
    "running-state-moved-on": "in Mamba's align mode the running state stands in the entry where the longest step "
    "would have ended; where drafts of it are rejected and the next step ends in an earlier entry, that one is null",
}
"""What is unsafe in core.md, our core and vLLM 0.23.0 alike, and therefore counted instead of reported (docs/core.md,
"Unsafe and kept")."""


def _table(name: str, group: int, snapshot: Snapshot) -> str:
    return f"its table is {snapshot.tables[group].get(name, [])}"
