"""Observing findings again: what is told of a release that is lost, changes its mind or shows something new."""

import pytest
from blockproof.fuzz.adapters import families
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.releases import observing
from blockproof.fuzz.releases.findings import FindingEntry, updated
from blockproof.fuzz.releases.observing import differences, observe_releases
from blockproof.fuzz.releases.versions import named_targets, releases_to_install
from blockproof.fuzz.targets.base import TargetLostError
from blockproof.fuzz.traces.trace_file import TraceFile
from blockproof.model.ops import Group, Shape, Submit

SHAPE = Shape((Group("full", 1),), 3, 2, hash_block_size=1, scheduler_block_size=1, max_num_batched_tokens=1)
ENTRY = FindingEntry("A title", "leak", "S1", "yes: seen", "nothing", "fix it")
FILE = TraceFile(Trace(SHAPE, (Submit("a", (0,)),)), "impl")


def observed_as(monkeypatch, *answers, times=1):
    """What is observed, and told, if the trace shows these one after the other."""
    left, seen = list(answers), []

    def next_answer(entry, file, target):
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(observing, "observe", next_answer)
    entries, traces = {"one": ENTRY, "no-trace": ENTRY}, {"one": FILE}
    result = observe_releases(entries, traces, ["impl"], times, open_target, lambda *told: seen.append(told))
    assert left == []
    return *result, seen


def test_what_a_release_shows_is_told_and_returned(monkeypatch):
    observed, problems, seen = observed_as(monkeypatch, "shows")
    assert (observed, problems) == ({"one": {"impl": "shows"}}, [])
    assert seen == [("impl", "one", ["shows"])]


def test_a_release_that_changes_its_mind_is_a_problem(monkeypatch):
    observed, problems, seen = observed_as(monkeypatch, "shows", "nothing", "shows", times=3)
    assert observed == {"one": {"impl": "shows"}}
    assert problems == ["one on impl: shows, nothing, shows"]
    assert seen == [("impl", "one", ["shows", "nothing", "shows"])]


def test_a_release_that_is_lost_shows_how(monkeypatch):
    observed, _, _ = observed_as(monkeypatch, TargetLostError("hang", "no answer"))
    assert observed == {"one": {"impl": "hang"}}


def test_a_difference_from_what_was_recorded_is_a_line():
    recorded = {"one": {"a": "shows", "b": "nothing"}}
    assert differences(recorded, {"one": {"a": "shows"}}) == []
    assert differences(recorded, {"one": {"b": "shows"}, "two": {"a": "nothing"}}) == [
        "one on b: shows, recorded was nothing",
        "two on a: nothing, recorded was nothing at all",
    ]


def test_new_observations_replace_old_ones_and_leave_the_rest():
    recorded = {"one": {"a": "shows", "b": "nothing"}, "two": {"a": "nothing"}}
    assert updated(recorded, {"one": {"b": "shows"}, "three": {"a": "hang"}}) == {
        "one": {"a": "shows", "b": "shows"},
        "two": {"a": "nothing"},
        "three": {"a": "hang"},
    }
    assert recorded["one"]["b"] == "nothing"


def test_targets_are_named_one_by_one_or_by_their_engine():
    vllm = families()["vllm"]
    known = [vllm.spec(version) for version in vllm.releases]
    assert named_targets([], None) == []
    assert named_targets(["impl", known[0], "impl"], "vllm") == ["impl", *known]
    with pytest.raises(ValueError, match="names no releases"):
        named_targets([], "nonsense==1..2")


def test_what_is_to_be_installed_is_named_or_every_known_release():
    vllm, every = families()["vllm"], [one.spec(version) for one in families().values() for version in one.releases]
    assert releases_to_install(["vllm==0.1.2", "vllm==0.1.2"], every=False) == ["vllm==0.1.2"]
    assert releases_to_install([], every=True) == every
    assert releases_to_install(["vllm", "vllm==0.1.2"], every=True)[:2] == ["vllm==0.1.2", vllm.spec(vllm.releases[0])]
    with pytest.raises(ValueError, match="no release is named"):
        releases_to_install([], every=False)
    with pytest.raises(ValueError, match="write vllm==VERSION"):
        releases_to_install(["vllm"], every=False)
