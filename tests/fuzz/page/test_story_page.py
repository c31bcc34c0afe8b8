"""The page of a story in headless Chromium: lanes, memory, calls, and what a wrong read found."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines.stories import StoryTask
from blockproof.fuzz.engines.story_fuzzing import simulate
from blockproof.fuzz.engines.story_pages import document_of_story
from blockproof.fuzz.reports.document import VERSION
from blockproof.fuzz.reports.story import Moment, StoryDocument, Verdict
from blockproof.fuzz.simulation.picture import STATES

from ..scheduler_mistakes import MISTAKES
from .test_browser import AXE, NASTY

EXAMPLE = Path(__file__).parents[3] / "examples" / "my-scheduler-engine"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The file of a story that reads wrong, and the engine."""
    folder = tmp_path_factory.mktemp("engine")
    for path in EXAMPLE.glob("*.py"):
        shutil.copy(path, folder)
    mistake, file = MISTAKES["freed-by-the-first"], folder / "scheduler_engine.py"
    file.write_text(file.read_text(encoding="utf-8").replace(mistake.old, mistake.new), encoding="utf-8")
    engine = f"{folder}/simulated.py:make_engine"
    task = StoryTask(1, steps=20_000, goes_on=False, shrink_seconds=5)
    done = simulate(engine, task, folder / "found", lambda line: None)
    return Path(done.found[0]["file"]), engine


@pytest.fixture(scope="module")
def document(found):
    path, engine = found
    return document_of_story(path, engine)


def test_it_opens_at_the_wrong_read(opened, document):
    view = opened(document)
    assert view.step() == document.verdict.step
    assert document.verdict.headline.startswith("memory: ")
    assert view.page.locator(".slot.misread").count() == len(document.steps[document.verdict.step].misread) > 0
    assert "was read, and held position" in view.page.locator(".right").inner_text()
    assert view.page.locator(".step.bad").inner_text().split()[0] == str(document.verdict.step)
    assert view.page.locator(".lane").count() == len(document.requests)


def test_keys_and_clicks_go_through_the_calls(opened, document):
    view, last = opened(document), len(document.steps) - 1
    view.press("Home")
    assert (view.step(), view.page.locator(".slot.changed").count()) == (-1, 0)
    view.press("ArrowRight", "ArrowRight")
    assert view.step() == 1
    assert view.page.locator(".slot.changed").count() == len(document.steps[1].slots)
    view.press("End")
    assert view.step() == last
    view.press("f")
    assert view.step() == document.verdict.step
    area = view.page.locator(".lane-area").bounding_box()
    view.page.mouse.click(area["x"] + area["width"] * 1.5 / (last + 1), area["y"] + 5)
    assert view.step() == 1
    view.click(view.page.locator(".step", has_text="schedule: step 2"))
    assert view.page.locator(".right .code").first.inner_text() == "schedule: step 2"


def test_a_slot_leads_to_the_call_that_wrote_it(opened, document):
    view = opened(document, f"#step={len(document.steps) - 1}")
    at, number = next(
        (step, slot)
        for step, moment in enumerate(document.steps)
        for _, slot, *_ in moment.slots
        if sum(slot == one for _, one, *_ in every(document)) == 1
    )
    view.click(view.page.locator(f"[aria-label^='slot {number}: position']"))
    assert view.step() == at


def every(document):
    return [slot for one in document.steps for slot in one.slots]


def test_lanes_say_what_requests_do(opened, document):
    view = opened(document, "#step=0")
    lanes = [lane.get_attribute("aria-label") for lane in view.page.locator(".lane").all()]
    assert lanes[0] == f"{document.requests[0]}: waiting"
    assert lanes[1].endswith(": not there yet")


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_read_it(opened, document, width, theme):
    view = opened(document, viewport={"width": width, "height": 800}, color_scheme=theme)
    view.page.evaluate(f"() => {{ {AXE} }}")
    wrong = view.page.evaluate(
        "async () => (await axe.run()).violations.map((one) => [one.id, one.nodes.map((n) => n.html)])"
    )
    assert wrong == []
    assert view.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_an_engine_says_is_text_only(opened):
    moment = Moment(NASTY, 0, [NASTY], [[0, 0]], [[0, 0, 0, 0]], [[0, 0, 0, 0]])
    verdict = Verdict(True, NASTY, NASTY, step=0)
    view = opened(StoryDocument(VERSION, NASTY, NASTY, NASTY, [NASTY], [NASTY], 1, list(STATES), [moment], verdict))
    assert view.page.locator("img").count() == 0
    assert "[U+202E]abc[U+2066]" in view.page.locator(".more-lines").inner_text()


def test_report_takes_a_story(found, tmp_path, capsys):
    path, engine = found
    page = tmp_path / "page.html"
    assert main(["report", str(path), "--target", engine, "--out", str(page)]) == 0
    assert "memory demands" not in page.read_text(encoding="utf-8")  # that is written by the script
    capsys.readouterr()
    assert main(["report", str(path), "--target", engine, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["document"], msgspec.convert(shown, StoryDocument).target) == ("story", engine)
    assert main(["report", str(path)]) == 2
    assert "if you trust that code, add --target" in capsys.readouterr().err
    assert main(["report", str(path), "--target", engine, "--target", engine]) == 2
    assert "is a story, which one engine is shown in" in capsys.readouterr().err
    missing = tmp_path / "missing.py"
    assert main(["report", str(path), "--target", f"{missing}:make"]) == 3
