"""Which pages the site has and where each stands in its sidebar, read off the links of the pages themselves.

`docs/README.md` is the only list: its sections are the shelves of the sidebar, in its order. Below it, a `README.md` is
the index of its folder and `NAME.md` of the folder `NAME`: the pages that it links to there stand below it.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
START = "README.md"
SHELVES = "docs/README.md"
OUTSIDE = ("*.md", "benchmarks/README.md", "examples/**/README.md")
"""Pages of the site that are not in `docs`."""
PATTERNS = [*OUTSIDE, "docs/**.md"]
"""All pages but `LEFT_OUT`, as Sphinx writes patterns: two stars are any folders, also none."""
LEFT_OUT = ("docs/evidence/findings/looked-for.md",)
"""What only appears as a part of another page."""

_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|`[^`]*`)*)\]\(([^)\s#]+\.md)(?:#[^)\s]*)?\)")


def pages(root: Path = ROOT) -> list[str]:
    """Every page of the site, as a path below the root, sorted."""
    found = {path for pattern in (*OUTSIDE, "docs/**/*.md") for path in root.glob(pattern)}
    return sorted({path.relative_to(root).as_posix() for path in found} - set(LEFT_OUT))


def below(page: str, text: str) -> list[tuple[str, str]]:
    """Title and path of the pages that stand below this one in the sidebar: what it links to in the folder it is the
    index of. Empty for a page that is no index."""
    folder, name = posixpath.split(page)
    if name != "README.md":
        folder = page.removesuffix(".md")
    if page in (START, SHELVES):
        return []
    return [(title, path) for title, path in _linked(page, text) if path.startswith(f"{folder}/") and path != page]


def shelves(text: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """The shelves of `docs/README.md`, given its text: the caption of each, and title and path of its pages."""
    found = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        head, _, rest = section.partition("\n")
        found.append((head.partition(",")[0].strip(), _linked(SHELVES, rest)))
    return found


def toctrees(page: str, text: str, shelf_text: str) -> str:
    """What is added to the Markdown of a page, so that Sphinx knows what stands below it. May be empty."""
    if page == START:
        parts = [("", [("All documents", SHELVES)]), *shelves(shelf_text)]
    else:
        listed = {path for _, entries in shelves(shelf_text) for _, path in entries}
        parts = [("", [(title, path) for title, path in below(page, text) if path not in listed])]
    return "".join(_toctree(page, caption, entries) for caption, entries in parts if entries)


def unreached(root: Path = ROOT) -> list[str]:
    """Pages that no shelf and no index leads to."""
    known = set(pages(root))
    shelf_text = (root / SHELVES).read_text(encoding="utf-8")
    reached, waiting = {START, SHELVES}, [path for _, entries in shelves(shelf_text) for _, path in entries]
    while waiting:
        page = waiting.pop()
        if page in known and page not in reached:
            reached.add(page)
            waiting += [path for _, path in below(page, (root / page).read_text(encoding="utf-8"))]
    return sorted(known - reached)


def _linked(page: str, text: str) -> list[tuple[str, str]]:
    """Title and path below the root of each page that a text links to, once, where the first link stands."""
    found: dict[str, str] = {}
    for title, address in _links(text):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), address))
        if "://" not in address and path not in LEFT_OUT:
            found.setdefault(path, title.replace("`", ""))
    return [(title, path) for path, title in found.items()]


def _links(text: str) -> Iterator[tuple[str, str]]:
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield from _LINK.findall(line)


def _toctree(page: str, caption: str, entries: Sequence[tuple[str, str]]) -> str:
    lines = ["", "```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), ""]
    lines += [f"{title} </{path.removesuffix('.md')}>" for title, path in entries if path != page]
    return "\n".join([*lines, "```", ""])
