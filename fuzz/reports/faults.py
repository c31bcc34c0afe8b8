"""A hunt for planted faults as a document: what `mutants --json` prints, and the report of it for people."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from ..findings.words import plural
from .charts import Chart, Series, series
from .document import Lead, ResultDocument, Table

LEAST_S = 0.01
"""Times are told to this precision; a shorter one has no place on a logarithmic axis."""


class HuntRow(msgspec.Struct):
    """One planted fault: the hunt in the middle of those with several seeds."""

    fault: str
    found: bool
    expected: Sequence[str] = ()
    """Observables in one of which it should show."""
    observable: str | None = None
    operation: str | None = None
    operations: int = 0
    """Operations until it was found; of a fault in configuration answers, questions."""
    seconds: float = 0.0
    """Until it was found, shrinking not counted."""
    shrunk_to: int | None = None
    shrink_seconds: float = 0.0
    broken: str = ""
    """How the code that plants the fault failed, if it did."""
    oracle: str = ""
    processor_seconds: float = 0.0
    seed: int = 0
    bug: str | UnsetType = UNSET
    """Id of the entry in the catalogue of real bugs, if the fault stands for one."""
    link: str | UnsetType = UNSET
    seeds: list[dict[str, Any]] | UnsetType = UNSET
    """Of several seeds: what each has come to."""
    detectors: dict[str, dict[str, Any] | None] | UnsetType = UNSET
    """What each detector has come to; none for one that was not run."""


class FaultsDocument(ResultDocument, tag="faults"):
    """All faults that were hunted."""

    faults: list[HuntRow]

    def lead(self) -> Lead:
        """See `ResultDocument`."""
        count, missed = len(self.faults), sum(not row.found for row in self.faults)
        said = f"{plural(missed, 'fault')} missed" if missed else f"all {count} found"
        counts = (("faults", count), ("found", count - missed), ("missed", missed))
        figures = [(name, f"{number:,}") for name, number in counts]
        return Lead(f"{plural(count, 'fault')} planted one after the other", said, "bad" if missed else "good", figures)

    def charts(self) -> list[Chart]:
        """See `ResultDocument`."""
        rows = self.faults
        return [
            _found_by(rows, [float(row.operations) for row in rows], "operations until it was found"),
            _found_by(rows, [max(row.seconds, LEAST_S) for row in rows], "time until it was found, seconds"),
        ]

    def tables(self) -> Sequence[Table]:
        """Faults that were missed come first."""
        ordered = sorted(self.faults, key=lambda row: (row.found, row.fault))
        return _faults(ordered), _seen_by(self.faults)


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
    lines = []
    for row in rows:
        seen = f"{row.observable} at {row.operation}" if row.found else "not found"
        small = "" if row.shrunk_to is None else str(row.shrunk_to)
        lines.append([row.fault, seen, ", ".join(row.expected), f"{row.operations:,}", small])
    return Table("Planted faults", columns, lines, marks=["" if row.found else "bad" for row in rows])


def _seen_by(rows: Sequence[HuntRow]) -> Table:
    """Faults by what they have shown as."""
    names = sorted({row.observable for row in rows if row.found and row.observable})
    lines = [(name, [row.fault for row in rows if row.found and row.observable == name]) for name in names]
    lines.sort(key=lambda line: -len(line[1]))
    shown = [[name, str(len(faults)), ", ".join(faults)] for name, faults in lines]
    return Table("Faults by what has seen them", ["seen as", "faults", "which"], shown)
