"""How two targets differ, as a document: what `diff --json` prints, and the report of it for people."""

from collections.abc import Mapping, Sequence

import msgspec

from ..findings.interruption import interrupted_by
from ..findings.oracle_names import BLOCKPROOF
from ..findings.words import plural
from .document import FoundCard, Lead, ResultDocument, Table


class SituationRow(msgspec.Struct):
    """One way in which they differ."""

    situation: str
    operation: str
    runs: int
    """Those that ended with it."""
    operations: int
    """Of its smallest trace."""
    text: str
    oracle: str = ""
    trace: str = ""
    """The file of its smallest trace."""
    command: str = ""
    """The shell command that shows it on both, side by side."""
    rules: list[str] = []
    """Where the model describes both exactly, the rules that make it: deviations, and entries of the policy."""


class Work(msgspec.Struct):
    """How much of something both have done for the same stories: counted, not judged."""

    old: int
    new: int


def work_table(work: Mapping[str, Work]) -> Table:
    """A row for each kind of work."""
    rows = [[name, f"{one.old:,}", f"{one.new:,}"] for name, one in work.items()]
    return Table("Work for the same stories", ("work", "old side", "new side"), rows)


class CompareRow(msgspec.Struct):
    """All of them, as strictly as declared."""

    compared: str
    """What was compared."""
    runs: int
    operations: int
    seconds: float
    situations: list[SituationRow]
    """The most frequent first."""

    def table(self) -> Table:
        """A row for each situation."""
        rows = [[one.situation, one.operation, f"{one.runs:,}", str(one.operations)] for one in self.situations]
        title = f"Compared by {self.compared}: {plural(self.runs, 'run')}, each to its first difference"
        columns = ("second against first", "operation", "runs", "shrunk to")
        return Table(title, columns, rows or [["alike", "", "", ""]])


class DifferenceDocument(ResultDocument, tag="difference"):
    """What came of comparing two targets, at every strictness."""

    first: str
    second: str
    not_compared: list[str]
    """What one of them hides or lacks."""
    comparisons: list[CompareRow]
    interrupted: bool = False
    work: dict[str, Work] = {}
    """What two engines have done; empty for targets."""

    @property
    def situations(self) -> list[SituationRow]:
        """Those of all comparisons; they behave alike if there are none."""
        return [one for comparison in self.comparisons for one in comparison.situations]

    def lead(self) -> Lead:
        """In how many situations they differ."""
        operations, seconds, runs = (
            sum(getattr(one, name) for one in self.comparisons) for name in ("operations", "seconds", "runs")
        )
        bugs = sum(one.oracle == BLOCKPROOF for one in self.situations)
        found = len(self.situations) - bugs
        ended = f"; ended by {interrupted_by()}" if self.interrupted else ""
        if bugs:
            ended = f"; {plural(bugs, 'bug')} of blockproof came up, so not all was compared{ended}"
        alike = "no difference was found" if bugs else "they behave alike"
        said = (f"they differ in {plural(found, 'situation')}" if found else alike) + ended
        headline = f"{self.first} and {self.second}: {plural(operations, 'operation')} on both, {seconds:.1f} s"
        figures = [("situations", f"{len(self.situations):,}"), ("runs", f"{runs:,}")]
        return Lead(headline, said, "bad" if self.situations else "good", figures)

    def cards(self) -> list[FoundCard]:
        """See `ResultDocument`."""
        return [_card(comparison, one, self.second) for comparison in self.comparisons for one in comparison.situations]

    def notes(self) -> list[str]:
        """See `ResultDocument`."""
        return [f"not compared: {', '.join(self.not_compared)}"] if self.not_compared else []

    def tables(self) -> Sequence[Table]:
        """One for each strictness."""
        return [*(one.table() for one in self.comparisons), *([work_table(self.work)] if self.work else ())]


def _card(comparison: CompareRow, one: SituationRow, target: str) -> FoundCard:
    head = f"{one.situation} at {one.operation}, by {comparison.compared}, in {plural(one.runs, 'run')}"
    card = FoundCard(head, one.text, oracle=one.oracle, observable=one.situation, target=target, times=one.runs)
    card.command, card.file = one.command, one.trace
    return card
