"""A lower tier that is played by hand, deed by deed."""

from blockproof.fuzz.simulation.device import SimulatedDevice
from blockproof.fuzz.simulation.protocol import ClientRequest, Scheduled, ScheduledBatch, Slots, SlotTransfer
from blockproof.fuzz.simulation.story import Happening
from blockproof.fuzz.simulation.tier_judge import TierJudge
from blockproof.fuzz.simulation.tiers import LowerTier, TierEvent

from .engines import shape_of

SHAPE = shape_of()
PROMPTS = {"r0": (1, 2, 3, 4, 5), "r1": (1, 2, 3, 4, 1), "r2": (5, 5, 5, 5, 5)}
FACTS = LowerTier(3, "lru", frozenset({"ended"}))


class Stage:
    """A device on which requests were computed, one behind the other in blocks of their own, and a tier beside it."""

    def __init__(self, facts: LowerTier = FACTS, salt: str | None = None, **below: LowerTier) -> None:
        self.device = SimulatedDevice(SHAPE, separate=False, reads_first=False, delays=())
        self.judge = TierJudge({"host": facts, **below}, self.device)
        for number, (name, prompt) in enumerate(PROMPTS.items()):
            request = ClientRequest(name, prompt, 2, salt=salt if name == "r1" else None)
            self.device.add(request)
            self.judge.happened(Happening(0, "add", request=request))
            table = tuple(range(3 * number, 3 * number + 3))
            batch = ScheduledBatch((Scheduled(name, 0, 5, slots=(Slots(table),)),))
            assert self.device.launch(batch).wrong == ()
            self.judge.launched(batch)
            self.judge.landed()

    def say(self, what, *places: int, tier: str = "host", **more) -> None:
        self.judge.hear([TierEvent(what, tier, places, **more)])

    def store(self, id: str, block: int, place: int, *, well: bool = True) -> None:
        """A block of the device, as its step has ended."""
        told = SlotTransfer(id, "store", 0, (2 * block, 2 * block + 1), other=(2 * place, 2 * place + 1))
        batch = ScheduledBatch(transfers=(told,))
        self.judge.launched(batch)
        self.judge.landed()
        self.device.transfer(told, right=well)
        self.judge.ended([id] if well else [], [] if well else [id])

    def keep(self, name: str, number: int, place: int) -> None:
        """Block `number` of a request is stored."""
        self.say("reserved", place, request=name, first=number)
        self.store(f"{name} {number}", 3 * int(name[1]) + number, place)
        self.say("stored", place)

    @property
    def found(self) -> str:
        """The first objection."""
        return self.judge.found[0] if self.judge.found else ""
