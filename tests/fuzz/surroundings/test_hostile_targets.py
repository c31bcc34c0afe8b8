"""A target that ends, robs or changes its process loses no finding, and is not green for having ended the harness."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TARGETS = Path(__file__).with_name("hostile_targets.py")
COMMAND = [sys.executable, "-c", "import sys; from blockproof.fuzz.cli.main import main; sys.exit(main())"]
WHERE = ["--isolate", "--no-isolate"]


def fuzz(name, folder, *options, seconds=120):
    command = [*COMMAND, "fuzz", "--target", f"{TARGETS}:{name}", "--seed", "1", "--operations", "300", *options]
    shown = {**os.environ, "COLUMNS": "100"}
    return subprocess.run(command, cwd=folder, env=shown, capture_output=True, text=True, timeout=seconds)


@pytest.mark.parametrize("where", ["", "--no-isolate"])  # it is isolated by default
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("panics", "the target raised Panic: called `Option::unwrap()`"),
        ("cancels", "the target raised CancelledError"),
        ("is_left", "the target raised GeneratorExit"),
        ("exits_as_if_well", "the target ended the process"),
        ("is_interrupted_by_itself", "the target raised KeyboardInterrupt"),
        ("ends_the_process", ""),
        ("leaves_the_folder", "the target raised Panic: elsewhere"),
    ],
)
def test_what_ends_a_target_is_a_finding(name, what, where, tmp_path):
    done = fuzz(name, tmp_path, "--shrink-seconds", "0", *where.split())  # each attempt would be a new process
    assert done.returncode == 1, done.stderr
    assert "FOUND: the target was lost" in done.stdout
    assert what in done.stdout
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "findings").glob("*.json"))


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(
    "name", ["takes_the_streams", "closes_the_streams", "allows_little_recursion", "leaves_a_thread", "hears_no_signal"]
)
def test_what_a_target_does_to_its_process_ends_nothing(name, where, tmp_path):
    done = fuzz(name, tmp_path, where)
    assert done.returncode == 0, done.stderr
    assert "no difference in 3" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("repeat this run: blockproof fuzz")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("where", WHERE)
def test_a_panic_while_a_target_is_made_is_told_in_a_line(where, tmp_path):
    done = fuzz("panics_while_it_is_made", tmp_path, where)
    assert done.returncode == 3
    assert "the factory failed: Panic: not today" in done.stderr
    assert "Traceback" not in done.stderr


def test_your_own_code_is_isolated_by_default_and_the_command_that_repeats_says_what_is_not(tmp_path):
    assert "isolate" not in fuzz("leaves_a_thread", tmp_path).stdout.splitlines()[-1]
    assert "--no-isolate" in fuzz("leaves_a_thread", tmp_path, "--no-isolate").stdout.splitlines()[-1]


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_end_nothing(closed, tmp_path):
    script = f"{sys.executable} -m blockproof.fuzz.cli fuzz --operations 200 --seed 1 {closed}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "bug of blockproof" not in done.stderr + done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(("target", "code"), [("impl", 2), ("fault:touch-ignores-used-blocks", 1)])
@pytest.mark.parametrize("form", ["", "--json"])
def test_an_output_that_cannot_be_printed_hides_no_finding(target, code, form, tmp_path):
    words = f"fuzz --target {target} --operations 900 --seed 2 {form}"
    script = f"{sys.executable} -m blockproof.fuzz.cli {words} > /dev/full"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == code
    assert "No space left on device" in done.stderr
    assert list((tmp_path / "findings").glob("*.json")) if code == 1 else True
