"""A campaign on engines: tasks, what is kept of them, and the store as its user meets it."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from blockproof.fuzz.campaign.checking import problems
from blockproof.fuzz.campaign.database import Database
from blockproof.fuzz.campaign.stories import ALL, ORACLES, SIMULATION, kept_story, simulated
from blockproof.fuzz.campaign.tasks import Options, Task, encoded, result_of
from blockproof.fuzz.campaign.work import run_task
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.traces.files import TraceError

from ..scheduler_mistakes import MISTAKES

EXAMPLE = Path(__file__).parents[3] / "examples" / "my-scheduler-engine"


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    """The example, and the same with a mistake."""
    return right_and_wrong(tmp_path_factory, "freed-by-the-first")


@pytest.fixture
def engines_soon_told_apart(tmp_path_factory):
    """The same with a mistake that every task finds again and again: which tasks a campaign has depends on time."""
    return right_and_wrong(tmp_path_factory, "cancel-of-waiting-raises")


def right_and_wrong(tmp_path_factory, name):
    mistake, named = MISTAKES[name], []
    for name in ("right", "wrong"):
        folder = tmp_path_factory.mktemp(name)
        for path in EXAMPLE.glob("*.py"):
            shutil.copy(path, folder)
        named.append(f"{folder}/simulated.py:make_engine")
    file = Path(named[1].partition(":")[0]).with_name("scheduler_engine.py")
    file.write_text(file.read_text(encoding="utf-8").replace(mistake.old, mistake.new), encoding="utf-8")
    return named


def task(target, **more):
    options = Options(shrink_seconds=3.0)
    asked = Task(1, target, ALL, ORACLES, SIMULATION, seed=1, operations=1500, options=options)
    return msgspec.structs.replace(asked, **more)


@pytest.mark.slow
def test_a_task_tells_what_it_reached_and_found(engines):
    right, wrong = engines
    result = result_of(run_task(encoded(task(right))))
    assert (result.problem, result.findings) == ("", ())
    assert result.operations >= 1500
    assert result.situations["hits"] > 0
    assert any(key.startswith("preemptions x") for key in result.keys)
    assert result.processor_seconds > 0
    found = simulated(task(wrong)).findings
    assert [one.cause[:2] for one in found] == [(SIMULATION, "memory")]
    story = kept_story(found[0].trace, "here")
    assert story.raw["target"] == wrong
    # What is known is counted only; and a replay says whether it is still there.
    known = Options(shrink_seconds=0.0, known_causes=(found[0].cause,))
    assert [one.trace for one in simulated(task(wrong, options=known)).findings] == [""]
    for target, shows in ((wrong, ("memory", story.raw["rule"])), (right, ())):
        again = simulated(task(target, kind="replay", options=Options(traces=(found[0].trace,))))
        assert [one.identity for one in again.replayed] == [shows]
        assert again.findings == ()
    other = found[0].trace.replace(story.raw["rule"], "something else")
    (changed,) = simulated(task(wrong, kind="replay", options=Options(traces=(other,)))).findings
    assert changed.cause == found[0].cause


def test_what_cannot_be_run_is_a_problem(tmp_path):
    assert "there is no file" in result_of(run_task(encoded(task(f"{tmp_path}/nobody.py:make")))).problem
    with pytest.raises(TraceError):
        kept_story('{"blockproof_scheduler": 1}', "here")
    assert kept_story("{}", "here") is None


@pytest.mark.slow
def test_findings_are_kept_by_cause_and_the_store_goes_on(engines_soon_told_apart, tmp_path, capsys):
    right, wrong = engines_soon_told_apart
    store, out = tmp_path / "campaign.sqlite", tmp_path / "out"
    words = ["campaign", "--engine", "--store", str(store), "--target", right, "--target", wrong, "--seed", "3"]
    words += ["--task-operations", "1000", "--shrink-seconds", "3", "--out", str(out), "--jobs", "1"]
    assert main([*words, "--operations", "3000"]) == 1
    assert main([*words, "--operations", "5000"]) == 1
    database = Database(store, write=False)
    assert problems(database) == []
    rows = database.rows("SELECT target, state FROM findings")
    (times,) = database.one("SELECT sum(times) FROM findings")
    (tasks,) = database.one("SELECT count(*) FROM tasks WHERE kind = 'fuzz'")
    database.close()
    assert {(target, state) for target, state in rows} == {(wrong, "there")}
    assert int(str(times)) > len(rows)
    assert tasks == 5
    file = min(out.rglob("*.json"))
    assert main(["replay", str(file), "--target", wrong]) == 1
    file.unlink()
    assert main(["campaign", "--resume", str(store), "--operations", "1"]) == 1  # what has no file gets one
    assert file.is_file()
    shutil.copy(EXAMPLE / "scheduler_engine.py", Path(wrong.partition(":")[0]).parent)
    capsys.readouterr()
    assert main(["campaign", "--resume", str(store), "--operations", "1"]) in (0, 1)
    assert "gone" in capsys.readouterr().out

    exported = tmp_path / "exported"
    assert main(["campaign", "export", str(store), "--out", str(exported)]) == 1
    (row,) = [row for row in json.loads((exported / "campaign.json").read_text())["targets"] if row["findings"]]
    assert row["findings"][0]["command"].startswith("blockproof replay ")
    assert main(["report", str(exported), "--out", str(tmp_path / "page.html")]) == 0


@pytest.mark.slow
def test_engines_are_told_at_the_end_without_a_store(engines, tmp_path, capsys):
    right, wrong = engines
    words = ["campaign", "--engine", "--target", right, "--target", wrong, "--seed", "1", "--operations", "1500"]
    assert main([*words, "--shrink-seconds", "3", "--out", str(tmp_path), "--json"]) == 1
    clean, faulty = json.loads(capsys.readouterr().out)["targets"]
    assert clean["done"]
    assert clean["findings"] == []
    assert clean["operations"] >= 1500
    assert {one["oracle"] for one in faulty["findings"]} == {"memory"}
    for one in faulty["findings"]:
        assert main(["replay", one["trace"], "--target", wrong]) == 1
        assert Path(one["page"]).is_file()
    assert not any(row["problem"] for row in (clean, faulty))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--target", "x.py:make", "--oracle", "shadow"), "--oracle does not go with --engine"),
        (("--store", "s.sqlite", "--target", "x.py:make", "--oracle", "shadow"), "--oracle does not go with --engine"),
    ],
)
def test_a_wrong_combination_says_what_to_do_instead(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    assert main(["campaign", "--engine", *words]) == 2
    assert said in capsys.readouterr().err
