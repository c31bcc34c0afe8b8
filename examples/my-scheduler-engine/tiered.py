"""The same scheduler with a second memory that is shared by all: blocks are found there by their keys.

What a request has computed is stored when it leaves or is set back, and whoever begins with the same tokens loads it. A
store and a load take their time; a block that is stored from, and a place that is loaded from, stay until it has ended.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from offloading import OffloadingScheduler, Transfer
from scheduler_engine import Piece, Pool, Sequence

PATIENCE = 26  # steps after which a transfer is given up; it is over and reported within 24


class Deed(NamedTuple):
    """What was done with places of the host, for those who watch."""

    what: str
    places: tuple[int, ...]
    request: str = ""
    first: int = 0
    asked: int = 0


@dataclass
class HostTier:
    """Places on the host, found by key; when room is needed, the first in `found` leaves that nobody has pinned."""

    places: int
    policy: str  # "lru": who is found goes to the end; "fifo"
    free: list[int] = field(init=False)
    found: dict[int, int] = field(default_factory=dict)  # by key
    coming: dict[int, int] = field(default_factory=dict)  # by key, places to which a store is on its way
    ages: dict[int, int] = field(default_factory=dict)  # by key, when it was reserved or found
    pins: Counter[int] = field(default_factory=Counter)
    deeds: list[Deed] = field(default_factory=list)
    clock: int = 0

    def __post_init__(self) -> None:
        self.free = list(range(self.places))

    def look(self, keys: list[int], request: str, first: int) -> list[int]:
        """Where the first of these blocks are, up to one that is not there."""
        self.clock += 1
        places = []
        for key in keys:
            if key not in self.found:
                break
            places.append(self.found[key])
            if self.policy == "lru":
                self.ages[key] = self.clock
        self.deeds.append(Deed("looked", tuple(places), request, first, len(keys)))
        return places

    def reserve(self, key: int, request: str, number: int) -> int | None:
        """A place for a block that is to be stored; None if all others are needed."""
        self.clock += 1
        if not self.free:
            idle = [other for other, place in self.found.items() if not self.pins[place]]
            if not idle:
                return None
            oldest = min(idle, key=lambda other: self.ages[other])
            self.free.append(self.found.pop(oldest))
            self.deeds.append(Deed("evicted", (self.free[-1],)))
        place = self.free.pop()
        self.coming[key], self.ages[key] = place, self.clock
        self.deeds.append(Deed("reserved", (place,), request, number))
        return place

    def stored(self, key: int, well: bool) -> None:
        """A store has ended."""
        place = self.coming.pop(key)
        if well:
            self.found[key] = place
        else:
            self.free.append(place)
        self.deeds.append(Deed("stored" if well else "released", (place,)))

    def pin(self, places: list[int]) -> None:
        """They stay until they are given back."""
        self.pins.update(places)
        self.deeds.append(Deed("pinned", tuple(places)))

    def unpin(self, places: list[int]) -> None:
        """See `pin`."""
        self.pins.subtract(places)
        self.deeds.append(Deed("unpinned", tuple(places)))

    def drop(self, places: list[int]) -> None:
        """They cannot be read, so they are not found any more; who loads from them will see."""
        for key, place in list(self.found.items()):
            if place in places and not self.pins[place]:
                del self.found[key]
                self.free.append(place)
                self.deeds.append(Deed("dropped", (place,)))


class TieredScheduler(OffloadingScheduler):
    """Who gets which blocks, also of the host's tier."""

    def __init__(self, pool: Pool, limits: tuple[int, int, int], tier: HostTier, every: bool, workers: int) -> None:
        """`every`: also who ends is stored, not only who is set back; `workers` report the end of each transfer."""
        super().__init__(pool, *limits, host=0)
        self.tier, self.every = tier, every
        self.storing: dict[str, Transfer] = {}
        self.keys_of: dict[str, list[int]] = {}  # of each store
        self.workers, self.clock = workers, 0
        self.begun: dict[str, int] = {}  # when each transfer was, by the clock
        self.heard: dict[str, set[int]] = {}  # which workers are done with it

    def store(self, sequence: Sequence) -> None:
        """Its full blocks, as far as they are not there yet and there is room, the first ones first."""
        blocks, places, keys = [], [], []
        full = sequence.landed // self.pool.size
        own = [self.key(sequence, number) for number in range(full)] if self.keeps else []
        held = [self.tier.found[key] for key in own if key in self.tier.found]
        self.tier.pin(held)
        for number, key in enumerate(own):
            if key in self.tier.found or key in self.tier.coming:
                continue
            place = self.tier.reserve(key, sequence.id, number)
            if place is None:
                break
            blocks.append(self.pool.share(sequence.table[number]))
            places.append(place)
            keys.append(key)
        self.tier.unpin(held)
        if blocks:
            self.count += 1
            store = Transfer(f"t{self.count}", sequence, sequence.life, blocks, places)
            self.storing[store.id], self.keys_of[store.id] = store, keys
            self.begun[store.id] = self.clock
            self.stores.append(store)

    def preempt(self, sequence: Sequence) -> None:
        """What it has computed is stored."""
        self.store(sequence)
        super(OffloadingScheduler, self).preempt(sequence)

    def end(self, sequence: Sequence) -> None:
        """It leaves; its blocks stay until its load has ended."""
        if not self.is_loading(sequence) and self.every:
            self.store(sequence)
        super().end(sequence)

    def admit(self, sequence: Sequence, left: int) -> bool:
        """What the host has beyond what is cached is loaded first, and computed when that has ended."""
        pool, hit = self.pool, self.hit(sequence)
        most = (len(sequence.tokens) - 1) // pool.size
        keys = [self.key(sequence, number) for number in range(len(hit), most)]
        places = self.tier.look(keys, sequence.id, len(hit)) if keys else []
        if not places:
            return super(OffloadingScheduler, self).admit(sequence, left)
        quiet = [block for block in self.quiet_blocks() if block not in hit]
        if len(places) > len(quiet):
            return False
        sequence.table = [pool.share(block) for block in hit]
        new = [pool.take(block) for block in quiet[: len(places)]]
        sequence.table += new
        self.waiting.remove(sequence)
        self.tier.pin(places)
        self.count += 1
        load = Transfer(f"t{self.count}", sequence, sequence.life, new, places)
        self.loading[load.id] = load
        self.begun[load.id] = self.clock
        self.loads.append(load)
        return False

    def moves_blocks(self) -> bool:
        """Stores read their blocks until they have ended."""
        return bool(self.loading or self.storing)

    def schedule(self) -> list[Piece]:
        """See `Scheduler`; what has not been heard of for too long has failed."""
        self.clock += 1
        for id, begun in list(self.begun.items()):
            if self.clock - begun > PATIENCE:
                self.moved(id, False)
        return super().schedule()

    def reported(self, id: str, worker: int) -> None:
        """A worker is done with its part of a transfer; it may have said so before, or so late that it was given up."""
        if id in self.begun:
            self.heard.setdefault(id, set()).add(worker)
            if len(self.heard[id]) == self.workers:
                self.moved(id, True)

    def moved(self, id: str, well: bool) -> None:
        """A store or a load has ended, unless that is known already."""
        if self.begun.pop(id, None) is None:
            return
        self.heard.pop(id, None)
        if id in self.storing:
            for block in self.storing.pop(id).blocks:
                self.pool.give_back(block)
            for key in self.keys_of.pop(id):
                self.tier.stored(key, well)
        else:
            self.loaded(id, well)

    def loaded(self, id: str, well: bool) -> None:
        """See `OffloadingScheduler`; what was loaded stays on the host."""
        load = self.loading.pop(id)
        sequence = load.sequence
        self.tier.unpin(load.host)
        if not well:
            self.tier.drop(load.host)
        if self.sequences.get(sequence.id) is not sequence:
            self.give_back(sequence)
        elif well and sequence.life == load.life:
            sequence.computed = sequence.landed = len(sequence.table) * self.pool.size
            self.running.append(sequence)
        else:
            self.give_back(sequence)
            self.wait(sequence)
