"""What a benchmark came to: lines for a terminal, a page in Markdown, JSON; and which of two settings is sooner.

Whether that is chance is asked as FuzzBench, Magma and Klees et al. do it. Times are operations or processor seconds
until a fault was found. What was not found within the budget is censored there. All statistics are SciPy's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from typing import Any

import msgspec

from ..findings.words import plural
from ..reports.detection import TAG
from .runs import TrialBench
from .trials import Setting, Trial, TrialBudget

NO_CHANCE = 0.01
"""A difference that chance makes less often than this is one."""


@dataclass(frozen=True)
class Curve:
    """How soon a fault is found by one setting."""

    found: int
    trials: int
    mean: float
    """Restricted mean: the area below the survival curve, up to the budget."""
    steps: tuple[tuple[float, float], ...]
    """The Kaplan-Meier curve: from each time on, the share of trials in which it is still not found."""


@dataclass(frozen=True)
class Difference:
    """A setting against another."""

    effect: float
    """Vargha-Delaney A12: how often a trial of the setting is sooner than one of the other; 0.5 is no difference."""
    p: float
    """Mann-Whitney U, both sides."""
    log_rank: float
    """p of the log-rank test, which knows of censored trials; 1 if there is nothing to compare."""


@dataclass(frozen=True)
class Overall:
    """A setting against another, over all faults."""

    effect: float
    """The mean of A12 over the faults."""
    ratio: float
    """The geometric mean, over the faults, of restricted mean by restricted mean: below 1 the setting is sooner."""
    p_faults: float
    """Wilcoxon signed-rank test over the faults, of A12 against 0.5."""
    p_seeds: float
    """Mann-Whitney U over the seeds, of the mean logarithm of the times of all faults: all faults of a seed meet the
    same runs, so a seed is what is independent of others."""

    @property
    def verdict(self) -> str:
        """`better`, `worse` or `no difference`."""
        if self.p_seeds >= NO_CHANCE:
            return "no difference"
        return "better" if self.ratio < 1 else "worse"


def require_scipy() -> Any:
    """The statistics of SciPy. ValueError, with the extra to install, where there is none."""
    try:
        from scipy import stats
    except ImportError:
        raise ValueError("needs SciPy: pip install '/path/to/blockproof[bench]'") from None
    return stats


def curve_of(trials: Sequence[Trial], budget: TrialBudget) -> Curve:
    """The survival curve of one fault."""
    stats = require_scipy()
    spent = [trial.spent(budget) for trial in trials]
    found = [time for is_found, time in spent if is_found]
    if not found:
        return Curve(0, len(spent), budget.size, ((0.0, 1.0),))
    function = stats.ecdf(_censored(spent)).sf
    times, shares = [float(one) for one in function.quantiles], [float(one) for one in function.probabilities]
    steps = [(0.0, 1.0), *zip(times, shares, strict=True)]
    ends = [*(time for time, _ in steps[1:]), budget.size]
    mean = sum((min(end, budget.size) - time) * share for (time, share), end in zip(steps, ends, strict=True))
    return Curve(len(found), len(spent), mean, tuple(steps))


def compared(ours: Sequence[Trial], theirs: Sequence[Trial], budget: TrialBudget) -> Difference:
    """One fault by two settings."""
    stats = require_scipy()
    one, other = ([trial.spent(budget) for trial in trials] for trials in (ours, theirs))
    a, b = [time for _, time in one], [time for _, time in other]
    if len({*a, *b}) == 1:
        return Difference(0.5, 1.0, 1.0)
    test = stats.mannwhitneyu(a, b, alternative="two-sided")
    events = any(found for found, _ in (*one, *other))
    log_rank = float(stats.logrank(_censored(one), _censored(other)).pvalue) if events else 1.0
    return Difference(1 - float(test.statistic) / (len(a) * len(b)), _number(test.pvalue), _number(log_rank))


def overall(ours: Mapping[str, Sequence[Trial]], theirs: Mapping[str, Sequence[Trial]], budget: TrialBudget) -> Overall:
    """All faults, each by two settings."""
    stats = require_scipy()
    effects = [compared(ours[fault], theirs[fault], budget).effect for fault in ours]
    means = [[max(budget.least, curve_of(of[fault], budget).mean) for fault in ours] for of in (ours, theirs)]
    ratios = [one / other for one, other in zip(*means, strict=True)]
    apart = [effect - 0.5 for effect in effects if effect != 0.5]
    p_faults = _number(stats.wilcoxon(apart).pvalue) if apart else 1.0
    a, b = _by_seed(ours, budget), _by_seed(theirs, budget)
    p_seeds = 1.0 if len({*a, *b}) == 1 else _number(stats.mannwhitneyu(a, b, alternative="two-sided").pvalue)
    ratio = exp(sum(map(log, ratios)) / len(ratios))
    return Overall(sum(effects) / len(effects), ratio, p_faults, p_seeds)


def _by_seed(trials: Mapping[str, Sequence[Trial]], budget: TrialBudget) -> list[float]:
    """Of each seed the mean logarithm of its times."""
    times: dict[int, list[float]] = {}
    for of_fault in trials.values():
        for trial in of_fault:
            times.setdefault(trial.seed, []).append(log(max(trial.spent(budget)[1], budget.least)))
    return [round(sum(ours) / len(ours), 12) for ours in times.values()]


def _censored(spent: Sequence[tuple[bool, float]]) -> Any:
    stats = require_scipy()
    found = [time for is_found, time in spent if is_found]
    return stats.CensoredData(uncensored=found, right=[time for is_found, time in spent if not is_found])


def _number(p: float) -> float:
    """A p that could not be computed, since nothing differs, is 1."""
    return 1.0 if p != p else float(p)


VERSION = 1
LATE = 0.05
"""A fault is late if its mean is at least this share of the budget: the tables of a page name these and differences."""


class File(msgspec.Struct):
    """What is read of a JSON that this wrote: trials that need not be made again."""

    detection: int
    trials: list[Trial] = []


@dataclass(frozen=True)
class SettingResults:
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

    def __init__(self, bench: TrialBench, trials: Sequence[Trial]) -> None:
        self.bench = bench
        self.sides = [self._side(setting, trials) for setting in bench.settings]
        self.base = self.sides[-1] if len(self.sides) > 1 else None
        self.others = self.sides[:-1] if self.base else []

    def _side(self, setting: Setting, trials: Sequence[Trial]) -> SettingResults:
        of = {fault.name: self.bench.of(trials, setting.name, fault.name) for fault in self.bench.faults}
        return SettingResults(setting, of, {name: curve_of(ours, self.bench.budget) for name, ours in of.items()})

    def overall(self, side: SettingResults) -> Overall:
        """A side against the base."""
        assert self.base is not None
        return overall(side.trials, self.base.trials, self.bench.budget)

    def differences(self, side: SettingResults) -> dict[str, Difference]:
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

    def fault_rows(self, side: SettingResults) -> list[list[str]]:
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
