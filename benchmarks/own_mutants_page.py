"""The page of random mutants of this project itself (`own_mutants.py`)."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from textwrap import wrap

from blockproof.fuzz.mutation.report import NO_MISTAKE, Told, share
from blockproof.fuzz.mutation.survivors import OPEN, OUTSIDE
from random_mutants import counts_of, survivors

HEADS = {
    "impl": (
        "Our core",
        "Hunted by `blockproof mutants --of impl` (lockstep over all attention types, each one alone, with misuse and"
        " without a model; configurations), then by the core's tests. The *core* is its pool, managers, hashing and"
        " requests.",
    ),
    "contract": (
        "The contract",
        "Hunted by its tests: every planted fault is to be reported by its own property, and a core without one by"
        " none.",
    ),
    "liveness": ("Liveness", "Hunted by its tests."),
    "shadow": ("The shadow memory", "Hunted by its tests. That on tensors is left out."),
    "lockstep": ("Lockstep and pairs", "The comparison, hunted by the tests of runs."),
    "reducer": ("The reducer", "What makes traces smaller, hunted by its tests."),
}
CORE = ("pool", "managers", "hashing", "request")
"""Folders and modules of our core that the bar is about."""


def page(parts: Sequence[str], runs: Sequence[Told], before: Sequence[Told], old: str = "") -> str:
    """The result of all runs as Markdown. A part without a run keeps the section that it has on the `old` page."""
    lines, sections = ["# Random mutants of this project", "", *_head()], _sections(old)
    for part in parts:
        own, earlier = ([run for run in some if run.asked.of == part] for some in (runs, before))
        lines += _part(part, own, earlier) if own else sections.get(HEADS[part][0], [])
    return "\n".join(lines) + "\n"


def _sections(text: str) -> Mapping[str, Sequence[str]]:
    """The sections of a page by their titles, each with the empty line before it."""
    found = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)
    return {
        title: ["", f"## {title}", *body.rstrip().splitlines()]
        for title, body in zip(found[1::2], found[2::2], strict=True)
    }


def _head() -> Iterator[str]:
    yield from wrap(
        "`python benchmarks/own_mutants.py` has hunted them and written this page, a section at a time. A mutant is"
        " one random change of the syntax, as in [random mutants of a release](random-mutants.md)."
        " *Before* is the same mutants before tests were sharpened, and those whose code was removed then; of our core,"
        " by the harness alone. Of a second seed it is what the tests do that were sharpened by the first: mutants that"
        " nobody had seen before."
        " *Not wrong* are survivors in which nobody can see a difference, or only in a text for people; each is argued"
        " below.",
        110,
    )


def _part(part: str, runs: Sequence[Told], before: Sequence[Told]) -> Iterator[str]:
    title, told = HEADS[part]
    yield from ("", f"## {title}", "")
    seeds = ", ".join(f"{run.asked.seed} ({len(run.hunted)} of {run.asked.random})" for run in runs)
    limits = runs[0].asked
    budget = f" At most {limits.operations:,} operations and {limits.cases:,} configurations each."
    yield from wrap(
        f"{told}{budget if limits.operations else ''} Seeds (mutants hunted, of those drawn): {seeds}."
        f" Written {date.today()}.",
        110,
    )
    yield ""
    heads = ("module", "found", "of", "not wrong", "gaps", "found of those that are wrong", "before")
    yield f"| {' | '.join(heads)} |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    modules = [name for name in runs[0].subject.mutable.modules if counts_of(runs, name)["mutants"]]
    for module in modules:
        yield _row(f"`{module.removeprefix('blockproof.')}`", runs, before, lambda name, one=module: name == one)  # type: ignore[misc]
    if part == "impl":
        yield _row("**the core**", runs, before, is_core)
    for run in runs if len(runs) > 1 else ():
        same = [other for other in before if other.asked.seed == run.asked.seed]
        yield _row(f"seed {run.asked.seed}", [run], same, lambda name: True)
    yield _row("all", runs, before, lambda name: True)
    yield from _killers(runs)
    yield from (f"#{line}" if line.startswith("#") else line for line in survivors(runs))


def is_core(module: str) -> bool:
    """True for a module of our core's core."""
    return module.removeprefix("blockproof.impl.").partition(".")[0] in CORE


def _row(name: str, runs: Sequence[Told], before: Sequence[Told], wanted: Callable[[str], bool]) -> str:
    now, then = (_sum(some, wanted) for some in (runs, before))
    cells = [
        now["killed"],
        now["mutants"],
        sum(now[kind] for kind in NO_MISTAKE),
        now[OPEN] + now[OUTSIDE] + now["unjudged"],
        _share(now),
        _share(then) if before else "",
    ]
    return f"| {name} | {' | '.join(map(str, cells))} |"


def _sum(runs: Sequence[Told], wanted: Callable[[str], bool]) -> Counter[str]:
    total: Counter[str] = Counter()
    for run in runs:
        total.update(run.counts(name for name in run.subject.mutable.modules if wanted(name)))
    return total


def _share(counts: Counter[str]) -> str:
    return share(counts["killed"], counts["mutants"] - sum(counts[kind] for kind in NO_MISTAKE))


def _killers(runs: Sequence[Told]) -> Iterator[str]:
    yield from ("", "### Who found them", "", "| stage or file of tests | mutants |", "| --- | ---: |")
    by = Counter(
        "one attention type alone" if one.by.endswith(" alone") else one.by.partition("::")[0]
        for run in runs
        for one in run.hunted
        if one.by
    )
    for stage, times in by.most_common():
        yield f"| {stage} | {times} |"
