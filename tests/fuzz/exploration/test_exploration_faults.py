"""Who checks the checker? Every property finds what is planted for it, and nothing else does."""

from dataclasses import replace

import pytest
from blockproof.fuzz.exploration import reductions
from blockproof.fuzz.exploration.faults import FAULTS, ONLY_THERE, by_property
from blockproof.fuzz.exploration.planting import CROWDED, SMALL, STEPS, WINDOW
from blockproof.fuzz.exploration.properties import MEANING
from blockproof.fuzz.exploration.scopes import SCOPES
from blockproof.fuzz.exploration.search import EXHAUSTED, Search
from blockproof.fuzz.exploration.workers import Jobs

SEARCHED = [fault for fault in FAULTS.values() if fault.found_by not in reductions.CHECKS]
REDUCTIONS = [fault for fault in FAULTS.values() if fault.found_by in reductions.CHECKS]


def test_every_property_has_a_fault():
    assert set(by_property()) == set(MEANING)


@pytest.mark.parametrize("fault", SEARCHED, ids=lambda fault: fault.name)
def test_a_fault_is_found_by_its_property_and_by_no_other(fault):
    done = Search(fault.scope, fault.name).run()
    assert done.finding is not None
    assert set(done.finding.names) - {"lockstep"} == {fault.found_by} - {"lockstep"}
    assert fault.found_by in done.finding.names
    assert not done.passed


@pytest.mark.parametrize(
    "scope",
    list(dict.fromkeys(fault.scope for fault in FAULTS.values() if fault.scope.name not in SCOPES)),
    ids=lambda scope: f"{scope.name}-{scope.gate}",
)
def test_without_a_fault_nothing_is_found(scope):
    """Of the named scopes, test_exploration says the same."""
    done = Search(scope).run()
    assert (done.ended, done.finding) == (EXHAUSTED, None)


def test_the_way_to_a_fault_is_the_shortest():
    """A leak shows when blocks are given back for the first time: submit, look up, allocate, preempt."""
    finding = Search(FAULTS["block-leaks"].scope, "block-leaks").run().finding
    assert [type(operation).__name__ for operation in finding.operations] == ["Submit", "Lookup", "Allocate", "Preempt"]


@pytest.mark.parametrize("fault", REDUCTIONS, ids=lambda fault: fault.name)
def test_a_wrong_reduction_is_found_by_its_check(fault):
    check = reductions.CHECKS[fault.found_by]
    assert check(fault.scope)[0] == []
    broken, with_it, without = check(fault.scope, fault.name)
    assert [name for name, _ in broken] == [fault.found_by]
    assert with_it != without


def test_a_fault_shows_in_several_processes_as_in_one():
    fault = FAULTS["neighbour-evicted"]
    one, two = Search(fault.scope, fault.name).run(), Search(fault.scope, fault.name).run(jobs=Jobs(2))
    assert one.finding == two.finding
    assert one.states == two.states


@pytest.mark.parametrize("name", sorted(ONLY_THERE))
def test_some_faults_show_in_scopes_of_their_kind_only(name):
    for scope in (SMALL, STEPS, CROWDED, replace(CROWDED, gate=True), WINDOW):
        done = Search(scope, name).run()
        assert (done.ended, done.finding) == (EXHAUSTED, None), scope.name


def test_what_both_sides_do_alike_is_seen_as_well():
    """Both cut a window as if the last token of a prompt from outside were not computed again."""
    finding = Search(FAULTS["loaded-tokens-cut"].scope, "loaded-tokens-cut").run().finding
    assert finding.names == ("S6",)
    assert [type(operation).__name__ for operation in finding.operations] == ["Submit", "Lookup", "Allocate", "Arrive"]
