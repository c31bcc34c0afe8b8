"""What the page of a run is told while the run goes on: how far it is, and each finding once it is on disk."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..findings.interruption import interrupted_by
from ..page.live import LivePage, News
from ..page.trace_page import KeptTrace, page_beside
from ..reports.floors import Floors, check_floors
from ..reports.run import Reproduced, RunDocument, RunFound
from ..reports.summary import Found, Summary
from ..targets.base import Target
from ..traces.judges import Judges
from ..traces.reproduction import WHOLE, Reproduction, keep_reproduction
from ..traces.trace_file import FoundWhat, TraceFile
from .plan import Plan
from .reproductions import found_by
from .smallest import judging_of

TITLE = "fuzz"
MOST_PAGES = 60
"""Findings that get a page while the run goes on; the others get it at its end."""


@dataclass(frozen=True)
class Written:
    """A finding as it came up, on disk."""

    files: Reproduction
    page: Path | None


@dataclass
class LiveRun:
    """Tells a page of one run."""

    page: LivePage
    plan: Plan
    floors: Floors
    target: Target
    """Where the traces of findings are applied again, for their pages."""
    folder: Path
    say: Callable[[str], None]
    _written: dict[tuple[str, ...], Written] = field(default_factory=dict)

    def grown(self, summary: Summary, words: str = "running", jobs: Sequence[Sequence[str]] = ()) -> None:
        """Tell the page what the run has come to, if it is time to; findings are written first. `jobs` is a row for
        each process, as `live_document.COLUMNS` says.
        """
        if len(summary.found) > len(self._written):
            for found in summary.ranked():
                if found.key not in self._written:
                    self._written[found.key] = self._write(found, summary)
        self.page.grown(lambda: self._so_far(summary, words, jobs))

    def also(self, summary: Summary) -> Callable[[str], None]:
        """What to tell the steps that follow the runs: the page shows them, too."""

        def tell(line: str) -> None:
            self.say(line)
            self.grown(summary, line)

        return tell

    def ended(self, document: RunDocument) -> None:
        """Tell the page what came of it."""
        words = f"ended by {interrupted_by()}" if document.interrupted else "the run has ended"
        self.page.show(News(TITLE, words, document, 1.0, ended=True))

    def _so_far(self, summary: Summary, words: str, jobs: Sequence[Sequence[str]]) -> News:
        document = RunDocument.of(summary)
        document.findings = [self._told(found) for found in summary.ranked()]
        document.floors = {name: dict(floors) for name, floors in self.floors.items()}
        document.floors_unmet = check_floors(summary, self.floors)
        shares = [
            done / most
            for done, most in ((summary.seconds, self.plan.seconds), (summary.operations, self.plan.operations))
            if most
        ]
        return News(TITLE, words, document, min(1.0, max(shares, default=-1.0)), jobs=jobs)

    def _told(self, found: Found) -> RunFound:
        """A finding that was not made smaller yet."""
        told, written = RunFound.of(found), self._written[found.key]
        files, page = written.files, str(written.page) if written.page else None
        told.reproduction = Reproduced(str(files.trace), str(files.test), files.command, page=page)
        return told

    def _write(self, found: Found, summary: Summary) -> Written:
        """The trace as it came up, and its page: what is shown must not be lost if this process is killed."""
        judging = judging_of(found, self.plan)
        run = found_by(summary.engine, found.seed)
        file = TraceFile(found.trace, summary.target, FoundWhat.of(found.finding), run)
        oracles = tuple(judging.oracles)
        files = keep_reproduction(file, self.folder, self.plan.tensors, oracles, WHOLE)
        if file.lost_its_target or len(self._written) >= MOST_PAGES:  # it may cost a deadline to lose it again
            return Written(files, None)
        judges = Judges(oracles, "as in the run", self.plan.tensors)
        return Written(files, page_beside(file, self.target, judges, KeptTrace(files.trace, files.command)))
