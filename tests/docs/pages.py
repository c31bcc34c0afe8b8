"""The documents, and what the tests of them read off a page."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PART_OF_A_PAGE = {DOCS / "evidence" / "findings" / "looked-for.md": DOCS / "evidence" / "findings.md"}
"""Files that only appear as a part of another page, where their links are meant to work."""
PAGES = [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted(DOCS.rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]

_FENCE = re.compile(r"\s*(```|~~~)")
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
