"""Between two full looks only what an operation can have changed is compared; the next full look sees all the rest."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from blockproof.fuzz.adapters.impl import open_changed_impl
from blockproof.fuzz.adapters.vllm.style import VllmStyleTarget
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import FULL_LOOK_EVERY, run_random
from blockproof.fuzz.findings.finding import Finding, Trace
from blockproof.fuzz.findings.oracle_names import CONTRACT, LOCKSTEP, ORACLES
from blockproof.fuzz.findings.starved import EVERY_OPERATION
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.lockstep import LockstepRun
from blockproof.fuzz.runs.model_looks import ModelLooks
from blockproof.fuzz.targets.base import Target
from blockproof.fuzz.targets.glance import CHANGES
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.operations import Workload
from blockproof.fuzz.workload.shapes import ATTENTION, draw_shape
from blockproof.model.core import Model
from blockproof.model.ops import (
    Advance,
    Allocate,
    CommonPrefix,
    Failed,
    Free,
    Group,
    Lookup,
    ReadTable,
    Shape,
    Submit,
)
from blockproof.model.snapshot import Snapshot

EVERY = 4
SHAPE = Shape((Group("full", 2),), 10, 12, 2, 2, 12)
PREFILL = (Submit("a", (0, 1, 0, 1, 1)), Lookup("a"), Allocate("a", 5, hit=True), Advance("a", (0,)))
READS = (ReadTable("a"), ReadTable("a"), CommonPrefix("a"), ReadTable("a"), ReadTable("a"))
"""The third of them comes two operations before the next full look."""


def traces() -> Iterator[Trace]:
    """A run of each attention type."""
    for number, (name, kinds) in enumerate(ATTENTION.items()):
        draw = SeededDraw(f"glance/{number}")
        shape = draw_shape(draw, kinds)
        model, workload, operations = Model(shape), Workload(draw, shape), []
        for _ in range(150):
            operations.append(workload.next(model))
            model.apply(operations[-1])
        assert operations, name
        yield Trace(shape, tuple(operations))


def judged(target: Target, operations: tuple[Any, ...], every: int = EVERY) -> tuple[Finding | None, int]:
    """What a run of these operations and its end find, and after how many operations."""
    run = LockstepRun(target, Judging(full_look_every=every))
    assert run.start(SHAPE) is None
    for number, operation in enumerate(operations, 1):
        if finding := run.step(operation):
            return finding, number
    return run.finish(), len(operations)


def test_what_an_operation_can_change_is_said_of_every_kind():
    assert CHANGES.keys() == set(EVERY_OPERATION.values())


def test_glances_at_model_and_core_show_what_full_looks_show():
    glanced, looked = open_changed_impl("glanced", lambda manager: None), open_target("impl")
    assert isinstance(glanced, VllmStyleTarget)
    shared = 0
    for trace in traces():
        model = Model(trace.shape)
        looks = ModelLooks(model)
        glanced.start(trace.shape), looked.start(trace.shape)
        before = looks.look()
        for operation in trace.operations:
            outcome = model.apply(operation)
            full, shown = model.snapshot(), looks.glance(operation, before)
            assert shown == full, operation
            theirs = glanced.glance(operation, before, shown)
            assert theirs == looked.step(operation) == (outcome, full), operation
            assert theirs[1].tables is shown.tables, operation  # rows that are the same are the same objects
            shared += shown is before
            before = shown
    assert shared > 1_000


def forgets_an_identity(manager: Any) -> None:
    """A read that makes the core forget what a block holds: nothing of it can be seen at the read itself."""

    def answer(read: Callable[..., Any], *args: Any) -> Any:
        manager.evict_blocks({1})
        return read(*args)

    manager.get_num_common_prefix_blocks = partial(answer, manager.get_num_common_prefix_blocks)


def test_a_fault_in_an_untouched_corner_of_the_core_is_found_at_the_next_full_look():
    faulty = open_changed_impl("forgetful", forgets_an_identity)
    finding, number = judged(faulty, PREFILL + READS)
    assert finding is not None
    assert (finding.observable, number) == ("labels", 2 * EVERY)
    at_once, number = judged(faulty, PREFILL + READS, every=1)
    assert at_once is not None
    assert (at_once.observable, number) == ("labels", len(PREFILL) + 3)
    assert judged(open_target("impl"), PREFILL + READS) == (None, len(PREFILL + READS))


def test_the_end_of_a_run_is_a_full_look():
    faulty = open_changed_impl("forgetful", forgets_an_identity)
    finding, number = judged(faulty, (*PREFILL, CommonPrefix("a")))
    assert finding is not None
    assert (finding.observable, number) == ("labels", len(PREFILL) + 1)


class StaleTarget(VllmStyleTarget):
    """Our core, right, but its observer misses a part of what each operation changes."""

    def __init__(self, missed: str) -> None:
        self.__dict__.update(vars(open_target("impl")))
        self.missed = missed

    def start(self, shape: Shape) -> Any:
        answer = super().start(shape)
        observer: Any = self._observer
        fields: dict[str, Any] = {"holders": slice(0, 4), "identities": slice(6, 10), "new_block_ids": 10}
        glances = observer.glance

        def stale(operation: Any, last: Snapshot, expected: Snapshot) -> Any:
            shown = last[fields[self.missed]]
            setattr(observer, self.missed, lambda *_: shown)
            seen = glances(operation, last, expected)
            delattr(observer, self.missed)
            return seen

        observer.glance = stale
        return answer


@pytest.mark.parametrize(
    ("missed", "observable"), [("holders", "free"), ("identities", "labels"), ("new_block_ids", "new_block_ids")]
)
def test_an_observer_that_misses_something_is_found_out(missed, observable):
    operations = (*PREFILL[:2], PREFILL[2])
    finding, number = judged(StaleTarget(missed), operations)
    assert finding is not None
    assert (finding.observable, number) == (observable, 3)


def test_an_observer_that_shows_another_requests_row_is_found_at_the_next_full_look():
    class Blind(VllmStyleTarget):
        def start(self, shape: Shape) -> Any:
            answer = super().start(shape)
            observer: Any = self._observer
            rows = observer.tables_of
            observer.tables_of = lambda name: rows("a")
            return answer

    target = Blind.__new__(Blind)
    target.__dict__.update(vars(open_target("impl")))
    more = (Submit("b", (1,)), Allocate("b", 1))
    finding, number = judged(target, PREFILL + more)
    assert finding is not None
    assert (finding.observable, number) == ("tables", len(PREFILL + more))


def test_the_engine_says_where_a_late_finding_began():
    faulty = open_changed_impl("forgetful", forgets_an_identity)
    summary = run_random(faulty, Plan(0, operations=20_000), Summary("forgetful", "random", 0))
    assert summary.finding is not None
    assert summary.trace is not None
    assert isinstance(summary.finding.operation, CommonPrefix)
    assert isinstance(summary.trace.operations[-1], CommonPrefix)
    assert summary.finding.step == len(summary.trace.operations) - 1


def test_every_operation_is_looked_at_fully_where_an_oracle_or_a_run_asks_for_it():
    class Counting(VllmStyleTarget):
        looks = 0

        def look(self) -> Any:
            self.looks += 1
            return super().look()

    def looks(oracles: tuple[str, ...], operations: tuple[Any, ...] = PREFILL + READS, every: int = EVERY) -> int:
        target = Counting.__new__(Counting)
        target.__dict__.update(vars(open_target("impl")))
        run = LockstepRun(target, Judging(oracles, full_look_every=every))
        assert run.start(SHAPE) is None
        for operation in operations:
            assert run.step(operation) is None
        assert run.finish() is None
        return target.looks

    assert looks((LOCKSTEP,)) == looks(ORACLES) == 1 + 2 + 1
    assert looks((LOCKSTEP, CONTRACT)) == looks((LOCKSTEP,), every=1) == 1 + len(PREFILL + READS)
    refused = Allocate("a", 0)
    assert isinstance(Model(SHAPE).apply(refused), Failed)
    assert looks((LOCKSTEP,), (*PREFILL[:1], refused)) == 2
    assert looks((LOCKSTEP,), (*PREFILL, Free("a"), Free("a"))) == 1 + 1 + 1
    assert FULL_LOOK_EVERY > 1
