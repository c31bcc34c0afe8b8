"""A run, as `fuzz --json` prints it, as the document of a page: findings first, then what was reached."""

from collections.abc import Mapping, Sequence
from math import log1p
from typing import Any

import msgspec

from ..findings.interruption import interrupted_by
from ..findings.words import plural
from ..reports.floors import Floors
from .document import VERSION, FoundCard, ReportDocument, Table
from .history_charts import HistoryFile, history_charts

MOST_CAUSES = 60
Counts = dict[str, int]


class Reproduced(msgspec.Struct):
    """Where the files of a finding are."""

    trace: str = ""
    command: str = ""
    page: str | None = None


class RunFound(msgspec.Struct):
    """One finding of a run."""

    text: str = ""
    severity: str = ""
    oracle: str = ""
    observable: str = ""
    operation: str = ""
    times: int = 1
    attention: Counts = {}
    reproduction: Reproduced = msgspec.field(default_factory=Reproduced)


class RunFile(msgspec.Struct):
    """What is read of the JSON of a run; what else stands there is passed over."""

    target: str
    runs: int
    operations: int
    engine: str = ""
    seed: int = 0
    seconds: float = 0.0
    operations_per_second: float = 0.0
    interrupted: bool = False
    oracles: list[str] = []
    unobserved: list[tuple[str, str, int]] = []
    attention: Counts = {}
    unbuilt: Counts = {}
    outcomes: dict[str, Counts] = {}
    causes: list[tuple[str, str, str, int]] = []
    impossible: Counts = {}
    tested_nothing: str | None = None
    warnings: list[str] = []
    reached: Counts = {}
    deviated: Counts = {}
    known: Counts = {}
    deviations_not_seen: list[str] = []
    misuse: Counts = {}
    finding: dict[str, Any] | None = None
    findings: list[RunFound] = []
    floors: dict[str, Counts] | None = None
    floors_unmet: list[str] = []
    repeat: str = ""
    history: HistoryFile | None = None

    def traces(self) -> list[str]:
        """The trace file of each finding."""
        return [found.reproduction.trace for found in self.findings]


def run_document(run: RunFile, title: str, floors: Floors, *, running: bool = False) -> ReportDocument:
    """The page of a run; `floors` are those that it had to reach. `running`: it goes on, so nothing is settled yet.
    ChartError if its history cannot be one."""
    verdict = so_far(len(run.findings)) if running else _verdict(run)
    document = ReportDocument(VERSION, f"{run.target}: {title}", _headline(run), *verdict, _figures(run))
    document.cards = [_card(found, run.target) for found in run.findings]
    document.notes = list(run.warnings)
    document.tables = [
        table
        for table in (
            _floors(run, floors, running),
            _outcomes(run),
            _causes(run),
            counted("Situations reached", ["situation", "times"], run.reached),
            _attention(run),
            _deviations(run),
            counted("Known findings that came up", ["id", "times"], run.known),
            counted("Not possible on this target", ["operation", "drawn and left out"], run.impossible),
            counted("Misuse (reported only)", ["what happened", "times"], run.misuse),
            _unobserved(run),
        )
        if table.rows
    ]
    document.charts = history_charts({run.target: run.history}) if run.history else []
    document.command = run.repeat
    return document


def folder_document(cards: Sequence[FoundCard], title: str) -> ReportDocument:
    """The page of a folder of traces."""
    targets = len({card.target for card in cards})
    figures = [["traces", f"{len(cards):,}"], ["targets", f"{targets:,}"]]
    words = f"{plural(len(cards), 'trace')} of {plural(targets, 'target')}"
    return ReportDocument(VERSION, title, words, "traces, applied again", "note", figures, list(cards))


def counted(title: str, columns: list[str], counts: Mapping[str, int]) -> Table:
    """A table of counts, the largest first, with bars of their orders of magnitude."""
    rows = sorted(counts.items(), key=lambda pair: -pair[1])
    most = max([1, *(times for _, times in rows)])
    bars = [log1p(max(0, times)) / log1p(most) for _, times in rows]
    return Table(title, columns, [[name, f"{times:,}"] for name, times in rows], bars=bars)


def so_far(found: int) -> tuple[str, str]:
    """What to say first of a run that goes on, and its mood."""
    return (f"{plural(found, 'finding')} so far", "bad") if found else ("nothing was found so far", "note")


def _headline(run: RunFile) -> str:
    ended = f", ended by {interrupted_by()}" if run.interrupted else ""
    return (
        f"{plural(run.runs, 'run')}, {plural(run.operations, 'operation')} in {run.seconds:.1f} s"
        f"{ended}; judged by {', '.join(run.oracles) or 'nobody'}"
    )


def _verdict(run: RunFile) -> tuple[str, str]:
    """What to say first, and its mood."""
    if run.finding is not None or run.findings:
        return f"{plural(max(1, len(run.findings)), 'finding')} on {run.target}", "bad"
    if run.floors_unmet:
        return f"nothing was found, but {plural(len(run.floors_unmet), 'floor was', 'floors were')} not reached", "bad"
    if run.tested_nothing:
        return f"tested nothing: {run.tested_nothing}", "note"
    return f"nothing was found on {run.target}", "good"


def _figures(run: RunFile) -> list[list[str]]:
    allocations = run.outcomes.get("Allocate", {})
    asked, refused = sum(allocations.values()), allocations.get("Refused", 0)
    figures = [["operations", f"{run.operations:,}"], ["runs", f"{run.runs:,}"], ["seconds", f"{run.seconds:.1f}"]]
    figures += [["operations a second", f"{run.operations_per_second:,.0f}"]]
    figures += [["allocations refused", f"{refused / asked:.0%}"]] if asked else []
    return [*figures, ["engine", run.engine], ["seed", str(run.seed)]]


def _card(found: RunFound, target: str) -> FoundCard:
    head = f"{found.severity}: {found.oracle}, {found.observable} at {found.operation}, in {plural(found.times, 'run')}"
    card = FoundCard(head, found.text, found.severity, found.oracle, found.observable, target)
    card.attention, card.times = ", ".join(sorted(found.attention)), found.times
    card.command = found.reproduction.command
    return card


def _floors(run: RunFile, floors: Floors, running: bool) -> Table:
    """Each floor and what was reached, the unmet ones first; those alone where the floors are not known."""
    if not floors and running:
        return Table("Floors", [], [])
    if not floors:
        unmet = [[line] for line in run.floors_unmet]
        return Table("Floors that were not reached", ["floor"], unmet, marks=["bad"] * len(unmet))
    operations = {kind: sum(results.values()) for kind, results in run.outcomes.items()}
    built = {name: runs - run.unbuilt.get(name, 0) for name, runs in run.attention.items()}
    reached: dict[str, Mapping[str, int]] = {
        "total": {"operations": run.operations, "runs": run.runs},
        "situations": run.reached,
        "operations": operations,
        "attention": built,
    }
    lines = [
        (name, table, floor, reached.get(table, {}).get(name, 0))
        for table, wanted in floors.items()
        for name, floor in wanted.items()
    ]
    lines.sort(key=lambda line: line[3] / line[2] if line[2] else float("inf"))
    missed = sum(times < floor for _, _, floor, times in lines)
    return Table(
        "Floors",
        ["what", "of", "floor", "reached"],
        [[name, table, f"{floor:,}", f"{times:,}"] for name, table, floor, times in lines],
        note=f"{plural(missed, 'floor')} of {len(lines)} not reached{' yet' if running else ''}"
        if missed
        else f"all {len(lines)} reached",
        marks=["bad" if times < floor and not running else "" for _, _, floor, times in lines],
        bars=[min(1.0, times / floor) if floor else 1.0 for _, _, floor, times in lines],
    )


def _outcomes(run: RunFile) -> Table:
    kinds = sorted({result for results in run.outcomes.values() for result in results})
    columns: list[str] = [one for one in ("Done", "Refused") if one in kinds]
    columns += [one for one in kinds if one not in columns]
    rows = [
        [kind, *(f"{times:,}" if (times := results.get(one, 0)) else "" for one in columns)]
        for kind, results in sorted(run.outcomes.items())
    ]
    return Table("Operations and outcomes", ["operation", *columns], rows)


def _causes(run: RunFile) -> Table:
    rows = [[why, kind, result, f"{times:,}"] for kind, result, why, times in run.causes[:MOST_CAUSES]]
    most = max([1, *(cause[3] for cause in run.causes)])
    bars = [log1p(max(0, cause[3])) / log1p(most) for cause in run.causes[:MOST_CAUSES]]
    return Table("Refused and failed, by cause", ["what for", "operation", "outcome", "times"], rows, bars=bars)


def _attention(run: RunFile) -> Table:
    rows = [
        [name, f"{runs:,}", f"{run.unbuilt[name]:,}" if run.unbuilt.get(name) else ""]
        for name, runs in sorted(run.attention.items())
    ]
    marks = ["note" if run.unbuilt.get(name, 0) == runs else "" for name, runs in sorted(run.attention.items())]
    return Table("Runs by attention type", ["attention", "runs", "not built"], rows, marks=marks)


def _deviations(run: RunFile) -> Table:
    table = counted("Known deviations", ["deviation", "times"], run.deviated)
    for name in run.deviations_not_seen:
        table.rows.append([name, "0"])
        table.bars.append(0.0)
    table.marks = ["note" if row[1] == "0" else "" for row in table.rows]
    table.note = "What the target is known to decide otherwise; those without a count did not come up."
    return table


def _unobserved(run: RunFile) -> Table:
    rows = [[name, why, f"{runs:,}"] for name, why, runs in run.unobserved]
    return Table("Not observed", ["property", "what it cannot show", "runs"], rows)
