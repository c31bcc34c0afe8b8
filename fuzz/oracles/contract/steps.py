"""Checks of what a step reads and writes (S6, S13, S15)."""

from collections import Counter
from collections.abc import Iterator, Sequence

from ....model import ops
from ....model.arith import cdiv
from ....model.attention import Mamba, Step
from ....model.kinds.rswa import unread
from ....model.ops import NULL
from ....model.snapshot import Snapshot
from ..chunk_losses import is_astride
from .moves import Move
from .properties import Break
from .run_record import RunRecord
from .tracked import Tracked


def _is_real(table: Sequence[int], entry: int) -> bool:
    return entry < len(table) and table[entry] != NULL


def _excuses(record: RunRecord, request: Tracked, group: int, entry: int) -> Iterator[str]:
    """The known losses that explain why an entry is null although it is read or written."""
    rule = record.rules[group]
    if request.computed < request.cut and entry in unread(rule, len(request.submit.prompt), request.cut):
        yield "computed-taken-back"
    if is_astride(rule) and entry * rule.b < request.attached:
        yield "chunk-astride-block"


def check_needed(record: RunRecord, request: Tracked, after: Snapshot) -> None:
    """S6, for the query at the request's computed tokens."""
    name, computed = request.submit.request, request.computed
    for group, rule in enumerate(record.rules):
        if isinstance(rule, Mamba) and request.drafted:
            record.reached["contract: S6 of states of drafts, left to the shadow memory"] += 1
            continue
        table = after.tables[group].get(name, ())
        for entry in record.needed(request, group, computed):
            if _is_real(table, entry):
                continue
            what = f"the query at {computed} reads entry {entry} (tokens {entry * rule.b} ..) of {list(table)}"
            losses = _excuses(record, request, group, entry)
            text = f"{name}, group {group}: {what}, where there is no block"
            record.break_unless_known(losses, "S6", text, "no block")
    record.reached["contract: S6 checked"] += 1


def check_in_flight(record: RunRecord, request: Tracked, after: Snapshot, end: int) -> None:
    """S13: the table has every entry that queries and writes behind the settled tokens, up to token `end`, need."""
    name, start = request.submit.request, record.settled(request)
    if start >= end:
        return
    for group, rule in enumerate(record.rules):
        if rule.by_encoder or (isinstance(rule, Mamba) and request.drafted):
            continue
        table = after.tables[group].get(name, ())
        last = (end - 1) // rule.b
        written = range(last, last + 1) if isinstance(rule, Mamba) else range(start // rule.b, rule.required(end))
        reads = request.running == start or not isinstance(rule, Mamba)  # a step reads one state, where it starts
        for entry in (*(record.needed(request, group, start) if reads else ()), *written):
            if _is_real(table, entry):
                continue
            losses = [*_excuses(record, request, group, entry)]
            if start < request.cut and entry in unread(rule, len(request.submit.prompt), request.cut):
                losses.append("skipped-on-optimistic-count")
            what = f"entry {entry} of {list(table)} is null while the tokens {start} .. {end - 1} are computed"
            counted = f"{request.computed} tokens count as computed"
            record.break_unless_known(losses, "S13", f"{name}, group {group}: {what}; {counted}", "no block")
    record.reached["contract: S13 checked"] += 1


def check_written_alone(record: RunRecord, move: Move, held: Counter[int], start: int, end: int) -> None:
    """S15, for the step over tokens `start .. end - 1` that has just been allocated."""
    request, op = move.request, move.operation
    assert request is not None
    assert isinstance(op, ops.Allocate)
    for group in range(len(record.rules)):
        table = move.after.tables[group].get(move.name, ())
        for entry in _written(record, request, op, group, start, end):
            if not _is_real(table, entry):
                losses = _excuses(record, request, group, entry)
                what = f"the step writes {start} .. {end - 1} and {op.lookahead} ahead, but entry {entry}"
                text = f"{move.name}, group {group}: {what} of {list(table)} is no block"
                record.break_unless_known(losses, "S15", text, "no block")
                continue
            block = table[entry]
            if held[block] < 2:
                continue
            if record.key(request, group, entry) == record.content[block]:
                record.reached["contract: written with what it holds"] += 1
                continue
            others = [n for n, t in move.after.tables[group].items() if block in t and n != move.name]
            what = f"entry {entry}, block {block}, is written from {start} on, and {others} hold it too"
            record.pass_or_break(Break("S15", f"{move.name}, group {group}: {what}", "shared"))
    record.reached["contract: S15 checked"] += 1


def _written(record: RunRecord, request: Tracked, op: ops.Allocate, group: int, start: int, end: int) -> Iterator[int]:
    """Table entries that the step may write."""
    rule = record.rules[group]
    if rule.by_encoder:
        yield from range(cdiv(op.encoder_tokens, rule.b))
    elif not isinstance(rule, Mamba):
        ahead = min(end + op.lookahead, record.shape.max_model_len)
        yield from range(start // rule.b, rule.required(ahead))
    else:
        known = max(start + 1, min(end, len(request.contents)))
        drafts, running = end - known, cdiv(end, rule.b) - 1
        step = Step(start, end, drafts if drafts <= rule.p else 0)
        yield from (entry for entry in rule.writes(step) if entry >= running)
