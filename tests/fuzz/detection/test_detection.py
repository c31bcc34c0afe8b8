"""The benchmark of detection: what is compared, and that it tells apart what differs and nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("scipy")

from blockproof.fuzz.cli.main import main
from blockproof.fuzz.detection.report import Results, compared, curve_of, overall
from blockproof.fuzz.detection.runs import TrialBench, TrialError, run_all
from blockproof.fuzz.detection.trials import SETTINGS, Setting, Trial, TrialBudget, TrialTask, key_of, run_trial
from blockproof.fuzz.engines.mutants import MUTANTS

EASY = ("free-order-reversed", "eviction-does-nothing")
FAULTS = [MUTANTS[name] for name in EASY]


def trials(times, budget, seed=0):
    """Trials that end at these operations; those at the budget have found nothing."""
    return [Trial("f", seed + at, "s", time < budget, time, 0.1) for at, time in enumerate(times)]


def test_a_setting_that_finds_nothing_is_worse_and_one_against_itself_is_not():
    bench = TrialBench(
        FAULTS, [SETTINGS[name] for name in ("reads-only", "again", "usual")], range(8), TrialBudget(250)
    )
    made: list[Trial] = []
    run_all(bench, [], 1, made.append)
    results = Results(bench, made)
    blind, again = (results.overall(side) for side in results.others)
    assert (blind.verdict, results.sides[0].found) == ("worse", 0)
    assert blind.effect < 0.1
    assert blind.p_seeds < 0.01
    assert all(one.p < 0.01 and one.log_rank < 0.01 for one in results.differences(results.sides[0]).values())
    assert again.verdict == "no difference"  # the same generator from other seeds
    assert results.is_worse()
    usual = results.sides[2].trials
    itself = overall(usual, usual, bench.budget)
    assert (itself.verdict, itself.effect, itself.p_seeds, itself.p_faults) == ("no difference", 0.5, 1.0, 1.0)
    assert itself.ratio == pytest.approx(1)
    count = len(made)
    run_all(bench, made, 1, made.append)
    assert len(made) == count  # everything is known


def test_the_mean_is_the_area_below_the_curve_and_censored_trials_count_to_the_budget():
    curve = curve_of(trials([10, 30, 100, 100], 100), TrialBudget(100))
    assert (curve.found, curve.trials, curve.mean) == (2, 4, (10 + 30 + 100 + 100) / 4)
    assert curve.steps[:3] == ((0.0, 1.0), (10.0, 0.75), (30.0, 0.5))
    assert curve_of(trials([100] * 3, 100), TrialBudget(100)).mean == 100
    late = trials([150, 20], 200)  # found, but behind a smaller budget
    assert curve_of(late, TrialBudget(100)).found == 1
    assert not late[0].spent(TrialBudget(100))[0]


def test_the_effect_is_how_often_a_trial_is_sooner():
    budget = TrialBudget(100)
    soon, late = trials([1, 2, 3, 50], 100), trials([10, 20, 100, 100], 100)
    assert compared(soon, late, budget).effect == 14 / 16
    assert compared(late, soon, budget).effect == 2 / 16
    assert compared(soon, soon, budget).effect == 0.5
    nothing = compared(trials([100] * 4, 100), trials([100] * 4, 100), budget)
    assert (nothing.effect, nothing.p, nothing.log_rank) == (0.5, 1.0, 1.0)


def test_faults_that_show_when_a_core_is_built_count_as_one_operation():
    both = {"at once": trials([0, 0, 0], 100), "later": trials([2, 4, 100], 100)}
    result = overall(both, dict.fromkeys(both, both["later"]), TrialBudget(100))
    assert result.ratio == pytest.approx((1 / (106 / 3)) ** 0.5)
    assert result.verdict == "no difference"


def test_what_was_known_is_used_again_only_while_the_code_and_the_budget_allow():
    usual = SETTINGS["usual"]
    bench = TrialBench(FAULTS[:1], [usual], range(2), TrialBudget(100))
    key = key_of(FAULTS[0], usual)
    found = Trial(EASY[0], 0, "usual", True, 40, 0.1, key=key)
    short = Trial(EASY[0], 1, "usual", False, 60, 0.1, key=key)
    other = Trial(EASY[0], 1, "usual", True, 40, 0.1, key="another code")
    assert [*bench.known([found, short, other]).values()] == [found]
    assert bench.known([Trial(EASY[0], 1, "usual", False, 100, 0.1, key=key)])
    keys = {key_of(FAULTS[0], one) for one in SETTINGS.values()}
    assert len(keys) == len(SETTINGS)


def test_a_trial_is_the_same_by_operations_and_ends_at_processor_seconds():
    task = TrialTask(EASY[0], 3, "usual", operations=400)
    one, two = run_trial(task), run_trial(task)
    assert (one.found, one.operations, one.lookups) == (True, two.operations, two.lookups)
    ended = run_trial(TrialTask("model-length-ignored", 3, "reads-only", seconds=0.1))
    assert not ended.found
    assert ended.seconds >= 0.1


@pytest.fixture
def _nothing_forked(monkeypatch):
    """A process that is to take another generator must not have loaded ours (`tests/forked.py`)."""
    monkeypatch.setenv("PYTHONHASHSEED", "1")


@pytest.mark.usefixtures("_nothing_forked")
def test_processes_come_to_the_same_and_one_that_fails_is_told(tmp_path):
    bench = TrialBench(FAULTS, [SETTINGS["usual"]], range(2), TrialBudget(250))
    here, there = list[Trial](), list[Trial]()
    run_all(bench, [], 1, here.append)
    run_all(bench, [], 2, there.append)
    assert len(there) == 4
    assert {(t.fault, t.seed, t.operations) for t in here} == {(t.fault, t.seed, t.operations) for t in there}
    (tmp_path / "__init__.py").write_text("raise ImportError('no such generator')\n")
    broken = Setting("broken", "a generator that cannot be loaded", generator=tmp_path)
    with pytest.raises(TrialError, match="broken: ImportError: no such generator"):
        run_all(TrialBench(FAULTS, [broken], range(2), TrialBudget(250)), [], 1, here.append)


@pytest.mark.usefixtures("_nothing_forked")
def test_the_generator_of_another_folder_takes_the_place_of_ours(tmp_path):
    """An earlier generator whose requests are never submitted finds nothing; what it lacks is taken from ours."""
    source = Path(sys.modules["blockproof.fuzz.workload.operations"].__file__ or "")
    text = source.read_text().replace("self.submit: 6", "self.submit: 0")
    (tmp_path / "__init__.py").write_text('"""Another generator."""\n')
    (tmp_path / "operations.py").write_text(text)
    made: list[Trial] = []
    other = Setting("other", "without requests", generator=tmp_path)
    run_all(TrialBench([MUTANTS["free-order-reversed"]], [other], range(1), TrialBudget(300)), [], 1, made.append)
    assert [(trial.found, trial.setting) for trial in made] == [(False, "other")]
    assert made[0].lookups == 0


def test_the_command_keeps_trials_goes_on_and_writes_page_and_report(tmp_path, capsys):
    kept, page = tmp_path / "detection.json", tmp_path / "page.md"
    words = ["mutants", "--only", EASY[0], "--operations", "250", "--seeds", "6", "--setting", "reads-only"]
    words += ["--against", "usual", "--keep", str(kept)]
    assert main([*words, "--write", str(page)]) == 1
    first = capsys.readouterr()
    assert "12 trials, 0 of them known" in first.err
    assert "worse" in first.out
    document = json.loads(kept.read_text())
    assert document["comparisons"][0]["verdict"] == "worse"
    assert main(words) == 1
    assert "12 trials, 12 of them known" in capsys.readouterr().err
    assert f"blockproof {' '.join(words)}"[:60] in page.read_text()
    assert main(["report", str(kept), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["verdict"] == "reads-only against usual: worse"
    assert [line["name"] for line in shown["charts"][0]["series"]] == ["reads-only", "usual"]
    assert shown["charts"][0]["series"][0]["ys"][-1] == 100
    assert main(["mutants", "--setting", "usual", "--only", EASY[0], "--seeds", "2", "--operations", "200"]) == 0
    assert "usual" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--setting", "usul"], "no setting is called 'usul'"),
        (["--setting", "usual", "--only", "no-such-fault"], "no fault is called 'no-such-fault'"),
        (["--against-git", "no-such-commit"], "'no-such-commit' is no commit"),
        (["--against", "usual", "--against-git", "HEAD"], "not with --against"),
        (["--setting", "usual", "--operations", "5", "--seconds", "1"], "name one of them"),
        (["--setting", "usual", "--keep", __file__], "is no benchmark of detection"),
    ],
)
def test_wrong_usage_is_said_in_a_line(words, said, capsys):
    assert main(["mutants", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_settings_are_listed_and_bench_alone_is_as_before(capsys):
    assert main(["mutants", "--settings"]) == 0
    assert "no-swarm" in capsys.readouterr().out
    assert main(["bench", "--only", "no-such-workload"]) == 2
    assert "no workload is called 'no-such-workload'" in capsys.readouterr().err


def test_the_generator_of_a_commit_is_written(tmp_path):
    from blockproof.fuzz.releases.git import write_generator

    root = Path(__file__).parents[3]
    inside = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if inside.returncode:
        pytest.skip("not in a git repository")
    assert inside.stdout.startswith(write_generator("HEAD", tmp_path))
    assert "class Workload" in (tmp_path / "operations.py").read_text()
