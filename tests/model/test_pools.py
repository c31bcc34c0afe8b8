"""A core with a pool of the host: small stories, with what follows from docs/reference/today.md."""

from dataclasses import replace
from typing import Any

import pytest
from blockproof.model.core import Model
from blockproof.model.features.today import TODAY
from blockproof.model.ops import (
    NULL,
    Advance,
    Allocate,
    Arrive,
    Done,
    Failed,
    Free,
    Group,
    Lookup,
    Preempt,
    Refused,
    Shape,
    StepStart,
    Submit,
)

from .told import told

GROUPS = (Group("hosted", 2), Group("mla", 2), Group("resident", 2), Group("hot", 2, window=4))
SHAPE = Shape(GROUPS, 24, 24, 2, 2, 24, host_blocks=14)
SOURCE, INDEX, RESIDENT, HOT = range(4)
PROMPT = tuple(range(1, 11))


def computed(model, name, prompt=PROMPT):
    """A request computes its prompt, and samples a token."""
    told(model, Submit(name, prompt), Lookup(name), Allocate(name, len(prompt), hit=True), Advance(name, (1,)))


def fresh(**changed):
    return Model(replace(SHAPE, **changed), TODAY)


def named_on_host(model):
    return len(model.state.host.identity)


def test_a_page_has_a_block_of_the_host_and_one_of_the_device_and_no_region():
    model = fresh()
    computed(model, "a")
    assert [len(tables.get("a", ())) for tables in model.state.tables] == [5, 5, 5, 0]
    assert model.state.num_free() == 23 - 5 - 5
    assert model.state.host.num_free() == 13 - 5


def test_what_is_written_back_has_a_name_when_it_has_come():
    model = fresh()
    computed(model, "a")
    assert named_on_host(model) == 0
    assert len(model.state.moves) == 5
    told(model, StepStart())
    assert named_on_host(model) == 5
    assert not model.state.moves


def test_a_prefix_is_read_from_the_host_and_pages_that_are_there_are_taken_up():
    model = fresh()
    computed(model, "a")
    told(model, StepStart(), Free("a"), Submit("b", (*PROMPT, 7)))
    outcome = told(model, Lookup("b"))
    assert isinstance(outcome, Done)
    found: Any = outcome.value
    length, rows = found
    assert length == 10
    assert [len(row) for row in rows] == [5, 5, 0, 0]
    told(model, Allocate("b", 1, hit=True))
    assert model.state.tables[RESIDENT]["b"][:5] == [NULL] * 5
    assert NULL not in model.state.row(RESIDENT, "b")
    assert len(model.state.tables[HOT]["b"]) == 2


def test_a_page_that_somebody_else_has_got_is_read_from_the_host():
    model = fresh(num_blocks=12)
    computed(model, "a", PROMPT[:8])
    told(model, StepStart(), Preempt("a"), Lookup("a"), Allocate("a", 1, hit=True))
    before = model.state.row(RESIDENT, "a")
    told(model, Advance("a"), StepStart(), Submit("b", (5, 5)), Allocate("b", 2))
    assert model.state.row(RESIDENT, "a") != before
    assert NULL in model.state.row(RESIDENT, "a")


def test_without_room_in_the_host_there_is_none():
    model = fresh(host_blocks=5)
    assert isinstance(told(model, Submit("a", PROMPT), Allocate("a", 10)), Refused)
    assert isinstance(told(model, Allocate("a", 8)), Done)


def test_a_finished_request_leaves_names_and_a_preempted_one_none():
    for end, names in ((Free("a"), 5), (Preempt("a"), 0)):
        model = fresh()
        computed(model, "a")
        told(model, end, StepStart())
        assert named_on_host(model) == names
        assert model.state.host.num_free() == 13
        assert model.state.num_free() == 23


def test_tokens_from_outside_come_to_the_host_and_the_last_page_to_the_device():
    model = fresh()
    told(model, Submit("a", PROMPT), Allocate("a", 0, external=9, delay=True))
    assert model.state.row(RESIDENT, "a")[:4] == [NULL] * 4
    assert model.state.row(RESIDENT, "a")[4] != NULL
    assert named_on_host(model) == 0
    told(model, Arrive("a"))
    assert named_on_host(model) == 4
    assert [move.page for move in model.state.moves] == [4]


@pytest.mark.parametrize(
    "wrong",
    [
        {"host_blocks": 0},
        {"groups": GROUPS[:3]},
        {"groups": (GROUPS[1], GROUPS[0], *GROUPS[2:])},
        {"groups": (*GROUPS[:3], Group("hot", 1, window=4))},
        {"groups": (Group("full", 2),)},
        {"events": True},
        {"eagle": True},
    ],
)
def test_none_of_its_kinds_is_there_without_the_others(wrong):
    assert isinstance(fresh(**wrong).construction, Failed)
