"""The state machine for Hypothesis beside the seeded engine: operations a second, and planted faults found.

python benchmarks/state_machines.py [--seconds S] [--rounds N] [--budget S] [--faults NAME,...]
    [--every N] [--write docs/evidence/state-machines.md]

What each line means stands in benchmarks/README.md.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from blockproof.fuzz.engines.failing import FindingError
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.faults import MADE_UP, Fault, Part
from blockproof.fuzz.findings.oracle_names import LIVENESS, ORACLES
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.testing.stateful import kv_cache_machine
from hypothesis import Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from throughput import machine_lines
from written import bind_to_one_core, command, put

EXAMPLES = 100
"""Of the state machine with a rule for each operation, after which the clock is read: what a test runs by default."""


@dataclass
class Done:
    """What was done until something was found, or the time was over."""

    operations: int = 0
    runs: int = 0
    seconds: float = 0.0
    finding: str = ""
    """Observable and operation; empty if nothing was found."""


def seeded(target: str, oracles: Sequence[str], number: int, seconds: float) -> Done:
    """The engine `random`."""
    opened = open_target(target)
    summary = run_random(opened, Plan(number, seconds=seconds, oracles=tuple(oracles)), Summary(target, "", number))
    found = " at ".join(summary.finding.kind) if summary.finding else ""
    return Done(summary.operations, summary.runs, summary.seconds, found)


def by_rules(target: str, oracles: Sequence[str], number: int, seconds: float) -> Done:
    """`kv_cache_machine`, drawn as in a test with default settings, again and again with other seeds, not shrunk."""
    done, start = Done(), time.monotonic()

    class Counted(kv_cache_machine(target, oracles=oracles, folder=None)):  # type: ignore[misc]  # made for a target
        def teardown(self) -> None:
            super().teardown()
            if not done.finding:
                done.operations += len(self.run.operations)
                done.runs += 1
                done.seconds = time.monotonic() - start
                done.finding = " at ".join(self.run.found.kind) if self.run.found else ""
            if done.seconds > seconds:
                raise TimeoutError

    drawn_only = settings(
        Counted.TestCase.settings,
        max_examples=EXAMPLES,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        database=None,
        verbosity=Verbosity.quiet,
    )
    batch = 0
    while not done.finding and done.seconds < seconds:
        try:
            run_state_machine_as_test(seed(number * 1_000 + batch)(Counted), settings=drawn_only)
        except (FindingError, TimeoutError):
            break
        batch += 1
    return done


WAYS = {"engine `random`": seeded, "`kv_cache_machine`": by_rules}


@dataclass
class Rates:
    """Operations a second of each way, one of each round."""

    of: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in WAYS})

    def lines(self) -> Iterator[str]:
        first = next(iter(self.of.values()))
        yield "| | operations/s, median | least to most | ratio to the first |"
        yield "| --- | ---: | ---: | ---: |"
        for name, rates in self.of.items():
            ratio = median(own / other for own, other in zip(rates, first, strict=True))
            yield f"| {name} | {median(rates):,.0f} | {min(rates):,.0f} to {max(rates):,.0f} | {ratio:.2f} |"


def measured(rounds: int, seconds: float) -> Rates:
    rates = Rates()
    for number in range(rounds):
        for name, way in WAYS.items():
            done = way("impl", ORACLES, number, seconds)
            if done.finding:
                sys.exit(f"{name}: a difference, so there is nothing to measure: {done.finding}")
            rates.of[name].append(done.operations / done.seconds)
            print(f"round {number + 1}: {name}: {rates.of[name][-1]:,.0f}/s", file=sys.stderr)
    return rates


def hunted(faults: Sequence[Fault], budget: float) -> dict[str, list[Done]]:
    """For each fault what each way needed."""
    found = {}
    for fault in faults:
        found[fault.name] = [way(f"fault:{fault.name}", fault.oracles, 1, budget) for way in WAYS.values()]
        told = [f"{one.operations:,}" if one.finding else "-" for one in found[fault.name]]
        print(f"{fault.name}: {', '.join(told)}", file=sys.stderr, flush=True)
    return found


def fault_lines(found: dict[str, list[Done]]) -> Iterator[str]:
    yield "| | found | operations until found, median | s, median | s, most |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for place, name in enumerate(WAYS):
        those = [results[place] for results in found.values() if results[place].finding]
        operations, seconds = (median(values) for values in ([d.operations for d in those], [d.seconds for d in those]))
        most = max(one.seconds for one in those)
        yield f"| {name} | {len(those)} of {len(found)} | {operations:,.0f} | {seconds:.2f} | {most:.1f} |"
    yield ""
    yield f"| planted fault | {' | | '.join(WAYS)} | |"
    yield f"| --- |{' ---: | ---: |' * len(WAYS)}"
    for name, results in found.items():
        cells = (f"{one.operations:,} | {one.seconds:.2f} s" if one.finding else "not found | " for one in results)
        yield f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each way in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=12.0, help="seconds for each fault and way")
    parser.add_argument("--faults", default="", help="names; by default all that runs of operations can show")
    parser.add_argument("--every", type=int, default=5, metavar="N", help="a sample: each Nth of the faults; 1 for all")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    bind_to_one_core()
    ours = {name: fault for name, fault in MADE_UP.items() if fault.part == Part.CORE}
    known = {name: fault for name, fault in ours.items() if fault.oracles != (LIVENESS,)}
    names = arguments.faults.split(",") if arguments.faults else list(known)[:: arguments.every]
    for way in WAYS.values():
        way("impl", ORACLES, 0, 1.0)  # modules are imported
    rates = measured(arguments.rounds, arguments.seconds)
    found = hunted([known[name] for name in names], arguments.budget)
    lines = [
        "# State machines for Hypothesis",
        "",
        f"Written by `{command()}`;",
        "[what is measured and how](../../benchmarks/README.md#state-machines).",
        "",
        *machine_lines(load),
        "",
        "## Operations a second",
        "",
        f"Our core, model, shadow memory; {arguments.rounds} rounds, {arguments.seconds:g} s for each line in a round.",
        "",
        *rates.lines(),
        "",
        "## Planted faults",
        "",
        f"{len(names)} of the {len(known)} faults that runs of operations can show, in the order of the catalogue.",
        f"Operations and seconds until the first finding, {arguments.budget:g} s at most; nothing is shrunk.",
        "",
        *fault_lines(found),
    ]
    put("\n".join([*lines, ""]), arguments.write)


if __name__ == "__main__":
    main()
