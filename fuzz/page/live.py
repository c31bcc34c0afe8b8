"""The page of a run or a campaign that goes on: a file that is written anew every few seconds, and loads itself again.

It is written by the run itself, in one piece, so whoever reads it finds a whole page; that takes a hundredth of the
time at most. It says when it was written, so that a run that was killed is not taken for one that goes on.
"""

import os
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import msgspec

from ..findings.writing import not_written
from ..reports.campaign import CampaignDocument
from ..reports.charts import HistoryLines
from ..reports.document import MOST_TRACES, VERSION, FoundCard, Progress, ReportDocument, ResultDocument, Table
from ..reports.progress import Pace
from ..reports.run import RunDocument
from ..reports.scheduler import SchedulerDocument
from .html import document_in, write_page

EVERY_S = 3.0
"""So often the page is written at most."""
MOST_BYTES = 24 << 20
"""Of pages whose traces the last document holds."""
EARLY_S = 10.0
"""What is told of a run that has only begun, such as that it tested nothing, may still change."""
BEHIND_S = 1.5
"""So long ago one of several processes may have told last; rates from then on would be too low."""
WAITING = ("its page is made at the end of the run", "its page is made once its task has ended")
"""What is said of a finding without a page; the second one in a campaign."""
COLUMNS = ["process", "seed", "runs", "operations", "operations a second", "state"]
"""Of the table of processes."""


@dataclass(frozen=True)
class News:
    """What a run, a campaign or a run of schedulers tells its page."""

    title: str
    words: str
    """What it does now."""
    document: ResultDocument
    """What it has come to."""
    share: float = -1.0
    """As in `Progress`."""
    ended: bool = False
    jobs: Sequence[Sequence[str]] = ()
    """A row for each process; see COLUMNS."""


class LiveDocuments:
    """Makes a document of each thing that is told."""

    def __init__(self, folder: Path) -> None:
        """`folder` is where the page lies, from which it leads to the pages of findings."""
        self._folder = folder
        self._last = ReportDocument(VERSION, "a run", "", "nothing was told", "note", [], progress=Progress(""))
        self._pages: list[str] = []
        """The page of each of its findings."""

    def read(self, news: News) -> ReportDocument:
        """The document of what is told. ChartError if it cannot be shown."""
        done, running = news.document, not news.ended
        if news.jobs and isinstance(done, RunDocument) and done.history is not None:
            done = msgspec.structs.replace(done, history=_settled(done.history, done.seconds - BEHIND_S))
        document, pages = done.report(news.title, running=running), done.pages()
        if running and done.lasted() < EARLY_S:
            document.notes = []
        if news.jobs:
            document.tables.insert(0, Table("Processes", COLUMNS, news.jobs))
        waiting = "" if isinstance(done, SchedulerDocument) else WAITING[isinstance(done, CampaignDocument)]
        self._link(document.cards, pages, waiting if running else "")
        if news.ended:
            _take_in(document, pages)
        document.progress = Progress(news.words, news.share, news.ended)
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


def _settled(history: HistoryLines, seconds: float) -> HistoryLines:
    """The history up to this time."""
    kept = bisect_right(history.seconds, seconds)
    end = history.seconds[kept - 1] if kept else 0.0
    situations = {name: at for name, at in history.situations.items() if at <= end}
    return HistoryLines(
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


class LivePage:
    """A page that a run writes, and how it is told what to show. Where it is left without a last word, it says so."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        """Writes a first page. `say` is told in a line if it cannot be written later on. PageError if the template
        library is missing, OSError if nothing can be written there.
        """
        self.path = path
        self._say = say
        self._live = LiveDocuments(path.parent)
        self._pace = Pace(EVERY_S)
        self._lost = self._ended = False
        first = ReportDocument(VERSION, "a run", "", "nothing was told yet", "note", [])
        first.progress = Progress("starting")
        self._write(first)

    def __enter__(self) -> "LivePage":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._ended:
            self._try(lambda: self._write(self._live.lost()))

    @property
    def due(self) -> bool:
        """True if it is time to write it again."""
        return self._pace.due

    def grown(self, tell: Callable[[], News]) -> None:
        """Show what this returns, if it is time to."""
        if self.due:
            with self._pace.telling():
                self.show(tell())

    def show(self, news: News) -> None:
        """Show this now. Whatever goes wrong is told in a line, once, and does not end the run."""
        self._ended = news.ended
        self._try(lambda: self._write(self._live.read(news)))

    def _try(self, write: Callable[[], None]) -> None:
        try:
            write()
            self._lost = False
        except (OSError, ValueError) as error:
            why = not_written(error) if isinstance(error, OSError) else str(error)
            if not self._lost:
                self._say(f"the page does not show it ({why}); the run goes on")
            self._lost = True

    def _write(self, document: ReportDocument) -> None:
        assert document.progress is not None
        document.progress.written = time.time()
        document.progress.every = self._pace.every
        write_page(document, self.path)
