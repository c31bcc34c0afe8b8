"""What the theorems about skipping, prediction, running states and admission rest on, and what they mean on cores."""

import random
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from blockproof.fuzz.opening.targets import open_here
from blockproof.model import ops
from blockproof.model.core import Model
from blockproof.model.snapshot import Snapshot
from blockproof.proofs import roles
from blockproof.proofs.roles.one_request import KINDS, Step
from blockproof.proofs.roles.prediction import Held

# Roles bound to the model and to our core do the same on plain numbers.


def a_step(draw: random.Random, kind: str) -> Step:
    b, hit, external = draw.randint(1, 4), draw.randint(0, 4), draw.choice([0, 0, 1, 3, 5])
    size = draw.randint(1, 6) if kind in ("sliding", "chunked") else draw.randint(0, 2)
    first = draw.randint(0, hit)
    end = draw.randint(first, hit)
    if kind in ("mamba", "align"):
        first, end = max(0, hit - 1), draw.choice([max(0, hit - 1), hit])
    held, known = 0, False
    if draw.random() < 0.4:
        held, known, hit, external, first, end = draw.randint(size + 1, 6 + size), True, 0, 0, 0, 0
    local = hit * b
    main = local + external + draw.randint(0 if external else 1, 9)
    slots = main + draw.randint(0, 3)
    return Step(b, size, held, known, hit, first, end, local, external, slots, main, batched=5, max_len=40)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["predicted", "taken", "gate"])
def test_model_and_core_answer_alike(kind, what):
    draw = random.Random(f"{kind} {what}")
    model, core = (subject.find(f"{what}_{kind}") for subject in (roles.model(), roles.impl()))
    answers = set()
    for _ in range(400):
        step = a_step(draw, kind)
        if kind == "align" and step.known and step.main > (step.held - step.size + 1) * step.b:
            continue
        step = step._replace(main=step.slots) if what == "gate" else step  # the whole sequence, lookahead included
        assert model(step) == core(step), step
        answers.add(model(step))
    assert len(answers) >= (2 if kind == "align" else 5), "every answer was the same"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("full", "align")])
def test_model_and_core_null_alike(kind):
    draw = random.Random(kind)
    model, core = (subject.find(f"nulled_{kind}") for subject in (roles.model(), roles.impl()))
    given_back = 0
    for _ in range(300):
        length = draw.randint(0, 8)
        numbers = (draw.randint(1, 3), draw.randint(1, 6), length, draw.randint(0, length), draw.randint(0, 24))
        one, other = model(*numbers, True), core(*numbers, draw.random() < 0.5)
        assert sorted(one.returned) == sorted(other.returned), numbers
        assert [one.table[i] for i in range(length)] == [other.table[i] for i in range(length)], numbers
        given_back += len(one.returned)
    assert given_back > 50


def test_model_and_core_hold_running_states_alike():
    draw = random.Random(1)
    seen = set()
    for _ in range(300):
        b, p = draw.randint(2, 5), draw.randint(0, 2)
        marks = tuple(draw.randint(0, 1) for _ in range(draw.randint(1, 6)))
        computed = draw.randint(1, b * len(marks))
        settled, main = computed - draw.randint(0, min(p, computed - 1)), computed + draw.randint(1, 2 * b)
        of = Held(b, p, marks, draw.randint(0, 1))
        one, other = (subject.find("states")(of, settled, computed, main) for subject in (roles.model(), roles.impl()))
        assert (one.table.real, one.taken, one.foreseen) == (other.table.real, other.taken, other.foreseen)
        length = one.table.length
        kept = [[table[i] if table[i] < 1000 else "new" for i in range(length)] for table in (one.table, other.table)]
        assert kept[0] == kept[1], (of, settled, computed, main)
        seen.add((one.taken, tuple(kept[0])))
    assert len(seen) > 100


def test_model_and_core_count_eviction_candidates_alike():
    draw = random.Random(1)
    for _ in range(50):
        nulls, held = ([draw.random() < 0.4 for _ in range(3)] for _ in range(2))
        want = sum(not null and not other for null, other in zip(nulls, held, strict=True))
        for subject in (roles.model(), roles.impl()):
            assert subject.find("touched")(nulls, held) == (want, want)


def test_model_and_core_refuse_alike():
    draw = random.Random(1)
    outcomes = set()
    for _ in range(200):
        numbers = (draw.randint(1, 4), draw.randint(0, 4), draw.randint(0, 12), draw.randint(1, 9), draw.randint(0, 4))
        one, other = (subject.find("allocated_full")(*numbers) for subject in (roles.model(), roles.impl()))
        assert one == other, numbers
        outcomes.add(one.refused)
    assert outcomes == {True, False}


# What the refuted theorems say, as operations on whole cores.


class Core:
    """A core that is given operations."""

    def __init__(self, step: Callable[[ops.Operation], tuple[ops.Outcome, Any]]) -> None:
        self.apply = step

    def __call__(self, *operations: ops.Operation) -> tuple[ops.Outcome, Any]:
        """Outcome of the last one, and the snapshot after it; all others must succeed."""
        for operation in operations[:-1]:
            outcome, _ = self.apply(operation)
            assert isinstance(outcome, ops.Done), (operation, outcome)
        return self.apply(operations[-1])


def the_model(shape: ops.Shape) -> Core:
    return Core(Model(shape).step)


def our_core(shape: ops.Shape) -> Core:
    target = open_here("impl")
    target.start(shape)
    return Core(target.step)


cores = pytest.mark.parametrize("core", [the_model, our_core])


def a_shape(group: ops.Group, num_blocks: int, max_model_len: int = 64, **switches: Any) -> ops.Shape:
    b = group.block_size
    sizes = {"hash_block_size": b, "scheduler_block_size": b, "max_num_batched_tokens": max_model_len}
    return ops.Shape((group,), num_blocks, max_model_len, **(sizes | switches))


def prompt(length: int, start: int = 0) -> tuple[int, ...]:
    return tuple(range(start, start + length))


@cores
def test_two_requests_pass_the_gate_and_the_first_one_cannot_go_on(core):
    """T16.overcommit: one and other of 2 and 1 tokens, blocks of 1 token, a pool of 2."""
    run = core(a_shape(ops.Group("full", 1), num_blocks=3))
    run(ops.Submit("one", prompt(2)), ops.Allocate("one", 1, gate=True))
    run(ops.Submit("other", prompt(1, 10)), ops.Allocate("other", 1, gate=True))
    outcome, _ = run(ops.Advance("one"), ops.Allocate("one", 1))
    assert outcome == ops.Refused()


def held(snapshot: Snapshot, name: str) -> int:
    return sum(block != ops.NULL for block in snapshot.tables[0][name])


@cores
def test_one_speculative_block_and_steps_of_3_1_and_3_tokens_hold_three_states(core):
    """T15, with blocks of 3 tokens: 2 + 1 are budgeted; vLLM 0.23.0 holds 4."""
    run = core(a_shape(ops.Group("mamba", 3, mamba_mode="align", speculative_blocks=1), num_blocks=20, caching=False))
    run(ops.Submit("a", prompt(30)), ops.Allocate("a", 3), ops.Advance("a"), ops.Allocate("a", 1))
    _, snapshot = run(ops.Advance("a"), ops.Allocate("a", 3))
    assert held(snapshot, "a") == 3


@cores
def test_states_do_not_pile_up(core):
    """T15: a step of one token, then one of 3 * b - 1, again and again; in vLLM 0.23.0 each pair leaks a block."""
    run = core(a_shape(ops.Group("mamba", 3, mamba_mode="align", speculative_blocks=1), num_blocks=40, caching=False))
    run(ops.Submit("a", prompt(60)), ops.Allocate("a", 3))
    for _ in range(5):
        run(ops.Advance("a"), ops.Allocate("a", 1))
        _, snapshot = run(ops.Advance("a"), ops.Allocate("a", 8))
        assert held(snapshot, "a") == 3
    _, snapshot = run(ops.Free("a"), ops.Submit("b", prompt(1)))
    assert snapshot.num_free == 39


@cores
def test_the_gate_lets_in_who_has_room_for_all_its_steps_and_nobody_else(core):
    """T16.hit: the request will hold 9 blocks, behind a hit of 12 blocks, too; there, vLLM 0.23.0 asks for 2."""
    group = ops.Group("sliding", 1, window=3)
    for hit, free in product((False, True), (8, 9)):
        run = core(a_shape(group, num_blocks=17, max_model_len=20, max_num_batched_tokens=6))
        run(ops.Submit("first", prompt(12)), ops.Allocate("first", 6), ops.Advance("first"), ops.Allocate("first", 6))
        run(ops.Advance("first"), ops.Free("first"), ops.Take(16 - free), ops.Submit("again", prompt(20)))
        outcome, _ = run(ops.Lookup("again"), ops.Allocate("again", 1, hit=hit, gate=True))
        assert isinstance(outcome, ops.Done) == (free == 9)
    outcome, _ = run(ops.Advance("again"), ops.Allocate("again", 6))
    assert isinstance(outcome, ops.Done)


def test_the_gate_counts_what_the_first_step_takes():
    """The smallest counterexample of T16.hit on vLLM 0.23.0, where the gate counts 2."""
    step = Step(1, 3, hit=5, first=3, end=5, local=5, main=6, slots=6, batched=1, max_len=6)
    for subject in (roles.model(), roles.impl()):
        assert subject.find("gate_sliding")(step) == subject.find("taken_sliding")(step) == 3


@cores
def test_the_gate_counts_the_second_state(core):
    """T16.states: a pool of 1 + p states does not admit a request that could not begin its second block."""
    run = core(a_shape(ops.Group("mamba", 3, mamba_mode="align"), num_blocks=2, caching=False))
    outcome, _ = run(ops.Submit("a", prompt(6)), ops.Allocate("a", 3, gate=True))
    assert outcome == ops.Refused()
    outcome, _ = run(ops.Submit("b", prompt(3)), ops.Allocate("b", 3, gate=True))
    assert outcome == ops.Done(outcome.value)


def test_the_gate_of_a_real_shape_counts_577_blocks_where_576_are_held():
    """The figures of T16.hit; vLLM 0.23.0 counts 64."""
    hit = 577
    local = hit * 16
    step = Step(16, 1024, hit=hit, end=hit, local=local, main=32768, slots=32768, batched=8192, max_len=131072)
    assert roles.impl().find("gate_sliding")(step) == 577
    skipped = roles.impl().find("skipped_sliding")(local, 1024)
    assert -(-(local + 8192) // 16) - skipped // 16 == 576
