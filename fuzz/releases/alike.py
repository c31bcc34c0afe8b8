"""Runs in which both sides of a change do the same, so that they can be timed on them."""

from dataclasses import replace

from ...model.ops import Operation, Outcome, Shape
from ...model.snapshot import Snapshot
from ..engines.plan import Plan
from ..engines.seeded import run_random
from ..findings.finding import Trace
from ..reports.summary import Summary
from ..runs.pair import Pair, Strictness
from ..targets.base import Target
from ..traces.replay import replay
from .verify_sides import Borrowed, Lasting, VerifiedSide

TIMED_OPERATIONS = 2_000


def alike_runs(old: VerifiedSide, new: VerifiedSide, plan: Plan, seconds: float | None = None) -> list[Trace]:
    """Runs on the old side, each as far as the new one does the same: at most some `TIMED_OPERATIONS` operations, drawn
    for so many seconds."""
    recording = _Recording(old.target)
    few = replace(plan, seconds=seconds, operations=TIMED_OPERATIONS, oracles=(), known=())
    run_random(recording, few, Summary(old.name, "random", plan.seed, oracles=()))
    pair = Pair(Lasting(old.target), Lasting(new.target), Strictness.SHAPE)
    alike = []
    for trace in recording.traces:
        finding, applied = replay(trace, pair)
        same = applied.operations if finding is None else applied.operations[: max(0, finding.step)]
        alike += [Trace(trace.shape, same)] if same else []
    return alike


class _Recording(Borrowed):
    """Keeps the operations of each run."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.traces: list[Trace] = []

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        self.traces.append(Trace(shape, ()))
        return super().start(shape)

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        last = self.traces[-1]
        self.traces[-1] = Trace(last.shape, (*last.operations, operation))
        return super().step(operation)
