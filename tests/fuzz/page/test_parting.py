"""Where two sides part: the sentence, and the place on the page that it points at."""

import pytest
from blockproof.fuzz.page.words import RequestNumbers, outcomes_part, states_part
from blockproof.fuzz.reports.story import Place
from blockproof.model.core import Model
from blockproof.model.ops import Allocate, Done, Failed, Free, Group, Lookup, Refused, Shape

SIDES = ("model", "target")
STATE = Model(Shape((Group("full", 2),), 6, 8, 2, 2, 8)).snapshot()
ASKED = Allocate("a", 1)


@pytest.mark.parametrize(
    ("operation", "ours", "theirs", "text"),
    [
        (
            Lookup("a"),
            Done((2, ((1,),))),
            Done((0, ((),))),
            "The model finds a hit of 2 tokens: block 1. The target finds no hit.",
        ),
        (
            ASKED,
            Refused(),
            Done(((1, 2), (0,))),
            "The model refuses: there is no room. The target hands out blocks 1, 2 in group 0, null in group 1.",
        ),
        (
            ASKED,
            Done(((),)),
            Failed("ValueError"),
            "The model hands out nothing new. The target fails with ValueError.",
        ),
        (Free("a"), None, Done(3), "The model gives no answer. The target answers: 3."),
        (
            ASKED,
            Done((tuple(range(1, 15)),)),
            Done(((4,),)),
            "The model hands out blocks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 2 more. "
            "The target hands out block 4.",
        ),
    ],
)
def test_two_answers_are_a_sentence(operation, ours, theirs, text):
    assert outcomes_part(SIDES, operation, ours, theirs) == text


@pytest.mark.parametrize(
    ("ours", "theirs", "text", "place"),
    [
        ({}, {"free": [2, 1, 3, 4, 5]}, "The model would reuse block 1 next, the target block 2.", Place(block=2)),
        (
            {},
            {"free": [1, 9, 3, 4, 5]},
            "The model would reuse block 2 after 1 other, the target block 9. "
            "The target does not count block 2 as free.",
            Place(block=9),
        ),
        (
            {},
            {"free": [1, 2, 3, 4]},
            "The target has 1 free block fewer: block 5 is not in its queue.",
            Place(block=5),
        ),
        (
            {},
            {"free": [1, 2, 3, 4, 5, 6]},
            "The target has 1 free block more: block 6 is in its queue.",
            Place(block=6),
        ),
        (
            {},
            {"tables": [{"a": [1]}]},
            "Request a, group 0: The target has a table, the model has none.",
            Place(request=0, group=0),
        ),
        (
            {"tables": [{"a": [1, 2]}]},
            {"tables": [{"a": [1, 0]}]},
            "Request a, group 0: entry 1 is block 2 for the model and null for the target.",
            Place(request=0, group=0, entry=1, block=0),
        ),
        (
            {"tables": [{"a": [1, 2]}]},
            {"tables": [{"a": [1]}]},
            "Request a, group 0: The model has 2 entries, the target 1; they agree up to there.",
            Place(request=0, group=0, entry=1),
        ),
        (
            {},
            {"registered": [{"a": 3}]},
            "Request a, group 0: The model counts 0 leading entries as registered, the target 3.",
            Place(request=0, group=0),
        ),
        (
            {},
            {"ref_cnt": [0, 1, 0, 2, 0, 0]},
            "Block 1 has 0 references for the model and 1 for the target. 1 other block differs, too.",
            Place(block=1),
        ),
        (
            {},
            {"labels": [None, 4, None, None, None, None]},
            "The target has registered block 1, the model has not.",
            Place(block=1),
        ),
        (
            {"labels": [None, 4, None, None, None, None]},
            {},
            "The model has registered block 1, the target has not.",
            Place(block=1),
        ),
        (
            {"labels": [None, 4, None, None, None, None]},
            {"labels": [None, 5, None, None, None, None]},
            "Block 1 is registered as content 4 for the model and as content 5 for the target.",
            Place(block=1),
        ),
        (
            {"earliest": [None, 1, 1, None, None, None]},
            {"earliest": [None, 1, 2, None, None, None]},
            "A lookup of the content of block 2 yields block 1 for the model, 2 for the target.",
            Place(block=2),
        ),
        ({}, {"num_free": 3}, "The number of free blocks: the model shows 5, the target 3.", None),
        ({}, {"stats": (1,)}, "The statistics: the model shows none, the target 1.", None),
        ({}, {"tables": []}, "The tables differ in the number of groups.", None),
    ],
)
def test_two_states_are_a_sentence_and_a_place(ours, theirs, text, place):
    said = states_part(SIDES, STATE._replace(**ours), STATE._replace(**theirs), RequestNumbers())
    assert said == (text, place)


def test_equal_states_do_not_part():
    assert states_part(SIDES, STATE, STATE, RequestNumbers()) == ("", None)


def test_sides_with_names_of_their_own_are_called_so():
    said, _ = states_part(("release one", "release two"), STATE, STATE._replace(free=[2, 1, 3, 4, 5]), RequestNumbers())
    assert said == "release one would reuse block 1 next, release two block 2."
