"""The scheduler of a release over both cores: what is compared, and what explains a difference."""

from contextlib import contextmanager
from typing import Any

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.compat import schedule
from blockproof.fuzz.compat.schedule import (
    ScheduleComparison,
    ScheduleMix,
    compare_mixes,
    explained_difference,
    time_schedulers,
)
from blockproof.fuzz.findings.ops_json import to_json
from blockproof.fuzz.opening import environments
from blockproof.fuzz.opening.known_deviations import model_for
from blockproof.fuzz.targets.base import TargetUnavailableError
from blockproof.model.core import Model
from blockproof.model.ops import Allocate, Group, Lookup, Operation, Shape, Submit

RELEASE = "vllm==0.23.0"
needs_release = pytest.mark.skipif(environments.find(RELEASE) is None, reason=f"blockproof targets install {RELEASE}")

CHUNKED = Shape((Group("chunked", 2, chunk=3),), 8, 4, 2, 2, 8)
STORY: tuple[Operation, ...] = (Submit("a", (0, 0, 0, 0)), Lookup("a"))
"""The release finds a hit here that reads nothing (`chunk-astride-block`)."""


def told(model: Model, story: tuple[Operation, ...] = STORY) -> dict[str, Any]:
    calls = [[to_json(operation), to_json(model.apply(operation))] for operation in story]
    return {"shape": to_json(model.shape), "calls": calls}


def test_a_known_deviation_explains_a_difference() -> None:
    explained, what = explained_difference(RELEASE, told(model_for(RELEASE, CHUNKED)), told(Model(CHUNKED)))
    assert explained == ("chunk-astride-block",)
    assert "call 1" in what


def test_what_neither_model_answers_is_not_explained() -> None:
    theirs, ours = told(model_for(RELEASE, CHUNKED)), told(Model(CHUNKED))
    ours["calls"][1][1]["value"] = [1, [[1]]]
    assert explained_difference(RELEASE, theirs, ours)[0] == ()
    theirs["calls"][1][1]["value"] = [2, [[7]]]
    explained, what = explained_difference(RELEASE, theirs, told(Model(CHUNKED)))
    assert explained == ()
    assert what.startswith("the release and its model: call 1")


def test_steps_that_differ_without_a_call_that_does_are_not_explained() -> None:
    same = told(Model(CHUNKED))
    explained, what = explained_difference(RELEASE, same, same)
    assert explained == ()
    assert "no call" in what


def test_what_a_scheduler_registers_late_is_registered_in_the_models() -> None:
    shape = Shape((Group("full", 2),), 8, 8, 2, 2, 8)
    model = Model(shape)
    for operation in (Submit("a", (1, 2, 3)), Allocate("a", 3, delay=True)):
        model.apply(operation)
    before = [*told(Model(shape), (Submit("a", (1, 2, 3)), Allocate("a", 3, delay=True)))["calls"]]
    calls = [*before, [{"register": "a", "tokens": 3}, None]]
    model.register("a", 3)
    model.apply(Submit("b", (1, 2, 3)))
    hit = [[to_json(Submit("b", (1, 2, 3))), None], [to_json(Lookup("b")), to_json(model.apply(Lookup("b")))]]
    assert hit[1][1] == {"outcome": "Done", "value": [2, [[1]]]}
    other = [*calls, hit[0], [hit[1][0], {"outcome": "Done", "value": [0, [[]]]}]]
    found = {"shape": to_json(shape), "calls": [*calls, *hit]}
    _, what = explained_difference(RELEASE, found, {"shape": to_json(shape), "calls": other})
    assert what.startswith("ours and its model: call 4")


def test_findings_are_the_mixes_without_an_explanation() -> None:
    facts = ("full", "Setup()", 3, 0, 0)
    mixes = [
        ScheduleMix(0, *facts, None),
        ScheduleMix(1, *facts, 2, ("gate-lookahead",)),
        ScheduleMix(2, *facts, 1, (), "call 7"),
    ]
    found = ScheduleComparison(1, mixes)
    assert found.findings == [mixes[2]]
    assert found.lines()[1] == "  full: 1 of 3 identical; gate-lookahead 1"
    assert found.lines()[-1] == "mix 2 (Setup()) differs at step 1: call 7"
    assert found.as_json()["identical"] == 1


@pytest.mark.parametrize(("first", "code"), [(None, 0), (4, 1)])
def test_the_command_ends_with_what_was_found(first: int | None, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ScheduleComparison(1, [ScheduleMix(0, "full", "Setup()", 3, 0, 0, first)])
    monkeypatch.setattr(schedule, "compare_mixes", lambda *given, **named: found)
    assert main(["compat", "schedule", "--mixes", "1", "--json"]) == code


def test_a_target_without_a_scheduler_is_refused() -> None:
    with pytest.raises(TargetUnavailableError, match="no scheduler to run"):
        compare_mixes("impl", 1, range(1))


@pytest.mark.slow
@needs_release
def test_the_scheduler_does_the_same_over_both_cores_but_for_known_deviations() -> None:
    found = compare_mixes(RELEASE, 2, range(12))
    assert len(found.mixes) == 12
    assert found.findings == []
    assert {mix.first for mix in found.mixes if mix.shape in ("full", "full+sliding")} == {None}
    assert sum(mix.hits for mix in found.mixes) > 0


@pytest.mark.slow
@pytest.mark.skipif(environments.find("vllm==0.33.0") is None, reason="blockproof targets install vllm==0.33.0")
def test_the_scheduler_of_today_does_so_over_our_core_of_today() -> None:
    found = compare_mixes("vllm==0.33.0", 1, range(12))
    assert found.findings == []
    steps_in_flight = compare_mixes("vllm==0.33.0", 20, range(84, 85))  # its gate counts two of them
    assert steps_in_flight.findings == []
    assert {mix.first for mix in found.mixes if mix.shape in ("full", "full+sliding")} == {None}
    assert sum(mix.hits for mix in found.mixes) > 0


@pytest.mark.slow
@needs_release
def test_a_mistake_in_our_core_is_seen() -> None:
    found = compare_mixes(RELEASE, 2, range(6), "free-order")
    assert found.findings
    assert "ours and its model" in found.findings[0].what


@pytest.mark.slow
@needs_release
def test_steps_are_timed_over_both_cores() -> None:
    times = time_schedulers(RELEASE, rounds=1, steps=3)
    assert [time["workload"] for time in times] == ["full", "full+sliding"]
    assert all(isinstance(time[side], int) and time[side] for time in times for side in ("theirs_per_s", "ours_per_s"))


def test_fewer_mixes_than_were_asked_for_are_no_agreement(monkeypatch):
    """Both processes have ended with status 0 after the same number."""

    @contextmanager
    def children(release):
        yield lambda *given: iter(())

    monkeypatch.setattr(schedule, "_children", children)
    with pytest.raises(TargetUnavailableError, match="of 3 mixes 0 came back"):
        compare_mixes(RELEASE, 1, range(3))
