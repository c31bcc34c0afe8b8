"""The catalogue of real bugs: how soon each planted one is found, by whom, and its smallest trace.

python benchmarks/real_bugs.py [--seed N] [--seeds N] [--seconds S | --operations N] [--only FAULT ...] [--missing]
    [--matrix] [--explore] [--unit-tests] [--traces FOLDER] [--write PAGE]

What was measured is kept in a file beside the page, with the suffix `.json`; what is not measured now stays as it is
there, so faults can be measured one by one. With `--missing` only those are that it lacks; `--only` without a name
measures nothing and writes the page anew. benchmarks/README.md says more.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from blockproof.fuzz.configuration.findings import as_document
from blockproof.fuzz.engines.mutant_matrix import DETECTORS, NOT_RUN, Result, results
from blockproof.fuzz.engines.mutants import Search
from blockproof.fuzz.faults import CATALOGUED, Fault, Part
from blockproof.fuzz.faults.real_bugs import real_bugs
from blockproof.fuzz.findings.writing import write_file
from blockproof.fuzz.planning.shipped import QUESTIONS
from blockproof.fuzz.traces.trace_file import write_trace
from blockproof.proofs.exploration import planting
from blockproof.proofs.exploration.scopes import SCOPES
from blockproof.proofs.exploration.search import Limits
from blockproof.proofs.exploration.search import Search as Exploring
from written import command, processor

Row: TypeAlias = dict[str, Any]
ROOT = Path(__file__).resolve().parent.parent
SECONDS, SEEDS = 60.0, 3
SHRINK_SECONDS = 900.0
SOON = 5.0
"""Processor seconds within which nine of ten are to be found."""
STATES = 3_000
"""Of each scope that `--explore` looks into."""
EXPLORED = ("full", "full-eagle", "sliding", "mamba-drafts", "full+sliding", "full+mamba", "full-uncached")
TESTS_S = 120.0
"""How long our unit tests may take with one fault."""
COLUMNS = (*DETECTORS, *NOT_RUN)
DASH = "–"


def main() -> int:
    """Hunt, keep, and write the page. 1 if a fault was not found."""
    asked = _arguments().parse_args()
    kept = _kept(asked.write)
    rows = {name: kept[name] for name in CATALOGUED if name in kept}
    names = (
        asked.only if asked.only is not None else [name for name in CATALOGUED if not (asked.missing and name in rows)]
    )
    if unknown := [name for name in names if name not in CATALOGUED]:
        print(f"no fault of the catalogue: {', '.join(unknown)}", file=sys.stderr)
        return 2
    seconds = None if asked.operations else asked.seconds
    search = Search(seconds, asked.operations, asked.seed, shrink_seconds=SHRINK_SECONDS)
    for result in results([CATALOGUED[name] for name in names], search, asked.seeds, asked.matrix):
        row = result.as_json(asked.matrix)
        fault = CATALOGUED[row["fault"]]
        if asked.explore:
            row.setdefault("detectors", {})["explore"] = _explored(fault)
        if asked.unit_tests:
            row.setdefault("detectors", {})["unit tests"] = _unit_tested(fault)
        if asked.traces:
            _write_trace(result, asked.traces)
        rows[fault.name] = _with_former(row, kept.get(fault.name))
        print(_told(row), flush=True)
        if asked.write:  # each time: what was measured is not lost when somebody ends it
            _write(asked.write, rows)
    if asked.write:
        _write(asked.write, rows)
    missed = [name for name in names if not rows[name]["found"]]
    print(f"{len(names) - len(missed)} of {len(names)} found" + (f"; missed: {', '.join(missed)}" if missed else ""))
    return 1 if missed else 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--operations", type=int, help="in place of --seconds, on a machine that others use")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--matrix", action="store_true")
    parser.add_argument("--explore", action="store_true")
    parser.add_argument("--unit-tests", action="store_true")
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--write", type=Path)
    return parser


# What is kept.


def _kept(page: Path | None) -> dict[str, Row]:
    """What was measured before, by fault."""
    file = page.with_suffix(".json") if page else None
    if file is None or not file.exists():
        return {}
    return {row["fault"]: row for row in json.loads(file.read_text(encoding="utf-8"))["rows"]}


def _with_former(row: Row, former: Row | None) -> Row:
    """The row, with what detectors came to before that were not asked now."""
    now = {name: cell for name, cell in row.get("detectors", {}).items() if cell is not None}
    before = {name: cell for name, cell in (former or {}).get("detectors", {}).items() if cell is not None}
    return {**row, "detectors": {**before, **now}}


def _write(page: Path, rows: Mapping[str, Row]) -> None:
    ordered = [rows[name] for name in CATALOGUED if name in rows]
    kept = {"command": command(), "processor": processor(), "rows": ordered}
    write_file(page.with_suffix(".json"), json.dumps(kept, indent=1) + "\n")
    write_file(page, page_of(ordered, command(), processor()))


def _write_trace(result: Result, folder: Path) -> None:
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
    if fault.part != Part.CORE:
        return None
    states, start = 0, time.process_time()
    for name in EXPLORED:
        planted = planting.Fault(
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


def _unit_tested(fault: Fault) -> Row | None:
    """Whether a test of ours fails with the fault in every manager that it builds; None if it cannot be asked."""
    if fault.part != Part.CORE:
        return None
    words = [sys.executable, "-m", "pytest", "tests/impl", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
    words += ["-p", "planted"]
    environment = {**os.environ, "PLANTED": fault.name, "PYTHONPATH": str(ROOT / "benchmarks")}
    start, before = time.process_time(), os.times()
    try:
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TESTS_S)
    except subprocess.TimeoutExpired:
        return None
    cell = _cell(done.returncode == 1, 0, start, None)
    after = os.times()
    cell["processor_seconds"] = round(after.children_user - before.children_user, 2)
    return cell


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
    yield "planted into our core, one after the other (`blockproof mutants --real`). Written by"
    yield f"`{made_by}`"
    yield f"on {machine}."
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
    yield "Operations and processor seconds until it is found: of the seed in the middle. A question is one about a"
    yield "configuration."
    yield ""
    yield "| entry | what went wrong | fault | seen as | by | operations | seconds | trace |"
    yield "| --- | --- | --- | --- | --- | ---: | ---: | ---: |"
    for row in rows:
        bug = bugs[row["bug"]]
        seen = f"`{row['observable']}` at {row['operation']}" if row["found"] else "not found"
        size = "question" if row["shrunk_to"] is None else str(row["shrunk_to"])
        cells = [row["bug"], f"[{bug.title}]({bug.link})", f"`{row['fault']}`", seen, row["oracle"] or DASH]
        cells += [f"{row['operations']:,}", f"{row['processor_seconds']:.2f}", size]
        yield f"| {' | '.join(cells)} |"
    yield ""


def _matrix(rows: Sequence[Row]) -> Iterator[str]:
    yield "## Who sees what"
    yield ""
    yield "Each detector alone. A number says after how many operations it saw the fault, of `explore` after how"
    yield f"many states of {len(EXPLORED)} small scopes (at most {STATES:,} each); the unit tests are the quick ones of"
    yield f"`tests/impl`, with the fault in every manager that they build. `{DASH}`: not run. `prove` is never run:"
    yield f"{NOT_RUN['prove']}."
    yield ""
    names = [name for name in COLUMNS if name != "prove"]
    yield f"| fault | {' | '.join(names)} |"
    yield f"| --- |{' ---: |' * len(names)}"
    for row in rows:
        yield f"| `{row['fault']}` | {' | '.join(_shown(name, row['detectors'].get(name)) for name in names)} |"
    for name in names:
        cells = [row["detectors"][name] for row in rows if row["detectors"].get(name)]
        if cells and name == names[0]:
            yield ""
            yield "| detector | asked about | sees |"
            yield "| --- | ---: | ---: |"
        if cells:
            yield f"| {name} | {len(cells)} | {sum(cell['found'] for cell in cells)} |"
    yield ""


def _shown(name: str, cell: Row | None) -> str:
    if cell is None:
        return DASH
    if not cell["found"]:
        return "missed"
    return "seen" if name == "unit tests" else f"{cell['operations']:,}"


def _not_planted() -> Iterator[str]:
    yield "## Not planted"
    yield ""
    yield "| entry | what went wrong | why it is not planted |"
    yield "| --- | --- | --- |"
    for bug_id, bug in real_bugs().items():
        if bug.not_planted:
            yield f"| {bug_id} | [{bug.title}]({bug.link}) | {bug.not_planted} |"


if __name__ == "__main__":
    sys.exit(main())
