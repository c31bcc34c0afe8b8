"""What a run did: the `Summary` that the engines fill in, and its forms for people and machines.

All forms come from the same sections, so that a terminal, a log and a Markdown page say the same.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from xml.etree import ElementTree

from ..model.ops import Done, Refused
from .deviations import Deviation, declared_for
from .finding import Finding, Trace
from .oracles import CONTRACT, DIFFERENCE, LIVENESS, LOCKSTEP, ORACLES, SHADOW
from .run import Run

LONG_RUN = 100_000
"""Operations from which on a declared deviation that never occurred counts as stale."""
COUNTERS = ("attention", "unbuilt", "unobserved", "operation_counts", "outcomes", "reached", "deviated", "misuse")


@dataclass
class Found:
    """All findings of one kind: how often, and the shortest trace that shows one."""

    finding: Finding
    trace: Trace
    times: int = 1
    attention: Counter[str] = field(default_factory=Counter)
    """Times by the name of the attention types."""

    def add(self, other: "Found") -> None:
        """More of the same kind."""
        self.times += other.times
        self.attention.update(other.attention)
        if len(other.trace.operations) < len(self.trace.operations):
            self.finding, self.trace = other.finding, other.trace


@dataclass
class Summary:
    """What the runs of one engine on one target came to. Engines call `add_run` once a run."""

    target: str
    engine: str
    seed: int
    runs: int = 0
    operations: int = 0
    seconds: float = 0.0
    attention: Counter[str] = field(default_factory=Counter)
    """Runs by the name of their attention types."""
    unbuilt: Counter[str] = field(default_factory=Counter)
    """Those of them whose core cannot be built, on either side: nothing else was observed in them."""
    operation_counts: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By kind of operation and `Done`, `Refused` or the kind of error."""
    reached: Counter[str] = field(default_factory=Counter)
    """How often each interesting situation came up."""
    deviated: Counter[str] = field(default_factory=Counter)
    """How often each known deviation of the target occurred."""
    misuse: Counter[str] = field(default_factory=Counter)
    """What the target made of broken preconditions, where that is only reported."""
    finding: Finding | None = None
    trace: Trace | None = None
    """The run that showed the finding."""
    finding_attention: str | None = None
    found: dict[tuple[str, str], Found] = field(default_factory=dict)
    """All that was found, by `Finding.kind`; more than one if the run goes on after a finding."""
    finding_seed: int = 0
    """Seed of the process that found it."""
    interrupted: bool = False
    """Did Ctrl-C end it?"""
    oracles: tuple[str, ...] = ORACLES
    """What judged."""
    unobserved: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Runs by a property that could not be judged in them, and why."""
    core_name: str = ""
    """What the target calls itself, if that is not `target`: its deviations are declared under this name."""

    def add_run(self, attention: str, run: Run, finding: Finding | None, trace: Trace | None) -> None:
        """Count one run that is over; `finding` is what it ended with, and `trace` what shows it."""
        kinds = [type(operation).__name__ for operation in run.operations]
        results = [getattr(outcome, "error", type(outcome).__name__) for outcome in run.outcomes]
        self.runs += 1
        self.operations += len(kinds)
        self.attention[attention] += 1
        self.unbuilt[attention] += not run.built
        self.operation_counts.update(kinds)
        self.outcomes.update(zip(kinds, results, strict=True))
        self.reached.update(run.reached())
        self.deviated.update(getattr(run.scene, "deviated", {}))
        self.misuse.update(run.misuse)
        self.unobserved.update(run.unobserved().items())
        if finding is not None and trace is not None:
            self._keep(Found(finding, trace, attention=Counter([attention])))
            if self.finding is None:
                self.finding, self.trace = finding, trace
                self.finding_attention, self.finding_seed = attention, self.seed

    def _keep(self, found: Found) -> None:
        if (kind := found.finding.kind) in self.found:
            self.found[kind].add(found)
        else:
            self.found[kind] = found

    def merge(self, other: "Summary") -> None:
        """Add what another process did at the same time; the first finding stays."""
        self.runs += other.runs
        self.operations += other.operations
        self.seconds = max(self.seconds, other.seconds)
        self.interrupted |= other.interrupted
        for name in COUNTERS:
            getattr(self, name).update(getattr(other, name))
        for found in other.found.values():
            self._keep(found)
        if self.finding is None and other.finding is not None:
            self.finding, self.trace = other.finding, other.trace
            self.finding_attention, self.finding_seed = other.finding_attention, other.finding_seed

    @property
    def rate(self) -> float:
        """Operations a second, over all processes."""
        return self.operations / self.seconds if self.seconds else 0.0

    @property
    def declared(self) -> tuple[type[Deviation], ...]:
        """The deviations that lockstep takes as declared for the target."""
        return () if LOCKSTEP not in self.oracles else declared_for(self.core_name or self.target)

    def unseen_deviations(self) -> list[str]:
        """Ids of declared deviations that did not occur, those left out that only chaos shows."""
        return [d.id for d in self.declared if not self.deviated[d.id] and not d.chaos_only]


@dataclass(frozen=True)
class Section:
    """One table of a report."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def headline(summary: Summary) -> str:
    """One line: what was run and how much of it."""
    ended = ", ended by Ctrl-C" if summary.interrupted else ""
    return (
        f"{summary.target}, engine {summary.engine}, seed {summary.seed}: {summary.runs:,} runs, "
        f"{summary.operations:,} operations in {summary.seconds:.1f} s ({summary.rate:,.0f}/s){ended}"
    )


def verdict(summary: Summary) -> str:
    """One line: was anything found?"""
    if summary.finding is None:
        return f"no difference in {summary.operations:,} operations"
    what, where = summary.finding.kind
    return f"FOUND: {_VERDICTS[summary.finding.oracle].format(what=what)} at {where}"


_VERDICTS = {
    LOCKSTEP: "`{what}` differs",
    SHADOW: "wrong content",
    CONTRACT: "{what} of the contract is violated",
    LIVENESS: "{what} (liveness) is violated",
    DIFFERENCE: "{what}",
}
"""What each oracle finds, in a few words."""


def sections(summary: Summary) -> Iterator[Section]:
    """The tables of a report; those without content are left out."""
    yield from _attention(summary)
    yield from crossed("Operations and outcomes", "operation", summary.outcomes, _USUAL)
    yield from counted("Situations reached", ("situation", "times"), summary.reached)
    if summary.declared:
        rows = ((deviation.id, _occurred(summary, deviation), deviation.reason) for deviation in summary.declared)
        yield Section("Known deviations of the target", ("id", "times", "what it does"), tuple(rows))
    if summary.unobserved:
        rows = ((*pair, f"{runs:,}") for pair, runs in sorted(summary.unobserved.items()))
        yield Section("Not observed", ("property", "what it cannot show", "runs"), tuple(rows))
    yield from counted("Misuse (reported only)", ("what happened", "times"), summary.misuse)


def _attention(summary: Summary) -> Iterator[Section]:
    """Runs by attention type; those whose core neither side can build have observed nothing, and are told apart."""
    columns = ("attention", "runs", "not built") if summary.unbuilt.total() else ("attention", "runs")
    counts = ((name, summary.attention[name], summary.unbuilt[name]) for name in sorted(summary.attention))
    rows = ((name, f"{runs:,}", f"{unbuilt:,}" if unbuilt else "")[: len(columns)] for name, runs, unbuilt in counts)
    if summary.attention:
        yield Section("Runs by attention type", columns, tuple(rows))


def _occurred(summary: Summary, deviation: type[Deviation]) -> str:
    """How often a deviation occurred; one that never does in a long run may no longer be true."""
    if times := summary.deviated[deviation.id]:
        return f"{times:,}"
    if deviation.chaos_only:
        return "needs --chaos"
    return "STALE? never" if summary.operations >= LONG_RUN else "not seen"


_USUAL = (Done.__name__, Refused.__name__)


def crossed(
    title: str, column: str, counts: Mapping[tuple[str, str], int], usual: tuple[str, ...]
) -> Iterator[Section]:
    """A table of counts by row and column, the usual columns first; none if there are no counts."""
    by_kind: dict[str, dict[str, int]] = {}
    for (kind, result), count in sorted(counts.items()):
        by_kind.setdefault(kind, {})[result] = count
    columns = sorted({result for _, result in counts}, key=lambda name: (name not in usual, name))
    rows = (
        (kind, *(f"{results[name]:,}" if name in results else "" for name in columns))
        for kind, results in by_kind.items()
    )
    if counts:
        yield Section(title, (column, *columns), tuple(rows))


def counted(title: str, columns: tuple[str, ...], counts: Mapping[str, int]) -> Iterator[Section]:
    """A table of counts by name; none if there are no counts."""
    if counts:
        yield Section(title, columns, tuple((name, f"{count:,}") for name, count in sorted(counts.items())))


def plain(summary: Summary) -> str:
    """The report for a log: aligned lines."""
    return plain_sections(headline(summary), sections(summary), verdict(summary))


def plain_sections(head: str, tables: Iterable[Section], foot: str) -> str:
    """Aligned lines, the first and the last one given."""
    lines = [head]
    for section in tables:
        table = (section.columns, *section.rows)
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines += ["", section.title]
        for row in table:
            lines.append("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return "\n".join([*lines, "", foot])


def show(summary: Summary) -> None:
    """Print the report: as tables on a terminal, as plain lines elsewhere."""
    show_sections(headline(summary), sections(summary), verdict(summary), bad=summary.finding is not None)


def show_sections(head: str, tables: Iterable[Section], foot: str, *, bad: bool) -> None:
    """Print tables between two lines, the last one red or green; on a terminal with lines around them."""
    from rich.console import Console  # costs a tenth of a second, which a script need not pay
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        print(plain_sections(head, tables, foot))
        return
    console.print(head, style="bold", markup=False)
    for section in tables:
        table = Table(title=section.title, title_justify="left", header_style="dim")
        for i, column in enumerate(section.columns):
            table.add_column(column, justify="left" if i == 0 or column.startswith("what") else "right")
        for row in section.rows:
            table.add_row(*row)
        console.print(table)
    console.print(foot, style="red" if bad else "green", markup=False)


def as_json(summary: Summary) -> dict[str, object]:
    """The report as JSON-ready data."""
    outcomes: dict[str, dict[str, int]] = {}
    for (kind, result), count in sorted(summary.outcomes.items()):
        outcomes.setdefault(kind, {})[result] = count
    finding = summary.finding
    return {
        "target": summary.target,
        "engine": summary.engine,
        "seed": summary.seed,
        "runs": summary.runs,
        "operations": summary.operations,
        "seconds": round(summary.seconds, 3),
        "operations_per_second": round(summary.rate, 1),
        "interrupted": summary.interrupted,
        "oracles": list(summary.oracles),
        "unobserved": [[*pair, runs] for pair, runs in sorted(summary.unobserved.items())],
        "attention": dict(sorted(summary.attention.items())),
        "unbuilt": {name: runs for name, runs in sorted(summary.unbuilt.items()) if runs},
        "outcomes": outcomes,
        "reached": dict(sorted(summary.reached.items())),
        "deviated": dict(sorted(summary.deviated.items())),
        "deviations_not_seen": summary.unseen_deviations(),
        "misuse": dict(sorted(summary.misuse.items())),
        "finding": finding
        and {"observable": finding.kind[0], "operation": finding.kind[1], "step": finding.step, "text": str(finding)},
    }


def markdown(summary: Summary) -> str:
    """The report as a Markdown page, for the summary of a CI job."""
    lines = [f"## blockproof: {verdict(summary)}", "", headline(summary)]
    if summary.finding is not None:
        lines += ["", "```", str(summary.finding), "```"]
    return "\n".join([*lines, *_markdown_tables(sections(summary)), ""])


def markdown_sections(head: str, tables: Iterable[Section]) -> str:
    """Tables as a Markdown page under a heading."""
    return "\n".join([f"## {head}", *_markdown_tables(tables), ""])


def _markdown_tables(tables: Iterable[Section]) -> list[str]:
    lines = []
    for section in tables:
        lines += ["", f"### {section.title}", "", _markdown_row(section.columns)]
        lines += [_markdown_row(("---",) * len(section.columns)), *map(_markdown_row, section.rows)]
    return lines


def _markdown_row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def junit(summary: Summary, unmet: list[str]) -> str:
    """The report as JUnit XML: a test case for each attention type, and one for the floors."""
    names = sorted(summary.attention) or ["start"]
    found = summary.finding_attention or names[0] if summary.finding else None
    suite = ElementTree.Element(
        "testsuite",
        name=f"blockproof {summary.target}",
        tests=str(len(names) + 1),
        failures=str((found is not None) + bool(unmet)),
        errors="0",
        time=f"{summary.seconds:.3f}",
    )
    for name in names:
        share = summary.attention[name] / summary.runs * summary.seconds if summary.runs else 0.0
        case = ElementTree.SubElement(suite, "testcase", classname="lockstep", name=name, time=f"{share:.3f}")
        if name != found and summary.attention[name] and summary.unbuilt[name] == summary.attention[name]:
            ElementTree.SubElement(case, "skipped", message="no such core can be built: not observed")
        if name == found:
            ElementTree.SubElement(case, "failure", message=verdict(summary)).text = str(summary.finding)
    case = ElementTree.SubElement(suite, "testcase", classname="floors", name="situations", time="0")
    if unmet:
        ElementTree.SubElement(case, "failure", message=unmet[0]).text = "\n".join(unmet)
    ElementTree.SubElement(suite, "system-out").text = plain(summary)
    text = ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
    return "".join(
        c if c.isprintable() or c in "\n\t" else " " for c in text
    )  # XML has no place for control characters
