"""Part of the site: links from a page to a file or folder of the repository that is no page.

In the repository such a link opens the file. On the site it opens a page with the highlighted text of the file, or with
the list of the folder, under `source/`. So there is no link that is dead without the repository beside it. A trace is
drawn besides, by the model alone: the page that `blockproof report --model` writes.
"""

import html
import posixpath
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from blockproof.fuzz.page.html import write_page
from blockproof.fuzz.page.trace_document import trace_document
from blockproof.fuzz.traces.files import TraceError
from blockproof.fuzz.traces.trace_file import read_trace
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.highlighting import PygmentsBridge
from sphinx.transforms import SphinxTransform

FOLDER = "source"
DRAWN = ".drawn.html"
"""What the name of a page ends on that shows a trace step by step."""
LONGEST = 200_000
"""Bytes of a file that is shown; a longer one is offered as it is."""
SHORT_FOLDER = 20
"""A folder with at most so many files has a page for each; of a longer one those that a page links to."""
LANGUAGES = {".py": "python", ".json": "json", ".toml": "toml", ".md": "markdown", ".js": "javascript"}
NOT_LISTED = frozenset({"__pycache__", ".hypothesis", "c_target"})
"""What running the examples leaves behind."""


class LinksToSources(SphinxTransform):
    """Turns links to files and folders that are no pages into links to their pages under `source/`."""

    default_priority = 870  # before Sphinx collects files to be downloaded, at 880

    def apply(self, **options: Any) -> None:
        """Replace them in one document."""
        for node in list(self.document.findall(addnodes.download_reference)):
            self._replace(node, node["reftarget"])
        for node in list(self.document.findall(addnodes.pending_xref)):
            if node.get("reftype") == "myst" and node.get("refdomain") is None:
                self._replace(node, node["reftarget"])

    def _replace(self, node: nodes.Element, target: str) -> None:
        """Put a link to the page of what the target names; leave it, to be complained about, if there is no such."""
        _, name = self.env.relfn2path(target.partition("#")[0], self.env.docname)
        path = Path(name)
        if not target.partition("#")[0] or not path.exists() or (path.is_file() and path.stat().st_size > LONGEST):
            return
        page = page_of(path.resolve().relative_to(self.env.srcdir))
        _asked(self.env).setdefault(self.env.docname, set()).add(page)
        address = posixpath.relpath(f"{page}.html", posixpath.dirname(self.env.docname) or ".")
        link = nodes.reference("", "", *node.children, internal=True, refuri=address)
        node.replace_self(link)


def page_of(path: Path) -> str:
    """The name of the page of a file or folder, given its path below the root."""
    return posixpath.join(FOLDER, path.as_posix())


def collected(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The pages of all files and folders that some page links to."""
    asked = {page for pages in _asked(app.env).values() for page in pages}
    folders = {page: files_below(app.srcdir / Path(page).relative_to(FOLDER)) for page in asked}
    short = {page: files for page, files in folders.items() if len(files) <= SHORT_FOLDER}
    wanted = sorted(asked | {posixpath.join(page, name) for page, files in short.items() for name in files})
    bridge = PygmentsBridge("html", "sphinx")
    for page in wanted:
        path = app.srcdir / Path(page).relative_to(FOLDER)
        body = listed(path, page, set(wanted)) if path.is_dir() else drawn(path, page, app.outdir) + shown(path, bridge)
        title = str(path.relative_to(app.srcdir))
        yield page, {"title": title, "parents": [], "body": f"<h1>{html.escape(title)}</h1>\n{body}"}, "page.html"


def drawn(path: Path, page: str, site: Path) -> str:
    """Draw a trace beside its page, and return the link there as HTML; nothing for other files."""
    try:
        file = read_trace(path)
    except TraceError:
        return ""
    target = Path(site) / f"{page}{DRAWN}"
    target.parent.mkdir(parents=True, exist_ok=True)
    write_page(trace_document(file, None, None, path.name), target)
    return f'<p><a href="{html.escape(target.name)}">Look at it, step by step</a>, or read it:</p>\n'


def shown(path: Path, bridge: PygmentsBridge) -> str:
    """A file as HTML."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return bridge.highlight_block(text, LANGUAGES.get(path.suffix, "text"))


def files_below(folder: Path) -> list[str]:
    """The files of a folder and of those in it, as paths below it, sorted; empty for a file."""
    found = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return sorted(path.as_posix() for path in found if not NOT_LISTED.intersection(path.parts))


def listed(folder: Path, page: str, wanted: set[str]) -> str:
    """The files below a folder as HTML, those that have a page as links."""
    lines = []
    for name in files_below(folder):
        text = f"<code>{html.escape(name)}</code>"
        if posixpath.join(page, name) in wanted:
            address = posixpath.relpath(posixpath.join(page, f"{name}.html"), posixpath.dirname(page))
            text = f'<a href="{html.escape(address)}">{text}</a>'
        lines.append(f"<li>{text}</li>")
    return "<p>The files of this folder of the repository.</p>\n<ul>\n" + "\n".join(lines) + "\n</ul>"


def with_one_sidebar(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """All pages of one folder under `source/` have the same sidebar, which takes longer to make than they do."""
    if not pagename.startswith(f"{FOLDER}/"):
        return
    made: dict[str, str] = app.__dict__.setdefault("blockproof_sidebars", {})
    folder, make = posixpath.dirname(pagename), context["toctree"]

    def sidebar(**options: Any) -> str:
        if folder not in made:
            made[folder] = make(**options)
        return made[folder]

    context["toctree"] = sidebar


def merge(app: Sphinx, env: Any, docnames: Iterable[str], other: Any) -> None:
    """Take over what another process has read."""
    _asked(env).update({name: pages for name, pages in _asked(other).items() if name in docnames})


def _asked(env: Any) -> dict[str, set[str]]:
    """The pages under `source/` that each document asks for, kept with the environment."""
    asked: dict[str, set[str]] = env.__dict__.setdefault("blockproof_sources", {})
    return asked


def purge(app: Sphinx, env: Any, docname: str) -> None:
    """Forget what a page asked for that is read again."""
    _asked(env).pop(docname, None)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_transform(LinksToSources)
    app.connect("html-collect-pages", collected)
    app.connect("env-purge-doc", purge)
    app.connect("env-merge-info", merge)
    app.connect("html-page-context", with_one_sidebar, priority=400)  # before the theme makes it
    return {"parallel_read_safe": True, "parallel_write_safe": True}
