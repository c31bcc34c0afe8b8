"""The shadow memory, one story at a time: what it notices, and what it counts where a target is known for it."""

import pytest
from blockproof.fuzz.oracles.shadow import Corruption
from blockproof.fuzz.targets.declarations import LOSES
from blockproof.model.ops import (
    NULL,
    Advance,
    Allocate,
    Arrive,
    Done,
    Free,
    Group,
    Item,
    Lookup,
    Preempt,
    Refused,
    Reject,
    StepStart,
    Submit,
    Take,
)
from blockproof.model.tables import Policy

from ..stories import FULL, A, Story, shape


def test_an_entry_that_is_exchanged_is_read_wrong():
    def exchange(operation, snapshot):
        if isinstance(operation, Advance):
            snapshot.tables[0]["a"][:2] = snapshot.tables[0]["a"][1::-1]

    text = Story(FULL, tamper=exchange)(A, Allocate("a", 5)).corruption(Advance("a", (6,)))
    assert text == "a, group 0, position 0: reads another content in block 2, offset 0"


def test_an_entry_that_is_missing_is_noticed_before_the_write():
    def shorten(operation, snapshot):
        snapshot.tables[0].get("a", [0]).pop()

    text = Story(FULL, tamper=shorten).corruption(A, Allocate("a", 5))
    assert text == "a, group 0, position 4: is written, but has no block: its table is [1, 2]"


def test_a_null_entry_that_is_still_in_the_window_is_read_wrong():
    def null(operation, snapshot):
        if isinstance(operation, Advance):
            snapshot.tables[0]["a"][0] = NULL

    story = Story(shape(Group("sliding", 2, window=5)), tamper=null)(A, Allocate("a", 3))
    text = story.corruption(Advance("a"), Allocate("a", 2))
    assert text == "a, group 0, position 1: is read, but has no block: its table is [0, 2]"


def test_two_requests_in_one_block_are_noticed_at_the_write():
    def share(operation, snapshot):
        if "b" in snapshot.tables[0]:
            snapshot.tables[0]["b"] = [1]
            snapshot.ref_cnt[1] = 2

    story = Story(FULL, tamper=share)(A, Allocate("a", 5))
    text = story.corruption(Submit("b", (7,)), Allocate("b", 1))
    assert text == "b, group 0, position 0: is written into block 1, which a holds with another content"


def test_a_block_that_others_hold_may_be_written_with_what_it_holds():
    """The last token of a prompt that was loaded from outside as a whole is computed again."""
    story = Story(shape(Group("full", 1)))(Submit("a", (5, 6)), Allocate("a", 0, external=2, delay=True), Arrive("a"))
    story(Submit("b", (5, 6, 7)), Lookup("b"), Allocate("b", 1, hit=True))
    _, snapshot = story.model.step(Allocate("a", 1))
    assert snapshot.tables[0]["a"][1] == snapshot.tables[0]["b"][1]
    story.shadow.step(Allocate("a", 1), Done(((),)), snapshot)
    assert story.shadow.reached["shadow: tokens written"] == 2 + 1 + 1


def test_a_hit_on_other_content_is_read_wrong():
    story = Story(FULL)(A, Allocate("a", 5), Advance("a"), Submit("b", (1, 9, 3, 4, 5)))
    _, snapshot = story.model.step(Allocate("b", 5))
    snapshot.tables[0]["b"][0] = snapshot.tables[0]["a"][0]
    story.shadow.step(Lookup("b"), Done((2, ((1,),))), snapshot)
    with pytest.raises(Corruption, match="b, group 0, position 1: reads another content in block 1, offset 1"):
        story.shadow.step(Allocate("b", 3, hit=True), Done(((4, 5),)), snapshot)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Submit("a", (1, 2), adapter="x"), Submit("b", (1, 2), adapter="y")),
        (Submit("a", (1, 2), salt="x"), Submit("b", (1, 2), adapter="x")),
        (Submit("a", (0, 0), embeds=(1, 2)), Submit("b", (0, 0), embeds=(1, 3))),
        (Submit("a", (1, 2), items=(Item("p", 0, 1),)), Submit("b", (1, 2), items=(Item("q", 0, 1),))),
        (Submit("a", (1, 1), items=(Item("p", 0, 1),)), Submit("b", (1, 1), items=(Item("p", 1, 1),))),
        (Submit("a", (1, 1), items=(Item("p", 0, 2),)), Submit("b", (1, 1), items=(Item("p", 0, 1), Item("p", 1, 1)))),
    ],
)
def test_content_is_more_than_tokens(one, other):
    story = Story(FULL)(one, Allocate("a", 2), Advance("a"), other)
    _, snapshot = story.model.step(Allocate("b", 2))
    snapshot.tables[0]["b"][0] = snapshot.tables[0]["a"][0]
    story.shadow.step(Lookup("b"), Done((2, ((1,),))), snapshot)
    with pytest.raises(Corruption, match="reads another content"):
        story.shadow.step(Allocate("b", 1, hit=True), Done(((),)), snapshot)


def test_a_draft_that_was_rejected_is_not_content():
    story = Story(FULL)(A, Allocate("a", 5), Advance("a", (6,)), Allocate("a", 3), Advance("a", (7,), rejected=2))
    story(Allocate("a", 1), Advance("a", (8,)))
    assert story.shadow.reached["shadow: drafts accepted"] == 0
    story(Allocate("a", 3), Advance("a", (9, 9, 9)))
    assert story.shadow.reached["shadow: drafts accepted"] == 2


def test_a_draft_that_is_overwritten_before_it_is_judged_is_noticed():
    story = Story(FULL)(A, Allocate("a", 5), Advance("a", (6,)), Allocate("a", 3))
    story.shadow.memory.overwrite(story.model.state.tables[0]["a"][3:], 99)
    assert "reads another content" in story.corruption(Advance("a", (7, 8, 9)))


def test_blocks_that_somebody_outside_takes_are_overwritten():
    story = Story(FULL)(A, Allocate("a", 5), Take(1))
    (taken,) = story.model.state.outside
    _, snapshot = story.model.step(StepStart())
    snapshot.tables[0]["a"][0] = taken
    with pytest.raises(Corruption, match=f"reads another content in block {taken}"):
        story.shadow.step(Advance("a", (6,)), Done(2), snapshot)


def test_external_tokens_are_read_only_after_they_have_arrived():
    story = Story(FULL)(A, Allocate("a", 0, external=4, delay=True))
    assert story.shadow.reached["shadow: tokens written"] == 0
    story(Arrive("a"), Allocate("a", 1), Advance("a", (6,)))
    assert story.shadow.reached["shadow: external tokens"] == 4


def test_what_is_missing_of_a_load_was_not_written_and_may_not_be_read():
    story = Story(FULL)(A, Allocate("a", 0, external=4, delay=True), Arrive("a", 1))
    assert story.shadow.reached["shadow: external tokens"] == 3
    story(Allocate("a", 2), Advance("a", (6,)))
    waits = Story(FULL)(A, Allocate("a", 0, external=4, delay=True))
    _, snapshot = waits.model.step(Arrive("a", 1))
    waits.shadow.step(Arrive("a", 1), Done(), snapshot)
    waits.shadow.step(Submit("b", A.prompt), Done(2), snapshot)
    snapshot.tables[0]["b"] = [1, 2]
    waits.shadow.step(Lookup("b"), Done((4, ((1, 2),))), snapshot)
    with pytest.raises(Corruption, match="b, group 0, position 3: reads what nobody wrote in block 2"):
        waits.shadow.step(Allocate("b", 1, hit=True), Done(((),)), snapshot)


def test_known_tokens_in_the_lookahead_are_no_content_before_their_step_has_run():
    story = Story(FULL)(A, Allocate("a", 2, lookahead=2), Submit("b", A.prompt))
    _, snapshot = story.model.step(Allocate("b", 5))
    snapshot.tables[0]["b"][:2] = snapshot.tables[0]["a"]
    story.shadow.step(Lookup("b"), Done((4, ((1, 2),))), snapshot)
    with pytest.raises(Corruption, match="b, group 0, position 2: reads what nobody wrote in block 2"):
        story.shadow.step(Allocate("b", 1, hit=True), Done(((5,),)), snapshot)


MAMBA = shape(Group("mamba", 2, mamba_mode="align", speculative_blocks=2))


def test_a_mamba_state_is_followed_into_the_block_of_an_accepted_draft():
    story = Story(MAMBA)(A, Allocate("a", 5), Advance("a", (6,)), Allocate("a", 3), Advance("a", (7, 8, 9)))
    story(StepStart(), Allocate("a", 1), Advance("a", (1,)), Allocate("a", 2), Advance("a", (1,), rejected=1))
    assert story.shadow.reached["shadow: mamba states read back"] == 3


def test_a_mamba_state_in_a_block_that_is_not_held_any_more_is_noticed():
    def let_go(operation, snapshot):
        if isinstance(operation, Allocate) and operation.new_tokens == 1:
            snapshot.tables[0]["a"][2] = 9

    story = Story(MAMBA, tamper=let_go)(A, Allocate("a", 5), Advance("a", (6,)))
    assert "its state is in block 1, which is not held" in story.corruption(Allocate("a", 1))


def test_a_mamba_state_that_another_one_of_the_request_has_replaced_is_noticed():
    def once_more(operation, snapshot):
        if isinstance(operation, Allocate) and operation.new_tokens == 2:
            snapshot.tables[0]["a"][-2] = snapshot.tables[0]["a"][-3]

    story = Story(MAMBA, tamper=once_more)(A, Allocate("a", 5), Advance("a", (6,)), Allocate("a", 2))
    text = story.corruption(Advance("a", (7,), rejected=1), Allocate("a", 1))
    assert text == "a, group 0, position 5: its state is in no block any more: its table is [0, 0, 1, 2, 3, 4]"


def test_a_mamba_state_with_other_content_is_read_wrong():
    story = Story(MAMBA)(A, Allocate("a", 5), Advance("a", (6,)))
    story.shadow.memory.overwrite(story.model.state.tables[0]["a"][2:3], 99)
    text = story.corruption(Allocate("a", 1))
    assert text == "a, group 0, position 4: reads another content as its state in block 1"


def test_a_state_at_the_end_of_a_block_is_there_for_others_though_its_request_has_been_aborted():
    story = Story(shape(Group("mamba", 3, mamba_mode="align", speculative_blocks=1)))(Submit("a", (0,)))
    story(Allocate("a", 2), Advance("a", (0, 0)), Allocate("a", 2), Free("a"), StepStart())
    story(Submit("b", (0, 0, 0, 0)), Lookup("b"), Allocate("b", 1, hit=True))
    assert story.shadow.reached["shadow: mamba states read back"] == 2


def test_a_mamba_state_of_this_very_step_is_no_start():
    story = Story(shape(Group("mamba", 2, mamba_mode="all")))(A, Allocate("a", 5), Submit("b", (1, 2, 3, 4, 5)))
    snapshot = story.model.snapshot()
    snapshot.tables[0]["b"] = [NULL, snapshot.tables[0]["a"][1], 9]
    story.shadow.step(Lookup("b"), Done((4, ((NULL, 2),))), snapshot)
    with pytest.raises(Corruption, match="whose state is computed in this very step"):
        story.shadow.step(Allocate("b", 1, hit=True), Done(((9,),)), snapshot)


def test_a_state_of_a_draft_that_was_rejected_is_not_content():
    story = Story(MAMBA)(A, Allocate("a", 5), Advance("a", (6,)), Allocate("a", 3), Advance("a", (7,), rejected=2))
    story(Allocate("a", 1), Advance("a", (8,)))
    assert story.shadow.reached["shadow: drafts accepted"] == 0
    story(Allocate("a", 3), Advance("a", (9, 9, 9)))
    assert story.shadow.reached["shadow: drafts accepted"] == 2


@pytest.mark.parametrize("tokens", [2, 4])
def test_every_position_of_the_encoder_has_content_of_its_own(tokens):
    def exchange(operation, snapshot):
        if isinstance(operation, Advance):
            snapshot.tables[0]["a"].reverse()

    of = shape(Group("cross", tokens // 2), caching=False)
    story = Story(of, tamper=exchange)(A, Allocate("a", 5, encoder_tokens=tokens))
    assert "position 0: reads another content" in story.corruption(Advance("a", (6,)))
    Story(of)(A, Allocate("a", 5, encoder_tokens=tokens), Advance("a", (6,)))


def test_cross_attention_reads_what_the_encoder_wrote():
    story = Story(shape(Group("cross", 2), caching=False))(A, Allocate("a", 5, encoder_tokens=3))
    story.shadow.memory.overwrite(story.model.state.tables[0]["a"][1:], 99)
    assert "position 2: reads another content" in story.corruption(Advance("a", (6,)))


# States, drafts and late news.

ALIGN = shape(Group("mamba", 4, mamba_mode="align", speculative_blocks=2))
PROMPT = Submit("a", (1, 2, 3, 4, 5, 6))


def test_a_step_that_was_allocated_before_the_news_of_drafts_runs_where_they_let_it_begin():
    story = Story(ALIGN)(PROMPT, Allocate("a", 6), Advance("a", (7,)))
    story(Allocate("a", 3), Advance("a"), Allocate("a", 2))
    assert story.shadow.reached["shadow: mamba states read back"] == 1  # the second step has not run yet
    story(Reject("a", 1), Advance("a", (8, 9, 10)))
    assert story.shadow.reached["shadow: mamba states read back"] == 2
    story(Allocate("a", 1), Advance("a", (11,)), Allocate("a", 3), Advance("a", (12,), rejected=2), Allocate("a", 1))
    assert story.shadow.reached["shadow: mamba states read back"] == 5


def test_a_state_that_late_news_ask_for_and_that_was_given_back_is_missed():
    def forget(operation, snapshot):
        if isinstance(operation, Allocate) and operation.new_tokens == 1:
            snapshot.tables[0]["a"][2] = NULL

    story = Story(ALIGN, tamper=forget)(PROMPT, Allocate("a", 6), Advance("a", (7,)))
    story(Allocate("a", 2), Advance("a"), Allocate("a", 1))
    text = story.corruption(Advance("a", (8, 9, 10)))
    assert text == "a, group 0, position 7: its state is in block 2, which is not held: its table is [0, 1, 0, 3, 4]"


def test_a_draft_that_late_news_accept_at_the_end_of_a_block_is_the_state_that_others_continue_from():
    story = Story(ALIGN)(Submit("a", (1, 2)), Allocate("a", 2), Advance("a", (3,)))
    story(Allocate("a", 3), Advance("a"), Allocate("a", 1), Advance("a", (4, 5, 6, 7)), Allocate("a", 1), StepStart())
    story(Submit("b", (1, 2, 3, 4, 5)), Lookup("b"), Allocate("b", 1, hit=True))
    assert story.model.requests["b"].hit[0] == 4
    assert story.shadow.reached["shadow: mamba states read back"] == 4


def test_the_draft_once_reported_as_a_state_was_a_copy_that_the_simulated_engine_had_forgotten():
    story = Story(shape(Group("mamba", 1, mamba_mode="align", speculative_blocks=1)))(Submit("a", (0,)))
    story(Allocate("a", 2), Advance("a"), Allocate("a", 1), Advance("a", (0,)), Allocate("a", 1), StepStart())
    story(Submit("b", (0, 0, 0)), Lookup("b"), Allocate("b", 1, hit=True))
    assert story.shadow.reached["shadow: mamba states read back"] >= 1


# What a release is known to read wrong: reported unless its target declares it, and nothing wider.

OPTIMISTIC = Policy(settled=lambda request, computed: computed)
"""Windows are cut by tokens that may be taken back."""
WINDOW = shape(Group("sliding", 1, window=2))
CUT = (A, Allocate("a", 5), Advance("a", (6,)), Allocate("a", 3), Advance("a"), Allocate("a", 1), Advance("a"))
TAKEN_BACK = (*CUT, Reject("a", 3), Allocate("a", 1))


def test_a_loss_is_reported_unless_the_target_declares_it_and_the_rule_has_none():
    loss, wrong = "computed-taken-back", "is read, but has no block"
    Story(WINDOW)(*TAKEN_BACK)
    assert wrong in Story(WINDOW, policy=OPTIMISTIC).corruption(*TAKEN_BACK)
    declared = Story(WINDOW, policy=OPTIMISTIC, losses=(loss,))(*TAKEN_BACK)
    assert declared.shadow.reached[f"shadow: known loss {loss}"] > 0
    assert wrong in Story(WINDOW, policy=OPTIMISTIC, losses=LOSES.keys() - {loss}).corruption(*TAKEN_BACK)


def test_a_refused_allocation_has_cut_the_window_too():
    small = shape(Group("sliding", 1, window=2), num_blocks=6)
    story = Story(small, policy=OPTIMISTIC, losses=("computed-taken-back",))(*CUT[:5], Allocate("a", 9))
    assert story.model.last[1] == Refused()
    story(Reject("a", 2), Allocate("a", 1))
    assert story.shadow.reached["shadow: known loss computed-taken-back"] > 0


def test_a_loss_without_its_cause_is_reported_although_it_is_declared():
    def null(operation, snapshot):
        snapshot.tables[0].get("a", [0])[0] = NULL

    story = Story(shape(Group("chunked", 2, chunk=4)), tamper=null, losses=LOSES)
    assert "is written, but has no block" in story.corruption(A, Allocate("a", 3))


def test_where_a_block_lies_astride_chunks_only_what_a_hit_has_begun_with_may_be_missing():
    def null(operation, snapshot):
        snapshot.tables[0].get("a", [0])[-1] = NULL

    of = shape(Group("chunked", 2, chunk=5))
    for position in (2, 0):
        story = Story(of, tamper=null, losses=LOSES)
        said = story.corruption(A, Allocate("a", position + 1))
        assert f"position {position}: is written, but has no block" in said


def test_who_begins_without_a_hit_after_a_preemption_has_none_that_excuses_a_missing_block():
    def null(operation, snapshot):
        if operation == Allocate("a", 1):
            snapshot.tables[0]["a"][-1] = NULL

    story = Story(shape(Group("chunked", 2, chunk=5)), tamper=null, losses=LOSES)
    said = story.corruption(A, Allocate("a", 5), Preempt("a"), Allocate("a", 1))
    assert "position 0: is written, but has no block" in said


@pytest.mark.parametrize("mode", ["align", "all"])
def test_a_state_without_a_block_is_reported_where_no_step_was_longer(mode):
    def null(operation, snapshot):
        if isinstance(operation, Allocate) and operation.new_tokens == 2:
            snapshot.tables[0]["a"][-3] = NULL

    of = shape(Group("mamba", 1, mamba_mode=mode, speculative_blocks=2))
    story = Story(of, tamper=null)(A, Allocate("a", 3), Advance("a"))
    assert "position 4: has no block for its state: its table is" in story.corruption(Allocate("a", 2))
