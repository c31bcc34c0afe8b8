"""What becomes of the reports of transfers between the device and the engine."""

import pytest
from blockproof.fuzz.engines.simulated import SimulatedFamily
from blockproof.fuzz.simulation.faults import OneAtATime
from blockproof.fuzz.simulation.reports import GIVEN_UP, SURVIVES, TransferReports, patterns
from blockproof.fuzz.simulation.smaller import PASSES
from blockproof.fuzz.simulation.story import SimulatedStory, story_from_json, story_to_json
from blockproof.fuzz.simulation.traffic import draw_simulation, facts_of
from blockproof.fuzz.workload.draw import SeededDraw

from .engines import shape_of


def heard(pattern, *, workers=1, survives=SURVIVES, rounds=30, ends=(("a", True),)):
    """By round, what is heard of transfers that end in round 0."""
    reports = TransferReports(pattern, workers, survives)
    told = {}
    for now in range(rounds):
        done, failed = ([id for id, well in ends if well is right] for right in (True, False))
        one = reports.tell(done, failed, (), now) if now == 0 else reports.tell((), (), (), now)
        if one:
            told[now] = (one.done, one.failed) if workers == 1 else one.by_worker
    return told, reports


@pytest.mark.parametrize(
    ("word", "rounds"),
    [("", [0]), ("late 3", [3]), ("twice 4", [0, 4]), ("lost", []), ("lost 20", [20]), ("reordered", [0])],
)
def test_when_a_report_comes(word, rounds):
    told, _ = heard((word,))
    assert told == {now: (["a"], []) for now in rounds}


def test_one_of_nobody_comes_beside_it():
    told, reports = heard(("strange",))
    assert told == {0: (["a", "nobody-1"], [])}
    assert reports.odd == 1


def test_the_last_comes_first():
    ends = (("a", True), ("b", True), ("c", False))
    assert heard(("", "reordered"), ends=ends)[0] == {0: (["b", "a"], ["c"])}


def test_failures_are_lost_and_doubled_too():
    assert heard(("twice 2",), ends=(("a", False),))[0] == {0: ([], ["a"]), 2: ([], ["a"])}
    assert heard(("lost",), ends=(("a", False),))[0] == {}


def test_the_pattern_is_repeated():
    assert heard(("lost", "late 1"), ends=[(name, True) for name in "abcd"])[0] == {1: (["b", "d"], [])}


@pytest.mark.parametrize("word", patterns(SURVIVES))
def test_what_the_engine_does_not_survive_does_not_happen(word):
    told, reports = heard((word,), survives=())
    assert told == {0: (["a"], [])}
    assert (reports.odd, reports.busy(1)) == (0, False)


def test_who_may_wait_for_a_lost_one_is_not_hurried():
    _, reports = heard(("lost",), rounds=1)
    assert reports.lost == ["a"]
    assert (reports.busy(GIVEN_UP - 1), reports.busy(GIVEN_UP)) == (True, False)


def test_each_worker_reports_for_itself():
    assert heard(("", "late 2"), workers=2)[0] == {0: [(0, "a")], 2: [(1, "a")]}


@pytest.mark.parametrize(("survives", "many"), [((), 1), (("doubled",), 3)])
def test_the_first_worker_is_done_before_the_others(survives, many):
    reports = TransferReports((), 2, survives)
    told = [reports.tell((), (), ("a",), now).by_worker for now in range(2)]
    told.append(reports.tell(("a",), (), (), 2).by_worker)
    assert [one for round in told for one in round].count((0, "a")) == many
    assert told[2][-1] == (1, "a")


class Survivor(OneAtATime):
    survives = frozenset({"late", "lost"})


def test_only_what_is_survived_is_drawn_and_only_then():
    def drawn(engine):
        facts = facts_of(engine)
        return [draw_simulation(SeededDraw(f"1/{number}"), facts) for number in range(40)]

    plain, odd = drawn(OneAtATime()), drawn(Survivor())
    words = {word.split()[0] for story in odd for word in story.reports if word}
    assert words == {"late", "lost"}
    assert any(not story.reports for story in odd)
    assert not any(story.reports for story in plain)
    assert [story.happenings for story in plain] == [story.happenings for story in odd]
    for story in odd:
        assert story_from_json(story_to_json(story)) == story


def test_a_smaller_story_has_fewer_of_them():
    story = SimulatedStory(shape_of(), (), reports=("late 1", "", "lost"))
    assert story.size == SimulatedStory(shape_of(), ()).size + 2
    proposed = {one.reports for one in PASSES[1](story)}
    assert {(), ("", "lost"), ("late 1", "lost"), ("", "", "lost"), ("late 1", "", "")} <= proposed


def test_what_cannot_be_survived_is_said():
    engine = OneAtATime()
    vars(engine)["survives"] = frozenset({"fire"})
    with pytest.raises(ValueError, match="survives has 'fire'; it may have late, doubled"):
        SimulatedFamily(engine)
