"""Registered content (S10) and the events that tell of it (S11)."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ....model import ops
from ....model.ops import Done
from ....model.snapshot import Snapshot
from .books import UNFILLED, Books
from .moves import Move
from .properties import Break


def demand_kept(books: Books, move: Move) -> None:
    """S10, of a transition after which the books are up to date."""
    old, new = move.before.labels, move.after.labels
    operation, taken = move.operation, move.taken
    evicted = operation.blocks if isinstance(operation, ops.Evict) and isinstance(move.outcome, Done) else ()
    cleared = isinstance(operation, ops.Reset) and isinstance(move.outcome, Done) and move.outcome.value is True
    if old != new:
        for block, (was, now) in enumerate(zip(old, new, strict=True)):
            if was == now:
                continue
            grown = now is not None and block in books.registered_in_part  # as a whole now, or by more hash blocks
            if was is not None and not (grown or cleared or block in taken or block in evicted):
                what = f"lost its identity by {type(operation).__name__}, though nobody reused or evicted it"
                raise Break("S10", f"block {block}, registered with label {was}, {what}")
            if now is not None and not books.may_be_registered(block):
                raise Break("S10", f"block {block} is registered with label {now} before its tokens are in it")
            books.registered_in_part.discard(block)
            if now is not None and books.content[block] == UNFILLED:
                books.registered_in_part.add(block)
        books.reached["contract: S10 checked"] += 1
    for block in taken:
        if new[block] is not None and not books.may_be_registered(block):
            raise Break("S10", f"block {block} was handed out and keeps its old identity, label {new[block]}")
    if stale := [block for block in (evicted or range(len(new) if cleared else 0)) if new[block] is not None]:
        raise Break("S10", f"{type(operation).__name__} leaves blocks {stale} registered")


class Mirror:
    """What somebody knows who hears the events only, from an empty start."""

    def __init__(self, books: Books) -> None:
        self.books = books
        self._label_of: dict[tuple[int, object], int] = {}
        """What an event calls a content of a group, to the label that its blocks carry."""
        self._parts: set[tuple[int, object]] = set()
        self._labels_of_parts: set[int | None] = {None}
        """Names and labels of parts of blocks. A block can be known by such a name besides its own, which no snapshot
        shows, so they are left out of the mirror."""
        self._copies: Counter[int] = Counter()
        self._contents: set[int] = set()
        self._counts_copies = self._counts_contents = True
        """Are removals told copy by copy, or once the last copy has gone? Either will do, but not in turns."""

    def follow(self, move: Move) -> None:
        """S11 of one transition."""
        before, after = move.before, move.after
        events: tuple[Any, ...] = after.events
        if isinstance(move.operation, ops.TakeEvents):
            self._demand_drained(move)
        elif events[: len(before.events)] != before.events:
            raise Break("S11", f"pending events changed: {before.events} -> {events}")
        else:
            events = events[len(before.events) :]
        if not events and before.labels == after.labels:
            return
        gained = [self._gained(move, group) for group in range(len(self.books.rules))]
        for event in events:
            self._apply(event, gained)
        for group, labels in enumerate(gained):
            if (label := next(labels, None)) is not None:
                raise Break("S11", f"group {group}: no event tells that a block was registered with label {label}")
        self._compare(after, events)
        self.books.reached["contract: S11 checked"] += 1

    def _demand_drained(self, move: Move) -> None:
        pending = move.before.events
        drained = move.outcome.value if isinstance(move.outcome, Done) else None
        if not isinstance(drained, tuple) or len(drained) != len(pending) or move.after.events:
            raise Break("S11", f"{pending} were pending, {drained} were handed out, {move.after.events} are left")
        for told, event in zip(drained, pending, strict=True):
            if not isinstance(told, tuple) or not isinstance(event, tuple) or told[:8] != event[:8]:
                raise Break("S11", f"the event {event} was handed out as {told}")

    def _gained(self, move: Move, group: int) -> Iterator[int]:
        """Labels that blocks of the request have got, in the order of its table."""
        old, new = move.before.labels, move.after.labels
        for block in move.after.tables[group].get(move.name, ()):
            label = new[block]
            if label is not None and (block in move.taken or old[block] != label):
                yield label

    def _apply(self, event: Any, gained: list[Iterator[int]]) -> None:
        if event[0] == "cleared":
            self._copies.clear()
            self._contents.clear()
        elif event[0] == "removed":
            for name in event[1]:
                if (event[2], name) in self._parts:
                    continue
                label = self._label_of.get((event[2], name))
                if label is None or label not in self._contents:
                    raise Break("S11", f"the event {event} removes {name}, which is not in the mirror")
                self._copies[label] -= 1
                self._contents.discard(label) if not self._counts_copies or not self._copies[label] else None
        else:
            self._store(event, gained)

    def _store(self, event: Any, gained: list[Iterator[int]]) -> None:
        group = event[7]
        books = self.books
        in_part = 0 <= group < len(gained) and books.finer[group] and event[4] < books.rules[group].b
        if not 0 <= group < len(gained) or not (in_part or event[4] == books.rules[group].b):
            sizes = [rule.b for rule in self.books.rules]
            raise Break("S11", f"the event {event} says group {group}, blocks of {event[4]} tokens; groups: {sizes}")
        for name in event[1]:
            label = next(gained[group], None)
            if in_part:
                self._parts.add((group, name))
                self._labels_of_parts.add(label)
                continue
            if label is None:
                raise Break("S11", f"the event {event} stores {name}, but no more blocks were registered")
            if self._label_of.setdefault((group, name), label) != label:
                raise Break("S11", f"the event {event} calls label {label} {name}, as it has called another content")
            self._copies[label] += 1
            self._contents.add(label)

    def _compare(self, after: Snapshot, events: object) -> None:
        registered = Counter(after.labels)
        for label in self._labels_of_parts:
            del registered[label]
        self._counts_copies &= registered == +self._copies
        self._counts_contents &= registered.keys() == self._contents
        if not (self._counts_copies or self._counts_contents):
            held, known = dict(registered), dict(+self._copies)
            raise Break("S11", f"after {events}: blocks by label {held}, in the mirror {known}")
