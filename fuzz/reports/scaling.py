"""What an operation costs as something grows, as a document: what `bench --scaling --json` prints."""

from collections.abc import Sequence

import msgspec

from ..findings.words import plural
from .charts import Chart, series
from .document import Lead, ResultDocument, Table


class ScalingRow(msgspec.Struct):
    """One operation along an axis."""

    axis: str
    operation: str
    ns: dict[str, list[tuple[float, float]]]
    """By core: size and nanoseconds."""
    words: str = ""
    """What the axis counts."""
    per: str = ""
    """What the time is of."""


class ScalingDocument(ResultDocument, tag="scaling"):
    """All curves: a chart for each operation and axis."""

    cores: list[str]
    curves: list[ScalingRow]

    def lead(self) -> Lead:
        """See `ResultDocument`."""
        headline = f"{plural(len(self.curves), 'operation')} on {', '.join(self.cores)}"
        return Lead(headline, "how cost grows", "note", [("cores", str(len(self.cores)))])

    def notes(self) -> list[str]:
        """See `ResultDocument`."""
        return ["Processor time of a thread; compare cores with each other, not with another machine."]

    def charts(self) -> list[Chart]:
        """ChartError if sizes do not increase."""
        return [_chart(curve) for curve in self.curves]

    def tables(self) -> Sequence[Table]:
        """See `ResultDocument`."""
        return (_growth(self),)


def _chart(curve: ScalingRow) -> Chart:
    lines = [series(core, values) for core, values in curve.ns.items() if values]
    words = curve.words or curve.axis
    of = f" of a {curve.per}" if curve.per else ""
    return Chart(f"{curve.operation}, by {words}", words, f"time{of}, ns", lines, log_x=True, log_y=True)


def _growth(done: ScalingDocument) -> Table:
    """How much more the largest size costs than the smallest."""
    rows = [
        [curve.operation, curve.words or curve.axis, core, f"{values[-1][0] / values[0][0]:,.0f}", f"{grown:,.2f}"]
        for curve in done.curves
        for core, values in curve.ns.items()
        if values and values[0][0] > 0 and (grown := values[-1][1] / values[0][1] if values[0][1] > 0 else 0.0)
    ]
    columns = ["operation", "against", "core", "largest size ÷ smallest", "time ÷ time"]
    return Table("Growth from the smallest to the largest size", columns, rows)
