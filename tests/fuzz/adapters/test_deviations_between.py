"""The releases between 0.23.0 and 0.33.0 that the model describes: what they lack, and what only they do."""

from functools import partial
from pathlib import Path

import pytest
from blockproof.fuzz.adapters.vllm.deviations import deviations_0330, deviations_between
from blockproof.fuzz.adapters.vllm.deviations.deviations_between import CAME, NEW, deviations_of, missing_in
from blockproof.fuzz.adapters.vllm.releases import BETWEEN
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.finding import Finding
from blockproof.fuzz.opening import environments
from blockproof.fuzz.opening.known_deviations import known_of
from blockproof.fuzz.releases.deviations import undeclared
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.targets.deviations import DeviatingModel, trace_names
from blockproof.fuzz.traces.trace_file import FoundWhat, read_trace

from .test_deviations import compared_before_it_occurs
from .test_deviations_today import Described

FOLDER = Path(__file__).parents[3] / "docs" / "evidence" / "between-deviations"
TRACES = [name for deviation in NEW for name in trace_names(deviation)]


def test_every_new_deviation_has_a_trace_and_every_trace_a_deviation():
    assert sorted(path.stem for path in FOLDER.glob("*.json")) == sorted(TRACES)


@pytest.mark.parametrize("version", BETWEEN)
def test_a_release_has_each_deviation_once_and_the_new_ones_come_up_in_some_release(version):
    ids = [one.id for one in deviations_of(version)]
    assert len(ids) == len(set(ids))
    assert {"eagle-last-block", "prompt-end-named-again"} <= set(ids)
    assert known_of(f"vllm=={version}").deviations == deviations_of(version)
    assert {one.id for one in NEW} <= {one.id for version in BETWEEN for one in deviations_of(version)}


def test_what_came_is_told_newest_first_and_nothing_is_missing_in_the_newest():
    assert [came.since for came in CAME] == sorted((came.since for came in CAME), reverse=True)
    assert missing_in("0.33.0") == []
    assert {one.id for one in deviations_of("0.33.0")} == {one.id for one in deviations_0330.DEVIATIONS}


@pytest.mark.parametrize("name", TRACES)
def test_the_trace_shows_the_deviation_undeclared_and_nothing_when_it_is_declared(name):
    file = read_trace(FOLDER / f"{name}.json")
    finding = undeclared(name, file.trace, Described(release=file.target))
    assert isinstance(finding, Finding), finding
    assert FoundWhat.of(finding) == file.finding


@pytest.mark.parametrize("name", TRACES)
def test_the_release_itself_shows_it(name, started_once):
    file = read_trace(FOLDER / f"{name}.json")
    if environments.find(file.target) is None:
        pytest.skip(f"blockproof targets install {file.target}")
    finding = undeclared(name, file.trace, started_once(file.target))
    assert isinstance(finding, Finding), finding
    assert FoundWhat.of(finding) == file.finding


@pytest.mark.parametrize("version", BETWEEN)
def test_the_release_does_nothing_else(version, started_once):
    release = f"vllm=={version}"
    if environments.find(release) is None:
        pytest.skip(f"blockproof targets install {release}")
    summary, core = Summary(release, "random", 5), started_once(release)
    run_random(core, Plan(5, operations=4_000).possible_on(core), summary)
    assert summary.finding is None, summary.finding


GONE = sorted({name for came in CAME for name in came.had})
"""Deviations that 0.33.0 has no more."""


@pytest.mark.few_are_quick
@pytest.mark.parametrize("name", GONE)
def test_as_long_as_a_deviation_has_not_occurred_it_changes_nothing(name):
    version = next(version for version in BETWEEN if name in {one.id for one in deviations_of(version)})
    (deviation,) = (one for one in deviations_of(version) if one.id == name)
    policy_of = partial(deviations_between.policy_of, version)

    def model(shape, *deviations):
        return DeviatingModel(shape, deviations, policy_of)

    assert compared_before_it_occurs(deviation, lambda shape: model(shape, deviation), model, 24) > 200
