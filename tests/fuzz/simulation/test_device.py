"""The device: what it makes of slots, copies, states and transfers, and what it says of what is wrong."""

from dataclasses import replace
from typing import Literal

import pytest
from blockproof.fuzz.findings.story_finding import rule_of
from blockproof.fuzz.simulation.contents import JUNK
from blockproof.fuzz.simulation.device import SimulatedDevice
from blockproof.fuzz.simulation.device_records import RanStep
from blockproof.fuzz.simulation.protocol import (
    ClientRequest,
    Scheduled,
    ScheduledBatch,
    SlotCopy,
    Slots,
    SlotTransfer,
)
from blockproof.model.ops import Group

from .engines import shape_of

PROMPT = (1, 2, 3, 4, 5)


def device(*groups: Group, separate=False, reads_first=False, delays=(), drafts=0) -> SimulatedDevice:
    """With two requests of the same prompt, and one of another."""
    made = SimulatedDevice(shape_of(*groups, drafts=drafts), separate=separate, reads_first=reads_first, delays=delays)
    for name in "ab":
        made.add(ClientRequest(name, PROMPT, 3), rights=(1,))
    made.add(ClientRequest("c", (5, 4, 3, 2, 1), 3))
    return made


def step(made: SimulatedDevice, name: str, first: int | None, count: int, *slots: Slots, **more) -> RanStep:
    """One request's step."""
    kept = {key: more.pop(key) for key in ("copies", "transfers", "awaited") if key in more}
    return made.launch(ScheduledBatch((Scheduled(name, first, count, slots=slots or None, **more),), **kept), 3)


def table(*blocks: int | None) -> Slots:
    return Slots(blocks)


def test_right_steps_sample_what_the_model_says():
    made = device()
    first = step(made, "a", 0, 5, table(1, 2, 3))
    assert (first.wrong, len(first.results.tokens["a"])) == ((), 1)
    again = step(made, "b", 4, 1, table(1, 2, 4), copies=(SlotCopy(0, 3, 4),))
    assert (again.wrong, again.results.tokens["b"]) == ((), first.results.tokens["a"])
    assert made.hits == 1


def test_a_slot_is_copied_as_one_also_in_a_batch_that_computes_nothing():
    made = device()
    step(made, "a", 0, 5, Slots(at={0: 2, 1: 3, 2: 4, 3: 5, 4: 6}))
    made.launch(ScheduledBatch(copies=(SlotCopy(0, 5, 9),)), 3)
    assert step(made, "b", 4, 1, Slots(at={0: 2, 1: 3, 2: 4, 3: 9, 4: 7})).wrong == ()


def test_a_chunk_samples_nothing():
    made = device()
    assert step(made, "a", 0, 3, table(1, 2)).results.tokens == {"a": ()}
    assert len(step(made, "a", 3, 2, table(1, 2, 3)).results.tokens["a"]) == 1


@pytest.mark.parametrize(
    ("slots", "said"),
    [
        (table(2, 1, 3), "reads position 0 in block 2, which holds another content"),
        (table(1, 5, 3), "reads position 2 in block 5, which holds what nobody wrote"),
        (table(1, None, 3), "reads position 2, for which there is no slot"),
        (table(1), "reads position 2, for which there is no slot"),
    ],
)
def test_a_wrong_table_is_a_wrong_read_and_spoils_what_follows(slots, said):
    made = device()
    right = step(made, "a", 0, 5, table(1, 2, 3)).results.tokens["a"]
    ran = step(made, "b", 4, 1, slots)
    assert len(ran.wrong) == 1
    assert said in ran.wrong[0]
    assert ran.results.tokens["b"][0] > JUNK
    assert ran.results.tokens["b"] != right


def test_a_wrong_read_says_who_wrote_what_it_found():
    made = device()
    step(made, "c", 0, 4, table(3, 4))
    (line,) = step(made, "a", 2, 3, table(3, 5, 6)).wrong
    assert line.endswith("(group 0, full); position 0 of c was computed there last")
    assert "computed there" not in rule_of(line)


def test_what_was_computed_from_a_wrong_read_is_wrong_for_others():
    made = device()
    step(made, "a", 0, 4, table(1, 2))
    step(made, "c", 0, 4, table(3, 4))
    step(made, "b", 2, 2, table(3, 5))  # the second block is computed behind another prefix
    ran = step(made, "a", 4, 1, table(1, 5, 6))
    assert "reads position 2 in block 5" in ran.wrong[0]


def test_another_adapter_is_another_content():
    made = device()
    made.add(ClientRequest("d", PROMPT, 1, adapter="x"))
    step(made, "a", 0, 5, table(1, 2, 3))
    assert step(made, "d", 4, 1, table(1, 2, 4)).wrong


def test_new_weights_make_all_that_is_written_wrong():
    made = device()
    step(made, "a", 0, 5, table(1, 2, 3))
    made.reweigh()
    assert step(made, "a", 5, 1, table(1, 2, 3)).wrong
    assert not step(made, "b", 0, 5, table(4, 5, 6)).wrong


def test_a_window_needs_no_more_than_its_tokens():
    made = device(Group("sliding", 2, window=3))
    step(made, "a", 0, 5, table(1, 2, 3))
    assert not step(made, "a", 5, 1, table(None, 2, 3)).wrong
    assert step(made, "a", 6, 1, table(None, None, None, 4)).wrong


def test_a_ring_in_slots():
    """Three slots for a window of three: one token a step fits, more do not, unless old tokens are read first."""

    def run(reads_first: bool, many: int) -> tuple[str, ...]:
        made = device(Group("sliding", 2, window=3), reads_first=reads_first)
        ring = Slots(at={position: position % 3 for position in range(8)})
        wrong, at = [], 0
        while at < 5:
            count = min(many, 5 - at)
            wrong += step(made, "a", at, count, ring).wrong
            at += count
        return tuple(wrong)

    assert run(reads_first=False, many=1) == ()
    assert run(reads_first=False, many=3)
    assert run(reads_first=True, many=3) == ()


def test_two_groups_in_one_memory_must_not_share_a_block():
    groups = (Group("full", 2), Group("sliding", 2, window=4))
    both = (table(1, 2, 3), table(1, 2, 3))
    assert step(device(*groups), "a", 0, 5, *both).wrong
    assert not step(device(*groups, separate=True), "a", 0, 5, *both).wrong


# Drafts.


def test_right_drafts_are_accepted_and_wrong_ones_are_overwritten():
    made = device(drafts=2)
    first = step(made, "a", 0, 5, table(1, 2, 3))
    drafts = first.results.drafts["a"]
    ran = step(made, "a", 5, 3, table(1, 2, 3, 4), drafts=drafts)
    assert ran.wrong == ()
    assert ran.results.tokens["a"][0] == drafts[0]
    assert len(ran.results.tokens["a"]) == 2  # one right, and one sampled behind it
    assert not step(made, "a", None, 1, table(1, 2, 3, 4)).wrong


def test_a_rejected_draft_is_no_content():
    made = device(drafts=1)
    step(made, "a", 0, 5, table(1, 2, 3))
    right = made.requests["a"].contents.next_token()
    step(made, "a", 5, 2, table(1, 2, 3, 4), drafts=(right % 5 + 1,))
    ran = step(made, "a", 7, 1, table(1, 2, 3, 4))
    assert "computes positions 7 to 7, 0 of them drafts, and has 7 tokens" in ran.wrong[0]


def test_the_device_proposes_where_steps_are_in_flight():
    made = device(drafts=1)
    step(made, "a", 0, 5, table(1, 2, 3))
    assert len(step(made, "a", None, 2, table(1, 2, 3, 4), drafts=(-1,)).results.tokens["a"]) == 2


# What no worker could run.


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (Scheduled("x", 0, 1), "x: scheduled, but nobody has asked for it"),
        (Scheduled("a", 4, 2), "a: computes positions 4 to 5, 0 of them drafts, and has 5 tokens"),
        (Scheduled("a", 0, 0), "a: computes positions 0 to -1"),
        (Scheduled("a", 0, 3, drafts=(1,)), "a: has drafts behind token 2, and 5 known ones"),
        (Scheduled("a", 0, 5, tokens=(1, 2, 4, 4, 5)), "a: the worker is given another token at position 2"),
        (Scheduled("a", 0, 5, slots=(table(1, 2, 99),)), "a: block 99 of its table is none of the pool, which has 9"),
        (Scheduled("a", 0, 5, slots=(table(1), table(1))), "a: slots of 2 groups, there are 1"),
    ],
)
def test_what_no_worker_could_run(part, said):
    wrong = device().launch(ScheduledBatch((part,))).wrong
    assert wrong
    assert wrong[0].startswith(said)


def test_limits_of_a_step():
    made = device()
    parts = [Scheduled("a", 0, 5)] * 4
    said = " ".join(made.launch(ScheduledBatch(tuple(parts))).wrong)
    assert "20 tokens in a step, 16 are allowed" in said
    assert "a request stands twice" in said


def test_dropped_results_are_sampled_again():
    made = device()
    first = step(made, "a", 0, 5, table(1, 2, 3))
    assert step(made, "a", 0, 5, table(4, 5, 6)).results.tokens == {"a": ()}
    assert step(made, "a", 0, 5, table(4, 5, 6), samples=True).results.tokens == first.results.tokens


# States.


def test_a_state_is_read_where_the_step_before_has_put_it():
    made = device(Group("mamba", 2, mamba_mode="all"))
    assert not step(made, "a", 0, 4, table(1, 2)).wrong
    assert not step(made, "b", 4, 1, table(1, 2, 3)).wrong  # from the state at the end of block 2
    assert made.states_read == 1
    assert (
        "reads the state before position 2 in block 4, which holds what nobody wrote"
        in (step(made, "c", 2, 1, table(4, 5)).wrong[0])
    )


def test_in_mode_align_one_state_is_written():
    """The state at a block end inside a step is written by nobody."""
    made = device(Group("mamba", 2, mamba_mode="align"))
    step(made, "a", 0, 4, table(1, 2))
    assert step(made, "b", 2, 1, table(1, 3)).wrong
    assert not step(made, "b", 4, 1, table(1, 2, 3)).wrong


def test_states_in_slots():
    made = device(Group("mamba", 2))
    assert not step(made, "a", 0, 3, Slots(at={3: 7})).wrong
    assert not step(made, "a", 3, 2, Slots(at={3: 7, 5: 7})).wrong
    assert step(made, "b", 3, 2, Slots(at={3: 7, 5: 8})).wrong  # overwritten since


# Transfers.


def swap(kind: Literal["load", "store"], device_slots=(2, 3), **more) -> SlotTransfer:
    return SlotTransfer("t", kind, 0, device_slots, other=(40, 41), **more)


def test_what_is_stored_can_be_loaded_elsewhere():
    made = device(delays=(0,))
    step(made, "a", 0, 5, table(1, 2, 3), transfers=(swap("store"),))
    assert made.busy
    assert made.ended(3) == (("t",), ())
    step(made, "b", 0, 1, table(5), transfers=(swap("load", (8, 9)),))
    assert made.ended(3) == (("t",), ())
    assert not step(made, "b", 0, 4, table(4, 2)).wrong
    assert not step(made, "b", 2, 3, table(4, 2, 6)).wrong


def test_a_load_is_not_there_before_it_ends():
    made = device(delays=(2,))
    step(made, "a", 0, 5, table(1, 2, 3), transfers=(swap("store", now=True), swap("load", (8, 9))))
    assert made.ended(4) == ((), ())
    ran = step(made, "b", 2, 3, table(4, 2, 6))
    assert "reads position 0 in block 4" in ran.wrong[0]


def test_a_store_that_lasts_takes_what_is_there_at_its_end():
    made = device(delays=(2,))
    step(made, "a", 0, 5, table(1, 2, 3), transfers=(swap("store"),))
    step(made, "c", 0, 2, table(1))  # freed too early, and used again
    made.ended(9)
    step(made, "a", 5, 1, table(1, 2, 3), transfers=(swap("load", (8, 9), now=True),))
    assert step(made, "b", 2, 3, table(4, 2, 6)).wrong


@pytest.mark.parametrize("same", [True, False])
def test_a_store_that_fails_spoils_what_was_there_unless_that_was_the_same(same):
    made = device(delays=(0, -1))
    step(made, "a", 0, 5, table(1, 2, 3), transfers=(swap("store"),))
    assert made.ended(9) == (("t",), ())
    step(made, "a", 5, 1, table(1, 2, 3), transfers=(swap("store", (2, 3) if same else (4, 5)),))
    assert made.ended(9) == ((), ("t",))
    ran = step(made, "b", 2, 3, table(4, 2, 6), transfers=(swap("load", (8, 9), now=True),))
    assert bool(ran.wrong) == (not same)


@pytest.mark.parametrize(("kept", "lines"), [(False, 0), (True, 1)])
def test_what_must_be_kept_is_looked_at_when_its_store_ends(kept, lines):
    made = device(delays=(0,))
    step(made, "a", 0, 5, table(1, 2, 3), transfers=(swap("store", kept=kept),))
    step(made, "c", 0, 5, table(1, 2, 3))
    made.ended(3)
    assert len(made.launch(ScheduledBatch(), 4).wrong) == lines


def test_what_is_awaited_is_over_before_the_step():
    made = device(delays=(30,))
    step(made, "a", 0, 5, table(1, 2, 3), transfers=(swap("store", kept=True),))
    ran = step(made, "c", 0, 5, table(1, 2, 3), awaited=("t",))
    assert (ran.wrong, made.ended(3)) == ((), (("t",), ()))
    own = step(made, "a", 0, 5, table(1, 2, 3), transfers=(swap("store", kept=True),), awaited=("t",))
    assert (own.wrong, made.ended(3)) == ((), (("t",), ()))


OUTSIDE = SlotTransfer("t", "load", 0, (2, 3), request="b", positions=(0, 1))


def test_a_load_that_is_awaited_is_there_before_its_step_and_told():
    made = device(delays=(30,))
    ran = step(made, "b", 2, 3, table(1, 4, 6), transfers=(OUTSIDE,), awaited=("t",))
    assert (ran.wrong, made.ended(3)) == ((), (("t",), ()))


@pytest.mark.parametrize(("delays", "fails"), [((-1,), False), ((0,), True)])
def test_what_is_computed_with_a_load_that_fails_within_the_step_may_not_be_used(delays, fails):
    """The engine hears of that with the results of the step; a step in flight behind it knows no more."""
    made, load = device(delays=delays), replace(OUTSIDE, fails=fails)
    right = step(device(), "b", 0, 5, table(1, 4, 6)).results.tokens["b"]
    ran = step(made, "b", 2, 3, table(1, 4, 6), transfers=(load,), awaited=("t",))
    assert (ran.wrong, ran.results.tokens["b"]) == ((), (JUNK + right[0],))
    assert made.ended(3) == ((), ("t",))
    behind = step(made, "b", 5, 1, table(1, 4, 6))
    assert not behind.wrong
    assert behind.results.tokens["b"][0] > JUNK
    made.voids.landed()
    made.voids.landed()
    assert "reads position 0 in block 1" in step(made, "b", 5, 1, table(1, 4, 6)).wrong[0]


@pytest.mark.parametrize(("name", "wrong"), [("a", False), ("c", True)])
def test_a_load_within_a_step_may_meet_what_a_step_in_flight_writes_where_that_is_the_same(name, wrong):
    made = device(delays=(0,))
    ran = step(made, name, 0, 5, table(1, 2, 3))
    part = Scheduled("b", 2, 3, slots=(table(1, 5, 6),))
    batch = ScheduledBatch((part,), transfers=(OUTSIDE,), awaited=("t",))
    assert bool(made.launch(batch, 3, ran.writes).wrong) is wrong


def test_transfers_at_once_come_in_their_order():
    made = device()
    step(made, "a", 0, 5, table(1, 2, 3))
    moved = (swap("store", now=True), swap("load", (8, 9), now=True))
    assert not step(made, "b", 2, 3, table(4, 2, 6), transfers=moved).wrong


def test_a_load_into_what_a_step_in_flight_writes_is_overtaken():
    made = device(delays=(0,))
    ran = step(made, "a", 0, 5, table(1, 2, 3))
    load = SlotTransfer("t", "load", 0, (2, 3), request="b", positions=(0, 1))
    made.launch(ScheduledBatch((), transfers=(load,)), 3, ran.writes)
    made.ended(9)
    assert step(made, "b", 2, 3, table(1, 2, 6)).wrong


@pytest.mark.parametrize(("delays", "wrong"), [((0,), False), ((-1,), True)])
def test_what_comes_from_outside_is_right_unless_it_fails(delays, wrong):
    made = device(delays=delays)
    load = SlotTransfer("t", "load", 0, (2, 3), request="b", positions=(0, 1))
    made.launch(ScheduledBatch((), transfers=(load,)), 3)
    assert made.ended(3) == (((), ("t",)) if wrong else (("t",), ()))
    assert bool(step(made, "b", 2, 3, table(1, 4, 6)).wrong) is wrong


def test_work_that_is_done_twice_is_counted():
    made = device()
    step(made, "a", 0, 5, table(1, 2, 3))
    assert made.cells.again == 0
    step(made, "b", 0, 5, table(4, 5, 6))
    assert made.cells.again == 5
