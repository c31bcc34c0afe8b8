"""What a campaign has found, as files: traces, tests and pages, and the JSON that `blockproof report` reads."""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec

from ..engines.story_pages import page_beside_story
from ..findings.severity import Severity
from ..findings.words import plural
from ..findings.writing import write_file
from ..opening.targets import open_target
from ..page.files import CAMPAIGN_FILE
from ..page.trace_page import KeptTrace, page_beside
from ..reports.campaign import CampaignDocument, CampaignFound, CampaignRow
from ..reports.run import RunDocument
from ..targets.base import Target, TargetUnavailableError, close_target
from ..traces.judges import Judges
from ..traces.reproduction import Reproduction, base_name, folder_name, write_reproduction
from ..traces.trace_file import TraceFile, load_trace
from .database import Database
from .stories import KeptStory, kept_story


def write_finding(database: Database, id: int, out: Path) -> str:
    """Write the trace and the test of a finding. Returns a line that says what it is and where it was written."""
    target, trace, severity = database.one("SELECT target, trace, severity FROM findings WHERE id = ?", id)
    folder = out / folder_name(cast(str, target))
    if (story := kept_story(cast(str, trace), f"finding {id}")) is not None:
        return f"{target}: {Severity(cast(int, severity))}: {story.what}, {story.length}: {story.write(folder)}"
    file = load_trace(cast(str, trace), f"finding {id}")
    files = _written(file, folder)
    what = " at ".join((file.finding.observable, file.finding.operation)) if file.finding else "finding"
    length = plural(len(file.trace.operations), "operation")
    return f"{target}: {Severity(cast(int, severity))}: {what}, {length}: {files.trace}"


def write_missing(database: Database, out: Path) -> None:
    """Write those findings that have no files: whatever ended the campaign may have come between."""
    for id, target, trace in database.rows("SELECT id, target, trace FROM findings"):
        folder, story = out / folder_name(cast(str, target)), kept_story(cast(str, trace), f"finding {id}")
        path = story.path(folder) if story is not None else None
        if path is None:
            path = folder / f"test_{base_name(load_trace(cast(str, trace), f'finding {id}'))}.py"
        if not path.exists():
            write_finding(database, cast(int, id), out)


def export(database: Database, out: Path, pages: bool, say: Callable[[str], None]) -> int:
    """Write every finding into a folder for each target, and the JSON of all. Returns how many findings there are.

    `pages`: also the page of each, for which it is replayed on its target. `say` is told what cannot be written.
    """
    rows = _rows(database)
    for row in rows:
        order = Severity.stored_order("severity")
        found = database.rows(f"SELECT trace FROM findings WHERE target = ? ORDER BY {order}, id", row.target)
        folder = out / folder_name(row.target)
        stories = [kept_story(cast(str, trace), row.target) for (trace,) in found]
        target = _opened(row.target, say) if pages and None in stories else None
        try:
            for one, (trace,), story in zip(row.findings, found, stories, strict=True):
                if story is not None:
                    _export_story(one, story, folder, pages, say)
                    continue
                file = load_trace(cast(str, trace), row.target)
                files = _written(file, folder)
                one.trace, one.command = str(files.trace), files.command
                if target is not None:
                    judges = Judges(tuple(file.oracles or ()), "as in the campaign")
                    page = page_beside(file, target, judges, KeptTrace(files.trace, files.command), say)
                    one.page = str(page or "")
        finally:
            if target is not None:
                close_target(target)
    write_file(out / CAMPAIGN_FILE, CampaignDocument(rows).text())
    return sum(len(row.findings) for row in rows)


def _export_story(one: CampaignFound, story: KeptStory, folder: Path, pages: bool, say: Callable[[str], None]) -> None:
    path = story.write(folder)
    one.trace, one.command = str(path), story.command(path)
    if pages:
        one.page = str(page_beside_story(path, say) or "")


def _opened(target: str, say: Callable[[str], None]) -> Target | None:
    try:
        return open_target(target, isolate=True)
    except (TargetUnavailableError, ValueError) as error:
        say(f"no pages for {target}: {error}")
        return None


def _written(file: TraceFile, folder: Path) -> Reproduction:
    return write_reproduction(file, folder, file.tensors, file.oracles or ())


def _rows(database: Database) -> list[CampaignRow]:
    """Each target with its findings and what each attention type has had."""
    rows: dict[str, CampaignRow] = {}
    cells = database.rows(
        "SELECT arms.target, attention, oracles, sum(operations), sum(runs), sum(processor_s), max(problem)"
        " FROM arms JOIN tasks ON arms.id = tasks.arm WHERE place IS NOT NULL GROUP BY arms.id ORDER BY arms.id"
    )
    for target, attention, oracles, operations, runs, seconds, problem in cast(
        list[tuple[str, str, str, int, int, float, str]], cells
    ):
        row = rows.setdefault(target, CampaignRow(target, done=True))
        row.operations += operations
        row.seconds += seconds
        row.problem = row.problem or problem
        cell = row.cells.setdefault(attention, RunDocument(target, 0, 0))
        cell.operations, cell.runs = cell.operations + operations, cell.runs + runs
        cell.seconds += seconds
        cell.oracles = [*dict.fromkeys([*cell.oracles, *oracles.split(",")])]
    for target, text, oracle, severity, times, operations, cause, kind in cast(
        list[tuple[str, str, str, int, int, int, str, str | None]],
        database.rows(
            "SELECT findings.target, text, oracle, severity, times, findings.operations, cause, attention FROM findings"
            " JOIN tasks ON findings.task = tasks.number LEFT JOIN arms ON tasks.arm = arms.id"
            f" ORDER BY {Severity.stored_order('severity')}, findings.id"
        ),
    ):
        _, what, where, *_ = msgspec.json.decode(cause, type=list[str])
        row = rows.setdefault(target, CampaignRow(target, done=True))
        row.findings.append(
            CampaignFound(
                *(str(Severity(severity)), oracle, what, where, kind or ""),
                times=times,
                operations=operations,
                text=text,
            )
        )
    return list(rows.values())
