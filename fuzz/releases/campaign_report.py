"""What a campaign came to: its tables, the same as JSON, its files and its exit code."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..engines.keeping import found_by
from ..reports import formats
from ..reports.tables import Section, markdown_sections
from ..traces.reproduction import write_reproduction
from ..traces.trace_file import FoundWhat, TraceFile
from .campaign import Kept, Row


def exit_code(rows: Sequence[Row]) -> int:
    """1 if something was found, 3 if no target could be started, else 0."""
    if any(row.kept for row in rows):
        return 1
    return 0 if any(row.cells for row in rows) else 3


def progress_line(row: Row) -> str:
    """One line: how far a target has come."""
    found = sum(len(cell.found) for cell in row.cells.values())
    counts = f"{row.operations:,} operations, {len(row.cells)} attention types, {found} kinds of findings"
    return f"{row.target}: {counts}, {row.seconds:.0f} s, {_ended(row, 'done', '...')}"


def headline(rows: Sequence[Row]) -> str:
    """One line: what was run and how much of it."""
    return f"{len(rows)} targets, {sum(row.operations for row in rows):,} operations"


def verdict(rows: Sequence[Row]) -> str:
    """One line: how much was found."""
    found = sum(len(row.kept) for row in rows)
    return f"{found} findings" if found else "nothing was found"


def tables(rows: Sequence[Row], attention: Sequence[str]) -> Iterator[Section]:
    """Totals, a table for each oracle (attention types by targets), the findings and what could not be observed."""
    columns = ("target", "runs", "operations", "findings", "seconds", "ended")
    yield Section("Targets", columns, tuple(_total(row) for row in rows))
    for oracle in sorted({oracle for row in rows for cell in row.cells.values() for oracle in cell.oracles}):
        cells = tuple((name, *(_cell(row, name, oracle) for row in rows)) for name in attention)
        title = f"Findings of {oracle} by attention type, operations judged, seconds"
        yield Section(title, ("attention", *(row.target for row in rows)), cells)
    kinds = tuple(
        (row.target, kept.attention, *kept.finding.kind, f"{kept.times:,}", str(len(kept.trace.operations)))
        for row in rows
        for kept in row.kept
    )
    if kinds:
        columns = ("target", "attention", "what", "operation", "runs", "shrunk to")
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
        kept.finding.kind[0] for kept in row.kept if (kept.attention, kept.finding.oracle) == (name, oracle)
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
        "problem": row.problem,
        "operations": row.operations,
        "seconds": round(row.seconds, 1),
        "findings": [_kept_json(kept) for kept in row.kept],
        "cells": {name: formats.as_json(cell) for name, cell in row.cells.items()},
    }


def _kept_json(kept: Kept) -> dict[str, Any]:
    what, where = kept.finding.kind
    names = {"oracle": kept.finding.oracle, "observable": what, "operation": where, "attention": kept.attention}
    return names | {"times": kept.times, "operations": len(kept.trace.operations), "text": str(kept.finding)}


def write_page(rows: Sequence[Row], attention: Sequence[str], path: Path) -> None:
    """Write the tables as a Markdown page; its folder is made if missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = markdown_sections(f"{headline(rows)}: {verdict(rows)}", tables(rows, attention))
    path.write_text(text, encoding="utf-8")


def keep_findings(rows: Sequence[Row], folder: Path, seed: int, oracles: Mapping[str, tuple[str, ...]]) -> None:
    """Write trace and pytest file of everything that was found to a folder for each target.

    `oracles` are those that judged, by target.
    """
    for row in rows:
        for kept in row.kept:
            file = TraceFile(kept.trace, row.target, FoundWhat.of(kept.finding), found_by("random", seed))
            write_reproduction(file, folder / row.target.replace("==", "-"), oracles=oracles[row.target])
