"""What the contract says of free blocks, references, what is registered and events: S1, S4, S8 and S11 in tables."""

from dataclasses import replace

import pytest
from blockproof.model.ops import (
    Advance,
    Allocate,
    Done,
    Evict,
    Failed,
    Free,
    Group,
    Refused,
    Reset,
    StepStart,
    Submit,
    Take,
)

from .test_contract import WINDOW, shape
from .test_contract_played import BUT_TABLES, WIDE_AND_NARROW, Play
from .test_contract_tables import PAIRS

# S1, S4 and S8.


@pytest.mark.parametrize("hides", ["num_free", "free"])
@pytest.mark.parametrize(("count", "id"), [(6, None), (5, "S8")])
def test_only_who_takes_more_than_is_free_may_fail(hides, count, id):
    shown = BUT_TABLES - {"free", "num_free"} | {hides}
    play = Play(PAIRS, shown, free=range(3, 8) if hides == "num_free" else ())
    play.before = play.before._replace(num_free=0 if hides == "num_free" else 5)
    assert play.step(Take(count), outcome=Failed("ValueError")) == id
    assert "Take raised ValueError, although it makes sense here (5 blocks free)" in (play.what or "") or not id


NEXT_TO_IT = shape(WINDOW, Group("sliding", 1, window=2, num_heads=2), num_blocks=16)


@pytest.mark.parametrize(
    ("first", "second", "id"),
    [
        ({"a": [1, 2, 3, 4]}, {"a": [5, 6, 7, 8]}, None),
        ({"a": [0, 0, 0, 4]}, {"a": [5, 6, 7, 8]}, None),
        ({"a": [0, 2, 3, 4]}, {"a": [0, 0, 0, 8]}, None),
        ({"a": [0, 0, 0, 0]}, {"a": [5, 6, 7, 8]}, "S8"),
        ({"a": [1, 2, 3, 4]}, {"a": [0, 0, 0, 0]}, "S8"),
        ({"a": [1, 2, 3]}, {"a": [5, 6, 7, 8]}, "S8"),
        ({"a": [1, 2, 3, 4, 9]}, {"a": [5, 6, 7, 8]}, "S8"),
        ({"a": [1, 2, 3, 4]}, {"a": [5, 6, 9, 8]}, "S8"),
        ({"a": [1, 2, 3, 4]}, {"a": [5, 6, 7, 8], "b": []}, "S8"),
        ({}, {"a": [5, 6, 7, 8]}, "S8"),
    ],
)
def test_a_refusal_gives_back_what_no_query_reads_any_more_and_nothing_else(first, second, id):
    play = Play(NEXT_TO_IT)
    play.compute("a", (0, 1, 2, 3), [1, 2, 3, 4], [5, 6, 7, 8], known=(7,))
    assert play.step(Allocate("a", 1), first, second, outcome=Refused()) == id
    assert play.contract.reached["contract: S8 checked"] == (id is None)


@pytest.mark.parametrize(
    "shows",
    [
        {"earliest": [None, 1, *[None] * 6]},
        {"num_identities": 1},
        {"registered": [{"a": 1}]},
        {"events": (("cleared",),)},
        {"new_block_ids": [[1]]},
        {"stats": (1,)},
        {"labels": [None, 1, *[None] * 6]},
        {"free": [3, 4]},
    ],
)
def test_a_refusal_changes_nothing_else_that_is_shown(shows):
    play = Play(PAIRS, BUT_TABLES - {"free"}, free=range(1, 8))
    play.step(Submit("a", (0, 1, 2)))
    assert play.step(Allocate("a", 3), outcome=Refused(), **shows) == "S8"
    (name,) = shows
    assert name in play.what or play.what == "the allocation was refused, yet blocks [1, 2, 5, 6, 7] are free no more"


SINKS = shape(Group("sink", 2, sink_len=3), num_blocks=8)


@pytest.mark.parametrize(
    ("free", "taken", "left", "id"),
    [
        ([3, 4, 5, 6, 7], [3], [4, 5, 6, 7], None),
        ([3, 4, 5, 6, 7], [1], [3, 4, 5, 6, 7], "S2"),
        ([3, 4, 5, 6, 7], [3], [1, 4, 5, 6, 7], "S1"),
        ([3, 4, 5, 6, 7], [3], [4, 5, 6], "S1"),
        ([3, 4, 5, 6, 7], [3], [3, 4, 5, 6, 7], "S1"),
        ([3, 4, 5, 6, 7], [3], [4, 5, 6, 7, 7], "S1"),
        ([3, 4, 5, 6, 7], [4], [3, 5, 6, 7], "S9"),
        ([2, 3, 4, 5, 6, 7], [2], [3, 4, 5, 6, 7], "S1"),
        ([4, 5, 6, 7], [4], [5, 6, 7], "S1"),
    ],
)
def test_each_block_is_free_or_held_or_set_aside_for_sinks(free, taken, left, id):
    play = Play(SINKS, BUT_TABLES - {"free"}, free=free)
    told = play.step(Submit("a", (0, 1)))
    assert (told == "S1") == (len(free) != 5)
    if told is None:
        assert play.step(Allocate("a", 2), {"a": taken}, free=left) == id


@pytest.mark.parametrize(("count", "id"), [(4, None), (5, "S1"), (3, "S1")])
def test_the_number_of_free_blocks_is_that_of_those_that_nobody_holds_and_nobody_set_aside(count, id):
    play = Play(SINKS, BUT_TABLES - {"num_free"})
    play.before = play.before._replace(num_free=5)
    assert play.step(Submit("a", (0, 1))) is None
    assert play.step(Allocate("a", 2), {"a": [3]}, num_free=count) == id
    assert play.contract.reached["contract: S1 checked"] == 1 + (id is None)
    listed = Play(SINKS, BUT_TABLES - {"num_free", "free"}, free=range(3, 8))
    listed.before = listed.before._replace(num_free=5)
    assert listed.step(Submit("a", (0, 1))) is None
    assert listed.step(Allocate("a", 2), {"a": [3]}, num_free=count, free=[4, 5, 6, 7]) == id


@pytest.mark.parametrize(
    ("references", "id"),
    [([0, 1, 2, 1, 1], None), ([0, 1, 1, 1, 1], "S1"), ([0, 0, 2, 1, 1], "S1"), ([0, 1, 2, 1, 2], "S1")],
)
def test_references_are_counted_by_table_entry_and_outside_holder(references, id):
    play = Play(PAIRS, BUT_TABLES - {"free", "ref_cnt"}, free=range(1, 8))
    nobody = [0] * 3
    counts = [0, 1, 0, 0, 0, *nobody]
    assert play.step(Take(1), outcome=Done((1,)), free=[2, 3, 4, 5, 6, 7], ref_cnt=counts) is None
    assert play.step(Submit("a", (0, 1, 2))) is None
    counts = [0, 1, 1, 1, 0, *nobody]
    assert play.step(Allocate("a", 3), {"a": [2, 3]}, free=[4, 5, 6, 7], ref_cnt=counts) is None
    assert play.look_up("b", (0, 1, 9), (2, ((2,),))) is None
    tables = {"a": [2, 3], "b": [2, 4]}
    assert play.step(Allocate("b", 1, hit=True), tables, free=[5, 6, 7], ref_cnt=[*references, *nobody]) == id


@pytest.mark.parametrize(
    ("operation", "value", "labels", "id"),
    [
        (Reset(), True, [None, None, None], None),
        (Reset(), True, [None, 5, None], "S10"),
        (Reset(), False, [None, None, None], "S10"),
        (Reset(), False, [None, 5, 6], None),
        (Evict((1,)), None, [None, None, 6], None),
        (Evict((1,)), None, [None, 5, 6], "S10"),
        (Evict((1,)), None, [None, None, None], "S10"),
        (Take(1), (1,), [None, None, 6], None),
        (Take(1), (1,), [None, 5, 6], "S10"),
        (Take(1), (2,), [None, None, 6], "S10"),
    ],
)
def test_blocks_stay_registered_until_they_are_evicted_or_used(operation, value, labels, id):
    play = Play(PAIRS, BUT_TABLES - {"labels"})
    play.before = play.before._replace(labels=[None] * 8)
    play.step(Submit("a", (0, 1, 2, 3)))
    assert play.step(Allocate("a", 4), {"a": [1, 2]}, labels=[None, 5, 6, *[None] * 5]) is None
    assert play.step(Free("a"), {}) is None
    assert play.step(operation, outcome=Done(value), labels=[*labels, *[None] * 5]) == id


@pytest.mark.parametrize("hits", [True, False])
def test_a_block_of_the_encoder_is_never_registered(hits):
    play = Play(shape(Group("full", 2), Group("cross", 2), num_blocks=8), BUT_TABLES - {"labels"})
    play.step(Submit("a", (0, 1, 2)))
    labels = [None, 5, None, None, None, None if hits else 6, None, None]
    rows = {"a": [1, 2]}, {"a": [5, 6]}
    assert play.step(Allocate("a", 3, encoder_tokens=3), *rows, labels=labels) == (None if hits else "S10")


def test_a_list_that_is_only_shown_anew_is_not_checked_once_more():
    play = Play(PAIRS, BUT_TABLES - {"free", "ref_cnt"}, free=range(1, 8))
    play.step(Submit("a", (0,)))
    assert play.step(Allocate("a", 1), {"a": [1]}, free=list(range(2, 8)), ref_cnt=[0, 1, *[0] * 6]) is None
    checked = dict(play.contract.reached)
    assert play.step(Advance("a"), free=list(range(2, 8)), ref_cnt=[0, 1, *[0] * 6]) is None
    for id in ("S1", "S9"):
        assert play.contract.reached[f"contract: {id} checked"] == checked[f"contract: {id} checked"]


# S11.


def stored(*names, group=0, size=2, tokens=None, parent=None):
    return ("stored", names, parent, tokens, size, None, (), group, None, None)


def removed(*names, group=0):
    return ("removed", names, group)


class Telling(Play):
    """A core that plays and tells events; labels and events are written down step by step."""

    def __init__(self, in_shape):
        super().__init__(in_shape, BUT_TABLES - {"labels", "events"})
        self.before = self.before._replace(labels=[None] * 8)

    def tell(self, operation, *events, labels=None, tables=(), **more):
        labels = {} if labels is None else labels
        shown = [labels.get(block, label) for block, label in enumerate(self.before.labels)]
        return self.step(operation, *tables, labels=shown, events=(*self.before.events, *events), **more)

    def copies(self):
        """Blocks 1 and 2 with one content, label 0; block 3 with another one, label 1."""
        held = {}
        for name, block, label, token in (("a", 1, 0, 5), ("b", 2, 0, 5), ("c", 3, 1, 6)):
            held = held | {name: [block]}
            assert self.tell(Submit(name, (token, token))) is None
            told = stored(f"hash {label}")
            assert self.tell(Allocate(name, 2), told, labels={block: label}, tables=[held]) is None, self.what
        for name in "abc":
            held = {other: row for other, row in held.items() if other != name}
            assert self.tell(Free(name), tables=[held]) is None


@pytest.mark.parametrize(
    ("first", "second", "third", "ids"),
    [
        ((removed("hash 0"),), (removed("hash 0"),), (removed("hash 1"),), [None, None, None]),
        ((), (removed("hash 0"),), (removed("hash 1"),), [None, None, None]),
        ((removed("hash 0"),), (), (), [None, "S11"]),
        ((removed("hash 1"),), (), (), ["S11"]),
        ((), (), (), [None, "S11"]),
        ((), (removed("hash 0"), removed("hash 0")), (), [None, "S11"]),
        ((removed("hash 0"), removed("hash 0")), (), (), ["S11"]),
        ((removed("hash 0"),), (removed("hash 0", "hash 1"),), (), [None, "S11"]),
        ((removed("hash 0"),), (removed("hash 0", group=1),), (), [None, "S11"]),
    ],
)
def test_a_removal_is_told_of_each_copy_or_of_the_last_one(first, second, third, ids):
    play = Telling(shape(Group("full", 2), num_blocks=8, events=True))
    play.copies()
    said = []
    for block, events in ((1, first), (2, second), (3, third)):
        said.append(play.tell(Evict((block,)), *events, labels={block: None}))
        if said[-1]:
            break
    assert said == ids


@pytest.mark.parametrize(("event", "id"), [(removed("hash 1"), "S11"), (("cleared",), "S11"), (None, None)])
def test_nothing_is_told_where_nothing_has_changed(event, id):
    play = Telling(shape(Group("full", 2), num_blocks=8, events=True))
    play.copies()
    assert play.tell(StepStart(), *[event] * (event is not None)) == id


def test_once_all_is_cleared_all_may_be_stored_again():
    play = Telling(shape(Group("full", 2), num_blocks=8, events=True))
    play.copies()
    gone = dict.fromkeys(range(8))
    assert play.tell(Reset(), ("cleared",), labels=gone, outcome=Done(True)) is None
    play.before = play.before._replace(events=())
    play.copies()
    assert play.tell(Evict((1,)), removed("hash 0"), labels={1: None}) is None
    assert play.tell(Evict((2,)), removed("hash 0"), labels={2: None}) is None


def test_events_of_parts_of_blocks_are_left_out_of_what_is_compared():
    """Of the first group, half a block is registered, then all of it under another name."""
    play = Telling(replace(WIDE_AND_NARROW, events=True))
    assert play.tell(Submit("a", (0, 1, 2, 3))) is None
    half = stored("half", size=2), stored("narrow", group=1)
    assert play.tell(Allocate("a", 2), *half, labels={1: 7, 2: 8}, tables=[{"a": [1]}, {"a": [2]}]) is None, play.what
    assert play.tell(Advance("a")) is None
    whole = stored("whole", size=4), stored("next", group=1)
    rows = {"a": [1]}, {"a": [2, 3]}
    assert play.tell(Allocate("a", 2), *whole, labels={1: 9, 3: 10}, tables=rows) is None, play.what
    assert play.tell(Free("a"), tables=[{}, {}]) is None
    assert play.tell(Evict((1,)), removed("half", "whole"), labels={1: None}) is None, play.what
    assert play.tell(Evict((2,)), labels={2: None}) == "S11"
