"""Safety for any size: the moves keep the invariants, and steps of model and core are sequences of moves."""

from collections import Counter

import pytest
from blockproof.fuzz.opening.targets import open_here
from blockproof.fuzz.targets.base import TargetLostError
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.operations import Workload
from blockproof.fuzz.workload.shapes import ATTENTION, draw_shape
from blockproof.model import ops
from blockproof.model.core import Model
from blockproof.model.ops import Done, Group, Shape
from blockproof.proofs.invariants import moves, plain_world
from blockproof.proofs.invariants.follower import Replayed, StepError
from blockproof.proofs.invariants.moves import NotAllowedError
from blockproof.proofs.invariants.random_runs import check_runs
from blockproof.proofs.roles.moves import MOVES
from blockproof.proofs.theorems import invariants

NAMES = list(ATTENTION)
STEPS = 50


def test_a_wrong_move_is_refuted_by_a_small_state_that_can_be_read():
    wrong = next(control for control in invariants.S2.controls if "whatever" in control.wrong)
    text = plain_world.first_broken(
        "hit", wrong.roles["move_hit"], lambda before, after, made: after.problems(), every=1
    )
    assert "shared_is_equal" in text or "named_by_content" in text
    assert "tables {1: " in text


def test_small_states_satisfy_the_invariants_and_some_share_a_block():
    states = plain_world.small_states()
    assert len(states) > 300
    assert not any(world.problems() for world in states)
    assert any(world.count[x] > 1 for world in states for x in (1, 2))
    assert any(world.key[x] and not world.count[x] for world in states for x in (1, 2))


def share_with_another(world):
    moves.learn(world, 3, 2)
    world.add_entry(3)
    world.hold(3, 1)


BREAK = {
    "held_is_numbered": lambda world: world.block.set(1, 2),
    "numbers_are_holders": lambda world: world.count.set(1, 2),
    "free_is_unheld": lambda world: world.slot.set(2, -1),
    "free_is_counted": lambda world: setattr(world, "num_free", 3),
    "shared_is_equal": lambda world: share_with_another(world),
    "named_by_content": lambda world: world.key.set(1, 2),
    "null_is_nameless": lambda world: world.key.set(0, 1),
    "inside_its_table": lambda world: world.length.set(1, 0),
    "read_is_there": lambda world: world.length.set(1, 2),
    "cut_is_settled": lambda world: world.cut.set(1, 1),
}
"""What breaks each invariant of a state in which the first table holds block 1."""


@pytest.mark.parametrize("name", BREAK)
def test_each_invariant_that_is_broken_is_noticed(name):
    world = plain_world.small_world()
    moves.take(world, 1, 1)
    moves.learn(world, 1, 1)
    moves.register(world, 1)
    assert not world.problems()
    BREAK[name](world)
    assert any(problem.startswith(name) for problem in world.problems())


def test_a_move_where_it_is_not_allowed_changes_nothing():
    world = plain_world.small_world()
    moves.take(world, 1, 1)
    before = world.state()
    for name, about in (("take", (2, 1)), ("hit", (2, 2)), ("drop", (1,)), ("pad", (2,)), ("register", (1,))):
        with pytest.raises(NotAllowedError):
            getattr(moves, name)(world, *about)
        assert world.state() == before


# Real steps.


def one_run(spec, seed, attention, made=None):
    """How many steps of a random run were checked; it ends where model and target part."""
    draw = SeededDraw(seed)
    shape = draw_shape(draw, ATTENTION[attention])
    model = Model(shape)
    first = model.snapshot()
    target = None if spec == "model" else open_here(spec)
    if target is not None:
        started, first = target.start(shape)
        assert isinstance(started, Done)
    workload, run = Workload(draw, shape), Replayed(shape, first)
    for _ in range(STEPS):
        operation = workload.next(model)
        outcome, ours = model.step(operation)
        expected, after = outcome, ours
        if target is not None:
            outcome, after = target.step(operation)
        run.step(operation, outcome, after)
        if (outcome, after) != (expected, ours):
            break
    if made is not None:
        made.update(run.made)
    return run.steps


def test_every_step_of_random_runs_of_the_model_is_a_sequence_of_moves():
    made = Counter()
    steps = sum(one_run("model", f"moves/{number}", name, made) for number, name in enumerate(NAMES))
    assert steps == STEPS * len(NAMES)
    assert set(made) >= {"take", "hit", "pad", "drop", "register", "forget", "touch", "cut", "close"}


def test_every_step_of_random_runs_of_our_core_is_a_sequence_of_moves():
    steps = sum(one_run("impl", f"moves/{number}", name) for number, name in enumerate(NAMES))
    assert steps > STEPS * len(NAMES) / 2


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["model", "impl"])
def test_every_step_of_many_runs_is_a_sequence_of_moves(spec):
    made = Counter()
    for seed in range(12):
        for name in NAMES:
            one_run(spec, f"many/{seed}/{name}", name, made)
    assert set(made) == set(MOVES) - {"construct", "renew"}  # names of requests are used once here


def test_the_runs_of_the_theorems_are_sequences_of_moves():
    assert check_runs() >= 200


def many_runs(spec, attention):
    for number in range(60):
        one_run(spec, f"unsafe/{number}", attention or NAMES[number % len(NAMES)])


UNSAFE = (
    "free-count-drifts",
    "reference-not-decreased",
    "touch-ignores-used-blocks",
    "one-block-leaks",
    "held-block-handed-out",
    "null-block-freed",
    "old-entries-swapped",
    "skipped-off-by-one",
    "last-group-not-freed",
    "refusal-pins-hits",
    "hash-kept-after-eviction",
    "identity-lost-when-freed",
)
"""Planted faults that make a step which is no sequence of moves."""
WHERE = {"skipped-off-by-one": "sliding"}


@pytest.mark.parametrize("fault", UNSAFE)
def test_a_step_of_an_unsafe_core_is_no_sequence_of_moves(fault):
    with pytest.raises((StepError, TargetLostError)):  # the state may be too broken to be read
        many_runs(f"fault:{fault}", WHERE.get(fault))


def _shown():
    """A model with a request that holds two blocks, one of them registered; and the run so far."""
    shape = Shape((Group("full", 2),), 6, 16, 2, 2, 8)
    model = Model(shape)
    run = Replayed(shape, model.snapshot())
    for operation in (ops.Submit("a", (1, 2, 3)), ops.Lookup("a"), ops.Allocate("a", 3)):
        run.step(operation, *model.step(operation))
    return model, run


TAMPERED = {
    "references": lambda shown: shown._replace(ref_cnt=[0, 2, *shown.ref_cnt[2:]]),
    "free": lambda shown: shown._replace(free=[1, *shown.free], num_free=shown.num_free + 1),
    "counted": lambda shown: shown._replace(num_free=shown.num_free - 1),
    "tables": lambda shown: shown._replace(tables=[{"a": [2, 1]}]),
    "label": lambda shown: shown._replace(labels=[None, None, *shown.labels[2:]]),
    "null block": lambda shown: shown._replace(labels=[5, *shown.labels[1:]]),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_snapshot_that_shows_something_else_is_rejected(what):
    model, run = _shown()
    outcome, after = model.step(ops.StepStart())
    with pytest.raises(StepError, match=what):
        run.step(ops.StepStart(), outcome, TAMPERED[what](after))


def test_a_lookup_that_finds_another_content_is_rejected_when_it_is_used():
    model, run = _shown()
    run.step(ops.Submit("b", (2, 2, 3)), *model.step(ops.Submit("b", (2, 2, 3))))
    run.step(ops.Lookup("b"), Done((2, ((1,),))), model.step(ops.Lookup("b"))[1])
    after = model.step(ops.Allocate("b", 3, hit=True))[1]
    table = after.tables[0]["b"]
    wrong = after._replace(
        tables=[{**after.tables[0], "b": [1, *table[1:]]}],
        ref_cnt=[count + (block == 1) - (block == table[0]) for block, count in enumerate(after.ref_cnt)],
    )
    with pytest.raises(StepError, match="a hit holds what the place is for"):
        run.step(ops.Allocate("b", 1, hit=True), Done(), wrong)
