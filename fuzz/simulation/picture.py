"""A story as it is stepped through: what each call did to requests and to memory, for a page."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from .device import SimulatedDevice
from .in_words import TellingEngine
from .memory import NOTHING, Slot
from .protocol import ClientRequest, Delivered, Engine, EngineShape, ScheduledBatch, StepResults

STATES = ("waiting", "prefill", "decode", "in flight", "running", "preempted", "parked", "cancelled", "done")
"""What a request does: it waits; a step computes its prompt, or what follows; a step of an earlier call has not ended;
it has begun and nothing is under way; it was set back; its client has gone; it has ended, refused or failed, too."""
NOBODY, JUNK = -1, -2
"""In place of a request in a slot: nobody wrote it; what nobody may read, such as a rejected draft."""


@dataclass
class PicturedCall:
    """One call, and what it did."""

    text: str
    more: list[str] = field(default_factory=list)
    """What belongs to it, a line each."""
    states: list[tuple[int, int]] = field(default_factory=list)
    """Requests, by their place, that do something else from now on, and the place in `STATES`."""
    slots: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Slots that hold something else from now on: memory, slot, request, position; or `NOBODY` or `JUNK`, and 0."""
    misread: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Slots in which a read found something else than must be there, and what: as in `slots`."""


@dataclass
class StoryPicture:
    """A whole story."""

    shape: str = ""
    width: int = 1
    """Slots of a block."""
    requests: list[str] = field(default_factory=list)
    memories: list[str] = field(default_factory=list)
    moments: list[PicturedCall] = field(default_factory=list)


class PicturingEngine(TellingEngine):
    """An engine whose story is told, and pictured. All else is the engine's own."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.picture = StoryPicture()
        self.device: SimulatedDevice | None = None
        """To be set once the run has one."""
        self._is_over = False
        self._places: dict[str, int] = {}
        self._shown: dict[int, int] = {}
        self._flying: Counter[str] = Counter()
        self._prompts: dict[str, int] = {}
        self._got: Counter[str] = Counter()
        self._held: dict[Slot, int] = {}
        self._writers: dict[Slot, tuple[str, int]] = {}
        self._owners: dict[int, tuple[str, int]] = {}

    def document(self) -> dict[str, Any]:
        """JSON-ready, when the story is over."""
        if not self._is_over:
            self._settle()
        return asdict(self.picture)

    # Calls.

    def _begin(self, text: str) -> None:
        """See `TellingEngine`: a moment begins, and what the device did since the last one belongs to that."""
        super()._begin(text)
        if not self._is_over:
            self._settle()
            self.picture.moments.append(PicturedCall(text))

    def _more(self, text: str) -> None:
        """See `TellingEngine`."""
        super()._more(text)
        if not self._is_over:
            self.picture.moments[-1].more.append(text)

    def _optional(self, name: str, *given: Any) -> None:
        """See `TellingEngine`."""
        super()._optional(name, *given)
        if name in ("pause", "resume"):
            self._state(given[0], "parked" if name == "pause" else "running")
        elif name == "fork":
            parent, new = given
            self._prompts[new] = self._prompts.get(parent, 0) + self._got[parent]
            self._added(new)

    def start(self, shape: EngineShape) -> None:
        """See `Engine`."""
        if self.picture.shape:  # a request is served alone, to be compared with: that is no part of the story
            self._settle()
            self._is_over = True
        super().start(shape)
        if not self._is_over:
            self.picture.shape = self.lines[-1].removeprefix("start: ")
            self.picture.moments.clear()

    def add(self, request: ClientRequest) -> Any:
        """See `Engine`."""
        self._prompts[request.id] = len(request.prompt)
        return super().add(request)

    def _added(self, id: str) -> None:
        if not self._is_over:
            self._places.pop(id, None)  # an id that is used again is somebody else
            self._got[id] = self._flying[id] = 0
        self._state(id, "waiting")

    def _gone(self, id: str) -> None:
        self._state(id, "cancelled")

    def schedule(self) -> ScheduledBatch | None:
        """See `Engine`."""
        batch = super().schedule()
        if isinstance(batch, ScheduledBatch):
            for name in batch.preempted:
                self._state(name, "preempted")
            for name in [name for name in self._flying if self._flying[name]]:
                self._state(name, "in flight")
            for part in batch.parts:
                self._flying[part.request] += 1
                first = part.first or 0
                in_prompt = part.first is not None and first < self._prompts.get(part.request, 0)
                self._state(part.request, "prefill" if in_prompt else "decode")
        return batch

    def _landed(self, batch: ScheduledBatch | None, results: StepResults) -> None:
        for part in batch.parts if batch is not None else ():
            self._flying[part.request] -= 1
            self._state(part.request, "in flight" if self._flying[part.request] else "running")

    def _told(self, one: Delivered) -> None:
        self._got[one.request] += len(one.tokens)
        if one.ended:
            self._state(one.request, "done")

    # What follows from them.

    def _state(self, name: str, state: str) -> None:
        """It does this from now on; who is over stays so."""
        if self._is_over:
            return
        if name not in self._places:
            self._places[name] = len(self.picture.requests)
            self.picture.requests.append(name)
        place, number = self._places[name], STATES.index(state)
        over = self._shown.get(place) in (STATES.index("cancelled"), STATES.index("done"))
        if not over and self._shown.get(place) != number:
            self._shown[place] = number
            moment = self.picture.moments[-1]
            moment.states = [one for one in moment.states if one[0] != place] + [(place, number)]

    def _settle(self) -> None:
        """What the device has done since the last call."""
        if self.device is None or not self.picture.moments:
            return
        cells, moment = self.device.cells, self.picture.moments[-1]
        self.picture.width = cells.width
        fresh = {slot: who for slot, who in cells.writers.items() if self._writers.get(slot) != who}
        self._writers.update(fresh)
        for slot, who in fresh.items():
            self._owners.setdefault(cells.get(slot), who)
        for (memory, block), tags in cells.pages.items():
            for offset, tag in enumerate(tags):
                slot = memory, block * cells.width + offset
                if self._held.get(slot, NOTHING) != tag or slot in fresh:
                    self._held[slot] = tag
                    moment.slots.append(self._content(slot, tag, fresh))
        moment.misread = [self._content(slot, tag, fresh) for slot, tag in cells.misread]
        cells.misread.clear()

    def _content(self, slot: Slot, tag: int, fresh: dict[Slot, tuple[str, int]]) -> tuple[int, int, int, int]:
        """A slot and what lies in it, as in `PicturedCall.slots`."""
        name, position = ("", 0) if tag <= NOTHING else self._owner(slot, tag, fresh)
        who = JUNK if tag < 0 else self._places.get(name, NOBODY)
        return self._memory(slot[0]), slot[1], who, position

    def _owner(self, slot: Slot, tag: int, fresh: dict[Slot, tuple[str, int]]) -> tuple[str, int]:
        """Whose content it is: of who computed it there, else of who has it as its own."""
        if slot in fresh:
            return fresh[slot]
        if tag in self._owners:
            return self._owners[tag]
        assert self.device is not None
        for name, one in self.device.requests.items():
            for group in range(len(self.device.rules)):
                tags = self.device.tags_of(one, group)
                if tag in tags:
                    return self._owners.setdefault(tag, (name, tags.index(tag)))
        return "", 0

    def _memory(self, name: str) -> int:
        memories = self.picture.memories
        if name not in memories:
            memories.append(name)
        return memories.index(name)
