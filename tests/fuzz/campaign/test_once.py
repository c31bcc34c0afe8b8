"""Campaigns over many targets: what one of them does to itself does not end the others."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from blockproof.fuzz.campaign.once import run_once
from blockproof.fuzz.campaign.settings import CampaignLimits, Settings
from blockproof.fuzz.campaign.tasks import Options
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines.seeded import LOST_LIMIT
from blockproof.fuzz.findings.oracle_names import CONTRACT, LOCKSTEP, SHADOW
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.trace_file import read_trace

from ..fakes import RUNNING, seen_from_everywhere
from ..waiting import said_at_ctrl_c, wait_until

HERE = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def fakes_importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.syspath_prepend(str(HERE))


def run(out, specs, operations=1_500, attention=("full",), oracles=(SHADOW, CONTRACT), say=lambda line: None, **more):
    options = Options(**{"shrink_seconds": 0.3, "at_once": True, **more})
    shares = CampaignLimits(operations=operations)
    settings = Settings(3, dict.fromkeys(specs, oracles), attention, options=options, shares=shares, out=str(out))
    rows = run_once(settings, 2, say, None).targets
    assert [row.target for row in rows] == list(specs)
    return {row.target: row for row in rows}


FAILING = {"aborts": ("crash", "Take"), "hangs": ("hang", "Take"), "eats_for_ever": ("memory", "Take")}


@pytest.mark.parametrize(
    "names",
    [
        ("aborts", "eats_for_ever"),
        pytest.param(("hangs",), marks=pytest.mark.slow),  # each of its hangs lasts as long as any answer may take
    ],
)
def test_targets_that_die_hang_or_eat_memory_end_nobody_else_and_what_they_did_is_kept(names, tmp_path):
    others = [f"fakes:{name}" for name in names]
    specs = [others[0], "impl", *others[1:], "fakes:cannot_be_made"]
    rows = run(tmp_path, specs, deadline_s=5.0, growth_bytes=64 << 20)
    assert rows["impl"].done
    assert rows["impl"].operations >= 1_500
    assert rows["impl"].findings == []
    for name in names:
        row = rows[f"fakes:{name}"]
        assert row.done, row.problem
        lost = [found for found in row.findings if (found.observable, found.operation) == FAILING[name]]
        assert lost, row.findings
        assert lost[0].times <= LOST_LIMIT
    assert "no such device" in rows["fakes:cannot_be_made"].problem
    assert not rows["fakes:cannot_be_made"].done


@pytest.mark.slow
def test_a_process_that_is_killed_from_outside_loses_only_what_it_had_not_told(monkeypatch, tmp_path):
    running = tmp_path / "running"
    running.mkdir()
    monkeypatch.setenv(RUNNING, str(running))
    told, over, killed = threading.Event(), threading.Event(), set()

    def kill():
        told.wait()
        while not over.wait(0.02):  # each process that is at this target, also the one that begins the task again
            for path in {*running.iterdir()} - killed:
                killed.add(path)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(path.name), signal.SIGKILL)

    def say(line):
        if (made := re.match(f"{specs[0]}: ([0-9,]+) operations", line)) and int(made[1].replace(",", "")) >= 7_000:
            told.set()  # `full` has come to its end

    specs = ["fakes:hangs_at_windows", "fault:free-order-reversed"]
    killer = threading.Thread(target=kill)
    killer.start()
    try:
        rows = run(tmp_path / "out", specs, 14_000, ("full", "sliding"), (SHADOW, LOCKSTEP), say, shrink_seconds=1.0)
    finally:
        told.set()
        over.set()
        killer.join()
    first, second = rows.values()
    assert first.cells["full"].operations >= 7_000
    assert not first.done
    assert "ended with status -9" in first.problem
    assert second.done
    assert list(second.cells) == ["full", "sliding"]


@pytest.mark.slow
def test_each_finding_is_shrunk_on_its_target_and_replays(tmp_path):
    rows = run(tmp_path, ["fault:touch-ignores-used-blocks"], operations=12_000)
    (row,) = rows.values()
    assert row.findings
    core = open_target(row.target)
    for found in row.findings:
        file = read_trace(Path(found.trace))
        assert replay(file.trace, core, Judging(file.oracles))[0].identity == file.finding.identity
        assert found.attention == "full"


@pytest.mark.slow
def test_the_command_writes_tables_and_traces(tmp_path, capsys):
    words = ["campaign", "--target", "impl", "--target", "fault:touch-ignores-used-blocks", "--operations", "8000"]
    words += ["--attention", "full,sliding", "--oracle", "shadow,contract", "--seed", "3", "--shrink-seconds", "0.3"]
    words += ["--out", str(tmp_path / "out")]
    assert main([*words, "--write", str(tmp_path / "page.md"), "--json"]) == 1
    clean, faulty = json.loads(capsys.readouterr().out)["targets"]
    assert clean["findings"] == []
    assert clean["operations"] >= 8_000
    assert set(clean["cells"]) == {"full", "sliding"}
    kinds = {(one["observable"], one["operation"]) for one in faulty["findings"]}
    files = [read_trace(path) for path in (tmp_path / "out").glob("*/*.json")]
    assert {(file.finding.observable, file.finding.operation) for file in files} == kinds
    assert all(Path(one["trace"]).exists() and one["command"].endswith(faulty["target"]) for one in faulty["findings"])
    page = (tmp_path / "page.md").read_text()
    assert "Findings of shadow by attention type" in page
    assert "| impl |" in page


def test_the_command_prints_each_finding_and_its_files(tmp_path, capsys):
    words = ["campaign", "--target", "fault:free-order-reversed", "--operations", "500", "--attention", "full"]
    words += ["--oracle", "contract,lockstep", "--seed", "3", "--shrink-seconds", "2", "--out", str(tmp_path)]
    assert main(words) == 1
    out = capsys.readouterr().out
    assert out.startswith("1 target, ")
    assert "fault:free-order-reversed, 1. lost efficiency: contract, S9 at " in out  # the worst comes first
    assert "fault:free-order-reversed, 2. other behaviour: lockstep, free at " in out
    trace = re.search("^trace: (.*)$", out, re.MULTILINE)[1]
    assert ":" not in Path(trace).relative_to(tmp_path).as_posix()
    assert read_trace(Path(trace)).target == "fault:free-order-reversed"


def test_wrong_arguments_are_told_in_one_line(capsys):
    for words, text in (
        (["campaign"], "no target"),
        (["campaign", "--target", "nonsense"], "unknown target"),
        (["campaign", "--releases", "nonsense==1..2"], "names no releases"),
        (["campaign", "--target", "impl", "--oracle", "luck"], "'luck' is unknown"),
    ):
        assert main(words) == 2
        assert text in capsys.readouterr().err


def test_nothing_started_is_told_by_the_exit_code(capsys, tmp_path):
    assert main(["campaign", "--target", "fakes:cannot_be_made", "--operations", "10", "--out", str(tmp_path)]) == 3
    assert "no such device" in capsys.readouterr().out


def test_ctrl_c_ends_it_with_what_there_is_and_leaves_no_process(tmp_path):
    running = tmp_path / "running"
    running.mkdir()
    words = [sys.executable, "-m", "blockproof.fuzz.cli", "campaign", "--target", "impl"]
    words += ["--target", "fakes:says_when_running", "--seconds", "600", "--attention", "full", "--out", str(tmp_path)]
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **seen_from_everywhere(), RUNNING: str(running)},
        start_new_session=True,
    )
    said = said_at_ctrl_c(process, running)
    assert "2 targets" in said
    assert "nothing was found; ended by Ctrl-C" in said
    assert process.returncode == 130
    wait_until(lambda: not pids_of_session(process.pid))


def pids_of_session(session: int) -> list[str]:
    return subprocess.run(["pgrep", "-s", str(session)], capture_output=True, text=True).stdout.split()
