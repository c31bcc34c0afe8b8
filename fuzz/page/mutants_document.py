"""What `mutants --json` prints as the document of a page: each planted fault, and what has seen it."""

from collections.abc import Sequence

import msgspec

from ..findings.words import plural
from .chart import Chart, Series, series
from .document import VERSION, ReportDocument, Table

LEAST_S = 0.01
"""Times are told to this precision; a shorter one has no place on a logarithmic axis."""


class HuntRow(msgspec.Struct):
    """One planted fault."""

    fault: str
    found: bool
    expected: list[str] = []
    observable: str | None = None
    operation: str | None = None
    operations: int = 0
    seconds: float = 0.0
    shrunk_to: int | None = None
    oracle: str = ""


def mutants_document(rows: Sequence[HuntRow], title: str) -> ReportDocument:
    """The page of a hunt for planted faults; those that were missed come first."""
    missed = [row for row in rows if not row.found]
    figures = [["faults", f"{len(rows):,}"], ["found", f"{len(rows) - len(missed):,}"], ["missed", f"{len(missed):,}"]]
    head = f"{plural(len(rows), 'fault')} planted one after the other"
    verdict = f"{plural(len(missed), 'fault')} missed" if missed else f"all {len(rows)} found"
    document = ReportDocument(VERSION, title, head, verdict, "bad" if missed else "good", figures)
    ordered = sorted(rows, key=lambda row: (row.found, row.fault))
    document.charts = [
        _found_by(rows, [float(row.operations) for row in rows], "operations until it was found"),
        _found_by(rows, [max(row.seconds, LEAST_S) for row in rows], "time until it was found, seconds"),
    ]
    document.tables = [_faults(ordered), _seen_by(rows)]
    return document


def _found_by(rows: Sequence[HuntRow], took: Sequence[float], what: str) -> Chart:
    """The detection curve: for all faults, and for each oracle those that it has found; `took` is one number a row."""
    found = [(at, row.oracle) for row, at in zip(rows, took, strict=True) if row.found]
    oracles = sorted({oracle for _, oracle in found if oracle})
    lines = [("all", [at for at, _ in found])]
    lines += [(f"by {name}", [at for at, oracle in found if oracle == name]) for name in oracles]
    end, share = max(took, default=0.0), 100 / max(1, len(rows))
    missed = len(rows) - len(found)
    return Chart(
        f"Planted faults found, by {what.partition(' ')[0]}",
        what,
        f"of {plural(len(rows), 'fault')}, %",
        [_share(name, times, end, share) for name, times in lines],
        log_x=True,
        steps=True,
        note=f"{plural(missed, 'fault')} missed: the line of all ends below 100 %." if missed else "",
    )


def _share(name: str, times: Sequence[float], end: float, share: float) -> Series:
    """How much of all was found by each time, up to the end."""
    points = [(at, round(share * number, 2)) for number, at in enumerate(sorted(times), 1)]
    return series(name, [*points, (end, points[-1][1])] if points else [])


def _faults(rows: Sequence[HuntRow]) -> Table:
    columns = ["fault", "seen as", "meant for", "operations until then", "shrunk to"]
    table = Table("Planted faults", columns, [], marks=["" if row.found else "bad" for row in rows])
    for row in rows:
        seen = f"{row.observable} at {row.operation}" if row.found else "not found"
        small = "" if row.shrunk_to is None else str(row.shrunk_to)
        table.rows.append([row.fault, seen, ", ".join(row.expected), f"{row.operations:,}", small])
    return table


def _seen_by(rows: Sequence[HuntRow]) -> Table:
    """Faults by what they have shown as."""
    names = sorted({row.observable for row in rows if row.found and row.observable})
    lines = [(name, [row.fault for row in rows if row.found and row.observable == name]) for name in names]
    lines.sort(key=lambda line: -len(line[1]))
    shown = [[name, str(len(faults)), ", ".join(faults)] for name, faults in lines]
    return Table("Faults by what has seen them", ["seen as", "faults", "which"], shown)
