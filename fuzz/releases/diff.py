"""In which situations two targets differ: found by many short comparisons, each with its smallest trace."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

from ..engines.plan import Plan
from ..engines.reproductions import found_by
from ..engines.seeded import run_random
from ..findings.finding import Finding, Trace
from ..findings.interruption import interrupted_by
from ..findings.words import plural, trace_lines
from ..findings.writing import told_if_lost
from ..page.beside import Kept, page_beside
from ..page.files import pair_command
from ..reports.progress import progress
from ..reports.summary import Summary
from ..reports.tables import Section
from ..runs.pair import Pair, Strictness
from ..targets.base import TargetUnavailableError
from ..traces.reproduction import base_name
from ..traces.shrink import NotReproducedError, shrink
from ..traces.trace_file import FoundWhat, TraceFile, write_trace

SHRINK_SECONDS = 20.0
"""For each situation."""


@dataclass(frozen=True)
class Situation:
    """One way in which they differ."""

    finding: Finding
    trace: Trace
    times: int
    """Runs that ended with it."""

    def lines(self) -> list[str]:
        """The trace and what it shows, for a person."""
        return [*trace_lines(self.trace.shape, self.trace.operations), "", str(self.finding)]

    def as_json(self) -> dict[str, Any]:
        """The same as JSON-ready data, without the trace."""
        what, where = self.finding.kind
        counts = {"runs": self.times, "operations": len(self.trace.operations)}
        return {"situation": what, "operation": where, **counts, "text": str(self.finding)}


@dataclass
class Comparison:
    """All of them, as strictly as declared."""

    strictness: Strictness
    summary: Summary
    situations: list[Situation] = field(default_factory=list)
    """The most frequent first."""

    def table(self) -> Section:
        """A row for each situation."""
        rows = tuple((*one.finding.kind, f"{one.times:,}", str(len(one.trace.operations))) for one in self.situations)
        title = f"Compared by {self.strictness.value}: {plural(self.summary.runs, 'run')}, each to its first difference"
        columns = ("second against first", "operation", "runs", "shrunk to")
        return Section(title, columns, rows or (("alike", "", "", ""),))

    def as_json(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "compared": self.strictness.value,
            "runs": self.summary.runs,
            "operations": self.summary.operations,
            "seconds": round(self.summary.seconds, 1),
            "situations": [one.as_json() for one in self.situations],
        }


@dataclass(frozen=True)
class Differences:
    """What came of comparing two targets, at every strictness."""

    pair: Pair
    comparisons: tuple[Comparison, ...]

    @property
    def situations(self) -> list[Situation]:
        """Those of all comparisons; they behave alike if there are none."""
        return [situation for comparison in self.comparisons for situation in comparison.situations]

    def headline(self) -> str:
        """One line: what was run and how much of it."""
        operations = sum(comparison.summary.operations for comparison in self.comparisons)
        seconds = sum(comparison.summary.seconds for comparison in self.comparisons)
        return f"{self.pair.name}: {plural(operations, 'operation')} on both, {seconds:.1f} s"

    def verdict(self) -> str:
        """One line: in how many situations they differ."""
        found = len([one for one in self.situations if not one.finding.is_our_bug])
        ended = f"; ended by {interrupted_by()}" if self.interrupted else ""
        if bugs := len(self.situations) - found:
            ended = f"; {plural(bugs, 'bug')} of blockproof came up, so not all was compared{ended}"
        alike = "no difference was found" if bugs else "they behave alike"
        return (f"they differ in {plural(found, 'situation')}" if found else alike) + ended

    @property
    def exit_code(self) -> int:
        """1 if they differ, 70 if only blockproof has failed, 130 if interrupted before that; else 0."""
        codes = [one.finding.exit_code for one in self.situations]
        return min(codes) if codes else 130 if self.interrupted else 0

    @property
    def interrupted(self) -> bool:
        """True if Ctrl-C ended the comparison."""
        return any(comparison.summary.interrupted for comparison in self.comparisons)

    def tables(self) -> Iterator[Section]:
        """One for each strictness."""
        return (comparison.table() for comparison in self.comparisons)

    def as_json(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "first": self.pair.first.name,
            "second": self.pair.second.name,
            "not_compared": sorted(self.pair.hides | self.pair.lacks),
            "comparisons": [comparison.as_json() for comparison in self.comparisons],
        }

    def keep(self, folder: Path, seed: int) -> None:
        """Write the smallest trace of each situation to a folder, with the page of it."""
        first, second = self.pair.first, self.pair.second
        for one in self.situations:
            file, path = keep_trace(folder, one.finding, one.trace, second.name, seed, compared_with=first.name)
            page_beside(file, second, None, Kept(path, pair_command(path, (first.name, second.name))), other=first)


def keep_trace(
    folder: Path, finding: Finding, trace: Trace, target: str, seed: int, *, compared_with: str | None = None
) -> tuple[TraceFile, Path]:
    """Write a trace and what it shows to a folder, which is made if it is missing. Returns what was written, and where.

    `compared_with`: the first of two targets, for a trace that shows how they differ.
    """
    file = TraceFile(trace, target, FoundWhat.of(finding), found_by("random", seed), compared_with=compared_with)
    path = folder / f"{base_name(file)}.json"
    with told_if_lost():
        write_trace(file, path)
    return file, path


def compare_targets(pair: Pair, plan: Plan, shrink_seconds: float | None = None) -> Differences:
    """Compare at every strictness, each for its share of the limits. Ctrl-C ends it with what there is so far.

    `shrink_seconds`: for the smallest traces of all situations together; by default `SHRINK_SECONDS` for each.
    """
    share = share_of(plan, 1 / len(Strictness))
    comparisons: list[Comparison] = []
    for number, strictness in enumerate(Strictness):
        if not Differences(pair, tuple(comparisons)).interrupted:
            seconds = None if shrink_seconds is None else shrink_seconds / (len(Strictness) - number)
            begin = time.monotonic()
            comparisons.append(compare(pair, strictness, share, seconds))
            if shrink_seconds is not None:
                used = time.monotonic() - begin - comparisons[-1].summary.seconds
                shrink_seconds = max(0.0, shrink_seconds - used)
    return Differences(pair, tuple(comparisons))


def share_of(plan: Plan, share: float) -> Plan:
    """The plan with this share of its limits."""
    exact = Fraction(share).limit_denominator(1000)  # a limit may be larger than any float
    operations = plan.operations and ceil(plan.operations * exact)
    return replace(plan, seconds=plan.seconds and plan.seconds * share, operations=operations)


def compare(pair: Pair, strictness: Strictness, plan: Plan, shrink_seconds: float | None = None) -> Comparison:
    """Run the plan, and shrink the shortest trace of each situation. Ctrl-C ends it with what there is so far."""
    both = replace(pair, strictness=strictness)
    comparison = Comparison(strictness, Summary(both.name, "random", plan.seed, oracles=()))
    with progress(plan.seconds, plan.operations, title=strictness.value) as show:
        try:
            run_random(
                both,
                replace(plan, oracles=(), keep_going=True),
                comparison.summary,
                lambda so_far: show(so_far.runs, so_far.operations, so_far.seconds),
            )
        except KeyboardInterrupt:
            comparison.summary.interrupted = True
    ranked, end = comparison.summary.ranked(), time.monotonic() + (shrink_seconds or 0.0)
    for number, found in enumerate(ranked):
        situation = Situation(found.finding, found.trace, found.times)
        if not comparison.summary.interrupted:
            left = None if shrink_seconds is None else max(0.0, end - time.monotonic())
            most = SHRINK_SECONDS if left is None else min(SHRINK_SECONDS, left / (len(ranked) - number))
            situation, comparison.summary.interrupted = _smallest(situation, both, most)
        comparison.situations.append(situation)
    return comparison


def _smallest(situation: Situation, pair: Pair, seconds: float) -> tuple[Situation, bool]:
    """The situation with a shrunk trace, and whether Ctrl-C ended the shrinking."""
    try:
        small = shrink(situation.trace, situation.finding.kind, pair, max_seconds=seconds)
    except NotReproducedError:
        return situation, False
    except TargetUnavailableError:
        raise
    except Exception as error:
        print(f"blockproof: not shrunk, by a bug of blockproof: {type(error).__name__}: {error}", file=sys.stderr)
        return situation, False
    return Situation(small.finding, small.trace, situation.times), small.interrupted
