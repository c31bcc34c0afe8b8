"""The page of a finding, next to its trace."""

from collections.abc import Callable
from pathlib import Path

from ..targets.base import Target
from ..traces.judges import Judges
from ..traces.reproduction import Reproduction
from ..traces.trace_file import TraceFile
from .document import TraceDocument
from .html import PageError, write_page
from .trace_document import trace_document

MOST_OPERATIONS = 20_000
"""A longer trace gets its page from `report` only: it would take longer to make than to find."""


def page_beside(
    file: TraceFile, target: Target, judges: Judges, files: Reproduction, say: Callable[[str], None]
) -> Path | None:
    """Write the page of a trace that was kept, on the opened target that showed it. Returns its path.

    The finding is kept already, so what goes wrong here is only told to `say`; then None is returned.
    """
    return write_beside(document_beside(file, target, judges, say), files, say)


def document_beside(
    file: TraceFile, target: Target, judges: Judges, say: Callable[[str], None] = lambda line: None
) -> TraceDocument | None:
    """What the page of a trace shows; None if it cannot be made."""
    if len(file.trace.operations) > MOST_OPERATIONS:
        return None
    try:
        return trace_document(file, target, judges, "")
    except Exception as error:
        say(f"no page of it: {str(error) or type(error).__name__}")
        return None


def write_beside(
    document: TraceDocument | None, files: Reproduction, say: Callable[[str], None] = lambda line: None
) -> Path | None:
    """Write the page next to its trace. Returns its path; None if there is none."""
    if document is None:
        return None
    path = files.trace.with_suffix(".html")
    document.title, document.command = files.trace.name, files.command
    try:
        write_page(document, path)
    except PageError as error:
        say(f"no page of it: {error}")
        return None
    return path
