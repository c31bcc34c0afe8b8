"""What nobody can reach in a lower tier: it may be given up without need, and what can be reached may not."""

import pytest
from blockproof.fuzz.simulation.protocol import Scheduled, ScheduledBatch, Slots
from blockproof.fuzz.simulation.story import Happening

from .tier_stage import PROMPTS, Stage


def gone_stage(*ended_ones: str) -> Stage:
    """Block 1 of r0 is stored, and block 0 is on the device at most; these requests hold nothing any more."""
    stage = Stage()
    stage.keep("r0", 1, 1)
    for name in ended_ones:
        stage.judge.happened(Happening(0, "cancel", id=name))
    stage.say("stranded", 1)
    return stage


def test_what_nobody_can_reach_may_go_without_need_and_before_its_turn():
    stage = gone_stage(*PROMPTS)
    stage.say("looked", request="r1", asked=2)
    stage.judge.idle({"host": 0})
    assert stage.found == ""
    assert stage.judge.reached["tier: stranded"] == 1


def test_what_was_given_up_as_out_of_reach_and_whose_way_is_found_could_be_reached():
    stage = gone_stage(*PROMPTS)
    stage.say("looked", request="r1", first=1, asked=1)
    assert "what was at place 1 was given up as out of reach, and all blocks before it are found; r1" in stage.found
    for name in ("r0", "r1"):  # who may show block 0 to others when he ends, and who computes it again
        stage = gone_stage("r1", "r2") if name == "r0" else gone_stage(*PROMPTS)
        if name == "r1":
            part = Scheduled("r1", 0, 2, slots=(Slots((9,)),))
            stage.judge.launched(ScheduledBatch((part,)))
        stage.say("looked", request="r1", first=1, asked=1)
        assert stage.found == ""


def test_what_is_stored_again_has_not_gone():
    stage = gone_stage(*PROMPTS)
    stage.keep("r0", 1, 2)
    stage.say("looked", 2, request="r1", first=1, asked=1)
    assert stage.found == ""


@pytest.mark.parametrize(
    ("deeds", "said"),
    [
        ([("stranded", 2)], "place 2 is given up as out of reach, and all blocks before it are stored"),
        ([("stranded", 1)], "place 1 is given up as out of reach, and all blocks before it are stored"),
        ([("stranded", 1, 2)], "and all blocks before it are stored"),
        ([("pinned", 1), ("stranded", 1)], "is given up as out of reach while it is pinned"),
        ([("reserved", 0), ("stranded", 0)], "is given up as out of reach, and nothing is stored there"),
    ],
)
def test_what_can_be_reached_is_not_given_up(deeds, said):
    stage = Stage()
    stage.keep("r0", 0, 2)
    stage.keep("r0", 1, 1)
    for what, *places in deeds:
        stage.say(what, *places)
    assert said in stage.found


def test_what_was_given_up_as_out_of_reach_is_not_found():
    stage = gone_stage(*PROMPTS)
    stage.say("looked", 1, request="r1", first=1, asked=1)
    assert "place 1 is found, and nothing is stored there" in stage.found


def test_new_weights_make_an_end_of_what_was_out_of_reach():
    stage = gone_stage(*PROMPTS)
    stage.judge.happened(Happening(0, "reweigh"))
    stage.say("looked", request="r1", first=1, asked=1)
    assert stage.found == ""
