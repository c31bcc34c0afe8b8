"""In which situations two targets differ: found by many short comparisons, each with its smallest trace."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from pathlib import Path

from ..engines.plan import Plan
from ..engines.reproductions import found_by
from ..engines.seeded import run_random
from ..findings.finding import Finding, Trace
from ..findings.words import trace_lines
from ..findings.writing import told_if_lost
from ..page.files import pair_command
from ..page.trace_page import KeptTrace, page_beside
from ..reports.difference import CompareRow, DifferenceDocument, SituationRow
from ..reports.progress import progress
from ..reports.summary import Summary
from ..runs.judging import TooLongError
from ..runs.pair import Pair, Strictness
from ..targets.base import TargetUnavailableError
from ..traces.reproduction import base_name
from ..traces.shrink import NotReproducedError, shrink
from ..traces.trace_file import FoundWhat, TraceFile, write_trace
from .changed_rules import changed_rules

SHRINK_SECONDS = 20.0
"""For each situation."""


@dataclass(frozen=True)
class Situation:
    """One way in which they differ."""

    finding: Finding
    trace: Trace
    times: int
    """Runs that ended with it."""
    kept: KeptTrace | None = None
    """Where its trace was written."""
    rules: Sequence[str] = ()
    """What makes it (`changed_rules`)."""

    def lines(self) -> list[str]:
        """The trace and what it shows, for a person."""
        rules = [f"rule that differs: {'; or '.join(self.rules)}"] if self.rules else []
        return [*trace_lines(self.trace.shape, self.trace.operations), "", *rules, str(self.finding)]

    def row(self) -> SituationRow:
        """What a document says of it."""
        row = SituationRow(*self.finding.kind, self.times, len(self.trace.operations), str(self.finding))
        row.oracle, row.rules = self.finding.oracle, list(self.rules)
        if self.kept is not None:
            row.trace, row.command = str(self.kept.trace), self.kept.command
        return row


@dataclass
class Comparison:
    """All of them, as strictly as declared."""

    strictness: Strictness
    summary: Summary
    situations: list[Situation] = field(default_factory=list)
    """The most frequent first."""

    def row(self) -> CompareRow:
        """What a document says of it."""
        done = self.summary
        situations = [one.row() for one in self.situations]
        return CompareRow(self.strictness.value, done.runs, done.operations, round(done.seconds, 1), situations)


@dataclass(frozen=True)
class Differences:
    """What came of comparing two targets, at every strictness."""

    pair: Pair
    comparisons: tuple[Comparison, ...]

    @property
    def situations(self) -> list[Situation]:
        """Those of all comparisons; they behave alike if there are none."""
        return [situation for comparison in self.comparisons for situation in comparison.situations]

    @property
    def exit_code(self) -> int:
        """1 if they differ, 70 if only blockproof has failed, 130 if interrupted before that; else 0."""
        codes = [one.finding.exit_code for one in self.situations]
        return min(codes) if codes else 130 if self.interrupted else 0

    @property
    def interrupted(self) -> bool:
        """True if Ctrl-C ended the comparison."""
        return any(comparison.summary.interrupted for comparison in self.comparisons)

    def document(self) -> DifferenceDocument:
        """What came of it, for people and machines."""
        first, second, rows = self.pair.first.name, self.pair.second.name, [one.row() for one in self.comparisons]
        return DifferenceDocument(first, second, sorted(self.pair.hides | self.pair.lacks), rows, self.interrupted)

    def keep(self, folder: Path, seed: int) -> None:
        """Write the smallest trace of each situation to a folder, with the page of it."""
        first, second = self.pair.first, self.pair.second
        for comparison in self.comparisons:
            for place, one in enumerate(comparison.situations):
                file, path = keep_trace(folder, one.finding, one.trace, second.name, seed, compared_with=first.name)
                kept = KeptTrace(path, pair_command(path, (first.name, second.name)))
                page_beside(file, second, None, kept, other=first)
                comparison.situations[place] = replace(one, kept=kept)


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
        except TooLongError:  # what was found by then is told
            pass
    ranked, end = comparison.summary.ranked(), time.monotonic() + (shrink_seconds or 0.0)
    for number, found in enumerate(ranked):
        situation = Situation(found.finding, found.trace, found.times)
        if not comparison.summary.interrupted:
            left = None if shrink_seconds is None else max(0.0, end - time.monotonic())
            most = SHRINK_SECONDS if left is None else min(SHRINK_SECONDS, left / (len(ranked) - number))
            situation, comparison.summary.interrupted = _smallest(situation, both, most)
        rules = changed_rules(pair.first.name, pair.second.name, situation.trace)
        comparison.situations.append(replace(situation, rules=rules))
    return comparison


def _smallest(situation: Situation, pair: Pair, seconds: float) -> tuple[Situation, bool]:
    """The situation with a shrunk trace, and whether Ctrl-C ended the shrinking."""
    try:
        small = shrink(situation.trace, situation.finding.kind, pair, max_seconds=seconds)
    except (NotReproducedError, TooLongError):
        return situation, False
    except TargetUnavailableError:
        raise
    except Exception as error:
        print(f"blockproof: not shrunk, by a bug of blockproof: {type(error).__name__}: {error}", file=sys.stderr)
        return situation, False
    return Situation(small.finding, small.trace, situation.times), small.interrupted
