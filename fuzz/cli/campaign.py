"""`blockproof campaign`: many targets under the same oracles, and a table of what was found on which."""

import json
import secrets
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .fuzz import JsonOption, OracleOption, attention_names, oracles_or_usage

if TYPE_CHECKING:
    from ..releases.campaign import Kept, Row
    from ..reports.tables import Section

DEFAULT_OPERATIONS = 200_000


def campaign(
    target: Annotated[list[str] | None, typer.Option(help="A target; name several by repeating it.")] = None,
    releases: Annotated[str | None, typer.Option(help="All known releases of this engine, or NAME==A..B.")] = None,
    operations: Annotated[
        int | None, typer.Option(min=1, help="For each target; 200,000 if no limit is given.")
    ] = None,
    seconds: Annotated[float | None, typer.Option(min=0.0, help="For each target.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same runs; drawn and printed by default.")] = None,
    oracle: OracleOption = "auto",
    attention: Annotated[str, typer.Option(help="Attention types, as in full,sliding,full+mamba.")] = "all",
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Targets at a time.")] = 2,
    shrink_seconds: Annotated[float, typer.Option(min=0.0, help="For the trace of each finding.")] = 10.0,
    out: Annotated[Path, typer.Option(help="Folder for what is found, one below it for each target.")] = Path(
        "findings"
    ),
    summary: Annotated[Path | None, typer.Option(help="Write the tables as Markdown to this file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Fuzz several targets, each in a process of its own, and go on after what is found.

    A target that cannot be started, dies, hangs or eats memory does not end the others. Exits with 1 on a finding, 3 if
    no target could be started.
    """
    from ..engines.plan import Plan
    from ..releases.campaign import Orders, run_campaign

    specs = _specs(target or [], releases)
    names = attention_names(attention)
    if operations is None and seconds is None:
        operations = DEFAULT_OPERATIONS
    drawn = secrets.randbelow(2**32) if seed is None else seed
    judges = {spec: oracles_or_usage(oracle, spec) for spec in specs}
    rows: list[Row] = []
    for chosen in dict.fromkeys(judges.values()):  # targets with an exact model may be judged by other oracles
        plan = Plan(drawn, seconds, operations, names, oracles=chosen)
        mine = [spec for spec in specs if judges[spec] == chosen]
        print(f"{', '.join(mine)}: {', '.join(chosen)}; seed {drawn}", file=sys.stderr)
        rows += run_campaign(mine, Orders(plan, shrink_seconds), jobs, _say)
    for row in rows:
        _keep(row, out / row.target.replace("==", "-"), drawn, judges[row.target])
    _report(rows, names, summary, as_json)
    raise typer.Exit(1 if any(row.kept for row in rows) else 0 if any(row.cells for row in rows) else 3)


def _specs(targets: list[str], releases: str | None) -> list[str]:
    """Names of all targets, each once. BadParameter for a wrong one, or if there is none."""
    from ..opening.targets import check_spec
    from ..releases.versions import releases_between

    try:
        specs = [*targets, *(releases_between(releases) if releases else ())]
        for spec in specs:
            check_spec(spec)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if not specs:
        raise typer.BadParameter("no target: add --target or --releases")
    return list(dict.fromkeys(specs))


def _say(row: "Row") -> None:
    """A line on stderr whenever something has come in."""
    state = "done" if row.done else row.problem.splitlines()[-1] if row.problem else "..."
    found = sum(len(cell.found) for cell in row.cells.values())
    counts = f"{row.operations:,} operations, {len(row.cells)} attention types, {found} kinds of findings"
    print(f"{row.target}: {counts}, {row.seconds:.0f} s, {state}", file=sys.stderr)


def _keep(row: "Row", folder: Path, seed: int, oracles: tuple[str, ...]) -> None:
    """Write trace and pytest file of everything that was found."""
    from ..traces.reproduction import write_reproduction
    from ..traces.trace_file import FoundBy, FoundWhat, TraceFile

    for kept in row.kept:
        found_by = FoundBy("random", seed, version("blockproof"))
        file = TraceFile(kept.trace, row.target, FoundWhat.of(kept.finding), found_by)
        write_reproduction(file, folder, oracles=oracles)


def _report(rows: "list[Row]", names: tuple[str, ...], summary: Path | None, as_json: bool) -> None:
    from ..reports.tables import markdown_sections, show_sections

    head = f"{len(rows)} targets, {sum(row.operations for row in rows):,} operations"
    tables = [*_tables(rows, names)]
    found = sum(len(row.kept) for row in rows)
    foot = f"{found} findings" if found else "nothing was found"
    if summary is not None:
        summary.parent.mkdir(parents=True, exist_ok=True)
        summary.write_text(markdown_sections(f"{head}: {foot}", tables), encoding="utf-8")
    if as_json:
        print(json.dumps([_as_json(row) for row in rows], indent=2))
    else:
        show_sections(head, tables, foot, bad=found > 0)


def _tables(rows: "list[Row]", names: tuple[str, ...]) -> "list[Section]":
    from ..reports.tables import Section

    totals = [_total(row) for row in rows]
    columns = ("target", "runs", "operations", "findings", "seconds", "ended")
    tables = [Section("Targets", columns, tuple(totals))]
    judged = sorted({oracle for row in rows for cell in row.cells.values() for oracle in cell.oracles})
    for oracle in judged:
        cells = tuple((name, *(_cell(row, name, oracle) for row in rows)) for name in names)
        title = f"Findings of {oracle} by attention type, operations judged, seconds"
        tables.append(Section(title, ("attention", *(row.target for row in rows)), cells))
    kinds = tuple(
        (row.target, kept.attention, *kept.finding.kind, f"{kept.times:,}", str(len(kept.trace.operations)))
        for row in rows
        for kept in row.kept
    )
    if kinds:
        columns = ("target", "attention", "what", "operation", "runs", "shrunk to")
        tables.append(Section("Findings", columns, kinds))
    hidden = {(row.target, *pair) for row in rows for cell in row.cells.values() for pair in cell.unobserved}
    if hidden:
        tables.append(Section("Not observed", ("target", "property", "what it cannot show"), tuple(sorted(hidden))))
    return tables


def _total(row: "Row") -> tuple[str, ...]:
    runs = sum(cell.runs for cell in row.cells.values())
    ended = "as planned" if row.done else row.problem.splitlines()[-1] if row.problem else "early"
    return (row.target, f"{runs:,}", f"{row.operations:,}", str(len(row.kept)), f"{row.seconds:.0f}", ended)


def _cell(row: "Row", name: str, oracle: str) -> str:
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


def _as_json(row: "Row") -> dict[str, Any]:
    from ..reports import formats as report

    def kept_json(kept: "Kept") -> dict[str, Any]:
        what, where = kept.finding.kind
        names = {"oracle": kept.finding.oracle, "observable": what, "operation": where, "attention": kept.attention}
        return names | {"times": kept.times, "operations": len(kept.trace.operations), "text": str(kept.finding)}

    return {
        "target": row.target,
        "done": row.done,
        "problem": row.problem,
        "operations": row.operations,
        "seconds": round(row.seconds, 1),
        "findings": [kept_json(kept) for kept in row.kept],
        "cells": {name: report.as_json(cell) for name, cell in row.cells.items()},
    }
