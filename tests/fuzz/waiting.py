"""Waiting for something to happen, never for time to pass."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

PATIENCE_S = 120.0
"""Only a failure takes that long, whatever else the machine has to do."""
T = TypeVar("T")


def wait_until(happened: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """What `happened` returns, as soon as that counts as true. AssertionError if it never does."""
    end = time.monotonic() + patience_s
    while not (result := happened()):
        assert time.monotonic() < end, f"nothing happened within {patience_s:g} s"
        time.sleep(0.01)
    return result


def said_at_ctrl_c(process: subprocess.Popen[str], folder: Path) -> str:
    """What a process says when Ctrl-C reaches it, as soon as it has left a file in this folder. It ends with that."""
    try:
        wait_until(lambda: list(folder.iterdir()))
        process.send_signal(signal.SIGINT)
        return process.communicate(timeout=PATIENCE_S)[0]
    finally:
        process.kill()


def gone(pid: int) -> bool:
    """True if the process has ended; a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
