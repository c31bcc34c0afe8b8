"""What `fuzz-scheduler --json` prints as the document of a page: findings, what was reached, how it went on."""

import shlex
from collections.abc import Sequence

import msgspec

from ..findings.words import plural
from .document import VERSION, FoundCard, ReportDocument, Table
from .history_charts import HistoryFile, history_charts
from .run_document import counted, so_far


class StoryFound(msgspec.Struct):
    """One finding, shrunk."""

    name: str
    judge: str = ""
    rule: str = ""
    what: str = ""
    step: int = 0
    known: str = ""
    """The finding that is written up of it; empty for a new one."""
    file: str = ""


class SchedulerFile(msgspec.Struct):
    """What a run came to."""

    target: str
    found: list[StoryFound]
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
    history: HistoryFile | None = None


def scheduler_document(run: SchedulerFile, title: str, *, running: bool = False) -> ReportDocument:
    """The page of a run of schedulers. `running`: it goes on. ChartError if its history cannot be one."""
    figures = [["engines", f"{run.stories:,}"], ["scheduler steps", f"{run.steps:,}"]]
    figures += [["seconds", f"{run.seconds:.1f}"]]
    figures += [["steps a second of CPU", f"{run.steps / run.cpu_seconds:,.0f}"]] if run.cpu_seconds > 0 else []
    head = f"{plural(run.stories, 'engine')}, {plural(run.steps, 'scheduler step')} in {run.seconds:.1f} s"
    verdict = so_far(len(run.found)) if running else _verdict(run)
    document = ReportDocument(VERSION, f"{run.target}: {title}", head, *verdict, figures)
    document.cards = [_card(one, run) for one in run.found]
    document.notes = [f"floor not reached: {line}" for line in run.floors_unmet]
    document.charts = history_charts({run.target: run.history}, "scheduler steps") if run.history else []
    document.tables = [
        table
        for table in (
            counted("Situations reached", ["situation", "times"], run.reached),
            _kinds(run),
            counted("Engines that were not built", ["why", "times"], run.not_built),
        )
        if table.rows
    ]
    return document


def _verdict(run: SchedulerFile) -> tuple[str, str]:
    if run.lost:
        return f"the process of {run.target} was lost: {run.lost}", "bad"
    if run.found:
        new = sum(not one.known for one in run.found)
        return f"{plural(len(run.found), 'finding')} on {run.target}, {new} of them new", "bad"
    if run.floors_unmet:
        return f"nothing was found, but {plural(len(run.floors_unmet), 'floor was', 'floors were')} not reached", "bad"
    if not run.steps:
        return "no step ran", "note"
    return f"nothing was found on {run.target}", "good"


def _card(one: StoryFound, run: SchedulerFile) -> FoundCard:
    head = f"{one.name}: {one.judge}, step {one.step}"
    card = FoundCard(head, one.what, oracle=one.judge, observable=one.rule, target=run.target)
    card.times = run.counted.get(one.name, 1)
    card.command = shlex.join(["blockproof", "replay", one.file, "--target", run.target]) if one.file else ""
    return card


def _kinds(run: SchedulerFile) -> Table:
    """What was reached by the attention types of the engine."""
    names: Sequence[str] = list(dict.fromkeys(name for reached in run.by_kind.values() for name in reached))
    rows = [[kind, *(f"{reached.get(name, 0):,}" for name in names)] for kind, reached in sorted(run.by_kind.items())]
    return Table("Reached by attention types", ["attention", *names], rows)
