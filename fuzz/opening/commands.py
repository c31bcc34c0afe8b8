"""Commands that are no targets: run to their end, or read line by line while they print.

Each has a process group of its own, so that whatever ends it early, Ctrl-C included, ends all that it has started.
"""

import json
import os
import select
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
KEPT = 1 << 14
"""Bytes of what a process has printed that are kept, the last ones; and so many lines of them are told."""
LAST_LINES = 20
TIMED_OUT = "Timeout ("
CRASHED, STACK = ("Fatal Python error", TIMED_OUT), "(most recent call first):"
"""With these words the interpreter begins to say why it ends the process, and ends the line before a stack."""
OUTSIDE = "it did not come back to Python"
"""How a process has ended that hangs where no signal is heard, as in a loop of C++."""
_DRIVER = ("/fuzz/simulation/run.py", "/fuzz/engines/forked.py")


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


def _end(process: "subprocess.Popen[Any]") -> None:
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
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._lines, self._errors = self._process.stdout, self._process.stderr
        self._kept = b""

    def __enter__(self) -> "Printing":
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            _end(self._process)
        self._lines.close()
        self._errors.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """What it prints, until it ends. A process that it has left behind is not waited for."""
        readable, begun = select.poll(), b""
        for file in (self._lines, self._errors):
            os.set_blocking(file.fileno(), False)
            readable.register(file, select.POLLIN)
        while True:
            has_ended = self._process.poll() is not None  # before the look: what it wrote is there then
            ready = [descriptor for descriptor, _ in readable.poll(1000 * _POLL_S)]
            if self._errors.fileno() in ready and not self._keep():
                readable.unregister(self._errors)
            if self._lines.fileno() not in ready:
                if has_ended and not ready:
                    return
                continue
            data = os.read(self._lines.fileno(), 1 << 18)
            *lines, begun = (begun + data).split(b"\n") if b"\n" in data else (begun + data,)
            for line in lines if data else (begun,):
                if line.startswith(b'{"'):
                    yield json.loads(line)
            if not data:
                return

    def status(self) -> int:
        """Its exit status, once it has ended."""
        while self._process.poll() is None:
            if select.select([self._errors], [], [], _POLL_S)[0]:  # else it may wait for us
                self._keep()
        return self._process.returncode

    def how_ended(self) -> str:
        """The same in words."""
        return ended_by(self.status(), self.last_output())

    def last_output(self) -> list[str]:
        """The last lines that it printed beside: of a Python process with its stack, if a signal has ended it."""
        while select.select([self._errors], [], [], 0)[0] and self._keep():
            pass
        return last_lines(self._kept)

    def _keep(self) -> bool:
        """Read what it has printed to its standard error, and keep the end. False at its end."""
        data = os.read(self._errors.fileno(), 1 << 16)
        self._kept = (self._kept + data)[-KEPT:]
        return bool(data)


def last_lines(printed: bytes) -> list[str]:
    """The last lines of what a process has printed that say something. Of a stack that the interpreter has printed, as
    at a segmentation fault, those down to where the driver of a story has called the engine."""
    lines = [line.rstrip() for line in printed.decode("utf-8", "replace").splitlines() if line.strip()]
    crash = max((n for n, line in enumerate(lines) if line.startswith(CRASHED)), default=-1)
    if crash < 0:
        return lines[-LAST_LINES:]
    stack = max((n for n, line in enumerate(lines) if n > crash and line.endswith(STACK)), default=crash)
    end = next((n for n in range(stack, len(lines)) if any(name in lines[n] for name in _DRIVER)), len(lines))
    return [*lines[max(0, crash - LAST_LINES) : crash + 1], *lines[stack + 1 : end][:LAST_LINES]]


def ended_by(status: int, printed: Sequence[str]) -> str:
    """How a process with this exit status has ended that has printed these lines last."""
    if status == 1 and any(line.startswith(TIMED_OUT) for line in printed):
        return OUTSIDE
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
