"""The engines: the same seed does the same, limits hold, chaos is answered, and what is drawn can be built and done."""

import itertools
import pickle
from collections import Counter
from dataclasses import FrozenInstanceError
from itertools import islice

import pytest
from blockproof.fuzz.engines import seeded as engines
from blockproof.fuzz.engines.plan import RUN_OPERATIONS, Plan
from blockproof.fuzz.engines.seeded import ENGINES, run_engine, run_random
from blockproof.fuzz.findings.ops_json import to_json
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.summary import COUNTERS, Summary
from blockproof.fuzz.runs import open_run as runs_of
from blockproof.fuzz.runs.lockstep import LockstepRun
from blockproof.fuzz.runs.situations import Situations
from blockproof.fuzz.workload.draw import ByteDraw, SeededDraw, made
from blockproof.fuzz.workload.operations import Workload
from blockproof.fuzz.workload.shapes import ATTENTION, draw_shape
from blockproof.fuzz.workload.tuning import Tuning
from blockproof.fuzz.workload.turns import in_turn
from blockproof.model import ops
from blockproof.model.core import Model
from blockproof.model.legal import allows, misuse
from blockproof.model.ops import OPERATIONS, Done, Group, Shape
from hypothesis import given, settings
from hypothesis import strategies as st

LIMITS = st.integers(-(1 << 80), 1 << 80)
FAULT = "fault:free-order-reversed"


def fuzz(engine="random", target="impl", on_progress=None, seed=0, **plan) -> Summary:
    return run_engine(open_target(target), Plan(seed, **plan), Summary(target, engine, seed), on_progress)


@pytest.fixture
def watched(monkeypatch):
    """What the random engine did: per run its shape, operations and outcomes, as lockstep was asked for them."""
    runs = []

    class Watching(LockstepRun):
        def start(self, shape):
            finding = super().start(shape)
            if self.built:  # nothing is applied to a core that must be refused
                runs.append({"shape": shape, "steps": [], "misuse": Counter(), "model": self.model})
            return finding

        def step(self, operation):
            run, model = runs[-1], self.model
            assert allows(model, operation), f"{operation} after {self.trace}"
            if misuse(model, operation):
                run["misuse"][kind_of_misuse(model, operation)] += 1
            finding = super().step(operation)
            run["steps"].append((operation, self.outcomes[-1]))
            return finding

    monkeypatch.setattr(runs_of, "LockstepRun", Watching)
    monkeypatch.setattr(Plan, "tried", lambda *given: None)  # the runs of a canary are none of the engine's
    return runs


def kind_of_misuse(model: Model, operation: ops.Operation) -> str:
    """Which precondition is broken."""
    match operation:
        case ops.Release(blocks) if 0 in blocks:
            return "null block released"
        case ops.Release(blocks):
            held = Counter(model.state.outside)
            ours = all(held[block] >= count for block, count in Counter(blocks).items())
            return "a block released twice in one batch" if ours else "released what is not held"
        case ops.Touch():
            return "null block touched"
        case ops.Take():
            return "negative count taken"
        case ops.Evict(blocks):
            return "block evicted below the pool" if min(blocks) < 0 else "block evicted beyond the pool"
        case ops.Allocate():
            names = ("new_tokens", "lookahead", "external", "reserved", "encoder_tokens")
            negative = next((name for name in names if getattr(operation, name) < 0), None)
            return f"negative {negative}" if negative else "nothing allocated"
    raise AssertionError(operation)


# The same again.


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_seed_does_the_same(engine):
    first, second, other = (fuzz(engine, seed=seed, operations=1_500, chaos=True) for seed in (4, 4, 5))
    assert all(getattr(first, name) == getattr(second, name) for name in COUNTERS)
    assert (first.runs, first.operations) == (second.runs, second.operations)
    assert first.outcomes != other.outcomes


def test_a_run_is_the_same_whatever_was_run_before_it(watched):
    names = ("full", "sliding+mamba")
    fuzz(operations=4_000, attention=names)
    together = [(run["shape"], run["steps"]) for run in watched]
    assert len(together) > 15
    chosen, alone = (3, 8, 14), []
    runs = list(islice(in_turn(names, Tuning().rounds), 15))
    assert [runs[index][1:] for index in chosen] == [(names[1], ""), (names[1], "rounds"), (names[0], "")]
    for index in chosen:
        watched.clear()
        lockstep = runs_of.open_run(open_target("impl"))
        _, attention, about = runs[index]
        engines._run(lockstep, SeededDraw(f"0/{index}"), attention, Plan(0), about)
        alone.append((watched[0]["shape"], watched[0]["steps"]))
    assert alone == [together[index] for index in chosen]


def test_the_same_finding_comes_up_again():
    first, second = fuzz(target=FAULT, operations=5_000), fuzz(target=FAULT, operations=5_000)
    assert first.trace == second.trace
    assert first.finding == second.finding


# Limits.


@pytest.mark.parametrize("engine", ENGINES)
def test_the_run_that_reaches_the_number_of_operations_is_the_last(engine):
    before = []
    summary = fuzz(engine, operations=500, on_progress=lambda so_far: before.append(so_far.operations))
    assert before[-1] == summary.operations >= 500
    if engine == "random":
        assert before[-2] < 500


@pytest.mark.parametrize("engine", ENGINES)
def test_the_run_that_reaches_the_limit_in_seconds_is_the_last(engine, monkeypatch):
    """With a clock of our own that goes on by a second at every look."""
    seconds = itertools.count()
    monkeypatch.setattr("blockproof.fuzz.engines.seeded.time.monotonic", lambda: next(seconds))
    times = []
    summary = fuzz(engine, seconds=30, on_progress=lambda so_far: times.append(so_far.seconds))
    assert times[-1] == summary.seconds >= 30
    if engine == "random":
        assert times[-2] < 30
    assert summary.finding is None


def test_no_run_is_longer_than_its_share_and_the_drain(watched):
    fuzz(operations=3_000)
    for run in watched:
        undrained = run["steps"][RUN_OPERATIONS:]
        assert all(isinstance(operation, ops.Free | ops.Release) for operation, _ in undrained)


def test_attention_is_taken_in_turn():
    summary = fuzz(operations=2_000, attention=("mamba", "full", "cross"))
    assert max(summary.attention.values()) - min(summary.attention.values()) <= 1
    assert set(summary.attention) == {"mamba", "full", "cross"}


# Findings and misuse.


@pytest.mark.parametrize("engine", ENGINES)
def test_both_engines_end_with_the_finding(engine):
    summary = fuzz(engine, FAULT, operations=20_000)
    assert summary.finding.observable == "free"
    assert summary.trace.operations[summary.finding.step] == summary.finding.operation
    assert len(summary.trace.operations) == summary.finding.step + 1
    assert summary.finding_attention in ATTENTION
    assert summary.operations < 20_000


@pytest.mark.parametrize("engine", ENGINES)
def test_a_core_that_cannot_be_built_is_a_finding_about_its_construction(engine):
    summary = fuzz(engine, "fault:usage-counts-null-block", operations=500)
    assert summary.finding.kind == ("usage", "start")
    assert (summary.runs, summary.trace.operations) == (1, ())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_finding_of_a_target_that_is_not_deterministic_is_kept(engine):
    class Moody:
        """Its thirtieth core has a fault, the others have none."""

        name = "moody"
        lacks = frozenset({"refused_shapes"})  # starts are counted
        started = 0

        def start(self, shape):
            self.started += 1
            self.core = open_target("fault:usage-counts-null-block" if self.started == 30 else "impl")
            return self.core.start(shape)

        def step(self, operation):
            return self.core.step(operation)

        def close(self):
            self.core.close()

    summary = run_engine(Moody(), Plan(0, operations=20_000), Summary("moody", engine, 0))
    assert summary.finding.kind == ("usage", "start")
    assert summary.runs == 30


def test_chaos_reaches_every_kind_of_misuse_and_our_core_answers_each_like_the_model(watched):
    summary = fuzz(operations=20_000, chaos=True)
    assert summary.finding is None, summary.finding
    seen = sum((run["misuse"] for run in watched), Counter())
    assert set(seen) == {
        "a block released twice in one batch",
        "negative encoder_tokens",
        "negative reserved",
        "null block released",
        "released what is not held",
        "null block touched",
        "negative count taken",
        "block evicted below the pool",
        "block evicted beyond the pool",
        "nothing allocated",
        "negative new_tokens",
        "negative lookahead",
        "negative external",
    }
    assert min(seen.values()) >= 10


def test_without_chaos_no_precondition_is_broken(watched):
    fuzz(operations=10_000)
    assert not sum((run["misuse"] for run in watched), Counter())


def test_draining_leaves_the_pool_whole(watched):
    fuzz(operations=8_000)
    for run in watched:
        model, shape = run["model"], run["shape"]
        sinks = len(model.state.sinks)
        assert sorted([*model.state.queue(), *model.state.sinks]) == list(range(1, shape.num_blocks))
        assert sum(model.state.references()) == sinks
        assert not any(table for tables in model.state.tables for table in tables.values())
        assert not model.requests


# What reports count.


def test_reports_count_what_happened(watched):
    summary = fuzz(operations=6_000, chaos=True)
    steps = [step for run in watched for step in run["steps"]]
    assert (summary.runs, summary.operations) == (len(watched), len(steps))
    assert summary.operation_counts == Counter(type(operation).__name__ for operation, _ in steps)
    results = [(type(op).__name__, getattr(out, "error", type(out).__name__)) for op, out in steps]
    assert summary.outcomes == Counter(results)
    again: Counter[str] = Counter()
    for run in watched:
        model = Model(run["shape"])
        situations, before = Situations(model), model.snapshot()
        for operation, outcome in run["steps"]:
            answer, after = model.step(operation)
            assert answer == outcome
            situations.see(operation, answer, before, after)
            before = after
        again.update(situations.reached)
    besides = ("shadow: ", "shape refused: ")
    assert {name: times for name, times in summary.reached.items() if not name.startswith(besides)} == +again
    assert summary.reached["refused by free count"] > 0
    refused = sum(count for name, count in again.items() if name.startswith("refused by"))
    assert refused == summary.outcomes["Allocate", "Refused"]
    assert summary.reached["preemption"] == summary.operation_counts["Preempt"]


def test_every_operation_is_made_and_every_error_is_one_of_misuse():
    summary = fuzz(operations=20_000)
    assert set(summary.operation_counts) == set(OPERATIONS)
    errors = {result for _, result in summary.outcomes} - {"Done", "Refused"}
    assert errors <= {"AssertionError", "ValueError"}


# Draws.


@given(LIMITS, LIMITS, st.integers(0, 1 << 64))
def test_a_seeded_draw_stays_within_bounds(one, other, seed):
    low, high = sorted((one, other))
    draw = SeededDraw(seed)
    assert all(low <= draw.integer(low, high) <= high for _ in range(10))


@given(LIMITS, LIMITS, st.binary(max_size=60))
def test_a_byte_draw_stays_within_bounds_and_ends_with_the_lowest(one, other, data):
    low, high = sorted((one, other))
    draw = ByteDraw(data)
    assert all(low <= draw.integer(low, high) <= high for _ in range(70))
    assert draw.integer(low, high) == low


@given(st.lists(st.integers(), min_size=1), st.binary(), st.integers())
def test_what_is_chosen_is_one_of_the_options(options, data, seed):
    for draw in (ByteDraw(data), SeededDraw(seed)):
        assert all(draw.choose(options) in options for _ in range(5))


@given(st.integers(0, 300), st.data())
def test_bytes_can_reach_every_number_of_a_small_range(size, data):
    wanted = data.draw(st.integers(0, size))
    count = ((size + 1).bit_length() + 7) // 8
    assert ByteDraw(wanted.to_bytes(count, "big")).integer(0, size) == wanted


@pytest.mark.parametrize("size", [1, 2, 7, 1 << 31, (1 << 32) + 5, 1 << 70])
def test_seeded_numbers_reach_both_ends_alike(size):
    draw = SeededDraw(size)
    thirds = Counter(draw.integer(0, size - 1) * 3 // size for _ in range(3_000))
    expected = {(number * 3) // size for number in (*range(min(size, 4)), size // 2, size - 1)}
    assert expected <= set(thirds)
    if size >= 7:
        assert all(700 < thirds[third] < 1_400 for third in range(3))


@pytest.mark.parametrize("name", ATTENTION)
def test_bytes_that_are_used_up_still_give_operations(name):
    draw = ByteDraw(b"")
    shape = draw_shape(draw, ATTENTION[name])
    model, workload = Model(shape), Workload(draw, shape)
    for _ in range(50):
        operation = workload.next(model)
        assert allows(model, operation), operation
        model.step(operation)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400), st.sampled_from(list(ATTENTION)), st.booleans())
def test_any_bytes_give_operations_that_the_state_allows(data, name, chaos):
    draw = ByteDraw(data)
    shape = draw_shape(draw, ATTENTION[name])
    model, workload = Model(shape), Workload(draw, shape, chaos=chaos)
    for _ in range(40):
        operation = workload.next(model)
        assert allows(model, operation), operation
        model.step(operation)


# Shapes and operations.


@pytest.mark.parametrize(
    ("made_one", "one"),
    [
        (made(ops.Allocate, request="a", new_tokens=1, gate=True), ops.Allocate("a", 1, gate=True)),
        (made(ops.Submit, request="a", prompt=(0, 1), skip_lookup=True), ops.Submit("a", (0, 1), skip_lookup=True)),
        (made(ops.Advance, request="a"), ops.Advance("a")),
    ],
)
def test_what_is_made_without_its_init_is_the_same(made_one, one):
    assert (made_one, hash(made_one), repr(made_one)) == (one, hash(one), repr(one))
    assert to_json(made_one) == to_json(one)
    assert pickle.loads(pickle.dumps(made_one)) == one
    with pytest.raises(FrozenInstanceError):
        made_one.request = "b"


def test_every_shape_can_be_built_by_the_model_and_by_our_core():
    core = open_target("impl")
    names = itertools.cycle(ATTENTION)
    seen = set()
    for seed in range(2_000):
        shape = draw_shape(SeededDraw(f"shape {seed}"), ATTENTION[next(names)])
        seen.add(shape)
        model = Model(shape)
        assert model.construction == Done(), shape
        assert core.start(shape) == (Done(), model.snapshot()), shape
    assert len(seen) > 1_900


def test_every_attention_type_alone_and_beside_others_is_drawn():
    kinds = set(itertools.chain.from_iterable(ATTENTION.values()))
    assert kinds == {"full", "mla", "tq", "sink", "sliding", "sliding_mla", "chunked", "mamba", "cross"}
    assert {kinds[0] for kinds in ATTENTION.values() if len(kinds) == 1} == kinds
    assert max(map(len, ATTENTION.values())) == 3


def test_every_operation_drawn_is_allowed(watched):
    """`watched` asserts it of each."""
    summary = run_random(open_target("impl"), Plan(77, operations=20_000, chaos=True), Summary("impl", "random", 77))
    assert set(summary.attention) == set(ATTENTION)


def test_what_asserts_that_operations_are_allowed_can_fail(watched):
    lockstep = runs_of.open_run(open_target("impl"))
    lockstep.start(Shape((Group("full", 1),), 3, 2, 1, 1, 1))
    with pytest.raises(AssertionError, match="Lookup"):
        lockstep.step(ops.Lookup("nobody"))
