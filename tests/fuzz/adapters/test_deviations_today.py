"""The newest release that the model describes: its deviations have traces, and change nothing but what they say."""

from dataclasses import replace
from pathlib import Path

import pytest
from blockproof.fuzz.adapters.vllm.deviations import deviations_0330
from blockproof.fuzz.adapters.vllm.deviations.identity_deviations import items_ahead
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.finding import Finding, Trace
from blockproof.fuzz.findings.offered import OF_TODAY
from blockproof.fuzz.opening import environments
from blockproof.fuzz.opening.known_deviations import declared_for, model_for
from blockproof.fuzz.releases.deviations import undeclared
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.targets.declarations import KINDS_OF_FEW
from blockproof.fuzz.targets.deviations import MISUSE_UNCHECKED, DeviatingModel, trace_names
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.trace_file import FoundWhat, read_trace
from blockproof.model.core import Model
from blockproof.model.features.today import TODAY
from blockproof.model.ops import (
    Advance,
    Allocate,
    Done,
    Failed,
    Group,
    Item,
    Landed,
    Lookup,
    Preempt,
    Shape,
    StepStart,
    Submit,
    TakeEvents,
)

from .test_deviations import Release, compared_before_it_occurs

RELEASE = "vllm==0.33.0"
FOLDER = Path(__file__).parents[3] / "docs" / "evidence" / "today-deviations"
DECLARED = declared_for(RELEASE)
TRACES = [name for deviation in DECLARED for name in trace_names(deviation)]


class Described(Release):
    """A target that behaves as the release: the model with its deviations."""

    offers = OF_TODAY | KINDS_OF_FEW | {"Arrive.missing"}

    def __init__(self, without=(), release=RELEASE):
        super().__init__(release, without, release)

    @property
    def copies(self):
        return self._model.copied

    @property
    def handed(self):
        return self._model.offered


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


@pytest.mark.few_are_quick
@pytest.mark.parametrize("deviation", [one for one in DECLARED if one != MISUSE_UNCHECKED], ids=lambda one: one.id)
def test_as_long_as_a_deviation_has_not_occurred_it_changes_nothing(deviation):
    def changed(shape):
        return DeviatingModel(shape, (deviation,), deviations_0330.policy_of)

    assert compared_before_it_occurs(deviation, changed, lambda shape: Model(shape, TODAY), 46) > 500


# What is told besides outcomes and snapshots.

NAMED = (Submit("a", tuple(range(7))), Allocate("a", 6), Advance("a"), Allocate("a", 1))
"""The end of a prompt gets a name inside a block, and the state there a copy that is offered to a connector."""
HYBRID = Shape((Group("full", 4), Group("mamba", 4, mamba_mode="align")), 16, 32, 2, 4, 32)


class CopiesAnother(Described):
    """Asks for the copy of another block."""

    @property
    def copies(self):
        return tuple((source + 1, target) for source, target in super().copies)


class OffersLess(Described):
    """Leaves its last offer out."""

    @property
    def handed(self):
        return super().handed[:-1]


@pytest.mark.parametrize(
    ("core", "told"),
    [(Described(), None), (CopiesAnother(), "copies"), (OffersLess(), "handed")],
    ids=lambda one: type(one).__name__ if isinstance(one, Described) else str(one),
)
def test_copies_and_offers_are_compared(core, told):
    finding, _ = replay(Trace(HYBRID, NAMED), core, Judging(("lockstep",)))
    assert (finding and finding.kind) == (told and (told, "Allocate"))


OPEN = Shape((Group("mamba", 1, mamba_mode="align", speculative_blocks=2),), 6, 4, 1, 1, 1)
SAMPLED_LATE = (
    *(Submit("a", (0, 0)), Allocate("a", 1), Advance("a"), Allocate("a", 2), Advance("a"), Advance("a", (0,))),
    Allocate("a", 1),
)
"""A draft is accepted, and what was sampled becomes known later: until then nobody knows which state is copied."""


def test_a_state_is_copied_once_it_is_known_which_drafts_are_right():
    assert replay(Trace(OPEN, SAMPLED_LATE), Described(), Judging(("lockstep", "shadow")))[0] is None
    trace = read_trace(FOLDER / "draft-states-moved-away.corruption.json").trace
    finding, _ = replay(trace, Described(), Judging(("shadow",)))
    assert finding is not None, "where one is copied over another, it is still seen"
    assert finding.oracle == "shadow"


def test_what_has_landed_is_not_copied_again():
    groups = (Group("full", 2), Group("mamba", 2, mamba_mode="align"))
    told = (Submit("a", (0, 0)), Allocate("a", 1), StepStart(), Submit("b", (0, 0)), Lookup("b"))
    story = (*told, Allocate("b", 1, hit=True), Landed("a"), Advance("b"))
    trace = Trace(Shape(groups, 5, 2, 1, 2, 1), story)
    assert replay(trace, Described(), Judging(("lockstep", "shadow"))) == (None, trace)


def test_a_lookup_that_ends_in_an_error_says_of_no_junction():
    """Nobody has what it would have returned."""
    groups = Group("full", 1, eagle=True), Group("mamba", 4, mamba_mode="align")
    core = model_for(RELEASE, Shape(groups, 9, 7, 1, 4, 1, events=True, names_junctions=True))
    begun = Submit("a", (0,) * 6, reports_hits=True), Allocate("a", 5), Advance("a", (0,)), Allocate("a", 1)
    for operation in (*begun, Preempt("a")):
        core.apply(operation)
    assert core.apply(Lookup("a")) == Failed("IndexError")
    assert core.requests["a"].junction == 0


def test_states_that_no_draft_reads_are_named_a_block_early():
    """Seen in lockstep: the release gives a hash block up before the end of a prompt, whoever reads what is behind."""
    shape = Shape((Group("mamba", 2, mamba_mode="align"),), 3, 6, 2, 2, 6, eagle=True, retention_interval=0)
    shape = replace(shape, old_names=True)
    for without, named in (((), 0), (("replay-boundary-early",), 1)):
        core = model_for(RELEASE, shape, without)
        core.apply(Submit("a", (0, 0, 0)))
        core.apply(Allocate("a", 2))
        assert len(core.state.identity) == named


@pytest.mark.parametrize(("wider", "without", "hit"), [(0, (), 6), (5, (), 0), (5, ("junction-kept-in-part",), 6)])
def test_windows_that_drafts_read_are_kept_a_block_before_a_junction_and_no_others(wider, without, hit):
    """The release's own manager finds the same (48, 0 and 48 tokens of blocks of 16)."""
    groups = Group("full", 2), Group("sliding", 2, window=3, eagle=True), Group("sliding", 2, window=wider)
    shape = Shape(groups[: 3 if wider else 2], 80, 40, 2, 2, 40, retention_interval=0, old_names=True)
    core, shared = model_for(RELEASE, shape, without), tuple(range(8))
    for name in "abc":
        core.apply(Submit(name, (*shared, *[ord(name) + token for token in range(10)])))
        found = core.apply(Lookup(name))
        core.apply(Allocate(name, 18 - core.requests[name].hit[0], hit=True))
        core.apply(Advance(name, (0,)))
    assert isinstance(found, Done)
    assert isinstance(found.value, tuple)
    assert found.value[0] == hit


def test_a_report_leaves_out_what_groups_look_for_apart_though_drafts_read_the_last_token():
    """Seen in lockstep."""
    groups = Group("rswa", 1, window=1, eagle=True), Group("mamba", 1, mamba_mode="align", checkpoint=1)
    core = model_for(RELEASE, replace(Shape(groups, 5, 2, 1, 1, 1, events=True), old_names=True))
    for operation in (Submit("a", (0, 0)), Allocate("a", 2), TakeEvents(), Submit("b", (0, 0), reports_hits=True)):
        core.apply(operation)
    assert core.apply(Lookup("b", for_connector=True)) == Done((1, ((1,), (3,))))
    assert core.apply(TakeEvents()) == Done(())


def test_a_lookup_for_a_connector_that_fails_is_put_down_to_names_that_do_not_exist():
    """The whole campaign of a release could not say what it was: nothing had deviated."""
    groups = Group("full", 1), Group("sliding", 1, window=1), Group("mamba", 2, mamba_mode="align")
    core = model_for(RELEASE, Shape(groups, 9, 12, 1, 2, 12, eagle=True, reads_ahead=2))
    core.apply(Submit("a", (0, 0, 0)))
    assert core.apply(Lookup("a", for_connector=True)) == Failed("IndexError")
    assert isinstance(core, DeviatingModel)
    assert core.deviated["lookup-past-the-last-name"] == 1


def test_an_item_that_another_one_has_passed_is_lost_for_the_blocks_behind_it_that_are_named_in_one_go():
    items = [Item("video", 0, 6), Item("sound", 1, 1)]
    assert items_ahead(items, 0, 4, 3, 0) == items
    assert items_ahead(items, 4, 8, 3, 0) == []
    assert items_ahead(items, 4, 8, 3, 4) == []  # halving takes ends to stand in order, and the last one is passed
    assert items_ahead(items[:1], 4, 8, 3, 0) == items[:1]
    assert items_ahead([*items, Item("after", 5, 3)], 4, 8, 3, 0) == [Item("after", 5, 3)]
