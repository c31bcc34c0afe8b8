"""What passes or fails of a result."""

from collections.abc import Sequence
from typing import NamedTuple


class ResultCase(NamedTuple):
    """One thing of a result that passes or fails: a test case of JUnit."""

    judges: str
    name: str
    failures: Sequence[tuple[str, str]] = ()
    """For each thing that is wrong a line that says what, and all that is told of it."""
    seconds: float = 0.0
    skipped: str = ""
    """Why nothing was observed in it; empty if something was."""
