"""A run is watched in Chromium from its first operation to its end, and a page that is not written any more."""

import threading
import time

import pytest
from blockproof.fuzz.engines import fuzzing
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.page import live
from blockproof.fuzz.page.html import write_page
from blockproof.fuzz.reports.document import VERSION, Cell, FoundCard, Matrix, Progress, ReportDocument, Table

from .test_browser import AXE

pytest.importorskip("jinja2", reason="no page: pip install '/path/to/blockproof[report]'")
FAULT = "fault:free-order-reversed"


class Later:
    """Our core, and from a moment on one with a mistake in it."""

    name = FAULT

    def __init__(self):
        self.wrong = threading.Event()
        self.cores = {False: open_target("impl"), True: open_target(FAULT)}

    def start(self, shape):
        self.core = self.cores[self.wrong.is_set()]
        return self.core.start(shape)

    def step(self, operation):
        return self.core.step(operation)

    def close(self):
        for core in self.cores.values():
            core.close()


class Watched:
    """A page of a file, what it complained about and how often it was loaded."""

    def __init__(self, chromium, path, **options):
        self.page = chromium.new_page(**options)
        self.complaints, self.asked, self.path = [], [], path
        self.page.on("console", lambda one: self.complaints.append(one.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda one: self.asked.append(one.url))
        self.page.goto(path.as_uri())

    def again(self):
        """Wait until it has loaded itself again."""
        with self.page.expect_event("load", timeout=60_000):
            pass
        self.page.wait_for_selector(".live")

    def close(self):
        assert self.complaints == []
        assert set(self.asked) == {self.path.as_uri()}
        self.page.close()


def accessible(page):
    page.evaluate(f"() => {{ {AXE} }}")
    look = "async () => (await axe.run()).violations.map((one) => [one.id, one.nodes.map((n) => n.html)])"
    assert page.evaluate(look) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_finding_appears_while_somebody_looks(chromium, tmp_path, monkeypatch):
    monkeypatch.setattr(live, "EVERY_S", 0.2)
    target, said, outcomes = Later(), [], []
    plan = Plan(3, seconds=120.0, attention=("full", "mamba"), shrink_seconds=1.0)
    task = fuzzing.FuzzTask(FAULT, "random", plan)
    path = tmp_path / "page.html"

    def run(page):
        with page:
            outcomes.append(fuzzing.fuzz(task, target, tmp_path, {"situations": {"hit": 10**9}}, said.append, page))

    thread = threading.Thread(target=run, args=(live.LivePage(path, said.append),))
    thread.start()
    watched = Watched(chromium, path, viewport={"width": 420, "height": 800}, color_scheme="dark")
    page = watched.page
    page.get_by_role("heading", name="Throughput over time").wait_for()
    assert page.locator(".verdict b").inner_text() == "nothing was found so far"

    # A reader who stops it keeps what is shown.
    pause = page.get_by_role("button", name="Pause updates")
    pause.click()
    accessible(page)
    loaded = len(watched.asked)
    target.wrong.set()
    thread.join()
    assert "FOUND: " in path.read_text()
    page.wait_for_timeout(4000)  # longer than it is between two loads
    assert page.locator(".card").count() == 0
    assert len(watched.asked) == loaded

    # The last page: what was found made smaller, the trace in it; nothing is loaded any more.
    pause.click()
    watched.again()
    page.get_by_role("status").filter(has_text="The run has ended. 1 finding").wait_for(state="attached")
    assert page.evaluate("document.activeElement.tagName") == "BODY"  # the button that had it has gone
    where = type(outcomes[0].every[0].found.finding.operation).__name__  # whichever came first
    assert page.title() == f"✗ FOUND: `free` differs at {where} - {FAULT}: fuzz"
    assert page.locator(".live .state").inner_text() == "ended"
    assert page.locator("tr.bad").inner_text().startswith("✗ hit")
    accessible(page)
    loaded = len(watched.asked)
    page.get_by_role("button", name="Open the trace").click()
    page.get_by_label("One step back").wait_for()
    assert page.locator("h1").inner_text() == outcomes[0].kept.files.trace.name
    page.wait_for_timeout(4000)
    assert len(watched.asked) == loaded
    watched.close()


def document(words="running", *, cards=(), written=None, **progress):
    """A campaign with a table that is longer than a screen, and a matrix."""
    one = ReportDocument(VERSION, "campaign", "two targets", "so far", "note", [["targets", "2"]])
    one.cards = [FoundCard(f"S{number}, in {len(cards)} runs", f"text of S{number}\n" * 9) for number in cards]
    cells = [Cell("found", ["S1"], [place]) for place, number in enumerate(cards) if number == 1]
    one.matrix = Matrix(["a"], ["full"], ["contract"], [[cells]]) if cells else None
    one.tables = [Table("Situations", ["name"], [[f"situation {number}"] for number in range(90)])]
    one.progress = Progress(words, written=time.time() if written is None else written, every=3.0, **progress)
    return one


def seen(page):
    """Where on the screen a card and a row of a table stand, and what has the focus."""
    first = "[...document.querySelectorAll('{}')].find((one) => one.textContent.includes('{}'))"
    places = [first.format(*one) for one in ((".card", "text of S1"), ("tr", "situation 77"))]
    tops = [round(page.evaluate(f"{place}.getBoundingClientRect().top")) for place in places]
    return [*tops, page.evaluate("document.activeElement.textContent")]


def test_what_a_reader_has_chosen_and_where_he_is_stays(chromium, tmp_path):
    path = tmp_path / "page with # in its name.html"
    write_page(document(cards=[1]), path)
    watched = Watched(chromium, path, viewport={"width": 900, "height": 500}, color_scheme="light")
    page = watched.page
    page.get_by_role("button", name="Use the dark theme").click()
    page.get_by_role("button", name="all 90 rows").click()
    page.get_by_role("button", name="contract", exact=True).click()
    page.evaluate("location.hash = 'step=3'")
    page.evaluate("scrollTo(0, 700)")
    before = seen(page)
    assert before[2] == "contract"
    write_page(document(cards=[7, 8, 9, 1]), path)  # new findings come above
    watched.again()
    assert seen(page) == before
    assert page.evaluate("location.hash") == "#step=3"
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.get_by_role("button", name="contract", exact=True).get_attribute("aria-pressed") == "true"
    assert page.locator(".card").count() == 4
    # A cell of the matrix whose finding is looked at, and nobody is sent elsewhere while words are marked.
    page.get_by_role("button", name="a, full: S1").click()
    assert page.locator(".card").count() == 1
    page.evaluate("getSelection().selectAllChildren(document.querySelector('.card pre'))")
    loaded = len(watched.asked)
    write_page(document(cards=[5, 7, 8, 9, 1]), path)
    page.wait_for_timeout(4000)
    assert len(watched.asked) == loaded
    page.evaluate("getSelection().removeAllRanges()")
    watched.again()
    assert page.locator(".card").all_inner_texts()[0].startswith("S1, in 5 runs")
    assert page.locator(".card").count() == 1
    watched.close()


@pytest.mark.parametrize(("ago", "every"), [(70, 3.0), (5000, 3.0), (500, 120.0)])
def test_a_run_that_is_not_heard_of_has_probably_ended(ago, every, chromium, tmp_path):
    path = tmp_path / "page.html"
    one = document(written=time.time() - ago)
    one.progress.every = every
    write_page(one, path)
    watched = Watched(chromium, path)
    page = watched.page
    words = page.locator(".live .words").inner_text()
    assert words.startswith("Not written since ")
    assert "has probably ended" in words
    assert page.locator(".live .state").inner_text() == "silent"
    assert page.locator("progress").count() == 0
    accessible(page)
    page.wait_for_timeout(4000)
    assert len(watched.asked) == 1  # it does not load itself on and on
    write_page(document(), path)  # it was only slow
    with page.expect_event("load"):
        page.get_by_role("button", name="Load it again").click()
    page.wait_for_selector(".live")
    assert page.locator(".live .state").inner_text() == "live"
    watched.close()


@pytest.mark.slow
def test_a_run_falls_silent_while_somebody_looks(chromium, tmp_path):
    """After a minute, which is let pass; then it is asked after ever more seldom, and at last no more."""
    path = tmp_path / "page.html"
    write_page(document(), path)
    page = chromium.new_page()
    page.clock.install()
    loads = []
    page.on("load", lambda _: loads.append(page.evaluate("Math.round(Date.now() / 1000)")))
    page.goto(path.as_uri())
    page.wait_for_selector(".live")
    for _ in range(15):
        page.clock.run_for(300_000)
    begin = loads[0]
    assert page.locator(".live .state").inner_text() == "silent"
    assert len([one for one in loads if one - begin > 60]) <= 8
    assert len(loads) <= 30
    page.close()
