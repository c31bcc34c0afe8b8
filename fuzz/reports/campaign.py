"""A campaign as a document: what `--json` prints and `campaign.json` holds, and the report of it for people."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence

import msgspec

from ..findings.interruption import interrupted_by
from ..findings.oracle_names import TARGET
from ..findings.severity import Severity
from ..findings.words import plural
from .charts import Chart, chained, history_charts
from .document import Cell, FoundCard, Lead, Matrix, ReportDocument, ResultDocument, Table
from .run import RunDocument
from .summary import NEW

CAME, WENT = "new", "gone"


class CampaignFound(msgspec.Struct):
    """One finding on one target."""

    severity: str = ""
    oracle: str = ""
    observable: str = ""
    operation: str = ""
    attention: str = ""
    """Name of the attention types whose runs showed it."""
    exception: str | None = None
    root_cause: str = ""
    """The finding that is written up of it, a known deviation, or `new`; empty if nobody has asked."""
    settled: int = 0
    """For how many of its runs that was settled by experiment."""
    trace: str = ""
    test: str = ""
    command: str = ""
    page: str = ""
    times: int = 1
    """In how many runs it came up."""
    operations: int = 0
    """Of its smallest trace."""
    text: str = ""
    more: list[str] = []
    """What a person is told of it: the trace, what it shows, the files."""

    def headline(self) -> str:
        """One line: how bad it is, what it is, and in how many runs of which attention types it came up."""
        raised = f" ({self.exception})" if self.exception else ""
        what = f"{self.severity}: {self.oracle}, {self.observable} at {self.operation}{raised}"
        return f"{what}, in {plural(self.times, 'run')}" + (f" of {self.attention}" if self.attention else "")


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
    cells: dict[str, RunDocument] = {}
    attention: list[str] = []
    """The attention types that were asked for."""

    def not_run(self) -> str:
        """Why it did not come to its end by itself, and what of it was not run; empty if it did."""
        left = [name for name in self.attention if name not in self.cells]
        more = f"; not run: {', '.join(left)}" if left else ""
        return f"{self.target}: {_last_line(self.problem)}{more}" if self.problem else ""

    def ended(self, done: str, otherwise: str) -> str:
        """How it came to its end: `done`, with its problem, or `otherwise`."""
        return done if self.done else _last_line(self.problem) or otherwise


class CampaignDocument(ResultDocument, tag="campaign"):
    """What a campaign came to."""

    targets: list[CampaignRow]

    @property
    def found(self) -> list[tuple[CampaignRow, CampaignFound]]:
        """All findings."""
        return [(row, one) for row in self.targets for one in row.findings]

    @property
    def exit_code(self) -> int:
        """1 if something was found, 130 if it was interrupted before, 3 if not all of it was run or a run tested
        nothing, else 0."""
        if self.found:
            return 1
        if any(row.interrupted for row in self.targets):
            return 130
        whole = any(row.operations for row in self.targets) and not self.not_run() and not self.untested()
        return 0 if whole else 3

    def not_run(self) -> list[str]:
        """A line for each target that did not come to its end by itself."""
        return [line for row in self.targets if (line := row.not_run())]

    def untested(self) -> list[str]:
        """A line for each target whose runs tested nothing: what to look at."""
        return [f"{row.target}: {row.tested_nothing}" for row in self.targets if row.tested_nothing]

    def lead(self) -> Lead:
        """How much was found, the worst of it, and whether all targets came to their end."""
        operations, seconds = (sum(getattr(row, name) for row in self.targets) for name in ("operations", "seconds"))
        headline = f"{plural(len(self.targets), 'target')}, {plural(operations, 'operation')}"
        counts = (("targets", len(self.targets)), ("operations", operations), ("findings", len(self.found)))
        figures = [*((name, f"{count:,}") for name, count in counts), ("seconds", f"{seconds:,.0f}")]
        ended = f"; ended by {interrupted_by()}" if any(row.interrupted for row in self.targets) else ""
        lost = f"NOT ALL OF IT RAN: {'; '.join(self.not_run())}" if self.not_run() else ""
        found = [one for _, one in self.found]
        if not found:
            nothing = self.untested()
            said = lost or (f"TESTED NOTHING: {nothing[0]}" if nothing else f"nothing was found{ended}")
            tested = not lost and not nothing and all(row.operations for row in self.targets)
            return Lead(headline, said, "good" if tested else "note", figures)
        worst = min((one.severity for one in found), key=lambda name: _RANKS.get(name, len(_RANKS)))
        roots = Counter(one.root_cause for one in found if one.root_cause)
        new = f", {roots[NEW]} of them new" if roots else ""
        said = f"{plural(len(found), 'finding')}{new}, the worst: {worst}{ended}" + (f"; {lost}" if lost else "")
        return Lead(headline, said, "bad", figures)

    def cards(self) -> list[FoundCard]:
        """See `ResultDocument`."""
        return [_card(row, one) for row, one in self.found]

    def told_in_full(self) -> Sequence[FoundCard]:
        """Those without a root cause that is known."""
        return [_card(row, one) for row, one in self.found if one.root_cause in ("", NEW)]

    def pages(self) -> list[str]:
        """See `ResultDocument`."""
        return [one.page for _, one in self.found]

    def lasted(self) -> float:
        """That of the target that took longest."""
        return max((row.seconds for row in self.targets), default=0.0)

    def notes(self) -> list[str]:
        """See `ResultDocument`."""
        return [f"{row.target}: {line}" for row in self.targets for line in _lines(row)]

    def charts(self) -> list[Chart]:
        """See `ResultDocument`."""
        told = {row.target: [run.history for run in row.cells.values() if run.history] for row in self.targets}
        histories = {target: chained(cells) for target, cells in told.items() if cells}
        return history_charts(histories, about="Attention types follow one another.")

    def tables(self) -> Sequence[Table]:
        """Totals, a table for each oracle (attention types by targets), the findings and what could not be observed."""
        return (_targets(self.targets), _by_root(self.targets), *self._judged(), _kept(self.found), self._hidden())

    def _judged(self) -> list[Table]:
        rows = self.targets
        attention = list(dict.fromkeys(name for row in rows for name in (*row.attention, *row.cells)))
        oracles = sorted({oracle for row in rows for cell in row.cells.values() for oracle in cell.oracles})
        return [
            Table(
                f"Findings of {oracle} by attention type, operations judged, seconds",
                ["attention", *(row.target for row in rows)],
                [[name, *(_judged_cell(row, name, oracle) for row in rows)] for name in attention],
            )
            for oracle in oracles
        ]

    def _hidden(self) -> Table:
        hidden = {
            (row.target, what, why)
            for row in self.targets
            for cell in row.cells.values()
            for what, why, _ in cell.unobserved
        }
        return Table("Not observed", ["target", "property", "what it cannot show"], [[*one] for one in sorted(hidden)])

    def lines(self) -> list[str]:
        """What looks wrong, then each finding with its trace and files, for a person; for each target the worst first.

        Of findings whose root cause is known there is a line in the tables only.
        """
        notes = [f"note: {row.target}: {warning}" for row in self.targets for warning in row.warnings]
        lines = [*notes, *(f"tested nothing: {line}" for line in self.untested())]
        for row in self.targets:
            untold = [one for one in row.findings if one.root_cause in ("", NEW)]
            untold.sort(key=lambda one: _RANKS.get(one.severity, len(_RANKS)))
            for number, one in enumerate(untold, 1):
                lines += ["", f"{row.target}, {number}. {one.headline()}", *one.more]
        return lines

    def report(self, title: str, *, running: bool = False, last: "CampaignDocument | None" = None) -> ReportDocument:
        """The page of it: one matrix in place of the tables of each oracle. `last` is the campaign before this one, to
        compare with."""
        before = last.targets if last else []
        document = super().report(title, running=running)
        document.matrix = matrix = _matrix(self.targets, self.found, {row.target: row for row in before})
        compared = _against(self.targets, before, matrix) if before else []
        document.notes += _alone(self.targets, before) if before else []
        tables = (*compared, _targets(self.targets, before, running), _by_root(self.targets), _kinds(self.found))
        document.tables = [table for table in (*tables, self._hidden()) if table.rows]
        return document


_RANKS = {str(severity): severity for severity in Severity}


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


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


def _lines(row: CampaignRow) -> list[str]:
    problem = row.problem.strip().splitlines()[-1:]
    return [*problem, *([row.tested_nothing] if row.tested_nothing else []), *row.warnings]


def _card(row: CampaignRow, one: CampaignFound) -> FoundCard:
    found = (one.text, one.severity, one.oracle, one.observable, row.target, one.attention, one.times)
    card = FoundCard(one.headline(), *found)
    card.command, card.file = one.command, one.trace
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


def _targets(rows: Sequence[CampaignRow], last: Sequence[CampaignRow] = (), running: bool = False) -> Table:
    before = {row.target: f"{len(row.findings):,}" for row in last}
    columns = ["target", "runs", "operations", "findings", "seconds", "ended", *(["findings before"] if last else [])]
    lines = []
    for row in rows:
        otherwise = ("not yet" if row.cells else "not begun") if running else "early"
        runs = sum(cell.runs for cell in row.cells.values())
        counts = (f"{runs:,}", f"{row.operations:,}", f"{len(row.findings):,}", f"{row.seconds:.0f}")
        line = [row.target, *counts, row.ended("as planned", otherwise)]
        lines.append([*line, *([before.get(row.target, "")] if last else [])])
    return Table(
        "Targets", columns, lines, marks=["bad" if row.findings else "" if row.done else "note" for row in rows]
    )


def _by_root(rows: Sequence[CampaignRow]) -> Table:
    """A row for each target and root cause, what is new first."""
    lines = []
    for row in rows:
        roots = {one.root_cause for one in row.findings if one.root_cause}
        for root in sorted(roots, key=lambda root: (root != NEW, root)):
            mine = [one for one in row.findings if one.root_cause == root]
            kinds = Counter(f"{one.observable} {one.operation}" for one in mine)
            what = ", ".join(f"{kind} x{count}" if count > 1 else kind for kind, count in sorted(kinds.items()))
            times, settled = sum(one.times for one in mine), sum(one.settled for one in mine)
            lines.append([row.target, root, what, f"{times:,}", f"{settled:,}"])
    return Table("Root causes", ["target", "root cause", "findings", "runs", "settled by experiment"], lines)


def _judged_cell(row: CampaignRow, name: str, oracle: str) -> str:
    """What one oracle made of one attention type: kinds of findings, and operations."""
    cell = row.cells.get(name)
    if cell is None:
        return "not run"
    if sum(cell.unbuilt.values()) == cell.runs:
        return "not built"
    ours = (one for one in row.findings if one.attention == name and one.oracle in (oracle, TARGET))
    kinds = Counter(one.observable for one in ours)
    found = " ".join(f"{what}x{times}" if times > 1 else what for what, times in sorted(kinds.items()))
    return f"{found or '-'} {cell.operations:,} in {cell.seconds:.0f} s"


def _kept(found: Sequence[tuple[CampaignRow, CampaignFound]]) -> Table:
    columns = ("target", "attention", "what", "operation", "runs", "shrunk to", "root cause")
    rows = [
        (
            *(row.target, one.attention, one.observable, one.operation),
            *(f"{one.times:,}", str(one.operations), one.root_cause or "-"),
        )
        for row, one in found
    ]
    return Table("Findings", columns, rows)


def _kinds(found: Sequence[tuple[CampaignRow, CampaignFound]]) -> Table:
    """What was found, over all targets."""
    targets: dict[tuple[str, str, str, str], list[str]] = {}
    for row, one in found:
        targets.setdefault((one.severity, one.oracle, one.observable, one.operation), []).append(row.target)
    lines = [
        [what, severity, oracle, operation, ", ".join(dict.fromkeys(on))]
        for (severity, oracle, what, operation), on in sorted(targets.items())
    ]
    return Table("Kinds of findings", ["what", "severity", "oracle", "operation", "targets"], lines)


def changed_cells(matrix: Matrix) -> Table:
    """The cells that say something else than before (`Cell.before`), those first in which something was found now."""
    rows = []
    for oracle, by_attention in zip(matrix.oracles, matrix.cells, strict=True):
        for name, cells in zip(matrix.attention, by_attention, strict=True):
            for target, cell in zip(matrix.targets, cells, strict=True):
                if cell.before:
                    rows.append([target, name, oracle, cell.before, " ".join(cell.what) or cell.state])
    now_clean = {"clean", "not built", "not run"}
    rows.sort(key=lambda row: (row[-1] in now_clean, row))
    marks = ["" if row[-1] in now_clean else "bad" for row in rows]
    columns = ["target", "attention", "oracle", "before", "now"]
    return Table("Cells that changed since the last campaign", columns, rows, marks=marks)


def came_and_went(now: Sequence[tuple[str, ...]], before: Sequence[tuple[str, ...]]) -> Table:
    """Findings that only one of two campaigns has; each as target, attention, what, operation, oracle."""
    ours, theirs = dict.fromkeys(now), dict.fromkeys(before)
    rows = [[*one, CAME] for one in ours if one not in theirs] + [[*one, WENT] for one in theirs if one not in ours]
    columns = ["target", "attention", "what", "operation", "oracle", "since the last campaign"]
    marks = ["bad" if row[-1] == CAME else "" for row in rows]
    return Table("Findings that came and went", columns, rows, marks=marks)


def rates(now: Mapping[str, float], before: Mapping[str, float]) -> Table:
    """Operations a second of each target that both campaigns have run, and their ratio."""
    both = [(name, rate, before[name]) for name, rate in now.items() if rate and before.get(name)]
    rows = [[name, f"{was:,.0f}", f"{rate:,.0f}", f"{rate / was:.2f}"] for name, rate, was in both]
    note = "The time of two runs on a shared machine: look for factors, not for percents."
    columns = ["target", "a second before", "now", "ratio"]
    return Table("Operations a second against the last campaign", columns, rows, note=note)
