"""What is known of a lower tier: what stands at each of its places, and under which name."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from .device import SimulatedDevice
from .tier_policies import IdealTier
from .tiers import LowerTier

Name: TypeAlias = tuple[int, str | None]
"""What a block is found by: its content, and the salt under which it was computed."""
NOTHING_ASKED: Name = (0, "")
"""Of no request."""
UNSAID = "?"
"""In place of a salt: the engine has not said whose block it is."""
OVERTAKEN: Name = (0, UNSAID)
"""Unsaid, and no longer seen: something else was stored at that place later in the same call."""


@dataclass
class Due:
    """Blocks that must be stored."""

    whose: str
    whole: dict[Name, int]
    missing: dict[Name, int]
    """By name, the number of the block."""
    room: int
    """The least that there has been since."""
    until: int


@dataclass
class Book:
    """What is known of one tier."""

    facts: LowerTier
    size: int
    """Tokens of a block."""
    held: dict[int, Name] = field(default_factory=dict)
    """By place, the block that is found there."""
    names: Counter[Name] = field(default_factory=Counter)
    """How many places hold a block of this name."""
    reserved: dict[int, Name | None] = field(default_factory=dict)
    """By place, what is to be stored there, if it was said."""
    formerly: dict[int, set[Name]] = field(default_factory=dict)
    """By reserved place, what it may be instead, if an earlier request of that id is meant."""
    used: dict[int, int] = field(default_factory=dict)
    """By place, when it was reserved or found last."""
    settled: dict[int, int] = field(default_factory=dict)
    """By place, when it was stored or found last: an engine may count from the beginning of a store or from its end."""
    pins: Counter[int] = field(default_factory=Counter)
    loading: Counter[int] = field(default_factory=Counter)
    unread: set[int] = field(default_factory=set)
    """Places from which a load has failed."""
    evicted: int = 0
    """Since places were reserved last, in this call."""
    spared: int = 0
    """Of these, how many may be left empty: they could not stay without the others of their event."""
    left: set[Name] = field(default_factory=set)
    """What was evicted in this call."""
    unowed: set[Name] = field(default_factory=set)
    """What this tier need not keep: its store was given up, or it was computed under other weights."""
    due: list[Due] = field(default_factory=list)
    ideal: dict[str, IdealTier] = field(default_factory=dict)

    @property
    def free(self) -> int:
        """Places that hold nothing, and are to hold nothing."""
        return self.facts.blocks - len(self.held) - len(self.reserved)

    def room(self, without: Mapping[Name, int]) -> int:
        """Places for something new, those of these blocks kept."""
        tags = {tag for tag, _ in without}
        kept = [
            place
            for place, (tag, salt) in self.held.items()
            if self.pins[place] or self.loading[place] or (tag in tags and ((tag, salt) in without or salt == UNSAID))
        ]
        return self.free + len(self.held) - len(kept)

    def has(self, name: Name) -> bool:
        """True if such a block is found, or may be: nobody has said under which salt it is."""
        may_be = name in self.names or (name[0], UNSAID) in self.names
        return may_be or (name[1] == UNSAID and any(tag == name[0] for tag, _ in self.names))

    def put(self, place: int, name: Name) -> None:
        """It is found there."""
        self.take(place)
        self.held[place] = name
        self.names[name] += 1
        self.unowed.discard(name)
        if self.facts.above and name == OVERTAKEN:  # it may be what was evicted above
            self.due.clear()
        for due in self.due:
            for missing in [one for one in due.missing if one == name or (one[0], UNSAID) == name]:
                del due.missing[missing]

    def take(self, place: int) -> bool:
        """Nothing is found there any more. False if nothing was."""
        name = self.held.pop(place, None)
        if name is not None:
            self.names[name] -= 1
            if not self.names[name]:
                del self.names[name]
        return name is not None


def names_of(device: SimulatedDevice, book: Book, id: str) -> list[Name]:
    """Of the whole blocks of a request."""
    one = device.requests.get(id)
    if one is None:
        return []
    return [
        (tag, one.contents.request.salt) for tag in device.tags_of(one, book.facts.group)[book.size - 1 :: book.size]
    ]
