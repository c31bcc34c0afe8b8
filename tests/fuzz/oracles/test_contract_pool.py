"""S1, S4 and S8, mistake by mistake: what a core shows of its pool is changed on its way, and this is noticed."""

from dataclasses import replace

import pytest
from blockproof.fuzz.opening.targets import open_target
from blockproof.model.ops import (
    Advance,
    Allocate,
    Done,
    Evict,
    Failed,
    Free,
    Group,
    Lookup,
    Refused,
    Submit,
    Take,
    TakeEvents,
)

from ..runs.test_model_free import Changed
from .contract_stories import _shape, computed
from .test_contract import Story
from .test_contract_faults import verdicts

SHAPE = _shape(Group("full", 2), num_blocks=6)
STORED = computed("a", 0, 1, 2, 3)
FREED, TAKEN, TOO_MANY = Free("a"), Take(1), Take(9)
BIG = (Submit("b", (9,) * 12), Allocate("b", 12))
"""The pool has room for ten of its tokens."""


def last_said(operation, change, operations, hides=(), shape=SHAPE):
    """What is said at the last of the operations, the only one at which answer and snapshot are changed."""

    def changed(applied, outcome, shown):
        return change(outcome, shown) if applied == operation else (outcome, shown)

    core = Changed(changed)
    *quiet, last = verdicts(core, shape, operations, hides)
    assert quiet == [None] * (len(operations) - 1)
    return last


def showing(**fields):
    """Fields of the snapshot as functions of what they are."""
    return lambda outcome, shown: (
        outcome,
        shown._replace(**{name: change(getattr(shown, name)) for name, change in fields.items()}),
    )


@pytest.mark.parametrize("operations", [(*STORED, FREED), (*STORED, TAKEN), (*STORED, TOO_MANY), (*STORED, *BIG)])
def test_our_core_is_right_in_each_of_these_stories(operations):
    assert last_said(operations[-1], lambda outcome, shown: (outcome, shown), operations) is None


@pytest.mark.parametrize(
    ("property", "part", "change"),
    [
        ("S4", "the null block 0 is in the free list", showing(free=lambda free: [0, *free[1:]])),
        ("S4", "the null block 0 is registered, with label 7", showing(labels=lambda labels: [7, *labels[1:]])),
        ("S9", "free blocks changed places: [3, 4, 5] -> ", showing(free=lambda free: [free[1], free[0], *free[2:]])),
        ("S1", "stand twice in the free list", showing(free=lambda free: [*free[1:], free[1]])),
        ("S1", "neither free nor held: [3]", showing(free=lambda free: [one for one in free if one != 3])),
        ("S1", "the free count is 4, but 5 blocks are free", showing(num_free=lambda count: count - 1)),
        ("S1", "block 1 has 1 references, but 0 holders: in no table", showing(ref_cnt=lambda _: [0, 1, 0, 0, 0, 0])),
        (
            "S8",
            "Free raised KeyError, although it makes sense here",
            lambda outcome, shown: (Failed("KeyError"), shown),
        ),
        ("S8", "Free was refused, which only an allocation can be", lambda outcome, shown: (Refused(), shown)),
    ],
)
def test_a_wrong_pool_is_told_when_blocks_are_freed(property, part, change):
    said = last_said(FREED, change, (*STORED, FREED))
    assert said.id == property, said
    assert part in said.what


def test_a_block_that_is_held_is_not_free():
    said = last_said(TAKEN, showing(free=lambda free: [1, *free[1:]]), (*STORED, TAKEN))
    assert (said.id, said.what) == ("S1", "blocks [1] are free and held: a in group 0")


def test_of_a_hidden_free_list_the_count_is_held_against_the_tables():
    said = last_said(FREED, showing(num_free=lambda count: count - 1), (*STORED, FREED), hides={"free"})
    assert said.id == "S1"
    assert "4 free + 0 held + 0 set aside != 5 blocks of the pool" in said.what


def test_the_null_block_is_not_handed_out():
    said = last_said(TAKEN, lambda outcome, shown: (Done((0,)), shown), (*STORED, TAKEN))
    assert (said.id, "the null block 0 was handed out: (0,)") == ("S4", said.what)


def test_what_fails_changes_nothing():
    said = last_said(TOO_MANY, showing(ref_cnt=lambda counts: [*counts[:-1], 1]), (*STORED, TOO_MANY))
    assert said.id == "S8"
    assert said.what == "Take failed with 3 blocks free, and changed: ref_cnt: block 5: 0 -> 1"
    said = last_said(TOO_MANY, showing(num_free=lambda count: count - 1), (*STORED, TOO_MANY))
    assert said.what == "Take failed with 3 blocks free, and changed: num_free: 3 -> 2"


@pytest.mark.parametrize(
    ("part", "change"),
    [
        (
            "the allocation was refused and changed labels: labels: block 5: None -> 9",
            showing(labels=lambda labels: [*labels[:-1], 9]),
        ),
        ("the allocation was refused and changed num_identities", showing(num_identities=lambda count: count + 1)),
    ],
)
def test_what_is_refused_changes_nothing(part, change):
    said = last_said(BIG[-1], change, (*STORED, *BIG))
    assert said.id == "S8"
    assert part in said.what


def test_a_lookup_that_raises_is_told():
    story = (*STORED, Submit("b", (0, 1, 2)), Lookup("b"))
    said = last_said(story[-1], lambda outcome, shown: (Failed("IndexError"), shown), story)
    assert (said.id, said.what[:24]) == ("S8", "Lookup raised IndexError")


@pytest.mark.parametrize("tables", [{"a": [1]}, {"b": [3]}])
def test_a_refusal_changes_no_table(tables):
    said = last_said(BIG[-1], showing(tables=lambda shown: [shown[0] | tables]), (*STORED, *BIG))
    assert said is not None
    assert said.id == "S8"


WINDOW = _shape(Group("sliding", 1, window=2), num_blocks=6)
STUCK = (*computed("a", 0, 1, 2, 3), Allocate("a", 12))
"""The step that may still run reads entries 2 and 3, the next query entry 3. The others may be given back."""


@pytest.mark.parametrize(
    ("table", "right"), [([0, 0, 3, 4], True), ([1, 2, 3, 4], True), ([0, 0, 3, 0], False), ([0, 5, 3, 4], False)]
)
def test_a_refusal_gives_back_no_more_than_what_no_query_reads_and_puts_nothing_in_its_place(table, right):
    def shown(outcome, snapshot):
        free = [block for block in range(1, 6) if block not in table]
        counts = [int(block in table and block > 0) for block in range(6)]
        held = {"usage": 1 - len(free) / 5, "ref_cnt": counts}
        shown = snapshot._replace(tables=[{"a": table}], free=free, num_free=len(free), **held)
        assert isinstance(outcome, Refused)
        return outcome, shown

    said = last_said(STUCK[-1], shown, STUCK, shape=WINDOW)
    assert (said is None) == right
    assert right or said.id == "S8"


def test_one_block_is_not_handed_out_twice_at_once():
    twice = (*STORED, Take(2))
    said = last_said(twice[-1], lambda outcome, shown: (Done((3, 3)), shown), twice)
    assert (said.id, said.what) == ("S2", "one block was handed out twice: [3, 3]")


def test_each_check_is_counted_once_for_each_operation_that_may_break_its_property():
    story = Story(open_target("impl"), replace(SHAPE, events=True))
    story.tell(*STORED, *BIG, Free("nobody"), Submit("c", (0, 1, 2)), Lookup("c"), Allocate("c", 1, hit=True))
    story.tell(Evict(()), Advance("c"), TAKEN, TakeEvents(), FREED)
    assert story.contract.reached == {
        "contract: hit": 1,
        "contract: hit of a shared block": 1,
        "contract: S1 checked": 5,
        "contract: S2 checked": 3,
        "contract: S4 checked": 14,
        "contract: S5 checked": 4,
        "contract: S6 checked": 5,
        "contract: S7 checked": 1,
        "contract: S8 checked": 1,
        "contract: S9 checked": 4,
        "contract: S10 checked": 1,
        "contract: S11 checked": 1,
        "contract: S12 checked": 1,
        "contract: S13 checked": 2,
        "contract: S14 checked": 1,
        "contract: S15 checked": 2,
        "contract: S9 of blocks given back": 1,
        "contract: S11 of tokens told": 1,
        "contract: S11 of full reports": 0,
        "contract: S16 checked": 2,
        "contract: S16 of new ids": 3,
        "contract: S16 of offered states": 0,
        "contract: S17 checked": 3,
        "contract: S17 of reserved blocks": 0,
        "contract: S18 checked": 2,
        "contract: S19 checked": 4,
    }
