"""Kinds that few cores have: small stories, with the numbers that follow from docs/reference/today.md."""

import pytest
from blockproof.model.attention import rule_for, rules_for
from blockproof.model.core import Model
from blockproof.model.features.today import TODAY
from blockproof.model.kinds.rswa import attends, gap, told_apart, unread
from blockproof.model.ops import (
    Advance,
    Allocate,
    Arrive,
    Done,
    Free,
    Group,
    Lookup,
    Preempt,
    ReadTable,
    RemoveSkipped,
    Shape,
    Submit,
    TakeNewBlockIds,
)

from .told import told

WINDOWED = Shape((Group("rswa", 2, window=2),), 16, 24, 2, 2, 24)
RINGED = Shape((Group("full", 2), Group("ring", 1)), 16, 24, 2, 2, 24)
STATES = Shape((Group("full", 4), Group("mamba", 4, mamba_mode="align"), Group("ring", 3)), 20, 32, 2, 12, 32)


def decoded(model, name, prompt, outputs):
    """A request computes its prompt, then one token after the other."""
    told(model, Submit(name, tuple(prompt)), Allocate(name, len(prompt)))
    for token in outputs:
        told(model, Advance(name, sampled=(token,)), Allocate(name, 1))


@pytest.mark.parametrize("prompt", [1, 2, 3, 7])
@pytest.mark.parametrize("window", [1, 2, 3, 5])
@pytest.mark.parametrize("b", [1, 2, 3])
def test_the_gap_is_what_no_later_query_reads(b, window, prompt):
    rule = rule_for(Group("rswa", b, window=window), WINDOWED)
    for c in range(24):
        start, end = gap(rule, prompt, c)
        unseen = [t for t in range(c) if not any(t <= q and (t < prompt or q - t < window) for q in range(c, 30))]
        assert unseen == list(range(start, end))
        for q in range(c, 24):
            assert not any(attends(rule, prompt, q, t) for t in unseen)
        whole = [i for i in range(24) if set(range(i * b, (i + 1) * b)) <= set(unseen)]
        assert list(unread(rule, prompt, c)) == whole


@pytest.mark.parametrize("kind", ["full", "sliding", "chunked", "mamba"])
def test_of_other_kinds_the_gap_is_what_is_skipped(kind):
    rule = rule_for(Group(kind, 2, window=3, chunk=4), WINDOWED)
    for c in range(16):
        assert gap(rule, 5, c) == (0, max(0, rule.skipped(c)))
        assert unread(rule, 5, c) == range(rule.first(c))


def test_a_token_is_told_apart_from_where_its_query_reads_less_than_in_a_longer_prompt():
    rules = rules_for(WINDOWED)
    for prompt in (1, 3, 6):
        for position in range(20):
            less = [t for t in range(position + 1) if not attends(rules[0], prompt, position, t)]
            assert told_apart(rules, prompt, position) == bool(less) == (position >= prompt + 2)
    assert not told_apart(rules_for(RINGED), 1, 20)


def test_blocks_in_the_gap_are_given_back_and_those_of_the_prompt_stay():
    model = Model(WINDOWED, TODAY)
    decoded(model, "a", (1, 2, 3), range(10, 15))
    assert told(model, ReadTable("a")).value == ((1, 2, 0, 4),)
    told(model, Advance("a", sampled=(15,)), Allocate("a", 1), Advance("a", sampled=(16,)), RemoveSkipped("a"))
    assert told(model, ReadTable("a")).value == ((1, 2, 0, 0, 5),)
    assert told(model, Free("a")) == Done()
    assert model.snapshot().num_free == 15


def test_the_same_tokens_are_found_as_an_answer_only_up_to_where_the_window_lets_them_be_the_same():
    prompt, outputs = (1, 2, 3), (10, 11, 12, 13, 14, 15)
    model = Model(WINDOWED, TODAY)
    decoded(model, "a", prompt, outputs)
    told(model, Free("a"), Submit("b", (*prompt, *outputs)))
    assert told(model, Lookup("b")).value[0] == 4  # tokens 0 to 4 are the same: 4 of them fill blocks
    told(model, Submit("c", (*prompt, *outputs[:1])), Lookup("c"))


def test_a_request_that_starts_again_finds_its_own_output():
    prompt, outputs = (1, 2, 3), (10, 11, 12, 13, 14, 15)
    model = Model(WINDOWED, TODAY)
    decoded(model, "a", prompt, outputs)
    told(model, Advance("a", sampled=(16,)), Preempt("a"))
    assert told(model, Lookup("a")).value[0] == 8
    told(model, Allocate("a", 2, hit=True))
    assert told(model, ReadTable("a")).value[0][2] != 0
    told(model, Advance("a", sampled=(17,)), Allocate("a", 1))
    assert told(model, ReadTable("a")).value[0][2:4] == (0, 0)


def test_a_window_names_the_blocks_of_all_groups():
    model = Model(Shape((Group("full", 2), Group("rswa", 2, window=1)), 40, 24, 2, 2, 24), TODAY)
    decoded(model, "a", (1,), range(10, 17))
    told(model, Submit("b", (1, *range(10, 17))))
    assert told(model, Lookup("b")).value[0] == 2
    assert model.requests["b"].chain[0] is model.requests["a"].chain[0]
    assert model.requests["b"].chain[1] is not model.requests["a"].chain[1]


def test_a_ring_is_one_block_from_the_first_step_to_the_end():
    model = Model(RINGED, TODAY)
    decoded(model, "a", (1, 2, 3), (4, 5, 6))
    full, ring = told(model, ReadTable("a")).value
    assert len(full) == 3
    assert len(ring) == 1
    assert model.snapshot().labels[ring[0]] is None
    told(model, Submit("b", (1, 2, 3, 4, 9)))
    tokens, rows = told(model, Lookup("b")).value
    assert (tokens, rows[1]) == (4, ())
    told(model, Allocate("b", 1, hit=True))
    other = told(model, ReadTable("b")).value[1]
    assert len(other) == 1
    assert other != ring


def test_a_ring_is_taken_with_tokens_from_outside_and_never_cleared():
    model = Model(STATES, TODAY)
    assert model.construction == Done()
    told(model, Submit("a", tuple(range(9))), Lookup("a"), Allocate("a", 0, hit=True, external=8, delay=True))
    rows = told(model, ReadTable("a")).value
    assert len(rows[2]) == 1
    told(model, Arrive("a"), Allocate("a", 1))
    assert told(model, ReadTable("a")).value[2] == rows[2]
    assert rows[2][0] not in told(model, TakeNewBlockIds()).value


def test_a_ring_does_not_keep_hits_from_ending_inside_blocks():
    model = Model(STATES, TODAY)
    assert model.alignment == 2
    told(model, Submit("a", tuple(range(7))), Allocate("a", 6), Advance("a"), Free("a"))
    told(model, Submit("b", (*range(6), 20, 21)))
    tokens, rows = told(model, Lookup("b")).value
    assert tokens == 6
    assert [len(row) for row in rows] == [2, 2, 0]


@pytest.mark.parametrize(
    ("groups", "built"),
    [
        ((Group("ring", 2),), True),
        ((Group("ring", 2), Group("ring", 2, num_heads=2)), False),
        ((Group("full", 2), Group("ring", 3)), True),
    ],
)
def test_rings_alone_find_nothing_and_no_hybrid_is_made_of_them(groups, built):
    shape = Shape(groups, 12, 24, 2, 6 if len(groups) > 1 else 2, 24)
    model = Model(shape, TODAY)
    assert isinstance(model.construction, Done) == built
    if len(groups) == 1:
        decoded(model, "a", (1, 2, 3), (4, 5))
        told(model, Submit("b", (1, 2, 3, 4, 5, 6)))
        assert told(model, Lookup("b")).value == (0, ((),))
