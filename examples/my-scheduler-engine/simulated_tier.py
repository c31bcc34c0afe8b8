"""What blockproof calls to simulate the engine with a tier on the host."""

from blockproof.fuzz.simulation.protocol import Delivered, EngineShape, EngineView, ScheduledBatch, StepResults
from blockproof.fuzz.simulation.tiers import LowerTier, TierEvent
from scheduler_engine import Pool
from simulated import OffloadingEngine, SimulatedEngine
from tiered import HostTier, TieredScheduler

OPTIONS = {"policy": ("lru", "fifo"), "stores": ("all", "preempted"), "device_cache": (True, False), "workers": (1, 2)}


class TieredEngine(OffloadingEngine):
    """The engine with a tier on the host, in which stores and loads may fail."""

    name = "my-scheduler-engine, tiered"
    options = OPTIONS
    survives = frozenset({"late", "doubled", "strange", "reordered", "lost"})

    def start(self, shape: EngineShape) -> None:
        """A new engine; the host has half as many blocks as the device."""
        self.size, self.blocks = shape.groups[0].block_size, shape.num_blocks
        limits = (shape.max_length, shape.max_tokens, shape.max_requests)
        self.policy, self.every = shape.options["policy"], shape.options["stores"] == "all"
        self.workers = shape.options["workers"]
        caching = shape.core.caching and shape.options["device_cache"]
        tier = HostTier(self.blocks // 2 + 1, self.policy)
        self.engine = TieredScheduler(Pool(self.blocks, self.size, caching), limits, tier, self.every, self.workers)

    def tiers(self) -> dict[str, LowerTier]:
        """The host."""
        keeps = frozenset({"preempted", "ended", "cancelled"} if self.every else {"preempted"})
        return {"host": LowerTier(self.engine.tier.places, self.policy, keeps)}

    def tier_events(self) -> list[TierEvent]:
        """What was done with it."""
        deeds, self.engine.tier.deeds = self.engine.tier.deeds, []
        return [TierEvent(one.what, "host", one.places, one.request, one.first, one.asked) for one in deeds]

    def schedule(self) -> ScheduledBatch | None:
        """What is stored and loaded goes with the step."""
        batch, engine = SimulatedEngine.schedule(self), self.engine
        moved = [self.moved(one, "store", False) for one in engine.stores]
        moved += [self.moved(one, "load", False) for one in engine.loads]
        preempted = tuple(engine.preempted)
        engine.stores.clear()
        engine.loads.clear()
        if batch is None and not moved and not preempted:
            return None
        parts, copies = (batch.parts, batch.copies) if batch else ((), ())
        return ScheduledBatch(parts, copies, tuple(moved), preempted=preempted, own=batch.own if batch else [])

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> list[Delivered]:
        """A step has ended, or a transfer."""
        for id in results.transferred:
            self.engine.reported(id, 0)
        for worker, id in results.by_worker:
            self.engine.reported(id, worker)
        for id in results.failed:
            self.engine.moved(id, False)
        return SimulatedEngine.update(self, batch, results)

    def idle(self) -> bool:
        """True if nothing is on its way, either."""
        return super().idle() and not self.engine.storing

    def look(self) -> EngineView:
        """Its free blocks, and how many the host holds."""
        return EngineView(free=len(self.engine.pool.free), tiers={"host": len(self.engine.tier.found)})


def make_engine() -> TieredEngine:
    """What --target names."""
    return TieredEngine()
