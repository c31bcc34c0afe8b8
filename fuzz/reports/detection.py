"""How soon faults are found by each setting, as a document: what `mutants --against --json` prints."""

from collections.abc import Sequence

import msgspec

from ..findings.words import plural
from .charts import Chart, Series, series
from .document import Lead, ResultDocument, Table

TAG = "detection"

CHARTS = 8
"""Faults that have a chart of their own: those that are found latest."""


class CurveRow(msgspec.Struct):
    """How soon a fault is found by one setting."""

    found: int
    trials: int
    mean: float
    steps: list[tuple[float, float]] = []
    """From each time on, the share of trials in which it is still not found."""


class SideRow(msgspec.Struct):
    """One setting."""

    setting: str
    describe: str = ""
    found: int = 0
    curves: dict[str, CurveRow] = {}


class DifferenceRow(msgspec.Struct):
    """One fault by two settings."""

    effect: float
    p: float
    log_rank: float = 1.0


class ComparisonRow(msgspec.Struct):
    """One setting against another."""

    setting: str
    against: str
    verdict: str
    effect: float
    ratio: float
    p_seeds: float
    p_faults: float
    faults: dict[str, DifferenceRow] = {}


class BudgetRow(msgspec.Struct):
    """How long a fault was looked for."""

    operations: int | None = None
    seconds: float | None = None


class DetectionDocument(ResultDocument, tag=TAG):
    """The JSON of a benchmark, as far as it is shown: survival curves, and the tests. The trials are left out."""

    detection: int
    """Version of the trials."""
    budget: BudgetRow
    seeds: list[int] = []
    sides: list[SideRow] = []
    comparisons: list[ComparisonRow] = []

    @property
    def faults(self) -> list[str]:
        """Their names, those that are found latest first."""
        names = sorted({name for side in self.sides for name in side.curves})
        return sorted(names, key=lambda name: -max(_mean(side, name) for side in self.sides))

    def lead(self) -> Lead:
        """See `ResultDocument`."""
        figures = [("faults", f"{len(self.faults):,}"), ("seeds", f"{len(self.seeds):,}")]
        figures += [(f"found, {side.setting}", f"{side.found:,}") for side in self.sides]
        said = [f"{one.setting} against {one.against}: {one.verdict}" for one in self.comparisons]
        mood = "bad" if any(one.verdict == "worse" for one in self.comparisons) else "good"
        headline = f"{plural(len(self.faults), 'planted fault')} over {plural(len(self.seeds), 'seed')}"
        return Lead(headline, "; ".join(said) or "one setting alone", mood, figures)

    def charts(self) -> list[Chart]:
        """See `ResultDocument`."""
        unit = "operations" if self.budget.operations else "processor seconds"
        end = float(self.budget.operations or self.budget.seconds or 0)
        latest = self.faults[:CHARTS]
        return [
            _all_faults(self, sorted(self.faults), unit, end),
            *(_one_fault(self, name, unit, end) for name in latest),
        ]

    def tables(self) -> Sequence[Table]:
        """See `ResultDocument`."""
        return _overall(self), *(_faults(self, one, self.faults) for one in self.comparisons)


def _mean(side: SideRow, fault: str) -> float:
    return side.curves[fault].mean if fault in side.curves else 0.0


def _all_faults(file: DetectionDocument, faults: list[str], unit: str, end: float) -> Chart:
    lines = []
    for side in file.sides:
        falls = [fall for name in faults if name in side.curves for fall in _falls(side.curves[name])]
        lines.append(_line(side.setting, falls, end, max(1, len(side.curves))))
    return Chart(
        "Trials of all faults in which nothing is found yet",
        f"{unit} so far",
        "share, %",
        lines,
        log_x=True,
        steps=True,
    )


def _one_fault(file: DetectionDocument, fault: str, unit: str, end: float) -> Chart:
    lines = [_line(side.setting, _falls(side.curves[fault]), end, 1) for side in file.sides if fault in side.curves]
    return Chart(fault, f"{unit} so far", "not found yet, %", lines, log_x=True, steps=True)


def _falls(curve: CurveRow) -> list[tuple[float, float]]:
    """At which time by how much a curve falls."""
    falls, before = [], 1.0
    for time, share in curve.steps:
        falls.append((time, before - share))
        before = share
    return falls


def _line(name: str, falls: list[tuple[float, float]], end: float, curves: int) -> Series:
    points, left = [(0.0, 100.0)], 100.0
    for time, fall in sorted(falls):
        left = max(0.0, left - 100 * fall / curves)
        points.append((time, round(left, 2)))
    points += [(end, points[-1][1])] if points[-1][0] < end else []
    return series(name, points)


def _overall(file: DetectionDocument) -> Table:
    columns = ["setting", "against", "verdict", "ratio of means", "A12", "p over seeds", "p over faults"]
    rows = [
        [
            one.setting,
            one.against,
            one.verdict,
            f"{one.ratio:.2f}",
            f"{one.effect:.2f}",
            f"{one.p_seeds:.3g}",
            f"{one.p_faults:.3g}",
        ]
        for one in file.comparisons
    ]
    marks = [{"worse": "bad", "better": "good"}.get(one.verdict, "") for one in file.comparisons]
    return Table("Setting against setting", columns, rows, "A12 over 0.5: the first is mostly sooner.", marks)


def _faults(file: DetectionDocument, one: ComparisonRow, latest: list[str]) -> Table:
    sides = {side.setting: side for side in file.sides}
    pair = [sides[name] for name in (one.against, one.setting) if name in sides]
    columns = [
        "fault",
        *(f"{what}, {side.setting}" for side in pair for what in ("found", "mean")),
        "A12",
        "p",
        "log-rank p",
    ]
    rows = []
    for name in latest:
        cells = [[f"{c.found} of {c.trials}", f"{c.mean:,.4g}"] for side in pair if (c := side.curves.get(name))]
        if name in one.faults and len(cells) == len(pair):
            by = one.faults[name]
            rows.append(
                [
                    name,
                    *(cell for both in cells for cell in both),
                    f"{by.effect:.2f}",
                    f"{by.p:.3g}",
                    f"{by.log_rank:.3g}",
                ]
            )
    return Table(f"{one.setting} against {one.against}", columns, rows)
