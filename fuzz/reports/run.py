"""A run of `fuzz` as a document: what `--json` prints, made of a summary, and the report of it for people.

Terminal, log, Markdown, JUnit and page all say what stands here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from ..findings.interruption import interrupted_by
from ..findings.oracle_names import BLOCKPROOF, CONTRACT, DIFFERENCE, LIVENESS, LOCKSTEP, SHADOW, TARGET
from ..findings.severity import exception_of, severity
from ..findings.words import plural
from ..runs.canary import told_line
from .cases import ResultCase
from .charts import Chart, HistoryLines, history_charts
from .document import (
    FoundCard,
    Lead,
    ReportDocument,
    ResultDocument,
    Table,
    counted,
    crossed,
    largest_first,
    magnitudes,
)
from .history import TOLD
from .summary import Found, Summary, digest_text
from .vacuity import vacuity

MOST_CAUSES = 60
"""Rows of the table of causes; what else there is counts as others."""
LONG_RUN = 100_000
"""Operations from which on a declared deviation that never occurred counts as stale."""
Counts = dict[str, int]


class Reproduced(msgspec.Struct):
    """Where the files of a finding are."""

    trace: str = ""
    """Of its smallest trace."""
    test: str = ""
    command: str = ""
    """The shell command that shows it again."""
    operations: int | None = None
    """Of the smallest trace; None if it was not shrunk."""
    complete: bool = False
    """True if the search for a smaller trace came to its end."""
    whole: str = ""
    """The trace as it was before."""
    page: str | None = None
    go_on: str | None = None
    """The shell command that shrinks it further, if that may help."""


class RunFound(msgspec.Struct):
    """One finding of a run."""

    severity: str = ""
    oracle: str = ""
    observable: str = ""
    operation: str = ""
    exception: str | None = None
    times: int = 1
    """In how many runs it came up."""
    attention: Counts = {}
    """These by the name of their attention types."""
    text: str = ""
    also: list[dict[str, Any]] | UnsetType = UNSET
    """What else is objected to at the operation, the worst first."""
    reproduction: Reproduced = msgspec.field(default_factory=Reproduced)
    more: list[str] = []
    """What a person is told below the text: the smallest trace, the files, the command."""

    @classmethod
    def of(cls, found: Found) -> "RunFound":
        """What a run has found, before anything was kept of it."""
        finding = found.finding
        what, where = finding.kind
        return cls(
            str(severity(finding)),
            finding.oracle,
            what,
            where,
            exception_of(finding) or None,
            found.times,
            dict(sorted(found.attention.items())),
            str(finding),
            [{"severity": str(severity(one)), **one.as_json()} for one in finding.also] or UNSET,
        )

    def headline(self) -> str:
        """One line: how bad it is, what it is, and in how many runs it came up."""
        raised = f" ({self.exception})" if self.exception else ""
        return (
            f"{self.severity}: {self.oracle}, {self.observable} at {self.operation}{raised}, in "
            f"{plural(self.times, 'run')}"
        )

    def lines(self) -> list[str]:
        """All about it, for a person."""
        return [*self.text.splitlines(), *self.more]


class CanarySeen(msgspec.Struct):
    """What was planted before the run."""

    seen: list[str]
    """The oracles that have seen it: all that judge."""
    milliseconds: float


class Declared(msgspec.Struct):
    """A known deviation of the target, or a known finding."""

    id: str
    times: int
    reason: str
    compared: int = 0
    """How often the trace of a known finding was shrunk and compared."""
    chaos_only: bool = False
    """True if only broken preconditions show it."""

    def occurred(self, *, long_run: bool) -> str:
        """How often it occurred, in words."""
        if self.times:
            return f"{self.times:,}"
        if self.chaos_only:
            return "needs --chaos"
        return "STALE? never" if long_run else "not seen"


class RunDocument(ResultDocument, tag="run"):
    """What a run came to."""

    target: str
    runs: int
    operations: int
    engine: str = ""
    seed: int = 0
    seconds: float = 0.0
    operations_per_second: float = 0.0
    digest: str = ""
    """Of all operations."""
    interrupted: bool = False
    lost: str | None = None
    """Why not all of it was run."""
    oracles: list[str] = []
    canary: CanarySeen | None = None
    """What was planted before the runs, and which oracles have seen it."""
    unobserved: list[tuple[str, str, int]] = []
    attention: Counts = {}
    unbuilt: Counts = {}
    outcomes: dict[str, Counts] = {}
    """By kind of operation."""
    causes: list[tuple[str, str, str, int]] = []
    impossible: Counts = {}
    tested_nothing: str | None = None
    warnings: list[str] = []
    reached: Counts = {}
    deviated: Counts = {}
    known: Counts = {}
    deviations_not_seen: list[str] = []
    declared: list[Declared] = []
    """Deviations that the target is known for."""
    known_findings: list[Declared] = []
    misuse: Counts = {}
    history: HistoryLines | None = None
    finding: dict[str, Any] | None = None
    """The worst one, with all its parts."""
    findings: list[RunFound] = []
    floors: dict[str, Counts] | UnsetType = UNSET
    """What had to be reached."""
    floors_unmet: list[str] = []
    repeat: str = ""
    """The shell command that makes the same runs again."""
    shared: Counts = {}
    """What came up that the release under a patch does, too, by what was found: it is no finding."""
    reproduction: Reproduced | UnsetType = UNSET
    """Of the worst finding."""
    served: dict[str, Any] | UnsetType = UNSET
    """Of a log: what a scheduler has served, and what a cache without end would have found."""
    ideal: dict[str, Any] | UnsetType = UNSET
    blocks: int | UnsetType = UNSET
    processor_seconds: float | UnsetType = UNSET
    slice: str | UnsetType = UNSET
    """How a finding in a log was cut down to few requests."""

    @classmethod
    def of(cls, summary: Summary, samples: int = TOLD) -> "RunDocument":
        """What a summary says, with at most so many samples of its history. The findings are left out, but for the
        worst."""
        problem, warnings = vacuity(summary)
        outcomes: dict[str, Counts] = {}
        for (kind, result), count in sorted(summary.outcomes.items()):
            outcomes.setdefault(kind, {})[result] = count
        times = [found.seconds or 0.0 for found in summary.found.values()]
        history = summary.history.as_json(summary.now(), times, samples)
        return cls(
            summary.target,
            summary.runs,
            summary.operations,
            summary.engine,
            summary.seed,
            round(summary.seconds, 3),
            round(summary.rate, 1),
            digest_text(summary.drawn),
            summary.interrupted,
            summary.lost or None,
            list(summary.oracles),
            None if summary.canary is None else msgspec.convert(summary.canary.as_json(), CanarySeen),
            [(*pair, runs) for pair, runs in sorted(summary.unobserved.items())],
            dict(sorted(summary.attention.items())),
            {name: runs for name, runs in sorted(summary.unbuilt.items()) if runs},
            outcomes,
            [(*cause, times) for cause, times in summary.causes.most_common()],
            dict(sorted(summary.impossible.items())),
            problem,
            list(warnings),
            dict(sorted(summary.reached.items())),
            dict(sorted(summary.deviated.items())),
            {entry.id: summary.known[entry.id] for entry in summary.known_findings},
            summary.unseen_deviations(),
            [Declared(one.id, summary.deviated[one.id], one.reason, 0, one.chaos_only) for one in summary.declared],
            [
                Declared(one.id, summary.known[one.id], one.reason, summary.compared[one.id])
                for one in summary.known_findings
            ],
            dict(sorted(summary.misuse.items())),
            msgspec.convert(history, HistoryLines),
            None if summary.finding is None else summary.finding.as_json(),
            shared=dict(sorted(summary.shared.items())),
        )

    def lead(self) -> Lead:
        """See `ResultDocument`."""
        ended = f", ended by {interrupted_by()}" if self.interrupted else ""
        tried = f"; {told_line(msgspec.structs.asdict(self.canary))}" if self.canary else ""
        headline = (
            f"{self.target}, engine {self.engine}, seed {self.seed}: {plural(self.runs, 'run')}, "
            f"{plural(self.operations, 'operation')} in {self.seconds:.1f} s "
            f"({self.operations_per_second:,.0f}/s){ended}{tried}"
        )
        allocations = self.outcomes.get("Allocate", {})
        asked, refused = sum(allocations.values()), allocations.get("Refused", 0)
        figures = [("operations", f"{self.operations:,}"), ("runs", f"{self.runs:,}")]
        figures += [("seconds", f"{self.seconds:.1f}"), ("operations a second", f"{self.operations_per_second:,.0f}")]
        figures += [("allocations refused", f"{refused / asked:.0%}")] if asked else []
        return Lead(headline, *self._said(), [*figures, ("engine", self.engine), ("seed", str(self.seed))])

    def _said(self) -> tuple[str, str]:
        """What was found, or that nothing was."""
        if self.finding is None:
            mood = "bad" if self.findings or self.floors_unmet else "note" if self.tested_nothing else "good"
            if self.tested_nothing:
                return f"TESTED NOTHING: {self.tested_nothing}", mood
            missed = len(self.floors_unmet)
            unmet = f"; {plural(missed, 'floor was', 'floors were')} not reached" if missed else ""
            return f"no difference in {plural(self.operations, 'operation')}{unmet}", mood
        others = len(self.findings) - 1
        rest = f" ({self.findings[0].severity}), the worst of {plural(others + 1, 'finding')}" if others > 0 else ""
        lost = f"; NOT ALL OF IT RAN: {self.lost}" if self.lost else ""
        oracle, observable, where = (str(self.finding.get(name, "")) for name in ("oracle", "observable", "operation"))
        what = _VERDICTS.get(oracle, "{what}").format(what=observable)
        return f"FOUND: {what} at {where}{rest}{lost}", "bad"

    def report(self, title: str, *, running: bool = False) -> ReportDocument:
        """The page of it: with the floors, and the most frequent of what was counted first."""
        document = super().report(f"{self.target}: {title}", running=running)
        floors = _floors(self, running)
        document.tables = [*([floors] if floors.rows else []), *map(largest_first, document.tables)]
        document.command = self.repeat
        return document

    def cards(self) -> list[FoundCard]:
        """See `ResultDocument`."""
        return [_card(found, self.target) for found in self.findings]

    def cases(self) -> Sequence[ResultCase]:
        """One for each attention type, one for the floors, and one for whether the run tested anything."""
        names = sorted(self.attention) or ["start"]
        found, cases = self._failures(names[0]), list[ResultCase]()
        for name in names:
            runs = self.attention.get(name, 0)
            share = runs / self.runs * self.seconds if self.runs else 0.0
            unbuilt = name not in found and runs and self.unbuilt.get(name) == runs
            why = "no such core can be built: not observed" if unbuilt else ""
            cases.append(ResultCase("+".join(self.oracles), name, found.get(name, ()), share, why))
        unmet, nothing = self.floors_unmet, self.tested_nothing
        cases.append(ResultCase("floors", "situations", [(unmet[0], "\n".join(unmet))] if unmet else []))
        cases.append(ResultCase("run", "tested something", [(nothing, nothing)] if nothing else []))
        return cases

    def _failures(self, otherwise: str) -> dict[str, list[tuple[str, str]]]:
        """By the name of the case that fails: a line that says why, and all that is told of it."""
        if self.finding is None:
            return {}
        if len(self.findings) < 2:
            attention = next(iter(self.findings[0].attention), "") if self.findings else ""
            return {attention or otherwise: [(self.lead().conclusion, "\n".join(self.found_lines()[1:]))]}
        failures: dict[str, list[tuple[str, str]]] = {}
        for one in self.findings:
            name = next(iter(one.attention), otherwise)
            [(message, text)] = failures.get(name, [(one.headline(), "")])
            failures[name] = [(message, "\n".join([*text.splitlines(), *one.lines()]))]
        return failures

    def pages(self) -> list[str]:
        """See `ResultDocument`."""
        return [found.reproduction.page or "" for found in self.findings]

    def notes(self) -> list[str]:
        """See `ResultDocument`."""
        return list(self.warnings)

    def footnote(self) -> str:
        """See `ResultDocument`."""
        return f"Judged by {', '.join(self.oracles)}. Digest of the operations: {self.digest}."

    def charts(self) -> list[Chart]:
        """See `ResultDocument`."""
        return history_charts({self.target: self.history}) if self.history else []

    def found_lines(self) -> list[str]:
        """What was found, its smallest trace and its files, numbered if there is more; each after an empty line."""
        if len(self.findings) > 1:
            numbered = (["", f"{at}. {one.headline()}", *one.lines()] for at, one in enumerate(self.findings, 1))
            return [line for lines in numbered for line in lines]
        if self.findings:
            return ["", *self.findings[0].lines()]
        return ["", *str(self.finding.get("text", "")).splitlines()] if self.finding else []

    def tables(self) -> Sequence[Table]:
        """All tables, those without a row among them."""
        long_run = self.operations >= LONG_RUN
        known = [
            (one.id, one.occurred(long_run=long_run), f"{one.compared:,}", one.reason) for one in self.known_findings
        ]
        unobserved = [(name, why, f"{runs:,}") for name, why, runs in self.unobserved]
        return (
            _found(self.findings),
            Table("Known findings", ("id", "times", "compared", "what it is"), known),
            counted("The release does it, too", ("finding", "times"), self.shared),
            _attention(self),
            crossed("Operations and outcomes", "operation", self.outcomes, ("Done", "Refused")),
            _causes(self),
            counted("Not possible on this target", ("operation", "drawn and left out"), self.impossible),
            counted("Situations reached", ("situation", "times"), self.reached),
            deviation_table(self.declared, long_run=long_run),
            Table("Not observed", ("property", "what it cannot show", "runs"), unobserved),
            counted("Misuse (reported only)", ("what happened", "times"), self.misuse),
        )


_VERDICTS = {
    LOCKSTEP: "`{what}` differs",
    SHADOW: "wrong content",
    CONTRACT: "{what} of the contract is violated",
    LIVENESS: "{what} (liveness) is violated",
    DIFFERENCE: "{what}",
    TARGET: "the target was lost ({what})",
    BLOCKPROOF: "a {what} of blockproof, which says nothing of the target,",
}
"""What each oracle finds, in a few words."""


def deviation_table(declared: Sequence[Declared], *, long_run: bool) -> Table:
    """How often each known deviation occurred; one that never did counts as stale if the run was a long one."""
    rows = [(one.id, one.occurred(long_run=long_run), one.reason) for one in declared]
    marks = ["" if one.times else "note" for one in declared]
    return Table("Known deviations of the target", ("id", "times", "what it does"), rows, marks=marks)


def _card(found: RunFound, target: str) -> FoundCard:
    card = FoundCard(found.headline(), found.text, found.severity, found.oracle, found.observable, target)
    card.attention, card.times = ", ".join(sorted(found.attention)), found.times
    card.command, card.file = found.reproduction.command, found.reproduction.trace
    return card


def _found(findings: Sequence[RunFound]) -> Table:
    """All findings, the worst first, if there are several."""
    columns = ("what it means", "oracle", "what", "operation", "exception", "times")
    rows = [
        (one.severity, one.oracle, one.observable, one.operation, one.exception or "", f"{one.times:,}")
        for one in findings
    ]
    return Table("Findings", columns, rows if len(rows) > 1 else [])


def _floors(run: RunDocument, running: bool) -> Table:
    """Each floor and what was reached, the unmet ones first; those alone where the floors are not known."""
    floors = run.floors or {}
    if not floors:
        unmet = [] if running else [[line] for line in run.floors_unmet]
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


def _causes(run: RunDocument) -> Table:
    """Why operations and constructions did not return, the most frequent reasons."""
    shown = run.causes[:MOST_CAUSES]
    rest = sum(times for *_, times in run.causes[MOST_CAUSES:])
    rows = [(*cause, f"{times:,}") for *cause, times in shown] + ([("others", "", "", f"{rest:,}")] if rest else [])
    counts = [times for *_, times in shown] + ([rest] if rest else [])
    return Table(
        "Refused and failed, by cause", ("operation", "outcome", "what for", "times"), rows, bars=magnitudes(counts)
    )


def _attention(run: RunDocument) -> Table:
    """Runs by attention type, and how many of them could not be built: those have observed nothing."""
    columns = ("attention", "runs", "not built")[: 3 if run.unbuilt else 2]
    rows, marks = [], []
    for name, runs in sorted(run.attention.items()):
        unbuilt = run.unbuilt.get(name, 0)
        rows.append((name, f"{runs:,}", f"{unbuilt:,}" if unbuilt else "")[: len(columns)])
        marks.append("note" if unbuilt == runs else "")
    return Table("Runs by attention type", columns, rows, marks=marks)
