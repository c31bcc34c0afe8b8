"""The judges of a scheduler's run, over an engine that is the model and does what a test tells it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from blockproof.fuzz.adapters.vllm.scheduler_run import Observed
from blockproof.fuzz.engines.stories import StoryTask
from blockproof.fuzz.engines.story_fuzzing import StoryOutcome
from blockproof.fuzz.findings.oracle_names import BLOCKPROOF
from blockproof.fuzz.oracles.contract import Contract
from blockproof.fuzz.runs.scheduler_story import PATIENCE, StoryRun
from blockproof.model.core import Model
from blockproof.model.ops import Advance, Allocate, Free, Group, Lookup, Operation, Shape, Submit
from blockproof.model.shown.snapshot import Snapshot

SHAPE = Shape((Group("full", 4),), 8, 32, 4, 4, 32)
LIFE: tuple[Operation, ...] = (
    Submit("a", (1, 2, 3, 4, 5)),
    Lookup("a"),
    Allocate("a", 5, hit=True),
    Advance("a", (6,)),
    Free("a"),
)


@dataclass
class FakeEngine:
    """Applies an operation of `life` in each step, and shows what `spoil` makes of the model's state."""

    life: Sequence[Operation] = LIFE
    spoil: Callable[[Snapshot], Snapshot] = lambda shown: shown
    happens: Callable[["FakeEngine"], None] = lambda engine: None
    shape: Shape = SHAPE
    hides: frozenset[str] = frozenset()
    loses: frozenset[str] = frozenset()
    judge: Any = None
    observed: Observed = field(default_factory=Observed)
    expected: set[str] = field(default_factory=lambda: {"a"})
    endless: bool = False

    def __post_init__(self) -> None:
        self._model = Model(self.shape)
        self._left = list(self.life)
        self.shown = self._model.snapshot()

    @property
    def over(self) -> bool:
        return not self._left and not self.endless

    def step(self) -> None:
        self.observed.steps += 1
        if self._left:
            operation, before = self._left.pop(0), self.shown
            outcome = self._model.apply(operation)
            self.shown = self.spoil(self._model.snapshot())
            self.judge(operation, outcome, before, self.shown)
            if isinstance(operation, Free):
                self.observed.finished.append(operation.request)
        self.happens(self)

    def finish(self) -> None:
        pass

    def outside(self, shown: Snapshot) -> list[int]:
        return []

    def counts(self) -> dict[str, int]:
        return {"steps": self.observed.steps}


def kinds_found(engine: FakeEngine) -> list[tuple[str, str]]:
    return [(finding.judge, finding.rule) for finding in StoryRun(engine).run(5000)]


def test_a_run_in_order_is_silent_and_the_contract_was_asked() -> None:
    run = StoryRun(FakeEngine())
    assert run.run(100) == []
    assert run.reached["steps"] == len(LIFE)
    assert run.reached["contract: S6 checked"] > 0


def test_what_the_device_reads_wrong_is_a_finding_of_the_shadow_memory() -> None:
    def reads(engine: FakeEngine) -> None:
        engine.observed.corruption.append("a: the query at 4 or behind reads position 3 of group 0 in block 7")

    rule = "the query at N or behind reads position N of group N in block N"
    assert kinds_found(FakeEngine(happens=reads)) == [("shadow", rule)]


def test_a_reference_too_many_breaks_the_contract() -> None:
    def counted_twice(shown: Snapshot) -> Snapshot:
        return shown._replace(ref_cnt=[count + (count == 1) for count in shown.ref_cnt])

    assert ("contract", "S1") in kinds_found(FakeEngine(spoil=counted_twice))
    found = StoryRun(FakeEngine(spoil=counted_twice)).run(5000)
    assert ("contract", "S1", "too many references") in [finding.kind for finding in found]


def test_a_table_that_loses_a_block_ends_the_run() -> None:
    def emptied(shown: Snapshot) -> Snapshot:
        return shown._replace(tables=[{name: table[:1] for name, table in of.items()} for of in shown.tables])

    run = StoryRun(FakeEngine(spoil=emptied))
    (found,) = [one for one in run.run(100) if one.rule != "S1"]
    assert (found.judge, found.rule, found.step) == ("contract", "S15", 3)


@pytest.mark.parametrize("error", [KeyError("gone"), AssertionError()])
def test_what_the_scheduler_raises_is_named_with_its_place(error: Exception) -> None:
    def scheduling(engine: FakeEngine) -> None:
        raise error

    assert kinds_found(FakeEngine(happens=scheduling)) == [
        ("exception", f"{type(error).__name__} in scheduling < step")
    ]


def test_starved_requests_are_a_finding() -> None:
    def starves(engine: FakeEngine) -> None:
        engine.observed.starved = ["a"]

    assert kinds_found(FakeEngine(happens=starves)) == [("liveness", "starved")]


def test_a_request_that_never_ended_is_lost_and_an_aborted_one_is_not() -> None:
    assert kinds_found(FakeEngine(expected={"a", "b"})) == [("liveness", "lost")]
    assert kinds_found(FakeEngine(expected=set())) == []


def test_blocks_that_do_not_come_back_are_a_finding() -> None:
    assert kinds_found(FakeEngine(observed=Observed(missing_blocks=2))) == [("liveness", "blocks missing")]


def test_a_run_in_which_nobody_ends_is_given_up() -> None:
    engine = FakeEngine(life=LIFE[:-1], endless=True)
    assert kinds_found(engine) == [("liveness", "nobody ends")]
    assert engine.observed.steps <= PATIENCE + len(LIFE) + 1


def test_a_bug_of_ours_is_none_of_the_engine(monkeypatch):
    def fails(self, operation, *given):
        raise IndexError("list index out of range")

    monkeypatch.setattr(Contract, "step", fails)
    (found,) = StoryRun(FakeEngine()).run(10)
    assert (found.judge, found.step) == (BLOCKPROOF, 1)
    assert found.rule.startswith("bug: IndexError in fails")
    assert "a bug of blockproof" in found.what
    outcome = StoryOutcome("x", StoryTask(1), {"steps": 1}, found=[{"judge": BLOCKPROOF, "known": False}])
    assert outcome.exit_code == 70


def test_an_id_outside_of_the_pool_is_named(monkeypatch):
    spoil = lambda shown: shown._replace(free=[*shown.free, 99])  # noqa: E731
    (found,) = StoryRun(FakeEngine(spoil=spoil)).run(10)
    assert (found.judge, found.rule) == ("contract", "S4")
    assert found.what == "the free list names block 99, the pool has 0 .. 7"
