"""Runs about steps of long requests: which cores they are about, what they draw, and what they reach."""

from collections import Counter
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.offered import OF_TODAY
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.operations import Workload
from blockproof.fuzz.workload.shapes import ATTENTION, draw_shape
from blockproof.fuzz.workload.steps import about_steps, takes_steps, with_steps
from blockproof.fuzz.workload.tuning import Tuning
from blockproof.model.core import Model
from blockproof.model.features.today import TODAY
from blockproof.model.legal import allows
from blockproof.model.ops import Allocate, AllocateBatch, Done, Lookup, Submit

NAMES = [name for name, kinds in ATTENTION.items() if takes_steps(kinds)]


def shapes(name, block_sizes=(), count=60):
    for seed in range(count):
        draw = SeededDraw(f"{name} {seed}")
        yield with_steps(draw, draw_shape(draw, ATTENTION[name], block_sizes))


def stories(name, count=12, lacks=(), **tuning):
    """Of each run the operations, each with its outcome; every operation is one that a trace may contain."""
    for seed in range(count):
        draw = SeededDraw(f"{name} {seed}")
        shape = with_steps(draw, draw_shape(draw, ATTENTION[name]))
        model = Model(shape)
        workload, told = Workload(draw, shape, lacks=lacks, tuning=about_steps(Tuning(**tuning))), []
        for _ in range(80):
            operation = workload.next(model)
            assert allows(model, operation), operation
            told.append((operation, model.apply(operation)))
        yield model, told


@pytest.mark.parametrize("block_sizes", [(), (16, 32)])
@pytest.mark.parametrize("name", NAMES)
def test_every_such_core_can_be_built_and_caches(name, block_sizes):
    target = open_target("impl")
    for shape in shapes(name, block_sizes, 25):
        model = Model(shape)
        assert (model.construction, target.start(shape)) == (Done(), (Done(), model.snapshot())), shape
        assert shape.caching
        assert shape.max_model_len >= 2 * shape.scheduler_block_size + 1


def test_some_requests_are_long_enough_for_what_a_core_does_in_bulk_and_some_are_not():
    longest = [max(shape.max_model_len // group.block_size for group in shape.groups) for shape in shapes("full")]
    assert min(longest) < 16 <= max(longest)


def test_states_are_mostly_in_mode_align():
    modes = Counter(group.mamba_mode for shape in shapes("mamba") for group in shape.groups)
    assert modes["align"] > 2 * (modes["all"] + modes["none"]) > 0


@pytest.mark.parametrize("name", ["full", "full+sliding+mamba", "sliding+mamba"])
def test_batches_have_several_requests_that_run_and_each_is_asked_for_the_same(name):
    batches = [op for _, told in stories(name, 24) for op, _ in told if isinstance(op, AllocateBatch)]
    assert len(batches) > 10
    assert all(len(batch.requests) == len(set(batch.requests)) >= 2 for batch in batches)
    assert {batch.new_tokens for batch in batches} == {1, 2}
    assert any(batch.lookahead for batch in batches)


def test_the_one_that_comes_asks_for_what_has_just_been_decoded_to_the_end_of_a_block():
    met = 0
    for model, told in stories("mamba", 24):
        unit = model.alignment
        for (first, _), (second, _), (third, _) in zip(told, told[1:], told[2:], strict=False):
            if isinstance(first, Allocate) and isinstance(second, Submit) and isinstance(third, Lookup):
                known = len(second.prompt) // unit * unit
                met += third.request == second.request and known > 0 and known + 2 > len(second.prompt) - 4
    assert met > 5


def test_tokens_are_in_flight_in_some_steps_only():
    """How many there may be is checked by `stories`, for every operation."""
    counts = Counter[bool]()
    for _, told in stories("full+sliding"):
        counts.update(op.in_flight > 0 for op, _ in told if isinstance(op, Allocate | AllocateBatch))
    assert min(counts[True], counts[False]) > 10


@pytest.mark.parametrize("lacks", ["AllocateBatch", "Allocate.in_flight", "Lookup", "Take"])
def test_what_a_target_lacks_is_not_drawn(lacks):
    kind, _, field = lacks.partition(".")
    drawn = [op for _, told in stories("full+mamba", 6, {lacks}) for op, _ in told if type(op).__name__ == kind]
    assert not [op for op in drawn if not field or getattr(op, field)]
    assert field == "" or drawn


def rooms_just_left(lacks):
    """Of steps beside which others have reserved blocks, how many leave just these, or are refused for them."""
    count = 0
    for seed in range(80):
        draw = SeededDraw(f"rooms {seed}")
        shape = replace(draw_shape(draw, ATTENTION["full+mamba"]), caching=True)
        model, workload = Model(shape, TODAY), Workload(draw, shape, lacks=lacks)
        for _ in range(60 if model.construction == Done() else 0):
            operation = workload.next(model)
            done = isinstance(model.apply(operation), Done)
            if isinstance(operation, Allocate) and operation.reserved:
                count += model.state.num_free() == operation.reserved if done else "reservation" in model.refusal
    return count


def test_of_a_core_of_today_rooms_are_left_that_a_step_just_fits_or_just_not():
    """Only there shows a core that counts a block less: seen as mutants of vLLM 0.33.0 that nothing found."""
    assert rooms_just_left(()) > 2 * rooms_just_left(OF_TODAY)


def test_usual_runs_draw_none_of_it():
    draw = SeededDraw(1)
    shape = draw_shape(draw, ATTENTION["full"])
    model, workload = Model(shape), Workload(draw, shape)
    for _ in range(300):
        operation = workload.next(model)
        assert not isinstance(operation, AllocateBatch)
        assert not getattr(operation, "in_flight", 0)
        model.apply(operation)


@pytest.mark.parametrize("seed", range(1, 11))
def test_every_situation_is_reached_within_ten_thousand_operations(seed, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "benchmarks")
    situations = import_module("reached").OPTIMISED
    assert len(situations) == 12
    summary = run_random(open_target("impl"), Plan(seed, None, 10_000), Summary("impl", "random", seed))
    assert summary.finding is None
    assert not [name for name in situations if not summary.reached[name]]
