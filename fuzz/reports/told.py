"""What a report tells of a finding that was kept: its smallest form, where its files are, how to see it again."""

from collections.abc import Sequence
from typing import NamedTuple

from ..findings.finding import Finding


class Told(NamedTuple):
    """One finding, as all forms of a report tell it."""

    finding: Finding
    """As its smallest trace shows it."""
    headline: str
    """In one line how bad it is, what it is, and how often it came up."""
    attention: str
    """Name of the attention types whose runs showed it; empty if it is not known."""
    more: tuple[str, ...]
    """The smallest trace, the files and the command, a line each."""
    command: str
    """The shell command that shows it again."""
    trace: str
    """The file of its smallest trace."""

    def as_json(self) -> dict[str, object]:
        """JSON-ready."""
        return {**self.finding.as_json(), "trace": self.trace, "command": self.command}

    def lines(self, verbose: bool = False) -> list[str]:
        """All about it, for a person. `verbose` as for `Finding.text`."""
        return [*self.finding.text(verbose=verbose).splitlines(), *self.more]


def told_lines(told: Sequence[Told], verbose: bool = False) -> list[str]:
    """All findings, numbered and with their headlines if there are several; each begins with an empty line."""
    if len(told) == 1:
        return ["", *told[0].lines(verbose)]
    numbered = (["", f"{number}. {one.headline}", *one.lines(verbose)] for number, one in enumerate(told, 1))
    return [line for lines in numbered for line in lines]
