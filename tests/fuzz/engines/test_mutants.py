"""Hunting planted faults: what is hunted, what counts as found, and which oracles judge."""

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
from blockproof.fuzz.engines.mutants import MUTANTS, Hunt, can_be_tried, hunt, hunt_all, missed
from blockproof.fuzz.engines.plan import RUN_OPERATIONS
from blockproof.fuzz.faults import FAULTS, Part
from blockproof.fuzz.faults.registry import wrap
from blockproof.fuzz.findings.oracle_names import CONTRACT, LIVENESS, LOCKSTEP
from blockproof.fuzz.targets.base import TargetUnavailableError

LONG = 600.0
"""Seconds that no hunt below comes near."""


def test_all_faults_but_those_of_configuration_answers_are_hunted() -> None:
    assert {fault.part for fault in MUTANTS.values()} == {Part.CORE, Part.TENSORS}
    assert FAULTS.keys() - MUTANTS.keys() == {name for name in FAULTS if FAULTS[name].part == Part.CONFIGURATION}
    assert len(MUTANTS) == 86


@pytest.mark.parametrize(
    ("name", "kind", "operations", "shrunk_to"),
    [
        ("free-order-reversed", ("free", "Preempt"), 7, 3),
        ("eviction-does-nothing", ("S10", "Evict"), 9, 3),
        ("same-step-rule-never-forgets", ("L3", "Submit"), 595, 4),
    ],
)
def test_a_fault_is_found_by_the_oracles_it_is_meant_for_and_shrunk(
    name: str, kind: tuple[str, str], operations: int, shrunk_to: int
) -> None:
    found = hunt(MUTANTS[name], LONG, 0)
    assert found.found
    assert (found.fault, found.expected) == (name, MUTANTS[name].observables)
    assert (found.observable, found.operation) == kind
    assert (found.operations, found.shrunk_to) == (operations, shrunk_to)
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
    """The fault shows in the 9th operation of seed 0: it is found within as many, and not in a run that is shorter."""
    fault = MUTANTS["eviction-does-nothing"]
    assert hunt(fault, None, 0, (LOCKSTEP,), operations=9).found
    (clean,) = hunt_all([MUTANTS["usage-counts-null-block"]], None, 0, (LIVENESS,), operations=300)
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
