"""A campaign, as `campaign --json` prints it, as the document of a page: targets by oracles by attention types."""

from collections import Counter
from collections.abc import Container, Sequence

import msgspec

from ..findings.interruption import interrupted_by
from ..findings.oracle_names import TARGET
from ..findings.words import plural
from .campaign_trend import came_and_went, changed_cells, rates
from .document import VERSION, Cell, FoundCard, Matrix, ReportDocument, Table
from .history_charts import chained, history_charts
from .run_document import RunFile, so_far


class CampaignFound(msgspec.Struct):
    """One finding on one target."""

    severity: str = ""
    oracle: str = ""
    observable: str = ""
    operation: str = ""
    attention: str = ""
    trace: str = ""
    command: str = ""
    page: str = ""
    times: int = 1
    operations: int = 0
    text: str = ""


class CampaignRow(msgspec.Struct):
    """What a campaign did with one target."""

    target: str
    done: bool = False
    interrupted: bool = False
    problem: str = ""
    operations: int = 0
    seconds: float = 0.0
    tested_nothing: str | None = None
    warnings: list[str] = []
    findings: list[CampaignFound] = []
    cells: dict[str, RunFile] = {}


def campaign_document(
    rows: Sequence[CampaignRow], title: str, last: Sequence[CampaignRow] = (), *, running: bool = False
) -> ReportDocument:
    """The page of a campaign; `last` is the one before it, to compare with. `running`: it goes on. ChartError as
    from `history_charts`."""
    found = [(row, one) for row in rows for one in row.findings]
    operations, seconds = sum(row.operations for row in rows), sum(row.seconds for row in rows)
    figures = [["targets", f"{len(rows):,}"], ["operations", f"{operations:,}"], ["findings", f"{len(found):,}"]]
    figures += [["seconds", f"{seconds:,.0f}"]]
    verdict, mood = so_far(len(found)) if running else _verdict(rows, len(found))
    document = ReportDocument(
        VERSION, title, f"{plural(len(rows), 'target')}, {plural(operations, 'operation')}", verdict, mood, figures
    )
    document.cards = [_card(row, one) for row, one in found]
    document.notes = [f"{row.target}: {line}" for row in rows for line in _lines(row)]
    document.matrix = _matrix(rows, found, {row.target: row for row in last})
    compared = _against(rows, last, document.matrix) if last else []
    document.notes += _alone(rows, last) if last else []
    told = {row.target: [run.history for run in row.cells.values() if run.history] for row in rows}
    histories = {target: chained(cells) for target, cells in told.items() if cells}
    document.charts = history_charts(histories, about="Attention types follow one another.")
    targets = _targets(rows, last, running)
    document.tables = [table for table in (*compared, targets, _kinds(rows), _hidden(rows)) if table.rows]
    return document


def _against(rows: Sequence[CampaignRow], last: Sequence[CampaignRow], matrix: Matrix) -> list[Table]:
    """What is otherwise than in the last campaign, of the targets that both have run."""
    both = {row.target for row in rows} & {row.target for row in last}
    found, before = _found(rows, both), _found(last, both)
    return [changed_cells(matrix), came_and_went(found, before), rates(_rates(rows), _rates(last))]


def _alone(rows: Sequence[CampaignRow], last: Sequence[CampaignRow]) -> list[str]:
    """Targets that only one of two campaigns has run: nothing can be said of what changed."""
    now, before = [row.target for row in rows], [row.target for row in last]
    new, gone = [name for name in now if name not in before], [name for name in before if name not in now]
    sides = (("Not in the last campaign", new), ("In the last campaign only", gone))
    return [f"{what}: {', '.join(names)}" for what, names in sides if names]


def _found(rows: Sequence[CampaignRow], targets: Container[str]) -> list[tuple[str, ...]]:
    return [
        (row.target, one.attention, one.observable, one.operation, one.oracle)
        for row in rows
        for one in row.findings
        if row.target in targets
    ]


def _rates(rows: Sequence[CampaignRow]) -> dict[str, float]:
    return {row.target: row.operations / row.seconds for row in rows if row.seconds > 0}


def _verdict(rows: Sequence[CampaignRow], found: int) -> tuple[str, str]:
    ended = f"; ended by {interrupted_by()}" if any(row.interrupted for row in rows) else ""
    if found:
        return f"{plural(found, 'finding')}{ended}", "bad"
    nothing = [row.target for row in rows if row.tested_nothing or not row.operations]
    if nothing:
        return f"nothing was tested on {', '.join(nothing)}{ended}", "note"
    if early := [row.target for row in rows if row.problem]:
        return f"nothing was found, but {', '.join(early)} ended early{ended}", "note"
    return f"nothing was found{ended}", "good"


def _lines(row: CampaignRow) -> list[str]:
    problem = row.problem.strip().splitlines()[-1:]
    return [*problem, *([row.tested_nothing] if row.tested_nothing else []), *row.warnings]


def _card(row: CampaignRow, one: CampaignFound) -> FoundCard:
    head = f"{one.severity}: {one.oracle}, {one.observable} at {one.operation}, in {plural(one.times, 'run')}"
    card = FoundCard(head, one.text, one.severity, one.oracle, one.observable, row.target, one.attention, one.times)
    card.command = one.command
    return card


def _matrix(
    rows: Sequence[CampaignRow], found: Sequence[tuple[CampaignRow, CampaignFound]], last: dict[str, CampaignRow]
) -> Matrix:
    attention = list(dict.fromkeys(name for row in rows for name in row.cells))
    oracles = list(dict.fromkeys(one for row in rows for cell in row.cells.values() for one in cell.oracles))
    places = [(row.target, one.attention, one.oracle) for row, one in found]
    cells = [
        [[_cell(row, name, oracle, places, last.get(row.target)) for row in rows] for name in attention]
        for oracle in oracles
    ]
    return Matrix([row.target for row in rows], attention, oracles, cells)


def _cell(
    row: CampaignRow, name: str, oracle: str, places: Sequence[tuple[str, str, str]], before: CampaignRow | None
) -> Cell:
    state, what = _made_of(row, name, oracle)
    cell = Cell(state, what)
    if run := row.cells.get(name):
        cell.operations, cell.seconds = run.operations, run.seconds
    ours = ((row.target, name, oracle), (row.target, name, TARGET))
    cell.cards = [number for number, place in enumerate(places) if place in ours]
    if before is not None and name in before.cells and (was := _made_of(before, name, oracle)) != (state, what):
        cell.before = " ".join(was[1]) or was[0]
    return cell


def _made_of(row: CampaignRow, name: str, oracle: str) -> tuple[str, list[str]]:
    """What one oracle made of one attention type: the state of the cell, and what was found."""
    run = row.cells.get(name)
    if run is None or oracle not in run.oracles:
        return "not run", []
    what = Counter(one.observable for one in row.findings if one.attention == name and one.oracle in (oracle, TARGET))
    if what:
        return "found", sorted(what)
    return ("not built" if sum(run.unbuilt.values()) == run.runs else "clean"), []


def _targets(rows: Sequence[CampaignRow], last: Sequence[CampaignRow], running: bool) -> Table:
    before = {row.target: len(row.findings) for row in last}
    columns = ["target", "operations", "seconds", "operations a second", "findings", "ended"]
    table = Table("Targets", columns + (["findings before"] if last else []), [])
    for row in rows:
        rate = f"{row.operations / row.seconds:,.0f}" if row.seconds else ""
        otherwise = ("not yet" if row.cells else "not begun") if running else "early"
        ended = "as planned" if row.done else (row.problem.strip().splitlines() or [otherwise])[-1]
        line = [row.target, f"{row.operations:,}", f"{row.seconds:.0f}", rate, f"{len(row.findings):,}", ended]
        table.rows.append(line + ([str(before[row.target]) if row.target in before else ""] if last else []))
        table.marks.append("bad" if row.findings else "" if row.done else "note")
    return table


def _kinds(rows: Sequence[CampaignRow]) -> Table:
    """What was found, over all targets."""
    targets: dict[tuple[str, str, str, str], list[str]] = {}
    for row in rows:
        for one in row.findings:
            targets.setdefault((one.severity, one.oracle, one.observable, one.operation), []).append(row.target)
    lines = [[*kind, ", ".join(dict.fromkeys(on))] for kind, on in sorted(targets.items())]
    lines = [[line[2], line[0], line[1], *line[3:]] for line in lines]
    return Table("Kinds of findings", ["what", "severity", "oracle", "operation", "targets"], lines)


def _hidden(rows: Sequence[CampaignRow]) -> Table:
    hidden = {
        (row.target, what, why) for row in rows for cell in row.cells.values() for what, why, _ in cell.unobserved
    }
    return Table("Not observed", ["target", "property", "what it cannot show"], [list(one) for one in sorted(hidden)])
