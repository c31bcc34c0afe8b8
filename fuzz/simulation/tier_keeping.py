"""What must be stored of who leaves: the whole blocks that were in memory when he did, where the engine says so."""

from collections import Counter, deque
from collections.abc import Callable, Mapping

from .device import SimulatedDevice
from .tier_books import UNSAID, Book, Due, names_of
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

    def gone(self, id: str, how: Kept) -> None:
        """It gives its blocks back: those that are whole are to be stored."""
        landed = self._landed.get(id, 0)
        self.forget(id)
        if id not in self._device.requests:
            return
        for book in self._books.values():
            if how not in book.facts.keeps:
                continue
            names = names_of(self._device, book, id)
            whole = {name: number for number, name in enumerate(names[: landed // book.size])}
            self._reached["tier blocks to be stored"] += len(whole)
            for ideal in book.ideal.values():
                for name in whole:
                    ideal.store(name)
            promised = {*book.reserved.values(), *book.left}
            missing = {
                name: number
                for name, number in whole.items()
                if not (book.has(name) or name in promised or (name[0], UNSAID) in promised)
            }
            if missing:
                book.due.append(Due(id, whole, missing, book.room(whole), self._round + GRACE))

    def round(self) -> None:
        """A round is over."""
        self._round += 1
        for name, book in self._books.items():
            for due in book.due[:]:
                due.room = min(due.room, book.room(due.whole))
                if due.missing and (self._round < due.until or None in book.reserved.values()):
                    continue
                book.due.remove(due)
                if due.missing and len(due.missing) > due.room:
                    self._reached["tier: no room for what is to be stored"] += 1
                elif due.missing:
                    number = min(due.missing.values())
                    what = "a whole block of who has left is not stored, and there is room"
                    self._find(name, f"{what}; block {number} of {due.whose}")
