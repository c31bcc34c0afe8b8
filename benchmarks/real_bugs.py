"""The catalogue of real bugs: how soon each planted one is found, by whom, and its smallest trace.

python benchmarks/real_bugs.py [--seed N] [--seeds N] [--seconds S | --operations N] [--only FAULT ...] [--missing]
    [--matrix N] [--explore] [--detectors] [--traces FOLDER] [--write PAGE]

What was measured is kept in a file beside the page, with the suffix `.json`; what is not measured now stays as it is
there, so faults can be measured one by one. With `--missing` only those are that it lacks; `--only` without a name
measures nothing and writes the page anew. benchmarks/README.md says more.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import msgspec
from blockproof.fuzz.configuration.findings import as_document
from blockproof.fuzz.engines.mutants import DETECTORS, NOT_RUN, FaultResult, FaultSearch, cell_of, detected, results
from blockproof.fuzz.exploration import planting
from blockproof.fuzz.exploration.scopes import SCOPES
from blockproof.fuzz.exploration.search import Limits
from blockproof.fuzz.exploration.search import Search as Exploring
from blockproof.fuzz.faults import CATALOGUED, Fault, Part
from blockproof.fuzz.faults.identities import named_by, named_from
from blockproof.fuzz.faults.real_bugs import RealBug, real_bugs
from blockproof.fuzz.findings.writing import write_file
from blockproof.fuzz.planning.shipped import QUESTIONS
from blockproof.fuzz.traces.trace_file import write_trace
from written import command, parser, processor, table

Row: TypeAlias = dict[str, Any]
ROOT = Path(__file__).resolve().parent.parent
SECONDS, SEEDS = 60.0, 3
SHRINK_SECONDS = 900.0
SOON = 5.0
"""Processor seconds within which nine of ten are to be found."""
STATES = 3_000
"""Of each scope that `--explore` looks into."""
EXPLORED = ("full", "full-eagle", "sliding", "mamba-drafts", "full+sliding", "full+mamba", "full-uncached")
NAMES_ANEW = {named_by.__name__, named_from.__name__}
"""What plants a fault by naming all blocks anew. The exploration compares names, and would see the right ones, too."""
DASH = "–"


def main() -> int:
    """Hunt, keep, and write the page. 1 if a fault was not found."""
    asked = _arguments().parse_args()
    rows = _kept(asked.write)
    wanted = [name for name in CATALOGUED if not (asked.missing and name in rows)] if asked.only is None else asked.only
    if unknown := [name for name in wanted if name not in CATALOGUED]:
        print(f"no fault of the catalogue: {', '.join(unknown)}", file=sys.stderr)
        return 2
    for name in wanted:
        row = rows[name] if asked.detectors and name in rows else _hunted(CATALOGUED[name], asked)
        row["detectors"] = {**rows.get(name, {}).get("detectors", {}), **_detectors(row, asked)}
        rows[name] = row
        print(_told(row), flush=True)
        if asked.write:  # each time: what was measured is not lost when somebody ends it
            _write(asked.write, rows)
    if asked.write:
        _write(asked.write, rows)
    missed = [name for name in wanted if not rows[name]["found"]]
    print(f"{len(wanted) - len(missed)} of {len(wanted)} found" + (f"; missed: {', '.join(missed)}" if missed else ""))
    return 1 if missed else 0


def _arguments() -> argparse.ArgumentParser:
    asked = parser(__doc__)
    asked.add_argument("--seeds", type=int, default=SEEDS)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--seconds", type=float, default=SECONDS)
    asked.add_argument("--operations", type=int, help="in place of --seconds, on a machine that others use")
    asked.add_argument("--only", nargs="*")
    asked.add_argument("--missing", action="store_true")
    asked.add_argument("--matrix", type=int, metavar="N", help="ask every detector, for so many operations of one seed")
    asked.add_argument("--explore", action="store_true", help="ask the exploration of small scopes as well")
    asked.add_argument("--detectors", action="store_true", help="ask these only; what was found before stays")
    asked.add_argument("--traces", type=Path)
    return asked


def _hunted(fault: Fault, asked: argparse.Namespace) -> Row:
    """The row of a fault, hunted with each seed. Its trace is written where that is asked for."""
    seconds = None if asked.operations else asked.seconds
    search = FaultSearch(seconds, asked.operations, asked.seed, shrink_seconds=SHRINK_SECONDS)
    (result,) = results([fault], search, asked.seeds)
    if asked.traces:
        _write_trace(result, asked.traces)
    row: Row = msgspec.to_builtins(result.row(matrix=False))
    return row


def _detectors(row: Row, asked: argparse.Namespace) -> dict[str, Row]:
    """What the detectors come to that are asked now. What has found the fault first of all is one of them."""
    fault, name = CATALOGUED[row["fault"]], row["oracle"]
    cells: dict[str, Row | None] = {}
    if asked.matrix:
        search = FaultSearch(None, asked.matrix, asked.seed)
        cells = {detector: cell_of(hunts) for detector, hunts in detected(fault, [search])}
    if asked.explore:
        cells["explore"] = _explored(fault)
    if row["found"] and name in DETECTORS:
        cells[name] = {key: row[key] for key in ("found", "operations", "processor_seconds", "observable")}
    return {detector: cell for detector, cell in cells.items() if cell is not None}


# What is kept.


def _kept(page: Path | None) -> dict[str, Row]:
    """What was measured before, by fault."""
    file = page.with_suffix(".json") if page else None
    if file is None or not file.exists():
        return {}
    return {row["fault"]: row for row in json.loads(file.read_text(encoding="utf-8"))["rows"]}


def _write(page: Path, rows: Mapping[str, Row]) -> None:
    ordered = [rows[name] for name in CATALOGUED if name in rows]
    kept = {"command": command(), "processor": processor(), "rows": ordered}
    write_file(page.with_suffix(".json"), json.dumps(kept, indent=1) + "\n")
    write_file(page, page_of(ordered, command(), processor()))


def _write_trace(result: FaultResult, folder: Path) -> None:
    """Put the smallest trace, or the question, into the folder under the name of the entry and the fault."""
    shown = result.shown
    name = f"{result.bug}-{shown.hunt.fault}.json"
    if shown.trace is not None:
        folder.mkdir(parents=True, exist_ok=True)
        write_trace(shown.trace, folder / name)
    elif shown.question is not None:
        write_file(folder / QUESTIONS / name, json.dumps(as_document(shown.question), indent=1) + "\n")


def _told(row: Row) -> str:
    took = f"{row['operations']:9,} operations {row['processor_seconds']:7.2f} s"
    verdict = "found" if row["found"] else "MISSED"
    return f"{row['bug']:5} {row['fault']:42} {verdict:6} {took}  shrunk to {row['shrunk_to']}"


# Detectors that `blockproof mutants` does not ask.


def _explored(fault: Fault) -> Row | None:
    """What the exploration of small scopes comes to, a bounded number of states of each; None if it cannot be asked."""
    if fault.part != Part.CORE or not NAMES_ANEW.isdisjoint(fault.plant.__code__.co_names):
        return None
    states, start = 0, time.process_time()
    for name in EXPLORED:
        planted = planting.PlantedMistake(
            fault.name, fault.describe, "", SCOPES[name], lambda e: fault.plant(planting.core_of(e))
        )
        planting.FAULTS[fault.name] = planted
        try:
            done = Exploring(SCOPES[name], fault.name).run(Limits(STATES))
        finally:
            del planting.FAULTS[fault.name]
        states += done.states
        if done.finding is not None:
            return _cell(True, states, start, done.finding.names[0])
    return _cell(False, states, start, None)


def _cell(found: bool, operations: int, start: float, observable: str | None) -> Row:
    took = round(time.process_time() - start, 2)
    return {"found": found, "operations": operations, "processor_seconds": took, "observable": observable}


# The page.


def page_of(rows: Sequence[Row], made_by: str, machine: str) -> str:
    """The page."""
    return "\n".join([*_head(rows, made_by, machine), *_table(rows), *_matrix(rows), *_not_planted()]) + "\n"


def _head(rows: Sequence[Row], made_by: str, machine: str) -> Iterator[str]:
    bugs = real_bugs()
    planted = [bug for bug in bugs.values() if bug.faults]
    seeds = max((len(row.get("seeds", [row])) for row in rows), default=0)
    found = [row for row in rows if row["found"]]
    soon = sum(row["processor_seconds"] <= SOON for row in found)
    within = sum(row["processor_seconds"] <= SECONDS for row in found)
    sizes = [row["shrunk_to"] for row in found if row["shrunk_to"] is not None]
    yield "# Real bugs"
    yield ""
    yield "Does the harness find what has really gone wrong? Bugs of paged KV-cache managers, from public threads, are"
    yield "planted into our core, one after the other (`blockproof mutants --real`). Last written by"
    yield f"`{made_by}`"
    yield f"on {machine}; with `--detectors` the finders, their seeds and traces are of the run before."
    yield ""
    yield f"* {len(bugs)} entries, of which {len(planted)} are planted, with {len(CATALOGUED)} faults; the others"
    yield "  are [at the end](#not-planted), each with the reason."
    yield f"* {len(found)} of {len(rows)} faults are found: in the median of {seeds} seeds {soon} within"
    yield f"  {SOON:g} processor seconds, {within} within {SECONDS:g}."
    if sizes:
        yield f"* Their traces have {median(sizes):g} operations in the median, {max(sizes)} at most."
    yield ""
    yield "The traces come with blockproof, and [pytest](../guide/pytest.md#real-bugs) runs them against any core."
    yield "What lockstep finds is judged against the model of the reference release; which detector sees what is"
    yield "[below](#who-sees-what)."
    yield ""


def _table(rows: Sequence[Row]) -> Iterator[str]:
    bugs = real_bugs()
    yield "## How soon"
    yield ""
    seeds = max((len(row.get("seeds", [row])) for row in rows), default=0)
    yield "Operations and processor seconds until it is found: of the seed in the middle, `(of 1)` where there were"
    yield "fewer seeds. A question is one about a configuration."
    yield ""
    cells = []
    for row in rows:
        bug = bugs[row["bug"]]
        seen = f"`{row['observable']}` at {row['operation']}" if row["found"] else "not found"
        size = "question" if row["shrunk_to"] is None else str(row["shrunk_to"])
        few = f" (of {number})" if (number := len(row.get("seeds", [row]))) < seeds else ""
        cost = [f"{row['operations']:,}{few}", f"{row['processor_seconds']:.2f}", size]
        cells.append(
            [f"`{row['bug']}`", _report(bug), bug.title, f"`{row['fault']}`", seen, row["oracle"] or DASH, *cost]
        )
    named = "entry | report | what went wrong | fault | seen as | by"
    yield from table(f"{named} | operations: | seconds: | trace:", cells)
    yield ""


def _matrix(rows: Sequence[Row]) -> Iterator[str]:
    yield "## Who sees what"
    yield ""
    yield "Each detector alone: what has found the fault above, the others with one seed and a bound on the"
    yield "operations, which is in the table where they have missed it. A number says after how many operations"
    yield "it saw the fault, of `explore` after how many states of"
    yield f"{len(EXPLORED)} small scopes (at most {STATES:,} each); it is not asked about faults that name blocks"
    yield f"anew, as it compares names. `{DASH}`: not run. Never run: `prove`, as"
    yield f"{NOT_RUN['prove']};"
    yield "our unit tests, which would take 37 processor seconds for each fault that they do not see."
    yield ""
    names = [*DETECTORS, "explore"]
    shown = ([f"`{row['fault']}`", *(_shown(row["detectors"].get(name)) for name in names)] for row in rows)
    yield from table(f"fault | {': | '.join(names)}:", shown)
    yield ""
    asked = {name: [cell for row in rows if (cell := row["detectors"].get(name))] for name in names}
    counts = ([name, len(cells), sum(cell["found"] for cell in cells)] for name, cells in asked.items())
    yield from table("detector | asked about: | sees:", counts)
    yield ""


def _shown(cell: Row | None) -> str:
    if cell is None:
        return DASH
    return f"{cell['operations']:,}" if cell["found"] else f"not in {cell['operations']:,}"


def _report(bug: RealBug) -> str:
    """The link to the report, under the name that says whose it is."""
    owner, name, _, number = bug.link.removeprefix("https://github.com/").split("/")
    return f"[{owner}/{name}#{number}]({bug.link})"


def _not_planted() -> Iterator[str]:
    yield "## Not planted"
    yield ""
    bugs = [(name, bug) for name, bug in real_bugs().items() if bug.not_planted]
    rows = ([f"`{name}`", _report(bug), bug.title, bug.not_planted] for name, bug in bugs)
    yield from table("entry | report | what went wrong | why it is not planted", rows)


if __name__ == "__main__":
    sys.exit(main())
