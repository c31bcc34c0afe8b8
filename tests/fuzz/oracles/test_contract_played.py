"""Cores that only play: what they answer and show is written down step by step, so each check of the contract can be
asked about exactly the core that it is there for, and about the right core beside it.
"""

from dataclasses import replace

import pytest
from blockproof.fuzz.oracles.contract import Contract
from blockproof.fuzz.runs.scheduler_view import SchedulerView
from blockproof.model.legal import allows
from blockproof.model.ops import (
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
    Reject,
    RemoveSkipped,
    Submit,
    Take,
)
from blockproof.model.snapshot import Snapshot

from .test_contract import WINDOW, shape, shown

BUT_TABLES = frozenset(Snapshot._fields) - {"tables"}
WIDE_AND_NARROW = shape(Group("full", 4), Group("full", 2), num_blocks=8)
"""Hash blocks of two tokens: a hit may end inside a block of the first group."""
STATES_AND_NARROW = shape(Group("mamba", 4, mamba_mode="align"), Group("full", 2), num_blocks=8)


class Play:
    """A run of a core that plays."""

    def __init__(self, in_shape, hides=BUT_TABLES, losses=(), free=(), **judged):
        self.view, self.contract = SchedulerView(in_shape), Contract(in_shape, hides, losses, **judged)
        self.before = shown(*({} for _ in in_shape.groups))._replace(free=list(free))
        self.view.start(self.before)
        self.contract.start(self.before)

    def step(self, operation, *tables, outcome=None, **shows):
        """The property that is violated, if one is. Without tables they stay as they are."""
        assert allows(self.view, operation), operation
        after = self.before._replace(**({"tables": list(tables)} if tables else {}), **shows)
        outcome = outcome or Done(())
        self.view.follow(operation, outcome, after)
        violation = self.contract.step(operation, outcome, self.before, after, self.view)
        self.before, self.what = after, violation and violation.what
        return violation and violation.id

    def compute(self, name, prompt, *rows, known=()):
        """A request computes its prompt in these blocks, a row for each group; `known` tokens follow."""
        tables = [before | {name: list(row)} for before, row in zip(self.before.tables, rows, strict=True)]
        assert self.step(Submit(name, prompt)) is None
        assert self.step(Allocate(name, len(prompt)), *tables) is None
        assert self.step(Advance(name, known)) is None

    def look_up(self, name, prompt, hit):
        """What is said of a hit: tokens, and blocks per group."""
        assert self.step(Submit(name, prompt)) is None
        return self.step(Lookup(name), outcome=Done(hit))


# Hits.


@pytest.mark.parametrize(("block", "id"), [(1, None), (9, "S7")])
def test_a_state_inside_a_block_is_left_to_the_shadow_memory_but_must_be_a_block(block, id):
    play = Play(STATES_AND_NARROW)
    play.compute("a", (0, 1, 2), [1], [2, 3])
    assert play.look_up("b", (0, 1, 9), (2, ((block,), (2,)))) == id
    left = play.contract.reached["contract: S7 of a state inside a block, left to the shadow memory"]
    assert left == (id is None)
    if id is None:
        tables = {"a": [1], "b": [4]}, {"a": [2, 3], "b": [2, 5]}
        assert play.step(Allocate("b", 1, hit=True), *tables) is None


@pytest.mark.parametrize(("taken", "id"), [((), None), ((1,), "S7")])
def test_a_block_that_was_handed_out_again_does_not_begin_with_what_it_held(taken, id):
    play = Play(WIDE_AND_NARROW)
    play.compute("a", (0, 1, 2), [1], [2, 3])
    assert play.step(Free("a"), {}, {}) is None
    assert play.step(Take(len(taken)), outcome=Done(taken)) is None
    assert play.look_up("b", (0, 1, 9), (2, ((1,), (2,)))) == id


@pytest.mark.parametrize("first", ["a", "b"])
def test_whose_tokens_came_first_makes_no_difference_to_a_hit_inside_a_block(first):
    play = Play(WIDE_AND_NARROW)
    if first == "b":
        play.step(Submit("b", (0, 5, 9)))
    play.compute("a", (0, 1, 2), [1], [2, 3])
    if first == "a":
        play.step(Submit("b", (0, 5, 9)))
    assert play.step(Lookup("b"), outcome=Done((2, ((1,), (2,))))) == "S7"
    assert play.what == "b, group 0: hit [1] of 2 tokens: block 1 does not hold the content of the prefix of 2 tokens"


def test_no_hit_is_of_less_than_no_tokens():
    play = Play(shape(Group("full", 1)))
    assert play.look_up("a", (0, 1), (-1, ((),))) == "S7"
    assert play.what == "a: hit of -1 tokens: 0 <= -1 <= 1 (num_tokens - 1) and -1 % 1 == 0"


# Who holds what.


@pytest.mark.parametrize(("first", "id"), [(4, None), (1, "S2")])
def test_what_comes_from_outside_is_not_loaded_into_a_block_that_another_holds(first, id):
    """The hit ends inside block 1: it is given up there, and all four tokens are loaded."""
    play = Play(replace(WIDE_AND_NARROW, num_blocks=12))
    play.before = play.before._replace(labels=[None] * 12)
    play.compute("a", (0, 1, 2, 3), [1], [2, 3])
    assert play.look_up("b", (0, 1, 9, 9, 9), (2, ((1,), (2,)))) is None
    tables = ({"a": [1], "b": [first, 5]}, {"a": [2, 3], "b": [8, 6, 7]})
    assert play.step(Allocate("b", 1, hit=True, external=4), *tables) == id


def test_nor_into_one_that_two_others_hold():
    play = Play(replace(WIDE_AND_NARROW, num_blocks=12))
    play.before = play.before._replace(labels=[None] * 12)
    play.compute("a", (0, 1, 2, 3), [1], [2, 3])
    assert play.look_up("c", (0, 1, 2, 3, 9), (4, ((1,), (2, 3)))) is None
    held = {"a": [1], "c": [1, 8]}, {"a": [2, 3], "c": [2, 3, 4]}
    assert play.step(Allocate("c", 1, hit=True), *held) is None
    assert play.look_up("b", (0, 1, 9, 9, 9), (2, ((1,), (2,)))) is None
    tables = held[0] | {"b": [1, 5]}, held[1] | {"b": [9, 6, 7]}
    assert play.step(Allocate("b", 1, hit=True, external=4), *tables) == "S2"


@pytest.mark.parametrize(("block", "id"), [(7, None), (4, "S2")])
def test_a_running_state_moves_to_a_block_that_nobody_holds(block, id):
    play = Play(STATES_AND_NARROW)
    play.compute("b", (5, 6), [4], [5])
    play.compute("a", (0, 1, 2), [1], [2, 3], known=(9,))
    tables = ({"b": [4], "a": [block]}, {"b": [5], "a": [2, 3]})
    assert play.step(Allocate("a", 1), *tables) == id


@pytest.mark.parametrize(("last", "id"), [(4, None), (3, "S2")])
def test_the_state_of_a_draft_moves_to_one_entry(last, id):
    play = Play(shape(Group("mamba", 2, mamba_mode="align", speculative_blocks=1), num_blocks=8))
    play.compute("a", (0, 1), [1, 2, 3])
    assert play.step(Allocate("a", 1), {"a": [1, 2, 0, 3, last]}) == id


# What a step needs.


@pytest.mark.parametrize(("entry", "id"), [(5, None), (0, "S15")])
def test_every_draft_has_a_state_of_its_own_wherever_the_step_begins(entry, id):
    play = Play(shape(Group("mamba", 1, speculative_blocks=2), num_blocks=10))
    play.compute("a", (0, 1, 2), [1, 2, 3], known=(7,))
    assert play.step(Allocate("a", 3), {"a": [1, 2, 3, 4, 6, 7, entry, 8]}) == id


@pytest.mark.parametrize(("table", "id"), [([0, 2, 3], None), ([0, 0, 3], "S13")])
def test_a_refusal_gives_nothing_back_that_a_step_reads_which_may_still_be_running(table, id):
    """The token that the step over the prompt samples is not known, so its last token may be computed again."""
    play = Play(shape(WINDOW, num_blocks=8))
    play.compute("a", (0, 1, 2), [1, 2, 3])
    assert play.step(Allocate("a", 1), {"a": table}, outcome=Refused()) == id


@pytest.mark.parametrize(("table", "id"), [([1, 2, 3], None), ([1, 0, 3], "S6")])
def test_tokens_that_arrive_are_read_when_they_have_arrived(table, id):
    play = Play(shape(Group("full", 1), num_blocks=8))
    play.step(Submit("a", (0, 1, 2, 3)))
    assert play.step(Allocate("a", 0, external=3, delay=True), {"a": table}) is None
    assert play.step(RemoveSkipped("a")) is None
    assert play.step(Arrive("a")) == id


@pytest.mark.parametrize(("table", "id"), [([1, 2, 3, 4], None), ([1, 2, 3], "S15")])
def test_a_step_that_waits_for_tokens_has_a_block_to_write_to_at_once(table, id):
    play = Play(shape(Group("full", 1), num_blocks=8))
    play.step(Submit("a", (0, 1, 2, 3)))
    assert play.step(Allocate("a", 1, external=3, delay=True), {"a": table}) == id


@pytest.mark.parametrize(
    ("losses", "removed", "rejected"),
    [
        ((), "S13", None),
        (("skipped-on-optimistic-count",), None, "S6"),
        (("skipped-on-optimistic-count", "computed-taken-back"), None, None),
    ],
)
@pytest.mark.parametrize("refused", [True, False])
def test_what_is_removed_by_a_count_that_is_taken_back_is_a_known_loss_of_some(losses, removed, rejected, refused):
    play = Play(shape(WINDOW, num_blocks=8), losses=losses)
    play.step(Submit("a", (0, 1)))
    assert play.step(Allocate("a", 4), {"a": [1, 2, 3, 4]}) is None
    assert play.step(Advance("a")) is None
    table, outcome = {"a": [0, 0, 0, 4]}, Refused() if refused else Done()
    assert play.step(Allocate("a", 1) if refused else RemoveSkipped("a"), table, outcome=outcome) == removed
    if removed is None:
        assert play.step(Reject("a", 2)) == rejected


@pytest.mark.parametrize(("table", "id"), [([0, 0, 3, 4], None), ([0, 0, 0, 4], "S13")])
def test_a_window_cut_by_an_optimistic_count_excuses_no_entry_that_it_still_holds(table, id):
    play = Play(shape(Group("sliding", 2, window=2), num_blocks=8), losses=["skipped-on-optimistic-count"])
    play.step(Submit("a", (0, 1)))
    assert play.step(Allocate("a", 6), {"a": [1, 2, 3]}) is None
    assert play.step(Advance("a")) is None
    assert play.step(RemoveSkipped("a"), {"a": [0, 0, 3]}) is None
    assert play.step(Allocate("a", 2), {"a": [0, 0, 3, 4]}) is None
    assert play.step(RemoveSkipped("a"), {"a": table}) == id


@pytest.mark.parametrize("chunk", [4, 5])
def test_a_loss_of_chunks_astride_blocks_excuses_nothing_behind_the_hit(chunk):
    play = Play(shape(Group("chunked", 2, chunk=chunk), num_blocks=8), losses=["chunk-astride-block"])
    play.step(Submit("a", (0, 1, 2)))
    assert play.step(Allocate("a", 3), {"a": [0, 2]}) == "S15"


@pytest.mark.parametrize(("chunk", "id"), [(4, "S6"), (5, None)])
def test_a_hit_in_chunks_astride_blocks_is_excused_where_they_are_astride(chunk, id):
    play = Play(shape(Group("chunked", 2, chunk=chunk), num_blocks=8), losses=["chunk-astride-block"])
    play.compute("a", (0, 1, 2), [1, 2])
    assert play.look_up("b", (0, 1, 9), (2, ((1,),))) is None
    assert play.step(Allocate("b", 1, hit=True), {"a": [1, 2], "b": [0, 3]}) == id


# The pool.


@pytest.mark.parametrize(("free", "id"), [([5, 6, 7], None), ([6, 7, 5], "S9")])
def test_where_no_hit_ends_inside_a_block_no_free_block_is_copied_to(free, id):
    alike = shape(Group("full", 2), Group("full", 2, num_heads=2), num_blocks=8)
    play = Play(alike, BUT_TABLES - {"free"}, free=range(1, 8))
    play.step(Submit("a", (0,)))
    assert play.step(Allocate("a", 1), {"a": [1]}, {"a": [2]}, free=[3, 4, 5, 6, 7]) is None
    play.step(Submit("b", (1,)))
    assert play.step(Allocate("b", 1), {"a": [1], "b": [3]}, {"a": [2], "b": [4]}, free=free) == id


@pytest.mark.parametrize(
    ("free", "id"),
    [
        ([4, 5, 1, 2, 3], None),
        ([4, 5, 2, 1, 3], None),  # what both requests hold does, in any order
        ([4, 5, 2, 3, 1], None),
        ([5, 1, 2, 4, 3], "S9"),  # 4 holds nothing
        ([1, 4, 5, 2, 3], "S9"),  # to the back, not elsewhere
    ],
)
@pytest.mark.parametrize("ends", [Free("b"), Preempt("b")])
def test_what_a_request_holds_that_ends_may_count_as_used_again(ends, free, id):
    play = Play(shape(Group("full", 2), num_blocks=6), BUT_TABLES - {"free"}, free=range(1, 6))
    play.step(Submit("a", (0, 1, 2, 3)))
    play.step(Allocate("a", 4), {"a": [1, 2]}, free=[3, 4, 5])
    play.step(Advance("a", (4,)), {"a": [1, 2]}, free=[3, 4, 5])
    play.step(Free("a"), {}, free=[3, 4, 5, 1, 2])
    play.step(Submit("b", (0, 1, 2, 3)))
    play.step(Allocate("b", 1), {"b": [3]}, free=[4, 5, 1, 2])
    assert play.step(ends, {}, free=free) == id


@pytest.mark.parametrize(
    ("taken", "free", "id"),
    [
        ((3, 4), (5, 6, 7), None),
        ((3, 4), (6, 7, 5), None),  # a hit was copied to 5, which then went to the end
        ((4, 5), (3, 7, 6), "S9"),
        ((4, 3), (5, 6, 7), None),
        ((4, 5), (3, 6, 7), "S9"),
    ],
)
def test_a_free_block_that_was_copied_to_may_go_to_the_end_and_hides_no_block_that_was_passed_over(taken, free, id):
    play = Play(WIDE_AND_NARROW, BUT_TABLES - {"free"}, free=range(1, 8))
    play.step(Submit("a", (0,)))
    assert play.step(Allocate("a", 1), {"a": [1]}, {"a": [2]}, free=[3, 4, 5, 6, 7]) is None
    play.step(Submit("b", (1,)))
    tables = ({"a": [1], "b": [taken[0]]}, {"a": [2], "b": [taken[1]]})
    assert play.step(Allocate("b", 1), *tables, free=list(free)) == id
    copied = play.contract.reached["contract: free block copied and put back"]
    assert copied == (list(free) != sorted(free))


def test_the_block_that_a_hit_was_copied_from_may_be_all_that_is_left():
    play = Play(WIDE_AND_NARROW, BUT_TABLES - {"free"}, free=range(1, 8))
    play.step(Submit("a", (0, 1)))
    assert play.step(Allocate("a", 2), {"a": [1]}, {"a": [2]}, free=[3, 4, 5, 6, 7]) is None
    assert play.step(Take(3), outcome=Done((3, 4, 5)), free=[6, 7]) is None
    assert play.step(Free("a"), {}, {}, free=[1, 6, 7, 2]) is None
    assert play.look_up("b", (0, 1, 9, 9), (2, ((1,), (2,)))) is None
    assert play.step(Allocate("b", 2, hit=True), {"b": [6]}, {"b": [2, 7]}, free=[1]) is None


@pytest.mark.parametrize(
    ("tokens", "id"), [(1, "S10"), (2, None), (3, None), (5, "S10"), (6, None), (7, None), (8, None)]
)
def test_a_block_gets_an_identity_with_its_first_full_hash_block(tokens, id):
    """Here each last block of the first group."""
    play = Play(WIDE_AND_NARROW, BUT_TABLES - {"labels"})
    play.step(Submit("a", tuple(range(8))))
    tables = ({"a": [1, 2]}, {"a": [3, 4, 5, 6]})
    last = (tokens - 1) // 4 + 1
    labels = [block if block == last else None for block in range(8)]
    assert play.step(Allocate("a", tokens), *tables, labels=labels) == id


def test_what_arrives_without_a_block_is_missed_by_who_reads_it():
    play = Play(WIDE_AND_NARROW)
    play.step(Submit("a", (0, 1, 2, 3, 4, 5)))
    assert play.step(Allocate("a", 0, external=5, delay=True), {"a": []}, {"a": [3, 4, 5]}) is None
    assert play.step(Arrive("a")) == "S6"


CHUNKS = Group("chunked", 2, chunk=4)


@pytest.mark.parametrize(
    ("groups", "known"),
    [
        ((CHUNKS,), False),
        ((replace(CHUNKS, eagle=True),), True),
        ((CHUNKS, Group("full", 4)), True),
        ((CHUNKS, Group("full", 2)), False),
        ((Group("full", 2, eagle=True),), False),
        ((Group("full", 2), Group("full", 4)), False),
    ],
)
def test_a_lookup_may_fail_where_chunks_are_hard_for_a_core(groups, known):
    for losses in (["chunked-refuses"], []):
        play = Play(shape(*groups, hash_block_size=2), losses=losses)
        play.step(Submit("a", (0, 1)))
        assert play.step(Lookup("a"), outcome=Failed("ValueError")) == (None if known and losses else "S8")
