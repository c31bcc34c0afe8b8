"""Checks that what was computed is registered at all (S18), and under a name of its own (S7, S10).

A core counts how far a request's blocks are registered. Where that count runs ahead, of blocks that were passed over,
they never are: whoever comes with the same tokens computes them again (vllm-project/vllm#36052).
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import compress, repeat
from operator import is_not, ne
from typing import NamedTuple

from ....model import lookup, ops
from ....model.arith import down
from ....model.attention import Mamba
from ....model.ops import Done
from ....model.snapshot import Snapshot
from .moves import LEAVES, Move
from .properties import Break
from .run_record import UNFILLED, RunRecord
from .tracked import Tracked

PATIENCE = 2
"""Further steps of its request for which a full block may wait to be registered."""


_STEPS_ON = (ops.Allocate, ops.Arrive)
STEPS = LEAVES | {*_STEPS_ON}
"""Operations at which something may be owed."""


class _Due(NamedTuple):
    """A full block that is to be registered."""

    group: int
    entry: int
    step: int
    """Number of the request's allocation at which it was full."""


class _Waiting:
    """What of one request is to be registered."""

    def __init__(self, groups: int) -> None:
        self.steps = 0
        self.seen = [0] * groups
        """Per group: leading full entries that were looked at."""
        self.due: list[_Due] = []


class Published:
    """Judges whether full blocks get registered."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        shape = record.shape
        self._judged = record.shows("labels", "tables") and shape.caching
        self.alignment = lookup.alignment(shape, record.rules)
        """In tokens: where hits end."""
        self._groups = [
            g for g, rule in enumerate(record.rules) if rule.cacheable and not (isinstance(rule, Mamba) or rule.scratch)
        ]
        """States are registered where steps end, which is left to S14 and to the shadow memory."""
        self._waiting: defaultdict[str, _Waiting] = defaultdict(lambda: _Waiting(len(record.rules)))
        self._registers = self._early = False
        """True once the core has registered a block, and one of a request that goes on. Without the first it may have
        no cache, without the second it may register where requests end."""

    def check(self, move: Move) -> None:
        """S18 for one operation. The record is up to date already."""
        if not self._judged or not isinstance(move.outcome, Done):
            return
        operation, request = move.operation, move.request
        leaves = type(operation) in LEAVES
        if not (self._early and self._registers) and move.relabelled:
            gained = any(label is not None for label in set(move.after.labels) - set(move.before.labels))
            self._registers |= gained
            self._early |= gained and not leaves
        if request is None:
            return
        if isinstance(operation, _STEPS_ON) and not request.arriving:
            self._step(move, request)
        elif leaves and move.name in self._waiting:
            waiting = self._waiting.pop(move.name)
            ends = isinstance(operation, ops.Free) and self._registers
            if ends and request.computed >= len(request.submit.prompt):
                ended = [due for due in waiting.due if due.step < waiting.steps]  # a core may do it a step later
                self._demand(move, request, self._still(request, ended, move.after), "when its request ended")

    def _end(self, group: int, entry: int) -> int:
        """Tokens up to the end of an entry."""
        return (entry + 1) * self.record.rules[group].b

    def _step(self, move: Move, request: Tracked) -> None:
        """One more step of a request that goes on: look at what is full now, and at what has waited for too long."""
        waiting = self._waiting[move.name]
        waiting.steps += 1
        labels = move.after.labels
        for group in self._groups:
            filled, table = request.filled[group], move.after.tables[group].get(move.name, ())
            full = len(filled)
            for entry in range(min(waiting.seen[group], full), min(full, len(table))):
                block = filled[entry][0]
                if labels[block] is None and table[entry] == block and self._is_owed(request, group, entry):
                    waiting.due.append(_Due(group, entry, waiting.steps))
            waiting.seen[group] = full
        if waiting.due:
            waiting.due = self._still(request, waiting.due, move.after)
            late = [due for due in waiting.due if self._early and waiting.steps - due.step >= PATIENCE]
            self._demand(move, request, late, f"{PATIENCE} steps after it was full")
        self.record.reached["contract: S18 checked"] += 1

    def _is_owed(self, request: Tracked, group: int, entry: int) -> bool:
        """True if some later hit can need the block (`lookup.worth_registering`)."""
        record, rule = self.record, self.record.rules[group]
        if self._end(group, entry) > down(min(request.written, len(request.contents)), self.alignment):
            return False
        interval = record.shape.retention_interval
        if interval is None:
            return lookup.worth_registering(rule, entry, self.alignment, 0)
        replay = lookup.replay_boundary(record.rules, self.alignment, len(request.submit.prompt))
        return lookup.worth_registering(rule, entry, interval, replay)

    def _still(self, request: Tracked, due: list[_Due], shown: Snapshot) -> list[_Due]:
        """Those that hold what they held and whose content nobody has registered."""
        record = self.record
        left: list[_Due] = []
        registered: set[int] = set()
        for one in due:
            filled = request.filled[one.group]
            block, filling = filled[one.entry] if one.entry < len(filled) else (0, 0)
            if not block or record.fillings[block] != filling or shown.labels[block] is not None:
                continue
            if not registered:
                registered = {record.content[b] for b, label in enumerate(shown.labels) if label is not None}
                registered.add(UNFILLED)
            if record.content[block] not in registered:
                left.append(one)
        return left

    def _demand(self, move: Move, request: Tracked, late: list[_Due], when: str) -> None:
        for group, entry, _ in late[:1]:
            block = request.filled[group][entry][0]
            what = f"entry {entry}, block {block}, holds tokens up to {self._end(group, entry)}, all computed"
            text = f"{move.name}, group {group}: {what}; nobody has registered it {when}"
            self.record.break_unless_known(self._excuses(), "S18", text, "never registered")

    def _excuses(self) -> Iterator[str]:
        """The known losses that explain why a block is not registered (as those of S14)."""
        shape, rules = self.record.shape, self.record.rules
        if len(rules) == 1 and self.alignment != shape.scheduler_block_size:
            yield "window-kept-for-scheduler"
        if shape.retention_interval is not None and any(rule.behind for rule in rules):
            yield "boundary-without-eagle"


class RegisteredNames:
    """Judges what blocks are registered as: one name for one content, and as many names as can be found."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self._content_of: dict[int, int] = {}
        """Label to the content of the blocks that had it."""
        single = not any(record.small_hash_blocks)  # else a block may keep the name of its part beside its own
        self._counted = single and record.shows("labels", "num_identities")
        self._found = single and record.shows("labels", "earliest")

    def check(self, move: Move) -> None:
        """S7 and S10 for one operation, if the target shows labels."""
        before, after = move.before, move.after
        if move.relabelled:
            for block in compress(range(len(after.labels)), map(ne, before.labels, after.labels)):
                if (now := after.labels[block]) is not None:
                    self._check_content(block, now)
        if self._counted and after.num_identities != (names := len({*after.labels} - {None})):
            what = f"blocks are registered under {names} names, and a lookup can find {after.num_identities}"
            raise Break("S10", f"after {type(move.operation).__name__}: {what}", "other number of names")
        labels, earliest = after.labels, after.earliest if self._found else []
        for block in compress(range(len(earliest)), map(is_not, earliest, repeat(None))):
            found = earliest[block]
            if found is not None and found != block and labels[found] != labels[block]:
                what = f"of label {labels[block]}, as block {block} has it, yields block {found}"
                raise Break("S10", f"a lookup {what}", "found another")

    def _check_content(self, block: int, label: int) -> None:
        content = self.record.content[block]
        if content != UNFILLED and self._content_of.setdefault(label, content) != content:
            raise Break(
                "S7",
                f"block {block} is registered with label {label}, as blocks with other content were",
                "two contents",
            )
