"""`blockproof fuzz-config`: exit codes, one-line errors, and the files it leaves and asks again."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from blockproof.fuzz.cli import main as cli
from blockproof.fuzz.configuration.questions import Question

from ..fakes import RUNNING, seen_from_everywhere
from ..waiting import said_at_ctrl_c

HERE = Path(__file__).parents[1]
FAULT = "fault:one-block-more"
BLOCKS = Question("num_blocks", {"draws": [[2, 4096, 512]], "vllm_config": {}})


@pytest.fixture(autouse=True)
def calculators_importable(monkeypatch):
    monkeypatch.syspath_prepend(HERE)


def test_a_run_without_a_finding_exits_with_0_and_says_how_to_repeat_it(capsys):
    assert cli.main(["fuzz-config", "--cases", "40", "--seed", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "fuzzing the configuration arithmetic of impl, seed 3"
    again = lines[-1].split("repeat this run: ")[1]
    assert cli.main(again.split()[1:]) == 0
    repeated = capsys.readouterr().out.splitlines()
    before, after = ([line for line in told[2:] if not line.startswith("slow: ")] for told in (lines, repeated))
    assert after == before  # but for the lines that say how fast the machine was


def test_a_finding_exits_with_1_and_leaves_files_that_can_be_replayed(tmp_path, capsys):
    assert cli.main(["fuzz-config", "--target", FAULT, "--seed", "0", "--out", str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert '-  "num_blocks"' in text
    whole, small = sorted(tmp_path.iterdir(), key=lambda path: -path.stat().st_size)
    assert f"blockproof replay {small}" in text
    for path in (whole, small):
        assert str(path) in text
        assert cli.main(["replay", str(path)]) == 1
        assert "lockstep: config_from_groups" in capsys.readouterr().out
        assert cli.main(["replay", str(path), "--target", "impl"]) == 0
        assert capsys.readouterr().out == "config_from_groups: impl agrees\n"


def test_json_is_one_document_with_counts_and_findings(tmp_path, capsys):
    arguments = ["fuzz-config", "--target", FAULT, "--seed", "0", "--out", str(tmp_path), "--json"]
    assert cli.main(arguments) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["target"], document["seed"], document["findings"]) == (FAULT, 0, 1)
    assert document["found"][0]["op"] == "config_from_groups"
    assert document["configurations"] == sum(
        times for name, times in document["situations"].items() if name.startswith("workers: ")
    )
    assert cli.main(["replay", "--json", document["found"][0]["file"]]) == 1
    assert json.loads(capsys.readouterr().out)["found"]["op"] == "config_from_groups"


def test_a_floor_that_is_not_reached_is_said_and_exits_with_1(tmp_path, capsys):
    floors = tmp_path / "floors.toml"
    floors.write_text("[total]\nconfigurations = 10\n[specs]\nMambaSpec = 100000\n[ops]\ngroups = 1\n")
    assert cli.main(["fuzz-config", "--cases", "10", "--seed", "1", "--floors", str(floors)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "floor" in line and "specs: 'MambaSpec'" in line]
    assert not [line for line in lines if "ops: 'groups'" in line]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--target", "nothing"], "unknown target 'nothing'"),
        (["--target", "fault:nothing"], "unknown fault 'nothing'"),
        (["--cases", "0"], "--cases"),
        (["--oracle", "magic"], "--oracle"),
        (["--replay", "missing.json"], "--replay is now a command of its own: blockproof replay FILE"),
        (["--floors", "missing.toml"], "missing.toml: no such file"),
    ],
)
def test_wrong_usage_is_one_line_and_exits_with_2(arguments, problem, capsys):
    assert cli.main(["fuzz-config", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert problem in shown.err
    assert shown.err.count("\n") == 1


def test_a_target_that_is_not_there_exits_with_3(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cli.main(["fuzz-config", "--target", "vllm==0.1.2", "--cases", "1"]) == 3
    assert "vllm==0.1.2 is not installed" in capsys.readouterr().err


def test_a_replayed_file_runs_no_code_that_it_names(tmp_path, capsys):
    path = tmp_path / "finding.json"
    question = {"blockproof_configuration": 1, "oracle": "lockstep", "op": "num_blocks", "inputs": BLOCKS[1]}
    path.write_text(json.dumps({**question, "expected": 1, "actual": 2, "sides": ["Rules", "evil:code"], "seed": ""}))
    assert cli.main(["replay", str(path)]) == 2
    assert "if you trust that code" in capsys.readouterr().err


def test_a_replayed_file_without_a_question_in_it_is_one_line(tmp_path, capsys):
    path = tmp_path / "finding.json"
    question = {"blockproof_configuration": 1, "oracle": "lockstep", "op": "num_blocks", "inputs": {}}
    path.write_text(json.dumps({**question, "expected": 1, "actual": 2, "sides": ["Rules", "impl"], "seed": ""}))
    assert cli.main(["replay", str(path)]) == 2
    shown = capsys.readouterr().err
    assert str(path) in shown
    assert shown.count("\n") == 1


def test_ctrl_c_ends_the_run_with_what_was_reached(tmp_path):
    words = ["fuzz-config", "--target", "calculators:says_when_running", "--seconds", "600", "--seed", "1"]
    command = [sys.executable, "-m", "blockproof.fuzz.cli", *words]
    environment = {**os.environ, **seen_from_everywhere(), RUNNING: str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        text = said_at_ctrl_c(process, tmp_path)
    assert process.returncode == 130
    assert text.startswith("fuzzing")
    assert "ended by Ctrl-C" in text
    assert "--cases" in text
