"""Contract, shadow memory and liveness know the operations of today (`OF_TODAY`): a right core has no finding, known
losses are counted, and wrong decisions are found without a model."""

import pytest
from blockproof.fuzz.adapters.vllm.releases import release_of
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.findings.offered import OF_TODAY
from blockproof.fuzz.findings.oracle_names import CONTRACT, LIVENESS, SHADOW
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.model_free import ModelFreeRun
from blockproof.fuzz.targets.declarations import KINDS_OF_FEW, SEVERAL_NAMES
from blockproof.fuzz.traces.trace_file import read_trace
from blockproof.model.core import Model
from blockproof.model.features.today import TODAY
from blockproof.model.ops import Allocate, Done, Group, Lookup, Shape, Submit

from ..adapters.test_deviations_today import FOLDER, Described
from ..adapters.test_faults_of_today import FAULTS, HYBRIDS

TODAY_S = release_of("0.33.0")


class RightCore:
    """The rule of today as a target, or what is made of it."""

    name = "right"
    lacks = TODAY_S.lacks
    loses: frozenset[str] = frozenset()
    offers = OF_TODAY | KINDS_OF_FEW | {"Arrive.missing"}

    def __init__(self, change=lambda policy: policy):
        self._policy, self._model = change(TODAY), None

    @property
    def hides(self):
        core = self._model
        small = core and any(not rule.scratch and rule.b > core.shape.hash_block_size for rule in core.rules)
        several = core and ((small and len(core.rules) > 1) or core.ahead)
        return frozenset({SEVERAL_NAMES} if several else ())

    @property
    def copies(self):
        return self._model.copied

    @property
    def handed(self):
        return self._model.offered

    def start(self, shape):
        self._model = Model(shape, self._policy)
        built = self._model.construction
        return built, self._model.snapshot() if built == Done() else None

    def step(self, operation):
        return self._model.step(operation)

    def close(self):
        pass


def run(target, operations, attention=("full", "sliding", "full+rswa", *HYBRIDS), seed=0):
    summary = Summary(target.name, "random", seed)
    plan = Plan(seed, None, operations, attention=attention, oracles=(SHADOW, CONTRACT, LIVENESS)).possible_on(target)
    return run_random(target, plan, summary)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_right_core_has_no_finding_and_all_of_it_is_judged(seed):
    summary = run(RightCore(), 12_000, seed=seed)
    assert summary.finding is None, summary.finding
    for situation in (
        *("S11 of full reports", "S16 of computed blocks", "S16 of kept blocks", "S16 of offered states"),
        *("S16 of watched blocks", "S17 of the watermark", "states end before a hit"),
    ):
        assert summary.reached[f"contract: {situation}"] > 0, situation


FOUND = {
    "hit-of-one-unit-missed": "S14",
    "limit-of-a-hit-ignored": "S7",
    "connector-hit-never-lags": "S7",
    "connector-hit-without-states": "S7",
    "cut-by-computed": "S13",
    "watermark-forgotten": "S17",
    "states-offered-twice": "S16",
    "offers-outlive-their-request": "S16",
    "copies-held-for-ever": "S1",
    "last-group-not-reported": "S11",
    "cached-tokens-not-told": "S16",
    "watched-blocks-reused-first": "S9",
    "reader-never-told": "S16",
    "reader-told-late": "S16",
}
"""Faults that are found without a model, each with the property."""


@pytest.mark.few_are_quick
@pytest.mark.parametrize("name", FOUND)
def test_a_wrong_decision_is_found_without_a_model(name):
    fault = FAULTS[name]
    summary = run(RightCore(fault.change), 60_000, fault.attention)  # it ends where something is found
    assert summary.finding is not None
    assert summary.finding.observable == FOUND[name], summary.finding


# What the release is known for.

WINDOW = Shape((Group("sliding", 1, window=2),), 9, 8, 1, 1, 8, events=True)
AGAIN = (Submit("a", (0,) * 4), Allocate("a", 4), Submit("b", (0,) * 4, reports_hits=True))
LOADED = Shape((Group("full", 1), Group("mamba", 1, mamba_mode="align")), 6, 2, 1, 1, 1)
LOSSES = {
    "mamba-negative-demand": ("S8", None),
    "mamba-external-state": ("S17", Trace(LOADED, (Submit("a", (0, 0)), Allocate("a", 1, external=1, reserved=2)))),
    "windows-left-behind": ("S7", None),
    "states-ahead-of-attention": ("S14", None),
    "reported-as-whole": ("S11", Trace(WINDOW, (*AGAIN, Lookup("b")))),
    "connector-unreported": ("S11", None),
}
"""Each with the property that it breaks, and a trace, where that of the deviation shows the contract too little."""


class Released(Described):
    """The release as described, with what of its losses is declared."""

    lacks = TODAY_S.lacks
    hides = RightCore.hides

    def __init__(self, loses):
        super().__init__()
        self.loses = frozenset(loses)


def judged(name, loses):
    trace, target = LOSSES[name][1] or read_trace(FOLDER / f"{name}.json").trace, Released(loses)
    live = ModelFreeRun(target, Judging((CONTRACT,)))
    live.start(trace.shape)
    for operation in trace.operations:
        if live.step(operation) is not None:
            return live
    return live


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_today_is_counted_where_it_is_declared_and_found_else(name):
    known = judged(name, TODAY_S.loses)
    assert known.found is None, known.found
    assert known.reached()[f"contract: known loss {name}"] > 0
    found = judged(name, TODAY_S.loses - {name}).found
    assert found is not None
    assert found.observable == LOSSES[name][0]
