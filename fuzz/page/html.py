"""One HTML file of a document: everything in it, nothing from outside.

A content security policy forbids every other source: the one script and the one style are allowed by their hash, so
nothing that a trace or a target has said can run or load anything, even if a view showed it wrongly.
"""

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from pathlib import Path

import msgspec

from ..findings.writing import write_file
from ..reports.charts import check
from ..reports.document import Document, PlanDocument, ReportDocument, TraceDocument
from ..reports.story import StoryDocument

MISSING = "the page needs jinja2: pip install '/path/to/blockproof[report]'"
LIBRARIES = ("lib_preact.js", "lib_preact_hooks.js", "lib_htm.js")
SCRIPTS = ("words.js", "replayer.js", "pool.js", "tables.js", "panels.js", "trace.js", "report.js", "app.js")
"""In the order in which they are joined."""
OF_CHARTS = ("chart",)
"""The scripts and styles that only a page with charts has, and one that may get some."""
OF_PLANS = (*OF_CHARTS, "plan")
"""Those that only the page of a plan has."""
OF_STORIES = ("story",)
"""Those that only the page of a story has."""
OF_LIVE = (*OF_CHARTS, "live")
"""Those that only a page has that is written while its run goes on."""


class PageError(ValueError):
    """The page cannot be made. The text is one line."""


def page(document: Document) -> str:
    """The text of the HTML file. PageError if the template library is not installed; ChartError if the document has a
    chart that cannot be drawn.
    """
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise PageError(MISSING) from None
    script, style = parts(_more(document))
    template = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    text = template.from_string(_asset("page.html")).render(
        title=document.title,
        summary=_summary(document),
        policy=policy(script, style),
        style=Markup(style),
        script=Markup(script),
        document=Markup(embedded(document)),
    )
    return text.encode(errors="backslashreplace").decode()  # half a character, as an error text may hold


@cache
def parts(more: tuple[str, ...] = ()) -> tuple[str, str]:
    """The script and the style of a page: those of all pages, and `more`."""
    own = "\n".join(_asset(name) for name in (*(f"{name}.js" for name in more), *SCRIPTS))
    script = "\n".join([*(_asset(name) for name in LIBRARIES), f'(() => {{\n"use strict";\n{own}}})();\n'])
    return script, "".join(_asset(name) for name in ("page.css", *(f"{name}.css" for name in more)))


def _more(document: Document) -> tuple[str, ...]:
    """What the page has besides the scripts and the style of all pages. ChartError as `page`."""
    if isinstance(document, PlanDocument):
        return OF_PLANS
    if isinstance(document, StoryDocument):
        return OF_STORIES
    if not isinstance(document, ReportDocument):
        return ()
    check(document.charts)
    return OF_LIVE if document.progress else OF_CHARTS if document.charts else ()


def embedded(document: Document) -> str:
    """The document as JSON that can stand in a script element: nothing in it can end that, or begin a comment."""
    text = json.dumps(msgspec.to_builtins(document), ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def document_in(text: str) -> TraceDocument | None:
    """The document in the page of a trace, as `page` wrote it; None if the text is no such page."""
    _, _, rest = text.partition('id="document">')
    try:
        return msgspec.json.decode(rest.partition("</script>")[0], type=TraceDocument)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


@cache
def policy(script: str, style: str) -> str:
    """The content security policy for a page with this script and this style."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def write_page(document: Document, path: Path) -> None:
    """Write the page in one piece. PageError as from `page`."""
    write_file(path, page(document))


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _asset(name: str) -> str:
    """A file of ours for the browser; it must not end the element that it stands in."""
    text = files(f"{__package__}.browser").joinpath(name).read_text(encoding="utf-8")
    if name != "page.html" and any(end in text.lower() for end in ("</script", "</style", "<!--")):
        raise AssertionError(f"{name} would end the element that it stands in")
    return text


def _summary(document: Document) -> str:
    """What a reader without scripts sees."""
    if isinstance(document, TraceDocument | StoryDocument):
        return "\n".join([document.verdict.headline, document.verdict.sentence, "", document.verdict.text])
    if isinstance(document, PlanDocument):
        return "\n".join([document.headline, document.verdict, "", *(": ".join(pair) for pair in document.figures)])
    return "\n".join([document.verdict, document.headline, "", *(card.text for card in document.cards)])
