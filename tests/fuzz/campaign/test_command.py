"""`blockproof campaign` with a store, and the commands that look at it: what they print, and how they end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from blockproof.fuzz.campaign.database import Database
from blockproof.fuzz.campaign.executor import ExecutorLostError
from blockproof.fuzz.campaign.status import progress_line, read_status
from blockproof.fuzz.campaign.store import Store
from blockproof.fuzz.campaign.tasks import Task, TaskResult
from blockproof.fuzz.cli.main import main

from .killing import compared, killed_often, lose
from .made import Serial, drawn_result, found, settings

TARGET = "fault:free-order-reversed"
WORDS = ["--target", TARGET, "--attention", "full", "--seed", "1", "--task-operations", "100"]


@pytest.fixture
def doing(monkeypatch, tmp_path):
    """Makes the command do its tasks in this process, by a function of the task; `drawn_result` by default."""
    monkeypatch.chdir(tmp_path)

    def put(result_of=drawn_result):
        made = Serial(result_of)
        monkeypatch.setattr("blockproof.fuzz.campaign.executor.LocalExecutor", lambda jobs: made)
        return made

    put()
    return put


def nothing(task):
    return TaskResult(task.number, task.operations, 0.5, 0.5, 2, situations={"hit": 1}, keys=("hit x1",))


def ended(*words):
    """The exit code."""
    return main(words)


def status(path="a.sqlite"):
    return read_status(Path(path))


def test_a_campaign_ends_at_its_limit_and_tells_its_status(doing, capsys):
    assert ended("campaign", "--store", "a.sqlite", *WORDS, "--operations", "1000", "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["tasks"] == {"open": 0, "done": 10, "failed": 0, "lost": 0}
    assert document["operations"] == 1_000
    assert document["cycles"] == 10
    assert not document["running"]
    assert ended("campaign", "status", "a.sqlite", "--json") == 1
    assert json.loads(capsys.readouterr().out) == document


def test_the_status_as_tables(doing, capsys):
    ended("campaign", "--store", "a.sqlite", *WORDS, "--operations", "1000")
    told = capsys.readouterr()
    assert "to go on: blockproof campaign --resume a.sqlite" in told.err
    for words in ("last new finding", "cycles done", "10 done", "100.0%", "Arms", "Findings", "the worst:"):
        assert words in told.out


def test_the_same_command_does_what_is_left_and_resume_so_much_more(doing):
    ended("campaign", "--store", "a.sqlite", *WORDS, "--operations", "1000")
    ended("campaign", "--store", "a.sqlite", *WORDS, "--operations", "1000")
    ended("campaign", "--resume", "a.sqlite")
    assert status().tasks["done"] - status().replays == 10
    ended("campaign", "--resume", "a.sqlite", "--operations", "300")
    assert status().tasks["done"] - status().replays == 13
    ended("campaign", "--resume", "a.sqlite", "--seconds", "0")
    assert status().tasks["done"] - status().replays == 13
    assert status().sessions == 5


def test_a_seed_that_was_drawn_stays(doing):
    words = [word for word in WORDS if word not in ("--seed", "1")]
    ended("campaign", "--store", "a.sqlite", *words, "--operations", "100")
    before = status().seed
    ended("campaign", "--store", "a.sqlite", *words, "--operations", "200")
    assert status().seed == before


def test_a_campaign_that_finds_nothing_ends_with_0_and_one_that_tests_nothing_with_3(doing, capsys):
    doing(nothing)
    assert ended("campaign", "--store", "a.sqlite", *WORDS, "--operations", "300") == 0
    assert "nothing was found" in capsys.readouterr().out
    doing(lambda task: TaskResult(task.number, problem="it is not installed"))
    assert ended("campaign", "--store", "b.sqlite", *WORDS, "--operations", "900") == 3
    told = capsys.readouterr()
    assert "no arm is left" in told.err
    assert "TESTED NOTHING" in told.out
    assert "it is not installed" in told.out
    assert ended("campaign", "status", "b.sqlite") == 3


def test_ctrl_c_ends_it_with_130_if_nothing_was_found(doing):
    def interrupted(task):
        if task.number == 3:
            raise KeyboardInterrupt
        return nothing(task)

    doing(interrupted)
    assert ended("campaign", "--store", "a.sqlite", *WORDS, "--operations", "900") == 130
    assert status().tasks == {"open": 2, "done": 2, "failed": 0, "lost": 0}


def test_an_executor_that_has_gone_is_one_line_and_3(doing, capsys):
    def gone(task):
        raise ExecutorLostError("the cluster has gone")

    doing(gone)
    assert ended("campaign", "--store", "a.sqlite", *WORDS, "--operations", "900") == 3
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "blockproof: the cluster has gone; to go on: blockproof campaign --resume a.sqlite"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--store", "a.sqlite", "--seed", "2"], "its campaign has seed 1, not 2"),
        (["--store", "a.sqlite", "--attention", "sliding"], "its campaign has attention full, not sliding"),
        (["--store", "a.sqlite", "--oracle", "shadow"], "judges fault:free-order-reversed by lockstep,shadow, not by"),
        (["--store", "text"], "is no store of a campaign"),
        (["--resume", "missing.sqlite"], "no such file"),
    ],
)
def test_a_store_that_cannot_be_used_is_one_line_and_2(doing, capsys, words, said):
    ended("campaign", "--store", "a.sqlite", *WORDS, "--operations", "200")
    Path("text").write_text("no database")
    capsys.readouterr()
    given = [] if "--resume" in words else [*WORDS, "--operations", "200"]
    assert ended("campaign", *given, *words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--store", "a", "--resume", "a"], "--resume"),
        (["--resume", "a", "--seed", "1"], "--seed"),
        (["--store", "a", "--live", "p.html"], "--live"),
        (["--from-corpus"], "--from-corpus"),
        (["--store", "a", "--engine", "random"], "--engine random is now needless: operations are drawn at random"),
        (["--store", "a", "--hours", "1"], "--hours is now called --seconds, which takes 8h, too"),
        (["--store", "a", "--seconds", "1 fortnight"], "write seconds, or as in 90s, 30m, 8h"),
        (["--store", "a"], "no target"),
    ],
)
def test_options_that_do_not_fit_are_wrong_usage(doing, capsys, words, said):
    given = [] if "--resume" in words or words == ["--store", "a"] else ["--target", TARGET]
    assert ended("campaign", *given, *words) == 2
    assert said in capsys.readouterr().err
    assert not Path("a").exists()


def test_a_store_that_has_lost_a_finding_is_refused(doing, capsys):
    ended("campaign", "--store", "a.sqlite", *WORDS, "--operations", "1000")
    database = Database(Path("a.sqlite"), write=True)
    database.do("PRAGMA foreign_keys = OFF")
    database.do("DELETE FROM findings WHERE id = 1")
    database.close()
    capsys.readouterr()
    assert ended("campaign", "--resume", "a.sqlite") == 2
    assert "is not whole: task" in capsys.readouterr().err


def test_minimise_tells_both_sizes(doing, capsys):
    ended("campaign", "--store", "a.sqlite", *WORDS, "--operations", "4000")
    capsys.readouterr()
    assert ended("campaign", "minimise", "a.sqlite", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["before"]["keys"] == document["after"]["keys"] > 0
    assert document["before"]["seeds"] > document["after"]["seeds"] > 0
    assert ended("campaign", "minimise", "a.sqlite") == 0
    assert f"after: {document['after']['seeds']} runs" in capsys.readouterr().out


def test_export_writes_traces_tests_pages_and_what_report_reads(doing, capsys):
    doing(lambda task: drawn_result(task) if task.kind == "replay" else real_finding(task))
    ended("campaign", "--store", "a.sqlite", *WORDS, "--operations", "100")
    assert ended("campaign", "export", "a.sqlite", "--out", "there") == 1
    told = capsys.readouterr()
    assert "no pages" not in told.err
    (row,) = json.loads(Path("there/campaign.json").read_text())["targets"]
    assert row["target"] == TARGET
    assert {Path(one["trace"]) for one in row["findings"]} == {*Path("there").glob("*/*.json")}
    trace = Path(row["findings"][0]["trace"])
    assert trace.with_suffix(".html").exists()
    assert trace.with_name(f"test_{trace.stem}.py").exists()
    assert ended("replay", str(trace)) == 1
    assert ended("report", "there") == 0


def real_finding(task):
    """What the target really does wrong."""
    from blockproof.fuzz.campaign import work

    return work.done(Task(*(task.number, task.target, task.attention, task.oracles, "random", 1, 300)))


def test_export_without_a_target_that_can_be_opened_has_no_pages(tmp_path, capsys):
    store = Store(tmp_path / "a.sqlite", settings(tmp_path, targets={"vllm==0.0.1": ("shadow",)}))
    arm = store.arms[1]
    store.assign(Task(1, arm.target, arm.attention, arm.oracles, arm.engine, 1, 1), 1)
    store.finish(TaskResult(1, 5, findings=(found("tables"),)))
    store.close()
    assert ended("campaign", "export", str(tmp_path / "a.sqlite"), "--out", str(tmp_path / "out")) == 1
    assert "no pages for vllm==0.0.1" in capsys.readouterr().err
    assert not [*(tmp_path / "out").rglob("*.html")]
    assert len([*(tmp_path / "out").rglob("test_*.py")]) == 1
    words = ("campaign", "export", str(tmp_path / "a.sqlite"), "--no-pages", "--json", "--out", str(tmp_path / "two"))
    assert ended(*words) == 1
    assert json.loads(capsys.readouterr().out) == {"document": "export", "findings": 1, "folder": str(tmp_path / "two")}


def test_the_status_is_told_while_a_campaign_runs(doing, tmp_path):
    seen = []

    def looks(task):
        seen.append(status())
        return drawn_result(task)

    doing(looks)
    ended("campaign", "--store", "a.sqlite", *WORDS, "--operations", "500")
    assert all(one.running for one in seen)
    assert [one.tasks["done"] for one in seen] == [0, 1, 2, 3, 4]
    assert [one.tasks["open"] for one in seen] == [2, 2, 2, 2, 1]
    assert not status().running
    assert "0 s" in progress_line(seen[0], 2)


def test_watch_goes_on_until_the_campaign_ends(doing, capsys, monkeypatch):
    store = Store(Path("a.sqlite"), settings(Path()))
    store.begin_session()
    monkeypatch.setattr(time, "sleep", lambda seconds: store.end_session())
    assert ended("campaign", "status", "a.sqlite", "--watch") == 3
    store.close()
    told = capsys.readouterr().out
    assert ": runs;" in told
    assert ": does not run;" in told


def test_a_session_that_was_killed_does_not_run_for_ever(doing, monkeypatch):
    store = Store(Path("a.sqlite"), settings(Path()))
    store.begin_session()
    store.close()
    assert status().running
    monkeypatch.setattr("blockproof.fuzz.campaign.status.STILL_S", 0.0)
    assert not status().running


@pytest.mark.slow
def test_a_real_campaign_killed_twice_loses_nothing_and_what_is_lost_is_noticed(tmp_path):
    assert list(killed_often(tmp_path, kills=2, most_s=0.1, seed=1, operations=9_000)) == []
    assert list(compared(tmp_path, 9_000)) == []
    lose(tmp_path)
    assert any(
        line.startswith("WRONG: findings of the store and of the same tasks") for line in compared(tmp_path, 9_000)
    )


@pytest.mark.slow
def test_ctrl_c_ends_a_real_campaign_and_what_was_found_is_there(tmp_path):
    words = [sys.executable, "-m", "blockproof.fuzz.cli", "campaign", "--store", "a.sqlite", *WORDS]
    process = subprocess.Popen(words, cwd=tmp_path, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    for line in process.stderr:
        if line.endswith(".json\n"):
            break
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=100)
    assert process.returncode == 1, said
    assert read_status(tmp_path / "a.sqlite").findings
    assert [*(tmp_path / "findings").rglob("test_*.py")]
