"""The page of a finding, next to its trace."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..targets.base import Target
from ..traces.judges import Judges
from ..traces.trace_file import TraceFile
from .document import TraceDocument
from .html import PageError, write_page
from .trace_document import trace_document

MOST_OPERATIONS = 20_000
"""A longer trace gets its page from `report` only: it would take longer to make than to find."""


@dataclass(frozen=True)
class Kept:
    """Where a trace was kept, and what repeats what it shows."""

    trace: Path
    command: str = ""


def page_beside(
    file: TraceFile,
    target: Target,
    judges: Judges | None,
    kept: Kept,
    say: Callable[[str], None] = lambda line: None,
    other: Target | None = None,
) -> Path | None:
    """Write the page of a trace that was kept, on the opened target that showed it, beside the `other` one for a
    difference of two. Returns its path.

    The finding is kept already, so what goes wrong here is only told to `say`; then None is returned.
    """
    return write_beside(document_beside(file, target, judges, say, other), kept, say)


def document_beside(
    file: TraceFile,
    target: Target,
    judges: Judges | None,
    say: Callable[[str], None] = lambda line: None,
    other: Target | None = None,
) -> TraceDocument | None:
    """What the page of a trace shows; None if it cannot be made."""
    if len(file.trace.operations) > MOST_OPERATIONS:
        return None
    try:
        return trace_document(file, target, judges, "", other=other)
    except Exception as error:
        say(f"no page of it: {str(error) or type(error).__name__}")
        return None


def write_beside(
    document: TraceDocument | None, kept: Kept, say: Callable[[str], None] = lambda line: None
) -> Path | None:
    """Write the page next to its trace. Returns its path; None if there is none."""
    if document is None:
        return None
    path = kept.trace.with_suffix(".html")
    document.title, document.command = kept.trace.name, kept.command
    try:
        write_page(document, path)
    except (PageError, OSError) as error:
        say(f"no page of it: {error}")
        return None
    return path
