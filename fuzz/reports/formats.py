"""What a document looks like: as plain lines, as tables on a terminal, as Markdown, as JUnit XML.

All forms come from the same document (`ResultDocument`), so that a terminal, a log and a page say the same. JSON is
the document itself (`ResultDocument.text`), and `page.html` makes the page of it. Another form is one more
function here.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

from ..findings.visible import visible
from ..findings.writing import write_file
from .document import ResultDocument, Table
from .run import RunDocument


def plain(document: ResultDocument) -> str:
    """The report for a log: aligned lines, what was found first."""
    lead = document.lead()
    return plain_text(lead.headline, document.tables(), lead.conclusion, document.found_lines())


def show(document: ResultDocument) -> None:
    """Print the report: as tables on a terminal, as plain lines elsewhere. What was found comes first."""
    lead, first = document.lead(), document.found_lines()
    show_tables(lead.headline, document.tables(), lead.conclusion, bad=lead.mood != "good", first=first)


def markdown(run: RunDocument) -> str:
    """The report as a Markdown page, for the summary of a CI job."""
    lead = run.lead()
    lines = [f"## blockproof: {lead.conclusion}", "", lead.headline]
    if run.finding is not None:
        lines += ["", "```", *run.found_lines()[1:], "```"]
    lines += ["", *(f"- {line}" for line in run.warnings)] if run.warnings else []
    lines += ["", f"Judged by {', '.join(run.oracles)}. Digest of the operations: {run.digest}."]
    return "\n".join([*lines, *markdown_tables(run.tables()), ""])


def junit(run: RunDocument) -> str:
    """The report as JUnit XML: a test case for each attention type, one for the floors, and one for whether the run
    tested anything."""
    names = sorted(run.attention) or ["start"]
    found = _failures(run, names)
    suite = ElementTree.Element(
        "testsuite",
        name=f"blockproof {run.target}",
        tests=str(len(names) + 2),
        failures=str(len(found) + bool(run.floors_unmet) + bool(run.tested_nothing)),
        errors="0",
        time=f"{run.seconds:.3f}",
    )
    judges = "+".join(run.oracles)
    for name in names:
        runs = run.attention.get(name, 0)
        share = runs / run.runs * run.seconds if run.runs else 0.0
        case = ElementTree.SubElement(suite, "testcase", classname=judges, name=name, time=f"{share:.3f}")
        if name not in found and runs and run.unbuilt.get(name) == runs:
            ElementTree.SubElement(case, "skipped", message="no such core can be built: not observed")
        if name in found:
            message, lines = found[name]
            ElementTree.SubElement(case, "failure", message=message).text = "\n".join(lines)
    case = ElementTree.SubElement(suite, "testcase", classname="floors", name="situations", time="0")
    if unmet := run.floors_unmet:
        ElementTree.SubElement(case, "failure", message=unmet[0]).text = "\n".join(unmet)
    case = ElementTree.SubElement(suite, "testcase", classname="run", name="tested something", time="0")
    if run.tested_nothing:
        ElementTree.SubElement(case, "failure", message=run.tested_nothing).text = run.tested_nothing
    elif run.warnings:
        ElementTree.SubElement(case, "system-out").text = "\n".join(run.warnings)
    ElementTree.SubElement(suite, "system-out").text = plain(run)
    text = ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
    # XML has no place for control characters.
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)


def write(run: RunDocument, form: Callable[[RunDocument], str], path: Path) -> None:
    """Write a run in one of these forms; the folder of the file is made if it is missing."""
    write_file(path, form(run))


def _failures(run: RunDocument, names: Sequence[str]) -> dict[str, tuple[str, list[str]]]:
    """By the name of the test case that fails: a line that says why, and all that is told of it."""
    if run.finding is None:
        return {}
    if len(run.findings) < 2:
        attention = next(iter(run.findings[0].attention), "") if run.findings else ""
        return {attention or names[0]: (run.lead().conclusion, run.found_lines()[1:])}
    failures: dict[str, tuple[str, list[str]]] = {}
    for one in run.findings:
        name = next(iter(one.attention), names[0])
        message, lines = failures.get(name, (one.headline(), []))
        failures[name] = (message, [*lines, *one.lines()])
    return failures


def filled(tables: Iterable[Table]) -> Iterator[Table]:
    """The tables that have a row."""
    return (table for table in tables if table.rows)


def plain_text(head: str, tables: Iterable[Table], foot: str, first: Sequence[str] = ()) -> str:
    """Aligned lines, the first and the last one given; the lines in `first` come before the tables."""
    lines = [head, *first]
    for section in filled(tables):
        table = (section.columns, *section.rows)
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines += ["", section.title]
        for row in table:
            lines.append("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return "\n".join([*lines, "", foot])


def show_tables(head: str, tables: Iterable[Table], foot: str, *, bad: bool, first: Sequence[str] = ()) -> None:
    """Print tables between two lines, the last one red or green; on a terminal with lines around them.

    The lines in `first` come before the tables.
    """
    from rich.console import Console  # costs a tenth of a second, which a script need not pay
    from rich.table import Table as Drawn
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        print(plain_text(head, tables, foot, first))
        return
    console.print(visible(head), style="bold", markup=False, highlight=False, soft_wrap=True)
    for line in first:
        print(line)  # as it is, so that it can be copied
    for section in filled(tables):
        # Not as the table's own title, which would be wrapped to the width of a narrow table.
        console.print(f"\n{section.title}", style="italic", markup=False, soft_wrap=True)
        table = Drawn(header_style="dim")
        for i, column in enumerate(section.columns):
            table.add_column(column, justify="left" if i == 0 or column.startswith("what") else "right")
        for row in section.rows:
            table.add_row(*(Text(visible(cell)) for cell in row))  # brackets in it are no markup
        console.print(table)
    console.print(visible(foot), style="red" if bad else "green", markup=False, soft_wrap=True)


def markdown_sections(head: str, tables: Iterable[Table]) -> str:
    """Tables as a Markdown page under a heading."""
    return "\n".join([f"## {head}", *markdown_tables(tables), ""])


def markdown_tables(tables: Iterable[Table]) -> list[str]:
    """Tables as lines of Markdown, each under a heading of its own."""
    lines = []
    for section in filled(tables):
        lines += ["", f"### {section.title}", "", _markdown_row(section.columns)]
        lines += [_markdown_row(["---"] * len(section.columns)), *map(_markdown_row, section.rows)]
    return lines


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
