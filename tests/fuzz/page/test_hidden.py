"""What a target hides, on its page: called hidden, never nought; and answers in words."""

from dataclasses import replace

import pytest
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.page.trace_document import trace_document
from blockproof.fuzz.page.words import ODD, answer_words, field_words
from blockproof.fuzz.traces.judges import Judges
from blockproof.fuzz.traces.trace_file import TraceFile
from blockproof.model.ops import (
    Advance,
    Allocate,
    CommonPrefix,
    Done,
    Failed,
    Free,
    Lookup,
    ReadTable,
    Refused,
    Reset,
    Submit,
    Take,
    TakeEvents,
    TakeNewBlockIds,
    TakeStats,
)

from ..broken_targets import Broken
from .drawing import FULL

SHAPE = replace(FULL, events=True, stats=True)
SHARED = (
    Submit("a", (0, 0, 1)), Allocate("a", 3), Advance("a", (1,)), Submit("b", (0, 0, 1)), Lookup("b"),
    Allocate("b", 1, hit=True), Take(1), TakeEvents(), TakeNewBlockIds(), TakeStats(),
)  # fmt: skip
NONSENSE = {
    "free": [5, 5], "num_free": 77, "usage": 0.77, "ref_cnt": [7] * 6, "registered": [{"a": 77}], "labels": [77] * 6,
    "earliest": [5] * 6, "num_identities": 77, "events": (("cleared",),), "new_block_ids": [[5, 5]], "stats": (77,),
}  # fmt: skip
JUDGES = Judges(("shadow", "contract"), "as asked for")


def page_of(hides, oracles=JUDGES):
    """The document of the story on our core, which shows nonsense where it hides something."""
    nonsense = {name: value for name, value in NONSENSE.items() if name in hides}
    target = Broken(lambda operation, outcome, shown: (outcome, shown._replace(**nonsense)), hides=frozenset(hides))
    target.name = "an engine"
    return trace_document(TraceFile(Trace(SHAPE, SHARED), "an engine"), target, oracles, "a trace")


def answers(document):
    side = document.sides[-1]
    model = document.sides[0].steps
    return [(one or model[number]) for number, one in enumerate(side.steps)]


@pytest.mark.parametrize("name", NONSENSE)
@pytest.mark.parametrize("oracles", [("shadow", "contract"), ("lockstep",)])
def test_nothing_that_is_hidden_is_written_down(name, oracles):
    document = page_of({name}, Judges(oracles, "as asked for"))
    assert not document.verdict.found, document.verdict.text
    assert document.sides[-1].hidden == [name]
    for change in (document.sides[-1].start, *answers(document)):
        assert name not in change.small
        assert "77" not in str(change.small)
        assert 77 not in [*change.label, *change.registered]
        if name in ("labels", "earliest"):
            assert not (change.label if name == "labels" else change.first)


def test_hidden_references_are_counted_from_tables_and_outside_holders():
    document = page_of({"ref_cnt"})
    shown = page_of(set())
    assert [one.ref for one in answers(document)] == [one.ref for one in answers(shown)]
    assert any(2 in one.ref[1::2] for one in answers(document)), "no block is shared in the story"


ALL = frozenset({"free", "ref_cnt", "labels", "events", "stats", "new_block_ids", "registered", "earliest"})


def test_the_page_calls_hidden_what_is_hidden(opened):
    view = opened(page_of(ALL))
    pool = view.page.locator("section[aria-labelledby=pool-title]").inner_text()
    assert "0 in use" not in pool
    assert "4 in use (1 shared), counted from the tables since references are hidden" in pool
    assert "what they hold is hidden" in pool
    assert "hidden: the target does not show which blocks are free" in pool
    assert view.page.locator("section[aria-labelledby=contents-title]").inner_text().count("registered or not: hidden")
    for _ in range(2):
        view.page.get_by_label("Pool of an engine").press("ArrowRight")
    block = view.page.locator("section[aria-labelledby=block-title]").inner_text()
    assert "counted from the tables: the target hides its own" in block


def test_what_one_side_hides_is_no_difference(opened):
    view = opened(page_of(ALL), "#step=2")
    for step in range(len(SHARED)):
        view.press("ArrowRight") if step else view.press("Home")
        assert view.page.locator(".changes.differs li").all_inner_texts() == [], step


def test_a_page_says_hidden_tables(opened):
    view = opened(page_of(ALL | {"tables"}, None), "#step=2")
    tables = view.page.locator("section[aria-labelledby=tables-title]").inner_text()
    assert "hidden" in tables
    assert "no table" not in tables
    assert "which blocks are in use is hidden" in view.page.locator("section[aria-labelledby=pool-title]").inner_text()


def test_no_tuple_of_python_is_on_the_page(opened):
    view = opened(page_of(set()), "#step=-1")
    for _ in SHARED:
        view.press("ArrowRight")
        for text in view.page.locator(".panel-body, .steps, .verdict .sentence").all_inner_texts():
            assert "((" not in text
            assert ",)" not in text


@pytest.mark.parametrize(
    ("operation", "outcome", "words"),
    [
        (Submit("a", (0,)), Done(2), "2 full hash blocks"),
        (Lookup("a"), Done((0, ((), ()))), "no hit"),
        (Lookup("a"), Done((4, ((0, 3), (5,)))), "a hit of 4 tokens: blocks null, 3 in group 0, block 5 in group 1"),
        (Allocate("a", 1), Done(((2,),)), "new: block 2"),
        (Allocate("a", 1), Done(((), ())), "nothing new"),
        (Allocate("a", 1), Refused(), "refused"),
        (Allocate("a", 1), Failed("ValueError"), "fails with ValueError"),
        (Allocate("a", 1), Done(("not None", (), ())), f"{ODD}('not None', (), ())"),
        (ReadTable("a"), Done(((1, 2),)), "blocks 1, 2"),
        (ReadTable("a"), Done(((),)), "no blocks"),
        (CommonPrefix("a"), Done((1, 0)), "1 block in group 0, 0 blocks in group 1"),
        (Take(2), Done((3, 4)), "blocks 3, 4"),
        (Take(2), Done(((3,), 4)), f"{ODD}((3,), 4)"),
        (TakeNewBlockIds(), Done(()), "no blocks"),
        (Reset(), Done(True), "all is forgotten"),
        (Reset(), Done(1), "1"),
        (Free("a"), Done(), "done"),
        (Free("a"), Done((1,)), f"{ODD}(1,)"),
        (TakeEvents(), Done((("removed", (1,), 0), ("cleared",))), "removed content 1 from group 0; all cleared"),
        (TakeStats(), Done((False, 1, 2)), "no, 1, 2"),
        (TakeStats(), Done(), "done"),
    ],
)
def test_answers_are_words(operation, outcome, words):
    assert answer_words(operation, outcome) == words


def test_what_gathers_is_words():
    assert field_words("new_block_ids", [[1, 2], [3]]) == "blocks 1, 2 in group 0, block 3 in group 1"
    assert field_words("events", (("stored", (1,), 7, (5,), 1, None, None, 0),)) == (
        "stored content 1 behind content 7 in group 0"
    )
    assert field_words("events", (("odd", 1),)) == "[odd, 1]"
    assert field_words("stats", None) == "none"
    assert field_words("num_free", 3) == "3"
