"""The page is one file, lets nothing in from outside, and shows markup as text."""

import base64
import hashlib
import json
import re
import sys

import msgspec
import pytest
from blockproof.fuzz.page import html
from blockproof.fuzz.reports.document import Document
from blockproof.model.ops import Allocate, Submit

from .drawing import TWICE, shown

NASTY = "</script><script>alert(1)</script>\u202e<!--\u2028"


@pytest.fixture(scope="module")
def text():
    return html.page(shown(TWICE, "fault:free-order-reversed"))


def test_one_script_and_one_style_are_allowed_by_their_hash(text):
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.replace("&#39;", "'").split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for part, rule in ((script, "script-src"), (style, "style-src")):
        digest = base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert "unsafe" not in policy


def test_nothing_is_fetched_or_evaluated(text):
    outside = text.replace(html._asset("lib_preact.js"), "")
    assert not re.search(r"""(src|href)\s*=\s*["']""", outside)
    assert not re.search(r"\b(eval|Function|fetch|XMLHttpRequest|innerHTML|outerHTML|document\.write)\b *[(=]", outside)
    assert "dangerouslySetInnerHTML=" not in outside
    assert "sourceMappingURL" not in text


def test_markup_in_a_trace_stays_data():
    page = html.page(shown([Submit(NASTY, (0, 0)), Allocate(NASTY, 2)], title=NASTY))
    assert page.count("</script>") == 2
    assert "alert(1)</script>" not in page
    (data,) = re.findall(r'id="document">(.*?)</script>', page, re.DOTALL)
    assert json.loads(data)["requests"] == [NASTY]
    assert msgspec.json.decode(data, type=Document).title == NASTY


def test_a_page_without_scripts_says_what_was_found(text):
    (said,) = re.findall(r"<noscript>(.*?)</noscript>", text, re.DOTALL)
    assert "lockstep: model and target differ in `free`" in said


def test_without_the_template_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(html.PageError, match=re.escape("blockproof[report]")):
        html.page(shown(TWICE))


def test_a_library_lies_with_its_licence():
    from importlib.resources import files

    names = {path.name for path in files("blockproof.fuzz.page.browser").iterdir()}
    assert {"lib_preact_license.txt", "lib_htm_license.txt"} <= names
    more = {"chart.js", "live.js", "plan.js", "story.js"}
    assert {name for name in names if name.endswith(".js")} == {*html.LIBRARIES, *html.SCRIPTS, *more}
