"""The shadow memory: checks that every query reads what was written for it (properties.md §3).

Every slot of the pool holds a *tag*, which says what content was last written into it, for which group. A step writes
the tags of its tokens through the block tables that the target shows. Before and after the step, everything that its
queries attend to is read through the same tables. A wrong tag means that a user would get wrong output.

Of the model the oracle needs only which positions a query attends to (`model.attention`). It takes the target's tables
and hits as they are, and judges whether they are safe. It simulates an engine, with vLLM's workers as the pattern:

* A step runs when its allocation succeeds; if it waits for external tokens, when these have arrived.
* Tokens that are not known yet (drafts, lookahead) are written as drafts. A draft becomes content when its token is
  known and counts as computed; a rejected one is overwritten later. Known tokens in the lookahead are written in their
  own step.
* Mamba layers keep one state. Which ones a step writes, and where, says `model.attention.Mamba.writes`. The next step
  reads the state from where it was written. A step that is allocated before it is known which drafts were accepted runs
  when that is known.
* Blocks that an outside holder takes are overwritten.
* Copies of blocks that the core asked for are made before the step runs.
* Where a core merges blocks of the same content (`declarations.EXCHANGES`), a step has run with the table as it was;
  what stands in an entry afterwards must hold the same.
"""

from collections.abc import Collection, Hashable, Sequence

from ....model import ops
from ....model.arith import cdiv
from ....model.attention import Mamba, Rule, Step
from ....model.kinds.rswa import gap, told_apart
from ....model.ops import NULL, Done, Operation, Outcome
from ....model.snapshot import Snapshot
from ...kinds.compressed import stored
from ...targets.answers import answers_of
from ..chunk_losses import is_astride
from .engine_state import EngineRequest, table_text
from .mamba import States
from .memory import Corruption

_CHANGES_NOTHING = frozenset(
    {ops.CommonPrefix, ops.ReadTable, ops.TakeEvents, ops.TakeNewBlockIds, ops.TakeStats, ops.Evict, ops.Landed}
)
"""Operations after which every block holds what it held, and every request reads what it read."""
_PLAIN = (None, (), 0)
"""What decides a position's content besides the tokens up to it: an embedding, items, a prompt's end; here nothing."""


class Shadow(States):
    """Judges one run of one target. `step` raises `Corruption`."""

    # The target's answers.

    def step(
        self,
        operation: Operation,
        outcome: Outcome,
        snapshot: Snapshot,
        copies: Collection[tuple[int, int]] = (),
    ) -> None:
        """Follow an operation that the target has answered; `copies`: pairs (source, destination) of copied blocks.

        Corruption if a request reads something that was not written for it.
        """
        before, self._shown = self._shown, snapshot
        self.memory.follow(snapshot)
        for source, destination in copies:
            self.memory.copy(source, destination)
            self._follow_copy(source, destination, snapshot)
            self.reached["shadow: blocks copied"] += 1
        kind = type(operation)
        if isinstance(operation, ops.AllocateBatch):
            for allocation, answer in answers_of(operation, outcome):
                self.step(allocation, answer, snapshot)
            return
        if self._exchanges and before is not None:
            self._follow_exchanges(operation, before, snapshot)
        if isinstance(operation, ops.OnRequest) and operation.request not in self._requests and kind is not ops.Submit:
            return
        if isinstance(outcome, Done):
            if kind not in _CHANGES_NOTHING:
                self._apply(operation, outcome, snapshot, before)
        elif isinstance(operation, ops.Allocate):
            self._requests[operation.request].cut()  # skipped blocks are given back before the refusal
        if damage := self.memory.damage():
            raise Corruption("nobody", 0, 0, damage, "damage")

    def _follow_exchanges(self, operation: Operation, before: Snapshot, after: Snapshot) -> None:
        """Blocks may have been merged by an operation, before anything is computed; `_advance` does it for steps."""
        request = self._requests.get(operation.request) if isinstance(operation, ops.OnRequest) else None
        if request is not None and self._keeps_states and not isinstance(operation, ops.Advance):
            self._exchange_states(request, before, after)

    def _apply(self, operation: Operation, outcome: Done, snapshot: Snapshot, before: Snapshot | None) -> None:
        match operation:  # the most frequent ones first
            case ops.Allocate():
                self._allocate(operation, self._requests[operation.request], snapshot)
            case ops.Advance():
                self._advance(operation, self._requests[operation.request], before or snapshot, snapshot)
            case ops.Lookup():
                tokens = outcome.value[0] if isinstance(outcome.value, tuple) and outcome.value else None
                self._requests[operation.request].hit = tokens if isinstance(tokens, int) else 0
            case ops.Free(name):
                del self._requests[name]
            case ops.Submit(name):
                groups = range(len(self.rules))
                self._requests[name] = request = EngineRequest(operation, [], [[] for _ in groups])
                request.drafts, request.states = [{} for _ in groups], [{} for _ in groups]
                request.rows = [[] for _ in groups]
                self._learn(request, operation.prompt)
            case ops.StepStart():
                self._states_of_this_step.clear()
            case ops.Preempt(name):
                self._requests[name].start_again()
            case ops.RemoveSkipped(name):
                self._requests[name].cut()
            case ops.Reject(name, rejected):
                request = self._requests[name]
                request.computed -= rejected
                self._reject_states(request, rejected)
            case ops.Arrive(name):
                self._arrive(self._requests[name], operation.missing, snapshot)
            case ops.Take():
                blocks = outcome.value if isinstance(outcome.value, tuple) else ()
                there = [block for block in blocks if isinstance(block, int) and 0 < block < self.shape.num_blocks]
                self.memory.overwrite(there, self._number("outside") * len(self.rules))

    def _learn(self, request: EngineRequest, tokens: Sequence[int]) -> None:
        """Tokens have become known: give a number to each prefix that ends with one of them."""
        submit, contents, numbers = request.submit, request.contents, self._numbers
        before: Hashable = contents[-1] if contents else (submit.adapter, submit.adapter_version, submit.salt)
        if not submit.items and submit.embeds is None and not self._gaps:  # as of most requests
            for token in tokens:
                before = numbers.setdefault((before, token), len(numbers) + 1)
                contents.append(before)
            return
        prompt = len(submit.prompt)
        for at, token in enumerate(tokens, len(contents)):
            special = *self._special(submit, at), prompt if told_apart(self.rules, prompt, at) else 0
            key = (before, token) if special == _PLAIN else (before, token, special)
            before = numbers.setdefault(key, len(numbers) + 1)
            contents.append(before)

    @staticmethod
    def _special(submit: ops.Submit, at: int) -> tuple[Hashable, Hashable]:
        """What besides the token decides the content of a position: an embedding, and items."""
        row = submit.embeds[at] if submit.embeds is not None and at < len(submit.embeds) else None
        items = [
            (item.identifier, item.length, at - item.offset)
            for item in submit.items
            if item.offset <= at < item.offset + item.length
        ]
        return row, tuple(items)

    # The engine.

    def _allocate(self, op: ops.Allocate, request: EngineRequest, snapshot: Snapshot) -> None:
        hit = self.shape.taken(op, request.hit)
        local = request.computed + hit
        total = min(local + op.external, self.shape.max_model_len)
        first, request.started = not request.started, True
        request.attached = hit if op.hit else request.attached
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

    def _arrive(self, request: EngineRequest, missing: int, snapshot: Snapshot) -> None:
        """The external tokens have arrived, but for the missing ones behind: what stood in those blocks stays there. If
        they are the whole prompt, its last token is computed again."""
        assert request.arriving is not None
        (start, end), request.arriving = request.arriving, None
        request.computed -= missing or request.computed == len(request.contents)
        self._receive(request, start, end - missing, snapshot)
        self._run(request, snapshot)

    def _run(self, request: EngineRequest, snapshot: Snapshot) -> None:
        """Run the scheduled step: its queries read, its tokens are written."""
        if not request.scheduled:
            return
        start, end = request.computed, request.computed + request.scheduled
        ahead = min(end + request.lookahead, self.shape.max_model_len)
        for group, rule in self._attention:
            if rule.scratch:
                self._go_round(request, group, start, end, snapshot)
            elif not rule.by_encoder:
                self._read_from(request, group, start, start, snapshot)
                self._write(request, group, start, end, snapshot)
                if (drafts := max(end, len(request.contents))) < ahead:
                    self._write(request, group, drafts, ahead, snapshot)
            else:
                self._read(request, group, rule, 0, request.encoder_tokens, snapshot)
        self._allocate_states(request, start, end, snapshot)

    def _advance(self, op: ops.Advance, request: EngineRequest, before: Snapshot, after: Snapshot) -> None:
        """The step is over. Blocks may have been merged since, and hold the same."""
        name = op.request
        exchanged = self._exchanges and any(
            was.get(name) != now.get(name) for was, now in zip(before.tables, after.tables, strict=True)
        )
        if not exchanged:
            return self._step_over(op, request, after)
        self.memory.follow(before)
        self._step_over(op, request, before)
        self.memory.follow(after)
        self._exchange_states(request, before, after)
        for group, rule in self._attention:
            if not (rule.by_encoder or rule.scratch):
                self._read_from(request, group, request.computed, request.computed, after)
        return None

    def _step_over(self, op: ops.Advance, request: EngineRequest, snapshot: Snapshot) -> None:
        """Everything the step read must still be in place, since it may have run late. Then drafts are accepted or
        rejected."""
        end = request.computed + request.scheduled
        first = request.first_query(self.designs)
        if request.scheduled:
            for group, rule in self._attention:
                if rule.scratch:
                    self._read_ring(request, group, snapshot)
                elif not rule.by_encoder:
                    self._read_from(request, group, first, end, snapshot)
                else:
                    self._read(request, group, rule, 0, request.encoder_tokens, snapshot)
        request.computed, request.scheduled = end - op.rejected, 0
        self._learn(request, op.sampled)
        self._run_states(request, snapshot)
        known = request.waiting[0].start if request.waiting else request.computed
        for group, rule in enumerate(self.rules):
            if isinstance(rule, Mamba):
                self._settle_states(request, group, rule, known, snapshot)
            elif not rule.scratch:
                self._judge_drafts(request, group, request.computed, snapshot)

    # Keys and values.

    def _write(self, request: EngineRequest, group: int, start: int, end: int, snapshot: Snapshot) -> None:
        """Write the tags of positions `start .. end - 1`: content if the token is known, else a draft. An entry of
        several tokens is written with the last of them."""
        rule = self.rules[group]
        if self._compressed:
            start, end = stored(rule, start), stored(rule, end)
        drafts, tags = request.drafts[group], self._tags(request, group, start, end)
        for position in range(start, start + len(tags)) if drafts else ():
            drafts.pop(position, None)
        for position in range(start + len(tags), end):
            drafts[position] = next(self._draft_numbers)
            tags.append(drafts[position])
        self._store(request, group, start, tags, snapshot)

    def _store(self, request: EngineRequest, group: int, start: int, tags: Sequence[int], snapshot: Snapshot) -> None:
        name, end = request.submit.request, start + len(tags)
        first = self._first_with_block(request, group, start, end, "written", snapshot)
        if first >= end:
            return
        if first > start:
            start, tags = first, tags[first - start :]
        self._check_written_alone(name, group, start, tags, snapshot)
        self.memory.write(group, name, start, tags)
        self.reached["shadow: tokens written"] += len(tags)

    def _check_written_alone(self, name: str, group: int, start: int, tags: Sequence[int], snapshot: Snapshot) -> None:
        """A block that another request holds, too, must not change: only the tags that it holds may be written."""
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
                    raise Corruption(name, group, low, what, "written while held")

    def _holders(self, block: int, snapshot: Snapshot) -> list[str]:
        return sorted({name for tables in snapshot.tables for name, table in tables.items() if block in table})

    def _missing(self, name: str, group: int, start: int, end: int, snapshot: Snapshot) -> int | None:
        """The last position of `start .. end - 1` that has no block or the null block; None if all have one."""
        table, size = snapshot.tables[group].get(name, []), self.rules[group].b
        first, last = start // size, cdiv(end, size)
        if last <= len(table) and NULL not in table[first:last]:
            return None
        for entry in reversed(range(first, last)):
            if entry >= len(table) or table[entry] == NULL:
                return min(end, (entry + 1) * size) - 1
        return None

    def _first_with_block(
        self, request: EngineRequest, group: int, start: int, end: int, use: str, snapshot: Snapshot
    ) -> int:
        """Check that positions `start .. end - 1` have blocks. Returns `start`, or the first position after those whose
        block is missing by a known loss."""
        name = request.submit.request
        missing = self._missing(name, group, start, end, snapshot)
        if missing is None:
            return start
        if not self._is_known_loss(request, group, missing):
            what = f"is {use}, but has no block: {table_text(name, group, snapshot)}"
            raise Corruption(name, group, missing, what, f"{use} without a block")
        return missing + 1

    def _read(self, request: EngineRequest, group: int, rule: Rule, start: int, end: int, snapshot: Snapshot) -> None:
        """Check that positions `start .. end - 1` hold what was written for this request, in entries that are whole."""
        name, end = request.submit.request, stored(rule, end) if self._compressed else end
        if not end:
            return
        start = self._first_with_block(request, group, max(0, start), end, "read", snapshot)
        if start >= end:
            return
        found, expected = self.memory.read(group, name, start, end), self._expected_run(request, group, start, end)
        if found != expected:
            wrong = next(i for i, tag in enumerate(found) if tag != expected[i])
            block, offset = snapshot.tables[group][name][(start + wrong) // rule.b], (start + wrong) % rule.b
            there = self._describe(found[wrong])
            what = f"reads {there} in block {block}, offset {offset}"
            raise Corruption(name, group, start + wrong, what, f"reads {there}")
        self.reached["shadow: tokens read back"] += end - start

    def _read_from(self, request: EngineRequest, group: int, first: int, end: int, snapshot: Snapshot) -> None:
        """Check what queries from position `first` on read of the tokens before `end`."""
        rule = self.rules[group]
        if not self._gaps:
            self._read(request, group, rule, rule.skipped(first), end, snapshot)
            return
        unread, read_on = gap(rule, len(request.submit.prompt), first)
        if 0 < unread < read_on:
            self._read(request, group, rule, 0, min(unread, end), snapshot)
        self._read(request, group, rule, read_on if unread < read_on else 0, end, snapshot)

    # Rings.

    def _go_round(self, request: EngineRequest, group: int, start: int, end: int, snapshot: Snapshot) -> None:
        """A step reads the request's ring as the step before left it, and writes its tokens over the oldest ones."""
        size, ring = self.shape.groups[group].block_size, request.rings.get(group)
        if ring is None:
            ring = request.rings[group] = [next(self._draft_numbers) for _ in range(size)]
        else:
            self._read_ring(request, group, snapshot)
        for position in range(max(start, end - size), end):
            ring[position % size] = next(self._draft_numbers)
        self._store(request, group, 0, ring, snapshot)

    def _read_ring(self, request: EngineRequest, group: int, snapshot: Snapshot) -> None:
        """Check that nobody else has written into the request's ring."""
        ring, rule = request.rings[group], self.rules[group]
        if self._first_with_block(request, group, 0, len(ring), "read", snapshot) == 0:
            found = self.memory.read(group, request.submit.request, 0, len(ring))
            if found != ring:
                block = snapshot.tables[group][request.submit.request][0]
                raise Corruption(
                    request.submit.request, group, 0, f"its ring, block {block}, was overwritten", "overwritten"
                )
        self.reached["shadow: rings read back"] += rule.scratch

    def _is_known_loss(self, request: EngineRequest, group: int, position: int) -> bool:
        """True, and counted, if this position has no block because of a loss that the target is known for."""
        rule = self.rules[group]
        unread, read_on = gap(rule, len(request.submit.prompt), request.most_computed)
        if request.computed < request.most_computed and unread <= position < read_on:
            return self._is_excused("computed-taken-back")
        return is_astride(rule) and position < request.attached and self._is_excused("chunk-astride-block")

    def _judge_drafts(self, request: EngineRequest, group: int, end: int, snapshot: Snapshot) -> None:
        """Turn drafts before position `end` that were accepted into content. They must still be where they were."""
        if not (drafts := request.drafts[group]):
            return
        name = request.submit.request
        for position in [at for at in drafts if at < end]:
            tag = self._tag(request, group, position)
            if tag is None:
                continue
            draft = drafts.pop(position)
            if isinstance(self.rules[group], Mamba):
                self._rename_state(request, group, position + 1, draft, tag)
            elif self._missing(name, group, position, position + 1, snapshot) is None:
                (found,) = self.memory.read(group, name, position, position + 1)
                if found != draft:
                    what = self._describe(found)
                    raise Corruption(
                        name, group, position, f"holds {what} instead of its draft", f"draft became {what}"
                    )
                self.memory.write(group, name, position, [tag])
            self.reached["shadow: drafts accepted"] += 1

    def _receive(self, request: EngineRequest, start: int, end: int, snapshot: Snapshot) -> None:
        """Write external tokens, except those that have no block and that no query will read: leading ones, and those
        between a prompt and the window of who refers to it."""
        name = request.submit.request
        self.reached["shadow: external tokens"] += end - start
        for group, rule in enumerate(self.rules):
            if isinstance(rule, Mamba):
                table = snapshot.tables[group].get(request.submit.request, [])
                for entry, after in rule.writes(Step(end - 1, end)).items() if end > start else ():
                    if entry < len(table) and table[entry] != NULL:
                        self._put_state(request, group, after, table[entry])
            elif not (rule.by_encoder or rule.scratch):
                first = start
                while first < rule.skipped(end) and self._missing(name, group, first, first + 1, snapshot) is not None:
                    first += 1
                unread, read_on = gap(rule, len(request.submit.prompt), end) if self._gaps else (end, end)
                after = max(first, min(unread, end))
                if first < after < end:
                    self._write(request, group, first, after, snapshot)
                    first = after
                while first < min(read_on, end) and self._missing(name, group, first, first + 1, snapshot) is not None:
                    first += 1
                self._write(request, group, first, end, snapshot)

    def _encode(self, request: EngineRequest, num_tokens: int, snapshot: Snapshot) -> None:
        """Write keys and values of the encoder's output, once for each request."""
        for group, rule in enumerate(self.rules):
            if rule.by_encoder and not request.encoder_tokens:
                tags = [self._encoder_tag(request, group, position) for position in range(num_tokens)]
                self._store(request, group, 0, tags, snapshot)
        request.encoder_tokens = request.encoder_tokens or num_tokens
