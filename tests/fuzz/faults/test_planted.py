"""Who checks the checker? Every planted fault is found, and its trace cannot be shortened by hand."""

import json
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest
from blockproof.fuzz.engines.mutants import MUTANTS
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.faults import FAULTS, MADE_UP, MODULES, REAL_MODULES, Fault, Part, fault_named, faults_in
from blockproof.fuzz.findings.finding import Finding, Trace
from blockproof.fuzz.findings.oracle_names import LOCKSTEP
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.targets.base import Target
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.shrink import Shrunk, shrink
from blockproof.fuzz.traces.trace_file import dump_trace, load_trace
from blockproof.model.snapshot import Snapshot

BY_LOCKSTEP = [name for name in MADE_UP if name in faults_in(Part.CORE) and LOCKSTEP in FAULTS[name].oracles]
"""Those after real bugs are hunted by `mutants --real`, and their traces are in tests/regressions. All others that were
made up `.ci/run` has hunted by `mutants`."""
MOST_OPERATIONS = 60_000
"""In which a fault must be found. Operations, not seconds: a slow machine finds what a fast one finds."""
MOST_SHRUNK = 8
KEPT = Path(__file__).with_name("short_traces.json")
"""A trace for each fault, so that quick tests need not hunt. Written by `python tests/fuzz/faults/test_planted.py`."""


def faulty(name: str) -> Target:
    """Our core with this fault."""
    return open_target(f"fault:{name}")


def hunt(name: str) -> tuple[Summary, Shrunk | None]:
    """The first run that shows the fault, and what it was reduced to."""
    target = faulty(name)
    summary = Summary(f"fault:{name}", "random", 0)
    run_random(target, Plan(0, operations=MOST_OPERATIONS), summary)
    if summary.finding is None or summary.trace is None:
        return summary, None
    return summary, shrink(summary.trace, summary.finding.kind, target)


def shows_only_its_fault(name: str, trace: Trace) -> Finding | None:
    """What the trace, to its end, shows on the core with this fault; on the clean core it shows nothing."""
    finding, applied = replay(trace, faulty(name))
    assert applied == trace
    assert replay(trace, open_target("impl")) == (None, trace)
    return finding


@cache
def kept() -> dict[str, Trace]:
    """Of each fault what a hunt was reduced to when the file was written."""
    return {name: load_trace(json.dumps(trace)).trace for name, trace in json.loads(KEPT.read_text("utf-8")).items()}


def keep() -> None:
    """Hunts every fault, and writes the file anew."""
    traces = {name: json.loads(dump_trace(result.trace)) for name in BY_LOCKSTEP if (result := hunt(name)[1])}
    KEPT.write_text(
        "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(traces[name])}" for name in sorted(traces)) + "\n}\n"
    )


def shorter(trace: Trace, count: int) -> Iterator[Trace]:
    """The trace without `count` of its operations, whichever these are."""
    kept = len(trace.operations) - count
    choices = combinations(trace.operations, kept) if kept >= 0 else iter(())
    return (Trace(trace.shape, operations) for operations in choices)


def test_the_hunts_are_those_of_the_command():
    """So they need not be run by it as well."""
    assert {(MUTANTS[name].oracles, MUTANTS[name].chaos) for name in BY_LOCKSTEP} == {(Plan(0).oracles, False)}


@pytest.mark.few_are_quick
@pytest.mark.parametrize("name", BY_LOCKSTEP)
def test_a_planted_fault_is_found_where_it_is_expected_and_its_trace_cannot_be_shortened_by_hand(name):
    summary, result = hunt(name)
    assert result is not None, f"not found in {summary.operations} operations of seed 0"
    assert summary.operations <= MOST_OPERATIONS
    seen = {one.observable for one in summary.finding.every}  # the shadow memory may see something worse
    assert not seen.isdisjoint(FAULTS[name].observables)
    assert result.finding.kind == summary.finding.kind
    assert shows_only_its_fault(name, result.trace) == result.finding
    assert result.complete
    assert len(result.trace.operations) <= MOST_SHRUNK
    for count in (1, 2):
        for candidate in shorter(result.trace, count):
            finding, _ = replay(candidate, faulty(name))
            assert finding is None or finding.key != result.finding.key, candidate


@pytest.mark.each_is_measured
@pytest.mark.parametrize("name", BY_LOCKSTEP)
def test_the_trace_that_was_kept_shows_the_fault_and_nothing_on_the_clean_core(name):
    finding = shows_only_its_fault(name, kept()[name])
    assert finding is not None
    assert not {one.observable for one in finding.every}.isdisjoint(FAULTS[name].observables)


def test_every_observable_has_a_fault_that_shows_in_it_first():
    first = {finding.observable for name in BY_LOCKSTEP if (finding := shows_only_its_fault(name, kept()[name]))}
    assert first >= {"outcome", *Snapshot._fields}


def test_faults_are_named_and_described_each_on_its_own():
    assert len({fault.describe for fault in FAULTS.values()}) == len({fault.plant for fault in FAULTS.values()})
    for name, fault in FAULTS.items():
        assert name == fault.name
        assert fault.observables or fault.part == Part.CONFIGURATION, name
        assert set(fault.observables) <= {"outcome", *Snapshot._fields} or name not in BY_LOCKSTEP


def test_no_fault_hides_another_one_of_its_name():
    planted = [
        fault for module in (*MODULES, *REAL_MODULES) for fault in vars(module).values() if isinstance(fault, Fault)
    ]
    assert sorted(fault.name for fault in planted) == sorted(FAULTS)
    assert sum(len(faults_in(part)) for part in Part) == len(FAULTS)


def test_a_name_stands_for_a_fault_of_the_part_that_is_asked_for_only():
    for name, fault in FAULTS.items():
        for part in Part:
            if part == fault.part:
                assert fault_named(f"fault:{name}", part) is fault
            else:
                with pytest.raises(ValueError, match=f"unknown fault '{name}'; (did you mean|see blockproof mutants)"):
                    fault_named(f"fault:{name}", part)
    assert fault_named("impl", Part.CORE) is None


def test_a_fault_is_planted_into_one_core_only():
    """Faults replace methods of objects, never of classes: the next core must be clean."""
    for name in BY_LOCKSTEP:
        faulty(name).start(kept()[name].shape)
    clean = Summary("impl", "random", 0)
    run_random(open_target("impl"), Plan(0, operations=5_000), clean)
    assert clean.finding is None


if __name__ == "__main__":
    keep()
