"""What a document looks like: as plain lines, as tables on a terminal, as Markdown, as JUnit XML.

All forms come from the same document (`ResultDocument`), so that a terminal, a log and a page say the same. JSON is
the document itself (`ResultDocument.text`), and `page.html` makes the page of it. Another form is one more
function here.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from ..findings.visible import visible
from ..findings.writing import write_file
from .document import ResultDocument, Table


def plain(document: ResultDocument) -> str:
    """The report for a log: aligned lines, what was found first."""
    lead = document.lead()
    return plain_text(lead.headline, document.tables(), lead.conclusion, document.found_lines())


def show(document: ResultDocument) -> None:
    """Print the report: as tables on a terminal, as plain lines elsewhere. What was found comes first."""
    lead, first = document.lead(), document.found_lines()
    show_tables(lead.headline, document.tables(), lead.conclusion, bad=lead.mood != "good", first=first)


def markdown(document: ResultDocument) -> str:
    """The report as a Markdown page, for the summary of a CI job."""
    lead, found = document.lead(), "\n".join(document.found_lines()[1:])
    failures = [] if found else [one for case in document.cases() for one in case.failures]
    texts = [text if message in text else f"{message}\n{text}" for message, text in failures]
    lines = [f"## blockproof: {lead.conclusion}", "", lead.headline]
    for text in [found] if found else texts:
        lines += ["", "```", text, "```"] if text not in lead.conclusion else []
    notes, foot = document.notes(), document.footnote()
    lines += ["", *(f"- {line}" for line in notes)] if notes else []
    lines += ["", foot] if foot else []
    return "\n".join([*lines, *markdown_tables(document.tables()), ""])


def junit(document: ResultDocument) -> str:
    """The report as JUnit XML."""
    cases = document.cases()
    suite = ElementTree.Element(
        "testsuite",
        name=f"blockproof {getattr(document, 'target', '')}".rstrip(),
        tests=str(len(cases)),
        failures=str(sum(len(one.failures) for one in cases)),
        errors="0",
        time=f"{document.lasted():.3f}",
    )
    for one in cases:
        case = ElementTree.SubElement(suite, "testcase", classname=one.judges, name=one.name, time=f"{one.seconds:.3f}")
        if one.skipped:
            ElementTree.SubElement(case, "skipped", message=one.skipped)
        for message, text in one.failures:
            ElementTree.SubElement(case, "failure", message=message).text = text
    ElementTree.SubElement(suite, "system-out").text = "\n".join([plain(document), *document.notes()])
    text = ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
    # XML has no place for control characters.
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)


def reports(document: ResultDocument, junit_to: Path | None, markdown_to: Path | None) -> list[Callable[[], None]]:
    """Steps that write it to the files that are named, whose folders are made if they are missing."""
    forms = ((junit_to, junit), (markdown_to, markdown))
    return [partial(_write, document, form, path) for path, form in forms if path is not None]


def _write(document: ResultDocument, form: Callable[[ResultDocument], str], path: Path) -> None:
    write_file(path, form(document))


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


def markdown_tables(tables: Iterable[Table]) -> list[str]:
    """Tables as lines of Markdown, each under a heading of its own."""
    lines = []
    for section in filled(tables):
        lines += ["", f"### {section.title}", "", _markdown_row(section.columns)]
        lines += [_markdown_row(["---"] * len(section.columns)), *map(_markdown_row, section.rows)]
    return lines


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
