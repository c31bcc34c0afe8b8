"""A run over configurations from its task to its outcome: what is kept, what is a failure, how it is repeated."""

from dataclasses import replace
from pathlib import Path

import pytest
from blockproof.fuzz.configuration import fuzzing
from blockproof.fuzz.configuration.check import CheckLimits
from blockproof.fuzz.configuration.findings import read_finding
from blockproof.fuzz.configuration.fuzzing import (
    ConfigurationOutcome,
    ConfigurationTask,
    ask_recorded,
    fuzz_configurations,
    repeat_command,
)
from blockproof.fuzz.configuration.reach import Reach
from blockproof.fuzz.opening.targets import open_calculator
from blockproof.fuzz.traces.files import TraceError

FAULT = "fault:one-block-more"
TASK = ConfigurationTask(FAULT, 0, CheckLimits(configurations=200), "lockstep")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """What came of a task that finds something, and what was told meanwhile."""
    steps = []
    folder = tmp_path_factory.mktemp("found")
    calculator = open_calculator(FAULT)
    floors = {"total": {"configurations": 10**9}}
    return fuzz_configurations(TASK, calculator, folder, floors, steps.append), steps, folder


def test_a_finding_is_shrunk_and_the_file_that_was_named_first_stays(outcome):
    result, steps, folder = outcome
    assert steps[0] == f"fuzzing the configuration arithmetic of {FAULT}, seed 0"
    assert steps[1].startswith("found by lockstep in ")
    (kept,) = result.kept
    first = Path(steps[1].partition("saved in ")[2].partition(";")[0])
    assert {*folder.iterdir()} == {first, kept.path}
    assert read_finding(first).kind == kept.smaller.finding.kind
    assert read_finding(kept.path).op == kept.smaller.finding.op
    assert kept.as_json()["file"] == str(kept.path)
    assert kept.lines()[1].startswith("shrunk in ")


def test_the_first_finding_stays_if_shrinking_was_cut_short(tmp_path, monkeypatch):
    monkeypatch.setattr(fuzzing, "SHRINK_SECONDS", 0.0)
    result = fuzz_configurations(TASK, open_calculator(FAULT), tmp_path, {}, lambda line: None)
    (kept,) = result.kept
    assert kept.path.exists()
    assert kept.as_json()["complete"] is False
    assert "gave up early" in kept.lines()[1]


def test_a_finding_or_a_floor_that_was_not_reached_is_a_failure(outcome):
    result, _, _ = outcome
    assert result.failed
    assert result.verdict() == "FOUND: 1"
    assert "floor 1000000000" in result.unmet[0]
    assert result.lines()[-2:] == [result.unmet[0], f"repeat this run: {result.repeat}"]
    assert result.as_json()["found"] == [result.kept[0].as_json()]
    clean = ConfigurationOutcome(Reach("impl", 1, questions=1234), [], [], "again")
    assert not clean.failed
    assert clean.verdict() == "no difference in 1,234 answers"
    assert replace(clean, unmet=["a floor"]).failed


def test_the_headline_says_if_the_run_ended_early():
    reach = Reach("impl", 7, configurations=20, questions=3000, seconds=2.0, interrupted=True)
    head = ConfigurationOutcome(reach, [], [], "").headline()
    assert head == "impl, seed 7: 20 configurations, 3,000 questions in 2.0 s (10 configurations/s), ended by Ctrl-C"
    outcome = ConfigurationOutcome(reach, [], [], "again")
    assert outcome.exit_code == 130
    reach.configurations, reach.seconds = 60, 6.0
    assert outcome.lines()[0].startswith("slow: 10.0 configurations a second reach little; give more --seconds")
    reach.configurations = 75
    assert outcome.lines() == ["repeat this run: again"]


@pytest.mark.parametrize(
    ("task", "says"),
    [
        (ConfigurationTask("impl", 5, CheckLimits()), "--cases 40 --seed 5"),
        (ConfigurationTask("impl", 5, CheckLimits(), "invariants"), "--cases 40 --seed 5 --oracle invariants"),
        (
            ConfigurationTask("impl", 5, CheckLimits(findings=None), isolate=True),
            "--cases 40 --seed 5 --keep-going --isolate",
        ),
    ],
)
def test_the_command_that_repeats_a_run_has_what_is_not_usual(task, says):
    again = repeat_command(task, Reach("impl", 5, configurations=40))
    assert again == f"blockproof fuzz-config --target impl {says}"


def test_a_recorded_finding_is_asked_again(outcome):
    result, _, _ = outcome
    (kept,) = result.kept
    recorded = read_finding(kept.path)
    assert ask_recorded(kept.path, recorded, open_calculator(FAULT)).kind == recorded.kind
    assert ask_recorded(kept.path, recorded, open_calculator("impl")) is None
    with pytest.raises(TraceError, match=r"^f.json: inputs: no inputs of a question 'num_blocks'"):
        ask_recorded(Path("f.json"), replace(recorded, op="num_blocks", inputs={}), open_calculator("impl"))
