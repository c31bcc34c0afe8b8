"""Checks of registered blocks (S10) and of the events that report them (S11)."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import compress
from operator import ne
from typing import Any

from ....model import ops
from ....model.ops import NULL, Done
from ....model.snapshot import Snapshot
from .designs import forgiven_loss
from .event_payload import Payload
from .moves import Move, hit_row
from .properties import Break
from .run_record import UNFILLED, RunRecord
from .tracked import Tracked


def check_registered(record: RunRecord, move: Move, held: Counter[int], outside: Collection[int]) -> None:
    """S10: registered blocks stay registered until they are reused or evicted. The record is up to date already.

    `held` and `outside`: who holds blocks now.
    """
    old, new = move.before.labels, move.after.labels
    operation, taken = move.operation, move.taken
    evicted = operation.blocks if isinstance(operation, ops.Evict) and isinstance(move.outcome, Done) else ()
    cleared = isinstance(operation, ops.Reset) and isinstance(move.outcome, Done) and move.outcome.value is True
    if move.relabelled:
        for block in compress(range(len(new)), map(ne, old, new)):
            was, now = old[block], new[block]
            grown = now is not None and block in record.registered_in_part  # now the whole block, or more of it
            if was is not None and not (grown or cleared or block in taken or block in evicted):
                if now is None and (design := forgiven_loss(record, move, block, held, outside)):
                    record.forgotten([block])
                    record.reached[f"contract: by design {design}"] += 1
                    continue
                what = f"lost its identity by {type(operation).__name__}, though nobody reused or evicted it"
                raise Break("S10", f"block {block}, registered with label {was}, {what}", "lost identity")
            if now is not None and not record.may_be_registered(block):
                what = f"block {block} is registered with label {now} before its tokens are in it"
                raise Break("S10", what, "too early")
            record.registered_in_part.discard(block)
            if now is not None and record.content[block] == UNFILLED:
                record.registered_in_part.add(block)
        record.reached["contract: S10 checked"] += 1
    for block in taken:
        if new[block] is not None and not record.may_be_registered(block):
            what = f"block {block} was handed out and keeps its old identity, label {new[block]}"
            raise Break("S10", what, "old identity")
    gone = evicted or (range(len(new)) if cleared else ())
    if gone and (stale := [block for block in gone if new[block] is not None]):
        raise Break("S10", f"{type(operation).__name__} leaves blocks {stale} registered", "not forgotten")


class Mirror:
    """The registered blocks as a listener of the events knows them, starting from none."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self._payload = Payload(record)
        self._label_of: dict[tuple[int, object], int] = {}
        """(group, block hash in events) to the label of blocks with that content."""
        self._parts: set[tuple[int, object]] = set()
        self._labels_of_parts: set[int | None] = {None}
        """(group, hash) and labels of parts of blocks. A block can be registered under several of these, which no
        snapshot shows, so the mirror leaves them out."""
        self._copies: Counter[int] = Counter()
        self._contents: set[int] = set()
        self._counts_copies = self._counts_contents = True
        """What events of removal can mean in this run: one for each copy, or one when the last copy is gone. Either is
        right, but a core must not mix them."""

    def follow(self, move: Move) -> None:
        """S11 for one operation."""
        before, after = move.before, move.after
        events: tuple[Any, ...] = after.events
        if isinstance(move.operation, ops.TakeEvents):
            self._check_drained(move)
        elif events is before.events:
            events = ()
        elif events[: len(before.events)] != before.events:
            raise Break("S11", f"pending events changed: {before.events} -> {events}", "pending")
        else:
            events = events[len(before.events) :]
        if not move.relabelled and (not events or isinstance(move.operation, ops.Lookup)):
            self._check_report(move, events)
            return
        gained = [iter(self._gained(move, group, events)) for group in range(len(self.record.rules))]
        for event in events:
            self._apply(event, gained, move.request)
        for group, labels in enumerate(gained):
            if (missed := next(labels, None)) is not None:
                what = f"no event tells that a block was registered with label {missed[1]}"
                raise Break("S11", f"group {group}: {what}", "not told")
        self._compare(after, events)
        self.record.reached["contract: S11 checked"] += 1

    def _check_report(self, move: Move, events: Sequence[Any]) -> None:
        """S11 of a lookup that was asked for a full report: events tell of the blocks of the hit that are there, group
        by group, under the names that they have, and of its tokens. The mirror has them already."""
        request, record = move.request, self.record
        if not isinstance(move.operation, ops.Lookup) or request is None or request.hit is None:
            if events:
                raise Break("S11", f"{events} tell of blocks, and nothing was registered", "stores too much")
            return
        length, rows = request.hit
        if not request.submit.reports_hits or not length:
            rows = [[] for _ in rows]
        unreported = move.operation.for_connector and not events
        losses = ["connector-unreported" if unreported else "reported-as-whole"]
        labels = move.after.labels
        wanted = [(group, [labels[block] for block in row if block != NULL]) for group, row in enumerate(rows)]
        found = [(event[7], [self._label_of.get((event[7], name)) for name in event[1]]) for event in events]
        if found != [one for one in wanted if one[1]]:
            what = f"a hit of {length} tokens, {rows}, is reported as {list(events)}"
            record.break_unless_known(losses, "S11", f"{move.name}: {what}", "another report")
        elif any((event[3], event[5]) != (tuple(request.tokens[:length]), request.submit.adapter) for event in events):
            what = f"the report {list(events)} of a hit of {length} tokens has not its tokens, or another adapter"
            record.break_unless_known(losses, "S11", f"{move.name}: {what}", "other tokens")
        record.reached["contract: S11 of full reports"] += bool(events)

    def _check_drained(self, move: Move) -> None:
        pending = move.before.events
        drained = move.outcome.value if isinstance(move.outcome, Done) else None
        if not isinstance(drained, tuple) or len(drained) != len(pending) or move.after.events:
            what = f"{pending} were pending, {drained} were handed out, {move.after.events} are left"
            raise Break("S11", what, "drained")
        for told, event in zip(drained, pending, strict=True):
            if not isinstance(told, tuple) or not isinstance(event, tuple) or told[:8] != event[:8]:
                raise Break("S11", f"the event {event} was handed out as {told}", "drained")

    def _gained(self, move: Move, group: int, events: Sequence[Any]) -> list[tuple[int, int]]:
        """Entries of the request's table whose blocks have new labels, and these, in the order of the table; of the
        table as it was, if it has none any more.

        Where blocks are merged, one that keeps its label may have been put in place, or evicted and registered again:
        as many of these count as the events say.
        """
        old, new = move.before.labels, move.after.labels
        tables = move.after if move.name in move.after.tables[group] else move.before
        row = tables.tables[group].get(move.name, ())
        table = [block for block in row if new[block] is not None]
        gained = [block for block in table if block in move.taken or old[block] != new[block]]
        merged = set(move.attached).difference(gained, hit_row(move, group)) if self.record.merges else ()
        again = [block for block in table if block in merged]
        told = sum(len(event[1]) for event in events if event[0] == "stored" and event[7] == group)
        gained += again[: max(0, told - len(gained))]
        labels = ((entry, block) for entry, block in enumerate(row) if block in gained)
        # a state that a step leaves inside it stands in the entry of another, and is named behind the others
        places = sorted((self._left(group, entry, block), entry, block) for entry, block in labels)
        return [
            (entry if left < 0 else left, label) for left, entry, block in places if (label := new[block]) is not None
        ]

    def _left(self, group: int, entry: int, block: int) -> int:
        """The entry whose state stands in this one instead; -1 if none does."""
        begun = self.record.begun[block]
        other = begun is not None and begun.group == group and begun.entry != entry
        return begun.entry if begun is not None and other and self.record.rules[group].group.checkpoint else -1

    def _apply(self, event: Any, gained: list[Iterator[tuple[int, int]]], request: Tracked | None) -> None:
        if event[0] == "cleared":
            self._copies.clear()
            self._contents.clear()
        elif event[0] == "removed":
            for name in event[1]:
                if (event[2], name) in self._parts:
                    continue
                label = self._label_of.get((event[2], name))
                if label is None or label not in self._contents:
                    what = f"the event {event} removes {name}, which is not in the mirror"
                    raise Break("S11", what, "removes what is not there")
                self._copies[label] -= 1
                self._contents.discard(label) if not self._counts_copies or not self._copies[label] else None
        else:
            self._store(event, gained, request)

    def _store(self, event: Any, gained: list[Iterator[tuple[int, int]]], request: Tracked | None) -> None:
        group = event[7]
        record = self.record
        in_part = 0 <= group < len(gained) and record.small_hash_blocks[group] and event[4] < record.rules[group].b
        if not 0 <= group < len(gained) or not (in_part or event[4] == record.rules[group].b):
            sizes = [rule.b for rule in self.record.rules]
            what = f"the event {event} says group {group}, blocks of {event[4]} tokens; groups: {sizes}"
            raise Break("S11", what, "another group")
        entries: list[int] = []
        for name in event[1]:
            entry, label = next(gained[group], (None, None))
            if in_part:
                self._parts.add((group, name))
                self._labels_of_parts.add(label)
                continue
            if entry is None or label is None:
                what = f"the event {event} stores {name}, but no more blocks were registered"
                raise Break("S11", what, "stores too much")
            if self._label_of.setdefault((group, name), label) != label:
                what = f"the event {event} calls label {label} {name}, as it has called another content"
                raise Break("S11", what, "another name")
            self._copies[label] += 1
            self._contents.add(label)
            entries.append(entry)
        if not in_part:
            self._payload.check(event, request, entries)

    def _compare(self, after: Snapshot, events: object) -> None:
        registered = Counter(after.labels)
        for label in self._labels_of_parts:
            del registered[label]
        self._counts_copies &= registered == +self._copies
        self._counts_contents &= registered.keys() == self._contents
        if not (self._counts_copies or self._counts_contents):
            held, known = dict(registered), dict(+self._copies)
            raise Break("S11", f"after {events}: blocks by label {held}, in the mirror {known}", "mirror")
