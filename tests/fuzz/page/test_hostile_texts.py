"""Names and texts with markup, half characters, names of prototypes, in Chromium: nothing runs, all of it is text."""

from random import Random

import pytest
from blockproof.fuzz.reports.run import RunDocument

from .hostile_pages import HOSTILE, KINDS, MARKUP, Browsing, hostile_document


@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_document_is_shown_as_text(chromium, kind, tmp_path):
    browsing = Browsing(chromium, tmp_path)
    for number in range(2):
        assert browsing.wrong(hostile_document(kind, Random(f"{kind} {number}"), tmp_path)) == []


def test_the_check_notices_what_runs_and_what_is_made_of_a_text(chromium, tmp_path, monkeypatch):
    document = RunDocument(MARKUP, 1, 1).report("a run")
    assert Browsing(chromium, tmp_path).wrong(document, shows=f"{MARKUP}, engine") == []
    page = (tmp_path / "page.html").read_text()
    monkeypatch.setattr(
        "tests.fuzz.page.hostile_pages.write_page",
        lambda _, path: path.write_text(page.replace("<noscript>", MARKUP).replace("Content-Security-Policy", "x")),
    )
    said = Browsing(chromium, tmp_path).wrong(document)
    assert any(line.startswith("asks ") for line in said)
    assert Browsing(chromium, tmp_path).wrong(document, shows="another text")[-1] == "does not show another text"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_document_can_be_made_of_hostile_texts(kind, tmp_path):
    """Without a browser: no text keeps a document from being made."""
    for number in range(20):
        hostile_document(kind, Random(number), tmp_path)
    assert len(set(HOSTILE)) == len(HOSTILE)
