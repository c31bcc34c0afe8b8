"""What a page of a trace shows is what the model and the target have shown, and it is told in words."""

from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.opening.known_deviations import model_for
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.page import trace_document as trace_document_module
from blockproof.fuzz.page.changes import queue_edits
from blockproof.fuzz.page.files import TraceSettings, document_of, is_foreign
from blockproof.fuzz.page.html import page
from blockproof.fuzz.page.trace_document import trace_document
from blockproof.fuzz.page.words import operation_words
from blockproof.fuzz.reports.document import Document, TraceDocument
from blockproof.fuzz.reports.story import Place
from blockproof.fuzz.traces.judges import Judges
from blockproof.fuzz.traces.trace_file import FoundWhat, TraceFile, write_trace
from blockproof.model import ops
from blockproof.model.core import Model
from blockproof.model.ops import OPERATIONS, Allocate, Submit
from hypothesis import given
from hypothesis import strategies as st

from .. import broken_targets
from .decoding import expected_state, states, unpacked
from .drawing import FULL, TWICE, drawn_trace, shown

blocks = st.lists(st.integers(0, 11), max_size=12)


@given(blocks.map(lambda ids: list(dict.fromkeys(ids))), blocks)
def test_edits_of_the_queue_lead_from_one_to_the_other(old, new):
    queue = list(old)
    for place, gone, *ids in queue_edits(np.array(old, dtype=np.int64), np.array(new, dtype=np.int64), 12):
        queue[place : place + gone] = unpacked(ids)
    assert queue == new


@pytest.mark.parametrize("attention", ["full", "full+sliding", "full+mamba", "chunked", "full+cross"])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_changes_are_those_of_the_model(attention, seed):
    trace = drawn_trace(seed, attention)
    document = shown(trace.operations, shape=trace.shape)
    assert not document.verdict.found
    assert [side.role for side in document.sides] == ["model", "target"]
    number = {name: place for place, name in enumerate(document.requests)}
    for side in document.sides:
        model = Model(trace.shape)
        snapshots = [model.snapshot(), *(model.step(operation)[1] for operation in trace.operations)]
        for state, snapshot in zip(states(document, side), snapshots, strict=True):
            assert state.as_state() == expected_state(snapshot, number)


def test_requests_and_contents_are_followed():
    document = shown([*TWICE[:2], Submit("b", (0, 0, 1, 1)), ops.Lookup("b"), Allocate("b", 2, hit=True)])
    assert document.requests == ["a", "b"]
    assert [node.tokens for node in document.nodes] == [[0, 0], [0, 0], [1, 1]]
    assert [node.parent for node in document.nodes] == [-1, 0, 0]
    last = document.steps[-1].requests[-1]
    assert (last.computed, last.scheduled, last.known, last.attached, last.hit) == (2, 2, 4, 2, 2)
    assert document.steps[1].requests[0].attached == 0
    assert document.sides[1].steps == [None] * 5
    named = document.sides[0].steps[1].named
    assert sorted(zip(named[1::3], named[2::3], strict=True)) == [(0, 0), (0, 1)]


def test_a_name_that_is_used_again_begins_anew():
    document = shown([*TWICE, Submit("a", (1, 1)), Allocate("a", 2)])
    assert [row[:2] for step in document.steps for row in step.tokens] == [[0, 0], [0, 0]]
    assert [state.live for state in document.steps[2].requests] == [False]
    assert document.steps[4].requests[0].known == 2


def test_the_first_difference_is_told_and_placed():
    document = shown(TWICE, "fault:free-order-reversed")
    assert document.verdict.step == 2
    assert document.verdict.sentence == "The model would reuse block 2 after 3 others, the target block 1."
    ours, theirs = (side.steps[2].queue for side in document.sides)
    assert ours != theirs
    assert document.sides[1].steps[:2] == [None, None]


@pytest.mark.parametrize(
    ("fault", "operations", "said"),
    [
        (
            "table-entries-swapped",
            TWICE,
            "Request a, group 0: entry 0 is block 1 for the model and block 2 for the target.",
        ),
        ("eviction-does-nothing", (*TWICE, ops.Evict((1,))), "The target has registered block 1, the model has not."),
        (
            "reservation-ignored",
            (TWICE[0], Allocate("a", 4, reserved=5)),
            "The model refuses: there is no room. The target hands out blocks 1, 2.",
        ),
        ("new-block-ids-incomplete", (TWICE[0], Allocate("a", 4, external=2)), "The ids of new blocks"),
    ],
)
def test_each_kind_of_difference_has_its_sentence(fault, operations, said):
    verdict = shown(operations, f"fault:{fault}").verdict
    assert verdict.found
    assert verdict.sentence.startswith(said)


def test_a_shadow_finding_is_at_its_token():
    first = (Submit("a", (0, 0)), Allocate("a", 1))
    operations = (*first, Submit("b", (0, 0, 0)), ops.Lookup("b"), Allocate("b", 1, hit=True))
    verdict = shown(operations, "fault:registered-too-early", oracles=("shadow",)).verdict
    assert (verdict.oracle, verdict.step, verdict.severity) == ("shadow", 4, "wrong content")
    assert verdict.sentence == (
        "Request b, group 0, position 1: reads what nobody wrote in block 1, offset 1. "
        "Request a got that block at step 1."
    )
    assert verdict.place == Place(request=1, group=0, entry=0, position=1, block=1)


def test_what_the_contract_demands_is_said():
    document = shown((*TWICE, ops.Evict((1,))), "fault:eviction-does-nothing", oracles=("contract",))
    assert document.verdict.observable == "S10"
    assert document.verdict.rule.startswith("Registered content stays")
    assert document.verdict.severity == "wrong content"  # what somebody wants forgotten is found again


def test_without_a_target_the_model_is_shown_and_the_file_believed(tmp_path):
    document = shown(TWICE, "fault:free-order-reversed")
    found = FoundWhat("free", "Free", document.verdict.text, ("lockstep", "free", "Free"))
    path = tmp_path / "trace.json"
    write_trace(TraceFile(Trace(FULL, TWICE), "elsewhere:make", found), path)
    lines = []
    with TraceSettings(say=lines.append) as wanted:
        alone = document_of(path, wanted)
    assert [side.role for side in alone.sides] == ["model"]
    assert alone.verdict.found
    assert alone.verdict.step == 2
    assert "elsewhere:make" in alone.notes[0]
    assert "--target elsewhere:make" in lines[0]
    assert alone.sides[0] == replace_name(document.sides[0], "model")


def replace_name(side, name):
    return msgspec.structs.replace(side, name=name)


def test_a_files_code_is_not_run():
    assert is_foreign("package.module:factory")
    assert is_foreign("program:./core")
    assert not is_foreign("fault:free-order-reversed")
    assert not is_foreign("impl")


@pytest.mark.parametrize("name", ["admission-deadlock", "items-lost-on-restart", "state-from-outside"])
def test_recorded_findings_are_shown_by_the_model(name):
    path = Path(__file__).parents[3] / "docs/evidence/findings" / f"{name}.json"
    with TraceSettings(model_alone=True, say=lambda line: None) as wanted:
        document = document_of(path, wanted)
    assert document.steps
    assert len(document.sides[0].steps) == len(document.steps)
    encoded = msgspec.json.encode(document)
    assert msgspec.json.decode(encoded, type=TraceDocument) == document


def test_every_operation_has_words():
    for kind in OPERATIONS.values():
        fields = {"request": "a", "prompt": (1,), "new_tokens": 1, "count": 1, "blocks": (1, 2)}
        fields["requests"] = ("a", "b")
        operation = kind(**{name: value for name, value in fields.items() if name in kind.__dataclass_fields__})
        assert operation_words(operation).rstrip("?.") != operation_words(operation)


def test_the_schema_says_what_a_document_is():
    names = msgspec.json.schema(Document)["$defs"]
    assert {"TraceDocument", "ReportDocument", "Change", "Step", "Verdict"} <= names.keys()
    assert names["Change"]["properties"]["queue"]["type"] == "array"


def test_a_model_beside_says_where_it_would_have_answered_otherwise():
    document = shown((TWICE[0], Allocate("a", 4, reserved=5)), "fault:reservation-ignored", oracles=("shadow",))
    assert document.parting.step == 1
    assert document.parting.sentence.startswith("The model refuses: there is no room. The target hands out blocks")
    assert model_for("impl", FULL).construction == ops.Done()


BROKEN = [
    "raises_in_start",
    "raises_in_step",
    "exits_in_step",
    "returns_nothing",
    "returns_outcome_alone",
    "returns_true",
]
BROKEN += ["shows_nothing", "shows_a_dict", "shows_a_number_for_a_list", "shows_another_number_of_groups"]
BROKEN += ["shows_no_null_block", "block_beyond_the_pool"]
JUDGES = [("lockstep", "shadow"), ("shadow", "contract")]


@pytest.mark.parametrize(("name", "oracles"), [*product(BROKEN, JUDGES), ("lists_for_tuples", JUDGES[0])])
def test_a_broken_target_is_shown_up_to_where_it_broke(name, oracles):
    file = TraceFile(Trace(FULL, (*TWICE, Submit("b", (0, 0, 0)), ops.Lookup("b"))), "elsewhere:make")
    document = trace_document(file, getattr(broken_targets, name)(), Judges(oracles, ""), "a trace")
    assert document.verdict.found
    assert document.verdict.sentence
    assert page(document).count("</script>") == 2
    for side in document.sides:
        assert len([*states(document, side)]) == len(side.steps) + 1


def test_a_large_pool_shows_the_same_as_with_full_looks_and_a_fault_at_the_same_step(monkeypatch):
    trace = drawn_trace(3, "full+sliding", 150)
    for target in ("impl", "fault:free-order-reversed", "fault:usage-counts-null-block", "fault:table-entries-swapped"):
        whole = shown(trace.operations, target, trace.shape)
        with monkeypatch.context() as patch:
            patch.setattr(trace_document_module, "LARGE", 1)
            glanced = shown(trace.operations, target, trace.shape)
        assert msgspec.to_builtins(glanced) == msgspec.to_builtins(whole)
        assert whole.verdict.found is (target != "impl")


def test_a_change_that_no_glance_sees_is_shown_where_it_was_made(monkeypatch):
    """The target loses a reference in an operation that touches none: only a full look sees that, at the 64th step."""

    class Losing:
        name = "impl"

        def __init__(self):
            self.core: Any = open_target("impl")

        def __getattr__(self, name):
            return getattr(self.core, name)

        def start(self, shape):
            self.steps = 0
            return self.core.start(shape)

        def spoil(self):
            if self.steps == 70:
                self.core._pool.blocks[1].ref_cnt += 1
            self.steps += 1

        def step(self, operation):
            self.spoil()
            return self.core.step(operation)

        def glance(self, operation, last, expected=None):
            self.spoil()
            return self.core.glance(operation, last, expected)

    steps = [*TWICE[:2], *[ops.ReadTable("a")] * 150]
    monkeypatch.setattr(trace_document_module, "LARGE", 1)
    document = trace_document(TraceFile(Trace(FULL, tuple(steps)), "impl"), Losing(), Judges(("lockstep",), ""), "x")
    assert (document.verdict.observable, document.verdict.step) == ("ref_cnt", 70)
