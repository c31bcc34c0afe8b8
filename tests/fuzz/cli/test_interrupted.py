"""Ctrl-C and closed pipes, at real processes: what was found is kept, and nothing is taken for a finding."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "import sys; from blockproof.fuzz.cli.main import main; sys.exit(main())"]
NEVER_SMALL = '''
from blockproof.fuzz.opening.targets import open_target


class Target:
    """Our core; it raises after 60 operations, so that its traces take long to shrink."""

    def __init__(self):
        self.core, self.name = open_target("impl"), "impl"

    def start(self, shape):
        self.steps = 0
        return self.core.start(shape)

    def step(self, operation):
        self.steps += 1
        if self.steps > 60:
            raise LookupError("too much")
        return self.core.step(operation)

    def close(self):
        self.core.close()


def make_target():
    return Target()
'''


def begun(*arguments, **options):
    """The command, started; what it prints comes at once."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "100"}
    return subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True, env=environment, **options)


def test_ctrl_c_while_a_finding_is_shrunk_keeps_it(tmp_path):
    (tmp_path / "engine.py").write_text(NEVER_SMALL)
    process = begun("fuzz", "--target", "engine.py:make_target", "--out", "found", "--seed", "1", cwd=tmp_path)
    while "shrinking" not in (line := process.stdout.readline()):
        assert line
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=60)[0]
    assert process.returncode == 1
    assert "LookupError: too much" in rest
    assert "repeat the finding: blockproof replay found/" in rest
    assert list((tmp_path / "found").glob("protocol_*.json"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("fuzz", "--operations", "500", "--seed", "1"),
        ("fuzz", "--operations", "500", "--seed", "1", "--json"),
        ("mutants", "--list"),
        ("plan", "gemma-3-27b", "--memory", "60GiB"),
        ("explore", "--list"),
        ("-h",),
    ],
)
def test_a_closed_pipe_is_not_a_finding(arguments, tmp_path):
    process = begun(*arguments, cwd=tmp_path, stderr=subprocess.PIPE)
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(timeout=60) == 141
    assert "Traceback" not in err
    assert "BrokenPipe" not in err


def on_a_terminal(*arguments: str, folder: Path) -> tuple[str, int]:
    """What a command prints on a terminal, and its exit code."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(theirs)
    printed = b""
    try:
        while part := os.read(ours, 65536):
            printed += part
    except OSError:  # the other side is closed
        pass
    os.close(ours)
    return printed.decode(errors="replace"), process.wait(timeout=60)


def test_progress_is_shown_on_a_terminal_and_not_in_a_log(tmp_path):
    arguments = ("mutants", "--only", "free-order-reversed")
    shown, code = on_a_terminal(*arguments, folder=tmp_path)
    assert "0 of 1 fault: free-order-reversed" in shown
    assert code == 0
    logged = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert logged.stdout.splitlines()[-1] == "1 of 1 found"
    assert "0 of 1" not in logged.stdout + logged.stderr
