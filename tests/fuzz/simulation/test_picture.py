"""What a page gets of a story: states of requests, slots and who wrote them, what a wrong read found."""

from dataclasses import replace

import pytest
from blockproof.fuzz.engines.simulated import Guarded
from blockproof.fuzz.simulation.faults import FAULTS, OneAtATime
from blockproof.fuzz.simulation.picture import JUNK, STATES
from blockproof.fuzz.simulation.protocol import ClientRequest, Scheduled, ScheduledBatch, SlotCopy, Slots
from blockproof.fuzz.simulation.run import SimulatedRun
from blockproof.fuzz.simulation.story import Happening, SimulatedStory

from .engines import Scripted, shape_of

A, B = ClientRequest("a", (1, 2, 3), 2), ClientRequest("b", (2, 3), 1)


def pictured(engine, *happenings, **changes):
    """The picture of a story, and what was found."""
    run = Guarded(engine, replace(SimulatedStory(shape_of(), happenings), **changes), tells=True)
    found = run.run(500)
    return run.picture, found


def states(picture):
    """By request, one after the other, what it does."""
    told = [[] for _ in picture["requests"]]
    for moment in picture["moments"]:
        for request, state in moment["states"]:
            told[request].append(STATES[state])
    return told


def test_lanes_follow_what_requests_do():
    happenings = Happening(0, "add", request=A), Happening(0, "add", request=B), Happening(1, "cancel", id="b")
    picture, found = pictured(OneAtATime(), *happenings)
    assert (found, picture["requests"]) == ([], ["a", "b"])
    assert states(picture) == [["waiting", "prefill", "running", "decode", "done"], ["waiting", "cancelled"]]
    assert picture["shape"].startswith("Group(kind='full', block_size=2)")
    assert [moment["text"].split()[0] for moment in picture["moments"][:4]] == ["add", "add", "schedule:", "update:"]


def test_an_id_that_is_used_again_has_a_lane_of_its_own():
    happenings = Happening(0, "add", request=B), Happening(0, "add", request=B)
    picture, _ = pictured(OneAtATime(), *happenings)
    assert picture["requests"] == ["b", "b"]
    assert [told[-1] for told in states(picture)] == ["done", "done"]


def test_slots_say_who_wrote_what():
    picture, _ = pictured(OneAtATime(), Happening(0, "add", request=A))
    assert picture["memories"] == ["device"]
    first, second = [moment["slots"] for moment in picture["moments"] if moment["slots"]]
    assert first == [(0, 0, 0, 0), (0, 1, 0, 1), (0, 2, 0, 2)]
    assert second == [(0, 3, 0, 3)]


def test_a_copy_has_the_content_of_its_source():
    batches = (
        ScheduledBatch((Scheduled("a", 0, 3, slots=(Slots((0, 1)),)),)),
        ScheduledBatch((Scheduled("a", 3, 1, slots=(Slots((0, 4)),)),), copies=(SlotCopy(0, 1, 4),)),
    )
    picture, found = pictured(Scripted(batches), Happening(0, "add", request=A))
    assert found == []
    copied = [moment["slots"] for moment in picture["moments"] if moment["slots"]][1]
    assert (0, 8, 0, 2) in copied


def test_what_a_wrong_read_found_is_told():
    batches = (
        ScheduledBatch((Scheduled("a", 0, 3, slots=(Slots((0, 1)),)),)),
        ScheduledBatch((Scheduled("b", 0, 2, slots=(Slots((0,)),)), Scheduled("a", 3, 1, slots=(Slots((0, 1)),)))),
    )
    picture, found = pictured(Scripted(batches), Happening(0, "add", request=A), Happening(0, "add", request=B))
    assert found[0].what.endswith("position 0 of b was computed there last")
    (moment,) = [moment for moment in picture["moments"] if moment["misread"]]
    assert moment["misread"] == [(0, 0, 1, 0)]
    assert (0, 3, JUNK, 0) in moment["slots"]  # what was computed from it is wrong for everybody


@pytest.mark.parametrize("fault", ["", "raises", "forgets"])
def test_a_picture_changes_nothing_of_the_run(fault):
    happenings = tuple(Happening(number, "add", request=replace(A, id=f"r{number}")) for number in range(6))
    make = FAULTS[fault] if fault else lambda engine: engine
    plain = SimulatedRun(make(OneAtATime()), SimulatedStory(shape_of(), happenings))
    found = plain.run(500)
    picture, again = pictured(make(OneAtATime()), *happenings)
    assert again == found
    assert sum(moment["text"].startswith("schedule") for moment in picture["moments"]) == plain.steps


def test_who_is_served_alone_is_no_part_of_the_story():
    long = ClientRequest("long", (1,) * 30, 2)
    picture, found = pictured(OneAtATime(), Happening(0, "add", request=A), Happening(0, "add", request=long))
    assert found == []
    assert [moment["text"][:5] for moment in picture["moments"]].count("start") == 0
    assert states(picture)[1] == ["done"]
