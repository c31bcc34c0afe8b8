"""The tests of the pytest plugin that fuzz."""

import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

from .conftest import ALONE_AND_SHARED, KEEPS

pytest_plugins = ["pytester"]
FUZZ = ("--blockproof-seconds", "0.3", "--blockproof-attention", "full")


def test_there_is_a_test_for_each_attention_type(project):
    done = project.run("--blockproof-seconds", "1", "--collect-only", "-q")
    names = re.findall(r"^blockproof::fuzz\[(.*)\]$", done.stdout.str(), re.MULTILINE)
    assert {"full", "sliding", "full+sliding+mamba"} <= set(names)
    assert len(set(names)) == len(names)
    some = project.run("--blockproof-seconds", "1", "--collect-only", "-q", "-k", "fuzz and mamba")
    assert "fuzz[mamba]" in some.stdout.str()
    assert "fuzz[full]" not in some.stdout.str()


def test_what_the_target_does_not_build_is_skipped_and_the_rest_is_fuzzed(project):
    """As a target would do that does not say in `lacks` what it lacks."""
    project.change("my_target.py", ' for kind in get_args(Kind) if kind != "full"', " for kind in ()")
    project.change("my_target.py", '"hybrids", ', "")
    done = project.run("--blockproof-seconds", "0.2", "-rs", "-k", "full] or sliding] or mamba]")
    outcomes = done.parseoutcomes()
    assert outcomes["passed"] == 1
    assert outcomes["skipped"] > 5
    done.stdout.fnmatch_lines(["*my_target:make_target builds no core with full+sliding*"])
    asked = project.run("--blockproof-seconds", "0.2", "--blockproof-attention", "sliding")
    asked.assert_outcomes(passed=1, failed=1)
    asked.stdout.fnmatch_lines(["tests nothing: my_target:make_target builds no core with sliding, *"])


@pytest.mark.parametrize("workers", ALONE_AND_SHARED)
@pytest.mark.slow
def test_a_finding_is_told_in_steps_and_can_be_repeated(project, workers):
    project.break_engine()
    words = ("--blockproof-seconds", "60", "--blockproof-attention", "full", "--blockproof-seed", "1")
    done = project.run(*words, *workers, apart=True)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(
        [
            "*_ fuzzing full _*",
            "contract: S10 is violated at operation *: Allocate *",
            "   0  Submit *",
            "  block * was handed out and keeps its old identity, label *",
            "repeat it: blockproof replay findings/s10_allocate_*.json --target my_target:make_target",
            "repeat the search: blockproof fuzz --target my_target:make_target --seed *",
            "FAILED blockproof::fuzz[[]full[]] - Failed: contract: *",
        ]
    )
    for what in ("repeat it", "repeat the search"):
        said = shlex.split(re.search(rf"^{what}: (.*)$", done.stdout.str(), re.MULTILINE)[1])
        command = [sys.executable, "-m", "blockproof.fuzz.cli", *said[1:]]
        again = subprocess.run(command, cwd=project.path, capture_output=True, text=True, check=False)
        assert again.returncode == 1, again.stdout + again.stderr
        assert "S10" in again.stdout


def test_nothing_is_found_in_the_example(project):
    project.run(*FUZZ).assert_outcomes(passed=2)


@pytest.mark.parametrize("workers", ALONE_AND_SHARED)
def test_the_seed_is_shown_and_all_workers_have_it(project, workers):
    project.break_engine()
    done = project.run("--blockproof-seconds", "60", "--blockproof-attention", "full", *workers)
    shown = re.search(r"^blockproof: fuzzing my_target:make_target, seed (\d+)$", done.stdout.str(), re.MULTILINE)
    assert set(re.findall(r"--seed (\d+)", done.stdout.str())) == {shown[1]}


def test_a_seed_that_was_given_is_taken(project):
    project.run(*FUZZ, "--blockproof-seed", "17").stdout.fnmatch_lines(["blockproof: *, seed 17"])


@pytest.mark.slow
def test_a_known_finding_is_counted_and_not_failed(project):
    project.break_engine()
    command = [sys.executable, "-m", "blockproof.fuzz.cli", "fuzz", "--target", "my_target:make_target"]
    command += ["--oracle", "contract", "--seed", "6", "--operations", "3000", "--out", "elsewhere"]
    subprocess.run([*command, "--write-known", "known.toml"], cwd=project.path, capture_output=True, check=False)
    known = project.path / "known.toml"
    text = known.read_text(encoding="utf-8")
    known.write_text(re.sub(r'^reason = ".*"$', 'reason = "to be lived with"', text, flags=re.MULTILINE))
    judged = ("--blockproof-oracle", "contract", "--blockproof-seed", "6")  # runs in which nothing else comes up
    tests = ("test_other.py", *FUZZ, *judged)  # not those that the command above has written
    project.run(*tests).assert_outcomes(passed=1, failed=1)
    project.run(*tests, "--blockproof-known", "known.toml").assert_outcomes(passed=2)


def test_a_target_that_refuses_all_fails(project):
    project.settings(oracle="shadow")
    project.change("my_target.py", "        if new is None:\n", "        if True:\n")
    done = project.run("--blockproof-seconds", "0.5", "--blockproof-attention", "full")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["tests nothing: no allocation succeeded in *"])


def test_a_crash_is_a_failure_of_an_isolated_target(project):
    project.change("my_engine.py", KEEPS, "        import os\n        os.abort()\n")
    done = project.run(*FUZZ, "--blockproof-isolate")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*crash*"])


@pytest.mark.slow
def test_ctrl_c_ends_the_run(project):
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", "--blockproof-seconds", "60"]
    command += ["--blockproof-target", "my_target:make_target", "--blockproof-attention", "full"]
    running = subprocess.Popen(command, cwd=project.path, stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        while "fuzzing my_target:make_target under" not in (line := running.stdout.readline()):
            assert line, "it ended before it began to fuzz"
        time.sleep(0.3)
        running.send_signal(signal.SIGINT)
        rest = running.communicate(timeout=30)[0]
    finally:
        running.kill()
    assert running.returncode == pytest.ExitCode.INTERRUPTED
    assert "KeyboardInterrupt" in rest
