"""A trace on two targets side by side: one that `diff` wrote, or any with two targets named."""

from dataclasses import replace

import msgspec
import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.page.html import page
from blockproof.fuzz.releases.diff import Comparison, Differences, Situation
from blockproof.fuzz.reports.document import TraceDocument
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.pair import Pair, PairRun, Strictness
from blockproof.fuzz.traces.trace_file import read_trace, write_trace

from .drawing import FULL, TWICE

REVERSED = "fault:free-order-reversed"


@pytest.fixture
def difference(tmp_path):
    """A trace of a difference between our core and a fault, as `diff` writes it, and the page that was made then."""
    pair = Pair(open_target("impl"), open_target(REVERSED))
    run = PairRun(pair)
    finding = run.start(FULL)
    for operation in TWICE:
        finding = finding or run.step(operation)
    situation = Situation(finding, run.trace, 1)
    Differences(pair, (Comparison(Strictness.EXACT, Summary(pair.name, "random", 1), [situation]),)).keep(tmp_path, 1)
    (path,) = tmp_path.glob("*.json")
    return path


def reported(capsys, path, *options):
    """The document that `report --json` prints, and what it says besides."""
    assert main(["report", str(path), "--json", *options]) == 0
    said = capsys.readouterr()
    return msgspec.json.decode(said.out, type=TraceDocument), said.err


def test_a_trace_of_a_difference_is_shown_on_both_targets(difference, capsys):
    document, _ = reported(capsys, difference)
    assert [(side.name, side.role) for side in document.sides] == [("impl", "first"), (REVERSED, "second")]
    assert document.verdict.headline.startswith("difference: eviction order at operation 2")
    assert document.verdict.sentence == f"impl would reuse block 2 after 3 others, {REVERSED} block 1."
    assert difference.with_suffix(".html").read_text() == page(document)
    again, _ = reported(capsys, difference, *document.command.split()[3:])
    assert again == document


def test_two_targets_that_are_named_are_compared_as_they_are_today(difference, capsys):
    document, _ = reported(capsys, difference, "--target", REVERSED, "--target", "impl")
    assert document.verdict.headline == f"{REVERSED} and impl differ from step 2 on"
    assert (document.verdict.found, document.verdict.step) == (True, 2)
    alike, _ = reported(capsys, difference, "--target", "impl", "--target", "fault:eviction-does-nothing")
    assert not alike.verdict.found
    assert alike.verdict.headline == "impl and fault:eviction-does-nothing show the same after each of these operations"
    one, _ = reported(capsys, difference, "--target", REVERSED)
    assert [side.role for side in one.sides] == ["model", "target"]
    assert main(["report", str(difference), *["--target", "impl"] * 3]) == 2


@pytest.mark.parametrize("first", ["elsewhere:make", "vllm==0.0.1"])
def test_the_first_target_of_a_difference_that_is_not_to_be_had_is_left_out(difference, first, capsys):
    file = replace(read_trace(difference), compared_with=first)
    write_trace(file, difference)
    document, said = reported(capsys, difference)
    assert [side.role for side in document.sides] == ["model", "target"]
    assert f"shown without {first}" in said.replace("'", "")
    assert any("one of them is shown" in note for note in document.notes)
    assert main(["report", str(difference), "--target", "vllm==0.0.1", "--target", "impl"]) == 3
