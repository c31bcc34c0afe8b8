"""What a core does otherwise than most and has declared (`declarations.DESIGNS`): what of it the contract forgives.

Only the fact that is declared is forgiven. A block may lose its content by an eviction only if nobody holds it
afterwards; an entry may change only to a block that holds the same content; and whatever is still registered has to be
found.
"""

from collections import Counter
from collections.abc import Collection

from ....model import ops
from ....model.ops import NULL
from ....model.snapshot import Snapshot
from ...targets.declarations import EVICTS_MORE, EXCHANGES, FORGETS_PREEMPTED
from .moves import Move
from .run_record import UNFILLED, RunRecord


def forgiven_loss(record: RunRecord, move: Move, block: int, held: Counter[int], outside: Collection[int]) -> str:
    """The design by which this block may have lost its content in an operation; empty if there is none.

    `held` and `outside`: who holds blocks after the operation.
    """
    if held[block] or block in outside:
        return ""
    if EVICTS_MORE in record.designs:
        return EVICTS_MORE
    had = any(block in tables.get(move.name, ()) for tables in move.before.tables)
    preempted = FORGETS_PREEMPTED in record.designs and isinstance(move.operation, ops.Preempt)
    if preempted and (had or _goes_on_from(record, block, move)):
        return FORGETS_PREEMPTED
    same = had and _is_elsewhere(record, move.after, block)
    return EXCHANGES if EXCHANGES in record.designs and same else ""


def _goes_on_from(record: RunRecord, block: int, move: Move) -> bool:
    """True if the block holds what comes behind a block that the request had and that is forgotten: nobody would find
    it without that, and a tree loses both."""
    begun, labels = record.begun[block], move.after.labels
    if begun is None:
        return False
    before = set(begun.contents[: begun.end])
    gone = (other for other in move.given_up if labels[other] is None and record.content[other] != UNFILLED)
    return any(record.content[other] // len(record.rules) in before for other in gone)


def _is_elsewhere(record: RunRecord, after: Snapshot, block: int) -> bool:
    """True if another block is registered that holds the same content."""
    content = record.content[block]
    return content != UNFILLED and any(
        label is not None and other != block and record.content[other] == content
        for other, label in enumerate(after.labels)
    )


def without_evictions(designs: Collection[str], hides: Collection[str], before: Snapshot, after: Snapshot) -> Snapshot:
    """The snapshot after an operation that changes nothing, with what an eviction by itself may change put back: where
    more may be evicted than is needed, labels of blocks that nobody holds, and what follows from these."""
    if EVICTS_MORE not in designs or before == after:
        return after
    held = {block for tables in after.tables for table in tables.values() for block in table}
    if "labels" not in hides:
        lost = {
            block
            for block, (was, now) in enumerate(zip(before.labels, after.labels, strict=False))
            if was is not None and now is None and block not in held
        }
        labels = [before.labels[block] if block in lost else label for block, label in enumerate(after.labels)]
        after = after._replace(labels=labels)
        if not lost:
            return after
    told = after.events[len(before.events) :]
    if after.events[: len(before.events)] == before.events and all(
        isinstance(event, tuple) and event[0] == "removed" for event in told
    ):
        after = after._replace(events=before.events)
    fewer = after.num_identities <= before.num_identities
    queue = before.free if sorted(before.free) == sorted(after.free) else after.free
    identities = before.num_identities if fewer else after.num_identities
    return after._replace(num_identities=identities, free=queue, earliest=before.earliest)


def without_exchanges(record: RunRecord, name: str, before: Snapshot, after: Snapshot) -> Snapshot:
    """The snapshot after a call that is refused, with what merging blocks of this request may change put back: what is
    registered of its full blocks, and of those that stand for them now."""
    sides = (before, after)
    own = {block for side in sides for tables in side.tables for block in tables.get(name, ())} - {NULL}
    if EXCHANGES not in record.designs or (record.shows("tables") and not own):
        return after
    labels = after.labels if record.shows("tables") else before.labels
    if record.shows("labels", "tables"):
        full = {block for block in own if record.may_be_registered(block)}
        labels = [before.labels[block] if block in full else label for block, label in enumerate(labels)]
    others = [{**now, name: was.get(name, 0)} for was, now in zip(before.registered, after.registered, strict=True)]
    same = [{**was, name: was.get(name, 0)} for was in before.registered] == others
    return after._replace(
        labels=labels,
        earliest=before.earliest,
        num_identities=before.num_identities,
        registered=before.registered if same else after.registered,
        events=before.events if after.events[: len(before.events)] == before.events else after.events,
    )
