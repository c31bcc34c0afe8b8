"""Which operations a trace may contain in which state, and which of them are misuse."""

import pytest
from blockproof.model.legal import allows, misuse
from blockproof.model.ops import (
    OPERATIONS,
    Advance,
    Allocate,
    AllocateBatch,
    Arrive,
    CommonPrefix,
    Evict,
    Failed,
    Free,
    Group,
    Item,
    Landed,
    Lookup,
    Preempt,
    ReadTable,
    Reject,
    Release,
    RemoveSkipped,
    Reset,
    StepStart,
    Submit,
    Take,
    TakeEvents,
    TakeNewBlockIds,
    TakeStats,
    Touch,
)

from .running import core, done

LEGAL, NOT, MISUSE = "legal", "not allowed", "misuse"

STATES = {
    "empty": (),
    "submitted": (Submit("a", (1, 2, 3)),),
    "looked up": (Submit("a", (1, 2, 3)), Lookup("a")),
    "looked up before": (Submit("a", (1, 2, 3)), Lookup("a"), StepStart()),
    "allocated": (Submit("a", (1, 2, 3)), Allocate("a", 3)),
    "drafted": (Submit("a", (1, 2, 3)), Allocate("a", 5)),
    "item seen": (Submit("b", (0, 0), items=(Item("p", 0, 2),)), Free("b")),
    "ahead": (Submit("a", (1, 2, 3)), Allocate("a", 5), Advance("a")),
    "arriving": (Submit("a", (1, 2, 3)), Allocate("a", 0, external=2, delay=True)),
    "arriving behind a hit": (
        *(Submit("a", (1, 2)), Allocate("a", 2), Advance("a"), Submit("b", (1, 2, 3, 4, 5))),
        *(Lookup("b"), Allocate("b", 0, hit=True, external=3, delay=True)),
    ),
    "a step waits": (Submit("a", (1, 2, 3)), Allocate("a", 1, external=2, delay=True)),
    "computed": (Submit("a", (1, 2, 3)), Allocate("a", 3), Advance("a", (4,))),
    "block 1 outside": (Take(1),),
    "two run": (
        Submit("a", (1, 2, 3)),
        Allocate("a", 3),
        Advance("a", (4,)),
        Submit("b", (1, 2)),
        Allocate("b", 2),
        Advance("b", (4,)),
    ),
}

TABLE = [
    ("empty", Submit("a", (1,)), LEGAL),
    ("submitted", Submit("a", (1,)), NOT),
    ("empty", Submit("a", ()), NOT),
    ("empty", Submit("a", (0,) * 8), LEGAL),
    ("empty", Submit("a", (0,) * 9), NOT),
    ("empty", Submit("a", (0, 0), items=(Item("p", 0, 1), Item("q", 1, 1))), LEGAL),
    ("empty", Submit("a", (0, 0), items=(Item("p", 1, 1), Item("q", 0, 1))), LEGAL),
    ("empty", Submit("a", (0, 0), items=(Item("p", 0, 2), Item("q", 1, 1))), LEGAL),
    ("empty", Submit("a", (0, 0), items=(Item("p", 1, 2),)), NOT),
    ("empty", Submit("a", (0, 0), items=(Item("p", -1, 2),)), NOT),
    ("empty", Submit("a", (0, 0), items=(Item("p", 1, 0),)), NOT),
    ("empty", Submit("a", (0, 0, 0), items=(Item("p", 0, 2), Item("p", 2, 1))), LEGAL),
    ("empty", Submit("a", (0, 0), adapter_version="2"), NOT),
    ("empty", Submit("a", (0, 7), embeds=(3, None)), LEGAL),
    ("empty", Submit("a", (0, 7), embeds=(None, 3)), NOT),
    ("item seen", Submit("a", (0, 0, 0), items=(Item("p", 1, 2),)), LEGAL),
    ("item seen", Submit("a", (0, 0, 0), items=(Item("p", 1, 1),)), LEGAL),
    ("empty", Submit("a", (0, 0), embeds=(5, 6)), LEGAL),
    ("empty", Submit("a", (0, 0), embeds=(5,)), NOT),
    ("empty", Submit("a", (0, 1), embeds=(5, 6)), NOT),
    ("empty", Lookup("a"), NOT),
    ("submitted", Lookup("a"), LEGAL),
    ("allocated", Lookup("a"), NOT),
    ("arriving", Lookup("a"), NOT),
    ("empty", Allocate("a", 1), NOT),
    ("submitted", Allocate("a", 1), LEGAL),
    ("submitted", Allocate("a", 8), LEGAL),
    ("submitted", Allocate("a", 9), NOT),
    ("submitted", Allocate("a", 1, hit=True), NOT),
    ("looked up", Allocate("a", 1, hit=True), LEGAL),
    ("looked up before", Allocate("a", 1, hit=True), NOT),
    ("submitted", Allocate("a", 1, external=2), LEGAL),
    ("submitted", Allocate("a", 1, external=4), NOT),
    ("submitted", Allocate("a", 0, external=2), NOT),
    ("submitted", Allocate("a", 0, external=2, delay=True), LEGAL),
    ("submitted", Allocate("a", 1, delay=True), NOT),
    ("computed", Allocate("a", 1, external=1), NOT),
    ("submitted", Allocate("a", 1, encoder_tokens=1), NOT),
    ("allocated", Allocate("a", 1), NOT),
    ("arriving", Allocate("a", 1), NOT),
    ("computed", Allocate("a", 1), LEGAL),
    ("submitted", Allocate("a", 0), MISUSE),
    ("empty", Allocate("a", -1), MISUSE),
    ("submitted", Allocate("a", 1, lookahead=-1), MISUSE),
    ("submitted", Allocate("a", 1, external=-1), MISUSE),
    ("submitted", Allocate("a", 1, reserved=-1), MISUSE),
    ("submitted", Allocate("a", 1, encoder_tokens=-1), MISUSE),
    ("computed", Allocate("a", 1, in_flight=3), LEGAL),
    ("computed", Allocate("a", 1, in_flight=4), NOT),
    ("computed", Allocate("a", 1, in_flight=-1), NOT),
    ("submitted", Allocate("a", 1, in_flight=1), NOT),
    ("two run", AllocateBatch(("a", "b")), LEGAL),
    ("two run", AllocateBatch(("b", "a"), in_flight=2), LEGAL),
    ("two run", AllocateBatch(("b", "a"), in_flight=3), NOT),
    ("two run", AllocateBatch(("b",), 6, 9), LEGAL),
    ("two run", AllocateBatch(("a", "b"), 6), NOT),
    ("two run", AllocateBatch(("a", "a")), NOT),
    ("two run", AllocateBatch(("a", "c")), NOT),
    ("two run", AllocateBatch(()), NOT),
    ("two run", AllocateBatch(("a",), 0), NOT),
    ("two run", AllocateBatch(("a",), 1, -1), NOT),
    ("allocated", AllocateBatch(("a",)), NOT),
    ("empty", Advance("a", (1,)), NOT),
    ("submitted", Advance("a"), NOT),
    ("submitted", Advance("a", (4,)), LEGAL),
    ("allocated", Advance("a", (4,)), LEGAL),
    ("allocated", Advance("a", (), 1), NOT),
    ("drafted", Advance("a", (), 2), LEGAL),
    ("drafted", Advance("a", (), 3), NOT),
    ("allocated", Advance("a", (), -1), NOT),
    ("allocated", Advance("a", (4,) * 6), NOT),
    ("arriving", Advance("a", (4,)), NOT),
    ("empty", Reject("a", 1), NOT),
    ("allocated", Reject("a", 1), NOT),
    ("ahead", Reject("a", 2), LEGAL),
    ("ahead", Reject("a", 3), NOT),
    ("ahead", Reject("a", 0), NOT),
    ("empty", Arrive("a"), NOT),
    ("allocated", Arrive("a"), NOT),
    ("arriving", Arrive("a"), LEGAL),
    ("arriving", Arrive("a", 1), LEGAL),
    ("arriving", Arrive("a", 2), NOT),
    ("arriving", Arrive("a", -1), NOT),
    ("arriving behind a hit", Arrive("b", 3), LEGAL),
    ("arriving behind a hit", Arrive("b", 4), NOT),
    ("a step waits", Arrive("a"), LEGAL),
    ("a step waits", Arrive("a", 1), NOT),
    ("empty", Free("a"), LEGAL),
    ("arriving", Free("a"), LEGAL),
    ("empty", Landed("a"), LEGAL),
    ("allocated", Landed("a"), LEGAL),
    ("empty", Preempt("a"), NOT),
    ("allocated", Preempt("a"), LEGAL),
    ("empty", RemoveSkipped("a"), NOT),
    ("submitted", RemoveSkipped("a"), LEGAL),
    ("empty", CommonPrefix("a"), LEGAL),
    ("empty", ReadTable("a"), LEGAL),
    ("empty", Evict((0, 9)), LEGAL),
    ("empty", Evict((10,)), MISUSE),
    ("empty", Evict((-1,)), MISUSE),
    ("allocated", Reset(), LEGAL),
    ("empty", StepStart(), LEGAL),
    ("empty", TakeEvents(), LEGAL),
    ("empty", TakeNewBlockIds(), LEGAL),
    ("empty", TakeStats(), LEGAL),
    ("empty", Take(0), LEGAL),
    ("empty", Take(99), LEGAL),
    ("empty", Take(-1), MISUSE),
    ("empty", Touch((1, 9)), LEGAL),
    ("empty", Touch((10,)), NOT),
    ("empty", Touch((-1,)), NOT),
    ("empty", Touch((0,)), MISUSE),
    ("empty", Touch((0, 10)), NOT),
    ("empty", Release(()), LEGAL),
    ("block 1 outside", Release((1,)), LEGAL),
    ("block 1 outside", Release((1, 1)), MISUSE),
    ("block 1 outside", Release((2,)), MISUSE),
    ("block 1 outside", Release((1, 0)), MISUSE),
    ("block 1 outside", Release((10,)), NOT),
    ("allocated", Release((1,)), NOT),
]


def in_state(name):
    model = core(Group("full", 2), max_model_len=8)
    for operation in STATES[name]:
        assert allows(model, operation)
        assert not misuse(model, operation)
        done(model, operation)
    return model


@pytest.mark.parametrize(("state", "operation", "verdict"), TABLE, ids=[f"{s}: {o}" for s, o, _ in TABLE])
def test_what_a_trace_may_contain(state, operation, verdict):
    model = in_state(state)
    assert misuse(model, operation) == (verdict == MISUSE)
    assert allows(model, operation) == (verdict != NOT)


@pytest.mark.parametrize(("state", "operation", "verdict"), [row for row in TABLE if row[2] == MISUSE])
def test_misuse_is_answered_with_an_error_or_ignored_and_changes_nothing_that_matters(state, operation, verdict):
    model = in_state(state)
    before = model.snapshot()
    outcome, after = model.step(operation)
    assert after == before or not isinstance(outcome, Failed)
    if not isinstance(operation, Release | Touch):
        assert isinstance(outcome, Failed)


def test_the_table_knows_every_kind_of_operation():
    assert {type(operation) for _, operation, _ in TABLE} == set(OPERATIONS.values())
    undecided = {kind for kind in OPERATIONS.values() if not any(type(o) is kind and v == LEGAL for _, o, v in TABLE)}
    assert not undecided


def test_encoder_tokens_go_with_cross_attention():
    model = core(Group("cross", 2), caching=False)
    done(model, Submit("a", (1, 2)))
    assert allows(model, Allocate("a", 2, encoder_tokens=5))


@pytest.mark.parametrize(
    ("group", "may_fail"),
    [
        (Group("full", 2), [1, 2, 3, 4, 5, 6]),
        (Group("sliding", 2, window=3), [1]),  # tokens from 4 on have blocks, and the query at 5 reads token 3
        (Group("sliding", 2, window=2), []),  # tokens from 6 on have blocks, and the query at 6 reads token 5
        (Group("sliding", 2, window=8), [1, 2, 3, 4, 5, 6]),
        (Group("chunked", 2, chunk=4), [1, 2, 3]),  # the query at 3 is of the chunk before
        (Group("mamba", 2, mamba_mode="all"), []),
        (Group("mamba", 2, mamba_mode="align"), []),
    ],
    ids=str,
)
def test_a_load_fails_as_far_as_what_the_shorter_one_needs_has_blocks(group, may_fail):
    model = core(group, num_blocks=12, max_model_len=16)
    for operation in (Submit("a", tuple(range(9))), Allocate("a", 0, external=7, delay=True)):
        assert allows(model, operation)
        done(model, operation)
    assert [missing for missing in range(1, 9) if allows(model, Arrive("a", missing))] == may_fail
