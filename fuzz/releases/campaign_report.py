"""What a campaign came to: its tables, the same as JSON, its files, its exit code, and its page while it goes on."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..engines.reproductions import found_by
from ..engines.root_causes import NEW
from ..findings.interruption import interrupted_by
from ..findings.oracle_names import TARGET, without
from ..findings.severity import severity
from ..findings.words import plural
from ..findings.writing import alone, write_file
from ..page import beside
from ..page.files import CAMPAIGN_FILE, before_name
from ..page.live import LivePage
from ..reports import formats
from ..reports.tables import Section, markdown_sections
from ..traces.reproduction import WHOLE, folder_name, keep_reproduction
from ..traces.trace_file import FoundWhat, TraceFile
from .campaign import KeptOnTarget, Orders, Row, as_they_are

OF_A_CELL = 20
"""Samples of the history of one attention type on one target that a report tells."""


def exit_code(rows: Sequence[Row]) -> int:
    """1 if something was found, 130 if it was interrupted before, 3 if not all of it was run or a run tested nothing,
    else 0."""
    if any(row.kept for row in rows):
        return 1
    if any(row.interrupted for row in rows):
        return 130
    return 0 if any(row.operations for row in rows) and not not_run(rows) and not tested_nothing(rows) else 3


def not_run(rows: Sequence[Row]) -> list[str]:
    """A line for each target that did not come to its end by itself: why, and what of it was not run."""
    return [f"{row.target}: {row.problem.splitlines()[-1]}{_left(row)}" for row in rows if row.problem]


def _left(row: Row) -> str:
    left = [name for name in row.attention if name not in row.cells]
    return f"; not run: {', '.join(left)}" if left else ""


def tested_nothing(rows: Sequence[Row]) -> list[str]:
    """A line for each target whose runs tested nothing: what to look at."""
    return [f"{row.target}: {problem}" for row in rows if (problem := row.vacuity.problem)]


def progress_line(row: Row) -> str:
    """One line: how far a target has come."""
    found = sum(len(cell.found) for cell in row.cells.values())
    counts = ", ".join(
        [
            plural(row.operations, "operation"),
            plural(len(row.cells), "attention type"),
            plural(found, "kind of finding", "kinds of findings"),
        ]
    )
    return f"{row.target}: {counts}, {row.seconds:.0f} s, {_ended(row, 'done', '...')}"


def headline(rows: Sequence[Row]) -> str:
    """One line: what was run and how much of it."""
    return f"{plural(len(rows), 'target')}, {plural(sum(row.operations for row in rows), 'operation')}"


def verdict(rows: Sequence[Row]) -> str:
    """One line: how much was found, the worst of it, and whether all targets came to their end."""
    found = [kept for row in rows for kept in row.kept]
    ended = f"; ended by {interrupted_by()}" if any(row.interrupted for row in rows) else ""
    lost = f"NOT ALL OF IT RAN: {'; '.join(not_run(rows))}" if not_run(rows) else ""
    if not found:
        nothing = tested_nothing(rows)
        return lost or (f"TESTED NOTHING: {nothing[0]}" if nothing else f"nothing was found{ended}")
    worst = min(severity(kept.finding) for kept in found)
    new = f", {len(new_ones(rows))} of them new" if any(kept.root for kept in found) else ""
    return f"{plural(len(found), 'finding')}{new}, the worst: {worst}{ended}" + (f"; {lost}" if lost else "")


def new_ones(rows: Sequence[Row]) -> list[tuple[str, KeptOnTarget]]:
    """What no known flaw explains, with the name of the target."""
    return [(row.target, kept) for row in rows for kept in row.kept if kept.root == NEW]


def lines(rows: Sequence[Row]) -> list[str]:
    """What looks wrong, then each finding with its trace and files, for a person; for each target the worst first.

    Of findings whose root cause is known there is a line in the tables only.
    """
    notes = [f"note: {row.target}: {warning}" for row in rows for warning in row.vacuity.warnings]
    nothing = [f"tested nothing: {line}" for line in tested_nothing(rows)]
    return [*notes, *nothing] + [
        line
        for row in rows
        for number, kept in enumerate(sorted(_untold(row), key=lambda one: severity(one.finding)), 1)
        for line in ("", f"{row.target}, {number}. {kept.headline()}", *kept.lines())
    ]


def _untold(row: Row) -> list[KeptOnTarget]:
    """The findings that have to be told in full."""
    return [kept for kept in row.kept if kept.root in ("", NEW)]


def _by_root(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """A row for each target and root cause, what is new first."""
    for row in rows:
        roots = sorted({kept.root for kept in row.kept if kept.root}, key=lambda root: (root != NEW, root))
        for root in roots:
            mine = [kept for kept in row.kept if kept.root == root]
            kinds = Counter(" ".join(kept.finding.kind) for kept in mine)
            what = ", ".join(f"{kind} x{count}" if count > 1 else kind for kind, count in sorted(kinds.items()))
            times, settled = sum(kept.times for kept in mine), sum(kept.settled for kept in mine)
            yield row.target, root, what, f"{times:,}", f"{settled:,}"


def tables(rows: Sequence[Row], attention: Sequence[str]) -> Iterator[Section]:
    """Totals, a table for each oracle (attention types by targets), the findings and what could not be observed."""
    totals = ("target", "runs", "operations", "findings", "seconds", "ended")
    yield Section("Targets", totals, tuple(_total(row) for row in rows))
    if roots := tuple(_by_root(rows)):
        grouped = ("target", "root cause", "findings", "runs", "settled by experiment")
        yield Section("Root causes", grouped, roots)
    for oracle in sorted({oracle for row in rows for cell in row.cells.values() for oracle in cell.oracles}):
        cells = tuple((name, *(_cell(row, name, oracle) for row in rows)) for name in attention)
        title = f"Findings of {oracle} by attention type, operations judged, seconds"
        yield Section(title, ("attention", *(row.target for row in rows)), cells)
    kinds = tuple(
        (
            row.target,
            kept.attention,
            *kept.finding.kind,
            f"{kept.times:,}",
            str(len(kept.trace.operations)),
            kept.root or "-",
        )
        for row in rows
        for kept in row.kept
    )
    if kinds:
        columns = ("target", "attention", "what", "operation", "runs", "shrunk to", "root cause")
        yield Section("Findings", columns, kinds)
    hidden = {(row.target, *pair) for row in rows for cell in row.cells.values() for pair in cell.unobserved}
    if hidden:
        yield Section("Not observed", ("target", "property", "what it cannot show"), tuple(sorted(hidden)))


def _total(row: Row) -> tuple[str, ...]:
    runs = sum(cell.runs for cell in row.cells.values())
    ended = _ended(row, "as planned", "early")
    return (row.target, f"{runs:,}", f"{row.operations:,}", str(len(row.kept)), f"{row.seconds:.0f}", ended)


def _ended(row: Row, done: str, otherwise: str) -> str:
    """How a target came to its end: `done`, with its problem, or `otherwise`."""
    return done if row.done else row.problem.splitlines()[-1] if row.problem else otherwise


def _cell(row: Row, name: str, oracle: str) -> str:
    """What one oracle made of one attention type: kinds of findings, and operations."""
    cell = row.cells.get(name)
    if cell is None:
        return "not run"
    if cell.unbuilt.total() == cell.runs:
        return "not built"
    kinds = Counter(
        kept.finding.kind[0] for kept in row.kept if kept.attention == name and kept.finding.oracle in (oracle, TARGET)
    )
    found = " ".join(f"{what}x{times}" if times > 1 else what for what, times in sorted(kinds.items()))
    return f"{found or '-'} {cell.operations:,} in {cell.seconds:.0f} s"


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Everything about each target, JSON-ready."""
    return [_row_json(row) for row in rows]


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "target": row.target,
        "done": row.done,
        "interrupted": row.interrupted,
        "problem": row.problem,
        "operations": row.operations,
        "tested_nothing": row.vacuity.problem,
        "warnings": list(row.vacuity.warnings),
        "seconds": round(row.seconds, 1),
        "findings": [_kept_json(kept) for kept in row.kept],
        "cells": {name: formats.as_json(cell, OF_A_CELL) for name, cell in row.cells.items()},
    }


def _kept_json(kept: KeptOnTarget) -> dict[str, Any]:
    what, where = kept.finding.kind
    names = {"severity": str(severity(kept.finding)), "oracle": kept.finding.oracle}
    names |= {"observable": what, "operation": where, "attention": kept.attention}
    names |= {"root_cause": kept.root, "settled": str(kept.settled)} if kept.root else {}
    names |= kept.named()
    return names | {"times": kept.times, "operations": len(kept.trace.operations), "text": str(kept.finding)}


def write_page(rows: Sequence[Row], attention: Sequence[str], path: Path) -> None:
    """Write the tables as a Markdown page; its folder is made if missing."""
    text = markdown_sections(f"{headline(rows)}: {verdict(rows)}", tables(rows, attention))
    write_file(path, text)


class KeptWhole:
    """Writes what a campaign comes upon as soon as it is known, before anything is said of it and before it is shrunk:
    whatever ends the campaign, it is not lost."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._seed = folder, seed
        self._kept: set[tuple[str, str, tuple[str, ...]]] = set()

    def keep(self, row: Row) -> None:
        """Write the traces of the runs that found something new on a target, and their pytest files."""
        for name, cell in row.cells.items():
            for found in cell.ranked():
                key = (row.target, name, found.key)
                if key not in self._kept:
                    file = TraceFile(
                        found.trace, row.target, FoundWhat.of(found.finding), found_by("random", self._seed)
                    )
                    oracles = without(cell.oracles, found.passed)
                    keep_reproduction(file, self._folder / folder_name(row.target), oracles=oracles, ending=WHOLE)
                    self._kept.add(key)


def keep_findings(rows: Sequence[Row], folder: Path, seed: int) -> None:
    """Write trace and pytest file of everything that was found to a folder for each target, and note where they are.
    What was written before is left as it is."""
    for row in rows:
        for place, kept in ((place, kept) for place, kept in enumerate(row.kept) if kept.files is None):
            file = TraceFile(kept.trace, row.target, FoundWhat.of(kept.finding), found_by("random", seed))
            files = keep_reproduction(file, folder / folder_name(row.target), oracles=kept.oracles)
            page = beside.write_beside(kept.document, beside.Kept(files.trace, files.command))
            row.kept[place] = replace(kept, files=files, page=page)


def write_campaign(rows: Sequence[Row], folder: Path) -> Path:
    """Write all of it as JSON into the folder, for `report`; what the campaign before wrote there stays beside it."""
    path = folder / CAMPAIGN_FILE
    with alone(path):
        if path.is_file():
            write_file(path.with_name(before_name(path)), [path.read_bytes()])
        write_file(path, json.dumps(as_json(rows), indent=1))
    return path


class LiveCampaign:
    """Tells a page, if there is one, what the campaign has come to."""

    def __init__(self, page: LivePage | None, specs: Sequence[str], orders: Orders, folder: Path) -> None:
        self._page, self._orders, self._folder = page, orders, folder
        self._rows = {spec: Row(spec) for spec in specs}
        if page is not None:
            page.show(self._told())

    def changed(self, row: Row) -> None:
        """A target has come to something; where it has ended, its findings are written, and their pages."""
        if self._page is not None:
            if row.done:
                keep_findings([row], self._folder, self._orders.plan.seed)
            self.grown(row)

    def grown(self, row: Row) -> None:
        """A target is so far."""
        if self._page is not None:
            self._rows[row.target] = row
            self._page.grown(self._told)

    def ended(self, rows: Sequence[Row]) -> None:
        """This is what came of it."""
        if self._page is not None:
            cut = any(row.interrupted for row in rows)
            words = f"ended by {interrupted_by()}" if cut else "the campaign has ended"
            told = {"title": "campaign", "words": words, "share": 1.0, "ended": True}
            self._page.show(told | {"campaign": as_json(rows)})

    def _told(self) -> dict[str, Any]:
        rows = list(self._rows.values())
        over = [one for one in rows if one.done or one.problem]
        shown = [one if one.done else replace(one, kept=as_they_are(one, self._orders)) for one in rows]
        words = f"{len(over)} of {plural(len(rows), 'target')} ended"
        share = sum(1.0 if one in over else self._share(one) for one in rows) / len(rows)
        return {"title": "campaign", "words": words, "share": share, "campaign": as_json(shown)}

    def _share(self, row: Row) -> float:
        """How far a target is, from 0 to 1."""
        plan = self._orders.plan
        pairs = ((row.operations, plan.operations), (row.seconds, plan.seconds))
        return min(1.0, max((done / most for done, most in pairs if most), default=0.0))
