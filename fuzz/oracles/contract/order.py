"""Checks of where blocks that are given back go (S9): what was used last is reused last.

A target that shows the order of its free blocks (it does not hide `free_order`) says by it in which order it evicts.
"""

from collections.abc import Collection, Sequence
from itertools import pairwise

from ....model import ops
from ....model.ops import Done
from .moves import LEAVES, Move
from .properties import Break
from .run_record import RunRecord


def check_given_back(record: RunRecord, move: Move) -> None:
    """S9 of the blocks that have become free."""
    queue = move.after.free
    came = set(queue).difference(move.before.free)
    if not came or move.copies or (isinstance(move.operation, ops.Allocate) and any(record.small_hash_blocks)):
        return  # what was copied for a hit that ends inside a block is put back as the core likes
    if isinstance(move.operation, ops.Release) and move.operation.watched:
        _check_behind(move.operation.blocks, came, queue)
    elif isinstance(move.operation, ops.Release) and move.operation.prepend:
        _check_in_front(move.operation.blocks, came, queue)
    elif record.shows("labels"):
        _check_last_used_last(move, came)
        if type(move.operation) in LEAVES and isinstance(move.outcome, Done):
            _check_ends_first(record, move, came)
    record.reached["contract: S9 of blocks given back"] += 1


def _check_in_front(asked: Sequence[int], came: Collection[int], queue: Sequence[int]) -> None:
    """Who gives blocks back to be reused first finds them in front, in the order given."""
    wanted = [block for block in dict.fromkeys(reversed(asked)) if block in came][::-1]
    if [*queue[: len(wanted)]] != wanted:
        raise Break("S9", f"blocks {wanted} were given back to be reused first, and the queue is {queue}", "put behind")


def _check_behind(asked: Sequence[int], came: Collection[int], queue: Sequence[int]) -> None:
    """Who reads blocks on that he gives back finds them at the end, in the order given."""
    wanted = [block for block in dict.fromkeys(reversed(asked)) if block in came][::-1]
    if [*queue[-len(wanted) :]] != wanted:
        raise Break(
            "S9", f"blocks {wanted} are read on, to be reused last, and the queue is {queue}", "watched in front"
        )


def _check_last_used_last(move: Move, came: set[int]) -> None:
    """Registered blocks that have just been given back stand behind those that have been free for longer."""
    labels, queue = move.after.labels, move.after.free
    if all(labels[block] is None for block in came):
        return
    hot: int | None = None
    for block in queue:
        if labels[block] is None:
            continue
        if block in came:
            hot = block if hot is None else hot
        elif hot is not None:
            what = f"block {hot}, used until now, would be evicted before block {block}"
            raise Break(
                "S9", f"{what}, which was free before; both are registered, and the queue is {queue}", "put in front"
            )


def _check_ends_first(record: RunRecord, move: Move, came: set[int]) -> None:
    """Of one table with full attention the end goes first: without what is before it, a block is of no use."""
    labels, place = move.after.labels, dict(zip(move.after.free, range(len(move.after.free)), strict=True))
    for group, rule in enumerate(record.rules):
        table = move.before.tables[group].get(move.name, ()) if rule.is_full else ()
        row = [block for block in table if block in came and labels[block] is not None]
        for earlier, later in pairwise(row):
            if place[earlier] < place[later]:
                what = f"block {earlier} would be evicted before block {later}, which stands behind it in {table}"
                raise Break("S9", f"{move.name}, group {group}: {what}: no lookup finds that then", "ends last")
