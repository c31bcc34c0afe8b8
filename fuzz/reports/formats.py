"""A summary for people and machines: lines, tables, JSON, Markdown, JUnit XML.

All forms come from the same sections, so that a terminal, a log and a Markdown page say the same.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

from ...model.ops import Done, Refused
from ..findings.drawn import digest_text
from ..findings.interruption import interrupted_by
from ..findings.oracle_names import BLOCKPROOF, CONTRACT, DIFFERENCE, LIVENESS, LOCKSTEP, SHADOW, TARGET
from ..findings.severity import exception_of, severity
from ..findings.words import plural
from ..findings.writing import write_file
from .deviations import deviation_table, known_table
from .history import TOLD
from .summary import Summary
from .tables import Section, counted, crossed, markdown_tables, plain_sections, show_sections
from .told import told_lines
from .vacuity import vacuity

MOST_CAUSES = 15
"""Rows of the table of causes."""
LONG_RUN = 100_000
"""Operations from which on a declared deviation that never occurred counts as stale."""


def headline(summary: Summary) -> str:
    """One line: what was run and how much of it."""
    ended = f", ended by {interrupted_by()}" if summary.interrupted else ""
    tried = f"; {summary.canary.line()}" if summary.canary else ""
    return (
        f"{summary.target}, engine {summary.engine}, seed {summary.seed}: {plural(summary.runs, 'run')}, "
        f"{plural(summary.operations, 'operation')} in {summary.seconds:.1f} s ({summary.rate:,.0f}/s){ended}{tried}"
    )


def verdict(summary: Summary) -> str:
    """One line: what was found, or that nothing was."""
    if summary.finding is None:
        problem = vacuity(summary).problem
        return (
            f"TESTED NOTHING: {problem}" if problem else f"no difference in {plural(summary.operations, 'operation')}"
        )
    what, where = summary.finding.kind
    others = len(summary.found) - 1
    rest = f" ({severity(summary.finding)}), the worst of {plural(others + 1, 'finding')}" if others > 0 else ""
    lost = f"; NOT ALL OF IT RAN: {summary.lost}" if summary.lost else ""
    return f"FOUND: {_VERDICTS[summary.finding.oracle].format(what=what)} at {where}{rest}{lost}"


_VERDICTS = {
    LOCKSTEP: "`{what}` differs",
    SHADOW: "wrong content",
    CONTRACT: "{what} of the contract is violated",
    LIVENESS: "{what} (liveness) is violated",
    DIFFERENCE: "{what}",
    TARGET: "the target was lost ({what})",
    BLOCKPROOF: "a {what} of blockproof, which says nothing of the target,",
}
"""What each oracle finds, in a few words."""


def sections(summary: Summary) -> Iterator[Section]:
    """The tables of a report; those without content are left out."""
    yield from _found(summary)
    yield from known_table(summary.known_findings, summary.known, summary.compared, summary.operations >= LONG_RUN)
    yield from _attention(summary)
    yield from crossed("Operations and outcomes", "operation", summary.outcomes, _USUAL)
    yield from _causes(summary)
    yield from counted("Not possible on this target", ("operation", "drawn and left out"), summary.impossible)
    yield from counted("Situations reached", ("situation", "times"), summary.reached)
    yield from deviation_table(summary.declared, summary.deviated, long_run=summary.operations >= LONG_RUN)
    if summary.unobserved:
        rows = ((*pair, f"{runs:,}") for pair, runs in sorted(summary.unobserved.items()))
        yield Section("Not observed", ("property", "what it cannot show", "runs"), tuple(rows))
    yield from counted("Misuse (reported only)", ("what happened", "times"), summary.misuse)


def _found(summary: Summary) -> Iterator[Section]:
    """All findings, the worst first, if there are several."""
    rows = tuple(
        (str(severity(one.finding)), one.finding.oracle, *one.finding.kind, exception_of(one.finding), f"{one.times:,}")
        for one in summary.ranked()
    )
    if len(rows) > 1:
        yield Section("Findings", ("what it means", "oracle", "what", "operation", "exception", "times"), rows)


def _causes(summary: Summary) -> Iterator[Section]:
    """Why operations and constructions did not return, the most frequent reasons."""
    shown = summary.causes.most_common(MOST_CAUSES)
    rows = [(*cause, f"{times:,}") for cause, times in shown]
    rest = summary.causes.total() - sum(times for _, times in shown)
    rows += [("others", "", "", f"{rest:,}")] if rest else []
    if rows:
        yield Section("Refused and failed, by cause", ("operation", "outcome", "what for", "times"), tuple(rows))


def _attention(summary: Summary) -> Iterator[Section]:
    """Runs by attention type, and how many of them could not be built: those have observed nothing."""
    columns = ("attention", "runs", "not built") if summary.unbuilt.total() else ("attention", "runs")
    counts = ((name, summary.attention[name], summary.unbuilt[name]) for name in sorted(summary.attention))
    rows = ((name, f"{runs:,}", f"{unbuilt:,}" if unbuilt else "")[: len(columns)] for name, runs, unbuilt in counts)
    if summary.attention:
        yield Section("Runs by attention type", columns, tuple(rows))


_USUAL = (Done.__name__, Refused.__name__)


def found_lines(summary: Summary, verbose: bool = False) -> list[str]:
    """What was found, its smallest trace and its files, after an empty line; nothing if nothing was found. `verbose` as
    for `Finding.text`."""
    if summary.told or summary.finding is None:
        return told_lines(summary.told, verbose)
    return ["", *summary.finding.text(verbose=verbose).splitlines()]


def plain(summary: Summary) -> str:
    """The report for a log: aligned lines, what was found first."""
    return plain_sections(headline(summary), sections(summary), verdict(summary), found_lines(summary))


def show(summary: Summary, verbose: bool = False) -> None:
    """Print the report: as tables on a terminal, as plain lines elsewhere. What was found comes first."""
    first, bad = found_lines(summary, verbose), summary.finding is not None or vacuity(summary).problem is not None
    show_sections(headline(summary), sections(summary), verdict(summary), bad=bad, first=first)


def as_json(summary: Summary, samples: int = TOLD) -> dict[str, object]:
    """The report as JSON-ready data, with at most so many samples of its history."""
    times = [found.seconds or 0.0 for found in summary.found.values()]
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
        "digest": digest_text(summary.drawn),
        "interrupted": summary.interrupted,
        "lost": summary.lost or None,
        "oracles": list(summary.oracles),
        "canary": summary.canary and summary.canary.as_json(),
        "unobserved": [[*pair, runs] for pair, runs in sorted(summary.unobserved.items())],
        "attention": dict(sorted(summary.attention.items())),
        "unbuilt": {name: runs for name, runs in sorted(summary.unbuilt.items()) if runs},
        "outcomes": outcomes,
        "causes": [[*cause, times] for cause, times in summary.causes.most_common()],
        "impossible": dict(sorted(summary.impossible.items())),
        "tested_nothing": vacuity(summary).problem,
        "warnings": list(vacuity(summary).warnings),
        "reached": dict(sorted(summary.reached.items())),
        "deviated": dict(sorted(summary.deviated.items())),
        "known": {entry.id: summary.known[entry.id] for entry in summary.known_findings},
        "deviations_not_seen": summary.unseen_deviations(),
        "misuse": dict(sorted(summary.misuse.items())),
        "history": summary.history.as_json(summary.now(), times, samples),
        "finding": summary.told[0].as_json() if summary.told else finding and finding.as_json(),
    }


def markdown(summary: Summary) -> str:
    """The report as a Markdown page, for the summary of a CI job."""
    lines = [f"## blockproof: {verdict(summary)}", "", headline(summary)]
    if summary.finding is not None:
        lines += ["", "```", *found_lines(summary)[1:], "```"]
    lines += ["", *(f"- {line}" for line in warnings)] if (warnings := vacuity(summary).warnings) else []
    lines += ["", f"Judged by {', '.join(summary.oracles)}. Digest of the operations: {digest_text(summary.drawn)}."]
    return "\n".join([*lines, *markdown_tables(sections(summary)), ""])


def junit(summary: Summary, unmet: Sequence[str]) -> str:
    """The report as JUnit XML: a test case for each attention type, one for the floors, and one for whether the run
    tested anything."""
    problem, warnings = vacuity(summary)
    names = sorted(summary.attention) or ["start"]
    found = _failures(summary, names)
    suite = ElementTree.Element(
        "testsuite",
        name=f"blockproof {summary.target}",
        tests=str(len(names) + 2),
        failures=str(len(found) + bool(unmet) + bool(problem)),
        errors="0",
        time=f"{summary.seconds:.3f}",
    )
    judges = "+".join(summary.oracles)
    for name in names:
        share = summary.attention[name] / summary.runs * summary.seconds if summary.runs else 0.0
        case = ElementTree.SubElement(suite, "testcase", classname=judges, name=name, time=f"{share:.3f}")
        if name not in found and summary.attention[name] and summary.unbuilt[name] == summary.attention[name]:
            ElementTree.SubElement(case, "skipped", message="no such core can be built: not observed")
        if name in found:
            message, lines = found[name]
            ElementTree.SubElement(case, "failure", message=message).text = "\n".join(lines)
    case = ElementTree.SubElement(suite, "testcase", classname="floors", name="situations", time="0")
    if unmet:
        ElementTree.SubElement(case, "failure", message=unmet[0]).text = "\n".join(unmet)
    case = ElementTree.SubElement(suite, "testcase", classname="run", name="tested something", time="0")
    if problem:
        ElementTree.SubElement(case, "failure", message=problem).text = problem
    elif warnings:
        ElementTree.SubElement(case, "system-out").text = "\n".join(warnings)
    ElementTree.SubElement(suite, "system-out").text = plain(summary)
    text = ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
    # XML has no place for control characters.
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)


def _failures(summary: Summary, names: Sequence[str]) -> dict[str, tuple[str, list[str]]]:
    """By the name of the test case that fails: a line that says why, and all that is told of it."""
    if summary.finding is None:
        return {}
    first = summary.finding_attention or names[0]
    if len(summary.told) < 2:
        return {first: (verdict(summary), found_lines(summary)[1:])}
    failures: dict[str, tuple[str, list[str]]] = {}
    for one in summary.told:
        message, lines = failures.get(one.attention or first, (one.headline, []))
        failures[one.attention or first] = (message, [*lines, *one.lines()])
    return failures


def write_reports(summary: Summary, unmet: Sequence[str], junit_file: Path | None, markdown_file: Path | None) -> None:
    """Write the report to those files that are named; their folders are made if missing."""
    for path, text in ((junit_file, junit(summary, unmet)), (markdown_file, markdown(summary))):
        if path is not None:
            write_file(path, text)
