"""A run is watched in Chromium from its first operation to its end."""

import threading
from importlib.util import find_spec

import pytest
from blockproof.fuzz.engines import fuzzing
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.page import live

from .test_browser import AXE

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in live.NEEDED), reason="no server: pip install '/path/to/blockproof[serve]'"
)
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


def accessible(page):
    page.evaluate(f"() => {{ {AXE} }}")
    look = "async () => (await axe.run()).violations.map((one) => [one.id, one.nodes.map((n) => n.html)])"
    assert page.evaluate(look) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_finding_appears_while_somebody_looks(chromium, tmp_path):
    target, said, complaints, asked, outcomes = Later(), [], [], [], []
    plan = Plan(3, seconds=120.0, attention=("full", "mamba"), shrink_seconds=1.0)
    task = fuzzing.FuzzTask(FAULT, "random", plan)

    def run(address):
        outcomes.append(fuzzing.fuzz(task, target, tmp_path, {"situations": {"hit": 10**9}}, said.append, address))
        address.close()

    with live.LivePage() as address:
        thread = threading.Thread(target=run, args=(address,))
        thread.start()
        page = chromium.new_page(viewport={"width": 420, "height": 800}, color_scheme="dark")
        page.on("console", lambda one: complaints.append(one.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda one: asked.append(one.url))
        page.goto(address.address)
        page.get_by_text("nothing was found so far").wait_for()
        page.get_by_role("heading", name="Throughput over time").wait_for()
        page.evaluate("window.opened = true")
        accessible(page)

        # A reader who stops it keeps what is shown, and the focus.
        pause = page.get_by_role("button", name="Pause updates")
        pause.click()
        target.wrong.set()
        page.get_by_role("status").filter(has_text="1 finding").wait_for(state="attached")
        assert page.title().startswith("✗ 1 finding")
        assert page.locator(".card").count() == 0
        assert page.evaluate("document.activeElement.textContent") == "Pause updates"
        pause.click()
        page.locator(".card").wait_for()
        thread.join()

        # The last document: what was found made smaller, the trace in it, no server any more.
        page.get_by_text("the run has ended", exact=True).wait_for()
        assert address.process.poll() is not None
        assert page.locator(".verdict b").inner_text() == f"1 finding on {FAULT}"
        assert page.locator("tr.bad").inner_text().startswith("✗ hit")
        accessible(page)
        page.get_by_role("button", name="Open the trace").click()
        page.get_by_label("One step back").wait_for()
        assert page.locator("h1").inner_text() == outcomes[0].kept.files.trace.name
        assert page.evaluate("window.opened")
        page.close()
    assert complaints == []
    assert asked == [address.address, f"{address.address}events"]


def test_the_page_of_a_finding_is_served_and_a_lost_server_is_told(chromium, tmp_path, monkeypatch):
    target, complaints = Later(), []
    target.wrong.set()
    plan = Plan(3, operations=300, attention=("full",), keep_going=True, shrink_seconds=0.0)
    with live.LivePage() as address:
        told, show = [], address.show

        def all_but_the_last(one):
            told.append(one)
            if not one.get("ended"):
                show(one)

        monkeypatch.setattr(address, "show", all_but_the_last)
        fuzzing.fuzz(fuzzing.FuzzTask(FAULT, "random", plan), target, tmp_path, {}, print, address)
        page = chromium.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address.address)
        with page.expect_popup() as opened:
            page.get_by_role("link", name="Open the trace in another tab").first.click()
        finding = opened.value
        finding.get_by_label("One step back").wait_for()
        assert finding.evaluate("window.opener === null")
        assert finding.locator("h1").inner_text().endswith("_whole.json")
        finding.close()
        address.process.kill()
        page.get_by_text("Not connected, trying again").wait_for()
        assert page.locator(".card").count() > 0
        assert page.get_by_role("status").inner_text().startswith("Not connected")
        page.close()
    assert told[-1]["ended"]
    assert complaints == []
