"""What nobody can reach: a block is found behind all blocks before it, so one of which a block before it is gone, from
the device, too, may be given up without need.

The device's cache is the engine's own. Its word that a block there is gone is held against what comes after it: nobody
may find all that was before, unless it was computed again.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from .device import SimulatedDevice
from .protocol import ScheduledBatch
from .tier_books import UNSAID, Book, Name, names_of


@dataclass(frozen=True)
class _Word:
    """A block was given up since one of these is gone."""

    tier: str
    place: int
    name: Name
    gone: frozenset[Name]


class TierReach:
    """The blocks that an engine has given up because nobody can reach them."""

    def __init__(self, books: Mapping[str, Book], device: SimulatedDevice, find: Callable[[str, str], None]) -> None:
        """`find`: told of a tier and what is wrong there."""
        self._books, self._device, self._find = books, device, find
        self._words: list[_Word] = []

    def stranded(self, tier: str, places: Mapping[int, Name], live: Set[str]) -> None:
        """What was at these places has been given up; `live`: requests that hold blocks, and may show
        them to others later."""
        book = self._books[tier]
        for place, name in places.items():
            before = self._before(book, name)
            if before is None:
                continue
            gone = frozenset(one for one in before if not book.has(one))
            if not gone:
                self._find(tier, f"place {place} is given up as out of reach, and all blocks before it are stored")
            elif not any(gone & set(names_of(self._device, book, id)) for id in live):
                self._words.append(_Word(tier, place, name, gone))

    def _before(self, book: Book, name: Name) -> Sequence[Name] | None:
        """The blocks before this one, as any request has them; None if none is known to have it."""
        for id in self._device.requests:
            names = names_of(self._device, book, id)
            for number, other in enumerate(names):
                if other[0] == name[0] and name[1] in (other[1], UNSAID):
                    return names[:number]
        return None

    def launched(self, batch: ScheduledBatch) -> None:
        """What a step computes is there again."""
        if not self._words:
            return
        again = set[Name]()
        for part in batch.parts:
            if (one := self._device.requests.get(part.request)) is None:
                continue
            for book in self._books.values():
                end = -(-one.computed // book.size)
                again.update(names_of(self._device, book, part.request)[(part.first or 0) // book.size : end])
        self._words = [word for word in self._words if not word.gone & again]

    def looked(self, tier: str, reached: Sequence[Name]) -> str:
        """Somebody finds all these blocks but the last, and all before them. Says what is wrong."""
        for word in self._words:
            if word.tier == tier and word.name in reached:
                self._words.remove(word)
                what = f"what was at place {word.place} was given up as out of reach"
                return f"{what}, and all blocks before it are found"
        return ""

    def stored(self, tier: str, name: Name) -> None:
        """It is there again."""
        self._words = [word for word in self._words if (word.tier, word.name) != (tier, name)]

    def reweigh(self) -> None:
        """All that was computed is void."""
        self._words.clear()
