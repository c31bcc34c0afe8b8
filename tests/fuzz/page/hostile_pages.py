"""Documents in which every name and text is hostile, and what a browser must do with their pages: show the text."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.page.files import RESULTS, TraceSettings, document_of
from blockproof.fuzz.page.html import write_page
from blockproof.fuzz.reports.campaign import CampaignDocument
from blockproof.fuzz.reports.document import Document
from blockproof.fuzz.traces.trace_file import FoundWhat, TraceFile, dump_trace
from blockproof.model.ops import Allocate, Free, Item, Lookup, Operation, Preempt, Submit

from ..malformed_reports import report_data
from .drawing import FULL

MARKUP = '<img src="x" onerror="window.ran=1">'
HOSTILE = (
    MARKUP, "</script><script>window.ran=1</script>", "<!--<script>", "]]>", "-->", "\u202etxt.exe\u2066", "\x00",
    "\x1b[2J", "\ud800", "\udc00x", "\u2028window.ran=1\u2029", "__proto__", "constructor", "toString",
    "hasOwnProperty", "x" * 20_000,
    "\"'><svg onload=window.ran=1>", "javascript:window.ran=1", "{{constructor.constructor('window.ran=1')()}}",
    "${window.ran=1}", "&lt;b&gt;&amp;", "<a href='http://127.0.0.1:9/'>", "<link rel=stylesheet href=//127.0.0.1:9/>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>", "<base href=//127.0.0.1:9/>", "</title><h1>",
    "</textarea></style>", "\\u003cscript\\u003e", "#step=1", "'", "", " ", "-1", "NaN", "\ufeff", "e\u0301" * 500,
)  # fmt: skip
"""What stands in place of names and texts."""
KINDS = ("trace", *RESULTS)
_FOUND_OUT = """() => [
  ...(window.ran === undefined ? [] : ["it ran"]),
  ...(({}).ran === undefined && Object.keys(Object.prototype).length === 0 ? [] : ["prototypes were changed"]),
  ...[...document.querySelectorAll("img,svg[onload],iframe,link,base,object,embed,form,meta[http-equiv=refresh]")]
    .map(one => `made of a text: ${one.outerHTML.slice(0, 80)}`),
  ...[...document.querySelectorAll("*")].flatMap(one => [...one.attributes].filter(a => /^on/i.test(a.name) ||
    /^(src|href)$/i.test(a.name) && !/^#/.test(a.value)).map(a => `attribute ${a.name}=${a.value.slice(0, 80)}`)),
  ...(document.scripts.length === 2 ? [] : [`${document.scripts.length} scripts`]),
]"""
"""What is wrong with a page, asked in the browser."""


def hostile_document(kind: str, random: Random, folder: Path) -> Document:
    """A document of this kind, made as `report` makes it, in which everything that can be hostile is."""

    def text() -> str:
        return random.choice(HOSTILE)

    if kind == "trace":
        path = folder / "<img src=x>.json"
        path.write_text(dump_trace(_trace(random)))
        with TraceSettings(model_alone=random.random() < 0.5, say=lambda line: None) as wanted:
            return document_of(path, wanted)
    data = msgspec.convert(report_data(kind, text), RESULTS[kind])
    return data.report(text(), last=data) if isinstance(data, CampaignDocument) else data.report(text())


def _trace(random: Random) -> TraceFile:
    names = random.sample(HOSTILE, 4)
    items = (Item(names[0], 0, 2),)
    operations: list[Operation] = []
    for name in names:
        operations += [Submit(name, (0, 1, 2, 3), adapter=name or None, salt=name or None, items=items), Lookup(name)]
        operations += [Allocate(name, 4), random.choice((Free, Preempt))(name)]
    text = "\n".join(random.choices(HOSTILE, k=3))
    found = FoundWhat(random.choice(HOSTILE), random.choice(HOSTILE), text, tuple(random.choices(HOSTILE, k=3)))
    return TraceFile(Trace(FULL, tuple(operations)), random.choice(("impl", *HOSTILE[:6])), found)


class Browsing:
    """One page of a browser after the other."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self._browser, self._folder = browser, folder

    def wrong(self, document: Document, shows: str = "") -> list[str]:
        """What the page of a document does that it must not, or does not show, a line each."""
        path = self._folder / "page.html"
        write_page(document, path)
        complaints = list[str]()

        def asks(url: str) -> list[str]:
            return [] if url == path.as_uri() else [f"asks {url[:99]}"]

        with self._opened() as page:
            page.on("console", lambda said: complaints.append(f"console: {said.text}"))
            page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
            page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
            page.on("request", lambda asked: complaints.extend(asks(asked.url)))
            page.goto(path.as_uri())
            page.wait_for_selector("h1", state="attached")  # it may be empty
            complaints += page.evaluate(_FOUND_OUT)
            if shows not in page.inner_text("body"):
                complaints.append(f"does not show {shows}")
            for key in ("End", "ArrowLeft", "Home", "ArrowRight"):
                page.keyboard.press(key)
            for button in page.get_by_role("button").all()[:12]:
                if button.is_visible() and button.is_enabled():
                    button.click(timeout=2_000)
            complaints += page.evaluate(_FOUND_OUT)
        return list(dict.fromkeys(complaints))

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        page = self._browser.new_page(viewport={"width": 1200, "height": 800})
        try:
            yield page
        finally:
            page.close()
