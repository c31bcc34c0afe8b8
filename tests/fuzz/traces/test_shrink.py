"""The reducer: small, the same every time, and never another kind of finding.

The targets are the model itself with one rule broken, so that what is found is known exactly.
"""

from dataclasses import replace
from typing import Any

import pytest
from blockproof.fuzz.findings.cause import failed
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.runs.lockstep import LockstepRun
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.shrink import NotReproducedError, shrink
from blockproof.fuzz.traces.simplify import weight
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.operations import Workload
from blockproof.fuzz.workload.shapes import ATTENTION, draw_shape
from blockproof.model.core import Model
from blockproof.model.ops import (
    Advance,
    Allocate,
    Done,
    Free,
    Group,
    Lookup,
    Operation,
    Outcome,
    Preempt,
    Shape,
    StepStart,
    Submit,
)
from blockproof.model.snapshot import Snapshot
from blockproof.model.tables import Policy, give_back


class ModelTarget:
    """A target that is a model with a fault; `interrupt_after` presses Ctrl-C after so many runs."""

    name = "model"

    def __init__(self, kind: type[Model], interrupt_after: int | None = None) -> None:
        self.kind = kind
        self.runs = 0
        self.interrupt_after = interrupt_after

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        self.runs += 1
        if self.interrupt_after is not None and self.runs > self.interrupt_after:
            raise KeyboardInterrupt
        self.model = self.kind(shape)
        built = isinstance(self.model.construction, Done)
        return self.model.construction, self.model.snapshot() if built else None

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        return self.model.step(operation)

    def close(self) -> None:
        pass


class FreesInTableOrder(Model):
    """Gives a request's blocks back head first."""

    def __init__(self, shape):
        super().__init__(shape, Policy(give_back=self.head_first))

    def head_first(self, core, name):
        for tables in core.state.tables:
            if name in tables:
                tables[name] = tables[name][::-1]
        give_back(core, name)


class KeepsIdentityOfTakenBlocks(Model):
    """A block that is handed out again keeps the identity it had."""

    def __init__(self, shape):
        super().__init__(shape)
        state = self.state

        def take(count):
            queue = state.queue()[:count]
            return queue if len(queue) == count else type(state).take(state, count)

        state.take = take  # type: ignore[method-assign]


class PredictsOneMore(Model):
    """Refuses an allocation that would just fit."""

    def predicted(self, *args, **kwargs):
        return super().predicted(*args, **kwargs) + 1


class ForgetsPreemptions(Model):
    """Counts a request that was preempted as a new one in the statistics."""

    def preempt(self, op):
        super().preempt(op)
        self.requests[op.request].preemptions = 0


class HitsOneBlockShort(Model):
    """Drops the last block of hits of three blocks or more."""

    def lookup(self, op):
        found: Any = super().lookup(op)
        tokens, blocks = found
        if len(blocks) == 1 and len(blocks[0]) > 2 and blocks[0][-1]:
            tokens, blocks = tokens - self.rules[0].b, (blocks[0][:-1],)
            self.requests[op.request].hit = (tokens, [list(row) for row in blocks])
        return tokens, blocks


class TwoFaults(FreesInTableOrder, HitsOneBlockShort):
    """The order of freed blocks is by far the easier one to show."""


FAULTS = (FreesInTableOrder, KeepsIdentityOfTakenBlocks, PredictsOneMore, ForgetsPreemptions, HitsOneBlockShort)


def found(target: ModelTarget, seed: int, wanted: tuple[str, str] | None = None) -> tuple[tuple[str, str], Trace]:
    """A run that shows a finding, of the wanted kind if one is given."""
    lockstep = LockstepRun(target)
    names = list(ATTENTION)
    for index in range(3000):
        draw = SeededDraw(f"{seed}/{index}")
        shape = draw_shape(draw, ATTENTION[names[index % len(names)]])
        finding = lockstep.start(shape)
        workload = Workload(draw, shape)
        for _ in range(60 if lockstep.built else 0):
            finding = finding or lockstep.step(workload.next(lockstep.model))
        if finding is not None and wanted in (None, finding.kind):
            return finding.kind, Trace(shape, lockstep.trace.operations[: finding.step + 1])
    raise AssertionError("nothing was found: the fault is not planted")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_shrunk_trace_shows_the_same_kind_of_finding_and_can_lose_no_operation(fault, seed):
    target = ModelTarget(fault)
    kind, trace = found(target, seed)
    shrunk = shrink(trace, kind, target)
    finding, applied = replay(shrunk.trace, target)
    assert finding == shrunk.finding
    assert finding.kind == kind
    assert applied == shrunk.trace
    assert shrunk.complete
    operations = shrunk.trace.operations
    for i in range(len(operations)):
        less = Trace(shrunk.trace.shape, operations[:i] + operations[i + 1 :])
        finding, _ = replay(less, target)
        assert finding is None or finding.key != shrunk.finding.key


def test_shrinking_twice_gives_the_same_trace():
    target = ModelTarget(HitsOneBlockShort)
    kind, trace = found(target, 5)
    first, second = shrink(trace, kind, target), shrink(trace, kind, target)
    assert (first.trace, first.candidates) == (second.trace, second.candidates)


LEAST = Shape((Group("full", 1),), 3, 2, hash_block_size=1, scheduler_block_size=1, max_num_batched_tokens=1)
EXPECTED = {
    FreesInTableOrder: (Submit("a", (0,)), Allocate("a", 2), Free("a")),
    PredictsOneMore: (Submit("a", (0,)), Allocate("a", 1)),
    ForgetsPreemptions: (Submit("a", (0,)), Preempt("a"), Lookup("a")),
    HitsOneBlockShort: (Submit("a", (0, 0, 0)), Allocate("a", 3), Submit("b", (0, 0, 0, 0)), Lookup("b")),
}


@pytest.mark.parametrize("fault", EXPECTED, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("seed", range(4))
def test_the_result_is_what_a_careful_human_would_write(fault, seed):
    target = ModelTarget(fault)
    kind = {"FreesInTableOrder": ("free", "Free"), "ForgetsPreemptions": ("stats", "Lookup")}.get(fault.__name__)
    kind, trace = found(target, seed, kind)
    shrunk = shrink(trace, kind, target).trace
    assert len(shrunk.operations) == len(EXPECTED[fault])
    assert weight(shrunk.operations) <= weight(EXPECTED[fault])
    if fault is FreesInTableOrder:
        assert shrunk == Trace(LEAST, EXPECTED[fault])


def test_an_easier_finding_of_another_kind_is_not_taken_instead():
    target = ModelTarget(TwoFaults)
    shape = Shape((Group("full", 4),), 30, 40, hash_block_size=4, scheduler_block_size=4, max_num_batched_tokens=40)
    # Without `first`, freeing a table of several blocks would show the other fault.
    first = (Submit("r0", (1,) * 3), Allocate("r0", 3), Free("r0"))
    rest = (Submit("r1", (2,) * 16), Allocate("r1", 16), StepStart(), Submit("r2", (2,) * 17), Lookup("r2"), Free("r1"))
    trace = Trace(shape, first + rest)
    shrunk = shrink(trace, ("outcome", "Lookup"), target)
    assert shrunk.finding.kind == ("outcome", "Lookup")
    assert [type(op) for op in shrunk.trace.operations] == [Submit, Allocate, Submit, Lookup]


class RaisesTwoWays(ModelTarget):
    """Raises when something is allocated in a full pool, and in another place for requests of many blocks."""

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        outcome, snapshot = super().step(operation)
        if isinstance(operation, Allocate) and isinstance(outcome, Done):
            try:
                if operation.new_tokens > 8:
                    self.many(operation.new_tokens)
                if not snapshot.free:
                    raise LookupError("nothing is left")
            except LookupError as error:
                return failed(error), snapshot
        return outcome, snapshot

    def many(self, tokens: int) -> None:
        raise LookupError(f"{tokens} tokens are many")


def test_an_exception_is_not_shrunk_to_one_of_another_place():
    shape = Shape((Group("full", 4),), 30, 40, hash_block_size=4, scheduler_block_size=4, max_num_batched_tokens=40)
    trace = Trace(shape, (Submit("a", (0,) * 20), Allocate("a", 20)))
    finding, _ = replay(trace, RaisesTwoWays(Model))
    shrunk = shrink(trace, finding.kind, RaisesTwoWays(Model))
    assert shrunk.finding.cause.message == "9 tokens are many"
    assert shrunk.finding.identity == finding.identity
    assert finding.identity[:4] == ("lockstep", "outcome", "Allocate", "LookupError")
    assert finding.identity[4].endswith("in RaisesTwoWays.many")


class AnswersNonsense(ModelTarget):
    """Shows no registered entries once a request holds more than a block, and no tables once three do."""

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        outcome, snapshot = super().step(operation)
        held = [len(table) for table in snapshot.tables[0].values()]
        if len(held) > 2:
            return outcome, snapshot._replace(tables=None)
        return outcome, snapshot._replace(registered=[]) if max(held, default=0) > 1 else snapshot


def test_an_answer_of_the_wrong_form_is_not_shrunk_to_one_that_is_wrong_elsewhere():
    shape = Shape((Group("full", 4),), 30, 40, hash_block_size=4, scheduler_block_size=4, max_num_batched_tokens=40)
    three = [step for name in "abc" for step in (Submit(name, (0, 1, 2)), Allocate(name, 3))]
    finding, _ = replay(Trace(shape, tuple(three)), AnswersNonsense(Model))
    shrunk = shrink(Trace(shape, tuple(three)), finding.kind, AnswersNonsense(Model))
    assert "Snapshot.tables" in finding.identity[3]
    assert shrunk.finding.identity == finding.identity
    assert len(shrunk.trace.operations) == 6


class HearsAllAtOnce(ModelTarget):
    """Of a step it hears what was sampled when it ends, and nothing later."""

    lacks = frozenset({"Reject"})


def test_tokens_that_no_step_has_sampled_are_left_out_for_a_target_that_hears_all_with_the_step():
    shape = Shape((Group("full", 4),), 30, 40, hash_block_size=4, scheduler_block_size=4, max_num_batched_tokens=40)
    step, late = (Submit("a", (0, 1, 2)), Allocate("a", 3), Advance("a", (7,))), Advance("a", (8,))
    finding, applied = replay(Trace(shape, (*step, late)), HearsAllAtOnce(Model))
    assert finding is None
    assert applied.operations == step
    _, applied = replay(Trace(shape, (*step, late)), ModelTarget(Model))
    assert applied.operations == (*step, late)


class Choosy(ModelTarget):
    """Remembers the shapes that were tried, and has blocks of some sizes and no events."""

    lacks = frozenset({"Shape.events"})
    block_sizes = frozenset({2, 4, 8})

    def __init__(self, kind: type[Model]) -> None:
        super().__init__(kind)
        self.shapes: list[Shape] = []

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        self.shapes.append(shape)
        return super().start(shape)


@pytest.mark.parametrize("groups", [(Group("full", 8),), (Group("full", 8), Group("sliding", 8, window=9))])
def test_only_shapes_are_tried_that_could_have_been_drawn(groups):
    shape = Shape(groups, 30, 40, hash_block_size=8, scheduler_block_size=8, max_num_batched_tokens=40, events=True)
    trace = Trace(shape, (Submit("a", (0,) * 20), Allocate("a", 20), Advance("a"), Free("a")))
    target = Choosy(FreesInTableOrder)
    finding, _ = replay(trace, target)
    shrunk = shrink(trace, finding.kind, target)
    assert shrunk.finding.kind == ("free", "Free")
    assert len(target.shapes) > 50
    for tried in target.shapes:
        assert isinstance(Model(tried).construction, Done)
        assert tried.groups
        assert not tried.events
        assert {group.block_size for group in tried.groups} <= {2, 4, 8}


def test_what_the_original_does_not_fulfil_is_not_asked_for():
    shape = Shape((Group("full", 3),), 30, 40, hash_block_size=1, scheduler_block_size=3, max_num_batched_tokens=40)
    assert not isinstance(Model(shape).construction, Done)
    finding, _ = replay(Trace(shape, ()), Choosy(BuildsAnything))
    shrunk = shrink(Trace(shape, ()), finding.kind, Choosy(BuildsAnything))
    assert shrunk.finding.kind == ("outcome", "start")
    assert shrunk.trace.shape.num_blocks == 2


class BuildsAnything(Model):
    """Says that it has built what it has not."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.construction = Done()

    def snapshot(self) -> Snapshot:
        return Model(replace(LEAST, num_blocks=self.shape.num_blocks)).snapshot()


def test_a_trace_that_shows_nothing_or_something_else_is_refused():
    trace = Trace(LEAST, EXPECTED[FreesInTableOrder])
    with pytest.raises(NotReproducedError, match="no difference instead of `free` at Free"):
        shrink(trace, ("free", "Free"), ModelTarget(Model))
    with pytest.raises(NotReproducedError, match="`free` at Free instead of `ref_cnt` at Free"):
        shrink(trace, ("ref_cnt", "Free"), ModelTarget(FreesInTableOrder))


def test_giving_up_early_is_reported_and_keeps_what_was_reached():
    target = ModelTarget(HitsOneBlockShort)
    kind, trace = found(target, 5)
    shrunk = shrink(trace, kind, target, max_candidates=12)
    assert not shrunk.complete
    assert shrunk.candidates == 12
    assert replay(shrunk.trace, target)[0].kind == kind
    assert 0 < len(shrunk.trace.operations) < len(trace.operations)


def test_ctrl_c_keeps_what_was_reached():
    kind, trace = found(ModelTarget(HitsOneBlockShort), 5)
    shrunk = shrink(trace, kind, ModelTarget(HitsOneBlockShort, interrupt_after=12))
    assert not shrunk.complete
    assert len(shrunk.trace.operations) < len(trace.operations)
    assert replay(shrunk.trace, ModelTarget(HitsOneBlockShort))[0].kind == kind


def test_a_fault_of_the_construction_shrinks_to_a_shape_without_operations():
    class NeedsFourBlocks(Model):
        def __init__(self, *given):
            super().__init__(*given)
            if self.shape.num_blocks > 3:
                self.state.outside.append(1)

    target = ModelTarget(NeedsFourBlocks)
    trace = Trace(
        Shape((Group("full", 4),), 30, 40, hash_block_size=4, scheduler_block_size=4, max_num_batched_tokens=40), ()
    )
    finding, _ = replay(trace, target)
    shrunk = shrink(trace, finding.kind, target)
    assert (shrunk.trace.operations, shrunk.trace.shape.num_blocks) == ((), 4)
