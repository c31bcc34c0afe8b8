"""Checks of the pool: which blocks are free, which are held, in which order they are reused (S1, S4, S8, S9)."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile

from ....model import ops
from ....model.attention import Mamba
from ....model.kinds.rswa import unread
from ....model.lookup import alignment
from ....model.ops import NULL, Done, Failed, Operation
from ....model.snapshot import Snapshot
from ...findings.difference import difference
from ...findings.words import plural
from ...targets.declarations import EVICTS_MORE
from ..chunk_losses import is_hard_to_look_up
from .designs import without_evictions, without_exchanges
from .moves import LEAVES, Move, hit_row
from .properties import Break
from .run_record import RunRecord


def check_null_untouched(record: RunRecord, move: Move) -> None:
    """S4: the null block is never free, registered or handed out."""
    if record.shows("free") and NULL in move.after.free:
        raise Break("S4", f"the null block {NULL} is in the free list {move.after.free}", "free")
    if record.shows("labels") and move.after.labels and move.after.labels[NULL] is not None:
        raise Break("S4", f"the null block {NULL} is registered, with label {move.after.labels[NULL]}", "registered")
    handed = move.outcome.value if isinstance(move.outcome, Done) and isinstance(move.operation, ops.Take) else ()
    if isinstance(handed, tuple) and NULL in handed:
        raise Break("S4", f"the null block {NULL} was handed out: {handed}", "handed out")


def check_conserved(
    record: RunRecord, after: Snapshot, held: Counter[int], outside: Sequence[int], set_aside: Collection[int]
) -> None:
    """S1: every block is free or held. `held` counts table entries; `outside` has a block once per reference."""
    pool = range(1, record.shape.num_blocks)
    holders = held.keys() | set(outside) | set(set_aside)
    if wrong := sorted(block for block in holders if block not in pool):
        raise Break("S1", f"tables name blocks {wrong}; the pool has 1 .. {pool.stop - 1}", "outside of the pool")
    sinks = record.sinks
    if not record.shows("free"):
        if record.shows("num_free") and after.num_free + len(holders) + sinks != len(pool):
            numbers = f"{after.num_free} free + {len(holders)} held + {sinks} set aside"
            kind = "too many" if after.num_free + len(holders) + sinks > len(pool) else "too few"
            raise Break("S1", f"{numbers} != {len(pool)} blocks of the pool", kind)
        return
    free = set(after.free)
    if len(free) != len(after.free):
        twice = sorted(block for block, times in Counter(after.free).items() if times > 1)
        raise Break("S1", f"blocks {twice} stand twice in the free list {after.free}", "free twice")
    if not free.isdisjoint(holders):
        both = free & holders
        raise Break("S1", f"blocks {sorted(both)} are free and held: {_holders(after, both)}", "free and held")
    if len(free) + len(holders) != len(pool) or len(set_aside) != sinks:
        lost = sorted(set(pool) - free - holders)
        counts = f"{len(free)} free + {len(holders)} held, {sinks} of them set aside"
        raise Break(
            "S1", f"{counts} != {len(pool)} blocks of the pool; neither free nor held: {lost or set_aside}", "lost"
        )
    if record.shows("num_free") and after.num_free != len(free):
        raise Break("S1", f"the free count is {after.num_free}, but {len(free)} blocks are free", "free count")
    if record.shows("ref_cnt"):
        _check_references(after, held, outside, set(pool) - set(set_aside))


def _check_references(after: Snapshot, held: Counter[int], outside: Sequence[int], blocks: Collection[int]) -> None:
    """The reference count of each of `blocks` is the number of its holders."""
    counts = [0] * len(after.ref_cnt)
    for block, times in held.items():
        counts[block] = times
    for block in outside:
        counts[block] += 1
    if counts == after.ref_cnt:
        return
    for block in blocks:
        if counts[block] != after.ref_cnt[block]:
            what = f"{after.ref_cnt[block]} references, but {counts[block]} holders: {_holders(after, {block})}"
            fewer = after.ref_cnt[block] < counts[block]
            raise Break("S1", f"block {block} has {what}", "too few references" if fewer else "too many references")


def _holders(after: Snapshot, blocks: Collection[int]) -> str:
    found = [
        f"{name} in group {group}"
        for group, tables in enumerate(after.tables)
        for name, table in tables.items()
        if not set(table).isdisjoint(blocks)
    ]
    return ", ".join(found) or "in no table"


def check_failure(record: RunRecord, operation: Operation, outcome: Failed, before: Snapshot, after: Snapshot) -> None:
    """S8: an allowed operation may fail only if it takes more blocks than are free; it changes nothing then."""
    name, free = type(operation).__name__, before.num_free if record.shows("num_free") else len(before.free)
    if not (isinstance(operation, ops.Take) and operation.count > free):
        hard = is_hard_to_look_up(record.rules, alignment(record.shape, record.rules))
        known = [*_reasons(record, operation, before)]
        refuses = [*known, *(["chunked-refuses"] if isinstance(operation, ops.Lookup) and hard else [])]
        what = f"{name} raised {outcome.error}, although it makes sense here ({plural(free, 'block')} free)"
        record.break_unless_known(refuses, "S8", what, "raised")
        if isinstance(operation, ops.Allocate) and not record.losses.isdisjoint(known):
            return  # half of its work is done
    after = without_evictions(record.designs, record.hides, before, after)
    if after != before:
        changes = "; ".join(difference(before, after))
        raise Break("S8", f"{name} failed with {plural(free, 'block')} free, and changed: {changes}", "changed")


def _reasons(record: RunRecord, operation: Operation, before: Snapshot) -> Iterator[str]:
    """Known losses that explain why a call fails for what it is asked besides."""
    request = record.requests.get(operation.request) if isinstance(operation, ops.OnRequest) else None
    if isinstance(operation, ops.Lookup) and request is not None and request.submit.reports_hits:
        yield "reported-as-whole"
    if isinstance(operation, ops.Allocate) and request is not None:
        if operation.hit and operation.external and request.asked is not None and request.asked.for_connector:
            yield "windows-left-behind"
        end = request.computed + operation.new_tokens
        if not operation.external and any(
            isinstance(rule, Mamba) and rule.align and len(tables.get(operation.request, ())) > rule.required(end)
            for rule, tables in zip(record.rules, before.tables, strict=True)
        ):
            yield "mamba-negative-demand"


_UNTOUCHED = ("labels", "earliest", "num_identities", "registered", "events", "new_block_ids", "stats")


def check_refusal(record: RunRecord, operation: Operation, before: Snapshot, after: Snapshot) -> None:
    """S8: a refused allocation changes nothing, except that it may give back skipped blocks of its request."""
    if not isinstance(operation, ops.Allocate):
        raise Break("S8", f"{type(operation).__name__} was refused, which only an allocation can be", "refused")
    excused = without_evictions(record.designs, record.hides, before, after)
    excused = without_exchanges(record, operation.request, before, excused)
    for field in _UNTOUCHED:
        if getattr(before, field) != getattr(excused, field):
            changes = "; ".join(difference(before, excused))
            raise Break("S8", f"the allocation was refused and changed {field}: {changes}", field)
    request = record.requests[operation.request]
    for group, rule in enumerate(record.rules):
        if before.tables[group] == after.tables[group]:
            continue
        old, new = (side.tables[group].get(operation.request, []) for side in (before, after))
        dead = unread(rule, len(request.submit.prompt), request.computed)
        others = before.tables[group] | {operation.request: old} != after.tables[group] | {operation.request: old}
        kept = len(old) == len(new) and all(
            now == was or (now == NULL and entry in dead) or record.is_copy(was, now)
            for entry, (was, now) in enumerate(zip(old, new, strict=True))
        )
        if others or not kept:
            change = f"{before.tables[group]} -> {after.tables[group]}"
            raise Break(
                "S8", f"group {group}: refused, yet more changed than the {len(dead)} dead entries: {change}", "tables"
            )
    merged = [block for tables in after.tables for block in tables.get(operation.request, ())] if record.merges else []
    if record.shows("free") and (gone := [b for b in before.free if b not in after.free and b not in merged]):
        raise Break("S8", f"the allocation was refused, yet blocks {gone} are free no more", "took")


def _in_queue(record: RunRecord, move: Move) -> list[int]:
    """The blocks that were free, without those evicted by an operation that may evict more than it needs: their place
    in the queue may be another one then."""
    if EVICTS_MORE not in record.designs or not record.shows("labels"):
        return move.before.free
    was, now = move.before.labels, move.after.labels
    return [block for block in move.before.free if was[block] is None or now[block] is not None]


def _renewed(record: RunRecord, move: Move) -> set[int]:
    """Free blocks that count as used until now, as they hold what the request holds that gives its blocks back: they
    stand behind all others that were free before."""
    request = move.request
    if request is None or type(move.operation) not in LEAVES:
        return set()
    known, free = len(request.contents), set(move.before.free)
    keys = {record.key(request, group, i) for group, rule in enumerate(record.rules) for i in range(known // rule.b)}
    last = (block for block in reversed(move.after.free) if block in free)
    renewed = set(takewhile(lambda block: record.content[block] in keys, last))
    if renewed:
        record.reached["contract: free blocks counted as used again"] += 1
    return renewed


def _staying(
    record: RunRecord,
    move: Move,
    queue: Sequence[int],
    left: Sequence[int],
    renewed: Collection[int],
    copies: bool,
) -> list[int]:
    """The free blocks that had to keep their order, where it is not seen at once. Break if they have not."""
    free = set(left)
    staying = [block for block in queue if block in free and block not in renewed]
    if copies:  # a hit that ends inside a block is copied: its source is taken, and put back at the end of the queue
        sources = {block for group in range(len(record.rules)) for block in hit_row(move, group)[-1:]}
        staying = [block for block in staying if block not in sources]
    known = set(staying)
    now = [block for block in left if block in known]
    if copies and now != staying:  # the same happens to blocks to which a state is copied for later hits
        record.reached["contract: free block copied and put back"] += 1
        staying = now = now[:1]  # the one in front is still in its place
    if now != staying:
        raise Break("S9", f"free blocks changed places: {queue} -> {move.after.free}", "changed places")
    return staying


def check_order(record: RunRecord, move: Move) -> None:
    """S9: free blocks keep their order, and are reused in that order."""
    queue, free, renewed = _in_queue(record, move), move.after.free, _renewed(record, move)
    copied = {block for copy in move.copies for block in copy}
    if copied:  # their sources and targets were taken, and are put back once the copy has run
        queue, free = ([block for block in blocks if block not in copied] for blocks in (queue, free))
    copies = isinstance(move.operation, ops.Allocate) and any(record.small_hash_blocks) and not copied
    first = queue.index(free[0]) if free and free[0] in queue else len(queue)
    staying = queue[first:]
    end = len(staying)
    if copies or free[:end] != staying or not set(queue[:first]).isdisjoint(free[end:]):
        staying = _staying(record, move, queue, free, renewed, copies)
    if not staying or not move.taken:
        return
    queue = _in_queue(record, move)
    place = queue.index(staying[0])
    targets = [target for _, target in move.copies]
    if late := [block for block in [*move.taken, *targets] if block in queue and queue.index(block) > place]:
        what = f"block {late[0]} was reused while {staying[0]}, before it in {queue}, stays free"
        raise Break("S9", what, "reused too early")
