"""Cores that must be refused: what is wrong about them, and what a core is told that builds one."""

import pytest
from blockproof.fuzz.adapters.impl import bind_impl
from blockproof.fuzz.adapters.vllm.style import VllmStyleTarget
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.oracle_names import CONTRACT, LOCKSTEP
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.targets.base import Target, adapted_shape, left_out_for
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.refused import refused_shapes
from blockproof.fuzz.workload.shapes import ATTENTION, draw_shape
from blockproof.model.core import Model
from blockproof.model.ops import Done, Failed, Outcome, Shape
from blockproof.model.snapshot import Snapshot

KINDS = {
    "all groups alike",
    "hash block larger than blocks",
    "hash block size of one group",
    "retention astride boundaries",
    "retention below 0",
    "retention without windows",
    "scheduler block astride blocks",
}


def fuzzed(target: Target, oracle: str = LOCKSTEP, operations: int = 5_000) -> Summary:
    return run_random(target, Plan(1, operations=operations, oracles=(oracle,)), Summary(target.name, "random", 1))


@pytest.mark.parametrize("name", ATTENTION)
def test_model_and_core_refuse_each_with_the_same_error(name: str) -> None:
    target = open_target("impl")
    for seed in range(4):
        shape = draw_shape(SeededDraw(f"{seed}/{name}"), ATTENTION[name])
        assert Model(shape).construction == Done()
        for what, wrong in refused_shapes(shape).items():
            if adapted_shape(wrong, left_out_for(target)) != wrong:
                continue  # such a shape it is not asked for
            assert isinstance(Model(wrong).construction, Failed), what
            assert target.start(wrong) == (Model(wrong).construction, None), what


def test_every_kind_is_asked_for_and_no_run_is_lost_by_it() -> None:
    done = fuzzed(open_target("impl"), operations=20_000)
    assert done.finding is None
    assert {what.removeprefix("shape refused: ") for what in done.reached if what.startswith("shape")} == KINDS
    assert not +done.unbuilt


class Lenient(VllmStyleTarget):
    """Our core, which takes a retention interval astride boundaries for none."""

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        started = super().start(shape)
        return super().start(Shape(shape.groups, 4, 8, 1, 1, 8)) if started[0] == Failed("ValueError") else started


def test_a_core_that_builds_one_is_found() -> None:
    lenient = Lenient("impl", bind_impl())
    done = fuzzed(lenient)
    assert done.finding is not None
    assert (done.finding.observable, done.finding.operation) == ("outcome", None)
    assert done.trace is not None
    assert done.trace.operations == ()
    assert done.trace.shape.retention_interval is not None


def test_only_lockstep_asks_and_only_who_does_not_lack_it() -> None:
    lenient = Lenient("impl", bind_impl())
    lenient.lacks = frozenset({"refused_shapes"})
    for oracle, target in ((LOCKSTEP, lenient), (CONTRACT, open_target("impl"))):
        done = fuzzed(target, oracle, operations=2_000)
        assert done.finding is None
        assert not [what for what in done.reached if what.startswith("shape")]
