"""Writes the page of random mutants from what `blockproof mutants --of ... --keep FILE` has kept, a file for each seed.

python benchmarks/random_mutants.py FILE ... [--note TEXT] [--write docs/evidence/random-mutants.md]

Survivors are judged anew by what is written up of them now. Exits with 1 if one is not. A note stands below the
figures; it is for those of other runs.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from html import escape
from pathlib import Path
from textwrap import wrap

from blockproof.fuzz.mutation.hunting import Hunted
from blockproof.fuzz.mutation.report import (
    CLASSES,
    NO_MISTAKE,
    OPEN,
    OUTSIDE,
    MutantsDone,
    effort,
    headline,
    place,
    read_kept,
    share,
)
from blockproof.fuzz.mutation.subject import changed_of
from written import parser, put, table

MEANING = """
A mutant is one random change of the syntax, such as a condition negated, a statement removed, a constant, a comparison
or an operator exchanged. Every place of every module is as likely as any other; annotations, docstrings and overloads
are no places. The changed source is only in a child process, never on the disk. What counts is what the release as it
stands does not show over the same seed, its known deviations declared. Stages whose operations never run the changed
lines are spared: there the mutant is the release.
"""


def page(runs: Sequence[MutantsDone], note: str = "") -> str:
    """The result of all runs as Markdown."""
    hunted = [one for run in runs for one in run.hunted]
    mutable = runs[0].subject.mutable
    rows = [_row(f"`{name}`", runs, [name], mutable.own_tests.get(name)) for name in mutable.modules]
    rows += [_row(f"seed {run.asked.seed}", [run], mutable.modules) for run in runs]
    by = Counter("one attention type alone" if one.by.endswith(" alone") else one.by for one in hunted if one.by)
    names = "module or seed | found: | of: | not wrong: | not modelled: | gaps: | found of those that are wrong:"
    lines = [
        *_head(runs, hunted, note),
        *("", "## By module and by seed", ""),
        *table(f"{names} | by the release's own tests, of others:", [*rows, _row("all", runs, mutable.modules)]),
        *("", "## Who found them", "", *table("stage | mutants:", by.most_common())),
        *("", "## Survivors", "", *(f"* {kind}: {meaning}" for kind, meaning in CLASSES.items()), ""),
        *table("seed: | where | change | class | why", (row for run in runs for row in _survivors(run))),
    ]
    return "\n".join(lines) + "\n"


def _head(runs: Sequence[MutantsDone], hunted: Sequence[Hunted], note: str) -> Iterator[str]:
    asked = runs[0].asked
    seeds = ", ".join(str(run.asked.seed) for run in runs)
    asked_for = f"--of {asked.of} --random {asked.random} --seed {asked.seed} --operations {asked.operations}"
    yield from (
        "# Random mutants of a release",
        "",
        f"`blockproof mutants {asked_for} --cases {asked.cases} --keep FILE`,",
    )
    yield "and the same for each other seed; `python benchmarks/random_mutants.py FILE ... --write PAGE` has written"
    yield f"this page, {date.today()}. Seeds {seeds}. For each mutant at most {asked.operations:,} operations in"
    yield "lockstep over all attention types, an eighth of that over each one alone, a quarter each with misuse and"
    yield f"without a model, and {asked.cases:,} configurations."
    told = f"{headline(counts_of(runs, runs[0].subject.mutable.modules))}; {effort(hunted)}."
    for text in (told, note, MEANING):
        yield from ("", *wrap(text, 110)) if text else ()


def _row(
    name: str, runs: Sequence[MutantsDone], modules: Sequence[str], own: tuple[int, int] | None = None
) -> list[object]:
    """What became of the mutants of these modules, and of others under the release's own tests."""
    counts = counts_of(runs, modules)
    fine = sum(counts[kind] for kind in NO_MISTAKE)
    cells = [name, counts["killed"], counts["mutants"], fine, counts[OUTSIDE], counts[OPEN] + counts["unjudged"]]
    return [*cells, share(counts["killed"], counts["mutants"] - fine), f"{own[0]} of {own[1]}" if own else ""]


def _survivors(run: MutantsDone) -> Iterator[list[object]]:
    for one, kind in run.survivors:
        entry = run.judged.of(one.mutant)
        change = f"{_code(one.mutant.before)} → {_code(one.mutant.after)}"
        why = entry.because if entry else ""
        yield [run.asked.seed, place(one.mutant), change, kind or "**not judged**", why]


def _code(text: str) -> str:
    """As HTML: in a table a bar ends a cell, in code as well."""
    cut = text if len(text) <= 90 else f"{text[:87]}..."
    return f"<code>{escape(cut).replace('|', '&vert;')}</code>" if cut else "nothing"


def counts_of(runs: Sequence[MutantsDone], modules: Sequence[str]) -> Counter[str]:
    """Mutants of these modules, over all runs: see `MutantsDone.counts`."""
    total: Counter[str] = Counter()
    for run in runs:
        total.update(run.counts(modules))
    return total


def _read(path: Path) -> MutantsDone:
    asked, hunted = read_kept(path.read_text(encoding="utf-8"))
    return MutantsDone(asked, changed_of(asked.of), [one.mutant for one in hunted], hunted)


def main() -> int:
    """Write the page; 1 if a survivor is not judged."""
    asked = parser(__doc__)
    asked.add_argument("files", nargs="+", type=Path, metavar="FILE", help="results, one for each seed")
    asked.add_argument("--note", default="", metavar="TEXT", help="what to say below the figures")
    arguments = asked.parse_args()
    runs = [_read(path) for path in arguments.files]
    if len({(run.asked.of, run.asked.operations, run.asked.cases) for run in runs}) > 1:
        asked.error("the files are of different runs: all but the seed must be the same")
    put(page(runs, arguments.note), arguments.write)
    return 1 if any(run.unjudged for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
