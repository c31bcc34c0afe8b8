"""The states of Mamba layers in the simulated engine: which one a step continues from, and where it writes new ones."""

from collections.abc import Sequence

from ....model.arith import cdiv
from ....model.attention import Mamba
from ....model.ops import NULL
from ....model.snapshot import Snapshot
from .engine_state import EngineRequest, EngineState, first_draft, table_text
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
                    raise Corruption(request.submit.request, group, local - 1, what)

    def _gives_state_up(self, request: EngineRequest, rule: Mamba, start: int, end: int) -> bool:
        """True if the scheduler asks for a step that the states do not allow: more drafts than blocks are set aside
        for, drafts after a chunk of the prompt, or more tokens taken back."""
        known = first_draft(request, start, end)
        return end - known > rule.p or end > known > start + 1 or start < request.most_computed - rule.p

    def _read_state(self, request: EngineRequest, group: int, start: int, snapshot: Snapshot) -> None:
        """Check that the state after `start` tokens is where it was written, in a block that the request holds."""
        name, states = request.submit.request, request.states[group]
        if not start:
            return
        if group in request.lost or (start not in states and start == request.taken_back_to):
            self.reached["shadow: mamba states given up"] += 1
            return
        table = table_text(name, group, snapshot)
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
        self, request: EngineRequest, group: int, rule: Mamba, start: int, end: int, snapshot: Snapshot
    ) -> None:
        """Write the running state, the states at block ends within the step, and those of drafts (core.md §7)."""
        table = snapshot.tables[group].get(request.submit.request, [])
        known = first_draft(request, start, end)
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
        self, request: EngineRequest, group: int, known: int, end: int, running: int, snapshot: Snapshot
    ) -> bool:
        """True, and counted, if the running state or a draft's has no block because of one of `KNOWN_LOSSES`."""
        rule, name = self.rules[group], request.submit.request
        table = snapshot.tables[group].get(name, [])
        for after in range(known, end + 1):
            entry = running + after - known
            if entry < len(table) and table[entry] != NULL:
                continue
            if self.strict or rule.group.mamba_mode != "align" or cdiv(end, rule.b) >= cdiv(request.longest, rule.b):
                what = f"has no block for its state: {table_text(name, group, snapshot)}"
                raise Corruption(name, group, after - 1, what)
            self.reached["shadow: known loss running-state-moved-on"] += 1
            return True
        return False

    def _write_block_ends(
        self, request: EngineRequest, group: int, rule: Mamba, end: int, table: Sequence[int]
    ) -> None:
        """Write the states at block ends of a request whose running state is lost: other requests may hit them."""
        for entry in range(min(end // rule.b, len(table))):
            tag = self._tag(request, group, (entry + 1) * rule.b - 1)
            if tag is not None and table[entry] != NULL and self.memory.read_block(group, table[entry]) != tag:
                self.memory.write_block(group, table[entry], tag)
                self._states_of_this_step.add((group, table[entry]))

    def _put_state(self, request: EngineRequest, group: int, after: int, block: int) -> None:
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

    def _follow_copy(self, source: int, destination: int, snapshot: Snapshot) -> None:
        """A request that holds the copy of a state instead of the state continues from the copy."""
        for name, request in self._requests.items():
            for states, tables in zip(request.states, snapshot.tables, strict=True):
                table = tables.get(name, ())
                if destination in table and source not in table:
                    states.update({after: destination for after, block in states.items() if block == source})

    def _forget_states_in(self, request: EngineRequest, group: int, block: int) -> None:
        states = request.states[group]
        for tokens in [tokens for tokens, held in states.items() if held == block]:
            del states[tokens]

    def _rename_state(self, request: EngineRequest, group: int, after: int, draft: int, tag: int) -> None:
        block = request.states[group].get(after)
        if block is not None and self.memory.read_block(group, block) == draft:
            self.memory.write_block(group, block, tag)

    def _keep_state_of_block_end(self, request: EngineRequest, group: int, rule: Mamba, snapshot: Snapshot) -> None:
        """If an accepted draft reached the end of a block, its state is copied into the entry of that block."""
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
