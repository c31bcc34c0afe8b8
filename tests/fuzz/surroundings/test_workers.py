"""Processes of a command that are killed, cannot start, or are in a strange folder; and signals that end a command."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from blockproof.fuzz.opening.workers import worker_context

SHADOWS = ("types", "enum", "signal", "json", "threading", "typing", "numpy", "random", "socket")
PROGRAM = "import sys; from blockproof.fuzz.cli.main import main; sys.exit(main())"
COMMAND = [sys.executable, "-P", "-c", PROGRAM]


def begun(folder, *words, **more):
    shown = {**os.environ, "COLUMNS": "100", "PYTHONUNBUFFERED": "1"}
    more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
    args = more.pop("args", [*COMMAND, *words])
    return subprocess.Popen(args, cwd=folder, env=shown, start_new_session=True, **more)


def children(process):
    """Worker processes of a command, the first that was started first."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                about = (entry / "stat").read_text().rpartition(")")[2].split()
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if int(about[1]) == process.pid and b"spawn_main" in words:
                found.append(int(entry.name))
    return sorted(found)


def busy(process, seconds):
    """Waits until a worker of a command has had so much processor time, and returns it."""
    end = time.monotonic() + 100
    while time.monotonic() < end and process.poll() is None:
        for child in children(process):
            try:
                about = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if (int(about[11]) + int(about[12])) / os.sysconf("SC_CLK_TCK") > seconds:
                return child
        time.sleep(0.05)
    process.kill()
    raise AssertionError(f"no worker came up: {process.communicate()}")


@pytest.fixture
def strange(tmp_path):
    """A folder with files that have the names of Python's own modules."""
    for name in SHADOWS:
        (tmp_path / f"{name}.py").write_text(f"raise RuntimeError('{name} of the current folder')\n")
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ("fuzz", "--jobs", "2", "--operations", "400", "--seed", "1"),
        ("campaign", "--target", "impl", "--operations", "200", "--attention", "full", "--seed", "1"),
        ("campaign", "--target", "impl", "--operations", "200", "--attention", "full", "--store", "s.sqlite"),
        ("explore", "full-evicted", "--jobs", "2"),
    ],
)
def test_files_of_the_current_folder_hide_no_module_from_workers(words, strange):
    done = begun(strange, *words)
    out, err = done.communicate(timeout=200)
    assert done.returncode == 0, err
    assert "of the current folder" not in out + err


def test_a_target_named_by_its_path_finds_its_neighbours_in_a_worker(tmp_path):
    (tmp_path / "neighbour.py").write_text("from blockproof.fuzz.opening.targets import open_here as core\n")
    (tmp_path / "mine.py").write_text("import neighbour\n\n\ndef make():\n    return neighbour.core('impl')\n")
    for name in ("mine.py:make", "mine:make"):
        words = ["--target", name, "--jobs", "2", "--operations", "300", "--seed", "1", "--no-isolate"]
        done = begun(tmp_path, "fuzz", *words)
        _, err = done.communicate(timeout=200)
        assert done.returncode == 0, err


def test_what_a_worker_starts_looks_for_modules_as_ever():
    ours, theirs = worker_context().Pipe()
    process = worker_context().Process(target=tell, args=(theirs,))
    process.start()
    assert ours.recv() == os.environ.get("PYTHONSAFEPATH")
    process.join()


def tell(pipe):
    """What the worker says of its variables."""
    pipe.send(os.environ.get("PYTHONSAFEPATH"))


def test_a_killed_worker_makes_a_campaign_no_success_and_the_others_go_on(tmp_path):
    words = ["--target", "impl", "--operations", "60000", "--attention", "full,mamba", "--seed", "1", "--jobs", "2"]
    process = begun(tmp_path, "campaign", *words, "--json")
    os.kill(busy(process, 1.0), signal.SIGKILL)
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 3
    (row,) = json.loads(out)["targets"]
    assert row["problem"] == "its process ended with status -9"
    assert not row["done"]
    cut, whole = sorted(cell["operations"] for cell in row["cells"].values())
    assert 0 < cut < 30_000 <= whole


def test_a_killed_worker_ends_an_exploration_with_3(tmp_path):
    process = begun(tmp_path, "explore", "full+mamba", "--jobs", "2")
    os.kill(busy(process, 0.8), signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "NOT EXHAUSTED (a process was lost)" in out
    assert "a process was lost: what was not visited may be wrong" in err


def test_workers_that_cannot_start_end_an_exploration(tmp_path):
    begin = "from multiprocessing import resource_tracker, spawn; resource_tracker.ensure_running()"
    program = f"{begin}; spawn.set_executable('/bin/false'); {PROGRAM}"
    command = [sys.executable, "-P", "-c", program, "explore", "full-evicted", "--jobs", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 3, done.stderr


def test_what_was_found_before_a_worker_was_killed_is_told(tmp_path):
    words = ["--target", "fault:touch-ignores-used-blocks", "--attention", "full", "--seed", "2", "--jobs", "2"]
    process = begun(tmp_path, "fuzz", *words, "--keep-going", "--seconds", "600")
    os.kill(busy(process, 1.0), signal.SIGKILL)
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 1
    assert "FOUND: " in out
    assert "NOT ALL OF IT RAN: " in out


@pytest.mark.parametrize("whole_group", [False, True])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_a_run_with_its_report_and_quiet_workers(number, whole_group, tmp_path):
    process = begun(tmp_path, "fuzz", "--jobs", "2", "--seconds", "600", "--seed", "1")
    busy(process, 0.5)
    (os.killpg if whole_group else os.kill)(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert f"interrupted by {'Ctrl-C' if number == signal.SIGINT else number.name}" in out
    assert "repeat this run: " in out
    assert "Traceback" not in err
    assert "BrokenPipe" not in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("json_too", [False, True])
def test_a_finding_is_kept_when_a_signal_ends_the_run(number, json_too, tmp_path):
    words = ["--target", "fault:touch-ignores-used-blocks", "--attention", "full", "--seed", "2", "--keep-going"]
    process = begun(tmp_path, "fuzz", *words, "--jobs", "2", "--seconds", "600", *(["--json"] if json_too else []))
    busy(process, 1.0)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert list((tmp_path / "findings").glob("*.json"))
    assert json.loads(out)["interrupted"] if json_too else "FOUND: " in out


def test_a_signal_that_is_not_to_be_heard_is_not(tmp_path):
    ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # noqa: E731 - as nohup does
    process = begun(tmp_path, "fuzz", "--operations", "3000", "--seed", "1", "--jobs", "2", preexec_fn=ignore)
    busy(process, 0.3)
    process.send_signal(signal.SIGHUP)
    out, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    assert "no difference" in out


def test_a_signal_is_heard_where_another_program_listens_too(tmp_path):
    theirs = f"import os, signal; signal.signal(signal.SIGTERM, lambda *_: os._exit(9)); {PROGRAM}"
    words = [sys.executable, "-P", "-c", theirs, "fuzz", "--jobs", "2", "--seconds", "600", "--seed", "1"]
    process = begun(tmp_path, args=words)
    busy(process, 0.3)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted by SIGTERM" in out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_its_command(number, tmp_path):
    process = begun(tmp_path, "fuzz", "--jobs", "2", "--seconds", "600", "--seed", "1")
    busy(process, 0.5)
    left = children(process)
    process.send_signal(number)
    process.wait(60)
    end = time.monotonic() + 60
    while time.monotonic() < end and any(Path(f"/proc/{child}").exists() for child in left):
        time.sleep(0.1)
    assert not any(Path(f"/proc/{child}").exists() for child in left)


def test_an_exploration_and_a_job_of_ci_end_at_sigterm(tmp_path):
    process = begun(tmp_path, "explore", "full+mamba", "--jobs", "2", "--save", "kept")
    busy(process, 0.5)
    os.killpg(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert list((tmp_path / "kept").glob("*.states"))
    job = begun(tmp_path, "ci", "--target", "impl", "--seconds", "600", "--seed", "1")
    while not (line := job.stdout.readline()).startswith("fuzzing impl"):
        assert line
    time.sleep(1)
    job.send_signal(signal.SIGTERM)
    out, err = job.communicate(timeout=240)  # it writes its pages, slowly where coverage is measured
    assert job.returncode == 130, err
    assert "interrupted by Ctrl-C" in out  # as which it is passed on
    assert (tmp_path / "blockproof-report" / "fuzz.md").is_file()
