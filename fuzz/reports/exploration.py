"""An exploration as a document: the states of each scope by depth, and what was found."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ..findings.words import plural
from .charts import Chart, ChartError, series
from .document import FoundCard, Lead, ResultDocument, Table

DEPTH = "depth, operations"
MOST_LINES = 10
"""Scopes with a line of their own; more cannot be told apart."""


class ExploreFound(msgspec.Struct):
    """What does not hold in a scope."""

    properties: list[str] = []
    texts: list[str] = []
    operations: list[Any] = []
    """The way there."""
    trace: str = ""


class ScopeRow(msgspec.Struct):
    """One scope."""

    scope: str
    states: int
    ended: str = ""
    resting: int = 0
    transitions: int = 0
    depth: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    passed: bool = False
    reached: dict[str, int] = {}
    missing: list[str] = []
    levels: list[int] = []
    """States by depth."""
    finding: ExploreFound | None = None


class ExplorationDocument(ResultDocument, tag="exploration"):
    """All scopes that were explored."""

    scopes: list[ScopeRow]

    @property
    def broken(self) -> list[tuple[ScopeRow, ExploreFound]]:
        """The scopes in which a property does not hold."""
        return [(row, row.finding) for row in self.scopes if row.finding is not None]

    def lead(self) -> Lead:
        """See `ResultDocument`."""
        rows = self.scopes
        states, seconds = sum(row.states for row in rows), sum(row.seconds for row in rows)
        depth = max((row.depth for row in rows), default=0)
        headline = f"{plural(len(rows), 'scope')}, {plural(states, 'state')} in {seconds:.1f} s"
        figures = [("states", f"{states:,}"), ("transitions", f"{sum(row.transitions for row in rows):,}")]
        return Lead(headline, *self._said(), [*figures, ("depth", str(depth)), ("seconds", f"{seconds:.1f}")])

    def _said(self) -> tuple[str, str]:
        if count := len(self.broken):
            return plural(count, "scope in which a property does not hold", "scopes in which one does not hold"), "bad"
        if early := [row.scope for row in self.scopes if not row.passed]:
            return f"nothing was found, but not all was seen of {', '.join(early)}", "note"
        if not self.scopes:
            return "nothing was explored", "note"
        return f"every property holds in every state of {plural(len(self.scopes), 'scope')}", "good"

    def cards(self) -> list[FoundCard]:
        """See `ResultDocument`."""
        return [_card(row, found) for row, found in self.broken]

    def notes(self) -> list[str]:
        """See `ResultDocument`."""
        return [f"{row.scope}: never reached: {', '.join(row.missing)}" for row in self.scopes if row.missing]

    def charts(self) -> list[Chart]:
        """ChartError if the states of a scope are not as many as those of its depths."""
        for row in self.scopes:
            if min(row.levels, default=1) < 1 or (row.levels and sum(row.levels) != row.states):
                raise ChartError(f"scope {row.scope}: its depths have {sum(row.levels)} states of {row.states}")
        return _charts(self.scopes)

    def tables(self) -> Sequence[Table]:
        """See `ResultDocument`."""
        return _scopes(self.scopes), _reached(self.scopes)


def _card(row: ScopeRow, found: ExploreFound) -> FoundCard:
    text = "\n".join(found.texts)
    return FoundCard(f"{row.scope}: {', '.join(found.properties)}", text, oracle="exploration", file=found.trace)


def _charts(rows: Sequence[ScopeRow]) -> list[Chart]:
    """The frontier, and how many states lie up to it; of many scopes those with the most states."""
    shown = sorted((row for row in rows if row.levels), key=lambda row: -row.states)
    if not shown:
        return []
    left = len(shown) - len(shown[:MOST_LINES])
    shown = list({row.scope: row for row in reversed(shown[:MOST_LINES])}.values())[::-1]
    cut = [row.scope for row in shown if not row.passed and row.finding is None]
    frontier = [series(row.scope, enumerate(row.levels)) for row in shown]
    known = [series(row.scope, ((at, sum(row.levels[: at + 1])) for at in range(len(row.levels)))) for row in shown]
    notes = ["It falls to nothing where all is seen."]
    notes += [f"Broken off, the last depth in part: {', '.join(cut)}."] if cut else []
    notes += [f"{plural(left, 'smaller scope is', 'smaller scopes are')} left out."] if left else []
    title, states = "States that are new at each depth", "states"
    return [
        Chart(title, DEPTH, states, frontier, log_y=True, note=" ".join(notes)),
        Chart("States up to each depth", DEPTH, states, known, log_y=True, note=" ".join(notes[1:])),
    ]


def _scopes(rows: Sequence[ScopeRow]) -> Table:
    columns = ["scope", "states", "at rest", "transitions", "depth", "CPU seconds", "ended"]
    marks = ["bad" if row.finding is not None else "" if row.passed else "note" for row in rows]
    lines = [
        [
            *(row.scope, f"{row.states:,}", f"{row.resting:,}", f"{row.transitions:,}", str(row.depth)),
            *(f"{row.cpu_seconds:.1f}", row.ended),
        ]
        for row in rows
    ]
    return Table("Scopes", columns, lines, marks=marks)


def _reached(rows: Sequence[ScopeRow]) -> Table:
    names = sorted({name for row in rows for name in row.reached})
    lines = [
        [name, f"{sum(row.reached.get(name, 0) for row in rows):,}", str(sum(name in row.reached for row in rows))]
        for name in names
    ]
    return Table("Situations reached", ["situation", "transitions", "scopes"], lines)
