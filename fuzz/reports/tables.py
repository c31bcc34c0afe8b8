"""Tables of a report, for a terminal, a log and a Markdown page."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..findings.visible import visible


@dataclass(frozen=True)
class Section:
    """One table of a report."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


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


def plain_sections(head: str, tables: Iterable[Section], foot: str, first: Sequence[str] = ()) -> str:
    """Aligned lines, the first and the last one given; the lines in `first` come before the tables."""
    lines = [head, *first]
    for section in tables:
        table = (section.columns, *section.rows)
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines += ["", section.title]
        for row in table:
            lines.append("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return "\n".join([*lines, "", foot])


def show_sections(head: str, tables: Iterable[Section], foot: str, *, bad: bool, first: Sequence[str] = ()) -> None:
    """Print tables between two lines, the last one red or green; on a terminal with lines around them.

    The lines in `first` come before the tables.
    """
    from rich.console import Console  # costs a tenth of a second, which a script need not pay
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        print(plain_sections(head, tables, foot, first))
        return
    console.print(visible(head), style="bold", markup=False, highlight=False, soft_wrap=True)
    for line in first:
        print(line)  # as it is, so that it can be copied
    for section in tables:
        # Not as the table's own title, which would be wrapped to the width of a narrow table.
        console.print(f"\n{section.title}", style="italic", markup=False, soft_wrap=True)
        table = Table(header_style="dim")
        for i, column in enumerate(section.columns):
            table.add_column(column, justify="left" if i == 0 or column.startswith("what") else "right")
        for row in section.rows:
            table.add_row(*(Text(visible(cell)) for cell in row))  # brackets in it are no markup
        console.print(table)
    console.print(visible(foot), style="red" if bad else "green", markup=False, soft_wrap=True)


def markdown_sections(head: str, tables: Iterable[Section]) -> str:
    """Tables as a Markdown page under a heading."""
    return "\n".join([f"## {head}", *markdown_tables(tables), ""])


def markdown_tables(tables: Iterable[Section]) -> list[str]:
    """Tables as lines of Markdown, each under a heading of its own."""
    lines = []
    for section in tables:
        lines += ["", f"### {section.title}", "", _markdown_row(section.columns)]
        lines += [_markdown_row(("---",) * len(section.columns)), *map(_markdown_row, section.rows)]
    return lines


def _markdown_row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
