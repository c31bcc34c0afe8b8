"""The documents, and what the tests of them read off a page."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PART_OF_A_PAGE = {DOCS / "evidence" / "findings" / "looked-for.md": DOCS / "evidence" / "findings.md"}
"""Files that only appear as a part of another page, where their links are meant to work."""
PAGES = [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted(DOCS.rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
EVERY_PAGE = [
    *PAGES,
    *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
"""Those besides that are not held to the rules of prose."""
EVERY_NAME = [str(page.relative_to(ROOT)) for page in EVERY_PAGE]

INDENT = "    "
_FENCE = re.compile(r"(\s*)(```|~~~)\s*([^\s`]*)")
_LINK = re.compile(r"!?\[((?:[^\[\]]|`[^`]*`)*)\]\(([^)\s]*)\)")
_SPAN = re.compile(r"(`+).+?\1")


def prose_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that are not in a code block, each with its number from 1."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and not (line.startswith("    ") and not line.lstrip().startswith(("-", "*"))):
            yield number, line


@dataclass(frozen=True)
class Block:
    """A block of code, between fences or indented."""

    line: int
    """Of what stands before its first line, from 1."""
    language: str
    """What is written behind the fence; empty for nothing."""
    lines: tuple[str, ...]
    """Without the indentation of the block."""


def blocks(text: str) -> Iterator[Block]:
    """The blocks of code: those in fences, then those behind four spaces."""
    fenced = [*_fenced(text.splitlines())]
    yield from fenced
    yield from _indented(_emptied(text.splitlines(), fenced))


def _fenced(lines: list[str]) -> Iterator[Block]:
    opening, start, inner = None, 0, list[str]()
    for number, line in enumerate(lines, 1):
        fence = _FENCE.match(line)
        if fence and opening:
            yield Block(start, opening[3], tuple(inner))
            opening, inner = None, []
        elif fence:
            opening, start = fence, number
        elif opening:
            inner.append(line.removeprefix(opening[1]))


def _indented(lines: list[str]) -> Iterator[Block]:
    """Blocks behind four spaces, which begin after an empty line and are not the rest of an item of a list."""
    inner, in_list, before = list[str](), False, ""
    for number, line in enumerate([*lines, "."], 1):
        if line.startswith(INDENT) and (inner or not (before or in_list)):
            inner.append(line.removeprefix(INDENT))
        elif inner and not line:
            inner.append("")
        elif inner:
            yield Block(number - len(inner) - 1, "", tuple(inner))
            inner = []
        if line and not line.startswith(" "):
            in_list = re.match(r"[-*] |\d+\. ", line) is not None
        before = line


def _emptied(lines: list[str], found: Iterable[Block]) -> list[str]:
    """The lines, with those of blocks empty."""
    inside = {block.line + offset for block in found for offset in range(len(block.lines) + 2)}
    return ["" if number in inside else line for number, line in enumerate(lines, 1)]


def spans(text: str) -> Iterator[tuple[int, str]]:
    """The spans of code in the text, each with its line; one may go on in the next line."""
    lines = text.splitlines()
    whole = "\n".join(_emptied(_emptied(lines, _fenced(lines)), _indented(_emptied(lines, _fenced(lines)))))
    for match in re.finditer(r"(?<!`)(`+)(?!`)((?:(?!\n\n).)+?)(?<!`)\1(?!`)", whole, re.DOTALL):
        yield whole.count("\n", 0, match.start()) + 1, " ".join(match[2].split())


def shown(line: str) -> str:
    """A line as a reader sees it: links without their address."""
    return _LINK.sub(r"\1", line)


def without_code_and_links(line: str) -> str:
    """What stands in a line besides code and links."""
    return _SPAN.sub("", _LINK.sub("", line))


def links(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, text and address of every link outside of code."""
    for number, line in prose_lines(text):
        for match in _LINK.finditer(line):
            yield number, match[1], match[2]


def anchors(text: str) -> set[str]:
    """What can stand behind `#` in a link to a page: its headings, as they are turned into anchors."""
    found: set[str] = set()
    for _, line in prose_lines(text):
        if heading := re.fullmatch(r"#{1,6} (.*?)\s*#*", line):
            plain = re.sub(r"[^\w\- ]", "", shown(heading[1]).replace("`", "").lower()).replace(" ", "-")
            number = sum(plain == one or re.fullmatch(rf"{re.escape(plain)}-\d+", one) is not None for one in found)
            found.add(f"{plain}-{number}" if number else plain)
        found |= set(re.findall(r'<a (?:id|name)="([^"]+)"', line))
    return found
