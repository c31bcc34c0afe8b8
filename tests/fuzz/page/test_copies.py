"""What the page shows of hits that end inside a block: copies, blocks with names of a part or several, and where shared
prefixes go on."""

import pytest
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.page.trace_document import trace_document
from blockproof.fuzz.traces.trace_file import TraceFile
from blockproof.model.ops import Advance, Allocate, Free, Group, Lookup, Shape, StepStart, Submit

from ..adapters.test_deviations_today import Described

SHAPE = Shape((Group("full", 4), Group("mamba", 4, mamba_mode="align")), 16, 32, 2, 4, 32)
PROMPT = tuple(range(7))
TRACE = Trace(
    SHAPE,
    (
        *(Submit("a", PROMPT), Allocate("a", 6), Advance("a"), Allocate("a", 1), Advance("a", (9,))),
        *(Allocate("a", 1), Advance("a", (8,)), StepStart()),
        *(Submit("b", (*PROMPT, 20, 21)), Lookup("b"), Allocate("b", 3, hit=True), Advance("b", (5,))),
        *(Submit("c", (0, 1, 2, 3, 9, 9, 9)), Lookup("c"), Allocate("c", 7, hit=True), Free("a")),
    ),
)
END_NAMED, COPIED, JUNCTION = 3, 10, 13


@pytest.fixture(scope="module")
def document():
    return trace_document(TraceFile(TRACE, "vllm==0.33.0"), Described(), None, "copies")


def test_copies_names_and_junctions_are_written_down(document):
    steps = document.steps
    assert [step for step, one in enumerate(steps) if one.copies] == [END_NAMED, COPIED]
    assert steps[END_NAMED].copies == [3, 4]
    assert steps[COPIED].copies == [2, 5, 4, 7]
    assert steps[1].names == [2, 1, 2, 4, 3, 1, 2, 4]  # one name each, for 2 of their 4 tokens
    assert steps[END_NAMED].names == [3, 0, 0, 0, 4, 1, 2, 4]  # the name of the state has moved to its copy
    assert steps[5].names == [2, 2, 4, 4]  # full now, and still the end of a prompt
    assert steps[JUNCTION].junctions == [2, 4]


def test_they_are_drawn(document, opened):
    one = opened(document, f"#step={END_NAMED}")
    page = one.page
    one.click(page.locator(f"#step-{END_NAMED}"))
    assert page.locator(".copied").all_inner_texts() == [
        "block 3 is copied into block 4; both are held until the copy has run"
    ]
    one.click(page.locator("#step-1"))
    before = page.locator("canvas.grid").first.evaluate("canvas => canvas.toDataURL()")
    one.click(page.locator(f"#step-{END_NAMED}"))
    assert page.locator("canvas.grid").first.evaluate("canvas => canvas.toDataURL()") != before
    one.click(page.locator(f"#step-{JUNCTION}"))
    assert page.locator(".junction").all_inner_texts() == [", shared prefix goes on at 4"]
