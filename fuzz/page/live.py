"""The page of a run while it goes on: a file that is written anew every few seconds, and loads itself again.

It is written by the run itself, in one piece, so whoever reads it finds a whole page; that takes a hundredth of the
time at most. It says when it was written, so that a run that was killed is not taken for one that goes on.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from ..findings.writing import not_written
from ..reports.pace import Pace
from .document import VERSION, Progress, ReportDocument
from .html import write_page
from .live_document import Live

EVERY_S = 3.0
"""So often the page is written at most."""


class LivePage:
    """A page that a run writes, and how it is told what to show. Where it is left without a last word, it says so."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        """Writes a first page. `say` is told in a line if it cannot be written later on. PageError if the template
        library is missing, OSError if nothing can be written there.
        """
        self.path = path
        self._say = say
        self._live = Live(path.parent)
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

    def grown(self, tell: Callable[[], Mapping[str, Any]]) -> None:
        """Show what this returns (`live_document.Told`), if it is time to."""
        if self.due:
            with self._pace.telling():
                self.show(tell())

    def show(self, told: Mapping[str, Any]) -> None:
        """Show this now. Whatever goes wrong is told in a line, once, and does not end the run."""
        self._ended = bool(told.get("ended"))
        self._try(lambda: self._write(self._live.read(told)))

    def _try(self, write: Callable[[], None]) -> None:
        try:
            write()
            self._lost = False
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            why = not_written(error) if isinstance(error, OSError) else str(error)
            if not self._lost:
                self._say(f"the page does not show it ({why}); the run goes on")
            self._lost = True

    def _write(self, document: ReportDocument) -> None:
        assert document.progress is not None
        document.progress.written = time.time()
        document.progress.every = self._pace.every
        write_page(document, self.path)
