"""Runs that the target leads: what is known of it without a model, and who judges it then."""

from collections import Counter
from dataclasses import replace

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.cli.options import oracles_or_usage
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_engine
from blockproof.fuzz.findings.finding import CORRUPTION
from blockproof.fuzz.findings.oracle_names import (
    CONTRACT,
    LIVENESS,
    LOCKSTEP,
    MODEL_FREE,
    ORACLES,
    SHADOW,
    STRICT,
    without,
)
from blockproof.fuzz.opening.known_deviations import declared_for
from blockproof.fuzz.opening.oracles import suited_to
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.lockstep import LockstepRun
from blockproof.fuzz.runs.model_free import ModelFreeRun
from blockproof.fuzz.runs.open_run import open_run, usable
from blockproof.fuzz.runs.scheduler_view import SchedulerView
from blockproof.fuzz.targets.base import adapted, adapted_shape
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.operations import Workload
from blockproof.fuzz.workload.shapes import ATTENTION, draw_shape
from blockproof.model.legal import allows, misuse
from blockproof.model.ops import Allocate, Done, Failed, Group, Release, Reset, Shape, Submit, Take

from ..adapters.test_deviations import Release as VllmRelease

FULL = Shape((Group("full", 2),), 8, 16, 2, 2, 16)


class Changed:
    """Our core, with answers changed on their way."""

    name = "changed"

    def __init__(self, change=lambda operation, outcome, snapshot: (outcome, snapshot), **declared) -> None:
        self._core = open_target("impl")
        self._change = change
        self.__dict__.update(declared)

    def start(self, shape):
        return self._change(None, *self._core.start(shape))

    def step(self, operation):
        return self._change(operation, *self._core.step(operation))

    def close(self):
        self._core.close()


def hiding(*names):
    """A target that does not show these fields."""
    empty = {"free": [], "ref_cnt": [], "labels": [], "earliest": [], "events": (), "stats": None}

    def blank(operation, outcome, snapshot):
        return outcome, snapshot and snapshot._replace(**{name: empty[name] for name in names})

    return Changed(blank, hides=frozenset(names))


# The view.


def known_of(scene, sinks=()):
    """Everything that operations are drawn from."""
    requests = {
        name: (one.tokens, one.computed, one.scheduled, one.arriving, one.preemptions, one.hit, one.lead, one.drafts)
        for name, one in scene.requests.items()
    }
    tables = [{name: list(table) for name, table in rows.items() if table} for rows in scene.state.tables]
    outside = Counter(scene.state.outside)
    registered = sorted(scene.state.identity)
    return requests, tables, outside, registered, scene.state.references(), scene.just_looked_up


@pytest.mark.parametrize("attention", ATTENTION)
def test_a_scheduler_knows_of_the_core_what_the_model_knows(attention):
    compared = 0
    for seed in range(4):
        draw = SeededDraw(f"{attention} {seed}")
        shape = draw_shape(draw, ATTENTION[attention])
        run = LockstepRun(open_target("impl"))
        assert run.start(shape) is None
        view, workload = SchedulerView(shape), Workload(draw, shape)
        view.start(run.target.start(shape)[1])
        assert run.start(shape) is None
        for _ in range(150):
            operation = workload.next(run.model)
            assert allows(view, operation)
            before = len(run.outcomes)
            assert run.step(operation) is None
            view.follow(operation, run.outcomes[before], run._theirs)
            assert known_of(view) == known_of(run.model), operation
            compared += 1
    assert compared == 600


# Who judges.


def led(target, oracles, seed=0, **plan) -> Summary:
    summary = Summary(target.name, "random", seed, oracles=oracles)
    return run_engine(target, Plan(seed, oracles=oracles, **plan), summary)


def test_the_model_leads_in_lockstep_and_the_target_without():
    core = open_target("impl")
    assert isinstance(open_run(core, Judging((LOCKSTEP, CONTRACT))), LockstepRun)
    assert isinstance(open_run(core, Judging((CONTRACT, SHADOW))), ModelFreeRun)


@pytest.mark.parametrize(
    ("spec", "oracles"),
    [
        ("impl", ORACLES),
        ("package.module:factory", ORACLES),
        ("vllm==0.23.0", ORACLES),
        ("vllm==0.32.0", MODEL_FREE),
        ("vllm==0.33.0", ORACLES),
        ("fault:free-order-reversed", ORACLES),
    ],
)
def test_lockstep_suits_what_the_model_describes(spec, oracles):
    assert suited_to(spec) == oracles


def test_our_core_passes_without_a_model_and_everything_was_judged():
    done = led(open_target("impl"), MODEL_FREE, operations=25_000)
    assert done.finding is None, done.finding
    assert done.reached["shadow: tokens read back"] > 10_000
    assert sum(times for name, times in done.reached.items() if name.startswith("contract: ")) > 10_000
    assert done.unobserved.total() == 0


def test_a_core_that_corrupts_is_found_without_a_model_and_the_trace_replays():
    target = open_target("fault:touch-ignores-used-blocks")
    done = led(target, (SHADOW,), operations=60_000)
    assert done.finding is not None
    assert done.finding.observable == CORRUPTION
    assert done.finding.oracle == SHADOW
    again, trace = replay(done.trace, target, Judging((SHADOW,)))
    assert (again.kind, trace) == (done.finding.kind, done.trace)


@pytest.mark.slow
def test_a_run_that_goes_on_keeps_the_shortest_trace_of_each_kind():
    target = open_target("fault:touch-ignores-used-blocks")
    done = led(target, (SHADOW, CONTRACT), operations=40_000, keep_going=True)
    assert done.operations >= 40_000
    assert sum(found.times for found in done.found.values()) > len(done.found)
    for key, found in done.found.items():
        assert found.finding.key == key
        assert found.times == sum(found.attention.values())
        judging = Judging(without((SHADOW, CONTRACT), found.passed))
        assert replay(found.trace, target, judging)[0].key == key


# What a target cannot show or do.


def test_references_are_counted_from_the_tables_where_they_are_not_shown():
    done = led(hiding("ref_cnt"), (SHADOW, CONTRACT), operations=8_000, attention=("full", "full+sliding", "mamba"))
    assert done.finding is None, done.finding
    assert done.reached["shadow: tokens read back"] > 1_000


def test_what_cannot_be_judged_is_said_and_not_counted_as_passed():
    done = led(hiding("labels", "earliest", "events"), MODEL_FREE, operations=6_000, attention=("full",))
    assert done.finding is None, done.finding
    assert {"S10", "S11"} <= {name for name, _ in done.unobserved}
    assert not [name for name in done.reached if name.startswith(("contract: S10", "contract: S11"))]


def test_operations_that_a_target_lacks_are_left_out():
    asked = []

    def note(operation, outcome, snapshot):
        asked.append(operation)
        return outcome, snapshot

    lacks = frozenset({"Reset", "Allocate.reserved", "Allocate.gate"})
    done = led(Changed(note, lacks=lacks), (SHADOW,), operations=6_000)
    assert done.finding is None
    assert Allocate in {type(operation) for operation in asked}
    assert not [operation for operation in asked if isinstance(operation, Reset)]
    assert not [one for one in asked if isinstance(one, Allocate) and (one.reserved or one.gate)]


def test_a_field_that_a_target_lacks_goes_back_to_its_default():
    operation = Allocate("a", 3, reserved=2, gate=True)
    assert adapted(operation, ()) is operation
    assert adapted(operation, {"Allocate.reserved"}) == replace(operation, reserved=0)
    assert adapted(operation, {"Allocate"}) is None
    assert adapted(operation, {"Release.prepend"}) is operation


# Ends of runs.


def test_a_core_that_cannot_be_built_is_no_finding_and_nothing_is_observed():
    run = open_run(Changed(lambda operation, outcome, snapshot: (Failed("TypeError"), None)), Judging((SHADOW,)))
    assert run.start(FULL) is None
    assert not run.built


def test_an_answer_that_is_none_is_a_finding_about_the_target():
    blind = Changed(lambda operation, outcome, snapshot: (outcome, None if operation else snapshot))
    run = open_run(blind, Judging((SHADOW,)))
    assert run.start(FULL) is None
    finding = run.step(Submit("a", (0,)))
    assert finding.observable == "protocol"
    assert len(run.operations) == len(run.outcomes) == 1


def test_misuse_that_is_carried_out_ends_the_run_and_one_that_is_answered_does_not():
    run = open_run(open_target("impl"), Judging((SHADOW, CONTRACT)))
    assert run.start(FULL) is None
    operation = Take(-1)
    assert misuse(run.scene, operation)
    assert run.step(operation) is None
    assert not run.dead
    carried_out = Changed(lambda operation, outcome, snapshot: (Done() if operation else outcome, snapshot))
    run = open_run(carried_out, Judging((SHADOW, CONTRACT)))
    assert run.start(FULL) is None
    assert run.step(Release((0,))) is None
    assert run.dead
    assert run.misuse.total() == 1


def test_liveness_draws_scripts_and_the_others_operations():
    done = led(open_target("impl"), (LIVENESS,), operations=3_000)
    assert done.finding is None, done.finding
    assert done.operation_counts["Submit"] > 0
    assert not [name for name in done.reached if name.startswith(("shadow: ", "contract: "))]


# Shapes that a target has no equivalent of.

HYBRID = Shape(
    (Group("full", 4, eagle=True), Group("mamba", 2, mamba_mode="all")),
    8, 16, 2, 8, 16, eagle=True, retention_interval=8, prefill_parallel=1,
)  # fmt: skip


def test_a_plainer_shape_stands_for_one_that_a_target_lacks():
    assert adapted_shape(HYBRID, ()) == HYBRID
    assert adapted_shape(HYBRID, {"Shape.retention_interval"}).retention_interval is None
    assert adapted_shape(HYBRID, {"Shape.scheduler_block_size"}).scheduler_block_size == 4
    assert not adapted_shape(HYBRID, {"Group.eagle"}).groups[0].eagle
    assert adapted_shape(HYBRID, {"Group.mamba_mode"}).groups[1].mamba_mode == "align"
    assert adapted_shape(HYBRID, {"Group.kind=mamba"}) == HYBRID
    spread = Shape((Group("full", 4),), 8, 16, 16, 16, 16, decode_parallel=2, prefill_parallel=2)
    narrow = adapted_shape(spread, {"Shape.prefill_parallel"})
    assert (narrow.prefill_parallel, narrow.hash_block_size, narrow.scheduler_block_size) == (1, 8, 16)


@pytest.mark.parametrize(
    "lacks",
    [
        "Shape.retention_interval",
        "Shape.scheduler_block_size",
        "Group.eagle",
        "Group.mamba_mode",
        "Shape.prefill_parallel",
    ],
)
def test_the_plainer_shape_of_a_shape_that_can_be_built_can_be_built(lacks):
    core = open_target("impl")
    for index, kinds in enumerate(list(ATTENTION.values()) * 4):
        shape = draw_shape(SeededDraw(f"plain {index}"), kinds)
        plain = adapted_shape(shape, {lacks})
        assert adapted_shape(plain, {lacks}) == plain
        if isinstance(core.start(shape)[0], Done):
            assert isinstance(core.start(plain)[0], Done), plain


def test_an_operation_of_which_nothing_sensible_is_left_is_left_out():
    run = open_run(Changed(lacks=frozenset({"Allocate.external", "Allocate.delay"})), Judging((SHADOW,)))
    assert run.start(FULL) is None
    assert run.step(Submit("a", (0, 0))) is None
    assert usable(run, Allocate("a", 0, external=2, delay=True)) is None
    assert usable(run, Allocate("a", 1, external=1)) == Allocate("a", 1)
    assert usable(run, Allocate("a", 0)) == Allocate("a", 0)  # misuse on purpose stays


# Known losses.


class CutsTooFar(VllmRelease):
    """The model, but windows are cut by tokens that may be taken back, as in a release."""

    def __init__(self, loses):
        super().__init__(without=tuple({one.id for one in declared_for("vllm==0.23.0")} - {"cut-by-all-computed"}))
        self.loses = loses


@pytest.mark.parametrize("oracle", [CONTRACT, SHADOW])
def test_a_loss_is_a_finding_where_it_is_not_declared_and_under_strict_oracles(oracle):
    declared = ("computed-taken-back", "skipped-on-optimistic-count")
    excused = led(CutsTooFar(declared), (oracle,), seed=1, operations=4_000, attention=("sliding",))
    known = [name for name in excused.reached if name.startswith(f"{oracle}: known loss")]
    assert excused.finding is None
    assert known
    for loses, oracles in ((declared, (oracle, STRICT)), ((), (oracle,))):
        strict = led(CutsTooFar(loses), oracles, seed=1, operations=4_000, attention=("sliding",))
        assert strict.finding is not None
        assert strict.finding.oracle == oracle
        assert not [name for name in strict.reached if name in known]


@pytest.mark.parametrize(("text", "problem"), [("strict", "judges nothing"), ("luck", "'luck' is unknown"), ("", "''")])
def test_oracles_that_are_none_are_told(capsys, text, problem):
    assert main(["fuzz", "--target", "impl", "--oracle", text]) == 2
    assert problem in capsys.readouterr().err


def test_oracles_are_taken_in_the_order_of_their_strictness():
    assert oracles_or_usage("strict, liveness,lockstep", "impl") == (LOCKSTEP, LIVENESS, STRICT)
    assert oracles_or_usage("all", "impl") == (LOCKSTEP, SHADOW, CONTRACT, LIVENESS)
    assert oracles_or_usage("auto", "vllm==0.32.0") == MODEL_FREE
