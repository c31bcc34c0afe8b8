"""Scopes of the rule of today: how many states each has, that nothing is found in them, and that a wrong rule is."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from blockproof.fuzz.engines.walked import TodaySearch
from blockproof.fuzz.engines.walked_scopes import SCOPES_OF_TODAY
from blockproof.fuzz.exploration.search import BROKEN, EXHAUSTED, STATES, Limits
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.traces.replay import replay
from blockproof.model import tables
from blockproof.model.features import inside

from ..adapters.test_faults_of_today import FAULTS, Fault, Faulty, put

COUNTS = json.loads((Path(__file__).parent / "exploration_counts_today.json").read_text())
"""By scope: states, transitions, depth."""
QUICK = 400
"""States of a scope whose test is quick."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (COUNTS.get(name, [QUICK])[0] >= QUICK))
        for name in SCOPES_OF_TODAY
    ],
)
def test_nothing_is_found_in_any_state_and_the_scope_reaches_what_it_is_there_for(name):
    done = TodaySearch(SCOPES_OF_TODAY[name], open_target("impl-today")).run()
    assert (done.ended, done.finding, done.missing) == (EXHAUSTED, None, ())
    assert [done.states, done.transitions, done.depth] == COUNTS[name]


WRONG = {
    "inside-blocks": FAULTS["hits-whole-blocks-only"],
    "states-for-a-connector": FAULTS["connector-hit-never-lags"],
    "checkpoints": FAULTS["no-checkpoints"],
    "retention": Fault(put(worth=tables.worth)),
    "watermark": FAULTS["watermark-forgotten"],
    "kept-blocks": FAULTS["watched-blocks-reused-first"],
    "names-ahead": Fault(put(ahead=lambda shape: 2 * inside.names_ahead(shape))),
    "gap": FAULTS["window-kept-too-long"],
    "ring": FAULTS["full-attention-zeroed"],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_is_found_by_the_shortest_way(name):
    assert {*WRONG} == {*SCOPES_OF_TODAY}
    target = Faulty(WRONG[name])
    done = TodaySearch(SCOPES_OF_TODAY[name], target).run(Limits(2_000))
    assert done.ended == BROKEN
    finding, _ = replay(Trace(SCOPES_OF_TODAY[name].shape, done.finding.operations), target, Judging(("lockstep",)))
    assert finding is not None
    assert finding.observable in done.finding.names


def test_a_limit_ends_it_and_a_scope_too_small_says_what_it_lacks():
    scope = SCOPES_OF_TODAY["ring"]
    assert TodaySearch(scope, open_target("impl-today")).run(Limits(5)).ended == STATES
    small = replace(scope, prompts=((0,),), requests=1)
    done = TodaySearch(small, open_target("impl-today")).run()
    assert (done.ended, done.missing) == (EXHAUSTED, ("hit",))
