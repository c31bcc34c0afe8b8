"""What a campaign's tables, JSON, files and exit code say of its rows."""

from collections import Counter

import pytest
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.findings.finding import Finding, Trace
from blockproof.fuzz.findings.oracle_names import CONTRACT, SHADOW
from blockproof.fuzz.releases import campaign, campaign_report
from blockproof.fuzz.releases.campaign import CampaignResult, KeptOnTarget, Orders, run_by_oracles
from blockproof.fuzz.releases.campaign_report import document
from blockproof.fuzz.reports.history import Sample
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.traces.reproduction import folder_name
from blockproof.fuzz.traces.trace_file import read_trace
from blockproof.model.ops import Done, Free, Group, Shape, Submit

SHAPE = Shape((Group("full", 1),), 3, 2, hash_block_size=1, scheduler_block_size=1, max_num_batched_tokens=1)
TRACE = Trace(SHAPE, (Submit("a", (0,)), Free("a")))


def kept(what="S7", oracle=CONTRACT, attention="full"):
    finding = Finding(what, Free("a"), 1, Done(), Done(), oracle=oracle)
    return KeptOnTarget(finding, TRACE, attention, 3, complete=True, oracles=(oracle,))


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
        CampaignResult("clean==1", {"full": cell(), "mamba": cell(unbuilt=4)}, done=True),
        CampaignResult("bad==1", {"full": hidden}, [kept(), kept(), kept("corruption", SHADOW)], done=True),
        CampaignResult("gone", problem="first line\nno such device"),
        CampaignResult("cut", {"full": cell()}, interrupted=True),
    ]


@pytest.mark.parametrize(
    ("chosen", "code"),
    [([0], 0), ([0, 2], 3), ([0, 1, 2], 1), ([2], 3), ([], 3), ([3], 130), ([0, 3], 130), ([1, 3], 1)],
)
def test_the_exit_code_tells_a_finding_from_nothing_started(chosen, code):
    assert document([rows()[place] for place in chosen]).exit_code == code


def test_a_target_on_which_nothing_was_tested_is_no_success():
    row = CampaignResult("blind==1", {"full": blind(), "mamba": blind()}, done=True)
    assert document([row]).exit_code == document([row, rows()[0]]).exit_code == 3
    assert (
        document([row]).lead().conclusion.startswith("TESTED NOTHING: blind==1: none of 4,000 lookups with caching on")
    )
    assert document([row]).lines() == [f"tested nothing: {line}" for line in document([row]).untested()]
    assert document([row]).targets[0].tested_nothing.startswith("none of 4,000")
    row.cells["full"].allow_vacuous = True
    assert document([row]).exit_code == 0


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
    killed = CampaignResult(
        "killed", {"full": cell()}, problem="its process ended with status -9", attention=("full", "mamba")
    )
    assert document([clean, killed]).not_run() == ["killed: its process ended with status -9; not run: mamba"]
    assert document([gone]).lead().headline == "1 target, 0 operations"
    assert (
        document([CampaignResult("x", {}, [kept("S14")], done=True)]).lead().conclusion
        == "1 finding, the worst: lost efficiency"
    )
    assert document([clean]).lead().conclusion == "nothing was found"
    assert campaign_report.progress_line(clean).endswith("2 attention types, 0 kinds of findings, 4 s, done")
    assert campaign_report.progress_line(gone).endswith(", no such device")
    assert campaign_report.progress_line(cut).endswith(", ...")
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
    assert [len(cell.history.seconds) for cell in told.values()] == [campaign_report.OF_A_CELL, 2]
    assert next(iter(told.values())).history.operations[-1] == summary.operations


def test_findings_are_kept_in_a_folder_for_each_target(tmp_path):
    campaign_report.keep_findings(done := rows(), tmp_path, 5)
    assert [path.name for path in tmp_path.iterdir()] == ["bad-1"]
    files = [read_trace(path) for path in (tmp_path / "bad-1").glob("*.json")]
    assert {file.finding.observable for file in files} == {"S7", "corruption"}
    assert {(file.target, file.found_by.seed) for file in files} == {("bad==1", 5)}
    assert {file.oracles for file in files} == {(CONTRACT,), (SHADOW,)}
    said = document(done).lines()
    assert said[1] == "bad==1, 1. wrong content: contract, S7 at Free, in 3 runs of full"
    assert f"trace: {done[1].kept[0].files.trace}" in said
    assert "contract: S7 is violated at operation 1: Free a" in "\n".join(said)
    told = document(done).targets[1].findings[0]
    assert told.trace == str(done[1].kept[0].files.trace)
    assert told.command.startswith("blockproof replay ")


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


def test_the_page_is_made_with_its_folder(tmp_path):
    campaign_report.write_page(document(rows()), tmp_path / "new" / "page.md")
    text = (tmp_path / "new" / "page.md").read_text()
    assert text.startswith("## 4 targets, 6,000 operations: 3 findings, the worst: wrong content; ended")
    assert "### Not observed" in text


def test_targets_that_are_judged_alike_run_together(monkeypatch):
    ran, said = [], []

    def noted(specs, orders, jobs, on_change, on_growth):
        ran.append((specs, orders.plan.oracles, jobs))
        return [CampaignResult(spec) for spec in specs]

    monkeypatch.setattr(campaign, "run_campaign", noted)
    oracles = {"a": (SHADOW,), "b": (CONTRACT,), "c": (SHADOW,)}
    made = run_by_oracles(oracles, Orders(Plan(9)), 2, said.append, lambda row: None)
    assert ran == [(["a", "c"], (SHADOW,), 2), (["b"], (CONTRACT,), 2)]
    assert said == ["a, c: shadow; seed 9", "b: contract; seed 9"]
    assert [row.target for row in made] == ["a", "c", "b"]
