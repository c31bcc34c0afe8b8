"""Memory by slot: what was written where, and what is still known of it."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count, islice
from typing import TypeAlias

from .protocol import Slots

NOTHING = 0
"""In a slot that was never written."""
Slot: TypeAlias = tuple[str, int]
"""The memory, and the number in it."""


class SlotMemory:
    """Pages of `width` slots; slot n is slot n % width of page n // width. A negative tag is of no request."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.pages: dict[tuple[str, int], list[int]] = {}
        self.again = 0
        """Tokens that were written though they still stood elsewhere: computed twice."""
        self.written = 0
        self.writers: dict[Slot, tuple[str, int]] = {}
        """Who computed last what stands in a slot, and at which position."""
        self.misread: list[tuple[Slot, int]] = []
        """Slots in which something else was found than must be there, and the tag that was found."""
        self._places: dict[int, Slot] = {}
        self._junk = count(-1, -1)

    def junk(self) -> int:
        """A tag that nobody reads."""
        return next(self._junk)

    def page(self, memory: str, block: int) -> list[int]:
        """The tags of a block; the list itself."""
        found = self.pages.get((memory, block))
        if found is None:
            found = self.pages[memory, block] = [NOTHING] * self.width
        return found

    def get(self, slot: Slot) -> int:
        """The tag in a slot."""
        page = self.pages.get((slot[0], slot[1] // self.width))
        return NOTHING if page is None else page[slot[1] % self.width]

    def put(self, slot: Slot, tag: int) -> None:
        """Write a slot."""
        self.page(slot[0], slot[1] // self.width)[slot[1] % self.width] = tag

    def compute(self, slot: Slot, tag: int, request: str, position: int) -> None:
        """Write what a step has computed for this token of a request, and note where it stands."""
        self.written += 1
        self.writers[slot] = (request, position)
        before = self._places.get(tag)
        if before is not None and before != slot and self.get(before) == tag:
            self.again += 1
        self._places[tag] = slot
        self.put(slot, tag)

    def writer(self, slot: Slot) -> str:
        """Who computed last what stands in a slot, as the end of a sentence; empty if nobody did."""
        found = self.writers.get(slot)
        return f"; position {found[1]} of {found[0]} was computed there last" if found else ""

    def fill(self, memory: str, block: int, tag: int) -> None:
        """Write a whole block, as a state does."""
        self.page(memory, block)[:] = [tag] * self.width


def block_in_half(block: int, half: int, of: int, total: int) -> int:
    """Where a block of one of so many engines lies on the device that they share, which has `total` blocks. A pool that
    is larger than its engine's share goes on behind all of them."""
    share = total // of
    return half * share + block if block < share else total + (block - share) * of + half


def half_of_block(block: int, of: int, total: int) -> int:
    """Whose block that is."""
    return min(block // (total // of), of - 1) if block < total else (block - total) % of


class Placed:
    """Where one request's tokens lie in one group: the slots of a batch with what they mean."""

    def __init__(self, memory: str, size: int, slots: Slots, width: int) -> None:
        self.memory, self.size, self.slots, self.width = memory, size, slots, width

    def slot(self, position: int) -> Slot | None:
        """Where the token at this position lies; None if nowhere."""
        at = self.slots.at
        if at is not None:
            return None if (number := at.get(position)) is None else (self.memory, number)
        entry = position // self.size
        block = self.slots.table[entry] if entry < len(self.slots.table) else None
        return None if block is None else (self.memory, block * self.width + position % self.size)

    def target(self, position: int) -> Slot | None:
        """Where the step writes it."""
        written: Mapping[int, int] | None = self.slots.written
        if written is not None:
            return None if (number := written.get(position)) is None else (self.memory, number)
        return self.slot(position)

    def wrong(self, cells: SlotMemory, tags: Sequence[int], first: int, end: int, group: str) -> str:
        """About the first of the positions `first .. end - 1` that does not hold its tag; empty if all do. `group`: of
        layers, in words."""
        positions: Iterable[int] = range(first, end)
        if self.slots.at is None:
            positions = self._suspect(cells, tags, first, end)
        return next(islice(self._problems(cells, tags, positions, group), 1), "")

    def _suspect(self, cells: SlotMemory, tags: Sequence[int], first: int, end: int) -> Iterable[int]:
        """The positions of the blocks that are not as they must be: whole blocks are compared at once."""
        size, table = self.size, self.slots.table
        for entry in range(first // size, -(-end // size)):
            low, high = max(first, entry * size), min(end, (entry + 1) * size)
            block = table[entry] if entry < len(table) else None
            if block is not None:
                begin, page = entry * size, cells.page(self.memory, block)
                if page[low - begin : high - begin] == tags[low:high]:
                    continue
            yield from range(low, high)

    def _problems(self, cells: SlotMemory, tags: Sequence[int], positions: Iterable[int], group: str) -> Iterable[str]:
        for position in positions:
            slot = self.slot(position)
            if slot is None:
                yield f"position {position}, for which there is no slot {group}"
            elif (found := cells.get(slot)) != tags[position]:
                cells.misread.append((slot, found))
                where = f"position {position} in {self.named(slot)}"
                yield f"{where}, which holds {said(found)} {group}{cells.writer(slot)}"

    def named(self, slot: Slot) -> str:
        """The slot in words."""
        if self.slots.at is not None:
            return f"slot {slot[1]}"
        return f"block {slot[1] // self.width}"


def said(tag: int) -> str:
    """What a wrong slot holds, in words."""
    if tag == NOTHING:
        return "what nobody wrote"
    return "a rejected draft, or what was overtaken" if tag < 0 else "another content"
