"""Commands that are no targets: run to their end, or read line by line while they print.

Each has a process group of its own, so that whatever ends it early, Ctrl-C included, ends all that it has started.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_POLL_S = 0.1
_GRACE_S = 0.3
"""How long a command has to tidy up after itself before it is killed."""


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    status: int | None
    """Exit status; None if its time was over."""
    output: str
    errors: str = ""

    @property
    def lines(self) -> list[str]:
        """Its lines that are not empty, those of the output first."""
        return [line.strip() for line in (self.output + self.errors).splitlines() if line.strip()]

    @property
    def error(self) -> str:
        """The last line that names an error as pip does, else the last line."""
        lines = self.lines or ["it said nothing"]
        return ([line for line in lines if line.startswith("ERROR:")] or lines)[-1].removeprefix("ERROR: ")

    def documents(self) -> list[dict[str, Any]]:
        """The JSON objects that it has printed, a line each, among others."""
        return [json.loads(line) for line in self.output.splitlines() if line.startswith('{"')]


def run(
    command: Sequence[str],
    *,
    seconds: float | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    given: str | None = None,
    together: bool = False,
    meanwhile: Callable[[], None] | None = None,
) -> Ran:
    """Run a command to its end, or for so many seconds. OSError if there is no such command.

    `environment`: all its variables, None for ours; `folder`: where it runs; `given`: its input; `together`: its errors
    are in its output, in order; `meanwhile` is called now and then.
    """
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if together else subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    end = None if seconds is None else time.monotonic() + seconds
    try:
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            wait = left if meanwhile is None else min(_POLL_S, _POLL_S if left is None else left)
            try:
                output, errors = process.communicate(given, wait)
                return Ran(process.returncode, output, errors or "")
            except subprocess.TimeoutExpired:
                given = None  # what was sent is not sent again
                if end is not None and time.monotonic() >= end:
                    break
            if meanwhile is not None:
                meanwhile()
    finally:
        if process.returncode is None:
            _end(process)
    output, errors = process.communicate()
    return Ran(None, output, errors or "")


def _end(process: "subprocess.Popen[str]") -> None:
    """End a command and what it has started, politely first: git then takes its lock files with it."""
    for name, patience in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, name)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)


class Printing:
    """A command whose output is JSON objects, a line each, among others. Leaving the block ends it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def __enter__(self) -> "Printing":
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            _end(self._process)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """What it prints, until it ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"'):
                yield json.loads(line)

    def status(self) -> int:
        """Its exit status, once it has ended."""
        return self._process.wait()
