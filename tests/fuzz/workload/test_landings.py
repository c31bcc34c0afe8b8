"""The workload waits as a scheduler must whose core does not: until steps and loads have landed (S13)."""

from collections import Counter

import pytest
from blockproof.fuzz.findings.oracle_names import CONTRACT, LANDED
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.open_run import drawn_shape, open_run, usable, workload_of
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.landings import Landings
from blockproof.model import ops
from blockproof.model.core import Model

FULL, WINDOW = ops.Group("full", 1), ops.Group("sliding", 1, window=2)
DONE = (ops.Submit("a", (0, 1, 2)), ops.Allocate("a", 3), ops.Advance("a", (3,)))
RUNS = (ops.Submit("b", (4, 5, 6)), ops.Allocate("b", 3))
LATE = (*RUNS, ops.Advance("b"))
LOADS = (ops.Submit("b", (4, 5, 6)), ops.Allocate("b", 0, external=2, delay=True))
LANDS = ops.Landed("b")
COMES = ops.Submit("c", (7, 8))


def asked_for(group, story, wanted, *, loads=True, tells=False):
    """What a story, and then what is wanted, becomes; all of it is applied to the model."""
    shape = ops.Shape((group,), 20, 16, 1, 1, 16)
    model, landings, every = Model(shape), Landings(shape, loads=loads, tells=tells), list[ops.Operation]()
    for one in (*story, wanted):
        operation = landings.before(model, one)
        every = []
        while operation is not None:
            every.append(operation)
            model.apply(operation)
            operation = landings.next()
    return every


@pytest.mark.parametrize("leaves", [ops.Free("b"), ops.Preempt("b")])
def test_who_leaves_waits_for_what_is_under_way_and_for_nothing_else(leaves):
    for story in (RUNS, LATE, LOADS):
        assert asked_for(FULL, (*DONE, *story), leaves) == [LANDS, leaves]
    assert asked_for(FULL, (*LATE, ops.Allocate("b", 1)), leaves) == [LANDS, LANDS, leaves]
    for news in ((*LATE, ops.Advance("b", (9,))), (*LOADS, ops.Arrive("b")), (*LOADS, ops.Arrive("b", 1))):
        assert asked_for(FULL, news, leaves) == [leaves]
    assert asked_for(FULL, DONE, ops.Free("a")) == [ops.Free("a")]
    assert asked_for(FULL, (), ops.Free("nobody")) == [ops.Free("nobody")]


def test_who_writes_beside_the_queue_waits_for_all_where_windows_give_up_and_the_core_is_not_told():
    load = ops.Allocate("c", 1, external=1)
    for beside in (load, ops.Take(1), ops.Lookup("c")):
        assert asked_for(WINDOW, (*LATE, COMES), beside) == [LANDS, beside]
        assert asked_for(FULL, (*LATE, COMES), beside) == [beside]
        assert asked_for(WINDOW, (*LATE, COMES), beside, tells=True) == [beside]
    assert asked_for(WINDOW, (*LATE, COMES), ops.Lookup("c"), loads=False) == [ops.Lookup("c")]
    assert asked_for(WINDOW, (*LATE, COMES), ops.Allocate("c", 2)) == [ops.Allocate("c", 2)]


def test_a_core_that_takes_it_is_told_what_is_in_flight():
    step = ops.Allocate("b", 1)
    assert asked_for(WINDOW, LATE, step, tells=True) == [ops.Allocate("b", 1, in_flight=3)]
    assert asked_for(WINDOW, LATE, step) == asked_for(FULL, LATE, step, tells=True) == [step]
    assert asked_for(WINDOW, (*LATE, ops.Advance("b", (9,))), step, tells=True) == [step]
    cut = ops.RemoveSkipped("b")
    assert asked_for(WINDOW, LATE, cut, tells=True) == [LANDS, cut]
    assert asked_for(WINDOW, LATE, cut) == [cut]


def test_rejected_drafts_move_what_is_in_flight_behind_them():
    begun = (ops.Submit("b", (4,)), ops.Allocate("b", 3), ops.Advance("b"), ops.Allocate("b", 2), ops.Advance("b"))
    (told,) = asked_for(WINDOW, (*begun, ops.Reject("b", 2)), ops.Allocate("b", 1), tells=True)
    assert told.in_flight == 3, "the first step begins at token 0, and 3 of 5 tokens are left"


@pytest.mark.parametrize("attention", ["full", "sliding", "full+sliding", "mamba", "full+chunked"])
def test_a_clean_core_shows_nothing_though_every_block_under_way_is_told(attention):
    """Nothing is handed out early, but what one queue in order makes harmless."""
    reached: Counter[str] = Counter()
    for seed in range(12):
        run, draw = open_run(open_target("impl"), Judging((CONTRACT, LANDED))), SeededDraw(f"{attention} {seed}")
        shape = drawn_shape(run, draw, attention)
        run.start(shape)
        workload = workload_of(run, draw, shape) if run.built else None
        for _ in range(80 * (workload is not None)):
            operation = usable(run, workload.next(run.scene))
            assert operation is None or run.step(operation) is None
        reached += run.reached()
    assert reached["contract: landed"] > 20
    early = [name for name in reached if "before landing" in name]
    assert set(early) <= {"contract: skipped and handed out to a later step before landing"}
