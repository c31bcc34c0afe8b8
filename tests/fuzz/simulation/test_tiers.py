"""A lower tier: what its judge objects to, clause by clause, and the definition of each policy."""

from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from blockproof.fuzz.engines.simulated import PLANTED, SEEN
from blockproof.fuzz.engines.stories import MOST_SHARES, StoriesDone
from blockproof.fuzz.reports.scheduler import SchedulerDocument
from blockproof.fuzz.simulation.judges import FATE, TIER
from blockproof.fuzz.simulation.protocol import (
    ClientRequest,
    Delivered,
    EngineView,
    ScheduledBatch,
    SlotTransfer,
)
from blockproof.fuzz.simulation.run import SimulatedRun
from blockproof.fuzz.simulation.story import Happening, SimulatedStory
from blockproof.fuzz.simulation.tier_faults import OneWithTier
from blockproof.fuzz.simulation.tier_keeping import GRACE
from blockproof.fuzz.simulation.tier_policies import IDEAL, Arc, Fifo, Lru, hit_ratios
from blockproof.fuzz.simulation.tiers import NOBODY, TierEvent

from .tier_stage import FACTS, SHAPE, Stage

LOST: Any = "lost"
NO_PLACES: Any = ("a",)


def test_what_is_stored_is_found_by_all_who_begin_alike():
    stage = Stage()
    stage.keep("r0", 0, 2)
    stage.keep("r0", 1, 0)
    stage.say("looked", 2, 0, request="r1", asked=2)
    stage.say("looked", request="r2", asked=2)
    stage.judge.idle({"host": 2})
    assert stage.judge.found == []
    assert stage.judge.reached["tier blocks asked for"] == 4
    assert stage.judge.reached["tier: looked"] == 2


def test_what_is_stored_and_not_found_is_lost():
    stage = Stage()
    stage.keep("r0", 0, 2)
    stage.say("looked", request="r1", asked=2)
    assert "what is stored at place 2, from where nobody has evicted it, is not found" in stage.found


def test_a_count_that_has_lost_a_key_is_objected_to_though_nobody_looks():
    stage = Stage()
    stage.keep("r0", 0, 2)
    stage.judge.idle({"host": 0})
    assert "holds 0 blocks, it says; 1 were stored and not evicted" in stage.found


def test_under_another_salt_nothing_is_owed_and_nothing_may_be_found():
    stage = Stage(salt="s")
    stage.keep("r0", 0, 2)
    stage.say("looked", request="r1", asked=2)
    assert stage.found == ""
    stage.say("looked", 2, request="r1", asked=2)
    assert "computed under another salt" in stage.found


@pytest.mark.parametrize(
    ("places", "said"),
    [((1,), "nothing is stored there"), ((2, 2), "another content")],
)
def test_what_is_found_is_right(places, said):
    stage = Stage()
    stage.keep("r0", 0, 2)
    stage.say("looked", *places, request="r1", asked=2)
    assert said in stage.found


def test_what_a_failed_store_left_does_not_count():
    stage = Stage()
    stage.say("reserved", 1, request="r0")
    stage.store("a", 0, 1, well=False)
    stage.say("stored", 1)
    assert "counts as stored, and holds" in stage.found
    stage = Stage()
    stage.say("reserved", 1, request="r0")
    stage.store("a", 4, 1)
    stage.say("stored", 1)
    assert "counts as stored, and holds another content" in stage.found


def test_a_store_and_a_load_keep_to_their_places():
    stage = Stage()
    stage.store("a", 0, 1)
    assert "stores into place 1, which is not reserved" in stage.found
    stage = Stage()
    load = SlotTransfer("b", "load", 0, (0, 1), other=(2, 3))
    stage.judge.launched(ScheduledBatch(transfers=(load,)))
    assert "loads from place 1, where nothing is stored" in stage.found


@pytest.mark.parametrize(
    ("deeds", "said"),
    [
        ([("pinned", 2), ("unpinned", 2), ("unpinned", 2)], "unpinned more often than it was pinned"),
        ([("pinned", 2)], "is pinned, and nothing runs"),
        ([("pinned", 1)], "is pinned, and nothing is stored there"),
        ([("evicted", 2)], "nothing needs their places"),
        ([("evicted", 1)], "is evicted, and nothing is stored there"),
        ([("dropped", 2)], "no load from there has failed"),
        ([("reserved", 2)], "is reserved, and is not free"),
        ([("reserved", 1)], "is reserved, and nothing is stored there any more"),
        ([("released", 1)], "is released, and was not reserved"),
        ([("stored", 1)], "counts as stored, and was not reserved"),
        ([("reserved", 3)], "place 3 is reserved, and there are 3"),
        ([("pinned", 2), ("emptied",)], "is emptied while it is pinned"),
        ([("pinned", 2), ("unpinned", 2), ("reserved", 0), ("released", 0)], ""),
    ],
)
def test_what_is_given_back_and_what_is_counted(deeds, said):
    stage = Stage()
    stage.keep("r0", 0, 2)
    for what, *places in deeds:
        stage.say(what, *places)
    stage.judge.idle(None)
    assert said in stage.found
    assert bool(stage.found) == bool(said)


def test_who_is_pinned_or_loaded_from_is_not_evicted_and_a_load_that_failed_lets_him_go():
    for pin in (True, False):
        stage = full_stage()
        if pin:
            stage.say("pinned", 2)
        else:
            load = SlotTransfer("l", "load", 0, (0, 1), other=(4, 5))
            stage.judge.launched(ScheduledBatch(transfers=(load,)))
        stage.say("evicted", 2)
        assert f"is evicted while it is {'pinned' if pin else 'loaded from'}" in stage.found
    stage = full_stage()
    stage.judge.launched(ScheduledBatch(transfers=(SlotTransfer("l", "load", 0, (0, 1), other=(4, 5)),)))
    stage.judge.ended([], ["l"])
    stage.say("dropped", 2)
    assert stage.found == ""


def full_stage(policy="lru") -> Stage:
    """Places 2, 1 and 0 are held, in this order."""
    stage = Stage(replace(FACTS, policy=policy))
    stage.keep("r0", 0, 2)
    stage.keep("r0", 1, 1)
    stage.keep("r2", 0, 0)
    return stage


@pytest.mark.parametrize(
    ("policy", "place", "wrong"),
    [("lru", 2, True), ("lru", 1, False), ("fifo", 2, False), ("fifo", 1, True), ("arc", 1, False), ("", 0, False)],
)
def test_whose_turn_it_is_when_the_oldest_was_found_again(policy, place, wrong):
    stage = full_stage(policy)
    stage.say("looked", 2, request="r1", asked=1)
    evicted, reserved = TierEvent("evicted", places=(place,)), TierEvent("reserved", places=(place,))
    stage.judge.hear([evicted, reserved])
    assert bool(stage.found) == wrong
    assert ("before it" in stage.found) == wrong


def test_an_engine_may_count_a_place_as_used_from_the_end_of_its_store():
    stage = Stage()
    stage.say("reserved", 2, request="r0")
    stage.keep("r0", 1, 1)
    stage.store("later", 0, 2)
    stage.say("stored", 2)
    stage.keep("r1", 1, 0)
    for place in (1, 2):  # by the end of the store the one, by its beginning the other
        stage.judge.hear([TierEvent("evicted", places=(place,)), TierEvent("reserved", places=(place,))])
    assert stage.found == ""


def ended(stage: Stage, name: str) -> None:
    """It has all its tokens, and time passes."""
    stage.judge.delivered([Delivered(name, (), "length")])
    for _ in range(GRACE + 1):
        stage.judge.round()


def test_the_whole_blocks_of_who_ends_are_stored():
    stage = Stage()
    stage.keep("r0", 0, 2)
    ended(stage, "r0")
    assert "a whole block of who has left is not stored, and there is room; block 1 of r0" in stage.found
    stage = Stage()
    stage.keep("r0", 0, 2)
    stage.keep("r0", 1, 1)
    ended(stage, "r0")
    assert stage.found == ""
    assert stage.judge.reached["tier blocks to be stored"] == 2


def test_nobody_owes_a_store_for_which_there_is_no_room():
    stage = full_stage()
    stage.say("pinned", 2, 1, 0)
    ended(stage, "r2")
    assert stage.found == ""
    assert stage.judge.reached["tier: no room for what is to be stored"] == 1


def test_who_is_not_kept_owes_nothing():
    stage = Stage(replace(FACTS, keeps=frozenset({"preempted"})))
    ended(stage, "r0")
    assert stage.found == ""
    stage.judge.launched(ScheduledBatch(preempted=("r2",)))
    for _ in range(GRACE + 1):
        stage.judge.round()
    assert "block 0 of r2" in stage.found


def test_what_each_policy_would_find():
    asked = [1, 2, 1, 3, 1, 4, 5, 1, 2]
    hits = {}
    for name, made in IDEAL.items():
        tier, hits[name] = made(2), 0
        for key in asked:
            hits[name] += tier.find(key)
            tier.store(key)
    assert hits == {"fifo": 1, "lru": 2, "arc": 3}
    assert not any(made(0).store(1) or made(0).find(1) for made in (Fifo, Lru, Arc))


def test_arc_keeps_what_comes_back_while_others_pass_by():
    kept = {}
    for made in (Arc, Lru):
        tier = made(3)
        tier.store(1)
        assert tier.find(1)
        for key in (3, 4, 5, 6):
            tier.store(key)
        is_kept = tier.find(1)
        for key in (4, 7, 8, 9):  # 4 was evicted: it counts as used twice
            tier.store(key)
        kept[made] = is_kept, tier.find(4)
    assert kept == {Arc: (True, True), Lru: (False, False)}


@pytest.mark.parametrize("fault", PLANTED)
def test_each_planted_fault_is_seen_in_an_engine_with_a_tier(fault):
    requests = [ClientRequest(f"r{number}", (1, 2, 3 + number % 2), 3) for number in range(6)]
    story = SimulatedStory(SHAPE, tuple(Happening(0, "add", request=one) for one in requests))
    assert SimulatedRun(OneWithTier(), story).run(500) == []
    spread = replace(story, happenings=tuple(replace(one, at=4 * n) for n, one in enumerate(story.happenings)))
    found = SimulatedRun(PLANTED[fault](OneWithTier()), spread).run(500)
    assert [one.judge for one in found] == [SEEN[fault]]


@pytest.mark.parametrize(
    ("method", "answer", "said"),
    [
        ("tier_events", None, "tier_events() returned None; return a list of TierEvent"),
        ("tier_events", ["a"], "a str among what was done; it must be a TierEvent"),
        ("tier_events", [TierEvent(LOST)], "what='lost'; it is one of 'looked'"),
        ("tier_events", [TierEvent("stored", places=NO_PLACES)], "they are numbers of places"),
        ("look", EngineView(8, tiers={"host": -1}), "tiers={'host': -1}; it is the number of blocks"),
    ],
)
def test_what_is_wrong_with_an_answer_is_said(method, answer, said):
    engine = OneWithTier()
    setattr(engine, method, lambda: answer)
    story = SimulatedStory(SHAPE, (Happening(0, "add", request=ClientRequest("a", (1, 2, 3), 1)),))
    (found,) = SimulatedRun(engine, story).run(50)
    assert found.judge == FATE
    assert said in found.what


def test_an_unknown_tier_is_objected_to():
    stage = Stage()
    stage.judge.hear([TierEvent("pinned", "disk", (1,))])
    assert stage.found == "disk: is spoken of, and is none of the engine's tiers"
    assert TIER == "tier"


def test_what_was_evicted_in_the_very_call_was_stored_also_if_nobody_said_whose_it_is():
    stage = Stage()
    for block, place in ((0, 0), (1, 1)):  # of r0
        stage.say("reserved", place)
        stage.store(f"s{block}", block, place)
        stage.say("stored", place)
    stage.keep("r2", 1, 2)
    stage.judge.hear([TierEvent("evicted", places=(0,)), TierEvent("reserved", places=(0,), request="r2")])
    stage.judge.delivered([Delivered("r0", (), "length")])
    stage.say("released", 0)
    for _ in range(GRACE + 1):
        stage.judge.round()
    assert stage.found == ""


def test_what_is_stored_when_tokens_change_is_what_was_computed_of_the_old_ones():
    stage = Stage()
    cut = Happening(0, "truncate", id="r0", length=1, then=(5, 5, 5))
    stage.judge.will_happen(cut)
    stage.device.truncate("r0", 1, (5, 5, 5))
    stage.say("reserved", 1, request="r0")
    stage.judge.happened(cut)
    stage.store("a", 0, 1)
    stage.say("stored", 1)
    stage.say("looked", request="r0", asked=1)
    assert stage.found == ""
    stage.say("looked", request="r1", asked=1)
    assert "is not found" in stage.found


def test_who_was_cut_owes_nothing_until_he_is_computed_again():
    stage = Stage(replace(FACTS, keeps=frozenset({"preempted"})))
    stage.device.truncate("r0", 4, ())
    stage.judge.happened(Happening(0, "truncate", id="r0", length=4))
    stage.judge.launched(ScheduledBatch(preempted=("r0",)))
    for _ in range(GRACE + 1):
        stage.judge.round()
    assert stage.found == ""


def test_what_is_stored_later_in_the_same_call_is_there_by_now():
    stage = Stage(replace(FACTS, blocks=1))
    stage.store("a", 6, 0)  # of r2, as the second of these
    stage.judge.found.clear()
    twice = [("r0", 0), ("r2", 0)]
    events = []
    for request, first in twice:
        events += [TierEvent("evicted", places=(0,))] if events else []
        events += [TierEvent("reserved", places=(0,), request=request, first=first), TierEvent("stored", places=(0,))]
    stage.judge.hear(events)
    assert stage.found == ""
    stage.say("looked", 0, request="r2", asked=1)
    assert stage.found == ""


def test_what_nobody_spoke_of_and_was_overtaken_in_the_same_call_may_have_been_right():
    stage = Stage(replace(FACTS, blocks=1))  # its place holds what nobody wrote
    unsaid, stored = TierEvent("reserved", places=(0,)), TierEvent("stored", places=(0,))
    look, evicted = TierEvent("looked", places=(0,), request="r0", asked=1), TierEvent("evicted", places=(0,))
    nobody = TierEvent("reserved", places=(0,), first=NOBODY)
    stage.judge.hear([unsaid, stored, look, evicted, nobody, stored])
    assert stage.found == ""
    stage.judge.hear([evicted, unsaid, stored])
    assert "counts as stored, and holds what nobody wrote" in stage.found


def test_blocks_that_leave_together_need_one_reason():
    for together, many in ((True, 0), (False, 1)):
        stage = full_stage("")
        book = stage.judge._books["host"]
        book.facts = replace(book.facts, together=together)
        stage.judge.hear(
            [TierEvent("evicted", places=(2, 1)), TierEvent("reserved", places=(2,), request="r2", first=1)]
        )
        assert len(stage.judge.found) == many
    stage = full_stage("")
    book = stage.judge._books["host"]
    book.facts = replace(book.facts, together=True)
    stage.say("evicted", 2, 1)
    assert "2 blocks are evicted, and nothing needs their places" in stage.found


def test_what_nobody_asked_for_is_never_found():
    stage = Stage()
    stage.say("reserved", 1, first=NOBODY)
    stage.say("stored", 1)
    assert stage.found == ""
    stage.say("looked", 1, request="r0", asked=1)
    assert "holds another content" in stage.found


def test_the_hit_ratio_is_told_beside_that_of_the_definition():
    reached = {"tier blocks asked for": 2000, "tier: looked": 500, "tier blocks found by the definition, lru": 1000}
    said = "hit ratio of lower tiers: 25.0% of 2,000 blocks asked for; by the definition arc 0.0%, fifo 0.0%, lru 50.0%"
    assert hit_ratios(reached) == said
    assert hit_ratios({}) == ""


def test_the_share_that_was_found_is_drawn_beside_the_definitions() -> None:
    done = StoriesDone()
    done.note_tiers()
    assert done.tier_shares == []
    for number in range(1, 1001):
        done.steps = number
        done.reached = Counter(
            {"tier blocks asked for": 8, "tier: looked": 2, "tier blocks found by the definition, lru": 4}
        )
        done.note_tiers()
    assert 100 < len(done.tier_shares) < MOST_SHARES
    told = {"document": "scheduler", "target": "an engine", "found": [], "tier_shares": done.tier_shares}
    run = msgspec.convert(told, SchedulerDocument)
    (chart,) = run.charts()
    ends = {line.name: (line.xs[0], line.xs[-1], line.ys[-1]) for line in chart.series}
    assert ends == {
        "found": (1, 1000, 25),
        "by the definition, arc": (1, 1000, 0),
        "by the definition, fifo": (1, 1000, 0),
        "by the definition, lru": (1, 1000, 50),
    }
    assert SchedulerDocument(target="an engine", found=[]).charts() == []
