"""What a campaign came to as a document, its files, and its page while it goes on."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..engines.reproductions import found_by
from ..findings.interruption import interrupted_by
from ..findings.oracle_names import without
from ..findings.severity import exception_of, severity
from ..findings.words import plural
from ..findings.writing import alone, write_file
from ..page.files import CAMPAIGN_FILE, before_name
from ..page.live import LivePage, News
from ..page.trace_page import KeptTrace, write_beside
from ..reports.campaign import CampaignDocument, CampaignFound, CampaignRow
from ..reports.formats import markdown_sections
from ..reports.run import RunDocument
from ..traces.reproduction import WHOLE, folder_name, keep_reproduction
from ..traces.trace_file import FoundWhat, TraceFile
from .campaign import CampaignResult, KeptOnTarget, Orders, as_they_are

OF_A_CELL = 20
"""Samples of the history of one attention type on one target that a report tells."""


def document(rows: Sequence[CampaignResult]) -> CampaignDocument:
    """What a campaign came to, for people and machines."""
    return CampaignDocument([_of_target(row) for row in rows])


def _of_target(row: CampaignResult) -> CampaignRow:
    untested = row.vacuity
    return CampaignRow(
        row.target,
        row.done,
        row.interrupted,
        row.problem,
        row.operations,
        round(row.seconds, 1),
        untested.problem,
        list(untested.warnings),
        [_of_finding(kept) for kept in row.kept],
        {name: RunDocument.of(cell, OF_A_CELL) for name, cell in row.cells.items()},
        list(row.attention),
    )


def _of_finding(kept: KeptOnTarget) -> CampaignFound:
    finding = kept.finding
    found = CampaignFound(str(severity(finding)), finding.oracle, *finding.kind, kept.attention)
    found.exception, found.root_cause, found.settled = exception_of(finding) or None, kept.root, kept.settled
    found.times, found.operations, found.text = kept.times, len(kept.trace.operations), str(finding)
    found.more = kept.lines()
    for name, text in kept.named().items():
        setattr(found, name, text)
    return found


def progress_line(row: CampaignResult) -> str:
    """One line: how far a target has come."""
    found = sum(len(cell.found) for cell in row.cells.values())
    counts = [plural(row.operations, "operation"), plural(len(row.cells), "attention type")]
    counts.append(plural(found, "kind of finding", "kinds of findings"))
    ended = "done" if row.done else row.problem.splitlines()[-1] if row.problem else "..."
    return f"{row.target}: {', '.join(counts)}, {row.seconds:.0f} s, {ended}"


def write_page(campaign: CampaignDocument, path: Path) -> None:
    """Write the tables as a Markdown page; its folder is made if missing."""
    lead = campaign.lead()
    write_file(path, markdown_sections(f"{lead.headline}: {lead.conclusion}", campaign.tables()))


class KeptWhole:
    """Writes what a campaign comes upon as soon as it is known, before anything is said of it and before it is shrunk:
    whatever ends the campaign, it is not lost."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._seed = folder, seed
        self._kept: set[tuple[str, str, tuple[str, ...]]] = set()

    def keep(self, row: CampaignResult) -> None:
        """Write the traces of the runs that found something new on a target, and their pytest files."""
        for name, cell in row.cells.items():
            for found in cell.ranked():
                key = (row.target, name, found.key)
                if key not in self._kept:
                    file = TraceFile(
                        found.trace, row.target, FoundWhat.of(found.finding), found_by("random", self._seed)
                    )
                    oracles = without(cell.oracles, found.passed)
                    keep_reproduction(file, self._folder / folder_name(row.target), oracles=oracles, ending=WHOLE)
                    self._kept.add(key)


def keep_findings(rows: Sequence[CampaignResult], folder: Path, seed: int) -> None:
    """Write trace and pytest file of everything that was found to a folder for each target, and note where they are.
    What was written before is left as it is."""
    for row in rows:
        for place, kept in ((place, kept) for place, kept in enumerate(row.kept) if kept.files is None):
            file = TraceFile(kept.trace, row.target, FoundWhat.of(kept.finding), found_by("random", seed))
            files = keep_reproduction(file, folder / folder_name(row.target), oracles=kept.oracles)
            page = write_beside(kept.document, KeptTrace(files.trace, files.command))
            row.kept[place] = replace(kept, files=files, page=page)


def write_campaign(campaign: CampaignDocument, folder: Path) -> Path:
    """Write all of it as JSON into the folder, for `report`; what the campaign before wrote there stays beside it."""
    path = folder / CAMPAIGN_FILE
    with alone(path):
        if path.is_file():
            write_file(path.with_name(before_name(path)), [path.read_bytes()])
        write_file(path, campaign.text())
    return path


class LiveCampaign:
    """Tells a page, if there is one, what the campaign has come to."""

    def __init__(self, page: LivePage | None, specs: Sequence[str], orders: Orders, folder: Path) -> None:
        self._page, self._orders, self._folder = page, orders, folder
        self._rows = {spec: CampaignResult(spec) for spec in specs}
        if page is not None:
            page.show(self._told())

    def changed(self, row: CampaignResult) -> None:
        """A target has come to something; where it has ended, its findings are written, and their pages."""
        if self._page is not None:
            if row.done:
                keep_findings([row], self._folder, self._orders.plan.seed)
            self.grown(row)

    def grown(self, row: CampaignResult) -> None:
        """A target is so far."""
        if self._page is not None:
            self._rows[row.target] = row
            self._page.grown(self._told)

    def ended(self, rows: Sequence[CampaignResult]) -> None:
        """This is what came of it."""
        if self._page is not None:
            cut = any(row.interrupted for row in rows)
            words = f"ended by {interrupted_by()}" if cut else "the campaign has ended"
            self._page.show(News("campaign", words, document(rows), 1.0, ended=True))

    def _told(self) -> News:
        rows = list(self._rows.values())
        over = [one for one in rows if one.done or one.problem]
        shown = [one if one.done else replace(one, kept=as_they_are(one, self._orders)) for one in rows]
        words = f"{len(over)} of {plural(len(rows), 'target')} ended"
        share = sum(1.0 if one in over else self._share(one) for one in rows) / len(rows)
        return News("campaign", words, document(shown), share)

    def _share(self, row: CampaignResult) -> float:
        """How far a target is, from 0 to 1."""
        plan = self._orders.plan
        pairs = ((row.operations, plan.operations), (row.seconds, plan.seconds))
        return min(1.0, max((done / most for done, most in pairs if most), default=0.0))
