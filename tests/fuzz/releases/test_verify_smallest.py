"""What a change has introduced is told with a trace of its own, also where a mistake of the old side makes it shorter.

The planted pair: with Eagle both sides answer every hit with nothing (A). The new side refuses room from the ninth
operation on (B), and also at once after A: so the smallest trace of B of all has A in it.
"""

import sys
from dataclasses import replace

import pytest
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.findings.finding import Finding, Trace
from blockproof.fuzz.findings.oracle_names import LOCKSTEP, MODEL_FREE
from blockproof.fuzz.opening.targets import Home, open_here
from blockproof.fuzz.releases import verify as verifying
from blockproof.fuzz.releases import verify_report as report
from blockproof.fuzz.releases.verify import Verification, verify
from blockproof.fuzz.releases.verify_effects import BothSides, Where
from blockproof.fuzz.releases.verify_sides import VerifiedSide
from blockproof.fuzz.releases.verify_smallest import smallest_introduced
from blockproof.fuzz.runs.pair import Pair
from blockproof.fuzz.targets.answers import hit_of
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.shrink import Keeps, Shrunk, shrink, shrink_keeping
from blockproof.model.ops import Advance, Allocate, Done, Free, Group, Lookup, Operation, Refused, Shape, Submit

JUDGES = (LOCKSTEP, *MODEL_FREE)
LATE = 8
"""Operations after which B shows by itself."""
KIND = ("refused", "Allocate")
SHAPE = Shape((Group("full", 1),), 30, 20, hash_block_size=1, scheduler_block_size=1, max_num_batched_tokens=20)
STORY = (
    Submit("a", (0, 1, 2, 3)),
    Allocate("a", 4),
    Advance("a"),
    Submit("c", (5, 6)),
    Allocate("c", 2),
    Advance("c"),
    Free("c"),
    Submit("b", (0, 1, 2, 4)),
    Lookup("b"),
    Allocate("b", 4),
)


class Planted:
    """Our core with A, and with B if it is the new side."""

    def __init__(self, name: str, new: bool) -> None:
        self._core, self.name, self._new = open_here("impl"), name, new
        self.close = self._core.close

    def start(self, shape: Shape):
        self._eagle, self._done, self._has_a = shape.eagle, 0, False
        outcome, self._shown = self._core.start(shape)
        return outcome, self._shown

    def step(self, operation: Operation):
        self._done += 1
        if self._new and isinstance(operation, Allocate) and (self._has_a or self._done > LATE):
            return Refused(), self._shown
        outcome, self._shown = self._core.step(operation)
        if self._eagle and isinstance(operation, Lookup) and isinstance(outcome, Done):
            tokens, blocks = hit_of(outcome) or (0, ())
            self._has_a |= tokens > 0
            outcome = Done((0, tuple(() for _ in blocks)))
        return outcome, self._shown


def planted() -> tuple[VerifiedSide, VerifiedSide]:
    def side(name: str) -> VerifiedSide:
        return VerifiedSide(name, name, Planted(name, name == "new"), Home("impl", None), JUDGES)

    return side("old"), side("new")


def verified(operations: int) -> Verification:
    old, new = planted()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verifying, "compare_speed", lambda *given: "not timed")
        plan = Plan(1, operations=operations, attention=("full",))
        return verify(old, new, plan, lambda line: None)


def test_a_mistake_of_the_old_side_is_not_dragged_into_what_is_introduced():
    done = verified(800)
    assert "eagle" in {name for one in done.compared.situations for name in _options(one.trace)}, (
        "A made nothing shorter"
    )
    rows = report.differences(done)
    assert {row.where for row in rows} == {Where.NEW}
    about_room = [row for row in rows if row.source.finding.kind[1] == "Allocate"]
    assert about_room
    for row in about_room:
        assert not row.trace.shape.eagle
        assert len(row.trace.operations) <= LATE + 1
    assert "both wrong" not in report.verdict(done)


def _options(trace: Trace) -> list[str]:
    return [name for name in ("eagle",) if getattr(trace.shape, name)]


def seeking(trace: Trace) -> tuple[BothSides, Shrunk | None, list[Trace]]:
    """Both sides, what comes of looking for B alone, and the traces that were asked about."""
    old, new = planted()
    sides, asked = BothSides(old, new, JUDGES), []

    def shrinks(start: Trace, keeps: Keeps, seconds: float | None) -> Shrunk:
        def noted(trace: Trace, finding: Finding) -> bool:
            asked.append(trace)
            return keeps(trace, finding)

        return shrink_keeping(start, KIND, Pair(old.target, new.target), noted, max_seconds=seconds)

    return sides, smallest_introduced(sides, [trace], JUDGES, shrinks, 60.0), asked


def test_where_every_run_shows_both_something_simpler_is_looked_for():
    mixed = Trace(replace(SHAPE, eagle=True), STORY)
    old, new = planted()
    pair = Pair(old.target, new.target)
    assert shrink(mixed, KIND, pair).trace.shape.eagle, "the smallest trace of all has A in it"
    sides, small, asked = seeking(mixed)
    assert asked[0] == mixed
    assert small is not None
    assert not small.trace.shape.eagle
    assert len(small.trace.operations) == LATE + 1
    assert sides.introduces(small.trace)
    assert replay(small.trace, pair)[0].kind == KIND


def test_what_is_introduced_stays_so_at_every_step():
    pure = Trace(SHAPE, STORY)
    sides, small, _ = seeking(pure)
    assert small is not None
    assert sides.introduces(pure)
    assert sides.introduces(small.trace)
    assert len(small.trace.operations) == LATE + 1


def test_nothing_is_made_up_where_only_both_are_wrong(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "LATE", 10_000)
    sides, small, _ = seeking(Trace(replace(SHAPE, eagle=True), STORY))
    assert small is None
    assert not sides.introduces(Trace(replace(SHAPE, eagle=True), STORY))
