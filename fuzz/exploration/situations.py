"""What a transition has brought about, read off what can be seen before and after it.

A scope names those that it is there for (`Scope.must_reach`); it has passed only if each came up. They are counted by
transitions: a transition that evicts two blocks counts once.
"""

from collections.abc import Iterator, Sequence

from ...model import ops
from ...model.ops import Operation
from .contents import Contents
from .core_side import REFUSED, Answer
from .packing import Focus, Look
from .properties import EventValue
from .scope import NAMES, Scope

HIT, NULLS_IN_HIT, CUT = "hit", "hit with null entries", "hit cut by another group"
EVICTED, DUPLICATE, PREEMPTED = "registered block evicted", "second block under one identity", "preemption"
BEHIND, REPLAY, NOT_WORTH = "eagle drop", "kept for a replay of the prompt", "block not worth registering"
NULLS, MOVED, TO_FRONT = "null entries made", "mamba speculative block moved", "freed to the front"
DRAFT, SAME_STEP, RESET = "draft rejected", "same-step refusal", "reset refused"
GATE, RESERVED, FULL = "refused by gate", "refused by reservation", "refused by free count"
OUTSIDE, LATE, BESIDE = "external tokens", "external tokens later", "external tokens behind a hit"
FAILED = "load failed in part"
NAMED = frozenset(
    {HIT, NULLS_IN_HIT, CUT, EVICTED, DUPLICATE, PREEMPTED, BEHIND, REPLAY, NOT_WORTH, NULLS, MOVED, TO_FRONT}
    | {DRAFT, SAME_STEP, RESET, GATE, RESERVED, FULL, OUTSIDE, LATE, BESIDE, FAILED}
)
"""All of them."""


class ScopeSituations:
    """Those of one scope."""

    def __init__(self, scope: Scope, contents: Contents) -> None:
        self.scope, self.contents = scope, contents
        self.groups = range(len(scope.shape.groups))
        self.sizes = [group.block_size * scope.shape.parallel for group in scope.shape.groups]
        self.unit = self.sizes[0] if len(self.sizes) == 1 else scope.shape.scheduler_block_size
        self.drafting = [index for index, group in enumerate(scope.shape.groups) if group.speculative_blocks]
        """Groups with blocks for states of drafts, which move along their tables."""
        self._eagle = scope.shape.eagle or any(group.eagle for group in scope.shape.groups)

    def of(
        self,
        before: Look,
        focus: Focus,
        op: Operation,
        answer: Answer,
        after: Look,
        events: Sequence[EventValue],
        refusal: str,
    ) -> tuple[str, ...]:
        """What this transition brought about. `refusal`: which check of the model refused it, if one did."""
        kind = type(op)
        if kind is ops.Lookup:
            return tuple(self._lookup(before, NAMES.index(op.request), answer))  # type: ignore[attr-defined]
        if kind is ops.Submit:
            return ()
        if kind is ops.Advance:
            return (DRAFT,) if op.rejected else ()  # type: ignore[attr-defined]
        if kind is ops.Reset:
            return () if answer[1] else (RESET,)
        found = [EVICTED] if any(event[0] == "removed" for event in events) else []
        if kind is ops.Preempt:
            found.append(PREEMPTED)
        elif isinstance(op, ops.Arrive) and op.missing:
            found.append(FAILED)
        elif isinstance(op, ops.Allocate):
            if answer == REFUSED:
                found += self._refused(before, focus, refusal)
            elif op.external:
                found += [LATE if op.delay else OUTSIDE] + ([BESIDE] if focus.hit_tokens else [])
        if after.codes is not before.codes and isinstance(op, ops.Allocate | ops.Arrive):
            found += self._registered(before, after, op.request)
        if after.tables != before.tables:
            found += self._tables(before, after)
        return tuple(found)

    def _lookup(self, before: Look, slot: int, answer: Answer) -> Iterator[str]:
        length, blocks = answer[1]
        if length:
            yield HIT
            if any(0 in row for row in blocks):
                yield NULLS_IN_HIT
        end = length + self.unit
        tokens = self.contents.sequences[before.requests[slot][0]][0]
        if end < len(tokens):
            further = [self._has(before, group, tokens[:end]) for group in self.groups]
            if all(further) and self._eagle:
                yield BEHIND
            if any(further) and not all(further):
                yield CUT

    def _has(self, look: Look, group: int, tokens: tuple[int, ...]) -> bool:
        """True if the last block of these tokens is registered."""
        return self.contents.code.get((group, tokens), -1) in look.codes

    def _refused(self, before: Look, focus: Focus, refusal: str) -> Iterator[str]:
        yield refusal
        hit = [block for row in focus.hit for block in row if block]
        if any(before.codes[block] in before.this_step for block in hit):
            yield SAME_STEP

    def _registered(self, before: Look, after: Look, name: str) -> Iterator[str]:
        """What became of the table entries that count as registered now."""
        if sum(map(len, after.duplicates.values())) > sum(map(len, before.duplicates.values())):
            yield DUPLICATE
        new = [
            after.codes[block]
            for group in self.groups
            for block in after.tables[group].get(name, [])[
                before.registered[group].get(name, 0) : after.registered[group].get(name, 0)
            ]
            if block
        ]
        if 0 in new:
            yield NOT_WORTH
        if self.scope.shape.retention_interval == 0 and any(new):
            yield REPLAY

    def _tables(self, before: Look, after: Look) -> Iterator[str]:
        """What became of the entries of tables, and of the blocks that stood there."""
        nulled = moved = False
        for group in self.groups:
            for name, table in after.tables[group].items():
                had = before.tables[group].get(name)
                if had is None:
                    nulled |= not table[0]
                elif had != table:
                    gone = [block for block, now in zip(had, table, strict=False) if block and not now]
                    stayed = [block for block in gone if group in self.drafting and block in table]
                    moved |= bool(stayed)
                    nulled |= len(stayed) < len(gone)
        if nulled:
            yield NULLS
        if moved:
            yield MOVED
        freed = [bool(before.counts[block]) for block in after.queue]
        if True in freed and False in freed[freed.index(True) :]:
            yield TO_FRONT
