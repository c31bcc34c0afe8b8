"""The pages of runs, campaigns and folders: findings first, floors, what changed since the last campaign."""

import json
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest
from blockproof.fuzz.campaign.once import write_campaign
from blockproof.fuzz.campaign.rows import write_row
from blockproof.fuzz.campaign.tasks import TaskFinding, TaskResult
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines import failing
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.page.trace_page import KeptTrace, document_beside, page_beside
from blockproof.fuzz.reports.campaign import CampaignDocument, CampaignFound, CampaignRow
from blockproof.fuzz.reports.document import counted
from blockproof.fuzz.reports.run import Declared, RunDocument
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.traces.judges import Judges
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.reproduction import write_reproduction
from blockproof.fuzz.traces.trace_file import FoundWhat, TraceFile, dump_trace
from blockproof.model import ops
from hypothesis import given
from hypothesis import strategies as st

from .drawing import FULL, TWICE

RUN = RunDocument(
    "impl",
    10,
    200,
    outcomes={"Allocate": {"Done": 60, "Refused": 20}, "Free": {"Done": 9}},
    reached={"hit": 3, "preemption": 0},
    attention={"full": 6, "tq": 4},
    unbuilt={"tq": 4},
    declared=[Declared("one", 2, "it does so"), Declared("other", 0, "and so")],
    causes=[("Allocate", "Refused", "asked for drafts", 20)],
)


def table(document, title):
    (found,) = [one for one in document.tables if one.title == title]
    return found


def test_a_clean_run_is_good_and_says_its_figures():
    document = RUN.report("run.json")
    assert (document.mood, document.verdict) == ("good", "no difference in 200 operations")
    assert ["allocations refused", "25%"] in document.figures
    assert table(document, "Operations and outcomes").columns == ["operation", "Done", "Refused"]
    assert table(document, "Runs by attention type").marks == ["", "note"]
    declared = table(document, "Known deviations of the target")
    assert [row[0] for row in declared.rows] == ["one", "other"]
    assert declared.marks == ["", "note"]


def test_floors_are_held_against_what_was_reached():
    floors = {"total": {"operations": 100}, "situations": {"hit": 4}, "attention": {"tq": 1}, "operations": {"Free": 9}}
    shown = table(msgspec.structs.replace(RUN, floors=floors).report("run.json"), "Floors")
    assert shown.rows[:2] == [["tq", "attention", "1", "0"], ["hit", "situations", "4", "3"]]
    assert shown.marks == ["bad", "bad", "", ""]
    assert shown.bars == [0.0, 0.75, 1.0, 1.0]
    assert shown.note == "2 floors of 4 not reached"


def test_without_the_floors_those_that_were_missed_are_listed():
    missed = msgspec.structs.replace(RUN, floors_unmet=["hit 3 times, floor 4"]).report("run.json")
    assert table(missed, "Floors that were not reached").rows == [["hit 3 times, floor 4"]]
    assert (missed.mood, missed.verdict) == ("bad", "no difference in 200 operations; 1 floor was not reached")


def test_bars_are_of_orders_of_magnitude():
    bars = counted("x", ["a", "b"], {"one": 0, "two": 9, "three": 99}).bars
    assert bars == pytest.approx([0.0, 1.0, 0.5])  # by name: one, three, two


def row(target, *found, cells=("full", "mamba"), **more):
    judged = RunDocument(target, 5, 50, oracles=["shadow", "contract"])
    findings = [CampaignFound("leak", "contract", what, "Free", attention) for what, attention in found]
    return CampaignRow(target, True, operations=100, findings=findings, cells=dict.fromkeys(cells, judged), **more)


def test_the_matrix_has_a_cell_for_each_oracle_attention_type_and_target():
    rows = [row("one"), row("two", ("S1", "mamba"), cells=("mamba",))]
    last = CampaignDocument([row("one", ("S9", "full")), row("two", ("S1", "mamba"))])
    document = CampaignDocument(rows).report("campaign", last=last)
    matrix = document.matrix
    assert (matrix.targets, matrix.attention, matrix.oracles) == (
        ["one", "two"],
        ["full", "mamba"],
        ["shadow", "contract"],
    )
    shadow, contract = matrix.cells
    assert [[cell.state for cell in cells] for cells in shadow] == [["clean", "not run"], ["clean", "clean"]]
    assert [[cell.state for cell in cells] for cells in contract] == [["clean", "not run"], ["clean", "found"]]
    assert (contract[1][1].what, contract[1][1].cards) == (["S1"], [0])
    assert (contract[0][0].before, shadow[0][0].before, contract[1][1].before) == ("S9", "", "")
    assert document.mood == "bad"
    assert table(document, "Kinds of findings").rows == [["S1", "leak", "contract", "Free", "two"]]
    assert table(document, "Targets").columns[-1] == "findings before"


def test_a_target_that_died_is_said():
    document = CampaignDocument([row("one", problem="trace\nits process ended with status 3")]).report("campaign")
    assert document.notes == ["one: its process ended with status 3"]
    assert (document.verdict, document.mood) == ("NOT ALL OF IT RAN: one: its process ended with status 3", "note")
    untested = CampaignDocument([CampaignRow("one", problem="no")]).report("campaign")
    assert (untested.verdict, untested.mood) == ("NOT ALL OF IT RAN: one: no", "note")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The folder and the report of a run with findings."""
    place = tmp_path_factory.mktemp("kept")
    (place / "floors.json").write_text('{"total": {"operations": 1}}')
    arguments = ["fuzz", "--target", "fault:free-order-reversed", "--operations", "300", "--seed", "3", "--json"]
    arguments += ["--floors", "floors.json"]
    with (place / "run.json").open("w") as file, pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr("sys.stdout", file)
        assert main([*arguments, "--out", "findings"]) == 1
    return place


def test_a_page_lies_beside_every_finding_and_is_named(kept):
    (finding,) = json.loads((kept / "run.json").read_text())["findings"]
    page = kept / finding["reproduction"]["page"]
    assert page == (kept / finding["reproduction"]["trace"]).with_suffix(".html")
    assert "The model would reuse" in page.read_text()


def test_the_report_of_a_run_holds_its_traces(kept, capsys):
    assert main(["report", str(kept / "run.json"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["document"], document["mood"], document["cards"][0]["trace"]) == ("report", "bad", 0)
    assert document["traces"][0]["verdict"]["found"]
    (floors,) = [table for table in document["tables"] if table["title"] == "Floors"]
    assert floors["note"] == "all 1 reached"


def test_the_report_of_a_folder_lists_its_traces(kept, capsys):
    assert main(["report", str(kept / "findings"), "--model", "-o", str(kept / "all.html")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"page: {kept / 'all.html'}"
    assert "as it was found" not in (kept / "all.html").read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is broken or cut off"),
        ("[1]", "has no field `document` that says what it is"),
        ('{"runs": 1, "target": "a", "operations": 1}', "make it again with this version (`fuzz`"),
        ('{"document": "run", "runs": "x", "target": "a", "operations": 1}', "Expected `int`, got `str`"),
        ('{"some": "thing"}', "or name a trace"),
        ('{"document": "bisection"}', "is of the kind 'bisection', which has no page; there are pages of `fuzz`"),
        ("[[", "the file is broken"),
        ("[" * 100_000, "nested too deeply"),
        ("\n<!DOCTYPE html>\n<title>a page</title>", "is a page already: open it in a browser"),
    ],
)
def test_what_is_no_report_is_refused_in_one_line(text, said, tmp_path, capsys):
    path = tmp_path / "what.json"
    path.write_text(text)
    assert main(["report", str(path)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_page_is_opened_as_it_is(tmp_path, capsys, monkeypatch):
    page, opened = tmp_path / "x.html", []
    page.write_text("<!doctype html>")
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert main(["report", str(page), "--open"]) == 0
    assert opened == [page.resolve().as_uri()]
    assert capsys.readouterr().out == f"page: {page}, which is one already\n"
    assert page.read_text() == "<!doctype html>"


def result_of(target, file, core):
    """What a task with one finding comes to."""
    finding, trace = replay(file.trace, core, Judging(("contract",)))
    page = document_beside(file, core, Judges(("contract",), "as asked for"))
    text = dump_trace(TraceFile(trace, target, FoundWhat.of(finding), oracles=("contract",)))
    told = TaskFinding(("",), "contract", str(finding), 0, text, len(trace.operations), True, 3, page=page)
    found = CampaignFound("wrong content", "contract", *finding.kind, "full", text=str(finding))
    return TaskResult(1, findings=(told,), row=CampaignRow(target, done=True, findings=[found]))


def test_a_campaign_leaves_a_page_beside_each_finding_and_its_report(tmp_path, capsys):
    target, folder = "fault:eviction-does-nothing", tmp_path / "found"
    core = open_target(target)
    file = TraceFile(Trace(FULL, (*TWICE, ops.Evict((1,)))), target)
    for _ in range(2):
        result = result_of(target, file, core)
        write_row(result, folder, whole=False)
        assert write_campaign(CampaignDocument([result.row]), folder) == folder / "campaign.json"
    (kept,) = result.row.findings
    page = Path(kept.trace).with_suffix(".html")
    assert kept.page == str(page)
    assert f"page: {page}" in kept.more
    assert "S10: " in page.read_text()
    assert sorted(path.name for path in folder.glob("*.json")) == ["campaign-before.json", "campaign.json"]
    assert main(["report", str(folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["cards"][0]["trace"] == 0
    assert document["traces"][0]["verdict"]["observable"] == "S10"
    assert document["tables"][0]["columns"][-1] == "findings before"


def test_a_page_that_cannot_be_made_costs_no_finding(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    target = "fault:eviction-does-nothing"
    file = TraceFile(Trace(FULL, (*TWICE, ops.Evict((1,)))), target)
    files, told = write_reproduction(file, tmp_path), []
    assert (
        page_beside(file, open_target(target), Judges(("contract",), ""), KeptTrace(files.trace), told.append) is None
    )
    assert told == ["no page of it: the page needs jinja2: pip install '/path/to/blockproof[report]'"]
    assert files.trace.is_file()


def test_the_hunt_for_planted_faults_has_a_page(capsys, tmp_path):
    assert main(["mutants", "--only", "free-order-reversed", "--json"]) == 0
    hunted = json.loads(capsys.readouterr().out)
    (found,) = hunted["faults"]
    missed = {"fault": "another", "found": False, "expected": ["free"], "operations": 9}
    path = tmp_path / "mutants.json"
    path.write_text(json.dumps({**hunted, "faults": [found, missed]}))
    assert main(["report", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["verdict"], document["mood"]) == ("1 fault missed", "bad")
    faults, seen = document["tables"]
    assert faults["marks"] == ["bad", ""]
    assert faults["rows"][0] == ["another", "not found", "free", "9", ""]
    assert faults["rows"][1][1] == f"free at {found['operation']}"
    assert seen["rows"] == [["free", "1", "free-order-reversed"]]


plain = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8)
values = st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))
counts = st.dictionaries(st.text(max_size=5), st.integers(-5, 2**63) | plain, max_size=3)
FIELDS = RunDocument.__struct_fields__
runs = st.fixed_dictionaries(
    {
        "document": st.just("run"),
        "target": st.text(max_size=5),
        "runs": st.integers(-3, 3),
        "operations": st.integers(-3, 10**6),
    },
    optional={
        "outcomes": st.dictionaries(st.sampled_from(["Allocate", "Free"]), counts, max_size=2),
        "reached": counts,
        "attention": counts,
        "unbuilt": counts,
        "floors": st.dictionaries(st.sampled_from(["total", "situations", "x"]), counts, max_size=2),
        "causes": st.lists(st.tuples(*[st.text(max_size=3)] * 3, st.integers(-3, 99)), max_size=3),
        "findings": st.lists(st.fixed_dictionaries({"text": st.text(), "reproduction": values | st.just({})})),
        "operations_per_second": plain,
    },
)
rows = st.fixed_dictionaries(
    {"target": st.text(max_size=5), "cells": st.dictionaries(st.text(max_size=4), runs, max_size=2)},
    optional={"problem": st.text(), "seconds": plain, "findings": st.lists(values, max_size=2)},
)
campaigns = st.fixed_dictionaries({"document": st.just("campaign"), "targets": st.lists(rows, max_size=3)})
broken = st.dictionaries(st.sampled_from(FIELDS), values)


@given(runs | campaigns | runs.flatmap(lambda run: broken.map(lambda more: {**run, **more})) | values)
@pytest.mark.slow
def test_a_malformed_report_is_shown_or_refused_in_one_line(document):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.json"
        path.write_text(json.dumps(document))
        assert main(["report", str(path)]) in (0, 2)


def test_an_empty_folder_is_refused(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    assert "holds no trace" in capsys.readouterr().err


def document_in(page):
    """The document in a page."""
    _, _, rest = page.read_text().partition('id="document">')
    return json.loads(rest.partition("</script>")[0])


def test_a_difference_of_two_targets_shows_both_side_by_side(tmp_path, capsys):
    pair = ["--target", "impl", "--target", "fault:free-order-reversed"]
    assert main(["diff", *pair, "--operations", "400", "--seed", "3", "--out", str(tmp_path)]) == 1
    pages = sorted(tmp_path.glob("*.html"))
    assert [page.with_suffix(".json").is_file() for page in pages] == [True] * len(pages)
    documents = [document_in(page) for page in pages]
    for document in documents:
        assert [(side["name"], side["role"]) for side in document["sides"]] == [
            ("impl", "first"),
            ("fault:free-order-reversed", "second"),
        ]
        assert document["verdict"]["found"]
        assert document["verdict"]["text"].startswith("difference: ")
        assert document["verdict"]["sentence"].startswith("impl ")


@pytest.mark.parametrize("by_name", [True, False])
def test_a_test_that_fails_leaves_a_page(by_name, tmp_path):
    target = "fault:eviction-does-nothing"
    given = target if by_name else lambda: open_target(target)
    core = open_target(target)
    finding, trace = replay(Trace(FULL, (*TWICE, ops.Evict((1,)))), core, Judging(("contract",)))
    error = failing.failure(finding, trace, failing.Tested(given, core, Judging(("contract",)), folder=tmp_path))
    (named,) = [line for line in str(error).splitlines() if line.startswith("page:")]
    (page,) = tmp_path.glob("*.html")
    assert named.split()[-1] == str(page)
    assert document_in(page)["verdict"]["observable"] == "S10"


def test_theorems_have_a_page_and_those_that_a_change_breaks_come_first(tmp_path, capsys):
    path = tmp_path / "done.json"
    results = [
        {"theorem": "T1", "subject": "impl", "status": "proved", "controls": {"a": "refuted", "b": "proved"}},
        {"theorem": "T2", "subject": "impl", "status": "refuted", "message": "a block is lost"},
    ]
    path.write_text(
        json.dumps({"document": "theorems", "results": results, "cross_checked": True, "problems": ["T2 is new"]})
    )
    assert main(["report", str(path), "--json"]) == 0
    proved = json.loads(capsys.readouterr().out)
    assert (proved["verdict"], proved["mood"]) == ("1 of 2 theorems proved; 1 problem", "bad")
    (theorems,) = proved["tables"]
    assert [row[:5] for row in theorems["rows"]] == [
        ["T2", "impl", "refuted", "a block is lost", ""],
        ["T1", "impl", "proved", "", "1 of 2"],
    ]
    assert theorems["marks"] == ["bad", ""]

    sides = {"T1": {"old": "proved", "new": "proved"}, "T2": {"old": "proved", "new": "refuted"}}
    proofs = {"text": "2 of 9 functions differ", "theorems": sides}
    changed = [{"what": "outcome", "operation": "Allocate", "text": "they differ", "trace": "x.json"}]
    done = {
        "document": "verification",
        "old": "impl",
        "new": "impl-compiled",
        "verdict": "1 theorem no longer true",
        "code": 1,
    }
    path.write_text(json.dumps({**done, "proofs": proofs, "changed": changed}))
    assert main(["report", str(path), "--json"]) == 0
    change = json.loads(capsys.readouterr().out)
    assert change["mood"] == "bad"
    assert change["tables"][0]["rows"] == [["T2", "proved", "refuted"], ["T1", "proved", "proved"]]
    assert change["cards"][0]["why_not"] == "its trace is not there: x.json"
