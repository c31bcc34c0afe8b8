"""A verification keeps its time, however slow a side is, and tells what it has not done."""

import sys
import time

import pytest
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.findings.oracle_names import LOCKSTEP, MODEL_FREE
from blockproof.fuzz.opening.targets import Home, open_here
from blockproof.fuzz.releases import verify as verifying
from blockproof.fuzz.releases import verify_report as report
from blockproof.fuzz.releases.verify import Verification, verify
from blockproof.fuzz.releases.verify_clock import GRACE, UNTIL, Clock, latest
from blockproof.fuzz.releases.verify_effects import Where
from blockproof.fuzz.releases.verify_sides import Punctual, VerifiedSide
from blockproof.fuzz.runs.judging import Judging, TooLongError
from blockproof.fuzz.targets.base import Target, TargetLostError
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.shrink import shrink
from blockproof.model.ops import Allocate, Group, Lookup, Operation, Refused, Shape, Submit

JUDGES = (LOCKSTEP, *MODEL_FREE)
STEP = 0.4
"""Seconds that a call takes which is slow."""


class Slow:
    """Our core, wrong in its refusals, and slow: at every lookup, or at all; or such that its process hangs and is
    lost there."""

    name = "slow"

    def __init__(self, at: type | tuple[type, ...], hangs: bool) -> None:
        self._core, self._at, self._hangs = open_here("impl"), at, hangs
        self.close = self._core.close

    def start(self, shape: Shape):
        outcome, self._shown = self._core.start(shape)
        return outcome, self._shown

    def step(self, operation: Operation):
        if isinstance(operation, self._at):
            time.sleep(STEP)
            if self._hangs:
                raise TargetLostError("hang", f"no answer within {STEP} s")
        if isinstance(operation, Allocate) and operation.new_tokens > 2:
            return Refused(), self._shown
        outcome, self._shown = self._core.step(operation)
        return outcome, self._shown


def verified(slow: Target, seconds: float) -> tuple[Verification, float]:
    old, new = (VerifiedSide("one", "one", side, Home("impl", None), JUDGES) for side in (open_here("impl"), slow))
    begin = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verifying, "compare_speed", lambda *given: "not timed")
        done = verify(old, new, Plan(1, seconds, attention=("full",)), lambda line: None)
    return done, time.monotonic() - begin


@pytest.mark.slow
@pytest.mark.parametrize(("at", "hangs"), [((Submit, Allocate, Lookup), False), (Lookup, False), (Lookup, True)])
def test_a_slow_side_takes_no_longer_than_it_may(at, hangs):
    done, took = verified(Slow(at, hangs), 12.0)
    assert took < 12.0 + GRACE + 3 * STEP
    assert done.code == 1
    assert report.differences(done)
    for name, share in (("comparing", latest("comparing")), ("judging", latest("judging old"))):
        assert done.clock.spent[name] < 12.0 * share + 2 * STEP, name


@pytest.mark.slow
def test_a_side_that_hangs_is_told_as_introduced_though_it_has_taken_the_time(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "STEP", 3.0)
    done, took = verified(Slow(Submit, True), 8.0)
    assert took < 8.0 + GRACE + 2 * 3.0
    rows = report.differences(done)
    assert "raises at Submit" in {row.what for row in rows}
    assert {row.where for row in rows} == {Where.NEW}
    assert done.code == 1


def test_once_the_time_is_over_no_side_is_asked_and_what_there_is_is_kept():
    asked = [0]

    def is_over() -> bool:
        asked[0] += 1
        return asked[0] > 12

    target, trace = Punctual(Slow((), False), is_over), _shown_by(Slow((), False))
    small = shrink(trace, ("outcome", "Allocate"), target)
    assert not small.complete
    assert asked[0] == 13
    with pytest.raises(TooLongError):
        replay(trace, target, Judging())


def _shown_by(target):
    """A trace with an operation more than it needs."""
    wanted = (Submit("a", (0,)), Submit("b", (0, 1)), Submit("c", (0, 1, 2, 3)), Allocate("a", 1), Allocate("c", 4))
    shape = Shape((Group("full", 1),), 20, 9, hash_block_size=1, scheduler_block_size=1, max_num_batched_tokens=9)
    finding, applied = replay(Trace(shape, wanted), target, Judging())
    assert finding is not None
    assert finding.kind == ("outcome", "Allocate")
    return applied


def test_a_stage_may_take_from_the_next_one_and_always_has_a_little():
    clock = Clock(100.0)
    with clock.stage("comparing"):
        assert clock.ends == pytest.approx(100.0 * UNTIL["judging new"], abs=1.0)
        assert not clock.is_over()
    assert clock.ends is None
    late = Clock(10.0, begin=time.monotonic() - 11.0)
    with late.stage("proving"):
        assert late.ends == pytest.approx(11.0 + GRACE, abs=1.0)
    assert list(late.spent) == ["proving"]
    endless = Clock()
    with endless.stage("placing"):
        assert (endless.ends, endless.is_over()) == (None, False)
