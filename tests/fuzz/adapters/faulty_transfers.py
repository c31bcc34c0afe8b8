"""Mistakes of a worker, planted between a release's connector and the device; run in the release's interpreter.

Reads lines `CONNECTOR NUMBER [FAULT]` and prints for each what judges the story of this number: a line of JSON.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from blockproof.fuzz.adapters.vllm.engine.simulated import VllmSimulated
from blockproof.fuzz.simulation.faults import FaultyEngine
from blockproof.fuzz.simulation.protocol import Delivered, ScheduledBatch, SlotTransfer, StepResults
from blockproof.fuzz.simulation.run import SimulatedRun
from blockproof.fuzz.simulation.traffic import draw_simulation, facts_of
from blockproof.fuzz.workload.draw import SeededDraw

STEPS = 3000


class _Changes(FaultyEngine):
    """Changes what begins, and what is told to have ended."""

    def schedule(self) -> ScheduledBatch | None:
        batch = self._engine.schedule()
        return None if batch is None else self.changed(batch)

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> Any:
        return self._engine.update(batch, replace(results, transferred=self.told(results.transferred)))

    def changed(self, batch: ScheduledBatch) -> ScheduledBatch:
        """What the device gets."""
        return batch

    def told(self, ids: tuple[str, ...]) -> tuple[str, ...]:
        """What the engine hears."""
        return ids


def _told_early(kind: str) -> type[_Changes]:
    class ToldEarly(_Changes):
        _begun: tuple[str, ...] = ()

        def changed(self, batch: ScheduledBatch) -> ScheduledBatch:
            self._begun += tuple(one.id for one in batch.transfers if one.kind == kind)
            return batch

        def told(self, ids: tuple[str, ...]) -> tuple[str, ...]:
            begun, self._begun = self._begun, ()
            return (*ids, *begun)

    return ToldEarly


def _lost(words: str) -> type[_Changes]:
    class Lost(_Changes):
        def told(self, ids: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(id for id in ids if words not in id)

    return Lost


class _NotWaitedFor(_Changes):
    def changed(self, batch: ScheduledBatch) -> ScheduledBatch:
        return replace(batch, awaited=())


class _NeverCarriedOut(_Changes):
    def changed(self, batch: ScheduledBatch) -> ScheduledBatch:
        return replace(batch, transfers=())


class _WrongBlock(_Changes):
    """What belongs into a load's first block lands in its last one, and the other way round."""

    def changed(self, batch: ScheduledBatch) -> ScheduledBatch:
        return replace(batch, transfers=tuple(map(self._turned, batch.transfers)))

    def _turned(self, one: SlotTransfer) -> SlotTransfer:
        width, slots = max(rule.b for rule in self._engine.rules), one.device  # type: ignore[attr-defined]
        if one.kind == "store" or len(slots) < 2 * width:
            return one
        return replace(one, device=(*slots[-width:], *slots[width:-width], *slots[:width]))


class _ToldTwice(FaultyEngine):
    """Every report of requests that have arrived is given again with the results of the next step."""

    def start(self, shape: Any) -> None:
        super().start(shape)
        link: Any = self._engine._link  # type: ignore[attr-defined]
        report, before = link.worker.report, list[set[str]]([set()])

        def twice(ended: Any) -> dict[str, Any]:
            fields = dict(report(ended))
            again, before[0] = before[0], set(fields.get("finished_recving", ()))
            return fields | ({"finished_recving": before[0] | again} if before[0] | again else {})

        link.worker.report = twice

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> tuple[Delivered, ...]:
        return tuple(self._engine.update(batch, results))


FAULTS: Mapping[str, Callable[[Any], Any]] = {
    "load-told-too-early": _told_early("load"),
    "store-told-too-early": _told_early("store"),
    "store-not-waited-for": _NotWaitedFor,
    "load-into-wrong-block": _WrongBlock,
    "arrival-lost": _lost("load "),
    "sending-lost": _lost("send of"),
    "store-lost": _lost("store "),
    "arrival-told-twice": _ToldTwice,
    "never-carried-out": _NeverCarriedOut,
}
"""By name."""


def judged_by(connector: str, number: int, fault: str = "") -> list[str]:
    """Who objects to the story of this number; `not built` if there is none."""
    engine: Any = VllmSimulated()
    facts = facts_of(engine)
    narrowed = replace(facts, options={**facts.options, "connector": (connector,)})
    story = draw_simulation(SeededDraw(f"planted/{number}"), narrowed)
    try:
        run = SimulatedRun(FAULTS[fault](engine) if fault else engine, story)
    except NotImplementedError:
        return ["not built"]
    return [one.judge for one in run.run(STEPS)]


if __name__ == "__main__":
    for line in sys.stdin:
        connector, number, *faults = line.split()
        print(json.dumps(judged_by(connector, int(number), *faults)), flush=True)
