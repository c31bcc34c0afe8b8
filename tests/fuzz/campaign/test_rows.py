"""What a campaign's tables, JSON, files and exit code say of its rows."""

from collections import Counter
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest
from blockproof.fuzz.campaign.once import progress_line
from blockproof.fuzz.campaign.rows import OF_A_CELL, row_of, write_row
from blockproof.fuzz.campaign.rows import document as campaign_document
from blockproof.fuzz.campaign.settings import Settings
from blockproof.fuzz.campaign.store import Ended, KeptRow
from blockproof.fuzz.campaign.tasks import Task, TaskFinding, TaskResult
from blockproof.fuzz.findings.finding import Finding, Trace
from blockproof.fuzz.findings.oracle_names import CONTRACT, SHADOW
from blockproof.fuzz.findings.severity import severity
from blockproof.fuzz.reports.history import Sample
from blockproof.fuzz.reports.run import RunDocument
from blockproof.fuzz.reports.summary import Found, Summary
from blockproof.fuzz.traces.reproduction import folder_name
from blockproof.fuzz.traces.trace_file import FoundWhat, TraceFile, dump_trace, read_trace
from blockproof.model.ops import Done, Free, Group, Shape, Submit

SHAPE = Shape((Group("full", 1),), 3, 2, hash_block_size=1, scheduler_block_size=1, max_num_batched_tokens=1)
COUNT = count()
TRACE = Trace(SHAPE, (Submit("a", (0,)), Free("a")))


def kept(what="S7", oracle=CONTRACT, attention="full"):
    """A finding as a task tells it."""
    finding = Finding(what, Free("a"), 1, Done(), Done(), oracle=oracle)
    text = dump_trace(TraceFile(TRACE, "bad==1", FoundWhat.of(finding), oracles=(oracle,)))
    cause = (*finding.key, attention, str(next(COUNT)))
    return TaskFinding(cause, oracle, str(finding), severity(finding).value, text, 2, True, 3), finding


def result(target, cells, found=()):
    """What a task comes to; of several attention types for once."""
    told = tuple(one for one, _ in found)
    whole = Summary(target, "random", 1)
    for _, finding in found:
        whole.found[*finding.key, str(next(COUNT))] = Found(finding, TRACE, 3)
    row = row_of(Task(1, target, "full", (), "random", 1, 1), whole, told)
    row.cells = {name: RunDocument.of(summary, OF_A_CELL) for name, summary in cells.items()}
    return TaskResult(1, findings=told, row=row)


class Made(NamedTuple):
    """What a campaign did with one target."""

    target: str
    cells: dict[str, Summary]
    found: tuple[tuple[TaskFinding, Finding], ...] = ()
    problem: str = ""
    done: bool = False
    interrupted: bool = False
    attention: tuple[str, ...] = ()
    allow_vacuous: bool = False


def document(made, out=None):
    """The document of a campaign that came to this."""
    ends = {one.target: (one.problem, one.done) for one in made}
    attention = tuple(dict.fromkeys(name for one in made for name in one.attention))
    settings = Settings(1, dict.fromkeys(ends, ()), attention, allow_vacuous=any(one.allow_vacuous for one in made))
    results = [result(one.target, one.cells, one.found) for one in made if one.cells or one.found]
    for one in results if out else ():
        write_row(one, out, whole=False)
    store: Any = SimpleNamespace(settings=settings, rows=[KeptRow.of(one) for one in results], end_of=ends.get)
    return campaign_document(store, ended=Ended.INTERRUPTED if any(one.interrupted for one in made) else None)


def cell(runs=4, unbuilt=0, **more):
    summary = Summary("x", "random", 1, runs, 1_500, 2.0, oracles=(SHADOW, CONTRACT), **more)
    summary.unbuilt["full"] = unbuilt
    summary.outcomes["Allocate", "Done"] = 200
    return summary


def blind():
    return cell(hits=Counter(lookups=2_000))


def rows():
    hidden = cell(unobserved=Counter({("S9", "no hits"): 2}))
    return [
        Made("clean==1", {"full": cell(), "mamba": cell(unbuilt=4)}, done=True),
        Made("bad==1", {"full": hidden}, (kept(), kept(), kept("corruption", SHADOW)), done=True),
        Made("gone", {}, problem="first line\nno such device"),
        Made("cut", {"full": cell()}, interrupted=True),
    ]


@pytest.mark.parametrize(
    ("chosen", "code"),
    [([0], 0), ([0, 2], 3), ([0, 1, 2], 1), ([2], 3), ([], 3), ([3], 130), ([0, 3], 130), ([1, 3], 1)],
)
def test_the_exit_code_tells_a_finding_from_nothing_started(chosen, code):
    assert document([rows()[place] for place in chosen]).exit_code == code


def test_a_target_on_which_nothing_was_tested_is_no_success():
    row = Made("blind==1", {"full": blind(), "mamba": blind()}, done=True)
    assert document([row]).exit_code == document([row, rows()[0]]).exit_code == 3
    assert (
        document([row]).lead().conclusion.startswith("TESTED NOTHING: blind==1: none of 4,000 lookups with caching on")
    )
    assert document([row]).lines() == [f"tested nothing: {line}" for line in document([row]).untested()]
    assert document([row]).targets[0].tested_nothing.startswith("none of 4,000")
    assert document([row._replace(allow_vacuous=True)]).exit_code == 0


def test_tables_have_totals_cells_by_oracle_findings_and_what_was_not_seen():
    tables = {table.title: table for table in document(rows()).tables() if table.rows}
    titles = [f"Findings of {oracle} by attention type, operations judged, seconds" for oracle in (CONTRACT, SHADOW)]
    assert [*tables] == ["Targets", *titles, "Findings", "Not observed"]
    assert [row[-1] for row in tables["Targets"].rows] == ["as planned", "as planned", "no such device", "early"]
    full, mamba = tables[titles[0]].rows
    assert full == ["full", "- 1,500 in 2 s", "S7x2 1,500 in 2 s", "not run", "- 1,500 in 2 s"]
    assert mamba == ["mamba", "not built", "not run", "not run", "not run"]
    assert tables[titles[1]].rows[0][2] == "corruption 1,500 in 2 s"
    assert tables["Findings"].rows[0] == ("bad==1", "full", "S7", "Free", "3", "2", "-")
    assert tables["Not observed"].rows == [["bad==1", "S9", "no hits"]]


def test_lines_and_json_say_the_same():
    clean, bad, gone, cut = rows()
    assert document(rows()).lead().headline == "4 targets, 6,000 operations"
    assert document(rows()).lead().conclusion == (
        "3 findings, the worst: wrong content; ended by Ctrl-C; NOT ALL OF IT RAN: gone: no such device"
    )
    assert document([clean, gone]).lead().conclusion == "NOT ALL OF IT RAN: gone: no such device"
    killed = Made("killed", {"full": cell()}, problem="its process ended with status -9", attention=("full", "mamba"))
    assert document([clean, killed]).not_run() == ["killed: its process ended with status -9; not run: mamba"]
    assert document([gone]).lead().headline == "1 target, 0 operations"
    assert (
        document([Made("x", {}, (kept("S14"),), done=True)]).lead().conclusion
        == "1 finding, the worst: lost efficiency"
    )
    assert document([clean]).lead().conclusion == "nothing was found"
    lines = [progress_line(row) for row in document([clean, gone, cut]).targets]
    assert lines[0].endswith("2 attention types, 0 kinds of findings, 4 s, done")
    assert lines[1].endswith(", no such device")
    assert lines[2].endswith(", ...")
    told = document([bad, gone]).targets
    assert [row.problem for row in told] == ["", "first line\nno such device"]
    assert told[0].findings[0].times == 3
    assert told[0].findings[2].oracle == SHADOW


def test_a_campaign_tells_less_of_the_history_of_each_cell():
    row = rows()[0]
    summary = next(iter(row.cells.values()))
    for number in range(1, 300):
        summary.history.see(Sample(number / 200, number, 0, 0))
    told = document([row]).targets[0].cells
    assert [len(cell.history.seconds) for cell in told.values()] == [OF_A_CELL, 2]
    assert next(iter(told.values())).history.operations[-1] == summary.operations


def test_findings_are_kept_in_a_folder_for_each_target(tmp_path):
    done = document(rows(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["bad-1"]
    files = [read_trace(path) for path in (tmp_path / "bad-1").glob("*.json")]
    assert {file.finding.observable for file in files} == {"S7", "corruption"}
    assert {file.target for file in files} == {"bad==1"}
    assert {file.oracles for file in files} == {(CONTRACT,), (SHADOW,)}
    told, said = done.targets[1].findings[0], done.lines()
    assert said[1] == "bad==1, 1. wrong content: contract, S7 at Free, in 3 runs of full"
    assert f"trace: {told.trace}" in said
    assert "contract: S7 is violated at operation 1: Free a" in "\n".join(said)
    assert Path(told.trace).is_file()
    assert told.command.startswith("blockproof replay ")


def test_what_came_up_in_two_tasks_of_an_attention_type_is_told_once_with_the_runs_of_both():
    found = kept()
    first, second = cell(hits=Counter(lookups=600)), cell(hits=Counter(lookups=600, hits=2))
    for summary in (first, second):
        summary.history.see(summary.now())
    made = [result("x", {"full": first}, (found,)), result("x", {"full": second}, (found,))]
    made[1] = msgspec.structs.replace(made[1], findings=(msgspec.structs.replace(found[0], trace=""),))
    store: Any = SimpleNamespace(
        settings=Settings(1, {"x": ()}, ("full",)),
        rows=[KeptRow.of(one) for one in made],
        end_of=lambda target: ("", True),
    )
    for _ in range(2):
        (row,) = campaign_document(store).targets
        assert (row.operations, row.seconds, row.cells["full"].runs) == (3_000, 4.0, 8)
        assert [one.times for one in row.findings] == [6]
        assert row.cells["full"].history.lookups[-1] == 1_200
        assert row.cells["full"].outcomes == {"Allocate": {"Done": 400}}


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("vllm==0.33.0", "vllm-0.33.0"),
        ("impl", "impl"),
        ("pkg.mod:make", "pkg.mod-make-"),
        ("my folder/core.py:make", "my-folder-core.py-make-"),
        ("program:./core --flag", "program-.-core---flag-"),
        ("../" * 50 + "core.py:make", "core.py-make-"),
    ],
)
def test_folders_have_names_that_every_file_system_takes(target, name):
    made = folder_name(target)
    assert made.startswith(name) or len(target) > 60
    assert len(made) <= 70
    assert not set(made) & set('<>:"/\\|?* ')
    assert made == folder_name(target) != folder_name(target + "2")
