"""Root causes: what a known flaw explains is put down to it, and nothing else is.

The model with the deviations of vLLM 0.23.0 stands for that release; a core with more wrong in it must show up as new.
"""

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from blockproof.fuzz.engines import root_causes
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.root_causes import RootCauses, agree
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.findings.oracle_names import CONTRACT, MODEL_FREE, SHADOW, STRICT
from blockproof.fuzz.opening.known_deviations import model_for
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.releases.findings import known_causes
from blockproof.fuzz.reports.summary import NEW, Found, Summary
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.targets.rule import Rule
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.trace_file import read_trace
from blockproof.model.core import Model
from blockproof.model.ops import Allocate, Done, Group, Item, Lookup, Shape, Submit

RELEASE, LATER, TODAY = "vllm==0.23.0", "vllm==0.32.0", "vllm==0.33.0"
NAMES = frozenset({"labels", "earliest", "num_identities", "events"})
FOLDER = Path("docs/evidence/findings")
OF_ONE_RULE = ("untagged-extra-keys", "hit-not-cut", "mamba-eagle-margin", "items-lost-on-restart")
WRITTEN_UP = (*OF_ONE_RULE, "state-from-outside", "hit-taken-for-external", "chunk-astride-block")
ROOTS = known_causes()


def release(name=RELEASE, without=()):
    return Rule(partial(model_for, RELEASE, without=without), name)


class HitsMore(Rule):
    """As the release, but a lookup that finds nothing says that it has found a token."""

    def step(self, operation):
        """As the model's, but for a lookup."""
        outcome, snapshot = super().step(operation)
        if isinstance(operation, Lookup) and outcome == Done((0, ((),))) and snapshot.num_free:
            return Done((1, ((snapshot.free[0],),))), snapshot
        return outcome, snapshot


def root_of(name, target, oracles=MODEL_FREE):
    """The root cause of what the trace of this finding shows on a target."""
    trace = read_trace(FOLDER / f"{name}.json").trace
    finding, applied = replay(trace, target, Judging(oracles))
    assert finding is not None, name
    return RootCauses(target, Plan(0, oracles=oracles, roots=ROOTS)).of(Found(finding, applied))


@pytest.mark.parametrize("name", WRITTEN_UP)
@pytest.mark.parametrize("spec", [RELEASE, LATER])
def test_a_written_up_finding_is_named_whichever_release_it_is(name, spec):
    oracles = (*MODEL_FREE, STRICT) if name == "chunk-astride-block" else MODEL_FREE
    named = root_of(name, release(spec), oracles).split(" and ")
    assert name in named
    assert not set(named) & {*OF_ONE_RULE} - {name}


def test_where_the_smallest_trace_slips_to_another_cause_the_whole_one_is_explained(monkeypatch):
    other, target = read_trace(FOLDER / "items-lost-on-restart.json").trace, release()
    slipped = Found(*replay(other, target, Judging(MODEL_FREE)))
    monkeypatch.setattr(root_causes, "smallest", lambda *given, **named: slipped)
    monkeypatch.setattr(root_causes._Experiment, "certain", lambda experiment: None)
    assert root_of("items-lost-on-restart", target) == "items-lost-on-restart"
    assert root_of("hit-not-cut", target) == "hit-not-cut"


@pytest.mark.parametrize("name", WRITTEN_UP)
def test_without_a_name_it_is_called_by_the_deviation(name):
    target = release()
    oracles = (*MODEL_FREE, STRICT)
    finding, applied = replay(read_trace(FOLDER / f"{name}.json").trace, target, Judging(oracles))
    told = RootCauses(target, Plan(0, oracles=oracles, roots={})).of(Found(finding, applied))
    assert told.startswith("deviation ")


def test_nothing_is_asked_unless_the_plan_says_so():
    target = release()
    finding, applied = replay(read_trace(FOLDER / "hit-not-cut.json").trace, target, Judging(MODEL_FREE))
    assert RootCauses(target, Plan(0, oracles=MODEL_FREE)).of(Found(finding, applied)) == ""


TODAY = "vllm==0.33.0"
OF_TODAY = {"Lookup.for_connector", "Submit.reports_hits", "Shape.reads_ahead", "Shape.old_names"}
LOST = "windows-left-behind.corruption", "lookup-past-the-last-name"


@pytest.mark.parametrize("name", LOST)
def test_what_few_cores_have_is_asked_of_the_models_too(name):
    target = Rule(partial(model_for, TODAY), TODAY)
    target.offers = OF_TODAY
    assert root_of(f"../today-deviations/{name}", target) == f"deviation {name.partition('.')[0]}"


def test_a_lookup_that_fails_is_compared_and_gone_on_from():
    trace = read_trace(Path("docs/evidence/today-deviations/lookup-past-the-last-name.json")).trace
    core, twice = Rule(partial(model_for, TODAY)), (*trace.operations, trace.operations[-1])
    for without, same in (("registers-unreadable", True), ("lookup-past-the-last-name", False)):
        other = Rule(partial(model_for, TODAY, without=(without,)))
        assert agree(core, other, trace.shape, twice) is same


def plan(operations, **more):
    return Plan(1, operations=operations, oracles=(SHADOW, CONTRACT), keep_going=True, roots=ROOTS, **more)


def found_on(target, operations, attention):
    summary = run_random(target, plan(operations, attention=attention), Summary(target.name, "random", 1))
    assert summary.found
    return {found.root for found in summary.found.values()}, summary


def test_a_run_on_the_release_finds_nothing_new():
    roots, summary = found_on(release(), 4_000, ("full+mla+sliding",))
    assert NEW not in roots
    assert "hit-not-cut" in roots
    assert all(one.settled >= 1 for one in summary.found.values())


def test_one_more_mistake_is_new_although_it_violates_the_rule_that_a_known_one_does():
    target = HitsMore(partial(model_for, RELEASE), RELEASE)
    roots, summary = found_on(target, 300, ("full",))
    assert NEW in roots
    assert {one.finding.kind for one in summary.found.values() if one.root == NEW} == {("S7", "Lookup")}


def test_a_fault_planted_into_a_core_that_calls_itself_a_release_is_new():
    target = open_target("fault:touch-ignores-used-blocks")
    target.name = LATER
    summary = run_random(target, plan(400, attention=("full",)), Summary(LATER, "random", 5))
    assert {found.root for found in summary.found.values()} == {NEW}


def test_a_core_of_no_family_has_nothing_but_new_findings():
    summary = run_random(
        open_target("fault:touch-ignores-used-blocks"),
        plan(2_000, attention=("full",)),
        Summary("fault:touch-ignores-used-blocks", "random", 5),
    )
    assert {found.root for found in summary.found.values()} == {NEW}


def test_models_agree_until_a_deviation_makes_a_difference():
    trace = read_trace(FOLDER / "hit-not-cut.json").trace
    assert agree(release(), release(), trace.shape, trace.operations)
    assert not agree(Rule(), release(), trace.shape, trace.operations)
    assert agree(Rule(), Rule(Model, "another"), trace.shape, trace.operations)


class HidesInFull(Rule):
    """Hides what the judgement of a missed hit needs if its core has full attention only."""

    def start(self, shape):
        """As the model's."""
        self.hides = ("labels",) if all(group.kind == "full" for group in shape.groups) else ()
        return super().start(shape)


def test_what_a_core_hides_is_asked_of_the_core_of_the_trace():
    target = HidesInFull(partial(model_for, RELEASE), LATER)
    assert root_of("untagged-extra-keys", target) == "untagged-extra-keys"  # full attention
    assert root_of("../deviations/eagle-cut-twice", target) == "short-prompt-loses-hit"


def test_a_core_that_a_known_flaw_would_not_let_be_built_is_no_bug_of_ours(monkeypatch):
    """An older release builds cores with sinks; 0.23.0, of which the flaws are known, builds none. The trace stays as
    it is: what would be left of it needs no sink."""
    monkeypatch.setattr(root_causes, "smallest", lambda found, *given, **named: found)
    target, summary = open_target("fault:hit-in-wrong-order"), Summary("older", "random", 1)
    target.name = "vllm==0.19.1"
    run_random(target, Plan(1, operations=6_000, attention=("sink+sliding",), oracles=(CONTRACT,)), summary)
    assert (summary.finding.oracle, summary.finding.observable) == (CONTRACT, "S7")
    assert not isinstance(model_for(RELEASE, summary.trace.shape).construction, Done)
    plan = Plan(1, oracles=(CONTRACT,), roots=ROOTS)
    assert RootCauses(target, plan).of(Found(summary.finding, summary.trace)) == NEW


class HidesWhatItNames(Rule):
    """As vLLM 0.33.0, which hides its names where they look ahead: in cores with drafts."""

    def start(self, shape):
        """As the model's."""
        self.hides = NAMES if shape.eagle else frozenset()
        return super().start(shape)


def shown_on(target, shape, *items):
    """Requests with the same tokens and these items come and are allocated, and the last one looks them up."""
    *others, last = [Submit(name, (0,) * 9, items=of) for name, of in zip("abc", items, strict=True)]
    allocated = [one for submit in others for one in (submit, Allocate(submit.request, 9))]
    finding, applied = replay(Trace(shape, (*allocated, last, Lookup("c"))), target, Judging(MODEL_FREE))
    assert finding is not None
    assert (finding.observable, type(finding.operation)) == ("S7", Lookup)
    return finding, applied


def test_the_core_of_a_finding_decides_what_is_hidden_also_once_its_trace_is_shrunk(monkeypatch):
    target = HidesWhatItNames(partial(model_for, TODAY), TODAY)
    drafts = Shape((Group("full", 1, eagle=True), Group("full", 1, num_heads=2)), 56, 9, 1, 1, 4, eagle=True)
    items = [(Item("video", 1, length), Item(f"sound {length}", 3, 1)) for length in (6, 5, 4)]
    found = Found(*shown_on(target, drafts, *items))
    small = shown_on(target, Shape((Group("full", 1),), 56, 9, 1, 1, 4), (), items[0][:1], items[1][:1])
    slipped = SimpleNamespace(finding=small[0], trace=small[1])
    monkeypatch.setattr(root_causes, "smallest", lambda *about, **limits: slipped)
    told = RootCauses(target, Plan(0, oracles=MODEL_FREE, roots=ROOTS)).of(found)
    assert told == "deviation item-lengths"
