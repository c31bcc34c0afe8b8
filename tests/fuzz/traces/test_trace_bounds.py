"""What a small file can ask for is bounded: memory by what is loaded and kept, time by what a replay is given."""

import gc
import json

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.traces.files import TraceError
from blockproof.fuzz.traces.steps import Recording
from blockproof.fuzz.traces.trace_file import MAX_ITEM_TOKENS, MAX_ITEMS, TraceFile, dump_trace, load_trace
from blockproof.model.ops import StepStart, Submit
from blockproof.model.snapshot import Snapshot

from ..malformed import answer
from ..malformed_cases import drawn_trace


@pytest.fixture
def trace_path(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(dump_trace(TraceFile(drawn_trace(3, "full"))))
    return path


def with_items(length, count, submits=1):
    """The text of a trace in which a prompt has so many items of this length."""
    document = json.loads(dump_trace(TraceFile(drawn_trace(3, "full"))))
    items = [{"identifier": "x", "offset": 0, "length": length}] * count
    submit = {"op": "Submit", "request": "a", "prompt": [0] * 2_048, "items": items}
    document["operations"] = [submit] * submits
    return json.dumps(document)


def test_items_are_bounded():
    """Each block names all that overlap it: a file of 400 KB would take 6 GB."""
    with pytest.raises(TraceError, match=f"operations\\[0\\]: {MAX_ITEMS + 1} items, more than {MAX_ITEMS}; use fewer"):
        load_trace(with_items(1, MAX_ITEMS + 1))
    most = MAX_ITEM_TOKENS // 2_048
    with pytest.raises(TraceError, match=f"operations: items of {(most + 2) * 2_048} tokens, more than"):
        load_trace(with_items(2_048, most // 2 + 1, submits=2))
    longer_than_the_prompt = load_trace(with_items(2**31, most // 2, submits=2))
    assert len(longer_than_the_prompt.trace.operations) == 2
    assert isinstance(longer_than_the_prompt.trace.operations[0], Submit)


def test_a_replay_that_takes_too_long_is_given_up_in_one_line(trace_path):
    given_up = answer(["replay", str(trace_path), "--seconds", "0"])
    assert (given_up.code, given_up.wrong) == (2, "")
    assert (
        given_up.error == "blockproof: operations[0]: given up after 0 s of processor time; allow more with --seconds\n"
    )
    assert answer(["replay", str(trace_path), "--seconds", "600"]).code == 0


def test_the_traces_of_a_page_share_what_time_there_is(trace_path, capsys):
    pytest.importorskip("jinja2")
    (trace_path.parent / "another.json").write_text(trace_path.read_text())
    assert main(["report", str(trace_path), "--seconds", "0"]) == 2
    for target in ([], ["--model"]):
        assert main(["report", str(trace_path.parent), "--seconds", "0", "--json", *target]) == 0
        cards = json.loads(capsys.readouterr().out)["cards"]
        assert ["given up after 0 s" in card["why_not"] for card in cards] == [True, True]


@pytest.mark.parametrize("keep", [True, False])
def test_no_state_is_kept_but_the_last(keep):
    recording, shown = Recording(open_target("impl"), keep), list[Snapshot | None]()
    shown.append(recording.start(drawn_trace(3, "full").shape)[1])
    shown += [recording.step(operation)[1] for operation in (Submit("a", (1, 2)), StepStart(), StepStart())]
    assert len(recording.steps([])) == 3 * keep
    assert [len(gc.get_referrers(shown[number])) for number in (1, 2)] == [1, 1]  # this list alone
