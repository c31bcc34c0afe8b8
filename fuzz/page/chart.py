"""Charts of a page: lines and steps over an axis, typed, with what makes one worth drawing."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

MOST_POINTS = 400
"""Points that a line of a chart keeps (`series`); more cannot be told apart on a screen."""

LEAST, MOST = 1e-12, 1e15
"""Between these, and 0, lie the numbers that can be drawn, whatever their sign: farther out a browser does not tell
neighbours apart."""


class ChartError(ValueError):
    """Numbers that no chart can be drawn from. The text is one line."""


class Series(msgspec.Struct):
    """A line of a chart; `xs` increase, and `ys` has a number for each of them."""

    name: str
    xs: list[float]
    ys: list[float]


class Chart(msgspec.Struct, omit_defaults=True):
    """Lines over one axis. Without a point in any of them the page says that nothing was recorded."""

    title: str
    x: str
    """What the axis below stands for, with its unit: `time, seconds`."""
    y: str
    """The same for the axis on the left."""
    series: list[Series]
    log_x: bool = False
    """Logarithmic; points at or below 0 are then in the table alone."""
    log_y: bool = False
    steps: bool = False
    """True if a value holds until the next point, as a count does; otherwise points are joined by straight lines."""
    note: str = ""
    """What is to be known in order to read it, in a sentence."""


def series(name: str, points: Iterable[tuple[float, float]]) -> Series:
    """A line through these points, in their order, with the last of those at one x; thinned to `MOST_POINTS`, the first
    and the last point kept. ChartError as from `check`, so if an x is below the one before it."""
    kept = list({float(x): float(y) for x, y in points}.items())
    if len(kept) > MOST_POINTS:
        last = len(kept) - 1
        kept = [kept[place * last // (MOST_POINTS - 1)] for place in range(MOST_POINTS)]
    made = Series(name, [x for x, _ in kept], [y for _, y in kept])
    check([Chart("", "", "", [made])])
    return made


def check(charts: Sequence[Chart]) -> None:
    """ChartError if a chart cannot be drawn: a line has not one y for each x, a number is not finite or
    lies too far out, or an x does not lie behind the one before it; if a chart has two lines of one name."""
    for chart in charts:
        names = [line.name for line in chart.series]
        if len(set(names)) < len(names):
            raise ChartError(f"chart {chart.title!r}: two lines have one name")
        for line in chart.series:
            where = f"chart {chart.title!r}, {line.name!r}"
            if len(line.xs) != len(line.ys):
                raise ChartError(f"{where}: {len(line.xs)} places, and {len(line.ys)} values for them")
            if not all(value == 0 or LEAST <= abs(value) <= MOST for value in [*line.xs, *line.ys]):
                raise ChartError(f"{where}: a number is not finite, or too large or too small to be drawn")
            if any(after <= before for before, after in pairwise(line.xs)):
                raise ChartError(f"{where}: its places do not increase")
