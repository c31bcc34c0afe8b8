"""What the contract keeps track of: contents of prefixes, prompts that were computed, and requests that start over."""

import pytest
from blockproof.model.ops import (
    Advance,
    Allocate,
    Arrive,
    Done,
    Evict,
    Free,
    Group,
    Item,
    Lookup,
    Preempt,
    Reject,
    Reset,
    Submit,
)

from .test_contract import WINDOW, shape
from .test_contract_played import BUT_TABLES, Play

PAIRS = shape(Group("full", 2), num_blocks=8)
IMAGE, OTHER = Item("image", 0, 2), Item("other", 0, 2)


@pytest.mark.parametrize(
    ("of_a", "of_b", "same"),
    [
        ({}, {}, True),
        ({"adapter": "x"}, {"adapter": "x"}, True),
        ({"adapter": "x"}, {"adapter": "y"}, False),
        ({"adapter": "x"}, {}, False),
        ({"adapter": "x", "adapter_version": "1"}, {"adapter": "x", "adapter_version": "1"}, True),
        ({"adapter": "x", "adapter_version": "1"}, {"adapter": "x", "adapter_version": "2"}, False),
        ({"salt": "s"}, {"salt": "s"}, True),
        ({"salt": "s"}, {"salt": "t"}, False),
        ({"salt": "s"}, {}, False),
        ({"salt": ""}, {}, True),
        ({"items": (IMAGE,)}, {"items": (IMAGE,)}, True),
        ({"items": (IMAGE,)}, {"items": (OTHER,)}, False),
        ({"items": (IMAGE,)}, {}, False),
        ({"items": (Item("image", 0, 1),)}, {"items": (IMAGE,)}, False),
        ({"items": (Item("image", 1, 1),)}, {"items": (IMAGE,)}, False),
        ({"items": (Item("image", 1, 1),)}, {"items": (Item("image", 0, 1),)}, False),
        ({"items": (Item("image", 1, 1),)}, {}, False),
        ({"items": (Item("image", 2, 1),)}, {}, True),
        ({"items": (IMAGE, Item("next", 2, 1))}, {"items": (IMAGE,)}, True),
        ({"embeds": (7, None, None)}, {"embeds": (7, None, None)}, True),
        ({"embeds": (7, None, None)}, {"embeds": (8, None, None)}, False),
        ({"embeds": (7, None, None)}, {}, False),
        ({"embeds": (None, None, 7)}, {}, True),
        ({"embeds": (7, None, None), "items": (IMAGE,)}, {"embeds": (7, None, None)}, False),
    ],
)
def test_a_content_is_all_that_decides_a_prefix(of_a, of_b, same):
    play = Play(PAIRS)
    assert play.step(Submit("a", (0, 1, 0), **of_a)) is None
    assert play.step(Allocate("a", 3), {"a": [1, 2]}) is None
    assert play.step(Submit("b", (0, 1, 0), **of_b)) is None
    assert play.step(Lookup("b"), outcome=Done((2, ((1,),)))) == (None if same else "S7")


def test_tokens_that_are_sampled_go_on_with_what_is_before_them():
    play = Play(PAIRS)
    play.compute("a", (0, 1, 2), [1, 2], known=(3,))
    assert play.step(Allocate("a", 1), {"a": [1, 2]}) is None
    assert play.step(Advance("a", (4,))) is None
    assert play.look_up("b", (0, 1, 2, 3, 9), (4, ((1, 2),))) is None
    assert play.look_up("c", (0, 1, 2, 4, 9), (4, ((1, 2),))) == "S7"


@pytest.mark.parametrize(
    ("known", "rejected", "id"), [((3,), 1, "S7"), ((3, 4), 0, None), ((3, 4), 1, "S7"), ((3, 4, 5), 0, None)]
)
def test_a_block_is_full_once_its_tokens_are_known_and_computed(known, rejected, id):
    """Of a step with two drafts. In place of a rejected one, the token that was sampled is not computed yet."""
    play = Play(PAIRS)
    play.step(Submit("a", (0, 1)))
    assert play.step(Allocate("a", 4), {"a": [1, 2]}) is None
    assert play.step(Advance("a", known, rejected=rejected)) is None
    assert play.look_up("b", (0, 1, 3, 4, 9), (4, ((1, 2),))) == id


@pytest.mark.parametrize(
    ("steps", "ends", "hit", "id"),
    [
        ((5,), True, 0, "S14"),
        ((5,), True, 2, "S14"),
        ((5,), True, 4, None),
        ((3, 2), True, 2, "S14"),
        ((3, 2), True, 4, None),
        ((3,), True, 0, None),
        ((4,), True, 0, None),
        ((5,), False, 0, None),
    ],
)
def test_a_prompt_counts_as_computed_when_all_of_it_is(steps, ends, hit, id):
    """Where labels are not shown, when its request ends: an engine may register blocks late, but not later."""
    play = Play(PAIRS)
    play.step(Submit("a", (0, 1, 2, 3, 4)))
    done = 0
    for step in steps:
        done += step
        assert play.step(Allocate("a", step), {"a": [1, 2, 3][: (done + 1) // 2]}) is None
        assert play.step(Advance("a")) is None
    if ends:
        assert play.step(Free("a"), {}) is None
    assert play.look_up("b", (0, 1, 2, 3, 4), (hit, ((1, 2)[: hit // 2],))) == id


@pytest.mark.parametrize(("steps", "id"), [((5,), "S14"), ((3, 2), "S14"), ((4,), None), ((3,), None)])
def test_where_labels_are_shown_a_prompt_counts_as_computed_with_its_last_step(steps, id):
    play = Play(PAIRS, BUT_TABLES - {"labels"})
    play.before = play.before._replace(labels=[None] * 8)
    play.step(Submit("a", (0, 1, 2, 3, 4)))
    done = 0
    for step in steps:
        done += step
        assert play.step(Allocate("a", step), {"a": [1, 2, 3][: (done + 1) // 2]}) is None
        assert play.step(Advance("a")) is None
    assert play.look_up("b", (0, 1, 2, 3, 4), (0, ((),))) == id


@pytest.mark.parametrize(
    ("operation", "value", "id"),
    [(Evict((5,)), None, "S14"), (Evict((2,)), None, None), (Reset(), True, None), (Reset(), False, "S14")],
)
def test_what_was_evicted_need_not_be_found(operation, value, id):
    play = Play(PAIRS)
    play.compute("a", (0, 1, 2, 3, 4), [1, 2, 3])
    assert play.step(Free("a"), {}) is None
    assert play.step(operation, outcome=Done(value)) is None
    assert play.look_up("b", (0, 1, 2, 3, 4), (0, ((),))) == id


def test_rejected_drafts_are_in_no_block_when_other_tokens_become_known():
    play = Play(PAIRS)
    play.step(Submit("a", (0, 1)))
    assert play.step(Allocate("a", 4), {"a": [1, 2]}) is None
    assert play.step(Advance("a")) is None
    assert play.step(Reject("a", 2)) is None
    assert play.step(Advance("a", (3, 4))) is None
    assert play.look_up("b", (0, 1, 3, 4, 9), (4, ((1, 2),))) == "S7"


def test_of_two_who_have_computed_a_prompt_the_later_one_holds_what_a_replay_hits():
    play = Play(PAIRS, BUT_TABLES - {"labels"})
    play.before = play.before._replace(labels=[None] * 8)
    play.compute("a", (0, 1, 2), [1, 2], known=(7,))
    play.compute("b", (0, 1, 2), [3, 4])
    assert play.step(Evict((1, 2))) is None
    for row in ([1, 2], [1, 2, 5]):
        assert play.step(Allocate("a", 1), {"a": row, "b": [3, 4]}) is None
        assert play.step(Advance("a", (8,))) is None
    assert play.look_up("c", (0, 1, 2), (0, ((),))) == "S14"


# Who starts over.


def test_who_starts_over_fills_other_blocks():
    play = Play(PAIRS)
    play.compute("a", (0, 1, 2, 3), [1, 2])
    assert play.step(Preempt("a"), {}) is None
    assert play.step(Allocate("a", 3), {"a": [3, 4]}) is None
    assert play.look_up("b", (0, 1, 9), (2, ((3,),))) is None
    assert play.look_up("c", (0, 1, 2, 3, 9), (4, ((3, 4),))) == "S7"


@pytest.mark.parametrize("before", [6, 1])
def test_who_starts_over_is_not_excused_by_what_was_cut_before(before):
    play = Play(shape(WINDOW, num_blocks=12), losses=["computed-taken-back"])
    play.step(Submit("a", (0, 1, 2, 3, 4, 5)))
    assert play.step(Allocate("a", before), {"a": list(range(1, before + 1))}) is None
    assert play.step(Advance("a")) is None
    assert play.step(Preempt("a"), {}) is None
    assert play.step(Allocate("a", 3), {"a": [0, 2, 3]}) == "S15"


def test_who_starts_over_is_not_excused_by_a_hit_of_before():
    play = Play(shape(Group("chunked", 2, chunk=5), num_blocks=8), losses=["chunk-astride-block"])
    play.compute("a", (0, 1, 2, 3, 4), [1, 2, 3])
    assert play.look_up("b", (0, 1, 2, 3, 9), (4, ((1, 2),))) is None
    tables = {"a": [1, 2, 3], "b": [1, 2, 4]}
    assert play.step(Allocate("b", 1, hit=True), tables) is None
    assert play.step(Advance("b")) is None
    assert play.step(Preempt("b"), {"a": [1, 2, 3]}) is None
    assert play.step(Allocate("b", 3), {"a": [1, 2, 3], "b": [0, 4]}) == "S15"


@pytest.mark.parametrize(("preempted", "id"), [(False, None), (True, "S6")])
def test_states_of_drafts_are_left_to_the_shadow_memory_until_the_request_starts_over(preempted, id):
    play = Play(shape(Group("mamba", 1, speculative_blocks=1), num_blocks=8))
    play.compute("a", (0, 1), [1, 2, 3], known=(7,))
    assert play.step(Allocate("a", 2), {"a": [1, 2, 3, 4, 5]}) is None
    assert play.step(Advance("a", (8,), rejected=1)) is None
    if preempted:
        assert play.step(Preempt("a"), {}) is None
        assert play.step(Allocate("a", 3), {"a": [1, 2, 3, 4]}) is None
        assert play.step(Advance("a")) is None
    assert play.step(Allocate("a", 1), {"a": [1, 2, 0, 4, 5]}) == id
    left = play.contract.reached["contract: S6 of states of drafts, left to the shadow memory"]
    assert (left > 2) == (not preempted)


@pytest.mark.parametrize(("external", "table", "id"), [(4, [1, 2], None), (4, [0, 2], "S6"), (3, [0, 2], "S6")])
def test_the_last_token_of_a_prompt_that_arrives_as_a_whole_is_computed_again(external, table, id):
    play = Play(PAIRS)
    play.step(Submit("a", (0, 1, 2, 3)))
    assert play.step(Allocate("a", 0, external=external, delay=True), {"a": table}) is None
    assert play.step(Arrive("a")) == id
    assert id or play.step(Allocate("a", 1), {"a": table}) is None
