"""Charts of a page: lines and steps over an axis, typed, with what makes one worth drawing; and how a run went on, as
charts of throughput, situations, findings and hits over time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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


TIME = "time, seconds"
POINTS = 60
"""Intervals over which rates are taken: shorter ones show the runs one by one."""
MOST_LINES = 10
"""Lines of a chart; more cannot be told apart."""
COUNTS = ("operations", "lookups", "hits")
NO_LOOKUPS = "No lookup was made."


class HistoryLines(msgspec.Struct):
    """What is read of the history of a run (`reports.history`); lists of one length, counts since the start."""

    seconds: list[float] = []
    operations: list[int] = []
    lookups: list[int] = []
    hits: list[int] = []
    situations: dict[str, float] = {}
    """Seconds after which each came up first."""
    findings: list[float] = []
    """The same for each finding, in order."""

    @property
    def end(self) -> float:
        """Seconds that it tells of."""
        return self.seconds[-1] if self.seconds else 0.0


def checked(history: HistoryLines) -> HistoryLines:
    """The same history. ChartError if it cannot be one: lists of unequal length, time or a count that goes back, more
    hits than lookups, something that came up outside its time."""
    lines = {name: getattr(history, name) for name in COUNTS}
    check([Chart("history of the run", "", "", [Series(name, history.seconds, line) for name, line in lines.items()])])
    for name, line in lines.items():
        if any(after < before for before, after in pairwise(line)) or min(line, default=0) < 0:
            raise ChartError(f"history of the run: {name} go down")
    if any(hits > lookups for hits, lookups in zip(history.hits, history.lookups, strict=True)):
        raise ChartError("history of the run: more hits than lookups")
    first = [*history.seconds[:1], *history.findings, *history.situations.values()]
    if not all(0 <= seconds <= history.end + 0.001 for seconds in first):
        raise ChartError("history of the run: something came up when it was not running")
    return history


def history_charts(histories: Mapping[str, HistoryLines], what: str = "operations", about: str = "") -> list[Chart]:
    """Charts with a line for each history, by name; of many only the first `MOST_LINES`. `what` is counted, `about` is
    noted on charts of rates. ChartError as from `checked`."""
    shown = {name: checked(history) for name, history in list(histories.items())[:MOST_LINES]}
    left = len(histories) - len(shown)
    note = f"{left} more are left out." if left else ""
    if not histories:
        return []
    rates = [_rates(name, one) for name, one in shown.items()]
    reached = [counted(name, sorted(one.situations.values()), one.end) for name, one in shown.items()]
    found = [counted(name, one.findings, one.end) for name, one in shown.items()]
    hits = [_hits(name, one) for name, one in shown.items()]
    no_more = note or "Flat at the end: going on for longer adds little."
    of_rates = f"{about} {note}".strip()
    no_hits = of_rates if any(line.xs for line in hits) else NO_LOOKUPS
    return [
        Chart("Throughput over time", TIME, f"{what} a second", rates, steps=True, note=of_rates),
        Chart("Situations reached over time", TIME, "situations, each counted once", reached, steps=True, note=no_more),
        Chart("Findings over time", TIME, "findings, each cause once", found, steps=True, note=note),
        Chart("Lookups that hit", TIME, "hits, % of the lookups", hits, steps=True, note=no_hits),
    ]


def chained(histories: Sequence[HistoryLines]) -> HistoryLines:
    """One after the other as one history. ChartError as from `checked`."""
    whole = HistoryLines()
    for one in map(checked, histories):
        shift = whole.end
        counts = [(name, (getattr(whole, name) or [0])[-1]) for name in COUNTS]
        whole.situations |= {name: at + shift for name, at in one.situations.items() if name not in whole.situations}
        whole.findings += [at + shift for at in one.findings]
        begin = 1 if whole.seconds else 0  # it begins with what the one before it ends with
        for name, before in counts:
            getattr(whole, name).extend(before + count for count in getattr(one, name)[begin:])
        whole.seconds += [shift + seconds for seconds in one.seconds[begin:]]
    return whole


def counted(name: str, times: Sequence[float], end: float) -> Series:
    """How many there are at each time, up to the end; without a point if the time is empty."""
    if not end:
        return Series(name, [], [])
    return series(
        name, [(0.0, 0), *((at, number) for number, at in enumerate(times, 1)), (max([end, *times]), len(times))]
    )


def _rates(name: str, history: HistoryLines) -> Series:
    done, at = history.operations, history.seconds
    rates = [(at[one], at[two], (done[two] - done[one]) / (at[two] - at[one])) for one, two in _intervals(history)]
    return _held(name, [(begin, end, float(f"{rate:.4g}")) for begin, end, rate in rates])


def _hits(name: str, history: HistoryLines) -> Series:
    """The share of each interval in which anything was looked up."""
    hits, lookups, at = history.hits, history.lookups, history.seconds
    pairs = [(one, two) for one, two in _intervals(history) if lookups[two] > lookups[one]]
    shares = [(at[one], at[two], (hits[two] - hits[one]) / (lookups[two] - lookups[one])) for one, two in pairs]
    return _held(name, [(begin, end, round(100 * share, 2)) for begin, end, share in shares])


def _held(name: str, values: Sequence[tuple[float, float, float]]) -> Series:
    """Values that hold from a time to another, in order."""
    last = [(values[-1][1], values[-1][2])] if values else []
    return series(name, [*((begin, value) for begin, _, value in values), *last])


def _intervals(history: HistoryLines) -> Iterator[tuple[int, int]]:
    return pairwise(_spaced(history))


def _spaced(history: HistoryLines) -> list[int]:
    """Places of samples that are an interval apart, the last one among them."""
    places, gap = [0] if history.seconds else [], history.end / POINTS
    for place, seconds in enumerate(history.seconds):
        if seconds - history.seconds[places[-1]] >= gap and place:
            places.append(place)
    if places and places[-1] != len(history.seconds) - 1:
        places = [*places[: -1 if len(places) > 1 else None], len(history.seconds) - 1]
    return places
