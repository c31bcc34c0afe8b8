"""What the plants of the catalogue say of themselves: where each shows, and that only one object is changed."""

from functools import cache
from pathlib import Path

import pytest
from blockproof.fuzz.configuration.check import CheckLimits, run
from blockproof.fuzz.configuration.invariants import INVARIANTS
from blockproof.fuzz.configuration.reach import Reach
from blockproof.fuzz.faults import CATALOGUED, FAULTS, Fault, Part, real_sizing
from blockproof.fuzz.faults.real_bugs import planted_bugs
from blockproof.fuzz.findings.oracle_names import LIVENESS, ORACLES
from blockproof.fuzz.opening.targets import open_calculator, open_target
from blockproof.fuzz.planning.shipped import REGRESSIONS
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.trace_file import TraceFile, read_trace

FOLDER = Path(__file__).parents[3] / REGRESSIONS
FILES = {name: FOLDER / f"{bug_id}-{name}.json" for bug_id, _, name in planted_bugs()}
OF_CORE = [name for name, fault in CATALOGUED.items() if fault.part == Part.CORE]
OF_LOCKSTEP = [name for name in OF_CORE if CATALOGUED[name].oracles == ORACLES]
OF_SIZING = [fault.name for fault in vars(real_sizing).values() if isinstance(fault, Fault)]
CASES = 120
"""Configurations of seed 0 that invariants are asked about."""


@cache
def file_of(name: str) -> TraceFile:
    return read_trace(FILES[name])


@pytest.mark.each_is_measured
@pytest.mark.parametrize("name", OF_CORE)
def test_a_fault_shows_first_where_it_says(name: str) -> None:
    finding = file_of(name).finding
    assert finding is not None
    assert finding.observable in CATALOGUED[name].observables


def test_a_fault_is_planted_into_one_core_only() -> None:
    """Faults replace methods of objects, never of classes: the next core must be clean."""
    for name in OF_CORE:
        if LIVENESS in CATALOGUED[name].oracles:
            continue
        file = file_of(name)
        open_target(f"fault:{name}").start(file.trace.shape)
        assert replay(file.trace, open_target("impl"), Judging(file.oracles or ORACLES))[0] is None, name


@pytest.mark.parametrize("name", OF_SIZING)
def test_exactly_the_invariants_that_a_fault_of_sizes_breaks_see_it_without_the_model(name: str) -> None:
    calculator = open_calculator(f"fault:{name}")
    reach = Reach(calculator.name, 0)
    run(calculator, reach, CheckLimits(CASES, None, len(INVARIANTS)), "invariants")
    assert {finding.oracle for finding in reach.findings} == set(FAULTS[name].observables)


@pytest.mark.parametrize("name", OF_SIZING)
def test_a_question_that_a_fault_of_sizes_is_not_about_is_answered_right(name: str) -> None:
    spec = {"type": "FullAttentionSpec", "block_size": 16, "num_kv_heads": 1, "head_size": 8, "dtype": {"itemsize": 2}}
    for op, inputs in (("page", {"spec": spec}), ("merge", {"specs": [spec, spec]})):
        assert open_calculator(f"fault:{name}").ask(op, inputs) == open_calculator("impl").ask(op, inputs)
