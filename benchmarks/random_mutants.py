"""Writes the page of random mutants from what `blockproof mutants --of ... --keep FILE` has kept, a file for each seed.

python benchmarks/random_mutants.py FILE ... [--note TEXT] [--write docs/evidence/random-mutants.md]

Survivors are judged anew by what is written up of them now. Exits with 1 if one is not. A note stands below the
figures; it is for those of other runs.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from html import escape
from pathlib import Path
from statistics import median
from textwrap import wrap

from blockproof.fuzz.findings.writing import write_file
from blockproof.fuzz.mutation.hunting import Hunted
from blockproof.fuzz.mutation.report import NO_MISTAKE, Asked, Told, place, read_kept, share
from blockproof.fuzz.mutation.subject import changed_of
from blockproof.fuzz.mutation.survivors import CLASSES, EQUIVALENT, OPEN, OUTSIDE, TEXT

OWN_TESTS = (105, 160)
"""What the tests of the release itself kill, of one set of other mutants."""


def page(runs: Sequence[Told], note: str = "") -> str:
    """The result of all runs as Markdown."""
    hunted = [one for run in runs for one in run.hunted]
    lines = [*_head(runs, hunted, note), *_modules(runs, hunted), *_seeds(runs), *_killers(hunted), *survivors(runs)]
    return "\n".join(lines) + "\n"


def _head(runs: Sequence[Told], hunted: Sequence[Hunted], note: str) -> Iterator[str]:
    asked = runs[0].asked
    seeds = ", ".join(str(run.asked.seed) for run in runs)
    counts = counts_of(runs, None)
    wrong = counts["mutants"] - sum(counts[kind] for kind in NO_MISTAKE)
    found = [one for one in hunted if one.status == "killed"]
    yield "# Random mutants of a release"
    yield ""
    command = f"blockproof mutants --of {asked.of} --random {asked.random} --seed {runs[0].asked.seed}"
    yield f"`{command} --operations {asked.operations} --cases {asked.cases} --keep FILE`,"
    yield "and the same for each other seed; `python benchmarks/random_mutants.py FILE ... --write PAGE` has written"
    yield f"this page, {date.today()}. Seeds {seeds}. For each mutant at most {asked.operations:,} operations in"
    yield "lockstep over all attention types, an eighth of that over each one alone, a quarter each with misuse and"
    yield f"without a model, and {asked.cases:,} configurations."
    yield ""
    told = (
        f"Of {counts['mutants']} mutants {counts['killed']} were found ({counts['import']} of them when imported). "
        f"{counts[EQUIVALENT] + counts[TEXT]} of the others are not wrong. Of the {wrong} that are, "
        f"**{share(counts['killed'], wrong)}** were found; survivors that concern what is not modelled: "
        f"{counts[OUTSIDE]}, gaps: {counts[OPEN]}. "
        f"The median of those found took {median(one.operations for one in found):,.0f} "
        f"operations, {median(one.cases for one in found):,.0f} configurations and "
        f"{median(one.seconds for one in found):.1f} s of processor time; all of it took "
        f"{sum(one.seconds for one in hunted):,.0f} s, imports and the runs of the release as it stands not counted."
    )
    yield from wrap(told, 110)
    yield ""
    if note:
        yield from (*wrap(note, 110), "")
    yield from wrap(
        "A mutant is one random change of the syntax, such as a condition negated, a statement removed, a constant, a "
        "comparison or an operator exchanged. Every place of every module is as likely as any other; annotations, "
        "docstrings and overloads are no places. The changed source is only in a child process, never on the disk. "
        "What counts is what the release as it stands does not show over the same seed, its known deviations declared. "
        "Stages whose operations never run the changed lines are spared: there the mutant is the release.",
        110,
    )


def _modules(runs: Sequence[Told], hunted: Sequence[Hunted]) -> Iterator[str]:
    mutable = runs[0].subject.mutable
    yield from ("", "## By module", "")
    heads = ("module", "found", "of", "not wrong", "not modelled", "gaps", "found of those that are wrong")
    yield f"| {' | '.join(heads)} | by the release's own tests, of other mutants |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for module in (*mutable.modules, None):
        counts = counts_of(runs, module)
        wrong = counts["mutants"] - sum(counts[kind] for kind in NO_MISTAKE)
        own = OWN_TESTS if module is None else mutable.own_tests.get(module)
        cells = [
            f"`{module}`" if module else "all",
            counts["killed"],
            counts["mutants"],
            counts[EQUIVALENT] + counts[TEXT],
            counts[OUTSIDE],
            counts[OPEN] + counts["unjudged"],
            share(counts["killed"], wrong),
            f"{own[0]} of {own[1]}" if own else "",
        ]
        yield f"| {' | '.join(map(str, cells))} |"
    yield ""
    yield "The last column is one set of 160 mutants and 325 tests, on a CPU; the two modules without a figure had the"
    yield "other two, both found."


def _seeds(runs: Sequence[Told]) -> Iterator[str]:
    yield from ("", "## By seed", "", "| seed | found | of | not wrong | found of those that are wrong |")
    yield "| ---: | ---: | ---: | ---: | ---: |"
    for run in runs:
        counts = run.counts(run.subject.mutable.modules)
        fine = sum(counts[kind] for kind in NO_MISTAKE)
        percent = share(counts["killed"], counts["mutants"] - fine)
        yield f"| {run.asked.seed} | {counts['killed']} | {counts['mutants']} | {fine} | {percent} |"


def _killers(hunted: Sequence[Hunted]) -> Iterator[str]:
    yield from ("", "## Who found them", "", "| stage | mutants |", "| --- | ---: |")
    by = Counter("one attention type alone" if one.by.endswith(" alone") else one.by for one in hunted if one.by)
    for stage, times in by.most_common():
        yield f"| {stage} | {times} |"


def survivors(runs: Sequence[Told]) -> Iterator[str]:
    """All that have survived, as a table."""
    yield from ("", "## Survivors", "")
    for kind, meaning in CLASSES.items():
        yield f"* {kind}: {meaning}"
    yield from ("", "| seed | where | change | class | why |", "| ---: | --- | --- | --- | --- |")
    for run in runs:
        for one, kind in run.survivors:
            entry = run.judged.of(one.mutant)
            change = f"{_code(one.mutant.before)} → {_code(one.mutant.after)}"
            why = entry.because if entry else ""
            yield f"| {run.asked.seed} | {place(one.mutant)} | {change} | {kind or '**not judged**'} | {why} |"


def _code(text: str) -> str:
    """As HTML: in a table a bar ends a cell, in code as well."""
    cut = text if len(text) <= 90 else f"{text[:87]}..."
    return f"<code>{escape(cut).replace('|', '&vert;')}</code>" if cut else "nothing"


def counts_of(runs: Sequence[Told], module: str | None) -> Counter[str]:
    """Mutants of one module, or of all, over these runs: see `Told.counts`."""
    total: Counter[str] = Counter()
    for run in runs:
        total.update(run.counts(run.subject.mutable.modules if module is None else [module]))
    return total


def _read(path: Path) -> Told:
    asked, hunted = read_kept(path.read_text(encoding="utf-8"))
    return Told(asked, changed_of(asked.of), [one.mutant for one in hunted], hunted)


def same(one: Asked, other: Asked) -> bool:
    """True if two runs differ in their seed alone."""
    return (one.of, one.operations, one.cases) == (other.of, other.operations, other.cases)


def main() -> int:
    """Write the page; 1 if a survivor is not judged."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="Results, one for each seed.")
    parser.add_argument("--note", default="", metavar="TEXT", help="What to say below the figures.")
    parser.add_argument("--write", type=Path, help="Write the page here.")
    arguments = parser.parse_args()
    runs = [_read(path) for path in arguments.files]
    if not all(same(run.asked, runs[0].asked) for run in runs):
        parser.error("the files are of different runs: all but the seed must be the same")
    text = page(runs, arguments.note)
    if arguments.write:
        write_file(arguments.write, text)
    print(text, end="")
    return 1 if any(run.unjudged for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
