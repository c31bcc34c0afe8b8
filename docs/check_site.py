"""What must hold of the built site: every link leads to a file and a place in it, and nothing is loaded from outside.

python docs/check_site.py build/site
"""

import argparse
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {
    "audio": "src", "embed": "src", "iframe": "src", "img": "src", "input": "src", "link": "href", "object": "data",
    "script": "src", "source": "src", "use": "href", "video": "src",
}  # fmt: skip
"""Which attribute of an element names what a browser loads on its own."""
_FROM_CSS = re.compile(r"""(?:url\(\s*|@import\s+)['"]?([^'")\s]+)""")
_OUTSIDE = ("http", "https", "ws", "wss", "ftp")


class Page(HTMLParser):
    """What one page loads and links to, and the places in it that a link can name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self.styles: list[str] = []
        self._in_style = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element names."""
        given = {name: value or "" for name, value in attrs}
        self._in_style = tag == "style"
        self.places |= {given[name] for name in ("id", "name") if given.get(name)}
        self.styles += [given["style"]] if "style" in given else []
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif given.get(LOADS.get(tag, "")):
            self.loads.append(given[LOADS[tag]])

    def handle_data(self, data: str) -> None:
        """Note what a style sheet in the page loads."""
        if self._in_style:
            self.styles.append(data)

    def handle_endtag(self, tag: str) -> None:
        """A style sheet ends."""
        self._in_style = False


def problems(site: Path) -> Iterator[str]:
    """What is wrong with a site, a line for each, by page."""
    files = sorted(site.rglob("*.html"))
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in files}
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        for address in page.loads:
            yield from (f"{name}: {problem}" for problem in _load(site, path, address))
        for style in page.styles:
            yield from (f"{name}: {problem}" for problem in _style(site, path, style))
        for address in page.links:
            yield from (f"{name}: {problem}" for problem in _link(site, path, address, pages))
    for path in sorted(site.rglob("*.css")):
        text = path.read_text(encoding="utf-8")
        yield from (f"{path.relative_to(site)}: {problem}" for problem in _style(site, path, text))


def _style(site: Path, path: Path, text: str) -> Iterator[str]:
    for address in _FROM_CSS.findall(text):
        yield from _load(site, path, address)


def _load(site: Path, path: Path, address: str) -> Iterator[str]:
    """What is wrong with something that a page loads."""
    if address.startswith(("data:", "#")):
        return
    if address.startswith("//") or urlsplit(address).scheme in _OUTSIDE:
        yield f"{address}: loaded from outside"
    elif not _inside(site, path, address).is_file():
        yield f"{address}: no such file"


def _link(site: Path, path: Path, address: str, pages: dict[Path, Page]) -> Iterator[str]:
    """What is wrong with a link of a page. Links to other hosts are not followed."""
    if urlsplit(address).scheme:
        return
    target = _inside(site, path, address) if urlsplit(address).path else path
    place = unquote(urlsplit(address).fragment)
    if not target.is_file() or not target.is_relative_to(site):
        yield f"{address}: no such file"
    elif place and target in pages and place not in pages[target].places:
        yield f"{address}: no such place"


def _inside(site: Path, path: Path, address: str) -> Path:
    """The file that an address of a page means."""
    name = unquote(urlsplit(address).path)
    return Path((site / name.lstrip("/")) if name.startswith("/") else (path.parent / name)).resolve()


def main() -> int:
    """0 if all is well, 1 with a line for each problem, 2 for a folder without a site."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path, help="the folder of the built site")
    site = parser.parse_args().site.resolve()
    if not (site / "index.html").is_file():
        print(f"{site}: no index.html; build it first: make site", file=sys.stderr)
        return 2
    found = list(problems(site))
    print("\n".join(found) if found else f"{len(list(site.rglob('*.html')))} pages: every link leads somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
