"""What must hold in every state and of every transition: properties.md §2, read off what can be seen of one side.

A state is looked at once, when it is expanded; a transition each time. Lockstep, that the two sides show the same, is
checked before in `expansion`; where it fails, these checks say what the difference means.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, TypeAlias

from ...model import ops
from ...model.attention import Mamba, Rule
from ...model.ops import Operation
from .contents import Contents
from .core_side import Answer
from .packing import Look
from .scope import NAMES, Scope

Broken: TypeAlias = tuple[str, str]
"""Id of a property, and what is wrong, in words."""
EventValue: TypeAlias = tuple[Any, ...]

MEANING = {
    "S1": "every block is free or in a table, never both, and the free count is right; with nobody there all are free",
    "S2": "a block that two tables hold stands in both for the same tokens of the same group",
    "S4": "the null block is never free, never registered",
    "S5": "an entry of a table never changes except from a block to null; states of drafts move to the end",
    "S6": "every token that the next query reads (`Rule.attends`) is in a block of the table",
    "S7": "a hit is aligned, leaves a token to compute, has a block wherever the next query reads, and its blocks hold "
    "exactly this request's tokens",
    "S8": "a refusal changes nothing but that skipped blocks are given back; nothing else than a refusal fails",
    "S9": "no block is taken while one that stands before it in the queue stays free",
    "S10": "registered content stays until its block is taken, evicted or the cache is reset",
    "S11": "the events of a transition lead from the registered contents before to those after",
    "S12": "freeing an unknown request changes nothing",
    "S15": "every position that a step or a connector writes is in a block that nobody else holds when it is allocated",
    "arrival": "what comes from outside later is registered when it has arrived",
    "gate": "behind the gate the whole sequence finds room in what is free beyond the reserved blocks (full attention)",
    "quiet": "a submission, a lookup and the end of a step change nothing but their own request",
    "lockstep": "model and core agree in outcome, state and events",
    "L1": "from every state the scheduler's own moves lead to one where all requests have finished",
    "symmetry": "states that differ in the names of blocks and requests only have the same future",
    "one at a time": "looking at one request at a time loses no state at rest",
    "once": "making an operation once for all states that look alike to its request loses no state",
}
"""Every property that an exploration checks. S3 (the data plane) is the shadow memory's, S13 needs a running device."""


_QUIET = (ops.Submit, ops.Lookup, ops.Advance, ops.StepStart)
_CLEARED: Answer = ("done", True)


def _changed(entry: int, now: int) -> bool:
    """True if an entry of a table has become another block."""
    return now != 0 and now != entry


class Properties:
    """The checks for one scope."""

    def __init__(self, scope: Scope, rules: Sequence[Rule], sinks: Sequence[int], contents: Contents) -> None:
        self.scope, self.rules, self.sinks, self.contents = scope, rules, sinks, contents
        self.alignment = rules[0].b if len(rules) == 1 else scope.shape.scheduler_block_size
        self.groups = range(len(rules))
        self._needed: dict[tuple[int, int], list[int]] = {}

    def needed(self, group: int, computed: int) -> list[int]:
        """Entries of the table that the next query reads with so many tokens computed."""
        found = self._needed.get((group, computed))
        if found is None:
            rule = self.rules[group]
            tokens = (t for t in range(computed) if rule.attends(computed, t))
            found = self._needed[group, computed] = sorted({t // rule.b for t in tokens})
        return found

    def dead(self, group: int, computed: int) -> int:
        """Leading entries of the table that no query reads any more with so many tokens computed."""
        return min(self.needed(group, computed), default=computed // self.rules[group].b)

    # States.

    def of_state(self, look: Look) -> list[Broken]:
        """What is wrong with a state."""
        broken: list[Broken] = []
        if look.codes[0]:
            broken.append(("S4", "the null block is registered"))
        counts = look.counts
        for group in self.groups:
            for name, table in look.tables[group].items():
                computed = look.requests[NAMES.index(name)][1]
                for entry in self.needed(group, computed):
                    if entry >= len(table) or not table[entry]:
                        text = (
                            f"group {group}, {name}: entry {entry} of {table} is read with {computed} tokens computed"
                        )
                        broken.append(("S6", text))
        if max(counts) > 1:
            self._shared(look, broken)
        return broken

    def _shared(self, look: Look, broken: list[Broken]) -> None:
        holders: dict[int, tuple[int, tuple[int | str, ...]]] = {}
        counts = look.counts
        for group in self.groups:
            b = self.rules[group].b
            for name, table in look.tables[group].items():
                tokens = self.contents.sequences[look.requests[NAMES.index(name)][0]][0]
                for entry, block in enumerate(table):
                    if block and counts[block] > 1:
                        end = (entry + 1) * b
                        # A block that is not full has no content yet that somebody else could share.
                        content: tuple[int, tuple[int | str, ...]] = (group, tokens[:end])
                        if end > len(tokens):
                            content = (group, (*tokens, name))
                        if holders.setdefault(block, content) != content:
                            broken.append(("S2", f"block {block} is held as {holders[block]} and {content}"))

    # Transitions.

    def of_quiet(self, before: Look, op: Operation, answer: Answer, after: Look) -> list[Broken]:
        """What is wrong with a transition that changes requests at most and tells of no event."""
        broken: list[Broken] = []
        if answer[0] == "failed":
            broken.append(("S8", f"{op} fails with {answer[1]}"))
        elif isinstance(op, ops.Lookup):
            length, blocks = answer[1]
            self._hit(before, op, length, blocks, broken)
        elif isinstance(op, ops.Allocate) and answer[0] == "done":
            self._given(before, op, after, broken)
        return broken

    def of_transition(
        self, before: Look, op: Operation, answer: Answer, after: Look, events: Sequence[EventValue]
    ) -> list[Broken]:
        """What is wrong with a transition."""
        broken: list[Broken] = []
        same_codes = after.codes == before.codes
        if events or not same_codes:
            self._replay(before, after, events, broken)
        if same_codes and after.queue == before.queue and after.tables == before.tables:
            return broken + self.of_quiet(before, op, answer, after)
        if answer[0] == "failed":
            broken.append(("S8", f"{op} fails with {answer[1]}"))
            return broken
        kind = type(op)
        if kind in _QUIET:
            broken.append(("quiet", f"{op} changes more than its request"))
            return broken
        self._conserved(after, broken)
        leaving = op.request if isinstance(op, ops.Free | ops.Preempt) else None
        external = op.external if isinstance(op, ops.Allocate) else 0
        taken = self._tables(before, after, leaving, external, broken)
        if not same_codes and answer != _CLEARED:
            self._survives(before, op, after, taken, broken)
        if answer[0] == "refused":
            self._refused(before, op, after, broken)
        elif isinstance(op, ops.Allocate):
            self._given(before, op, after, broken)
        elif isinstance(op, ops.Arrive):
            self._arrived(before, op, after, broken)
        self._in_order(before, after, taken, self._renewed(before, op), broken)
        return broken

    def _conserved(self, after: Look, broken: list[Broken]) -> None:
        counts, queue = after.counts, after.queue
        entries = sum([len(table) - table.count(0) for of_group in after.tables for table in of_group.values()])
        if 0 in queue:
            broken.append(("S4", f"the null block is in the free queue {queue}"))
        if (
            sum(counts) != entries + len(self.sinks)
            or len(queue) != counts.count(0) - 1
            or any(map(counts.__getitem__, queue))
            or len(set(queue)) != len(queue)
        ):
            broken.append(("S1", f"free {queue}, in tables {after.tables}, references {counts}"))
        elif not entries and len(queue) + len(self.sinks) != len(counts) - 1:
            broken.append(("S1", f"nobody holds anything, and only {queue} are free"))

    def _tables(self, before: Look, after: Look, leaving: str | None, external: int, broken: list[Broken]) -> set[int]:
        """Check S5. Returns the blocks that were taken to be filled anew: what a table has gained, a hit left out.

        `external`: tokens that have come from outside behind the hit.
        """
        taken: set[int] = set()
        for group in self.groups:
            old, now = before.tables[group], after.tables[group]
            if old == now:
                continue
            for name, table in now.items():
                had = old.get(name)
                if had is None:
                    hit = after.requests[NAMES.index(name)][1] - external
                    taken.update(table[hit // self.rules[group].b :])
                elif had != table and name != leaving:
                    taken.update(table[len(had) :])
                    if len(table) < len(had) or any(map(_changed, had, table)):
                        broken.append(("S5", f"group {group}, {name}: {had} became {table}"))
            broken += [
                ("S5", f"group {group}: the table {table} of {name} is gone")
                for name, table in old.items()
                if name not in now and name != leaving
            ]
        return taken

    def _survives(self, before: Look, op: Operation, after: Look, taken: set[int], broken: list[Broken]) -> None:
        evicted = op.blocks if isinstance(op, ops.Evict) else ()
        for block, (old, new) in enumerate(zip(before.codes, after.codes, strict=True)):
            if old and old != new and block not in taken and block not in evicted:
                was = self.contents.keys[old]
                broken.append(("S10", f"block {block} was registered as {was}, now {self.contents.keys[new]}: {op}"))

    def _refused(self, before: Look, op: Operation, after: Look, broken: list[Broken]) -> None:
        if after.codes != before.codes or after.requests != before.requests or after.registered != before.registered:
            broken.append(("S8", f"{op} was refused and changed what is registered"))
        assert isinstance(op, ops.Allocate)
        for group in self.groups:
            for name, old in before.tables[group].items():
                new = after.tables[group].get(name, [])
                if new == old:
                    continue
                dead = self.dead(group, before.requests[NAMES.index(name)][1])
                if name != op.request or len(new) != len(old) or new[dead:] != old[dead:]:
                    broken.append(("S8", f"{op} was refused and changed the table of {name} from {old} to {new}"))
        if [block for block in before.queue if after.counts[block]]:
            broken.append(("S8", f"{op} was refused and holds blocks that were free before"))

    def _given(self, before: Look, op: ops.Allocate, after: Look, broken: list[Broken]) -> None:
        """Check what an allocation promises: own blocks for all that is written, room behind the gate."""
        shape, missing = self.scope.shape, 0
        number, computed, scheduled = after.requests[NAMES.index(op.request)]
        whole = min(len(self.contents.sequences[number][0]) + op.lookahead, shape.max_model_len)
        for group in self.groups:
            rule, table = self.rules[group], after.tables[group].get(op.request, [])
            if rule.is_full:
                missing += max(0, -(-whole // rule.b) - len(table))
            loaded = (computed - op.external) // rule.b
            written = [entry for entry in self.needed(group, computed) if entry >= loaded] if op.external else []
            if op.new_tokens:
                last = (computed + scheduled - 1) // rule.b
                written += range(last if isinstance(rule, Mamba) else computed // rule.b, last + 1)
            for entry in written:
                if not self._own(before, group, op.request, after, entry):
                    text = f"entry {entry} of {table} is written, references are {after.counts}"
                    broken.append(("S15", f"group {group}, {op.request}: {text}"))
            if op.delay and any(after.codes[block] for block in table[loaded:]):
                text = f"group {group}, {op.request}: {table} is registered as {after.codes}, and was not loaded yet"
                broken.append(("arrival", text))
        if op.gate and missing > len(after.queue) - op.reserved:
            text = f"{op} was let in: {missing} blocks are still to come, {len(after.queue)} are free"
            broken.append(("gate", text))

    def _arrived(self, before: Look, op: ops.Arrive, after: Look, broken: list[Broken]) -> None:
        """Check that nothing is registered which has not arrived."""
        arrived = before.requests[NAMES.index(op.request)][1] - op.missing
        for group in self.groups:
            table = after.tables[group].get(op.request, [])
            if any(after.codes[block] and not before.codes[block] for block in table[arrived // self.rules[group].b :]):
                text = (
                    f"group {group}, {op.request}: {table} is registered as {after.codes}; {arrived} tokens are there"
                )
                broken.append(("arrival", text))

    def _own(self, before: Look, group: int, name: str, after: Look, entry: int) -> bool:
        """True if nobody else holds this entry, or if it has held just what is written there already: the last token of
        a prompt that came from outside as a whole is computed again."""
        table, had = after.tables[group].get(name, []), before.tables[group].get(name, [])
        if entry >= len(table) or not table[entry]:
            return False
        if after.counts[table[entry]] == 1:
            return True
        tokens = self.contents.sequences[after.requests[NAMES.index(name)][0]][0]
        content = self.contents.code.get((group, tokens[: (entry + 1) * self.rules[group].b]), -1)
        return had[entry : entry + 1] == [table[entry]] and before.codes[table[entry]] == content

    def _renewed(self, before: Look, op: Operation) -> set[int]:
        """Blocks that hold what the request holds that gives its blocks back: they may count as used until now."""
        if not isinstance(op, ops.Free | ops.Preempt) or op.request not in NAMES:
            return set()
        tokens = self.contents.sequences[before.requests[NAMES.index(op.request)][0]][0]
        code = self.contents.code
        mine = {
            code.get((group, tokens[:end]))
            for group in self.groups
            for end in range(self.rules[group].b, len(tokens) + 1, self.rules[group].b)
        }
        return {block for block in before.queue if before.codes[block] in mine}

    def _in_order(self, before: Look, after: Look, taken: set[int], renewed: set[int], broken: list[Broken]) -> None:
        counts, queue = after.counts, before.queue
        known = [block for block in after.queue if block in set(queue)]
        behind = set(takewhile(renewed.__contains__, reversed(known)))
        queue = [block for block in queue if block not in behind]
        still = [block for block in queue if not counts[block]]
        if [block for block in after.queue if block in still] != still and not taken.intersection(still):
            broken.append(("S9", f"free blocks changed places: {queue} became {after.queue}"))
        if taken and still and not taken.isdisjoint(queue[queue.index(still[0]) :]):
            broken.append(("S9", f"{sorted(taken)} were taken from {queue} before {still[0]}"))

    def _hit(
        self, before: Look, op: ops.Lookup, length: int, blocks: tuple[tuple[int, ...], ...], broken: list[Broken]
    ) -> None:
        if not length:
            return
        tokens = self.contents.sequences[before.requests[NAMES.index(op.request)][0]][0]
        if length % self.alignment or length >= len(tokens):
            broken.append(("S7", f"a hit of {length} of {len(tokens)} tokens, alignment {self.alignment}"))
        code, codes = self.contents.code, before.codes
        for group in self.groups:
            b, row = self.rules[group].b, blocks[group]
            if len(row) * b != length:
                broken.append(("S7", f"group {group}: {len(row)} entries for a hit of {length} tokens"))
            for entry in self.needed(group, length):
                if entry >= len(row) or not row[entry]:
                    broken.append(("S7", f"group {group}: entry {entry} of the hit {row} is read next and is null"))
            for entry, block in enumerate(row):
                if block and codes[block] != code.get((group, tokens[: (entry + 1) * b])):
                    holds = self.contents.keys[codes[block]]
                    broken.append(("S7", f"group {group}: block {block}, entry {entry} of the hit, holds {holds}"))

    def _replay(self, before: Look, after: Look, events: Sequence[EventValue], broken: list[Broken]) -> None:
        mirror = [code for code in before.codes if code]
        code_of = self.contents.code_of_event
        try:
            for event in events:
                if event[0] == "stored":
                    mirror += [code_of[event[1], prefix] for prefix in event[2]]
                elif event[0] == "removed":
                    mirror.remove(code_of[event[1], event[2]])
                else:
                    mirror.clear()
        except (KeyError, ValueError):
            mirror.append(-1)
        if sorted(mirror) != sorted([code for code in after.codes if code]):
            broken.append(("S11", f"the events {list(events)} do not lead from {before.codes} to {after.codes}"))
