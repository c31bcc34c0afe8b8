"""Checks of what a core tells those who do not read its tables: workers, and who clears blocks (S16).

A worker keeps a copy of each table, to which a step adds what `Allocate` has answered. Blocks whose ids are told as new
are cleared before they are used: one that is missing keeps what it held, and one too many loses what others read.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import chain

from ....model import ops
from ....model.attention import Mamba
from ....model.ops import Done
from .landing import loaded_entries
from .moves import Move, hit_row
from .properties import Break
from .run_record import RunRecord

ANSWERS = frozenset({ops.Allocate, ops.Take, ops.ReadTable, ops.CommonPrefix, ops.TakeNewBlockIds})
"""Operations that tell of blocks, or hand them out."""


class BlockAnswers:
    """Judges answers about blocks."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self._lists_new = record.shows("new_block_ids")
        self._lists_all = [False] * len(record.rules)
        """Per group: whether all its new blocks must be told. That is so for attention (`ops.TakeNewBlockIds`) once
        the core has told all blocks of one operation: where nobody clears blocks, an engine tells none."""
        grows = record.shows("append_only")
        self._is_added_to = [grows and not (isinstance(rule, Mamba) and rule.align) for rule in record.rules]
        """Per group: whether workers add to their copy of a table. In mode align blocks move inside it, and an engine
        that exchanges blocks tells all of it."""

    def check(self, move: Move, held: Counter[int], outside: Collection[int]) -> None:
        """S16 for one operation. `held` and `outside`: who holds which block, after it."""
        drains = isinstance(move.operation, ops.TakeNewBlockIds)
        if self._lists_new and (drains or move.taken or move.before.new_block_ids != move.after.new_block_ids):
            self._check_new_ids(move)
        if not isinstance(move.outcome, Done):
            return
        match move.operation:
            case ops.Allocate():
                self._check_answer(move)
            case ops.ReadTable(name):
                table = tuple(tuple(tables.get(name, ())) for tables in move.after.tables)
                if move.outcome.value != table:
                    raise Break(
                        "S16", f"{name} is told the table {move.outcome.value}, and has {table}", "another table"
                    )
            case ops.CommonPrefix(name):
                self._check_common(name, move, held + Counter(outside))

    def _check_new_ids(self, move: Move) -> None:
        before, after = move.before.new_block_ids, move.after.new_block_ids
        if isinstance(move.operation, ops.TakeNewBlockIds) and isinstance(move.outcome, Done):
            pending, told = sorted(chain(*before)), move.outcome.value
            ids = sorted(id for id in told if isinstance(id, int)) if isinstance(told, tuple) else None
            if ids != pending or any(after):
                raise Break(
                    "S16", f"new ids {before} were pending, {told} were handed out, {after} are left", "drained"
                )
            return
        for group, (old, new) in enumerate(zip(before, after, strict=True)):
            if new[: len(old)] != old:
                raise Break("S16", f"group {group}: ids of new blocks were {old} and are {new}", "pending ids")
            self._check_gained(move, group, new[len(old) :])
        self.record.reached["contract: S16 of new ids"] += 1

    def _check_gained(self, move: Move, group: int, told: Sequence[int]) -> None:
        table = move.after.tables[group].get(move.name, ())
        handed = [block for block in move.taken if block in table]
        if not handed and not told:
            return
        rule = self.record.rules[group]
        full = rule.is_full and not rule.sinks
        if (spared := self._spared(move, group)) and set(handed) - spared <= set(told) <= set(handed):
            return
        if sorted(told) == sorted(handed):
            self._lists_all[group] |= full and not self._copies(move)
            return
        if not told and not self._lists_all[group]:
            return
        gained, taken = Counter(told), Counter(handed)
        if more := gained - taken:
            what = f"{sorted(more.elements())} are told as new, and {sorted(taken)} were handed out"
            raise Break("S16", f"group {group}: blocks {what}: what others have there would be cleared", "not new")
        if self._lists_all[group] and not self._copies(move) and (missing := taken - gained):
            raise Break(
                "S16", f"group {group}: blocks {sorted(missing)} were handed out and are not told as new", "missing ids"
            )
        if gained and full and not self._copies(move):
            self._lists_all[group] = False

    def _spared(self, move: Move, group: int) -> set[int]:
        """Blocks of the group that need not be told, since a load writes them (`Allocate.unzeroed`)."""
        operation, request = move.operation, move.request
        if not isinstance(operation, ops.Allocate) or request is None or group not in operation.unzeroed:
            return set()
        start, end = request.computed - operation.external, request.computed
        entries = loaded_entries(self.record.rules[group], start, end)
        return {*move.after.tables[group].get(move.name, ())[entries.start : entries.stop]}

    def _copies(self, move: Move) -> bool:
        """True if a block of this operation may be a copy, for a hit that ends inside it, and not cleared."""
        return isinstance(move.operation, ops.Allocate) and move.operation.hit and any(self.record.small_hash_blocks)

    def _check_answer(self, move: Move) -> None:
        """The answer of an allocation: what stands behind the old end of each table, or behind the hit."""
        operation, answer = move.operation, move.outcome.value if isinstance(move.outcome, Done) else None
        assert isinstance(operation, ops.Allocate)
        if not isinstance(answer, tuple):
            return
        if answer[:1] == ("not None",):  # `snapshot.new_ids_value`
            raise Break(
                "S16", f"{move.name} gets no new block, which is told as {answer[1:]} and not as None", "nothing new"
            )
        for group, row in enumerate(answer[: len(self._is_added_to)]):
            before, after = (side.tables[group].get(move.name, []) for side in (move.before, move.after))
            start = len(before) or len(hit_row(move, group))
            if not self._is_added_to[group] or not (before or not (operation.external or self._copies(move))):
                continue
            if row != tuple(after[start:]):
                what = f"{row} are told as new, and {tuple(after[start:])} were added to {after[:start]}"
                raise Break("S16", f"{move.name}, group {group}: blocks {what}", "another answer")
        self.record.reached["contract: S16 checked"] += 1

    def _check_common(self, name: str, move: Move, holders: Counter[int]) -> None:
        """As many leading blocks as are told have at least as many holders as there are tables in the group."""
        told = move.outcome.value if isinstance(move.outcome, Done) else None
        for group, count in enumerate(told if isinstance(told, tuple) else ()):
            tables = move.after.tables[group]
            first = tables.get(name, ())[: count if isinstance(count, int) else 0]
            alone = [block for block in first if holders[block] < len(tables)]
            if not isinstance(count, int) or count != len(first) or alone:
                what = f"{len(tables)} requests share its first {count} blocks, of {tables.get(name, [])}"
                raise Break(
                    "S16", f"{name}, group {group}: told that {what}; not held by all: {alone}", "common prefix"
                )
