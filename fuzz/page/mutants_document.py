"""What `mutants --json` prints as the document of a page: each planted fault, and what has seen it."""

from collections.abc import Sequence

import msgspec

from ..findings.words import plural
from .document import VERSION, ReportDocument, Table


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


def mutants_document(rows: Sequence[HuntRow], title: str) -> ReportDocument:
    """The page of a hunt for planted faults; those that were missed come first."""
    missed = [row for row in rows if not row.found]
    figures = [["faults", f"{len(rows):,}"], ["found", f"{len(rows) - len(missed):,}"], ["missed", f"{len(missed):,}"]]
    head = f"{plural(len(rows), 'fault')} planted one after the other"
    verdict = f"{plural(len(missed), 'fault')} missed" if missed else f"all {len(rows)} found"
    document = ReportDocument(VERSION, title, head, verdict, "bad" if missed else "good", figures)
    ordered = sorted(rows, key=lambda row: (row.found, row.fault))
    document.tables = [_faults(ordered), _seen_by(rows)]
    return document


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
