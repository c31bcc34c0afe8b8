"""A run or a campaign while it goes on, as the document of its page: made of what it tells."""

import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from ..reports.floors import Floors
from .campaign_document import CampaignRow, campaign_document
from .document import MOST_TRACES, VERSION, FoundCard, Progress, ReportDocument, Table
from .history_charts import HistoryFile
from .html import document_in
from .run_document import RunFile, run_document
from .scheduler_document import SchedulerFile, scheduler_document

MOST_BYTES = 24 << 20
"""Of pages whose traces the last document holds."""
EARLY_S = 10.0
"""What is told of a run that has only begun, such as that it tested nothing, may still change."""
BEHIND_S = 1.5
"""So long ago one of several processes may have told last; rates from then on would be too low."""
WAITING = ("its page is made at the end of the run", "its page is made once its target has ended")
"""What is said of a finding without a page; the second one in a campaign."""
COLUMNS = ["process", "seed", "runs", "operations", "operations a second", "state"]
"""Of the table of processes."""


class Told(msgspec.Struct):
    """What a run, a campaign or a run of schedulers tells its page."""

    title: str
    words: str
    """What it does now."""
    share: float = -1.0
    """As in `Progress`."""
    ended: bool = False
    run: RunFile | None = None
    floors: dict[str, dict[str, int]] = {}
    """Those that the run has to reach."""
    campaign: list[CampaignRow] | None = None
    scheduler: SchedulerFile | None = None
    jobs: list[list[str]] = []
    """A row for each process; see COLUMNS."""


class Live:
    """Makes a document of each thing that is told."""

    def __init__(self, folder: Path) -> None:
        """`folder` is where the page lies, from which it leads to the pages of findings."""
        self._folder = folder
        self._last = ReportDocument(VERSION, "a run", "", "nothing was told", "note", [], progress=Progress(""))
        self._pages: list[str] = []
        """The page of each of its findings."""

    def read(self, what: Mapping[str, Any]) -> ReportDocument:
        """The document of what is told (`Told`). msgspec.MsgspecError or ChartError if it cannot be shown."""
        told = msgspec.convert(what, Told)
        running = not told.ended
        if told.campaign is not None:
            rows = told.campaign
            document = campaign_document(rows, told.title, running=running)
            seconds = max((row.seconds for row in rows), default=0.0)
            pages = [one.page for row in rows for one in row.findings]
        elif told.scheduler is not None:
            document = scheduler_document(told.scheduler, told.title, running=running)
            seconds, pages = told.scheduler.seconds, [""] * len(document.cards)
        else:
            run = told.run or RunFile("", 0, 0)
            floors: Floors = told.floors
            if told.jobs and run.history is not None:
                run.history = _settled(run.history, run.seconds - BEHIND_S)
            document = run_document(run, told.title, floors, running=running)
            seconds = run.seconds
            pages = [one.reproduction.page or "" for one in run.findings]
        if running and seconds < EARLY_S:
            document.notes = []
        if told.jobs:
            document.tables.insert(0, Table("Processes", COLUMNS, told.jobs))
        waiting = "" if told.scheduler is not None else WAITING[told.campaign is not None]
        self._link(document.cards, pages, waiting if running else "")
        if told.ended:
            _take_in(document, pages)
        document.progress = Progress(told.words, told.share, told.ended)
        self._last, self._pages = document, pages
        return document

    def lost(self) -> ReportDocument:
        """The document for a run that has ended without a last word."""
        words = "the run has ended without a last word; this is what it told before"
        self._last.progress = Progress(words, ended=True)
        _take_in(self._last, self._pages)
        return self._last

    def _link(self, cards: Sequence[FoundCard], pages: Sequence[str], otherwise: str) -> None:
        for card, page in zip(cards, pages, strict=True):
            if page:
                card.page = quote(os.path.relpath(page, self._folder), errors="surrogateescape")
            else:
                card.why_not = otherwise


def _settled(history: HistoryFile, seconds: float) -> HistoryFile:
    """The history up to this time."""
    kept = bisect_right(history.seconds, seconds)
    end = history.seconds[kept - 1] if kept else 0.0
    situations = {name: at for name, at in history.situations.items() if at <= end}
    return HistoryFile(
        history.seconds[:kept],
        history.operations[:kept],
        history.lookups[:kept],
        history.hits[:kept],
        situations,
        [at for at in history.findings if at <= end],
    )


def _take_in(document: ReportDocument, pages: Sequence[str]) -> None:
    """Put the traces of the pages into the document, so that it can be carried away alone."""
    size = 0
    for card, page in zip(document.cards, pages, strict=True):
        card.page = ""
        if not page:
            continue
        path = Path(page)
        try:
            size += path.stat().st_size
            trace = document_in(path.read_text(encoding="utf-8")) if size <= MOST_BYTES else None
        except (OSError, UnicodeDecodeError):
            trace = None
        if trace is None or len(document.traces) >= MOST_TRACES:
            card.why_not = f"its page: {page}"
        else:
            card.trace = len(document.traces)
            document.traces.append(trace)
