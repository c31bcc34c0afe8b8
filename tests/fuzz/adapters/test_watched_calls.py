"""What is told of calls on a core is what was asked of it (`ManagerWatch`, `CoreCalls`)."""

from typing import Any

import pytest
from blockproof.fuzz.adapters.impl import bind_impl, open_changed_impl
from blockproof.fuzz.adapters.vllm.engine.core_calls import CoreCalls
from blockproof.fuzz.adapters.vllm.engine.watched_calls import ManagerWatch
from blockproof.fuzz.findings.ops_json import operation_from_json, to_json
from blockproof.model.ops import (
    Advance,
    Allocate,
    Arrive,
    Failed,
    Free,
    Group,
    Lookup,
    Operation,
    Outcome,
    Preempt,
    Refused,
    Reject,
    RemoveSkipped,
    Reset,
    Shape,
    StepStart,
    Submit,
)
from blockproof.model.snapshot import Snapshot

SHAPE = Shape((Group("full", 2), Group("sliding", 2, window=4)), 20, 32, 2, 2, 16)
STORY: list[Operation] = [
    Submit("a", (1, 2, 3, 4, 5)),
    StepStart(),
    Lookup("a"),
    Allocate("a", 5, hit=True),
    Advance("a", (6,)),
    Submit("b", (1, 2, 3, 4, 9)),
    Allocate("a", 1),
    Lookup("b"),
    Allocate("b", 1, hit=True),
    Advance("a", (7,)),
    Advance("b", (8,)),
    RemoveSkipped("a"),
    Allocate("b", 3, lookahead=2),
    Advance("b", (1,), 2),
    Allocate("b", 31),
    Preempt("a"),
    Lookup("a"),
    Allocate("a", 3, hit=True, lookahead=1),
    Advance("a", (3,)),
    Free("b"),
    Free("a"),
    Submit("c", (9, 9, 9, 9, 9)),
    Lookup("c"),
    Allocate("c", 0, hit=True, external=4, delay=True),
    Arrive("c"),
    Allocate("c", 1),
    Advance("c", (2,)),
    Free("c"),
    Reset(),
]
CALLS = (StepStart, Lookup, Allocate, Free, Preempt, RemoveSkipped, Reset)
Told = list[tuple[Operation, Outcome, Snapshot, Snapshot]]
Asked = list[tuple[Operation, Outcome, Snapshot]]


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of requests that are finished, not preempted, when they leave; our core's requests do not know it."""
    names: set[str] = set()
    request = bind_impl().names("Request")
    monkeypatch.setattr(request, "is_finished", lambda self: self.request_id in names, raising=False)
    return names


def applied(follow: Any, story: list[Operation], ended: set[str]) -> Asked:
    """The operations of a story on our core, whose manager is followed."""
    target = open_changed_impl("followed", follow)
    target.start(SHAPE)
    asked = []
    for operation in story:
        ended |= {operation.request} if isinstance(operation, Free) else set()
        asked.append((operation, *target.step(operation)))
    return asked


def watched(story: list[Operation], ended: set[str], fault: Any = lambda manager: None) -> tuple[Asked, Told]:
    told: Told = []
    submitted = {one.request: one for one in story if isinstance(one, Submit)}

    def follow(manager: Any) -> None:
        fault(manager)
        ManagerWatch(manager, submitted.__getitem__, frozenset(), lambda *one: told.append(one), lambda *cut: None)

    return applied(follow, story, ended), told


def test_each_call_is_told_with_its_outcome_and_the_state_behind_it(ended: set[str]) -> None:
    asked, told = watched(STORY, ended)
    calls = [(one, outcome, shown) for one, outcome, shown in asked if isinstance(one, CALLS)]
    heard = [(one, outcome, after) for one, outcome, _, after in told if isinstance(one, CALLS)]
    assert [one for one, _, _ in heard] == [one for one, _, _ in calls]
    for (one, outcome, after), (_, right, shown) in zip(heard, calls, strict=True):
        assert outcome == right or not isinstance(one, Lookup | Allocate | Reset), one
        assert (after.tables, after.free, after.ref_cnt) == (shown.tables, shown.free, shown.ref_cnt), one
    assert any(isinstance(outcome, Refused) for _, outcome, _ in heard)


def test_what_a_request_learns_is_told_before_its_next_call(ended: set[str]) -> None:
    _, told = watched(STORY, ended)
    steps = [(type(one), one.request) for one, *_ in told if isinstance(one, Submit | Advance | Arrive | Reject)]
    assert [step for step in steps if step[1] == "a"] == [(Submit, "a"), *[(Advance, "a")] * 3]
    assert [one for one, *_ in told if isinstance(one, Advance) and one.rejected] == [Advance("b", (1,), 2)]
    assert [one for one, *_ in told if isinstance(one, Submit)] == [one for one in STORY if isinstance(one, Submit)]


def test_a_lookup_that_fails_is_told(ended: set[str]) -> None:
    def fail(*given: object) -> None:
        raise KeyError("planted")

    def broken(manager: Any) -> None:
        manager.get_computed_blocks = fail

    _, told = watched(STORY[:3], ended, broken)
    assert told[-1][:2] == (Lookup("a"), Failed("KeyError"))


def test_calls_are_written_down_for_a_comparison(ended: set[str]) -> None:
    kept: list[CoreCalls] = []
    story = [one for one in STORY if not isinstance(one, RemoveSkipped | Reset | Arrive)]
    story = [one for one in story if getattr(one, "request", "") != "c"]
    asked = applied(lambda manager: kept.append(CoreCalls(manager, SHAPE)), story, ended)
    (calls,) = kept
    written: Any = calls.as_json()
    assert written["shape"] == to_json(SHAPE)
    assert len(written["calls"]) == calls.count
    told = [(operation_from_json(raw), outcome) for raw, outcome in written["calls"]]
    told = [one for one in told if isinstance(one[0], Lookup | Allocate)]
    right = [(one, to_json(outcome)) for one, outcome, _ in asked if isinstance(one, Lookup | Allocate)]
    assert told == right
