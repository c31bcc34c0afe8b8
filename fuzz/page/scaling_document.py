"""What `bench --scaling --json` writes as the document of a page: what an operation costs as something grows."""

import msgspec

from ..findings.words import plural
from .chart import Chart, series
from .document import VERSION, ReportDocument, Table


class CurveRow(msgspec.Struct):
    """One operation along an axis."""

    axis: str
    operation: str
    ns: dict[str, list[tuple[float, float]]]
    """By core: size and nanoseconds."""
    words: str = ""
    """What the axis counts."""
    per: str = ""
    """What the time is of."""


class ScalingFile(msgspec.Struct):
    """All curves."""

    cores: list[str]
    curves: list[CurveRow]


def scaling_document(done: ScalingFile, title: str) -> ReportDocument:
    """The page: a chart for each operation and axis. ChartError if sizes do not increase."""
    head = f"{plural(len(done.curves), 'operation')} on {', '.join(done.cores)}"
    document = ReportDocument(VERSION, title, head, "how cost grows", "note", [["cores", str(len(done.cores))]])
    document.charts = [_chart(curve) for curve in done.curves]
    document.tables = [_growth(done)]
    document.notes = ["Processor time of a thread; compare cores with each other, not with another machine."]
    return document


def _chart(curve: CurveRow) -> Chart:
    lines = [series(core, values) for core, values in curve.ns.items() if values]
    words = curve.words or curve.axis
    of = f" of a {curve.per}" if curve.per else ""
    return Chart(f"{curve.operation}, by {words}", words, f"time{of}, ns", lines, log_x=True, log_y=True)


def _growth(done: ScalingFile) -> Table:
    """How much more the largest size costs than the smallest."""
    rows = [
        [curve.operation, curve.words or curve.axis, core, f"{values[-1][0] / values[0][0]:,.0f}", f"{grown:,.2f}"]
        for curve in done.curves
        for core, values in curve.ns.items()
        if values and values[0][0] > 0 and (grown := values[-1][1] / values[0][1] if values[0][1] > 0 else 0.0)
    ]
    columns = ["operation", "against", "core", "largest size ÷ smallest", "time ÷ time"]
    return Table("Growth from the smallest to the largest size", columns, rows)
