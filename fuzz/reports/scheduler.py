"""A run of schedulers as a document: what `simulate --json` prints, and the report of it for people."""

import shlex
from collections.abc import Sequence
from typing import Any

import msgspec

from ..findings.words import plural
from .cases import ResultCase
from .charts import Chart, HistoryLines, history_charts, series
from .document import FoundCard, Lead, ReportDocument, ResultDocument, Table, counted, largest_first


class StoryFound(msgspec.Struct):
    """One finding, shrunk."""

    name: str
    judge: str = ""
    rule: str = ""
    what: str = ""
    step: int = 0
    more: list[str] = []
    """Lines that help to find the place, as a stack, or the last output of a process that was lost."""
    behind: int | None = None
    """The finding needs the engines of the run from this number on; None: the story alone shows it."""
    known: str = ""
    """The finding that is written up of it; empty for a new one."""
    file: str = ""
    """Where it was written."""
    page: str = ""
    """The page of it."""
    seed: int = 0
    number: int = 0
    """Of the story that showed it."""
    tries: int = 0
    """Stories that were tried while it was shrunk."""
    complete: bool = False
    """True if the search for a smaller story came to its end."""
    fault: str = ""
    """The one that was planted."""
    story: Any = None
    """The smallest story."""


class TierShares(msgspec.Struct):
    """Of the blocks that were looked for in lower tiers until then, which share was found."""

    steps: int
    found: float
    by_definition: dict[str, float] = {}
    """By the definition of each policy."""


class SchedulerDocument(ResultDocument, tag="scheduler"):
    """What a run came to."""

    target: str
    found: list[StoryFound]
    task: dict[str, Any] = {}
    """What was asked for."""
    lost: str = ""
    stories: int = 0
    steps: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    reached: dict[str, int] = {}
    by_kind: dict[str, dict[str, int]] = {}
    not_built: dict[str, int] = {}
    counted: dict[str, int] = {}
    floors_unmet: list[str] = []
    not_observed: list[str] = []
    """Judges for which the engine shows nothing: what they would find is not found."""
    history: HistoryLines | None = None
    tier_shares: list[TierShares] = []
    version: str = ""
    """Of the release."""
    canary: dict[str, Any] | None = None
    """What was planted before the runs, and which judges have seen it."""

    def report(self, title: str, *, running: bool = False) -> ReportDocument:
        """See `ResultDocument`."""
        return super().report(f"{self.target}: {title}", running=running)

    def lead(self) -> Lead:
        """See `ResultDocument`."""
        done = f"{plural(self.stories, 'engine')}, {plural(self.steps, 'scheduler step')} in {self.seconds:.1f} s"
        figures = [("engines", f"{self.stories:,}"), ("scheduler steps", f"{self.steps:,}")]
        figures += [("seconds", f"{self.seconds:.1f}")]
        rate = self.steps / self.cpu_seconds if self.cpu_seconds > 0 else 0.0
        figures += [("steps a second of CPU", f"{rate:,.0f}")] if rate else []
        return Lead(done, *self._said(), figures)

    def _said(self) -> tuple[str, str]:
        if self.lost:
            return f"the process of {self.target} was lost: {self.lost}", "bad"
        if self.found:
            new = sum(not one.known for one in self.found)
            return f"{plural(len(self.found), 'finding')} on {self.target}, {new} of them new", "bad"
        if self.floors_unmet:
            missed = plural(len(self.floors_unmet), "floor was", "floors were")
            return f"nothing was found, but {missed} not reached", "bad"
        if self.steps:
            return f"nothing was found on {self.target}", "good"
        return f"no step ran{''.join(f': {why}' for why in [*self.not_built][:1])}", "note"

    def cards(self) -> list[FoundCard]:
        """See `ResultDocument`."""
        return [_card(one, self) for one in self.found]

    def cases(self) -> Sequence[ResultCase]:
        """See `ResultDocument`."""
        (case,) = super().cases()
        heads = [f"{one.judge}: {one.what}" for one in self.found] or [message for message, _ in case.failures]
        told = [(head, text) for head, (_, text) in zip(heads, case.failures, strict=True)]
        return [case._replace(judges="simulation", name="simulate", failures=told)]

    def notes(self) -> list[str]:
        """See `ResultDocument`."""
        unmet = [f"floor not reached: {line}" for line in self.floors_unmet]
        return unmet + [f"not observed: {name}" for name in self.not_observed]

    def charts(self) -> list[Chart]:
        """See `ResultDocument`."""
        drawn = history_charts({self.target: self.history}, "scheduler steps") if self.history else []
        return [*drawn, *_tier_charts(self.tier_shares)]

    def tables(self) -> Sequence[Table]:
        """See `ResultDocument`."""
        reached = counted("Situations reached", ["situation", "times"], self.reached)
        not_built = counted("Engines that were not built", ["why", "times"], self.not_built)
        return largest_first(reached), _kinds(self), largest_first(not_built)


def _tier_charts(shares: Sequence[TierShares]) -> list[Chart]:
    """What lower tiers have found, beside tiers of the same size by definition."""
    if not shares:
        return []
    lines = [series("found", ((one.steps, 100 * one.found) for one in shares))]
    for name in shares[0].by_definition:
        points = ((one.steps, 100 * one.by_definition[name]) for one in shares if name in one.by_definition)
        lines.append(series(f"by the definition, {name}", points))
    found = "blocks found of those that were looked for, %"
    return [Chart("Hit ratio of lower tiers", "scheduler steps", found, lines, note="Since the beginning of the run.")]


def _card(one: StoryFound, run: SchedulerDocument) -> FoundCard:
    head = f"{one.name}: {one.judge}, step {one.step}"
    card = FoundCard(head, one.what, oracle=one.judge, observable=one.rule, target=run.target)
    card.times, card.file = run.counted.get(one.name, 1), one.file
    card.command = shlex.join(["blockproof", "replay", one.file, "--target", run.target]) if one.file else ""
    return card


def _kinds(run: SchedulerDocument) -> Table:
    """What was reached by the attention types of the engine."""
    names: Sequence[str] = list(dict.fromkeys(name for reached in run.by_kind.values() for name in reached))
    rows = [[kind, *(f"{reached.get(name, 0):,}" for name in names)] for kind, reached in sorted(run.by_kind.items())]
    return Table("Reached by attention types", ["attention", *names], rows)
