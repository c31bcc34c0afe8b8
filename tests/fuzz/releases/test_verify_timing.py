"""Both sides of a verification are timed in turns, and what that says."""

import pytest
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.opening.targets import Home, home_of
from blockproof.fuzz.releases import alike
from blockproof.fuzz.releases.timing import Timing, compare_speed
from blockproof.model.ops import Refused

from .verified_sides import Changed, verified

REORDERED = "fault:free-order-reversed"


def test_timing_takes_fewer_rounds_where_there_is_little_time():
    done = verified("impl", "impl", operations=200)
    runs = alike.alike_runs(done.old, done.new, Plan(1, attention=("full",)))[:2]
    home = Home("impl", None)
    timing = compare_speed(home, home, runs, 9, 0.0)
    assert isinstance(timing, Timing)
    assert len(timing.rounds) == 3


def test_what_is_slower_in_every_round_is_called_slower():
    slower = Timing(((1.0, 1.5), (2.0, 2.2), (1.0, 1.3)), 1_000)
    assert slower.ratios == pytest.approx([1.1, 1.3, 1.5])
    assert slower.text() == (
        "the new one takes 1.30 times as long (1.10 to 1.50 in 3 rounds of 1,000 operations): slower in every round"
    )
    faster = Timing(((1.0, 0.5), (2.0, 1.8)), 10)
    assert faster.text().endswith("faster in every round")
    assert Timing(((1.0, 0.9), (1.0, 1.1)), 10).text().endswith("no difference beyond the spread")
    assert slower.as_json()["ratio"] == 1.3


def test_both_sides_are_timed_in_turns_on_what_they_do_alike(monkeypatch):
    monkeypatch.setattr(alike, "TIMED_OPERATIONS", 300)
    done = verified("impl", "impl", operations=200, timed=True)
    assert isinstance(done.timing, Timing)
    assert len(done.timing.rounds) == 9
    assert done.timing.operations >= 100
    assert all(seconds > 0 for pair in done.timing.rounds for seconds in pair)


def test_what_they_do_alike_before_they_differ_is_timed():
    done = verified("impl", REORDERED, operations=200)
    plan = Plan(1, attention=("full",))
    runs_alike = alike.alike_runs(done.old, done.new, plan)
    assert sum(len(trace.operations) for trace in runs_alike) > 50
    refusing = verified("impl", Changed(allocate=Refused()), operations=200)
    short = alike.alike_runs(refusing.old, refusing.new, plan)
    assert short


def test_what_cannot_be_timed_says_why(capfd):
    assert compare_speed(Home("impl", None), Home("impl", None), []) == "not timed: they differ at once"
    done = verified("impl", "impl", operations=200)
    traces = alike.alike_runs(done.old, done.new, Plan(1, attention=("full",)))
    assert "has ended" in str(compare_speed(Home("nowhere:make", None), Home("impl", None), traces))
    assert home_of("nowhere:make") == Home("nowhere:make", None)
    program = Home("program:./engine", None)
    assert str(compare_speed(Home("impl", None), program, traces)).startswith("not timed: a program does its work")
