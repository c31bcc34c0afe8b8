"""Checks of room (S17): who fits is not refused, who is admitted fits, and what nobody reads is given back.

Liveness asks the same of whole schedules (L2, L4), where it shows late. Here single answers are judged: what an
allocation takes at most, and what a request comes to hold at least, follows from the shape, from the tables, and from
the arithmetic of the attention types.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from ....model import ops
from ....model.arith import cdiv
from ....model.attention import Mamba, Rule, most_states
from ....model.kinds.rswa import has_gap, unread
from ....model.ops import NULL, Refused
from ....model.snapshot import Snapshot
from ...findings.words import plural
from ..chunk_losses import is_astride
from ..liveness.bounds import Bounds
from .moves import LEAVES, Move, hit_row
from .run_record import RunRecord
from .tracked import Tracked

PATIENCE = 2
"""Further steps of its request for which a block that no query reads may stay in the table."""


class Room:
    """Judges allocations."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self._judged = record.shows("tables") and (record.shows("free") or record.shows("num_free"))
        self._ahead = Bounds(record.shape, record.losses, designs=record.designs).room_ahead
        self._windows = [
            g for g, rule in enumerate(record.rules) if has_gap(rule) or not (rule.is_full or rule.by_encoder)
        ]
        self._left: dict[tuple[bool, ...], int] = {}
        """Per kind of allocation (`_kind`), the fewest blocks that one has left free beside reserved ones."""
        self._unread: dict[str, list[list[range]]] = {}
        """Per request, after each of its last steps: per group of `_windows`, the entries that nobody reads."""

    def check(self, move: Move, held: Counter[int], outside: Collection[int]) -> None:
        """S17 for one operation. `held` and `outside`: who held which block before it."""
        record, operation, request = self.record, move.operation, move.request
        if type(operation) in LEAVES:
            self._unread.pop(move.name, None)
        if not self._judged or request is None or not isinstance(operation, ops.Allocate):
            return
        if isinstance(move.outcome, Refused):
            self._check_refused(move, operation, request, {*held, *outside})
            record.reached["contract: S17 checked"] += 1
            return
        self._check_reserved(move, operation)
        kind, left = self._kind(move, operation), self._free(move.after) - self._kept_free(move, operation)
        self._left[kind] = min(left, self._left.get(kind, left))
        if operation.gate:
            self._check_admitted(move, operation, request, {*held, *outside})
        if self._windows:
            self._check_given_back(move, request)
        record.reached["contract: S17 checked"] += 1

    def _free(self, shown: Snapshot) -> int:
        return shown.num_free if self.record.shows("num_free") else len(shown.free)

    # Who fits is not refused.

    def _check_refused(self, move: Move, op: ops.Allocate, request: Tracked, used: Collection[int]) -> None:
        """The blocks that the allocation can take at most are more than are free."""
        record = self.record
        rows = [hit_row(move, group) for group in range(len(record.rules))]
        if any(isinstance(rule, Mamba) and any(row) for rule, row in zip(record.rules, rows, strict=True)):
            return  # a state that is only computed in this step: L3 is about these
        runs = any(op.request in tables for tables in move.before.tables)
        if not (runs or op.hit) and any(record.key(request, g, 0) in record.content for g in range(len(rows))):
            return  # a core may insist on what it would find
        free = self._free(move.before) - self._kept_free(move, op)
        left = 0 if self.record.shape.watermark else self._left.get(self._kind(move, op))  # else it is inferred
        if left is None:
            return
        most = self._most(move.before, op, request, rows, used)
        if most <= free - max(0, left):
            apart = ["pools-apart"] if len(record.rules) > 1 else []
            what = f"{move.name} was refused, though it takes at most {plural(most, 'block')}, {free} are free"
            before = (
                f"beside {self._kept_free(move, op)} reserved ones, and another like it has left no more than {left}"
            )
            record.break_unless_known(apart, "S17", f"{what} {before}", "refused with room")
        record.reached["contract: S17 of refusals"] += 1

    def _kept_free(self, move: Move, op: ops.Allocate) -> int:
        """Blocks that stay free behind this allocation: those for others, and where somebody is admitted while others
        run, the watermark."""
        return op.reserved + (0 if move.ran or op.alone else self.record.shape.watermark)

    @staticmethod
    def _kind(move: Move, op: ops.Allocate) -> tuple[bool, ...]:
        """Allocations for which a core keeps as many blocks in reserve, if it does: first ones or those of running
        requests, with the gate or without, beside others or alone."""
        names = {name for tables in move.before.tables for name in tables}
        return op.request in names, op.gate, len(names - {op.request}) > 0

    def _most(
        self, before: Snapshot, op: ops.Allocate, request: Tracked, rows: Sequence[Sequence[int]], used: Collection[int]
    ) -> int:
        """The most blocks that leave the free queue: new ones, and those of the hit that nobody holds."""
        shape = self.record.shape
        total = request.computed + (request.hit[0] if op.hit and request.hit else 0) + op.external
        end = total + op.new_tokens + op.lookahead
        if op.gate:
            end = max(end, len(request.contents) + op.lookahead)
        end = min(end, shape.max_model_len) + self._ahead
        most = 0
        for group, (rule, row) in enumerate(zip(self.record.rules, rows, strict=True)):
            entries = len(before.tables[group].get(op.request, ())) or len(row)
            most += self.record.small_hash_blocks[group]  # for a copy
            most += sum(block != NULL and block not in used for block in row)
            if isinstance(rule, Mamba) and rule.align:
                most += max(0, cdiv(total, rule.b) - entries) if op.external else 0
                kept = cdiv(total + op.new_tokens, rule.b) - rule.lasting(total, total + op.new_tokens)
                # Beside the running state the gate counts the one before it, or all that drafts reach over.
                states = kept + rule.p + op.gate + bool(rule.group.checkpoint)
                most += max(states, most_states(rule, end) if op.gate else 0)
            else:
                most += max(0, rule.required(op.encoder_tokens if rule.by_encoder else end) - entries)
        return most

    # Who is admitted fits.

    def _check_reserved(self, move: Move, op: ops.Allocate) -> None:
        """What is reserved for others is still free."""
        record, left = self.record, self._free(move.after)
        if op.reserved and left < op.reserved and left < self._free(move.before):
            what = f"{move.name} was given blocks though {op.reserved} are reserved: {left} are left"
            record.break_unless_known(self._outside_losses(op), "S17", what, "reserved taken")
        self.record.reached["contract: S17 of reserved blocks"] += op.reserved > 0
        kept = self._kept_free(move, op)
        if kept > op.reserved:
            if left < kept and left < self._free(move.before):
                what = (
                    f"{move.name} was admitted while others run: {left} blocks are left, and {kept} have to stay free"
                )
                record.break_unless_known(self._outside_losses(op), "S17", what, "watermark taken")
            self.record.reached["contract: S17 of the watermark"] += 1

    def _outside_losses(self, op: ops.Allocate) -> Iterator[str]:
        """Known losses that explain why more blocks are taken than were counted for tokens from outside."""
        if op.external and any(isinstance(rule, Mamba) and rule.align for rule in self.record.rules):
            yield "mamba-external-state"

    def _check_admitted(self, move: Move, op: ops.Allocate, request: Tracked, used: Collection[int]) -> None:
        """The gate has counted no less than what the request comes to hold with the tokens that are known (T16). Room
        for drafts it may leave to the steps, and what is reserved as well."""
        record = self.record
        known, start = len(request.contents), request.computed
        prompt = len(request.submit.prompt)
        ahead = sum(self._comes_to_hold(rule, op, prompt, start, known) for rule in record.rules)
        own = {block for tables in move.before.tables for block in tables.get(move.name, ()) if block != NULL}
        rows = (hit_row(move, group) for group in range(len(record.rules)))
        own.update(block for row in rows for block in row if block != NULL and block in used)
        free = self._free(move.before)
        if ahead > free + len(own):
            what = f"its {known} tokens, the first {start} of them computed, come to hold {plural(ahead, 'block')}"
            text = f"the gate let {move.name} in: {what} at once, and {free} were free beside {len(own)} that are held"
            record.break_unless_known(self._gate_losses(start), "S17", text, "over-admitted")
        record.reached["contract: S17 of admissions"] += 1

    def _comes_to_hold(self, rule: Rule, op: ops.Allocate, prompt: int, start: int, known: int) -> int:
        """Blocks that a request holds at some moment from `start` on, until its `known` tokens are computed."""
        if rule.by_encoder:
            return rule.required(op.encoder_tokens)
        if isinstance(rule, Mamba) and rule.align:
            return most_states(rule, known)
        if rule.is_full and not has_gap(rule):
            return rule.required(known)
        batched = self.record.shape.max_num_batched_tokens
        places = range(min(start, known - 1), known)
        return max(rule.required(min(place + batched, known)) - len(unread(rule, prompt, place)) for place in places)

    def _gate_losses(self, start: int) -> Iterator[str]:
        """Known losses that explain why the gate counts too little."""
        rules = self.record.rules
        if start and any(rule.cap() is not None for rule in rules):
            yield "gate-behind-hit"
        if any(isinstance(rule, Mamba) and rule.align for rule in rules):
            yield "mamba-gate"
        if any(map(is_astride, rules)):
            yield "chunked-cap"

    # What nobody reads is given back.

    def _check_given_back(self, move: Move, request: Tracked) -> None:
        """Entries that no query read any more some steps ago are null: of states all, of a window all but the one that
        it is about to leave, as soon as a block is taken again."""
        record, steps = self.record, self._unread.setdefault(move.name, [])
        if len(steps) == PATIENCE:
            for group, dead in zip(self._windows, steps.pop(0), strict=True):
                rule, table = record.rules[group], move.after.tables[group].get(move.name, [])
                kept = [block for block in table[dead.start : dead.stop] if block != NULL]
                if kept and (isinstance(rule, Mamba) or (move.taken and len(kept) > 1)):
                    piles = ["mamba-states-pile-up"] if isinstance(rule, Mamba) and rule.p else []
                    what = f"entries {dead.start} to {dead.stop - 1} of {table} have not been read for {PATIENCE} steps"
                    text = f"{move.name}, group {group}: {what}, yet blocks {kept} stay there"
                    record.break_unless_known(piles, "S17", text, "kept too long")
        settled = min(request.running, request.computed, len(request.contents) - 1)  # which a core may go by
        rules, prompt = [record.rules[group] for group in self._windows], len(request.submit.prompt)
        steps.append([unread(rule, prompt, settled - rule.p) for rule in rules])
        record.reached["contract: S17 of windows"] += 1
