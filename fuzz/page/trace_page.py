"""The page that is written next to a trace when it is kept.

What makes a page is imported once there is one to make: most runs find nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..reports.document import TraceDocument
from ..targets.base import Target
from ..traces.judges import Judges
from ..traces.trace_file import TraceFile

MOST_OPERATIONS = 20_000
"""A longer trace gets its page from `report` only: it would take longer to make than to find."""


@dataclass(frozen=True)
class KeptTrace:
    """Where a trace was kept, and what repeats what it shows."""

    trace: Path
    command: str = ""


def page_beside(
    file: TraceFile,
    target: Target,
    judges: Judges | None,
    kept: KeptTrace,
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
    from .trace_document import trace_document

    try:
        return trace_document(file, target, judges, "", other=other)
    except Exception as error:
        say(f"no page of it: {str(error) or type(error).__name__}")
        return None


def write_beside(
    document: TraceDocument | None, kept: KeptTrace, say: Callable[[str], None] = lambda line: None
) -> Path | None:
    """Write the page next to its trace. Returns its path; None if there is none."""
    if document is None:
        return None
    from .html import PageError, write_page

    path = kept.trace.with_suffix(".html")
    document.title, document.command = kept.trace.name, kept.command
    try:
        write_page(document, path)
    except (PageError, OSError) as error:
        say(f"no page of it: {error}")
        return None
    return path
