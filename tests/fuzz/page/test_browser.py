"""The page in headless Chromium: keys, clicks, links, search, the first difference; the same states as in Python.

Left out where there is no Chromium or no driver (`playwright`).
"""

from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.page.files import encoded
from blockproof.fuzz.page.trace_document import trace_document
from blockproof.fuzz.reports.campaign import CampaignDocument, CampaignFound, CampaignRow
from blockproof.fuzz.reports.document import TraceDocument
from blockproof.fuzz.reports.run import RunDocument
from blockproof.fuzz.traces.judges import Judges
from blockproof.fuzz.traces.trace_file import TraceFile
from blockproof.model import ops
from blockproof.model.ops import Allocate, Free, Submit

from .decoding import states
from .drawing import FULL, TWICE, drawn_trace, shown

AXE = (Path(__file__).parent / "axe.min.js").read_text(encoding="utf-8")
NASTY = "<img src=x onerror=alert(1)></script>\u202eabc\u2066"
FOCUSED = "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
SHARED = (*TWICE[:2], ops.Advance("a", (1,)), Submit("b", (0, 0, 1, 1)), ops.Lookup("b"), Allocate("b", 2, hit=True))


@pytest.fixture(scope="module")
def differing():
    """A lockstep finding at step 2."""
    return shown(TWICE, "fault:free-order-reversed")


@pytest.fixture(scope="module")
def agreeing():
    """A longer trace without a finding."""
    trace = drawn_trace(4, "full+sliding", 300)
    return shown(trace.operations, shape=trace.shape)


def campaign():
    run = RunDocument("impl", 5, 50, oracles=["shadow", "contract"])
    found = [CampaignFound("leak", "contract", "S1", "Free", "mamba", text="contract: S1 is violated")]
    rows = [CampaignRow("one", True, cells={"full": run, "mamba": run}), CampaignRow("two", True, findings=found)]
    rows[1].cells = rows[0].cells
    document = CampaignDocument(rows).report("a campaign")
    document.traces = [shown(TWICE, "fault:free-order-reversed")]
    document.cards[0].trace = 0
    return document


def test_it_opens_at_what_was_found(opened, differing):
    view = opened(differing)
    assert view.step() == 2
    assert "would reuse block" in view.page.locator(".verdict .sentence").inner_text()
    assert view.page.locator(".step.bad").inner_text().split()[0] == "2"
    assert view.page.locator(".pool").count() == 2


class NamesStrangers:
    """Our core, whose second block is called 1003."""

    name = "names strangers"

    def __init__(self):
        self.core = open_target("impl")
        self.start, self.close = self.core.start, self.core.close

    def step(self, operation):
        outcome, seen = self.core.step(operation)
        rows = [{name: [1003 if id == 2 else id for id in row] for name, row in of.items()} for of in seen.tables]
        return outcome, seen._replace(tables=rows)


def test_an_id_that_the_pool_does_not_have_is_no_block_of_it(opened):
    file = TraceFile(Trace(FULL, TWICE), "names strangers")
    view = opened(trace_document(file, NamesStrangers(), Judges(("contract",), "as asked for"), "a trace"))
    assert "block 1003" in view.page.locator(".verdict").inner_text()
    assert "? (none of this pool)" in view.page.locator("body").inner_text()
    assert view.page.get_by_label("entry 1, tokens 2 to 3, no block of this pool").count() == 1


def test_keys_go_through_the_steps(opened, agreeing):
    view = opened(agreeing, "#step=50")
    for keys, step in (
        (["ArrowRight"], 51),
        (["Shift+ArrowRight"], 61),
        (["ArrowLeft", "ArrowLeft"], 59),
        (["Shift+ArrowLeft"], 49),
        (["PageDown"], 69),
        (["Home"], -1),
        (["ArrowLeft"], -1),
        (["End"], 299),
        (["ArrowRight"], 299),
    ):
        view.press(*keys)
        assert view.step() == step
    assert view.page.locator("[role=option][aria-selected=true]").inner_text().split()[0] == "299"


def test_it_plays_and_stops_at_the_end(opened, differing):
    view = opened(differing, "#step=-1")
    view.click(view.page.get_by_label("Speed: normal"))
    assert view.page.get_by_label("Speed: fast").count() == 1
    view.click(view.page.locator("h1"))
    view.press("Space")
    view.page.locator("output b", has_text="2").wait_for()
    view.page.wait_for_selector("[aria-label=Play]")


def test_a_link_leads_to_step_and_block(opened, differing):
    view = opened(differing, "#step=1&block=2")
    assert view.step() == 1
    assert view.page.locator("#block-title").inner_text() == "Block 2"
    assert "held by a, group 0, entry 1" in view.page.locator(".block-side").first.inner_text()
    view.press("ArrowRight")
    assert view.page.evaluate("location.hash") == "#step=2&block=2"
    view.page.evaluate("location.hash = '#step=0'")
    view.page.locator("output b", has_text="0").wait_for()


@pytest.mark.parametrize("place", ["#step=99999&block=-5", "#step=x&trace=7", "#block=123456", "#__proto__=1&step=1"])
def test_a_link_to_nowhere_does_no_harm(opened, differing, place):
    assert -1 <= opened(differing, place).step() <= 2


def test_search_finds_steps_and_blocks(opened, agreeing):
    view = opened(agreeing, "#step=-1")
    view.press("/")
    view.page.keyboard.type("preempt")
    wanted = [place for place, step in enumerate(agreeing.steps) if step.kind == "Preempt"]
    assert wanted
    assert view.page.locator(".hits").inner_text() == f"{len(wanted)} found"
    view.press("Enter")
    assert view.step() == wanted[0]
    view.press("Enter")
    assert view.step() == wanted[1 % len(wanted)]
    view.press("Shift+Enter")
    assert view.step() == wanted[0]
    view.page.locator("input[type=search]").fill("17")
    view.press("Enter")
    assert view.step() == 17
    view.page.locator("input[type=search]").fill("block 1")
    view.press("Enter")
    assert view.page.locator("#block-title").inner_text() == "Block 1"


def test_a_click_in_the_pool_chooses_a_block_and_arrows_move_it(opened, differing):
    view = opened(differing)
    pool = view.page.locator(".pool").last
    view.click(view.page.locator(".pool canvas").last, position={"x": 38 * 3 + 10, "y": 10})
    assert view.page.locator("#block-title").inner_text() == "Block 3"
    pool.focus()
    view.press("ArrowLeft")
    assert view.page.locator("#block-title").inner_text() == "Block 2"
    assert view.step() == 2
    view.click(view.page.locator(".queue button").first)
    assert view.page.locator("#block-title").inner_text() == "Block 5" or view.page.locator(".chip.chosen").count()


def test_the_place_of_a_finding_is_shown(opened):
    document = shown(TWICE, "fault:table-entries-swapped")
    view = opened(document, "#step=0")
    view.press("f")
    assert view.step() == document.verdict.step
    place = view.page.locator(".cell.place")
    assert place.count() == 1
    assert "entry 0" in place.get_attribute("title")
    assert "differs" in place.get_attribute("title")
    assert view.page.locator(".cell.differs").count() == 4
    assert "alone" in view.page.locator(".own").first.inner_text()


def test_hits_windows_and_contents_are_drawn(opened):
    view = opened(shown(SHARED))
    request = view.page.locator("#request-1")
    assert "began with a hit of 2" in request.inner_text()
    assert request.locator(".cell.hit").count() == 1
    assert request.locator(".cell.read").count() == 2
    assert "read by the next query" in request.locator(".cell").first.get_attribute("aria-label")
    nodes = view.page.locator(".node")
    assert nodes.count() == 3
    assert nodes.first.locator(".swatch").all_inner_texts() == ["a", "b"]


def test_tokens_are_those_of_the_step_going_back_as_well(opened):
    again = (Free("a"), Submit("a", (7, 7, 7)), Allocate("a", 3))
    view = opened(shown((*TWICE[:2], ops.Advance("a", (1,)), *again)), "#step=2")
    tokens = view.page.locator("#request-0 .tokens .run > span:not(.what)")
    for key, said in (
        ("ArrowLeft", "0000"),
        ("ArrowRight", "00001"),
        ("End", "777"),
        ("Home", ""),
        ("ArrowRight", "0000"),
    ):
        view.press(key)
        assert "".join(tokens.all_inner_texts()) == said


def test_markup_stays_text(opened):
    operations = [Submit(NASTY, (0, 0, 0)), Allocate(NASTY, 3), Free("nobody"), ops.Advance(NASTY)]
    view = opened(shown(operations, title=NASTY), "#step=1")
    assert view.page.locator("img").count() == 0
    assert "<img src=x onerror=alert(1)></script>[U+202E]abc[U+2066]" in view.page.locator("#page").inner_text()
    assert view.page.evaluate("document.querySelectorAll('script').length") == 2


def test_the_browser_comes_to_the_same_states(chromium, agreeing):
    """Forward, backward and in jumps, with checkpoints in between."""
    page = chromium.new_page()
    source = (files("blockproof.fuzz.page.browser") / "replayer.js").read_text(encoding="utf-8")
    document = msgspec.json.decode(encoded(agreeing), type=TraceDocument)
    document.sides[1].steps = [one or document.sides[0].steps[step] for step, one in enumerate(document.sides[1].steps)]
    completed = encoded(document)
    page.add_script_tag(content=f"{source}\nwindow.Replayer = Replayer;")
    page.evaluate("(text) => { window.replayer = new Replayer(JSON.parse(text)); }", completed.decode())
    expected = []
    for state in states(agreeing, agreeing.sides[1]):
        tables = [sorted([request, table] for request, table in rows.items()) for rows in state.tables]
        counts = [sorted([request, count] for request, count in rows.items()) for rows in state.registered]
        expected.append([list(state.ref), list(state.label), list(state.first), list(state.queue), tables, counts])
    look = """(step) => { const side = replayer.at(step).sides[1];
        const rows = (maps) => maps.map((map) => [...map].sort((a, b) => a[0] - b[0]));
        const lists = [side.ref, side.label, side.first, side.queue].map((list) => [...list]);
        return [...lists, rows(side.tables), rows(side.registered)]; }"""
    for step in [*range(-1, 300, 7), *range(299, -2, -13), 0, 150, 149, 151, 16, 15, 17, -1, 299]:
        assert page.evaluate(look, step) == expected[step + 1], step
    page.close()


WHATS = ["difference", "hits", "campaign", "run"]
QUICK = [("difference", 1400, "dark"), ("hits", 420, "light"), ("campaign", 900, "light"), ("run", 420, "dark")]
LOOKS = [(what, width, scheme) for what in WHATS for width in (1400, 900, 420) for scheme in ("light", "dark")]


@pytest.mark.parametrize(
    ("what", "width", "scheme"),
    [pytest.param(*look, marks=[] if look in QUICK else [pytest.mark.slow]) for look in LOOKS],
)
def test_nothing_is_inaccessible(opened, differing, what, width, scheme):
    run = RunDocument("impl", 1, 5, reached={"hit": 2}, warnings=["slow"])
    document = {
        "difference": lambda: differing,
        "hits": lambda: shown(SHARED),
        "campaign": campaign,
        "run": lambda: msgspec.structs.replace(run, floors={"situations": {"hit": 3}}).report("run"),
    }[what]()
    view = opened(document, color_scheme=scheme, viewport={"width": width, "height": 800})
    if what == "difference":
        view.page.locator("input[type=search]").fill("free")
        assert view.page.locator(".step.match").count() == 1
    view.page.evaluate(f"() => {{ {AXE} }}")
    found = view.page.evaluate(
        "async () => (await axe.run()).violations.map((one) => [one.id, one.nodes.map((n) => n.html)])"
    )
    assert found == []
    assert view.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_token_that_is_read_wrong_is_marked(opened):
    first = (Submit("a", (0, 0)), Allocate("a", 1))
    operations = (*first, Submit("b", (5, 7, 0)), Free("a"), Submit("c", (0, 0, 9)), ops.Lookup("c"))
    document = shown((*operations, Allocate("c", 1, hit=True)), "fault:registered-too-early", oracles=("shadow",))
    assert document.verdict.place.position == 1
    view = opened(document)
    wrong = view.page.locator(".tokens .wrong")
    assert (wrong.count(), wrong.inner_text()) == (1, "0")
    assert view.page.locator(".at-fault").inner_text() == "✗ position 1"
    assert view.page.locator(".cell.place").count() == 1


def test_a_pool_of_100_000_blocks_is_shown(opened):
    document = shown(SHARED, shape=replace(FULL, num_blocks=100_000))
    view = opened(document, "#step=5")
    canvas = view.page.locator(".pool canvas").last
    assert "3 in use (1 shared), 0 free with content" in view.page.locator(".pool").last.get_attribute("aria-label")
    box = canvas.bounding_box()
    columns = round(box["width"] / 3)
    assert round(box["height"] / 3) == -(-100_000 // columns)
    view.click(canvas, position={"x": 3 * 7 + 1, "y": 3 * 2 + 1})
    assert view.page.locator("#block-title").inner_text() == f"Block {2 * columns + 7}"
    view.press("ArrowDown")
    assert view.page.locator("#block-title").inner_text() == f"Block {3 * columns + 7}"
    assert view.step() == 5
    assert view.page.locator(".queue .gap").last.inner_text() == "99,972 more"


def test_a_finding_at_the_construction_is_shown(opened):
    view = opened(shown((), "fault:usage-counts-null-block"))
    assert view.page.locator(".verdict .sentence").inner_text().startswith("The share of the pool in use")
    view.press("ArrowRight", "f", "End")
    assert view.step() == -1
    assert view.page.locator(".pool").count() == 2


def test_a_core_that_was_not_built_leaves_nothing_to_go_through(opened):
    shape = replace(FULL, hash_block_size=1)
    view = opened(shown(TWICE, shape=shape))
    assert "builds no core of this shape" in view.page.locator("main").inner_text()
    assert view.page.locator(".pool").count() == 0


def test_the_theme_can_be_changed(opened, differing):
    view = opened(differing, color_scheme="dark")
    background = "getComputedStyle(document.documentElement).backgroundColor"
    dark = view.page.evaluate(background)
    view.click(view.page.get_by_label("Use the light theme"))
    assert view.page.evaluate(background) != dark
    view.click(view.page.get_by_label("Use the dark theme"))
    assert view.page.evaluate(background) == dark


def test_everything_is_reached_by_the_keyboard(opened, differing):
    view = opened(differing)
    reached = set()
    for _ in range(60):
        view.press("Tab")
        reached.add(
            view.page.evaluate(
                "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
            )
        )
    assert {"Play", "Step", "Steps", "One step on"} <= reached
    assert any(name.startswith("Pool of model") for name in reached)
    assert any("entry 0" in name for name in reached) or any("place 0" in name for name in reached)


def test_a_campaign_leads_to_its_traces(opened):
    view = opened(campaign())
    view.click(view.page.get_by_role("button", name="contract", exact=True))
    view.click(view.page.locator(".matrix .link"))
    assert view.page.locator("#cards-title").inner_text().startswith("1 finding of this cell")
    view.click(view.page.get_by_role("button", name="Open the trace"))
    assert view.page.evaluate("location.hash") == "#trace=0"
    assert view.step() == 2
    view.click(view.page.get_by_role("button", name="report"))
    assert view.page.locator(".matrix").count() == 1


def test_floors_that_were_missed_are_marked(opened):
    run = RunDocument("impl", 1, 5, reached={"hit": 2}, floors_unmet=["one"])
    view = opened(msgspec.structs.replace(run, floors={"situations": {"hit": 3}}).report("run"))
    assert view.page.locator("tr.bad").inner_text().split() == ["✗", "hit", "situations", "3", "2"]


MOVING = (Submit("a", (0,) * 8), Allocate("a", 8), Submit("b", (1,) * 6), Allocate("b", 6), Free("a"))


def test_arrows_say_what_left_the_queue_and_what_came(opened):
    shape = replace(FULL, num_blocks=14, max_model_len=40)
    agreeing = opened(shown(MOVING, shape=shape), "#step=3")
    assert agreeing.page.locator(".pool").count() == 1  # both sides show the same so far
    assert agreeing.page.locator(".queue .ghost").all_inner_texts() == [
        f"block {block} left, to b\n{block}\n↑\nb" for block in (5, 6, 7)
    ]
    agreeing.press("ArrowRight")
    came = agreeing.page.locator(".queue .chip.came")
    assert came.all_inner_texts() == ["4", "3", "2", "1"]
    assert came.first.get_attribute("aria-label").endswith("came in this step, from a")
    differing = opened(shown(MOVING, "fault:free-order-reversed", shape=shape))
    assert differing.page.locator(".queue .chip.differs").all_inner_texts() == ["≠4", "≠1"]  # the first difference
