"""Declared deviations: each changes what it says and nothing else, has a trace that shows it, and goes stale aloud."""

import json
from copy import deepcopy
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from blockproof.fuzz.adapters.vllm.configuration.configuration_deviations import CONFIGURATION_DEVIATIONS
from blockproof.fuzz.adapters.vllm.deviations.misuse import linked
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.finding import Finding, Trace
from blockproof.fuzz.opening import environments
from blockproof.fuzz.opening.known_deviations import declared_for, known_of, model_for
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.releases.deviations import KEPT, SAME, page, pages_elsewhere, undeclared
from blockproof.fuzz.reports import run as report
from blockproof.fuzz.reports.formats import plain
from blockproof.fuzz.reports.run import LONG_RUN, RunDocument
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.targets.deviations import MISUSE_UNCHECKED, DeviatingModel, Deviation, trace_names
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.trace_file import FoundWhat, TraceFile, read_trace
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.operations import Workload
from blockproof.fuzz.workload.shapes import ATTENTION, draw_shape
from blockproof.model.core import Model
from blockproof.model.legal import misuse
from blockproof.model.ops import (
    Advance,
    Allocate,
    CommonPrefix,
    Done,
    Evict,
    Failed,
    Group,
    Lookup,
    Refused,
    Shape,
    Submit,
    Take,
    Touch,
)
from blockproof.model.ops import Release as Release_
from blockproof.model.tables import Policy

RELEASE = "vllm==0.23.0"
FOLDER = Path(__file__).parents[3] / "docs" / "evidence" / "deviations"
DECLARED = declared_for(RELEASE)
POLICY_OF = known_of(RELEASE).policy_of
IN_MODEL = [deviation for deviation in DECLARED if deviation != MISUSE_UNCHECKED]
"""Those that replace a decision; unchecked misuse is excused by lockstep instead."""


TRACES = [name for deviation in DECLARED for name in trace_names(deviation)]


def ids(deviation: Deviation) -> str:
    return deviation.id


def trace_of(deviation: Deviation) -> Trace:
    return read_trace(FOLDER / f"{deviation.id}.json").trace


def alone(deviation: Deviation, shape: Shape) -> DeviatingModel:
    """The model with this one deviation."""
    return DeviatingModel(shape, (deviation,), POLICY_OF)


def views(model: Model, trace: Trace) -> list[Any]:
    """All that can be seen of a model while it follows a trace, its construction first."""
    if model.construction != Done():
        return [model.construction]
    return [(model.construction, model.snapshot()), *(model.step(operation) for operation in trace.operations)]


class Release:
    """A target that behaves as a release of which all deviations are known: the model with them."""

    def __init__(self, name: str = RELEASE, without: tuple[str, ...] = (), of: str = RELEASE) -> None:
        self.name, self._without, self._of = name, without, of

    def start(self, shape):
        model = model_for(self._of, shape, self._without)
        assert isinstance(model, DeviatingModel)
        self._model = model
        built = self._model.construction
        return built, self._model.snapshot() if built == Done() else None

    def step(self, operation):
        unchecked = MISUSE_UNCHECKED.id not in self._without and misuse(self._model, operation)
        before = self._model.snapshot()
        answer = self._model.step(operation)
        # A run ends at misuse; where no reaction is declared, trying it has left its model half changed.
        return (unchecked and self._model.reaction_to(deepcopy(self._model), operation, before)) or answer

    def close(self):
        pass


@pytest.mark.parametrize("deviation", IN_MODEL, ids=ids)
def test_a_deviation_makes_a_difference_where_its_trace_ends_and_only_there(deviation):
    """Beside all others, which may show on the way."""
    trace = trace_of(deviation)
    every, without = model_for(RELEASE, trace.shape), model_for(RELEASE, trace.shape, without=(deviation.id,))
    theirs, ours = views(every, trace), views(without, trace)
    assert theirs[-1] != ours[-1]
    assert theirs[:-1] == ours[: len(theirs) - 1]
    assert isinstance(every, DeviatingModel)
    assert isinstance(without, DeviatingModel)
    assert every.deviated[deviation.id] > 0
    assert deviation.id not in without.deviated


@pytest.mark.parametrize("deviation", IN_MODEL, ids=ids)
def test_as_long_as_a_deviation_has_not_occurred_it_changes_nothing(deviation):
    assert compared_before_it_occurs(deviation, partial(alone, deviation), Model, 92) > 1_000


def compared_before_it_occurs(deviation, changed_of, right_of, seeds):
    """Operations after which a model with the deviation was found to be as the right one, until it occurs."""
    compared = 0
    for seed in range(seeds):
        draw = SeededDraw(f"deviation {seed}")
        shape = draw_shape(draw, ATTENTION[list(ATTENTION)[seed % len(ATTENTION)]])
        changed, right, workload = changed_of(shape), right_of(shape), Workload(draw, shape)
        for _ in range(60):
            if +changed.deviated or changed.dead:
                break
            operation = workload.next(right)
            theirs, ours = changed.step(operation), right.step(operation)
            if +changed.deviated:
                continue
            assert theirs == ours, f"{deviation.id} uncounted at {operation}, seed {seed}"
            compared += 1
    return compared


def test_a_search_that_looks_a_block_beyond_ends_no_longer_than_it_began():
    """Two types of states with Eagle: the second round finds more than the first, which the release does not take."""
    states = [Group("mamba", 1, speculative_blocks=drafts, eagle=True) for drafts in (1, 3)]
    model = model_for(RELEASE, Shape((Group("full", 1), *states), 20, 6, 1, 1, 1))
    for operation in (
        *(Submit("a", (0,) * 5), Allocate("a", 1, external=1), Advance("a"), Touch((2,)), Allocate("a", 3)),
        *(Advance("a"), Allocate("a", 1), Evict((9,)), Submit("b", (0,) * 5)),
    ):
        model.step(operation)
    outcome, _ = model.step(Lookup("b"))
    assert outcome == Done((0, ((), (2,), (0, 7))))


@pytest.mark.parametrize("name", TRACES)
def test_the_trace_shows_the_deviation_undeclared_and_nothing_when_it_is_declared(name):
    file = read_trace(FOLDER / f"{name}.json")
    assert file.target == RELEASE
    finding = undeclared(name, file.trace, Release())
    assert isinstance(finding, Finding), finding
    assert FoundWhat.of(finding) == file.finding


@pytest.mark.parametrize("deviation", DECLARED, ids=ids)
def test_a_release_that_has_fixed_it_makes_the_trace_stale(deviation):
    problem = undeclared(deviation.id, trace_of(deviation), Release(without=(deviation.id,)))
    assert problem.startswith(f"{deviation.id}: stale")


def test_a_trace_that_shows_something_else_is_refused():
    first, second = DECLARED[:2]
    core = Release(name="another release")  # nothing is declared for it
    problem = undeclared(first.id, trace_of(second), core)
    assert problem.startswith(f"{first.id}: differs in `outcome` at Allocate although")


@pytest.mark.skipif(environments.find(RELEASE) is None, reason=f"blockproof targets install {RELEASE}")
def test_the_release_itself_shows_every_deviation(started_once):
    core = started_once(RELEASE)
    for name in TRACES:
        file = read_trace(FOLDER / f"{name}.json")
        finding = undeclared(name, file.trace, core)
        assert isinstance(finding, Finding), finding
        assert FoundWhat.of(finding) == file.finding


def test_our_core_has_none_of_them():
    for name in TRACES:
        trace = read_trace(FOLDER / f"{name}.json").trace
        assert replay(trace, open_target("impl")) == (None, trace), name


# The declarations.


def test_ids_are_unique_and_each_says_what_when_and_from_where():
    assert len({deviation.id for deviation in DECLARED}) == len(DECLARED)
    for deviation in DECLARED:
        assert all((deviation.id, deviation.reason, deviation.condition)), deviation
        assert deviation.source.startswith(("core.md", "Found", "Theorem", "T23.")), deviation


def test_every_declared_deviation_has_a_trace_and_every_trace_a_deviation():
    assert sorted(path.stem for path in FOLDER.glob("*.json")) == sorted(TRACES)


def test_the_list_names_those_of_the_core_and_those_of_the_configuration_arithmetic(capsys):
    assert main(["deviations", "--target", RELEASE, "--json"]) == 0
    listed = [entry["id"] for entry in json.loads(capsys.readouterr().out)]
    assert listed == [deviation.id for deviation in (*DECLARED, *CONFIGURATION_DEVIATIONS)]


@pytest.fixture
def opens(monkeypatch):
    """Lets the command open these targets by name in place of installed releases."""

    def give(**targets):
        named = {RELEASE: targets.pop("release", None), **targets}
        monkeypatch.setattr("blockproof.fuzz.opening.targets.open_target", lambda spec, isolate=False: named[spec])

    return give


def test_the_command_replays_every_trace_and_writes_the_page(opens, tmp_path, capsys):
    opens(release=Release())
    words = ["deviations", "--target", RELEASE, "--check", str(FOLDER)]
    assert main([*words, "--write", str(tmp_path / "deviations.md")]) == 0
    assert f"{len(TRACES)} traces show the {len(DECLARED)} deviations" in capsys.readouterr().out
    written = (tmp_path / "deviations.md").read_text()
    assert [name for name in TRACES if f"{name}.json" not in written] == []
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"document": "deviations", "shown": sorted(TRACES), "problems": []}


def test_the_command_fails_where_a_release_has_mended_one(opens, capsys):
    opens(release=Release(without=("hit-not-cut",)))
    assert main(["deviations", "--target", RELEASE, "--check", str(FOLDER)]) == 1
    out = capsys.readouterr().out
    assert "hit-not-cut: stale" in out
    assert f"{len(TRACES) - 1} traces show the {len(DECLARED)} deviations" in out


def test_the_command_tells_what_another_release_makes_of_them(opens, tmp_path, capsys):
    opens(release=Release(), impl=open_target("impl"))
    words = ["deviations", "--target", RELEASE, "--check", str(FOLDER), "--also", "impl"]
    assert main([*words, "--write", str(tmp_path / "ours.md")]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()] == [deviation.id for deviation in DECLARED]
    assert f"# What impl makes of the deviations of {RELEASE}" in (tmp_path / "ours.md").read_text()
    assert main([*words, "--json"]) == 0
    told = {entry["id"]: entry["verdict"] for entry in json.loads(capsys.readouterr().out)}
    assert told["hit-not-cut"] == SAME


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--target", "vllm==0.1"), "no deviations of 'vllm==0.1' are declared; there are vllm==0.23.0"),
        (("--write", "page.md"), "--write needs the traces: add --check DIR or --keep DIR"),
    ],
)
def test_wrong_usage_of_the_command_is_a_line(words, part, capsys):
    assert main(["deviations", *words]) == 2
    assert part in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("deviation", IN_MODEL, ids=ids)
def test_a_deviation_replaces_some_decision(deviation):
    replaced = POLICY_OF({deviation.id}, lambda name, occurred, harmless=False: None)
    assert any(getattr(replaced, entry.name) is not getattr(Policy(), entry.name) for entry in fields(Policy))


def test_the_page_has_what_the_traces_show():
    shown = {}
    for name in TRACES:
        file: TraceFile = read_trace(FOLDER / f"{name}.json")
        finding = undeclared(name, file.trace, Release())
        assert isinstance(finding, Finding), finding
        shown[name] = (file, finding)
    kept = FOLDER.parent / "deviations.md"
    written = kept.read_text(encoding="utf-8")
    again = f"blockproof deviations --target {RELEASE} --check {KEPT} --write {KEPT}.md"
    elsewhere = pages_elsewhere(kept)
    assert elsewhere == ["deviations-0.33.0.md"]
    assert page(RELEASE, shown, elsewhere) == written, f"write it again: {again}"


# Stale ones, and the ends of runs.


def test_a_long_run_names_the_deviations_that_never_occurred(monkeypatch):
    monkeypatch.setattr(report, "LONG_RUN", 3_000)
    assert LONG_RUN > 3_000
    summary = Summary(RELEASE, "random", 0)
    run_random(Release(), Plan(0, operations=3_000, attention=("full",)), summary)
    assert summary.finding is None, summary.finding
    never = {"chunked-cap", "mamba-negative-demand", "mamba-external-state", "sink-construction"}
    assert never <= set(summary.unseen_deviations())
    assert "misuse-unchecked" not in summary.unseen_deviations(), "without chaos it cannot occur"
    assert RunDocument.of(summary).deviations_not_seen == summary.unseen_deviations()
    lines = {line.split()[0]: line for line in plain(RunDocument.of(summary)).splitlines() if line.startswith("  ")}
    for deviation in DECLARED:
        assert ("STALE" in lines[deviation.id]) == (deviation.id in summary.unseen_deviations())
    assert "common-prefix-unknown" not in summary.unseen_deviations()
    assert f"{summary.deviated['common-prefix-unknown']:,}" in lines["common-prefix-unknown"]


def test_a_run_over_all_shapes_holds_the_release_to_its_deviations():
    summary = Summary(RELEASE, "random", 3)
    run_random(Release(), Plan(3, operations=15_000), summary)
    assert summary.finding is None, summary.finding
    assert len(summary.unseen_deviations()) < len(DECLARED) / 2


def test_an_allocation_that_fails_half_way_ends_the_run():
    trace = trace_of(next(deviation for deviation in DECLARED if deviation.id == "mamba-external-state"))
    model = model_for(RELEASE, trace.shape)
    assert views(model, trace)[-1][0] == Failed("ValueError")
    assert isinstance(model, DeviatingModel)
    assert model.dead


def test_a_declared_deviation_excuses_no_other_difference():
    """The same trace, but one more token: the release is wrong in its own way, and right in all else."""
    shape = Shape((Group("full", 1),), 4, 3, 1, 1, 1)
    story = (CommonPrefix("a"), Submit("b", (0, 0)), Allocate("b", 1), CommonPrefix("b"), Lookup("b"))

    class Wrong(Release):
        def step(self, operation):
            outcome, snapshot = super().step(operation)
            return (Done((0,)) if outcome == Done((1,)) else outcome), snapshot

    assert replay(Trace(shape, story), Release())[0] is None
    right = (Submit("b", (0, 0)), Allocate("b", 1), CommonPrefix("b"))
    assert replay(Trace(shape, right), Wrong())[0].kind == ("outcome", "CommonPrefix")


def test_unchecked_misuse_is_counted_and_ends_the_run_only_where_it_is_declared():
    summary = Summary(RELEASE, "random", 0)
    run_random(Release(), Plan(0, operations=3_000, chaos=True), summary)
    assert summary.finding is None, summary.finding
    assert summary.deviated[MISUSE_UNCHECKED.id] == sum(summary.misuse.values()) > 10
    assert summary.misuse["Release: outcome differs, Done instead of ValueError"] > 0
    strict = Summary(RELEASE, "random", 0)
    run_random(Release(), Plan(0, operations=3_000, chaos=True, without=(MISUSE_UNCHECKED.id,)), strict)
    assert strict.finding.kind[0] == "outcome"


@pytest.mark.parametrize("kind", [Take, Evict, Release_, Allocate])
def test_a_reaction_to_misuse_that_has_changed_is_found(kind, monkeypatch):
    """Where the release no longer does what is declared, also if it does nothing wrong by another measure."""
    right = Release.step

    def changed(self, operation):
        outcome, snapshot = right(self, operation)
        if isinstance(operation, kind) and misuse(self._model, operation):
            snapshot = snapshot._replace(ref_cnt=[count + (count < 0) for count in snapshot.ref_cnt])
            snapshot = snapshot._replace(num_free=snapshot.num_free + 1)
        return outcome, snapshot

    monkeypatch.setattr(Release, "step", changed)
    summary = Summary(RELEASE, "random", 0)
    run_random(Release(), Plan(0, operations=6_000, chaos=True), summary)
    assert summary.finding is not None
    assert isinstance(summary.finding.operation, kind)


def test_a_step_of_no_tokens_that_is_carried_out_is_found():
    """The release refuses it, and does what negative numbers come to: this one takes no tokens for such a number."""
    shape = Shape((Group("full", 2),), 5, 8, 2, 2, 8)
    story = (Submit("a", (0, 0)), Allocate("a", 0))

    class CarriedOut(Release):
        def step(self, operation):
            outcome, snapshot = super().step(operation)
            return (Done(((),)) if isinstance(operation, Allocate) else outcome), snapshot

    assert replay(Trace(shape, story), Release())[0] is None
    finding = replay(Trace(shape, story), CarriedOut())[0]
    assert finding is not None
    assert (finding.kind, finding.expected) == (("outcome", "Allocate"), Failed("ValueError"))


@pytest.mark.parametrize(
    ("queue", "blocks", "front", "read"),
    [
        ([1, 2], [3, 4], False, [1, 2, 3, 4]),
        ([1, 2], [3, 4], True, [3, 4, 1, 2]),
        ([1, 2], [3, 3], False, [1, 2, 3]),
        ([1, 2], [3, 4, 3], False, [1, 2, 3]),
        ([], [3, 4, 3], True, [3]),
    ],
)
def test_what_islinked_twice_loses_what_stands_between(queue, blocks, front, read):
    assert linked(queue, blocks, front=front) == read


def test_the_release_links_as_is_declared_and_counts_below_zero():
    shape = Shape((Group("full", 2),), 5, 8, 2, 2, 8)
    model = model_for(RELEASE, shape)
    assert isinstance(model, DeviatingModel)
    model.apply(Take(2))
    model.apply(Touch((1,)))
    before = model.snapshot()
    outcome, shown = model.reaction_to(model, Release_((1, 1, 2, 2)), before)
    assert outcome == Done()
    assert (shown.ref_cnt[1:3], shown.free, shown.num_free) == ([0, -1], [3, 4, 1], 4)


def test_who_leaves_fewer_than_no_blocks_to_others_takes_what_there_is():
    shape = Shape((Group("full", 1), Group("full", 1), Group("sliding", 1, window=1)), 3, 1, 1, 1, 1)
    model = model_for(RELEASE, shape)
    assert isinstance(model, DeviatingModel)
    asked = Allocate("a", 1, reserved=-1)
    outcome, shown = model.reaction_to(model, asked, model.snapshot())
    assert outcome == Failed("ValueError")
    assert (shown.free, shown.tables) == ([], [{"a": [1]}, {"a": [2]}, {}])
    model = model_for(RELEASE, shape)
    assert isinstance(model, DeviatingModel)
    assert model.reaction_to(model, Allocate("a", 1, reserved=0), model.snapshot())[0] == Refused()
