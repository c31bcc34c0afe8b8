"""The page of a finding, next to its trace."""

from collections.abc import Callable
from pathlib import Path

from ..targets.base import Target
from ..traces.judges import Judges
from ..traces.reproduction import Reproduction
from ..traces.trace_file import TraceFile
from .html import write_page
from .trace_document import trace_document

MOST_OPERATIONS = 20_000
"""A longer trace gets its page from `report` only: it would take longer to make than to find."""


def page_beside(
    file: TraceFile, target: Target, judges: Judges, files: Reproduction, say: Callable[[str], None]
) -> Path | None:
    """Write the page of a trace that was kept, on the opened target that showed it. Returns its path.

    The finding is kept already, so what goes wrong here is only told to `say`; then None is returned.
    """
    if len(file.trace.operations) > MOST_OPERATIONS:
        return None
    path = files.trace.with_suffix(".html")
    try:
        write_page(trace_document(file, target, judges, files.trace.name, command=files.command), path)
    except Exception as error:
        say(f"no page of it: {str(error) or type(error).__name__}")
        return None
    return path
