"""What judges a lower tier: what the engine says it did there, against what the device saw it do.

The clauses: what was stored and has not been evicted is found; what is found is right; what was pinned is given back;
no count is negative and no more is held than there are places; nothing is evicted without need, or before its turn;
what is given up as out of reach is; the whole blocks of who ends are stored where the engine says so.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from .device import SimulatedDevice
from .memory import said
from .protocol import Delivered, ScheduledBatch, SlotTransfer
from .story import Happening
from .tier_books import NOTHING_ASKED, OVERTAKEN, UNSAID, Book, Name, names_of
from .tier_keeping import Keeping
from .tier_policies import IDEAL
from .tier_reach import TierReach
from .tiers import NOBODY, LowerTier, TierEvent

SERVED = ("stop", "length")


class TierJudge:
    """Follows the lower tiers of one engine. Findings are lines; what stands before the colon says who it is about."""

    def __init__(self, tiers: Mapping[str, LowerTier], device: SimulatedDevice) -> None:
        """`tiers`: as the engine says, by name."""
        self._device = device
        self._books = {
            name: Book(
                facts, device.rules[facts.group].b, ideal={name: made(facts.blocks) for name, made in IDEAL.items()}
            )
            for name, facts in tiers.items()
        }
        self.found: list[str] = []
        self.reached: Counter[str] = Counter()
        self._keeping = Keeping(self._books, device, self.reached, self._find)
        self._reach = TierReach(self._books, device, self._find)
        self._now = 0
        self._moving: dict[str, tuple[Book, list[int]] | None] = {}
        """By transfer, the places that it reads, if it reads a tier."""
        self._to_come = Counter[tuple[str, int]]()
        """By tier and place, how often it is stored in what is left to be heard."""
        self._before: dict[tuple[str, str], list[Name]] = {}
        """By tier and request, the names of its blocks before what happens now."""
        self._former = defaultdict[tuple[str, str, int], set[Name]](set)
        """By tier, request and number of a block, the same of those who had this id before: what they have left may be
        stored when the id is used again."""

    # What the device sees.

    def launched(self, batch: ScheduledBatch) -> None:
        """A step was launched on the device; what it was said to do has been heard."""
        for name in batch.preempted:
            self._keeping.gone(name, "preempted")
        requests = self._device.requests
        names = [part.request for part in batch.parts if part.request in requests]
        self._keeping.launched({name: requests[name].computed for name in names})
        self._reach.launched(batch)
        for told in batch.transfers:
            lower, upper = (told.tier, told.other), (told.above, told.device)
            for reads, (tier, slots) in zip((told.kind == "load", told.kind == "store"), (lower, upper), strict=True):
                book = self._books.get(tier)
                if book is None or told.request or told.group != book.facts.group:
                    continue
                places = list(dict.fromkeys(slot // book.size for slot in slots))
                if reads:
                    self._reads(told, tier, book, places)
                elif not told.now:
                    self._moving.setdefault(told.id)
                    for place in places:
                        if place not in book.reserved:
                            self._find(tier, f"{told.id} stores into place {place}, which is not reserved")

    def _reads(self, told: SlotTransfer, tier: str, book: Book, places: list[int]) -> None:
        self.reached["tier blocks loaded"] += len(places) * (told.kind == "load")
        for place in places:  # what goes to another tier at once may have left by now
            if place not in book.held and not (told.now and told.above):
                self._find(tier, f"{told.id} loads from place {place}, where nothing is stored")
        if not told.now:
            self._moving[told.id] = book, places
            book.loading.update(places)

    def landed(self) -> None:
        """The engine hears of the oldest step in flight."""
        self._keeping.landed()

    def ended(self, done: Iterable[str], failed: Iterable[str]) -> None:
        """Transfers have ended."""
        failures = set(failed)
        for id in (*done, *failures):
            if (read := self._moving.pop(id, None)) is not None:
                read[0].loading.subtract(read[1])
                if id in failures:
                    read[0].unread.update(read[1])

    # What happens to requests.

    def will_happen(self, one: Happening) -> None:
        """Clients or an operator are about to do this: what is stored meanwhile is what was computed before."""
        new = one.request.id if one.what == "add" and one.request is not None else one.new
        for name, book in self._books.items():
            for number, block in enumerate(names_of(self._device, book, new)):
                self._former[name, new, number].add(block)
        if one.what in ("truncate", "reweigh"):
            for id in [one.id] if one.id else self._device.requests:
                for name, book in self._books.items():
                    self._before[name, id] = names_of(self._device, book, id)

    def happened(self, one: Happening) -> None:
        """Clients or an operator have done this, and what the engine did at once has been heard."""
        if one.what == "add" and one.request is not None:
            self._keeping.forget(one.request.id)
        elif one.what == "fork":
            self._keeping.forget(one.new)
        elif one.what == "truncate":
            self._keeping.forget(one.id)  # the engine may begin anew with it
        elif one.what == "cancel":
            self._keeping.gone(one.id, "cancelled")
        elif one.what == "reweigh":
            self._keeping.reweigh()
            self._reach.reweigh()

    def delivered(self, told: Iterable[Delivered]) -> None:
        """Clients get something; called when all that was done meanwhile has been heard."""
        for one in told:
            if one.ended in SERVED:
                self._keeping.gone(one.request, "ended")

    # What the engine says.

    def hear(self, events: Iterable[TierEvent]) -> None:
        """What it did in one call."""
        for book in self._books.values():
            book.left.clear()
        events = list(events)
        self._to_come = Counter((one.tier, place) for one in events if one.what == "stored" for place in one.places)
        for event in events:
            self._now += 1
            self.reached[f"tier: {event.what}"] += len(event.places)
            if event.tier not in self._books:
                self._find(event.tier, "is spoken of, and is none of the engine's tiers")
                continue
            book = self._books[event.tier]
            if event.what != "looked" and (strays := [p for p in event.places if not 0 <= p < book.facts.blocks]):
                self._find(event.tier, f"place {strays[0]} is {event.what}, and there are {book.facts.blocks}")
                continue
            _HEARD[event.what](self, event, book)
        for name, book in self._books.items():
            book.spared = 0
            self._needed(name, book, book.evicted)
        self._before.clear()

    def _needed(self, tier: str, book: Book, idle: int) -> None:
        """Room was made, and so many places are left empty now."""
        idle -= book.spared
        if book.evicted and idle > 0:
            self._find(tier, f"{min(book.evicted, idle)} blocks are evicted, and nothing needs their places")
        book.evicted = book.spared = 0

    def _looked(self, event: TierEvent, book: Book) -> None:
        wanted = names_of(self._device, book, event.request)[event.first : event.first + event.asked]
        self.reached["tier blocks asked for"] += len(wanted)
        for policy, ideal in book.ideal.items():
            self.reached[f"tier blocks found by the definition, {policy}"] += self._run_of(wanted, ideal.find)
        for (tag, salt), place in zip(wanted, event.places, strict=False):
            holds = book.held.get(place)
            if holds is None:
                self._find(event.tier, f"place {place} is found, and nothing is stored there; {event.request} looks")
            elif holds != OVERTAKEN and (holds[0] != tag or holds[1] not in (salt, UNSAID)):
                other = "another content" if holds[0] != tag else "what was computed under another salt"
                self._find(event.tier, f"place {place} is found, and holds {other}; {event.request} looks")
            if book.facts.policy != "fifo":
                book.used[place] = book.settled[place] = self._now
        if len(event.places) > len(wanted):
            self._find(event.tier, f"more blocks are found than there are; {event.request} looks")
        elif len(event.places) < self._run_of(wanted, book.names.__contains__):
            lost = wanted[len(event.places)]
            place = next(place for place, name in book.held.items() if name == lost)
            what = f"what is stored at place {place}, from where nobody has evicted it, is not found"
            self._find(event.tier, f"{what}; {event.request} looks for block {event.first + len(event.places)}")
        if what := self._reach.looked(event.tier, wanted[: len(event.places) + 1]):
            self._find(event.tier, f"{what}; {event.request} looks")

    def _reserved(self, event: TierEvent, book: Book) -> None:
        self._keeping.goes_down(book.facts.above)
        before = self._before.get((event.tier, event.request))
        claimed = names_of(self._device, book, event.request) if before is None else before
        for number, place in enumerate(event.places, event.first):
            if place in book.held or place in book.reserved:
                self._find(event.tier, f"place {place} is reserved, and is not free")
            name = claimed[number] if 0 <= number < len(claimed) else None
            book.reserved[place] = name = NOTHING_ASKED if event.first == NOBODY else name
            book.used[place] = self._now
            book.formerly[place] = self._former.get((event.tier, event.request, number), set())
            for due in book.due:
                for one in (name, *book.formerly[place]):
                    due.missing.pop(one or NOTHING_ASKED, None)
        self._needed(event.tier, book, book.free)

    def _stored(self, event: TierEvent, book: Book) -> None:
        cells = self._device.cells
        for place in event.places:
            if place not in book.reserved:
                self._find(event.tier, f"place {place} counts as stored, and was not reserved")
            claimed, former = book.reserved.pop(place, None), book.formerly.pop(place, set())
            self._to_come[event.tier, place] -= 1
            tag = cells.get((event.tier, (place + 1) * book.size - 1))
            if self._to_come[event.tier, place]:  # what is stored there after it, in the same call, is there by now
                claimed = claimed or OVERTAKEN
                tag = claimed[0]
            if may_be := {name for name in former if name[0] == tag}:
                may_be |= {claimed} if claimed is not None and claimed[0] == tag else set()
                claimed = may_be.pop() if len(may_be) == 1 else (tag, UNSAID)
            if claimed not in (NOTHING_ASKED, OVERTAKEN) and (tag <= 0 or (claimed is not None and claimed[0] != tag)):
                self._find(event.tier, f"place {place} counts as stored, and holds {said(tag)}")
            name = self._as_elsewhere(tag) if claimed is None else claimed
            book.put(place, name)
            book.settled[place] = self._now
            self._reach.stored(event.tier, name)
            book.unread.discard(place)
            if not book.facts.keeps:
                for ideal in book.ideal.values():
                    ideal.store(name)

    def _as_elsewhere(self, tag: int) -> Name:
        """The name under which another tier has, or had until now, this content."""
        books = self._books.values()
        names = {name for book in books for name in (*book.held.values(), *book.left) if name[0] == tag}
        return names.pop() if len(names) == 1 else (tag, UNSAID)

    def _released(self, event: TierEvent, book: Book) -> None:
        for place in event.places:
            if place not in book.reserved:
                self._find(event.tier, f"place {place} is released, and was not reserved")
            name = book.reserved.pop(place, None)
            book.unowed |= book.formerly.pop(place, set()) | ({name} if name else set())

    def _given_up(self, event: TierEvent, book: Book, how: str) -> Iterator[tuple[int, Name]]:
        """Those of the places in which something is stored, each with its name. Nobody may need them."""
        for place in event.places:
            name = book.held.get(place)
            if name is None:
                self._find(event.tier, f"place {place} is {how}, and nothing is stored there")
                continue
            if book.pins[place] > 0 or book.loading[place] > 0:
                self._find(event.tier, f"place {place} is {how} while it is {self._why(book, place)}")
            yield place, name

    def _evicted(self, event: TierEvent, book: Book) -> None:
        book.spared = len(event.places) - 1 if book.facts.together else 0
        for place, name in self._given_up(event, book, "evicted"):
            book.take(place)
            book.left.add(name)
            book.evicted += 1
            self._turn(event, book, place)
            self._keeping.evicted(event.tier, name)

    def _turn(self, event: TierEvent, book: Book, place: int) -> None:
        """Whether it was this place's turn; those that leave in one event may come in any order."""
        if book.facts.policy not in ("lru", "fifo"):
            return
        for other in book.held:
            free_to_go = not (book.pins[other] or book.loading[other] or other in event.places)
            if free_to_go and book.settled[other] < book.used[place]:
                what = f"place {place} is evicted, and place {other}"
                used = "was used" if book.facts.policy == "lru" else "was stored"
                self._find(event.tier, f"{what}, which nobody needs, {used} before it")
                return

    def _moved(self, event: TierEvent, book: Book) -> None:
        for place, name in self._given_up(event, book, "moved"):
            book.take(place)
            if not any(other.has(name) for other in self._books.values()):
                self._find(event.tier, f"place {place} is moved, and no tier holds what was there")

    def _stranded(self, event: TierEvent, book: Book) -> None:
        names = dict(self._given_up(event, book, "given up as out of reach"))
        for place, name in names.items():
            book.take(place)
            book.left.add(name)
        self._reach.stranded(event.tier, names, self._keeping.live)

    def _dropped(self, event: TierEvent, book: Book) -> None:
        for place in event.places:
            if not book.take(place):
                self._find(event.tier, f"place {place} is dropped, and nothing is stored there")
            elif place not in book.unread:
                self._find(event.tier, f"place {place} is dropped, and no load from there has failed")

    def _pinned(self, event: TierEvent, book: Book) -> None:
        for place in event.places:
            book.pins[place] += 1
            if place not in book.held:
                self._find(event.tier, f"place {place} is pinned, and nothing is stored there")

    def _unpinned(self, event: TierEvent, book: Book) -> None:
        for place in event.places:
            book.pins[place] -= 1
            if book.pins[place] < 0:
                self._find(event.tier, f"place {place} is unpinned more often than it was pinned")

    def _emptied(self, event: TierEvent, book: Book) -> None:
        for place in list(book.held):
            if book.pins[place] > 0 or book.loading[place] > 0:
                self._find(event.tier, f"place {place} is emptied while it is {self._why(book, place)}")
            book.take(place)

    # Time.

    def round(self) -> None:
        """A round is over."""
        self._keeping.round()

    def idle(self, shown: Mapping[str, int] | None) -> None:
        """Nothing runs and nothing is on its way; `shown`: how many blocks each tier holds, as the engine says."""
        for name, book in self._books.items():
            if left := [place for place, many in book.pins.items() if many > 0]:
                self._find(name, f"place {left[0]} is pinned, and nothing runs")
                book.pins.clear()
            if book.reserved and not self._moving:
                place = min(book.reserved)
                self._find(name, f"place {place} is reserved, and nothing is stored there any more")
                book.reserved.clear()
            many = (shown or {}).get(name)
            if many is not None and many != len(book.held):
                self._find(name, f"holds {many} blocks, it says; {len(book.held)} were stored and not evicted")

    # Words.

    def _find(self, tier: str, what: str) -> None:
        self.found.append(f"{tier}: {what}")

    @staticmethod
    def _why(book: Book, place: int) -> str:
        return "loaded from" if book.loading[place] > 0 else "pinned"

    @staticmethod
    def _run_of(wanted: Sequence[Name], is_there: Callable[[Name], object]) -> int:
        """How many of them are there, up to the first that is not."""
        return next((number for number, name in enumerate(wanted) if not is_there(name)), len(wanted))


_HEARD: Mapping[str, Callable[[TierJudge, TierEvent, Book], None]] = {
    "looked": TierJudge._looked,
    "reserved": TierJudge._reserved,
    "stored": TierJudge._stored,
    "released": TierJudge._released,
    "evicted": TierJudge._evicted,
    "moved": TierJudge._moved,
    "stranded": TierJudge._stranded,
    "dropped": TierJudge._dropped,
    "pinned": TierJudge._pinned,
    "unpinned": TierJudge._unpinned,
    "emptied": TierJudge._emptied,
}
