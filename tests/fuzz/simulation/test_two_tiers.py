"""Two lower tiers, played by hand: what goes down and comes up between them, and who is meant by a name used again."""

from dataclasses import replace

import pytest
from blockproof.fuzz.simulation.protocol import ClientRequest, ScheduledBatch, SlotTransfer
from blockproof.fuzz.simulation.story import Happening
from blockproof.fuzz.simulation.tier_keeping import GRACE
from blockproof.fuzz.simulation.tiers import LowerTier, TierEvent

from .tier_stage import Stage

DISK = LowerTier(3, above="host")


def moved(stage: Stage, kind: str, host: int, disk: int) -> SlotTransfer:
    """It begins."""
    here, there = ((2 * place, 2 * place + 1) for place in (host, disk))
    told = SlotTransfer(f"{kind} {host} {disk}", "store" if kind == "down" else "load", 0, here, "disk", there)
    told = replace(told, above="host")
    stage.judge.launched(ScheduledBatch(transfers=(told,)))
    stage.judge.landed()
    return told


def over(stage: Stage, told: SlotTransfer, *, well: bool = True) -> None:
    """It ends."""
    stage.device.transfer(told, right=well)
    stage.judge.ended([told.id] if well else [], [] if well else [told.id])


def two_tiers() -> Stage:
    """The first block of r0 is at place 2 of the host."""
    stage = Stage(disk=DISK)
    stage.keep("r0", 0, 2)
    return stage


def gone_down() -> Stage:
    """The same, and it is at place 1 of the disk, too."""
    stage = two_tiers()
    stage.say("reserved", 1, tier="disk")
    over(stage, moved(stage, "down", 2, 1))
    stage.say("stored", 1, tier="disk")
    return stage


def later(stage: Stage) -> str:
    """What was found once there was time enough."""
    for _ in range(GRACE + 1):
        stage.judge.round()
    return stage.found


def test_what_went_down_is_found_there_by_the_name_that_it_had():
    stage = gone_down()
    stage.say("moved", 2)
    assert later(stage) == ""
    stage.say("looked", tier="disk", request="r1", asked=1)
    assert "disk: what is stored at place 1, from where nobody has evicted it, is not found" in stage.found


def test_what_is_moved_is_held_by_another_tier():
    stage = two_tiers()
    stage.say("moved", 2)
    assert stage.found == "host: place 2 is moved, and no tier holds what was there"
    stage = gone_down()
    stage.say("pinned", 1, tier="disk")
    stage.say("moved", 1, tier="disk")
    assert stage.found == "disk: place 1 is moved while it is pinned"
    stage = gone_down()
    stage.say("moved", 0, tier="disk")
    assert stage.found == "disk: place 0 is moved, and nothing is stored there"


@pytest.mark.parametrize("kind", ["down", "up"])
def test_what_is_copied_from_stays_until_that_is_over(kind):
    stage = gone_down()
    place, tier, other = (2, "host", "disk") if kind == "down" else (1, "disk", "host")
    stage.say("reserved", 0, tier=other)
    told = moved(stage, kind, *((2, 0) if kind == "down" else (0, 1)))
    assert stage.found == ""
    stage.say("moved", place, tier=tier)
    assert stage.found == f"{tier}: place {place} is moved while it is loaded from"
    stage.judge.found.clear()
    over(stage, told)
    stage.say("stored", 0, tier=other)
    assert stage.found == ""


def test_a_copy_between_tiers_keeps_to_its_places():
    stage = two_tiers()
    moved(stage, "down", 2, 1)
    assert stage.found == "disk: down 2 1 stores into place 1, which is not reserved"
    stage = two_tiers()
    stage.say("reserved", 1)
    moved(stage, "up", 1, 0)
    assert stage.found == "disk: up 1 0 loads from place 0, where nothing is stored"


def make_room(stage: Stage) -> None:
    """The host is full, and its place 2 is taken for another block."""
    stage.say("reserved", 0, 1, request="r1")
    stage.judge.hear([TierEvent("evicted", places=(2,)), TierEvent("reserved", places=(2,), request="r2")])


def test_what_is_evicted_above_goes_down():
    stage = gone_down()
    make_room(stage)
    assert later(stage) == ""
    stage = two_tiers()
    make_room(stage)
    assert "disk: a whole block of who has left is not stored, and there is room" in later(stage)


def test_what_could_not_be_stored_is_not_owed():
    stage = two_tiers()
    stage.say("reserved", 1, tier="disk", request="r0")
    over(stage, moved(stage, "down", 2, 1), well=False)
    stage.say("released", 1, tier="disk")
    make_room(stage)
    assert later(stage) == ""


def test_who_ends_owes_no_block_that_is_below():
    stage = gone_down()
    stage.keep("r0", 1, 0)
    stage.say("moved", 2)
    stage.judge.delivered([])
    stage.judge.happened(Happening(0, "cancel", id="r0"))
    assert later(stage) == ""


def test_room_that_is_made_by_going_down_has_its_time():
    stage = Stage(disk=DISK)
    stage.keep("r0", 0, 2)
    for _ in range(3 * GRACE):
        stage.judge._keeping.goes_down("host")
        stage.judge.round()
    assert stage.found == ""


def test_an_earlier_request_of_the_same_id_may_be_meant():
    stage = Stage()
    again = Happening(0, "add", request=ClientRequest("r0", (7, 7, 7, 7, 7), 2))
    stage.judge.will_happen(again)
    assert again.request is not None
    stage.device.add(again.request)
    stage.judge.happened(again)
    stage.keep("r0", 0, 2)  # from where the earlier one has left it
    assert stage.found == ""
    stage.say("looked", request="r1", asked=1)  # who begins like it
    assert "what is stored at place 2, from where nobody has evicted it, is not found" in stage.found
    stage.store("of r2", 6, 1)
    stage.judge.found.clear()
    stage.say("reserved", 1, request="r0", first=1)
    stage.store("of r2, again", 6, 1)
    stage.say("stored", 1)
    assert "holds another content" in stage.found
