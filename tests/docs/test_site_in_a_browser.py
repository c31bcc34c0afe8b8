"""The built site in headless Chromium, from files: search, dark mode, narrow windows, what screen readers are told.

Left out without a built site (BLOCKPROOF_SITE, as .ci/run sets it after `make site`), a Chromium or its driver.
"""

from pathlib import Path

import pytest

from .pages import ROOT
from .site import SITE

pytestmark = pytest.mark.skipif(SITE is None, reason="no built site: make site, then BLOCKPROOF_SITE=build/site")
AXE = (ROOT / "tests" / "fuzz" / "page" / "axe.min.js").read_text(encoding="utf-8")
LOOKED_AT = ("index.html", "docs/reference/specs-and-config.html", "docs/api/core-manager.html")
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
MENU_SEEN = "document.querySelector('.sidebar-drawer').getBoundingClientRect().left >= 0"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
def visit(chromium):
    """Opens a page of the site; at the end nothing may have come from elsewhere, and nothing complained."""
    opened, wrong = [], []

    def open_it(path, **options):
        page = chromium.new_page(**{"viewport": {"width": 1400, "height": 900}, **options})
        opened.append(page)
        page.on("console", lambda said: wrong.append(said.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda asked: wrong.extend([] if asked.url.startswith("file:") else [asked.url]))
        page.goto((SITE / path).as_uri())
        return page

    yield open_it
    assert wrong == []
    for page in opened:
        page.close()


def violations(page):
    """What axe-core objects to, the name of the rule with the first element that breaks it."""
    page.add_script_tag(content=AXE)
    found = page.evaluate("axe.run({ resultTypes: ['violations'], preload: false })")["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html'][:120]}" for one in found]


@pytest.mark.parametrize(
    ("words", "page"),
    [("eviction order free queue", "docs/reference/core"), ("KVCacheManager", "docs/api/core-manager")],
)
def test_a_search_finds_the_page(visit, words, page):
    start = visit("index.html")
    start.get_by_role("textbox", name="Search").fill(words)
    start.keyboard.press("Enter")
    start.wait_for_selector("#search-results li a")
    found = start.eval_on_selector_all("#search-results li a", "links => links.map(link => link.getAttribute('href'))")
    assert any(link.partition(".html")[0] == page for link in found)
    excerpts = start.locator("#search-results li .excerpt").all_inner_texts()
    assert len(excerpts) >= len(found) - 1  # only the words of a title may stand in none
    assert all(any(word.lower() in text.lower() for word in words.split()) for text in excerpts)
    assert max(map(len, excerpts)) < 400


CUT_OFF = "[...document.querySelectorAll('pre')].filter(one => one.scrollWidth > one.clientWidth + 1).length"


@pytest.mark.parametrize("width", [360, 1000, 1400, 1700])
def test_no_line_of_code_is_cut_off(visit, width):
    for path in ("docs/guide/your-engine.html", "docs/guide/verify.html", "docs/architecture.html"):
        page = visit(path, viewport={"width": width, "height": 900})
        assert page.locator("pre").count() > 0
        assert page.evaluate(CUT_OFF) == 0


def test_a_newcomer_is_led_to_the_first_run(visit):
    page = visit("index.html")
    page.get_by_role("main").get_by_role("link", name="first run").first.click()
    assert Path(page.url).name == "first-run.html"
    assert page.get_by_role("heading", level=1).inner_text().startswith("First run")


def test_the_sidebar_has_its_shelves(visit):
    captions = visit("docs/api/targets.html").locator(".sidebar-tree .caption-text").all_inner_texts()
    assert [one.lower() for one in captions if one.lower() != "concepts"] == [
        "the way in",
        "guide",
        "reference",
        "api",
        "evidence",
        "project",
    ]


def test_it_is_dark_where_the_system_is(visit):
    light, dark = (visit(LOOKED_AT[1], color_scheme=scheme).evaluate(BACKGROUND) for scheme in ("light", "dark"))
    assert light != dark


def test_a_narrow_window_scrolls_one_way_and_has_its_menu(visit):
    page = visit("docs/reference/contract.html", viewport={"width": 360, "height": 740})
    assert page.evaluate(OVERFLOW) <= 0
    assert page.evaluate(MENU_SEEN) is False
    page.locator(".mobile-header .nav-overlay-icon").click()
    page.wait_for_function(MENU_SEEN)


def test_a_narrow_window_shows_its_menu_to_whoever_comes_by_keys(visit):
    page = visit("docs/reference/contract.html", viewport={"width": 360, "height": 740})
    for _ in range(8):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.sidebar-drawer') !== null")
    page.wait_for_function(MENU_SEEN)


@pytest.mark.parametrize("path", LOOKED_AT)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_screen_readers_are_told_what_is_there(visit, path, scheme):
    assert violations(visit(path, color_scheme=scheme)) == []
