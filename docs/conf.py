"""The site, for Sphinx: `make site` writes it to build/site from the Markdown of this repository.

The pages stay plain Markdown that a viewer of the repository shows; what only the site has is added here.
"""

import json
import re
import shutil
import sys
from html import unescape
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import site_map
import site_sources
from sphinx.application import Sphinx

project = "blockproof"
author = copyright = "The blockproof authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "site_sources"]

# The root of the repository is the source, so that links between README.md and docs work as they stand.
root_doc = "README"
include_patterns = site_map.PATTERNS  # few: Sphinx reads them anew for each page and entry of a sidebar
exclude_patterns = [".*", "**/.*", "build", *site_map.LEFT_OUT]
source_suffix = {".md": "markdown"}
smartquotes = False  # options begin with two hyphens, also in prose

myst_heading_anchors = 6
suppress_warnings = ["myst.header"]  # a page may go from its title to a third level

RULES = re.compile(r"(?<!`)\b(core|specs-and-config|trace-format|contract)\.md\b(?! *<)")
default_role = "code"  # docstrings write `names` as Markdown does
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
add_module_names = False
toc_object_entries = False
# Types in signatures are of Python, of other packages and of ours; those of ours that are on the site become links.
nitpick_ignore_regex = [("py:.*", ".*")]
python_maximum_signature_line_length = 90
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = "blockproof"
html_static_path = ["site.css", "search_excerpts.js"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # fetched from each page, which a browser forbids for files; see `with_excerpts`
html_theme_options = {"top_of_page_buttons": []}

FOR_SCREEN_READERS = (
    ('class="caption" role="heading"', 'class="caption" role="heading" aria-level="2"'),
    ('<aside class="sidebar-drawer', '<aside aria-label="All pages" class="sidebar-drawer'),
    ('<aside class="toc-drawer', '<aside aria-label="On this page" class="toc-drawer'),
    ("<pre>", '<pre tabindex="0">'),  # what is wider than the window is scrolled by keys
    ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
    ('<th class="head"><p></p></th>', "<td></td>"),  # the corner of a table
    ("<dl>", '<dl role="presentation">'),  # the parameters of a signature, one below the other
)
"""What the theme writes into every page, and what axe-core asks for instead."""
MOST_TEXT = 60_000
"""Characters of a page that a search shows excerpts of."""
highlight_language = "none"  # most blocks show a terminal
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"


def with_toctrees(app: Sphinx, docname: str, source: list[str]) -> None:
    """Add to a page what stands below it in the sidebar."""
    shelf_text = (site_map.ROOT / site_map.SHELVES).read_text(encoding="utf-8")
    source[0] += site_map.toctrees(f"{docname}.md", source[0], shelf_text)


def without_arguments(app: Sphinx, what: str, name: str, given: Any, *rest: Any) -> tuple[str, None] | None:
    """A protocol is not called, so its arguments are not shown."""
    return ("", None) if what == "class" and getattr(given, "_is_protocol", False) else None


def with_links(app: Sphinx, what: str, name: str, given: Any, options: Any, lines: list[str]) -> None:
    """The pages of rules that a docstring names become links; all docstrings are shown on pages in docs/api."""
    lines[:] = [RULES.sub(r"`\g<0> <../reference/\1.html>`__", line) for line in lines]


def known_by_its_name(app: Sphinx, env: Any, node: Any, contnode: Any) -> Any:
    """A link from a type in a signature to where it is documented under another module: the one that users import."""
    python, target = env.get_domain("py"), str(node.get("reftarget", ""))
    last = target.rpartition(".")[2]
    places = [
        name
        for name, one in python.objects.items()
        if name.rpartition(".")[2] == last and one.objtype in ("class", "exception", "data", "function")
    ]
    if not target.startswith("blockproof.") or len(places) != 1:
        return None
    return python.resolve_xref(env, node["refdoc"], app.builder, "obj", places[0], node, contnode)


def finished(app: Sphinx, error: Exception | None) -> None:
    """Mend the pages for screen readers, and give the start page the name that a web server looks for."""
    if error is not None:
        return
    for path in Path(app.outdir).rglob("*.html"):
        if path.name.endswith(site_sources.DRAWN):
            continue  # not of the theme, and its scripts are allowed by their hash
        text = path.read_text(encoding="utf-8")
        for written, wanted in FOR_SCREEN_READERS:
            text = text.replace(written, wanted)
        path.write_text(text, encoding="utf-8")
    with_excerpts(Path(app.outdir))
    shutil.copy(Path(app.outdir) / "README.html", Path(app.outdir) / "index.html")


def with_excerpts(site: Path) -> None:
    """Write the text of every page into one script, for the page of the search, which shows the words around what it
    has found also where the site is a folder of files."""
    texts = {
        path.relative_to(site).with_suffix("").as_posix(): page_text(path) for path in sorted(site.rglob("*.html"))
    }
    script = (
        f"window.EXCERPTS = {json.dumps({page: text for page, text in texts.items() if text}, ensure_ascii=False)};"
    )
    (site / "_static" / "excerpts.js").write_text(script, encoding="utf-8")
    search = site / "search.html"
    scripts = "".join(f'<script src="_static/{name}"></script>' for name in ("excerpts.js", "search_excerpts.js"))
    search.write_text(search.read_text(encoding="utf-8").replace("</body>", f"{scripts}</body>"), encoding="utf-8")


def page_text(path: Path) -> str:
    """What a page says, in one line: its article without marks, cut off where it is very long; empty without one."""
    article = re.search(r"<article[^>]*>(.*?)</article>", path.read_text(encoding="utf-8"), re.DOTALL)
    text = re.sub(r"<(script|style)\b.*?</\1>|<[^>]+>", " ", article[1] if article else "", flags=re.DOTALL)
    return " ".join(unescape(text).replace("\u00b6", " ").split())[:MOST_TEXT]


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", with_toctrees)
    app.connect("autodoc-process-docstring", with_links)
    app.connect("autodoc-process-signature", without_arguments)
    app.connect("missing-reference", known_by_its_name)
    app.connect("build-finished", finished)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
