"""One request at a time, with two lower tiers: what is evicted on the host goes to a disk, and what is found there
comes up again, so that a block is on one of them. Copies are over within a step.
"""

from collections import Counter
from typing import ClassVar

from blockproof.fuzz.simulation.protocol import (
    Delivered,
    Ended,
    EngineView,
    Scheduled,
    ScheduledBatch,
    Slots,
    SlotTransfer,
)
from blockproof.fuzz.simulation.tiers import LowerTier, TierEvent

HOST, DISK = 3, 4
"""Places."""


class Level:
    """A tier: where each key is, the one that was stored or found longest ago first."""

    def __init__(self, name, places, told):
        self.name, self.free, self.at, self.told, self.pins = name, list(range(places)), {}, told, Counter()

    def tell(self, what, *places, **more):
        self.told.append(TierEvent(what, self.name, places, **more))

    def leave(self, what, key):
        self.free.append(self.at.pop(key))
        self.tell(what, self.free[-1])

    def pin(self, key, many):
        self.pins[key] += many
        self.tell("pinned" if many > 0 else "unpinned", self.at[key])


class TwoLevels:
    """See above."""

    name = "two-levels"
    lacks = frozenset({"ids"})
    floors: ClassVar = {"steps with several requests": 0}

    def start(self, shape):
        self.shape, self.size = shape, shape.groups[0].block_size
        self.waiting, self.ended, self.told, self.moved, self.number = [], None, [], [], 0
        self.host, self.disk = Level("host", HOST, self.told), Level("disk", DISK, self.told)
        self.begin()

    def begin(self):
        self.got, self.computed = (), None

    def tiers(self):
        return {
            "host": LowerTier(HOST, "lru", frozenset({"ended"})),
            "disk": LowerTier(DISK, "fifo", above="host"),
        }

    def tier_events(self):
        told, self.told[:] = list(self.told), []
        return told

    def look(self):
        return EngineView(self.shape.num_blocks, tiers={"host": len(self.host.at), "disk": len(self.disk.at)})

    def add(self, request):
        end, blocks = len(request.prompt) + request.max_tokens, self.shape.num_blocks
        if end > min(self.shape.max_length, blocks * self.size):
            return [Delivered(request.id, ended="refused")]
        self.waiting.append(request)
        return []

    def cancel(self, id):
        if self.waiting[0].id == id:
            self.begin()
        self.waiting = [request for request in self.waiting if request.id != id]

    def schedule(self):
        if self.ended is not None:
            (id, tokens), self.ended = self.ended, None
            for number, key in enumerate(self.keys(tokens)):
                if key not in self.host.at and key not in self.disk.at:
                    self.keep(key, number, id)
        if self.waiting and self.computed is None and not self.moved:
            self.find(self.waiting[0])
            self.computed = 0
        moved, self.moved = tuple(self.moved), []
        if moved or not self.waiting:
            return ScheduledBatch(transfers=moved) if moved else None
        request = self.waiting[0]
        known = len(request.prompt) + len(self.got)
        count = min(self.shape.max_tokens, known - self.computed)
        table = tuple(range(-(-known // self.size)))
        ends = self.computed + count == known
        part = Scheduled(request.id, self.computed, count, slots=(Slots(table),), samples=ends)
        return ScheduledBatch((part,), own=request)

    def update(self, batch, results):
        if batch is None or batch.own not in self.waiting:
            return []
        self.computed += batch.parts[0].count
        if not (tokens := results.tokens.get(batch.own.id, ())):
            return []
        self.got += tokens
        why: Ended = (
            "stop" if tokens[0] in batch.own.stop else "length" if len(self.got) == batch.own.max_tokens else ""
        )
        if why:
            self.ended = batch.own.id, (*batch.own.prompt, *self.got)[:-1]
            self.waiting.pop(0)
            self.begin()
        return [Delivered(batch.own.id, tokens, why)]

    def idle(self):
        return not self.waiting and self.ended is None

    def keys(self, tokens):
        return [tuple(tokens[: end + 1]) for end in range(self.size - 1, len(tokens), self.size)]

    def move(self, kind, below, tier, other, above):
        here, there = (tuple(range(n * self.size, (n + 1) * self.size)) for n in (below, other))
        self.number += 1
        self.moved.append(SlotTransfer(f"m{self.number}", kind, 0, here, tier, there, now=True, above=above))

    def room(self):
        """A place on the host; what was there longest goes down."""
        host, disk = self.host, self.disk
        if not host.free:
            key = next(key for key in host.at if not host.pins[key])
            if not disk.free:
                disk.leave("evicted", next(key for key in disk.at if not disk.pins[key]))
            place = disk.free.pop()
            disk.tell("reserved", place)
            self.move("store", host.at[key], "disk", place, "host")
            host.leave("evicted", key)
            disk.tell("stored", place)
            disk.at[key] = place
        return host.free.pop()

    def keep(self, key, number, id):
        """A block that was computed."""
        place = self.room()
        self.host.tell("reserved", place, request=id, first=number)
        self.move("store", number, "host", place, "")
        self.host.tell("stored", place)
        self.host.at[key] = place

    def find(self, request):
        """What is found on the disk comes up."""
        keys = self.keys(request.prompt)[: HOST - 1]
        for number, key in enumerate(keys):
            level = self.host if key in self.host.at else self.disk
            places = [level.at[key]] if key in level.at else []
            asked = {"request": request.id, "first": number, "asked": 1}
            level.tell("looked", *places, **asked)
            if not places:
                self.host.tell("looked", **asked)
                return
            level.at[key] = level.at.pop(key) if level is self.host else level.at[key]
            if level is self.disk:
                self.disk.pin(key, 1)
                place = self.room()
                self.host.tell("reserved", place)
                self.move("load", place, "disk", self.disk.at[key], "host")
                self.host.tell("stored", place)
                self.host.at[key] = place
                self.disk.pin(key, -1)
                self.disk.leave("moved", key)


def make_engine():
    return TwoLevels()
