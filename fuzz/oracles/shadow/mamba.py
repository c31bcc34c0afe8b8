"""The states of Mamba layers in the simulated engine: which one a step continues from, and where it writes new ones."""

from ....model.arith import cdiv
from ....model.attention import Mamba
from ....model.ops import NULL
from ....model.shown.snapshot import Snapshot
from .engine_state import EngineRequest, EngineState, StateStep, first_draft
from .memory import Corruption


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
        tables = [list(rows.get(request.submit.request, ())) for rows in snapshot.tables]
        request.waiting.append(StateStep(start, end - start, first_draft(request, start, end) - start, tables))
        self._run_states(request, snapshot)

    def _run_states(self, request: EngineRequest, snapshot: Snapshot) -> None:
        """Run the steps before which all tokens are known, one after the other."""
        waiting = request.waiting
        while waiting and waiting[0].start <= len(request.contents):
            step = waiting.pop(0)
            for group, rule in enumerate(self.rules):
                if isinstance(rule, Mamba):
                    self._settle_states(request, group, rule, step.start, snapshot)
                    self._read_state(request, group, step)
                    self._write_states(request, group, rule, step)
            request.ran = step

    def _reject_states(self, request: EngineRequest, count: int) -> None:
        """Drafts are rejected late: what was allocated behind them runs further left."""
        request.waiting = [step._replace(start=step.start - count) for step in request.waiting]

    def _settle_states(self, request: EngineRequest, group: int, rule: Mamba, end: int, snapshot: Snapshot) -> None:
        """It is known which drafts before position `end` are accepted: the states behind them count. If an accepted
        one reached the end of a block, its state is copied into the entry of that block."""
        self._judge_drafts(request, group, end, snapshot)
        after = min(end, len(request.contents)) // rule.b * rule.b
        entry, block = after // rule.b - 1, request.states[group].get(after)
        table = request.ran.tables[group] if request.ran else []
        if block is None or not after or entry >= len(table) or table[entry] in (NULL, block):
            return
        held = snapshot.tables[group].get(request.submit.request, ())
        if table[entry] in held and request.states[group].get(end) != table[entry]:
            tag = self.memory.read_block(group, block)
            self._forget_states_in(request, group, table[entry])
            self.memory.write_block(group, table[entry], tag)

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

    def _write_states(self, request: EngineRequest, group: int, rule: Mamba, step: StateStep) -> None:
        """Write the running state, the states at block ends within the step, and those of drafts (core.md §7)."""
        table, known, end = step.tables[group], step.first_draft, step.end
        running = cdiv(end, rule.b) - 1 if rule.align else (known - 1) // rule.b
        for after in range(known, end + 1):
            entry = running + after - known
            if entry >= len(table) or table[entry] == NULL:
                what = f"has no block for its state: its table is {table}"
                raise Corruption(request.submit.request, group, after - 1, what, "no block for its state")
        for after in range((step.start // rule.b + 1) * rule.b, known + 1, rule.b):
            if after <= len(table) * rule.b:
                self._put_state(request, group, after, table[after // rule.b - 1])
        for after in range(known, end + 1):
            self._put_state(request, group, after, table[running + after - known], draft=after > known)

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
        """A request that holds the copy of a state instead of the state continues from the copy."""
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
