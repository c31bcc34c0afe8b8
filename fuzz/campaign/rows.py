"""A campaign that is told at its end, or while it goes on: of each task a row, and the document of all."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import msgspec

from ..findings.severity import exception_of, severity
from ..findings.words import plural, trace_lines
from ..page.trace_page import KeptTrace, write_beside
from ..reports.campaign import CampaignDocument, CampaignFound, CampaignRow
from ..reports.charts import chained
from ..reports.run import RunDocument
from ..reports.summary import Summary
from ..reports.vacuity import vacuity
from ..traces.reproduction import WHOLE, folder_name, keep_reproduction
from ..traces.trace_file import load_trace
from .store import Ended, KeptRow, Store
from .stories import SIMULATION, kept_story
from .tasks import Cause, Task, TaskFinding, TaskResult

OF_A_CELL = 20
"""Samples of the history of a task that its row tells."""


def row_of(task: Task, summary: Summary, findings: Sequence[TaskFinding]) -> CampaignRow:
    """What a task has come to, with `findings` in the order of the summary's."""
    found = []
    for one, kept in zip(summary.ranked(), findings, strict=True):
        shown = CampaignFound(str(severity(one.finding)), one.finding.oracle, *one.finding.kind, task.attention)
        shown.exception, shown.root_cause, shown.settled = exception_of(one.finding) or None, one.root, one.settled
        shown.times, shown.operations, shown.text = kept.times, kept.operations, kept.text
        found.append(shown)
    return CampaignRow(task.target, findings=found, cells={task.attention: RunDocument.of(summary, OF_A_CELL)})


def write_row(result: TaskResult, out: Path, *, whole: bool) -> None:
    """Write what a task has found, and say in its row where: `whole` traces as they are, or the smallest ones."""
    assert result.row is not None
    folder = out / folder_name(result.row.target)
    for found, kept in zip(result.row.findings, result.findings, strict=True):
        if not kept.trace:
            continue
        early = "" if kept.complete else "; it may get shorter"
        if (story := kept_story(kept.trace, "")) is not None:
            path = story.write(folder)
            names, told = {"trace": str(path), "command": story.command(path)}, [f"{story.length}{early}"]
        else:
            file = load_trace(kept.trace)
            files = keep_reproduction(file, folder, None, file.oracles or (), WHOLE if whole else "", anew=not whole)
            page = write_beside(kept.page, KeptTrace(files.trace, files.command))
            names = {**files.named(), **({"page": str(page)} if page else {})}
            told = [f"{plural(kept.operations, 'operation')}{early}"]
            told += trace_lines(file.trace.shape, file.trace.operations)
        found.more = [*told, "", kept.text, "", *(f"{name}: {text}" for name, text in names.items())]
        for name, text in names.items():
            setattr(found, name, text)


def document(store: Store, so_far: Collection[TaskResult] = (), ended: Ended | None = None) -> CampaignDocument:
    """What a campaign has come to, with what tasks have told that go on; `ended` if none do any more."""
    return CampaignDocument([row_on(store, target, so_far, ended) for target in store.settings.targets])


def row_on(store: Store, target: str, so_far: Iterable[TaskResult] = (), ended: Ended | None = None) -> CampaignRow:
    """The same of one target."""
    every = [*store.rows, *(KeptRow.of(result) for result in so_far)]
    mine = [kept for kept in every if kept.row.target == target]
    row = CampaignRow(target, attention=list(store.settings.attention), findings=_findings(mine))
    runs = [(name, run) for kept in mine for name, run in kept.row.cells.items()]
    for name in dict.fromkeys(name for name, _ in runs):
        row.cells[name] = _together([run for other, run in runs if other == name])
    row.operations = sum(run.operations for _, run in runs)
    row.seconds = round(sum(run.seconds for _, run in runs), 1)
    row.problem, row.done = store.end_of(target)
    row.interrupted = ended is Ended.INTERRUPTED and not row.done and not row.problem
    if runs and not row.problem and not row.findings and SIMULATION not in store.settings.engines:
        whole = _all_counts([run for _, run in runs])
        whole.allow_vacuous, whole.interrupted = store.settings.allow_vacuous, row.interrupted
        row.tested_nothing, warnings = vacuity(whole)
        row.warnings = list(warnings)
    return row


def _findings(rows: Sequence[KeptRow]) -> list[CampaignFound]:
    """Each cause once, with how often it came up in all tasks."""
    found: dict[Cause, CampaignFound] = {}
    for cause, one in (pair for kept in rows for pair in zip(kept.causes, kept.row.findings, strict=True)):
        if (first := found.setdefault(cause, one)) is not one:
            times, settled = first.times + one.times, first.settled + one.settled
            found[cause] = msgspec.structs.replace(first, times=times, settled=settled)
    return [*found.values()]


def _all_counts(runs: Sequence[RunDocument]) -> Summary:
    first, *others = map(_counts, runs)
    for other in others:
        first.merge(other, later=True)
    return first


def _counts(run: RunDocument) -> Summary:
    """What a run has counted, without findings."""
    counts = Summary(run.target, run.engine, run.seed, run.runs, run.operations, run.seconds)
    counts.oracles, counts.drawn = tuple(run.oracles), int(run.digest or "0", 16)
    for name in ("attention", "unbuilt", "reached", "deviated", "misuse", "impossible", "shared"):
        getattr(counts, name).update(getattr(run, name))
    for kind, results in run.outcomes.items():
        counts.operation_counts[kind] = sum(results.values())
        counts.outcomes.update({(kind, result): times for result, times in results.items()})
    counts.causes.update({(kind, result, why): times for kind, result, why, times in run.causes})
    counts.unobserved.update({(name, why): runs for name, why, runs in run.unobserved})
    if run.history is not None and run.history.seconds:
        counts.hits.update(lookups=run.history.lookups[-1], hits=run.history.hits[-1])
    return counts


def _together(runs: Sequence[RunDocument]) -> RunDocument:
    """Those of the tasks of one attention type as one."""
    if len(runs) == 1:
        return runs[0]
    whole = RunDocument.of(_all_counts(runs))
    histories = chained([run.history for run in runs if run.history])
    return msgspec.structs.replace(whole, canary=runs[0].canary, history=histories)
