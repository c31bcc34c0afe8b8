"""The command line: exit codes, one-line errors, and what is left of a finding."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from blockproof.fuzz.cli import main as cli
from blockproof.fuzz.engines.seeded import ENGINES, run_random
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.targets.base import TargetUnavailableError
from blockproof.fuzz.traces.trace_file import TraceFile, read_trace, write_trace
from blockproof.model.ops import Allocate, Free, Group, Shape, Submit

from ..fakes import RUNNING, seen_from_everywhere
from ..waiting import PATIENCE_S, wait_until

FAULT = "fault:free-order-reversed"
SHAPE = Shape((Group("full", 1),), 3, 2, hash_block_size=1, scheduler_block_size=1, max_num_batched_tokens=1)
LEAST = (Submit("a", (0,)), Allocate("a", 2), Free("a"))


def blockproof(*arguments, cwd=None, **options):
    command = [sys.executable, "-m", "blockproof.fuzz.cli", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, **options)


@pytest.fixture
def trace(tmp_path):
    """A trace that is longer than it need be."""
    path = tmp_path / "long.json"
    spare = (Submit("b", (0,)), Allocate("a", 2, lookahead=1), Free("c"))
    write_trace(TraceFile(Trace(SHAPE, (LEAST[0], *spare, *LEAST[1:])), FAULT), path)
    return path


def test_a_run_without_a_finding_exits_with_0_and_says_how_to_repeat_it(capsys):
    assert cli.main(["fuzz", "--operations", "300", "--seed", "3", "--attention", "full,mamba"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "fuzzing impl under lockstep, shadow, engine random, seed 3"
    again = lines[-1].removeprefix("repeat this run: ")
    assert cli.main(again.split()[1:]) == 0
    repeated = capsys.readouterr().out.splitlines()
    assert repeated[2:] == lines[2:]


def test_a_finding_exits_with_1_and_leaves_a_minimal_trace_and_a_failing_test(tmp_path, capsys):
    assert cli.main(["fuzz", "--target", FAULT, "--seed", "3", "--seconds", "20", "--out", str(tmp_path / "out")]) == 1
    text = capsys.readouterr().out
    names = sorted(name for name in os.listdir(tmp_path / "out") if "_whole" not in name)
    assert [Path(name).suffix for name in names] == [".html", ".json", ".py"]
    file = read_trace(tmp_path / "out" / names[1])
    assert len(file.trace.operations) == 3
    assert (file.target, file.finding.observable, file.found_by.seed) == (FAULT, "free", 3)
    assert "shrunk to 3 operations" in text
    command = text.split("repeat the finding: ")[1].splitlines()[0]
    assert cli.main(command.split()[1:]) == 1
    test = tmp_path / "out" / names[2]
    run = subprocess.run([sys.executable, "-m", "pytest", "-q", test], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 1
    assert "model and target differ in `free`" in run.stdout
    fixed = {**os.environ, "BLOCKPROOF_TARGET": "impl"}
    again = subprocess.run([sys.executable, "-m", "pytest", "-q", test], capture_output=True, cwd=tmp_path, env=fixed)
    assert again.returncode == 0


def test_json_is_one_document_on_stdout(tmp_path, capsys):
    assert cli.main(["fuzz", "--operations", "200", "--seed", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["operations"] >= 200
    out = str(tmp_path)
    assert cli.main(["fuzz", "--target", FAULT, "--seed", "3", "--seconds", "20", "--out", out, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["reproduction"]["operations"] == 3
    assert document["finding"]["observable"] == "free"
    assert cli.main(["replay", document["reproduction"]["trace"], "--show", "--json"]) == 1
    replayed = json.loads(capsys.readouterr().out)
    assert len(replayed["steps"]) == 3
    assert replayed["finding"]["step"] == 2


def test_two_jobs_use_different_seeds_and_add_up(capsys):
    run = blockproof("fuzz", "--operations", 2000, "--jobs", 2, "--seed", 9, "--json")
    both = json.loads(run.stdout)
    assert run.returncode == 0
    singles = []
    for seed in ("9", "10"):
        assert cli.main(["fuzz", "--operations", "1000", "--seed", seed, "--json"]) == 0
        singles.append(json.loads(capsys.readouterr().out))
    assert both["operations"] == sum(single["operations"] for single in singles)
    assert both["outcomes"]["Submit"]["Done"] == sum(single["outcomes"]["Submit"]["Done"] for single in singles)


def test_a_finding_of_one_job_ends_all(tmp_path):
    run = blockproof("fuzz", "--target", FAULT, "--jobs", 2, "--seed", 9, "--seconds", 60, "--out", tmp_path)
    assert run.returncode == 1
    assert "shrunk to 3 operations" in run.stdout


def test_replay_agrees_on_our_core_and_shows_the_difference_on_a_faulty_one(trace, capsys):
    assert cli.main(["replay", str(trace)]) == 1
    assert "differ in `free` at operation" in capsys.readouterr().out
    assert cli.main(["replay", str(trace), "--target", "impl"]) == 0
    text = capsys.readouterr().out
    assert "left out, since they make no sense where they stand: 1" in text
    assert "no difference in 5 operations on impl" in text


def test_replay_shows_numbered_steps_with_what_they_change_and_can_stop_early(trace, capsys):
    assert cli.main(["replay", str(trace), "--show", "--until", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("shape: full(block_size=1), num_blocks=3")
    assert lines[1] == "   0  Submit a, prompt=(0,)  ->  1"
    assert "   2  Allocate a, new_tokens=2, lookahead=1  ->  ((1, 2),)" in lines
    assert "        free: [1, 2] -> []" in lines
    assert lines[-2].startswith("no difference in 3 operations")
    assert lines[-1].startswith("judged by lockstep, shadow")


def test_shrink_writes_the_short_trace_beside_the_long_one(trace, capsys):
    assert cli.main(["shrink", str(trace)]) == 1
    path = Path(capsys.readouterr().out.split("trace:  ")[1].splitlines()[0])
    assert path.parent == trace.parent
    assert read_trace(path).trace.operations == LEAST
    assert cli.main(["shrink", str(trace), "--target", "impl"]) == 0
    assert "nothing to shrink" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["frob"], 2, "No such command 'frob'"),
        (["fuzz", "--seconds", "soon"], 2, "--seconds"),
        (["fuzz", "--engine", "hypothesis"], 2, "Hypothesis draws for kv_cache_machine of blockproof.fuzz"),
        (["fuzz", "--attention", "full,sidling"], 2, "'sidling' is unknown; did you mean 'sliding'?"),
        (["fuzz", "--attention", ","], 2, "an empty list"),
        (["fuzz", "--target", "our core"], 2, "--target: unknown target 'our core'; write one of"),
        (["fuzz", "--target", "fault:none"], 2, "unknown fault 'none'"),
        (["fuzz", "--target", "no_such_module:core"], 3, "cannot import no_such_module"),
        (["fuzz", "--target", "vllm==0.0.1"], 3, "blockproof targets install vllm==0.0.1"),
        (["fuzz", "--floors", "none.toml"], 2, "none.toml: no such file"),
        (["fuzz", "--operations", "1", "--junit", "/dev/null/x"], 2, "/dev/null"),
        (["replay", "none.json"], 2, "none.json: no such file"),
        (["replay"], 2, "TRACE"),
        (["shrink", "."], 2, ".: is a directory"),
        (["mutants", "--only", "none"], 2, "no fault is called 'none'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments, code, part, capsys):
    assert cli.main(arguments) == code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("blockproof: ")
    assert part in lines[0]


def test_a_bug_of_blockproof_is_called_one(capsys, monkeypatch):
    def broken(path):
        raise ZeroDivisionError("of all things")

    monkeypatch.setattr("blockproof.fuzz.traces.trace_file.read_trace", broken)
    assert cli.main(["replay", "t.json"]) == 70
    lines = capsys.readouterr().err.splitlines()
    assert "ZeroDivisionError: of all things" in lines
    assert "this is a bug of blockproof" in lines[-1]


def test_floors_and_reports_are_written_and_decide_the_exit_code(tmp_path, capsys):
    floors = tmp_path / "floors.toml"
    floors.write_text('[situations]\n"never heard of" = 1\n')
    files = ["--junit", str(tmp_path / "new" / "j.xml"), "--write", str(tmp_path / "s.md"), "--floors", str(floors)]
    assert cli.main(["fuzz", "--operations", "100", "--seed", "1", *files]) == 1
    assert "situation 'never heard of' reached 0 times, floor 1" in capsys.readouterr().out
    assert "never heard of" in (tmp_path / "new" / "j.xml").read_text()
    assert (tmp_path / "s.md").read_text().startswith("## blockproof: no difference")


def test_mutants_lists_finds_and_measures(capsys):
    assert cli.main(["mutants", "--list"]) == 0
    assert "free-order-reversed" in capsys.readouterr().out
    assert cli.main(["mutants", "--only", "free-order-reversed", "--json"]) == 0
    (hunt,) = json.loads(capsys.readouterr().out)["faults"]
    assert (hunt["found"], hunt["observable"], hunt["shrunk_to"]) == (True, "free", 3)
    assert cli.main(["mutants", "--only", "usage-counts-null-block", "--oracle", "liveness", "--operations", "50"]) == 1
    assert "0 of 1 found; missed: usage-counts-null-block" in capsys.readouterr().out


def test_mutants_hunts_the_catalogue_with_several_seeds_and_every_detector(capsys):
    words = ["mutants", "--real", "--only", "claimed-hit-reset", "--operations", "400", "--seeds", "2"]
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert "V13   https://github.com/ROCm/ATOM/pull/902" in out
    assert re.search(r"median of 2 seeds: \d+, \d+ operations", out)
    assert cli.main([*words, "--matrix"]) == 0
    out = capsys.readouterr().out
    assert "not run" in out
    assert "not run: prove, as it proves rules of the model" in out
    assert cli.main([*words, "--matrix", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["faults"]
    assert (row["bug"], row["found"], row["detectors"]["prove"]) == ("V13", True, None)
    assert len(row["seeds"]) == 2
    assert cli.main(["mutants", "--real", "--list"]) == 0
    assert "free-order-reversed" not in capsys.readouterr().out
    assert cli.main(["mutants", "--only", "claimed-hit-reset"]) == 2


def test_a_target_that_is_lost_for_good_exits_with_3(monkeypatch, capsys):
    def unavailable(spec, isolate=False):
        raise TargetUnavailableError("gone; run: blockproof targets install it")

    monkeypatch.setattr("blockproof.fuzz.opening.targets.open_target", unavailable)
    assert cli.main(["fuzz"]) == 3
    assert capsys.readouterr().err == "blockproof: gone; run: blockproof targets install it\n"


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_ends_a_run_with_its_report(jobs, tmp_path):
    words = ["fuzz", "--target", "fakes:says_when_running", "--seconds", "600", "--jobs", str(jobs)]
    command = [sys.executable, "-m", "blockproof.fuzz.cli", *words]
    environment = {**os.environ, **seen_from_everywhere(), RUNNING: str(tmp_path)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    )
    try:
        wait_until(lambda: len(list(tmp_path.iterdir())) == jobs)  # all are in the middle of their work
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert out.startswith("fuzzing fakes:says_when_running")
    assert "ended by Ctrl-C" in out
    assert "repeat this run: " in out
    assert out.splitlines()[-1].startswith("interrupted by Ctrl-C after ")


def test_a_target_that_crashes_in_this_process_shows_where(tmp_path):
    """It ends the process, and no report can be printed."""
    (tmp_path / "dying.py").write_text("import os\n\n\ndef make():\n    os.kill(os.getpid(), 11)\n")
    done = blockproof("fuzz", "--target", "dying.py:make", "--no-isolate", cwd=tmp_path)
    assert done.returncode == -signal.SIGSEGV
    assert 'dying.py", line 5 in make' in done.stderr


def test_ctrl_c_in_the_middle_keeps_what_was_done(monkeypatch, capsys):
    made = []

    def interrupted(target, plan, summary, on_progress):
        made.append(summary)
        run_random(target, replace(plan, seconds=None, operations=500), summary, on_progress)
        raise KeyboardInterrupt

    monkeypatch.setitem(ENGINES, "random", interrupted)
    assert cli.main(["fuzz", "--seconds", "600"]) == 130
    text = capsys.readouterr().out
    assert "ended by Ctrl-C" in text
    assert made[0].runs > 2
    assert f": {made[0].runs} runs, {made[0].operations} operations" in text


def test_help_of_every_command_has_an_example(capsys):
    for command in ("fuzz", "replay", "shrink", "mutants"):
        assert cli.main([command, "-h"]) == 0
        assert f"Example: blockproof {command}" in capsys.readouterr().out
