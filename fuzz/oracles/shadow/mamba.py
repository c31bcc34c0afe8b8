"""The states of Mamba layers in the simulated engine: which one a step continues from, and where it writes new ones."""

from collections.abc import Sequence

from ....model.arith import cdiv
from ....model.attention import Mamba, Step
from ....model.features.checkpoints import left
from ....model.ops import NULL
from ....model.snapshot import Snapshot
from .engine_state import EngineRequest, EngineState, StateStep, first_draft
from .memory import Corruption

BY_SCHEDULER = "states-by-scheduler"
"""The loss of a core that registers states which only a scheduler that ends steps where blocks end lets be written."""


class States(EngineState):
    """The part of the engine that tracks states. A state is identified by the number of tokens it is computed up to."""

    def _find_states(self, request: EngineRequest, local: int, snapshot: Snapshot) -> None:
        """After a hit: find the state, which is in the entry of the hit's last token."""
        for group, rule in enumerate(self.rules):
            table = snapshot.tables[group].get(request.submit.request, [])
            if not isinstance(rule, Mamba) or not local or (local - 1) // rule.b >= len(table):
                continue
            block = table[(local - 1) // rule.b]
            if block != NULL:
                request.states[group][local] = block
                if (group, block) in self._states_of_this_step:
                    what = f"continues from block {block}, whose state is computed in this very step"
                    raise Corruption(request.submit.request, group, local - 1, what, "same step")

    def _allocate_states(self, request: EngineRequest, start: int, end: int, snapshot: Snapshot) -> None:
        """A step has been allocated. It runs at once if all tokens before it are known, else when they are."""
        if not self._keeps_states:
            return
        tables = [self._told(request, group, snapshot) for group in range(len(self.rules))]
        request.waiting.append(StateStep(start, end - start, first_draft(request, start, end) - start, tables))
        self._run_states(request, snapshot)

    def _told(self, request: EngineRequest, group: int, snapshot: Snapshot) -> list[int]:
        """The entries that the request's worker knows from now on. What has become null in the table stays in a
        worker's row, and serves there as long as the request holds the block elsewhere in its table (mode `align`)."""
        table = snapshot.tables[group].get(request.submit.request, [])
        rule, row = self.rules[group], request.rows[group]
        if not isinstance(rule, Mamba) or not rule.align:
            return list(table)
        row += [NULL] * (len(table) - len(row))
        for entry, block in enumerate(table):
            row[entry] = block if block != NULL or row[entry] not in table else row[entry]
        return row[: len(table)]

    def _run_states(self, request: EngineRequest, snapshot: Snapshot) -> None:
        """Run the steps before which all tokens are known, one after the other."""
        waiting = request.waiting
        while waiting and waiting[0].start <= len(request.contents):
            step = waiting.pop(0)
            for group, rule in enumerate(self.rules):
                if isinstance(rule, Mamba):
                    self._settle_states(request, group, rule, step.start, snapshot)
                    self._read_state(request, group, step)
                    self._write_states(request, group, rule, step, snapshot)
            request.ran = step

    def _reject_states(self, request: EngineRequest, count: int) -> None:
        """Drafts are rejected late: what was allocated behind them runs further left."""
        request.waiting = [step._replace(start=step.start - count) for step in request.waiting]

    def _settle_states(self, request: EngineRequest, group: int, rule: Mamba, end: int, snapshot: Snapshot) -> None:
        """It is known which drafts before position `end` are accepted: the states behind them count. If an accepted
        one reached the end of a block, its state may have been copied into the entry of that block."""
        self._judge_drafts(request, group, end, snapshot)
        if end > len(request.contents):
            return  # which of them a worker has accepted is not known yet
        right, ran = end, request.ran
        entry = right // rule.b - 1
        block = request.states[group].get((entry + 1) * rule.b)
        if ran is None or block is None or not self._is_written(rule, ran.step, right, entry):
            return
        table = ran.tables[group]
        if not self._holds(request, group, table, entry, snapshot) or table[entry] == block:
            return
        tag = self.memory.read_block(group, block)
        self._forget_states_in(request, group, table[entry])
        self.memory.write_block(group, table[entry], tag)

    def _is_written(self, rule: Mamba, step: Step, right: int, entry: int) -> bool:
        """True if the state at the end of a block is in its entry after a step of which so many tokens are right."""
        return rule.writes(step, right).get(entry) == (entry + 1) * rule.b or self._is_excused(BY_SCHEDULER)

    def _holds(self, request: EngineRequest, group: int, table: Sequence[int], entry: int, snapshot: Snapshot) -> bool:
        """True if this entry of the table with which a step was allocated is a block that the request still holds."""
        if not 0 <= entry < len(table) or table[entry] == NULL:
            return False
        return table[entry] in snapshot.tables[group].get(request.submit.request, ())

    def _read_state(self, request: EngineRequest, group: int, step: StateStep) -> None:
        """Check that the state before the step is where it was written, in a block that the request holds."""
        name, states, start = request.submit.request, request.states[group], step.start
        if not start:
            return
        table = f"its table is {step.tables[group]}"
        if start not in states:
            raise Corruption(name, group, start - 1, f"its state is in no block any more: {table}", "state is gone")
        block = states[start]
        if block not in step.tables[group]:
            what = f"its state is in block {block}, which is not held: {table}"
            raise Corruption(name, group, start - 1, what, "state is not held")
        found = self.memory.read_block(group, block)
        if found != self._expected(request, group, start - 1):
            what = self._describe(found)
            raise Corruption(name, group, start - 1, f"reads {what} as its state in block {block}", f"state is {what}")
        self.reached["shadow: mamba states read back"] += 1

    def _write_states(
        self, request: EngineRequest, group: int, rule: Mamba, ran: StateStep, snapshot: Snapshot
    ) -> None:
        """Write what the rule says of the step: in other entries than those of its running state and of its drafts, as
        far as there are blocks."""
        table, step = ran.tables[group], ran.step
        running = cdiv(step.end, rule.b) - 1
        for after in range(step.known, step.end + 1):
            entry = running + after - step.known
            if entry >= len(table) or table[entry] == NULL:
                what = f"has no block for its state: its table is {table}"
                raise Corruption(request.submit.request, group, after - 1, what, "no block for its state")
        writes = {**left(rule, step), **rule.writes(step)}
        if BY_SCHEDULER in self.losses:
            for after in range((step.start // rule.b + 1) * rule.b, step.known + 1, rule.b):
                if after // rule.b - 1 not in writes and self._is_excused(BY_SCHEDULER):
                    writes[after // rule.b - 1] = after
        for entry in sorted(writes):  # what a draft's entry holds, it holds at last
            after = writes[entry]
            if entry >= running or self._holds(request, group, table, entry, snapshot):
                self._put_state(request, group, after, table[entry], draft=after > step.known)

    def _put_state(self, request: EngineRequest, group: int, after: int, block: int, *, draft: bool = False) -> None:
        if block == NULL:
            return
        states, drafts = request.states[group], request.drafts[group]
        self._forget_states_in(request, group, block)
        drafts.pop(after - 1, None)
        tag = None if draft else self._tag(request, group, after - 1)
        if tag is None:
            tag = drafts[after - 1] = next(self._draft_numbers)
        states[after] = block
        self.memory.write_block(group, block, tag)
        self._states_of_this_step.add((group, block))

    def _follow_copy(self, source: int, destination: int, snapshot: Snapshot) -> None:
        """A request that holds the copy of a state instead of the state continues from the copy. A state is as new as
        the one that it was copied from, whatever its block had before."""
        new = self._states_of_this_step
        new -= {(group, destination) for group in range(len(self.rules))}
        new |= {(group, destination) for group in range(len(self.rules)) if (group, source) in new}
        for name, request in self._requests.items():
            for states, tables in zip(request.states, snapshot.tables, strict=True):
                table = tables.get(name, ())
                if destination in table and source not in table:
                    states.update({after: destination for after, block in states.items() if block == source})

    def _exchange_states(self, request: EngineRequest, before: Snapshot, after: Snapshot) -> None:
        """The states of a request whose blocks were exchanged for others that hold the same are there from now on."""
        name = request.submit.request
        for group, states in enumerate(request.states):
            old, new = (side.tables[group].get(name, ()) for side in (before, after))
            for was, now in zip(old, new, strict=False):
                if now in (was, NULL) or self.memory.read_block(group, now) != self.memory.read_block(group, was):
                    continue
                states.update({tokens: now for tokens, block in states.items() if block == was})
                for step in request.waiting:
                    step.tables[group][:] = [now if block == was else block for block in step.tables[group]]

    def _forget_states_in(self, request: EngineRequest, group: int, block: int) -> None:
        states = request.states[group]
        for tokens in [tokens for tokens, held in states.items() if held == block]:
            del states[tokens]

    def _rename_state(self, request: EngineRequest, group: int, after: int, draft: int, tag: int) -> None:
        block = request.states[group].get(after)
        if block is not None and self.memory.read_block(group, block) == draft:
            self.memory.write_block(group, block, tag)

    def _judge_drafts(self, request: EngineRequest, group: int, end: int, snapshot: Snapshot) -> None:
        """Turn drafts before position `end` that were accepted into content."""
        raise NotImplementedError
