"""The newest release that the model describes: its deviations have traces, and change nothing but what they say."""

from copy import deepcopy
from pathlib import Path

import pytest
from blockproof.fuzz.adapters.vllm import deviations_0330
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.finding import Finding
from blockproof.fuzz.opening import environments
from blockproof.fuzz.opening.known_deviations import declared_for, model_for
from blockproof.fuzz.releases.deviations import undeclared
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.targets.declarations import OF_TODAY
from blockproof.fuzz.targets.deviations import MISUSE_UNCHECKED, DeviatingModel, trace_names
from blockproof.fuzz.traces.trace_file import FoundWhat, read_trace
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.operations import Workload
from blockproof.fuzz.workload.shapes import ATTENTION, draw_shape
from blockproof.model.core import Model
from blockproof.model.features.today import TODAY
from blockproof.model.legal import misuse
from blockproof.model.ops import Done

RELEASE = "vllm==0.33.0"
FOLDER = Path(__file__).parents[3] / "docs" / "evidence" / "today-deviations"
DECLARED = declared_for(RELEASE)
TRACES = [name for deviation in DECLARED for name in trace_names(deviation)]


class Described:
    """A target that behaves as the release: the model with its deviations."""

    name = RELEASE
    offers = OF_TODAY | {"Arrive.missing"}

    def start(self, shape):
        self._model = model_for(RELEASE, shape)
        built = self._model.construction
        return built, self._model.snapshot() if built == Done() else None

    def step(self, operation):
        assert isinstance(self._model, DeviatingModel)
        unchecked, before = misuse(self._model, operation), self._model.snapshot()
        answer = self._model.step(operation)
        return (unchecked and self._model.reaction_to(deepcopy(self._model), operation, before)) or answer

    @property
    def copies(self):
        return self._model.copied

    @property
    def handed(self):
        return self._model.offered

    def close(self):
        pass


def test_every_declared_deviation_has_a_trace_and_every_trace_a_deviation():
    assert sorted(path.stem for path in FOLDER.glob("*.json")) == sorted(TRACES)


UNDEFINED = {"shared-draft-state"}
"""What a release comes to after these no rule says, so only the release itself shows them."""


@pytest.mark.parametrize("name", [name for name in TRACES if name not in UNDEFINED])
def test_the_trace_shows_the_deviation_undeclared_and_nothing_when_it_is_declared(name):
    file = read_trace(FOLDER / f"{name}.json")
    assert file.target == RELEASE
    finding = undeclared(name, file.trace, Described())
    assert isinstance(finding, Finding), finding
    assert FoundWhat.of(finding) == file.finding


@pytest.mark.skipif(environments.find(RELEASE) is None, reason=f"blockproof targets install {RELEASE}")
def test_the_release_itself_shows_every_deviation(started_once):
    core = started_once(RELEASE)
    for name in TRACES:
        file = read_trace(FOLDER / f"{name}.json")
        finding = undeclared(name, file.trace, core)
        assert isinstance(finding, Finding), finding
        assert FoundWhat.of(finding) == file.finding


@pytest.mark.skipif(environments.find(RELEASE) is None, reason=f"blockproof targets install {RELEASE}")
def test_the_release_does_nothing_else_and_the_new_situations_come_up(started_once):
    summary = Summary(RELEASE, "random", 5)
    core = started_once(RELEASE)
    run_random(core, Plan(5, operations=6_000).possible_on(core), summary)
    assert summary.finding is None, summary.finding
    assert summary.reached["names look ahead"] > 20


@pytest.mark.parametrize("deviation", [one for one in DECLARED if one != MISUSE_UNCHECKED], ids=lambda one: one.id)
def test_as_long_as_a_deviation_has_not_occurred_it_changes_nothing(deviation):
    compared = 0
    for seed in range(46):
        draw = SeededDraw(f"deviation of today {seed}")
        shape = draw_shape(draw, ATTENTION[list(ATTENTION)[seed % len(ATTENTION)]])
        changed = DeviatingModel(shape, (deviation,), deviations_0330.policy_of)
        right = Model(shape, TODAY)
        workload = Workload(draw, shape)
        for _ in range(60):
            if +changed.deviated or changed.dead:
                break
            operation = workload.next(right)
            theirs, ours = changed.step(operation), right.step(operation)
            if +changed.deviated:
                continue
            assert theirs == ours, f"{deviation.id} uncounted at {operation}, seed {seed}"
            compared += 1
    assert compared > 500
