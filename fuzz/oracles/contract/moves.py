"""What one operation changed in the block tables: which blocks were handed out and given up (S2, S5, S12)."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from ....model import ops
from ....model.attention import Mamba
from ....model.ops import NULL, Done, Operation, Outcome, Value
from ....model.snapshot import Snapshot
from .properties import Break
from .run_record import UNFILLED, RunRecord
from .tracked import Tracked

LEAVES = frozenset({ops.Free, ops.Preempt})
"""Operations with which a request gives all its blocks back."""
_CUTS = (ops.Allocate, ops.RemoveSkipped)
"""Those with which it may give back some."""


class Move(NamedTuple):
    """An operation and its effect. Lists of blocks are in table order, group by group."""

    operation: Operation
    outcome: Outcome
    before: Snapshot
    after: Snapshot
    name: str
    """The request that the operation names; empty if it names none."""
    request: Tracked | None
    """The request's record from before the operation; None if it is unknown."""
    taken: list[int]
    """Blocks that were handed out to be filled, to the request or to an outside holder."""
    attached: list[int]
    """Blocks of the hit with which the tables begin now."""
    given_up: list[int]
    """Blocks that were in the request's tables and are not any more."""
    relabelled: bool = False
    """True if a label has changed."""
    ran: bool = False
    """True if the request had been admitted before."""
    copies: Sequence[tuple[int, int]] = ()
    """Pairs of blocks, source and target, that were copied."""
    told: Sequence[Value] = ()
    """What was told besides the outcome (`targets.base.handed_of`)."""

    @property
    def tables_changed(self) -> bool:
        """True if a block was taken, attached or given up."""
        return bool(self.taken or self.attached or self.given_up)


def move_of(
    record: RunRecord, operation: Operation, outcome: Outcome, before: Snapshot, after: Snapshot, *beside: Any
) -> Move:
    """The effect of an operation; `beside`: its copies, and what was told. Break if it changed a table as no operation
    may (S5, S12)."""
    name = operation.request if isinstance(operation, ops.OnRequest) else ""
    relabelled = before.labels is not after.labels and before.labels != after.labels
    request = record.requests.get(name)
    ran = request is not None and request.runs
    move = Move(operation, outcome, before, after, name, request, [], [], [], relabelled, ran, *beside)
    if isinstance(operation, ops.Take) and isinstance(outcome, Done):
        move.taken.extend(block for block in _ids(outcome.value) if block != NULL)
    if after.tables is not before.tables:
        for group, (old, new) in enumerate(zip(before.tables, after.tables, strict=True)):
            if old != new:
                _in_group(record, move, group, old, new)
    if type(operation) in LEAVES and (left := [group for group, tables in enumerate(after.tables) if name in tables]):
        table = after.tables[left[0]][name]
        raise Break("S12", f"{name} was given up, yet its table in group {left[0]} is {table}", "still holds")
    return move


def _ids(value: object) -> list[int]:
    return [block for block in value if isinstance(block, int)] if isinstance(value, tuple) else []


def _in_group(record: RunRecord, move: Move, group: int, old: dict[str, list[int]], new: dict[str, list[int]]) -> None:
    for name in old.keys() | new.keys():
        if name != move.name and old.get(name) != new.get(name):
            change = f"{old.get(name)} -> {new.get(name)}"
            what = f"the table of {name}, which the operation does not name: {change}"
            raise Break("S5", f"group {group}: {what}", "another request")
    had, has = old.get(move.name, []), new.get(move.name, [])
    if had == has:
        return
    operation = move.operation
    if type(operation) in LEAVES:
        move.given_up.extend(block for block in had if block != NULL)
        return
    what = f"group {group}: the table of {move.name} went from {had} to {has}"
    if not isinstance(operation, _CUTS) and not record.merges:
        raise Break("S5", f"{what}, which {type(operation).__name__} may not change", "may not change")
    if len(has) < len(had):
        raise Break("S5", f"{what}: {len(has)} < {len(had)} entries", "shorter")
    gone = [entry for entry, block in enumerate(had) if block != has[entry]]
    for entry in gone:
        if has[entry] == NULL and not isinstance(operation, _CUTS):
            gave_up = f"entry {entry} was given up, which {type(operation).__name__} may not do"
            raise Break("S5", f"{what}: {gave_up}", "given up")
        if has[entry] != NULL and not _may_replace(record, move, group, entry, had[entry], has[entry]):
            exchanged = f"entry {entry} was block {had[entry]} and is {has[entry]}, not null"
            raise Break("S5", f"{what}: {exchanged}", "exchanged")
    if len(has) > len(had) and not isinstance(operation, ops.Allocate):
        raise Break("S5", f"{what}: it grew without an allocation", "grew")
    _note(record, move, group, had, has, gone)


def _note(
    record: RunRecord, move: Move, group: int, had: Sequence[int], has: Sequence[int], gone: Sequence[int]
) -> None:
    """Put blocks that are new or gone into the lists of the move."""
    given_up = [had[entry] for entry in gone if had[entry] != NULL]
    row = hit_row(move, group)
    rule = record.rules[group]
    for entry in range(len(had), len(has)):
        block = has[entry]
        if block == NULL:
            continue
        if isinstance(rule, Mamba) and rule.align and block in given_up and record.content[block] == UNFILLED:
            given_up.remove(block)  # a draft's state that moved to a later entry; a full block would have been freed
        elif block in row[entry : entry + 1] or _is_merged(record, move, group, entry, block):
            move.attached.append(block)
        else:
            move.taken.append(block)
    exchanged = [has[entry] for entry in gone if has[entry] != NULL]
    (move.taken if _moves_states(record, group) else move.attached).extend(exchanged)
    move.given_up.extend(given_up)


def _may_replace(record: RunRecord, move: Move, group: int, entry: int, old: int, new: int) -> bool:
    """True if a table entry may change from block `old` to block `new`."""
    operation, request = move.operation, move.request
    if record.is_copy(old, new):
        return True
    if isinstance(operation, ops.Advance) and request is not None and record.merges:
        return record.completes(request, operation, group, entry) == record.content[new] != UNFILLED
    moves = _moves_states(record, group) or _is_merged(record, move, group, entry, new)
    return isinstance(operation, _CUTS) and moves


def _is_merged(record: RunRecord, move: Move, group: int, entry: int, block: int) -> bool:
    """True if the block stands in the table for what it holds; not if it was evicted, and will hold it again."""
    if move.request is None or not record.is_merged(move.request, group, entry, block):
        return False
    return not record.shows("labels") or move.before.labels[block] is None or move.after.labels[block] is not None


def _moves_states(record: RunRecord, group: int) -> bool:
    """True if a running state may move to a new block, because its old one was registered inside a block."""
    rule = record.rules[group]
    return isinstance(rule, Mamba) and rule.align and record.small_hash_blocks[group]


def hit_row(move: Move, group: int) -> Sequence[int]:
    """The group's blocks of the hit that an allocation uses; empty for any other operation."""
    request, operation = move.request, move.operation
    if not (isinstance(operation, ops.Allocate) and operation.hit and request and request.hit):
        return ()
    rows = request.hit[1]
    return rows[group] if group < len(rows) else ()


def check_not_held(move: Move, held: Counter[int], outside: Collection[int]) -> None:
    """S2: blocks that were handed out have no other holder. `held` and `outside`: holders before the operation."""
    for block in move.taken:
        if held[block] > move.given_up.count(block) or block in outside:
            tables = [
                f"{name} in group {group}"
                for group, of_group in enumerate(move.before.tables)
                for name, table in of_group.items()
                if block in table
            ]
            holders = ", ".join(tables) or "somebody outside"
            raise Break("S2", f"block {block} was handed out while {holders} still holds it", "held")
    if len(set(move.taken)) < len(move.taken):
        raise Break("S2", f"one block was handed out twice: {move.taken}", "twice")


def check_same_content(record: RunRecord, move: Move, held: Counter[int], start: int) -> None:
    """S2: a block in two table entries holds the full content of both. `start`: the first token the step writes."""
    request = move.request
    assert request is not None
    for group, tables in enumerate(move.after.tables):
        for entry, block in enumerate(tables.get(move.name, ())):
            if block == NULL or held[block] < 2 or (entry + 1) * record.rules[group].b > start:
                continue
            record.reached["contract: hit of a shared block"] += block in move.attached
            if record.key(request, group, entry) != record.content[block]:
                others = sorted(
                    f"{name} in group {at}, entry {table.index(block)}"
                    for at, of_group in enumerate(move.after.tables)
                    for name, table in of_group.items()
                    if block in table and (name, at) != (move.name, group)
                )
                who = ", ".join(others) or "itself again"
                text = f"block {block} stands for entry {entry} of {move.name} in group {group} and for {who}"
                raise Break("S2", f"{text}: not the same content", "another content")
