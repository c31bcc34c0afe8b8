"""Hunting planted faults: what is hunted, what counts as found, and which oracles judge."""

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import msgspec
import pytest
from blockproof.fuzz.engines.mutants import (
    DETECTORS,
    FUZZ_CONFIG,
    MUTANTS,
    NOT_RUN,
    FaultSearch,
    Hunt,
    can_be_tried,
    catch,
    hunt,
    known_faults,
    middle,
    missed,
    results,
)
from blockproof.fuzz.engines.plan import RUN_OPERATIONS
from blockproof.fuzz.faults import CATALOGUED, FAULTS, MADE_UP, Part
from blockproof.fuzz.faults.registry import wrap
from blockproof.fuzz.findings.oracle_names import CONTRACT, LIVENESS, LOCKSTEP
from blockproof.fuzz.targets.base import TargetUnavailableError

LONG = 600.0
"""Seconds that no hunt below comes near."""


def test_all_faults_but_those_of_configuration_answers_are_hunted() -> None:
    assert {fault.part for fault in MUTANTS.values()} == {Part.CORE, Part.TENSORS}
    assert MADE_UP.keys() - MUTANTS.keys() == {name for name in MADE_UP if FAULTS[name].part == Part.CONFIGURATION}
    assert len(MUTANTS) == 148


@pytest.mark.parametrize(
    ("name", "observable", "shrunk_to"),
    [
        ("free-order-reversed", "free", 3),
        ("eviction-does-nothing", "S10", 3),
        ("same-step-rule-never-forgets", "L3", 4),
    ],
)
def test_a_fault_is_found_by_the_oracles_it_is_meant_for_and_shrunk(name: str, observable: str, shrunk_to: int) -> None:
    found = hunt(MUTANTS[name], LONG, 0)
    assert found.found
    assert (found.fault, found.expected) == (name, MUTANTS[name].observables)
    assert found.observable == observable
    assert found.shrunk_to == shrunk_to
    assert missed([found]) == []


def test_named_oracles_judge_instead() -> None:
    assert hunt(MUTANTS["eviction-does-nothing"], LONG, 0, (LOCKSTEP,)).observable == "labels"
    assert hunt(MUTANTS["removed-event-missing"], LONG, 0, (CONTRACT,)).observable == "S11"


def test_what_was_not_found_is_missed() -> None:
    none = hunt(MUTANTS["usage-counts-null-block"], 0.2, 0, (LIVENESS,))
    assert none.operations > 0
    assert none == Hunt(none.fault, ("usage",), False, operations=none.operations, seconds=none.seconds)
    assert missed([none]) == ["usage-counts-null-block"]


def test_operations_are_a_limit_that_no_machine_moves() -> None:
    """A fault is found within as many operations as it takes."""
    fault = MUTANTS["eviction-does-nothing"]
    needed = hunt(fault, None, 0, (LOCKSTEP,)).operations
    assert hunt(fault, None, 0, (LOCKSTEP,), operations=needed).operations == needed
    clean = hunt(MUTANTS["usage-counts-null-block"], None, 0, (LIVENESS,), operations=300)
    assert not clean.found
    assert 300 <= clean.operations < 300 + 2 * RUN_OPERATIONS


def test_a_fault_whose_own_code_fails_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(manager: Any) -> None:
        wrap(manager, "allocate_slots", lambda original, *given, **named: manager.no_such_name)

    def wrong(manager: Any) -> None:  # the mistake is the core's: it is given what it cannot take
        wrap(manager, "allocate_slots", lambda original, request, *given, **named: original(None, 1))

    for plant, found in ((failing, False), (wrong, True)):
        name = plant.__name__
        monkeypatch.setitem(FAULTS, name, replace(MUTANTS["one-block-leaks"], name=name, plant=plant))
        seen = hunt(FAULTS[name], LONG, 0, (LOCKSTEP,))
        assert (seen.found, seen.observable) == ((True, "outcome") if found else (False, None))
        assert ("no_such_name" in seen.broken) != found


def test_faults_in_tensors_need_torch() -> None:
    fault = MUTANTS["slot-off-by-one"]
    assert can_be_tried(MUTANTS["one-block-leaks"])
    assert can_be_tried(fault) == (find_spec("torch") is not None)
    if can_be_tried(fault):
        assert hunt(fault, LONG, 0).observable == "corruption"
    else:
        with pytest.raises(TargetUnavailableError, match="tensors need torch"):
            hunt(fault, LONG, 0)


# Several seeds, and every detector.

QUICK = FaultSearch(None, operations=400)


def test_the_median_is_that_of_the_seed_in_the_middle() -> None:
    (result,) = results([FAULTS["eviction-does-nothing"]], replace(QUICK, operations=3_000), seeds=3)
    took = sorted(caught.hunt.operations for caught in result.caught)
    assert [caught.hunt.seed for caught in result.caught] == [0, 1, 2]
    assert result.median.operations == took[1]
    assert [caught.hunt.shrunk_to is not None for caught in result.caught] == [True, False, False]
    assert result.median.shrunk_to == result.shown.hunt.shrunk_to == 3
    row = result.row(matrix=False)
    assert isinstance(row.seeds, list)
    assert [seed["operations"] for seed in row.seeds] == [caught.hunt.operations for caught in result.caught]
    assert not {"bug", "detectors"} & msgspec.to_builtins(row).keys()


def test_what_most_seeds_miss_is_missed() -> None:
    hunts = [Hunt("f", (), found, operations=n) for found, n in ((True, 5), (False, 1), (False, 2))]
    assert middle(hunts) == hunts[1]
    assert middle(hunts[:2]) == hunts[1]  # of two the later one
    assert middle([hunts[0], hunts[0], hunts[1]]).found


def test_each_detector_is_asked_or_shown_as_not_run() -> None:
    (result,) = results([FAULTS["negative-pop"]], replace(QUICK, operations=2_000), matrix=True)
    cells: Any = result.row(matrix=True).detectors
    assert list(cells) == [*DETECTORS, *NOT_RUN]
    assert {name for name, cell in cells.items() if cell is None} == {FUZZ_CONFIG, *NOT_RUN}
    assert cells["lockstep"]["found"]
    assert cells["contract"]["found"]
    assert not cells["shadow"]["found"]
    assert (result.bug, result.link) == ("V04", "https://github.com/vllm-project/vllm-ascend/issues/14283")


def test_a_fault_of_answers_is_caught_by_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    (result,) = results([FAULTS["hash-of-the-common-multiple"]], QUICK, matrix=True)
    caught = result.shown
    assert (caught.trace, caught.hunt.shrunk_to, caught.hunt.oracle) == (None, None, FUZZ_CONFIG)
    assert caught.question is not None
    assert caught.question.op == caught.hunt.operation == "resolve_block_sizes"
    assert result.detectors.keys() == {FUZZ_CONFIG}
    nothing = replace(FAULTS["hash-of-the-common-multiple"], plant=lambda calculator: None)
    monkeypatch.setitem(FAULTS, nothing.name, nothing)
    (clean,) = results([nothing], replace(QUICK, operations=10))
    assert not clean.median.found
    assert clean.shown.question is None


def test_the_smallest_trace_is_judged_as_it_was_found() -> None:
    caught = catch(FAULTS["eviction-does-nothing"], QUICK)
    assert caught.trace is not None
    assert (caught.trace.target, caught.trace.oracles) == ("fault:eviction-does-nothing", (CONTRACT,))
    assert len(caught.trace.trace.operations) == caught.hunt.shrunk_to == 3
    assert catch(FAULTS["eviction-does-nothing"], replace(QUICK, shrink_seconds=0.0)).trace is None


def test_the_catalogue_is_hunted_where_it_is_asked_for() -> None:
    assert known_faults(real=False) is MUTANTS
    assert list(known_faults(real=True)) == list(CATALOGUED)
