"""What must be stored where the engine says so: of who leaves, the whole blocks that were in memory when he did; and in
the tier below, what is evicted from one.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping

from .device import SimulatedDevice
from .tier_books import UNSAID, Book, Due, Name, names_of
from .tiers import Kept

GRACE = 5
"""Rounds after the end of a request in which its blocks must have got places."""


class Keeping:
    """Whose blocks are in memory, and which of them are still to be stored."""

    def __init__(
        self,
        books: Mapping[str, Book],
        device: SimulatedDevice,
        reached: Counter[str],
        find: Callable[[str, str], None],
    ) -> None:
        """`reached`: what is counted; `find`: told of a tier and what is wrong there."""
        self._books, self._device, self._reached, self._find = books, device, reached, find
        self._round = 0
        self._steps: deque[dict[str, int]] = deque()
        """For each step in flight, how many tokens of its requests are in memory once it has ended."""
        self._landed: dict[str, int] = {}
        self._going_down: set[str] = set()
        """Tiers from which something has begun to go to a lower one since the last round."""

    @property
    def live(self) -> set[str]:
        """Requests of which something was computed, and that have not left."""
        return {*self._landed, *(id for step in self._steps for id in step)}

    def launched(self, computed: dict[str, int]) -> None:
        """A step: so many tokens of its requests are in memory once it has ended."""
        self._steps.append(computed)

    def landed(self) -> None:
        """The engine hears of the oldest step in flight."""
        self._landed.update(self._steps.popleft())

    def forget(self, id: str) -> None:
        """Nothing of it is in memory any more, or it is another one from now on."""
        self._landed.pop(id, None)
        for step in self._steps:
            step.pop(id, None)

    def reweigh(self) -> None:
        """All that was computed is void."""
        self._landed.clear()
        for step in self._steps:
            step.clear()
        for book in self._books.values():
            book.due.clear()
            book.unowed.update(name for other in self._books.values() for name in other.held.values())

    def gone(self, id: str, how: Kept) -> None:
        """It gives its blocks back: those that are whole are to be stored."""
        landed = self._landed.get(id, 0)
        self.forget(id)
        if id not in self._device.requests:
            return
        for tier, book in self._books.items():
            if how not in book.facts.keeps:
                continue
            names = names_of(self._device, book, id)
            whole = {name: number for number, name in enumerate(names[: landed // book.size])}
            self._reached["tier blocks to be stored"] += len(whole)
            for ideal in book.ideal.values():
                for name in whole:
                    ideal.store(name)
            self._owe(book, id, whole, [book, *self._below(tier)])

    def _below(self, tier: str) -> list[Book]:
        return [book for book in self._books.values() if book.facts.above == tier]

    def evicted(self, tier: str, name: Name) -> None:
        """It has left this tier: it is to be stored in the one below."""
        for book in self._below(tier):
            if name[1] != UNSAID and name[0] > 0 and name not in book.unowed:
                self._reached["tier blocks to be stored"] += 1
                self._owe(book, f"what was evicted from {tier}", {name: 0}, [book])

    def goes_down(self, above: str) -> None:
        """A tier makes room by what goes to one below: its dues have time until that is over."""
        self._going_down.add(above)

    def _owe(self, book: Book, whose: str, whole: dict[Name, int], enough: list[Book]) -> None:
        """These are to be stored, unless one of the tiers that are enough has them, or is to have them."""
        missing = {
            name: number
            for name, number in whole.items()
            if not any(other.has(name) or _is_promised(other, name) for other in enough)
        }
        if missing:
            book.due.append(Due(whose, whole, missing, book.room(whole), self._round + GRACE))

    def round(self) -> None:
        """A round is over."""
        self._round += 1
        for name, book in self._books.items():
            makes_room = name in self._going_down or any(below.reserved for below in self._below(name))
            for due in book.due[:]:
                due.until = self._round + GRACE if makes_room else due.until
                due.room = min(due.room, book.room(due.whole))
                if due.missing and (self._round < due.until or None in book.reserved.values()):
                    continue
                book.due.remove(due)
                if due.missing and len(due.missing) > due.room:
                    self._reached["tier: no room for what is to be stored"] += 1
                elif due.missing:
                    what = "a whole block of who has left is not stored, and there is room"
                    self._find(name, f"{what}; block {min(due.missing.values())} of {due.whose}")
        self._going_down.clear()


def _is_promised(book: Book, name: Name) -> bool:
    """True if it is to be stored, or was evicted in this call."""
    return any(one in (name, (name[0], UNSAID)) for one in (*book.reserved.values(), *book.left))
