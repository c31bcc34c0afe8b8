"""A story in words."""

from blockproof.fuzz.simulation.faults import OneAtATime
from blockproof.fuzz.simulation.in_words import TellingEngine
from blockproof.fuzz.simulation.protocol import (
    ClientRequest,
    Delivered,
    Scheduled,
    ScheduledBatch,
    SlotCopy,
    Slots,
    SlotTransfer,
    StepResults,
)
from blockproof.fuzz.simulation.run import SimulatedRun
from blockproof.fuzz.simulation.story import Happening, SimulatedStory
from blockproof.fuzz.simulation.tier_faults import OneWithTier

from .engines import Scripted, shape_of


def test_a_run_is_told_and_is_the_same():
    request = ClientRequest("a", (1, 2, 3), 2, stop=(9,))
    story = SimulatedStory(shape_of(), (Happening(0, "add", request=request),))
    telling = TellingEngine(OneAtATime())
    assert SimulatedRun(telling, story).run(100) == []
    assert telling.lines[1:5] == [
        "add a: [1, 2, 3], at most 2 more, stop (9,)",
        "schedule: step 1",
        "  a computes 0 and 2 behind it, table [0, 1]",
        "update: step 1 has sampled a [3]",
    ]
    assert telling.lines[-1].endswith("and ends: length")


def test_all_that_a_batch_can_have_is_told():
    batch = ScheduledBatch(
        (Scheduled("a", None, 2, (4,), (Slots(at={0: 7}),)),),
        (SlotCopy(0, 3, 4),),
        (SlotTransfer("t", "load", 0, (5, 6)),),
        (Delivered("b", ended="refused", why="too long"),),
        ("c",),
    )

    class Resets(Scripted):
        def reset(self):
            """Nothing."""

    telling = TellingEngine(Resets([batch]))
    telling.start(shape_of())
    telling.schedule()
    telling.update(None, StepResults(transferred=("t",), failed=("u",)))
    telling.reset()
    assert telling.lines[1:] == [
        "schedule: step 1",
        "  c is set back",
        "  copies 3 to 4 in group 0",
        "  load t: slots [5, 6]",
        "  a computes the next position and 1 behind it, drafts [4], slots {0: 7}",
        "  b gets [] and ends: refused (too long)",
        "update: no step has sampled nothing; t has ended; u has failed",
        "reset",
    ]


def test_what_a_tier_does_and_what_workers_say_is_told():
    request = ClientRequest("a", (1, 2, 3, 4), 1)
    story = SimulatedStory(shape_of(), (Happening(0, "add", request=request),))
    telling = TellingEngine(OneWithTier())
    assert SimulatedRun(telling, story).run(100) == []
    told = [line for line in telling.lines if line.startswith("  host")]
    assert told == [
        "  host: looked [] for block 0 of a and the 1 behind it",
        "  host: reserved [0] for block 0 of a",
        "  host: reserved [1] for block 1 of a",
        "  host: stored [0]",
        "  host: stored [1]",
    ]
    telling.update(None, StepResults(by_worker=((1, "t"),)))
    assert telling.lines[-1].endswith("; worker 1 is done with t")
    assert not hasattr(TellingEngine(OneAtATime()), "tier_events")
