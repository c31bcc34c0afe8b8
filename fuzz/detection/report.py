"""What a benchmark came to: lines for a terminal, a page in Markdown, JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from ..findings.words import plural
from ..reports.detection import TAG
from .runs import Bench
from .settings import Setting
from .statistics import Curve, Difference, Overall, compared, curve_of, overall
from .trials import Trial

VERSION = 1
LATE = 0.05
"""A fault is late if its mean is at least this share of the budget: the tables of a page name these and differences."""


class File(msgspec.Struct):
    """What is read of a JSON that this wrote: trials that need not be made again."""

    detection: int
    trials: list[Trial] = []


@dataclass(frozen=True)
class Side:
    """One setting of a benchmark."""

    setting: Setting
    trials: Mapping[str, Sequence[Trial]]
    """By fault."""
    curves: Mapping[str, Curve]

    @property
    def found(self) -> int:
        """Trials in which the fault was found within the budget."""
        return sum(curve.found for curve in self.curves.values())

    @property
    def hit_share(self) -> float:
        """Hits among the lookups of all trials."""
        every = [trial for trials in self.trials.values() for trial in trials]
        return sum(trial.hits for trial in every) / max(1, sum(trial.lookups for trial in every))

    @property
    def rate(self) -> float:
        """Operations a processor second."""
        every = [trial for trials in self.trials.values() for trial in trials]
        return sum(trial.operations for trial in every) / max(1e-9, sum(trial.seconds for trial in every))


class Results:
    """All sides of a benchmark; the others are held against the last one, if there are several."""

    def __init__(self, bench: Bench, trials: Sequence[Trial]) -> None:
        self.bench = bench
        self.sides = [self._side(setting, trials) for setting in bench.settings]
        self.base = self.sides[-1] if len(self.sides) > 1 else None
        self.others = self.sides[:-1] if self.base else []

    def _side(self, setting: Setting, trials: Sequence[Trial]) -> Side:
        of = {fault.name: self.bench.of(trials, setting.name, fault.name) for fault in self.bench.faults}
        return Side(setting, of, {name: curve_of(ours, self.bench.budget) for name, ours in of.items()})

    def overall(self, side: Side) -> Overall:
        """A side against the base."""
        assert self.base is not None
        return overall(side.trials, self.base.trials, self.bench.budget)

    def differences(self, side: Side) -> dict[str, Difference]:
        """A side against the base, by fault."""
        assert self.base is not None
        return {name: compared(ours, self.base.trials[name], self.bench.budget) for name, ours in side.trials.items()}

    def is_worse(self) -> bool:
        """True if some side is worse than the base."""
        return any(self.overall(side).verdict == "worse" for side in self.others)

    def latest(self) -> list[str]:
        """Names of the faults, those that the last side finds latest first."""
        last = self.sides[-1]
        return sorted(last.curves, key=lambda name: (-last.curves[name].mean, name))

    def as_json(self) -> dict[str, Any]:
        """JSON-ready."""
        bench = self.bench
        sides = [
            {
                "setting": side.setting.name,
                "describe": side.setting.describe,
                "found": side.found,
                "hit_share": round(side.hit_share, 4),
                "operations_per_second": round(side.rate),
                "curves": {name: asdict(curve) for name, curve in side.curves.items()},
            }
            for side in self.sides
        ]
        comparisons = [
            {
                "setting": side.setting.name,
                "against": self.base.setting.name if self.base else "",
                "verdict": self.overall(side).verdict,
                **asdict(self.overall(side)),
                "faults": {name: asdict(one) for name, one in self.differences(side).items()},
            }
            for side in self.others
        ]
        return {
            "document": TAG,
            "detection": VERSION,
            "budget": asdict(bench.budget),
            "seeds": [*bench.seeds],
            "sides": sides,
            "comparisons": comparisons,
            "trials": [
                msgspec.to_builtins(trial) for side in self.sides for of in side.trials.values() for trial in of
            ],
        }

    def summary_rows(self) -> list[list[str]]:
        """Of each side: name, found, hits, rate; against the base: ratio, A12, p over seeds, over faults, verdict."""
        rows = []
        for side in self.sides:
            total = sum(curve.trials for curve in side.curves.values())
            row = [side.setting.name, f"{side.found:,} of {total:,}", f"{side.hit_share:.1%}", f"{side.rate:,.0f}"]
            if side is not self.base and self.base is not None:
                result = self.overall(side)
                ps = [_p(result.p_seeds), _p(result.p_faults)]
                row += [f"{result.ratio:.2f}", f"{result.effect:.2f}", *ps, result.verdict]
            rows.append(row + [""] * (9 - len(row)))
        return rows

    def fault_rows(self, side: Side) -> list[list[str]]:
        """Of each fault that is late, or differs: by the side, by the base, and how they compare."""
        assert self.base is not None
        differences, rows = self.differences(side), []
        for name in self.latest():
            ours, theirs, one = side.curves[name], self.base.curves[name], differences[name]
            if max(ours.mean, theirs.mean) < LATE * self.bench.budget.size and one.p >= 0.01:
                continue
            found = [f"{curve.found} of {curve.trials}" for curve in (theirs, ours)]
            means = [self.amount(curve.mean) for curve in (theirs, ours)]
            row = [name, found[0], means[0], found[1], means[1], f"{one.effect:.2f}", _p(one.p), _p(one.log_rank)]
            rows.append(row)
        return rows

    def alone_rows(self) -> list[list[str]]:
        """Of each fault that is late, for a benchmark of one setting."""
        (side,) = self.sides
        curves = [(name, side.curves[name]) for name in self.latest()]
        late = LATE * self.bench.budget.size
        return [
            [name, f"{one.found} of {one.trials}", self.amount(one.mean)] for name, one in curves if one.mean >= late
        ]

    def amount(self, number: float) -> str:
        """So many operations or seconds, as a cell shows them."""
        return f"{number:,.0f}" if self.bench.budget.operations else f"{number:.2f}"

    def head(self) -> str:
        """What was done, in a sentence."""
        bench, unit = self.bench, "operations" if self.bench.budget.operations else "processor seconds"
        faults, seeds = plural(len(bench.faults), "fault"), plural(len(bench.seeds), "seed")
        return f"{faults} over {seeds}, each for at most {bench.budget.size:,g} {unit}"


SUMMARY = ["setting", "found", "hits", "op/s", "ratio", "A12", "p (seeds)", "p (faults)", "verdict"]
FAULTS = ["fault", "found", "mean", "found", "mean", "A12", "p", "log-rank p"]


def lines(results: Results) -> list[str]:
    """For a terminal."""
    told = [results.head(), "", *_columns(SUMMARY, results.summary_rows())]
    if results.base is None:
        return [*told, "", *_columns(["late fault", "found", "mean"], results.alone_rows())]
    for side in results.others:
        told += ["", f"{side.setting.name} (right) against {results.base.setting.name} (left)"]
        told += _columns(FAULTS, results.fault_rows(side))
    return told


def markdown(results: Results, command: str) -> str:
    """The page."""
    base = results.base
    parts = [PAGE_HEAD.format(command=command, head=results.head()), "## The settings\n"]
    parts.append("\n".join(f"- `{side.setting.name}`: {side.setting.describe}" for side in results.sides) + "\n")
    parts += ["## Overall\n", READING if base else "", _table(SUMMARY, results.summary_rows())]
    if base is None:
        parts += ["## Late faults\n", _table(["fault", "found", "mean"], results.alone_rows())]
    for side in results.others:
        assert base is not None
        parts += [f"## {side.setting.name} against {base.setting.name}\n"]
        parts.append(f"First `{base.setting.name}`, then `{side.setting.name}`; only faults that one of them finds")
        parts.append("late, or sooner than the other (p < 0.01).\n")
        parts.append(_table(FAULTS, results.fault_rows(side)))
    return "\n".join(parts)


PAGE_HEAD = """\
# How soon planted faults are found

Written by

`{command}`.

{head}. A trial ends when the fault is found, or at that
budget: its time is then censored. The mean is the restricted mean of the Kaplan-Meier curve, the area below
it up to the budget. `blockproof report` draws the curves of the JSON. All statistics are SciPy's, as
FuzzBench, Magma and Klees et al. (*Evaluating Fuzz Testing*) recommend: many seeds, a test that assumes no
distribution, an effect size. How to read it: [the guide](../guide/detection.md).
"""
READING = """\
`ratio` is the geometric mean over all faults of the means, below 1 the setting is sooner; A12 (Vargha and
Delaney) is how often a trial of it is sooner than one of the last setting, 0.5 is no difference. p over
seeds: Mann-Whitney U of the mean logarithm of the times of each seed, which decides the verdict (p < 0.01);
p over faults: Wilcoxon's test of the A12 of all faults. `hits` are of all lookups; `op/s` operations a
processor second, on a machine that others used too.
"""


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    every = [head, *rows]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in every]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    marks = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, marks, *rows)) + "\n"
