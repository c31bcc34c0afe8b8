"""Liveness in numbers: the bounds of a shape, and what the watch says at them and one beyond."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from blockproof.fuzz.adapters.impl import open_impl
from blockproof.fuzz.oracles.liveness.bounds import Bounds
from blockproof.fuzz.oracles.liveness.rules import Excused, Violated, Watch
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.model_free import ModelFreeRun
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.shapes import ATTENTION, draw_shape
from blockproof.model import ops
from blockproof.model.attention import Cross, Mamba, Rule
from blockproof.model.core import Model

from .liveness_stories import FULL, STATES, shape_of


def _of(*groups: ops.Group, eagle: bool = False, ranks: int = 1) -> ops.Shape:
    """20 blocks, 40 tokens at most, 6 in a step."""
    unit = max(group.block_size for group in groups)
    return ops.Shape(groups, 20, 40, groups[-1].block_size, unit, 6, eagle=eagle, decode_parallel=ranks)


PAIRS, WINDOW, CHUNK = ops.Group("full", 2), ops.Group("sliding", 2, window=4), ops.Group("chunked", 2, chunk=4)
ASTRIDE, CROSS = ops.Group("chunked", 2, chunk=5), ops.Group("cross", 2)
DRAFTED, RUNNING = ops.Group("mamba", 2, speculative_blocks=3), ops.Group("mamba", 2, mamba_mode="align")
LONG = ops.Group("mamba", 4, mamba_mode="align", speculative_blocks=2)
SHORT = ops.Group("mamba", 2, mamba_mode="align", speculative_blocks=3)
NUMBERS: list[tuple[ops.Shape, tuple[int, int, int, int], Sequence[int], Sequence[int], Sequence[int]]] = [
    (_of(PAIRS), (0, 19, 1, 7), (1, 3, 5, 10, 20), (3, 10, 10, 10), (1, 3, 5, 10)),
    (_of(PAIRS, eagle=True), (2, 19, 1, 7), (3, 5, 7, 12, 20), (4, 11, 11, 11), (1, 3, 5, 10)),
    (_of(PAIRS, ranks=2), (0, 19, 1, 7), (1, 2, 3, 5, 10), (2, 5, 5, 5), (1, 2, 3, 5)),
    (_of(WINDOW), (0, 19, 1, 7), (1, 3, 5, 6, 6), (3, 5, 5, 2), (1, 3, 3, 3)),
    (_of(replace(WINDOW, eagle=True)), (2, 19, 1, 7), (3, 5, 6, 6, 6), (4, 6, 6, 3), (1, 3, 3, 3)),
    (_of(ASTRIDE), (0, 19, 1, 7), (1, 3, 5, 6, 6), (3, 6, 5, 3), (1, 3, 3, 3)),
    (_of(replace(DRAFTED, speculative_blocks=0)), (0, 19, 1, 7), (1, 3, 5, 10, 20), (3, 4, 4, 1), (1, 1, 1, 1)),
    (_of(DRAFTED), (3, 19, 1, 7), (7, 9, 11, 16, 23), (7, 9, 9, 6), (1, 1, 1, 1)),
    (_of(RUNNING), (0, 19, 2, 7), (1, 2, 2, 2, 2), (2, 2, 2, 2), (1, 1, 1, 1)),
    (_of(LONG), (2, 19, 4, 8), (4, 4, 4, 4, 4), (4, 4, 4, 4), (1, 1, 1, 1)),
    (_of(SHORT), (3, 19, 2, 7), (7, 7, 7, 7, 7), (7, 7, 7, 7), (1, 1, 1, 1)),
    (_of(DRAFTED, LONG), (2, 19, 4, 8), (10, 12, 14, 19, 27), (11, 12, 12, 9), (2, 2, 2, 2)),
    (_of(PAIRS, CROSS), (0, 19, 1, 7), (4, 6, 8, 13, 23), (6, 13, 13, 13), (4, 6, 8, 13)),
    (_of(ops.Group("full", 4), WINDOW), (0, 19, 1, 7), (2, 5, 8, 11, 16), (5, 10, 10, 7), (2, 5, 6, 8)),
    (_of(ops.Group("sink", 2, sink_len=4)), (0, 17, 1, 7), (1, 3, 5, 10, 20), (3, 10, 10, 10), (1, 3, 5, 10)),
]
"""Per shape: drafts, usable blocks, unit, steps of 10 + 3 tokens; `most` of 1, 5, 10, 20, 39 tokens; `ahead` of 5
tokens from 0 on, and of 20 from 0, 10, 19 on; `least` of 1, 5, 10, 20."""


@pytest.mark.parametrize(("shape", "told", "most", "ahead", "least"), NUMBERS)
def test_the_bounds_of_a_shape(
    shape: ops.Shape, told: tuple[int, ...], most: Sequence[int], ahead: Sequence[int], least: Sequence[int]
) -> None:
    bounds = Bounds(shape)
    assert (bounds.drafts, bounds.usable, bounds.unit, bounds.steps(10, 3)) == told
    assert [bounds.most(tokens) for tokens in (1, 5, 10, 20, 39)] == list(most)
    assert [bounds.ahead(*range_) for range_ in ((0, 5), (0, 20), (10, 20), (19, 20))] == list(ahead)
    assert [bounds.least(tokens) for tokens in (1, 5, 10, 20)] == list(least)
    assert bounds.encoder_tokens == 5 * (CROSS in shape.groups)
    for tokens in range(1, 40):
        assert bounds.hopeless(tokens) == (bounds.least(tokens) > bounds.usable)
        assert bounds.fits_alone(tokens, 1) == bounds.fits_alone(1, tokens) == (bounds.most(tokens) <= bounds.usable)


@pytest.mark.parametrize(
    ("groups", "loss", "most"),
    [
        ([PAIRS], "room-ahead", (5, 7, 10, 15, 24)),
        ([WINDOW], "room-ahead", (5, 7, 10, 10, 10)),
        ([ops.Group("full", 4), WINDOW], "room-ahead", (11, 14, 18, 21, 25)),
        ([LONG], "room-ahead", (4, 4, 4, 4, 4)),
        ([LONG], "mamba-states-pile-up", (4, 5, 6, 8, 12)),
        ([RUNNING], "mamba-states-pile-up", (1, 2, 2, 2, 2)),
        ([PAIRS], "mamba-states-pile-up", (1, 3, 5, 10, 20)),
    ],
)
def test_a_loss_widens_the_bounds_of_those_whom_it_concerns(
    groups: Sequence[ops.Group], loss: str, most: Sequence[int]
) -> None:
    bounds = Bounds(_of(*groups), frozenset({loss}))
    assert [bounds.most(tokens) for tokens in (1, 5, 10, 20, 39)] == list(most)


def test_prompts_are_split_where_states_are_registered_alone() -> None:
    assert Bounds(replace(_of(LONG), caching=False)).unit == 1
    assert Bounds(replace(_of(LONG), max_num_batched_tokens=4)).unit == 4
    assert Bounds(replace(_of(LONG), max_num_batched_tokens=3)).unit == 1


GATE_LOSSES = ("gate-behind-hit", "gate-lookahead", "mamba-gate", "chunked-cap", "pools-apart", "room-ahead")


def _excuses(call: Callable[[Watch], object], shape: ops.Shape, observable: str) -> list[str]:
    """The losses that each alone keep a call from being a violation of this property."""
    excusing = []
    for loss in GATE_LOSSES:
        watch = Watch(Bounds(shape, frozenset({loss})), Counter())
        watch.arrives("a", 20, 20)
        watch.arrives("b", 20, 20)
        broken = ""
        try:
            call(watch)
        except Violated as violated:
            broken = violated.observable
        except Excused:
            pass
        assert broken in ("", observable)
        assert watch.seen == ({} if broken else {f"liveness: known loss {loss}": 1})
        excusing += [] if broken else [loss]
    return excusing


@pytest.mark.parametrize(
    ("groups", "at_once", "behind_a_hit"),
    [
        ([PAIRS], [], []),
        ([replace(PAIRS, eagle=True)], ["gate-lookahead"], ["gate-lookahead"]),
        ([WINDOW], [], ["gate-behind-hit"]),
        ([CHUNK], [], ["gate-behind-hit"]),
        ([ASTRIDE], ["chunked-cap"], ["gate-behind-hit", "chunked-cap"]),
        ([STATES], [], []),
        ([RUNNING], ["mamba-gate"], ["mamba-gate"]),
        ([PAIRS, replace(WINDOW, eagle=True)], ["gate-lookahead"], ["gate-behind-hit", "gate-lookahead"]),
        ([LONG, PAIRS], ["gate-lookahead", "mamba-gate"], ["gate-lookahead", "mamba-gate"]),
    ],
)
def test_what_is_known_of_a_gate_excuses_it_where_it_can_be_the_reason(
    groups: Sequence[ops.Group], at_once: list[str], behind_a_hit: list[str]
) -> None:
    shape = _of(*groups)
    assert _excuses(lambda watch: watch.admitted("a", 20, 0, free=0, shared=0), shape, "L2") == at_once
    assert _excuses(lambda watch: watch.admitted("a", 20, 4, free=0, shared=0), shape, "L2") == behind_a_hit
    assert _excuses(lambda watch: watch.hopeless_answered("a", 39, admitted=True), shape, "L4") == at_once


def test_one_loss_is_counted_where_two_explain_the_same() -> None:
    watch = Watch(Bounds(_of(LONG, PAIRS), frozenset({"mamba-gate", "gate-lookahead"})), Counter())
    watch.admitted("a", 20, 0, free=0, shared=0)
    assert watch.seen == {"liveness: known loss gate-lookahead": 1}


@pytest.mark.parametrize(("groups", "known"), [([PAIRS], []), ([PAIRS, WINDOW], ["pools-apart"])])
def test_several_groups_may_have_pools_apart(groups: Sequence[ops.Group], known: list[str]) -> None:
    def idle(watch: Watch) -> None:
        for _ in range(2):
            watch.step_ends(["a"], scheduled=0)

    def endless(watch: Watch) -> None:
        for _ in range(2 * watch.bounds.steps(20, 20) + 1):
            watch.step_ends(["a", "b"], scheduled=1)

    shape = replace(_of(*groups), num_blocks=100)
    assert _excuses(idle, shape, "L1") == known
    assert _excuses(endless, shape, "L1") == known
    assert _excuses(lambda watch: watch.running_refused("a", ["a"]), shape, "L4") == known
    assert _excuses(lambda watch: watch.running_refused("a", ["a", "b"]), shape, "L2") == known


def _watch(usable: int = 8, group: ops.Group = FULL) -> Watch:
    return Watch(Bounds(shape_of(group, usable=usable, budget=4)), Counter())


def _detail(call: Callable[[], object], observable: str, request: str) -> str:
    """What is said by a call that violates this property of this request."""
    with pytest.raises(Violated) as caught:
        call()
    assert (caught.value.observable, caught.value.request) == (observable, request)
    assert str(caught.value) == caught.value.detail
    return caught.value.detail


def test_requests_have_the_steps_of_all_that_have_arrived_and_two_without_any_progress() -> None:
    watch = _watch()
    watch.arrives("a", 3, 2)  # a chunk and what begins behind it, one step more, two samples
    watch.arrives("b", 5, 1)
    for step in range((2 + 1 + 2) + (2 + 1 + 1)):
        watch.step_ends(["a", "b"], scheduled=step % 2)
    told = _detail(lambda: watch.step_ends(["a", "b"], scheduled=1), "L1", "a")
    assert told == "a and 1 more are unfinished after the bound of steps"
    watch.step_ends([], scheduled=0)
    watch.arrives("c", 1, 1)
    assert watch.steps_left == 1 + 1 + 1, "counted anew once nobody is left"
    watch.step_ends(["c"], scheduled=0)
    told = _detail(lambda: watch.step_ends(["c"], scheduled=0), "L1", "c")
    assert told == "c starves: nothing runs, 1 waiting, though it holds at most 1 blocks at once and the pool has 8"


def test_who_waits_while_nobody_is_live_has_not_waited() -> None:
    watch = _watch()
    watch.arrives("a", 3, 2)
    watch.step_ends(["a"], scheduled=0)
    watch.step_ends([], scheduled=0)
    watch.arrives("b", 3, 2)
    watch.step_ends(["b"], scheduled=0)
    _detail(lambda: watch.step_ends(["b"], scheduled=0), "L1", "b")


def test_the_gate_may_use_what_is_free_and_what_others_hold_of_the_hit() -> None:
    watch = _watch()
    watch.admitted("a", 5, hit_tokens=2, free=3, shared=2)
    told = _detail(lambda: watch.admitted("a", 5, hit_tokens=2, free=3, shared=1), "L2", "a")
    assert told.endswith(
        "its 5 tokens, 2 of them a hit, come to hold 5 blocks at once and 3 were free beside 1 of its hit"
    )
    told = _detail(lambda: watch.admitted("a", 5, hit_tokens=0, free=4, shared=0), "L2", "a")
    assert told.endswith("come to hold 5 blocks at once and 4 were free")


@pytest.mark.parametrize(("usable", "observable"), [(7, None), (8, "L2")])
def test_running_requests_preempt_one_another_only_if_the_pool_may_be_too_small(
    usable: int, observable: str | None
) -> None:
    watch = _watch(usable)
    watch.arrives("a", 3, 2)
    watch.arrives("b", 3, 2)
    watch.arrives("waits", 3, 2)
    if observable is None:
        watch.running_refused("b", ["a", "b"])
        assert watch.seen == {"liveness: preempted, as T16.overcommit allows": 1}
    else:
        told = _detail(lambda: watch.running_refused("b", ["a", "b"]), observable, "b")
        assert told.startswith(
            "b is refused its next step among a, b, though the pool has 8 blocks and they hold at most 8"
        )
        told = _detail(lambda: watch.running_refused("b", ["b"]), "L4", "b")
        assert "the pool has 8 blocks and they hold at most 4 at once" in told


def test_a_request_that_can_never_fit_is_refused() -> None:
    watch = _watch(usable=3)
    watch.hopeless_answered("a", 4, admitted=False)
    assert watch.seen == {"liveness: refused what can never fit": 1}
    told = _detail(lambda: watch.hopeless_answered("a", 4, admitted=True), "L4", "a")
    assert "its 4 tokens need 4 blocks at once and the pool has 3 beside the null block" in told


def _scene(*operations: ops.Operation) -> Model:
    """What is known after these operations."""
    run = ModelFreeRun(open_impl(), Judging(()))
    model = Model(shape := shape_of(STATES, usable=8, budget=4))
    assert run.start(shape) is None
    for operation in operations:
        assert run.step(operation) is None
        model.step(operation)
    return model


REGISTERED = (ops.Submit("a", (0, 0, 0)), ops.Allocate("a", 3), ops.Advance("a"))
"""Blocks 1 to 3 are states; the last one is registered in this step or before."""


def test_only_a_state_of_this_step_is_a_reason_to_wait() -> None:
    scene = _scene(*REGISTERED)
    watch = _watch(group=STATES)
    watch.arrives("b", 4, 1)
    states = [block for block in scene.state.identity if block != ops.NULL]
    assert states
    hit = [[ops.NULL, states[-1]]]
    assert not watch.waiting_refused(scene, "b", hit, free=8), "registered since the step began"
    assert not watch.waiting_refused(scene, "b", hit, free=3), "not counted without room"
    assert watch.seen == {
        "liveness: deferred by a state of the same step": 1,
        "liveness: deferred again by a state of the same step": 0,
    }
    watch.step_begins(scene)
    assert watch.waiting_refused(scene, "b", hit, free=4), "all the four tokens have room"
    assert not watch.waiting_refused(scene, "b", hit, free=3)
    assert not watch.waiting_refused(scene, "b", [[]], free=8), "no hit is no reason"
    told = _detail(lambda: watch.admitted_without_hit("b"), "L3", "b")
    assert told.startswith("b is refused because it would go on from a state")
    for other in (None, 7, (), (7,), (("one",),), ((7, 8),)):
        watch.takes(ops.Done(other))
    assert watch.waiting_refused(scene, "b", hit, free=8), "other blocks were taken, or none"
    watch.takes(ops.Done(((7, states[-1]),)))
    assert not watch.waiting_refused(scene, "b", hit, free=8), "its block has been taken, and is registered once more"


def test_a_preemption_frees_some_block_of_its_own() -> None:
    scene = _scene(*REGISTERED)
    watch = _watch(group=STATES)
    held = [block for table in scene.state.tables[0].values() for block in table if block != ops.NULL]
    watch.preempted(scene, "a", [*held, 7])
    assert not watch.seen
    told = _detail(lambda: watch.preempted(scene, "a", held), "L4", "a")
    assert f"none of the {len(held)} blocks that only a held is free" in told
    watch.preempted(scene, "a", [])
    assert watch.seen == {"liveness: preempted one that shares all its blocks": 1}


def test_what_must_be_held_is_what_some_query_reads() -> None:
    def read(bounds: Bounds, rule: Rule, query: int) -> int:
        if isinstance(rule, Mamba | Cross):
            return 1 if isinstance(rule, Mamba) else rule.required(bounds.encoder_tokens)
        return len({token // rule.b for token in range(query + 1) if rule.attends(query, token)})

    for i, kinds in enumerate(ATTENTION.values()):
        bounds = Bounds(draw_shape(SeededDraw(f"least/{i}"), kinds))
        for tokens in range(1, bounds.shape.max_model_len):
            each = [sum(read(bounds, rule, query) for rule in bounds.rules) for query in range(tokens)]
            assert bounds.least(tokens) == max(each)
            assert bounds.least(tokens) <= bounds.ahead(0, tokens) <= bounds.most(tokens)


def test_who_holds_more_than_its_bound_breaks_l2() -> None:
    watch = Watch(Bounds(shape_of(FULL, usable=8, budget=4)), Counter())
    watch.arrives("a", 3, 2)
    watch.holds("a", 4)
    with pytest.raises(Violated) as caught:
        watch.holds("a", 5)
    assert (caught.value.observable, caught.value.request) == ("L2", "a")


def test_a_hit_of_a_block_that_holds_no_state_is_no_older_state() -> None:
    """Such a hit is for the contract to judge."""
    shape = shape_of(STATES, usable=8, budget=4)
    watch = Watch(Bounds(shape), Counter())
    watch.arrives("a", 3, 1)
    assert not watch.waiting_refused(Model(shape), "a", [[ops.NULL, 3]], free=8)


@pytest.mark.parametrize(
    ("chunks", "call", "known"),
    [
        ((ops.Group("chunked", 2, chunk=4),), "Lookup", False),
        ((ops.Group("chunked", 2, chunk=4, eagle=True),), "Lookup", True),
        ((ops.Group("chunked", 2, chunk=4), ops.Group("full", 4)), "Lookup", True),
        ((ops.Group("chunked", 2, chunk=4), ops.Group("full", 4)), "Allocate", False),
        ((ops.Group("sliding", 2, window=4, eagle=True),), "Lookup", False),
    ],
)
def test_a_lookup_that_raises_is_known_where_chunks_are_hard_for_a_core(
    chunks: tuple[ops.Group, ...], call: str, known: bool
) -> None:
    size = max(group.block_size for group in chunks)
    shape = ops.Shape(chunks, 9, 8, 2, size, 8)
    watch = Watch(Bounds(shape, frozenset({"chunked-refuses"})), Counter())
    with pytest.raises(Excused if known else Violated):
        watch.fails("a", call, "ValueError")
