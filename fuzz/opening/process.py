"""A child process that answers messages, a line of JSON each: launched, asked with a deadline, watched, ended.

Whatever happens to it, the harness goes on: what is wrong with it becomes a `TargetLostError`. What the messages say is
up to the callers (`child` for Python, `program` for other languages).
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ..findings.cause import Cause
from ..targets.base import TargetLostError, TargetUnavailableError
from .wire import MAX_LINE

T = TypeVar("T")
MEBIBYTE = 1 << 20
_OUTPUT_KEPT = 4096
"""Bytes of the child's last output that go into a finding."""
LAST_OUTPUT = "; its last output:\n"
"""Stands in the detail of a loss before what the child has printed last."""
_POLL_S = 0.25
"""Seconds to wait for an answer before checking whether the child is alive."""
_STACK_S = 5.0
"""Seconds that a child which hangs has to print its stack; on an idle machine it takes milliseconds."""


@dataclass(frozen=True)
class ChildLimits:
    """Limits of a child; beyond them it counts as lost."""

    operation_s: float = 10.0
    """Seconds for one operation."""
    start_s: float = 120.0
    """Seconds for the launch of the process, imports included, and for building a core."""
    growth_bytes: int = 2 << 30
    """Growth of its resident memory since it was ready, in bytes."""


@dataclass(frozen=True)
class Launch:
    """How a child process is started."""

    spec: str
    """Name of its target, for messages."""
    command: Sequence[str]
    environment: Mapping[str, str] | None = None
    """Its environment variables; None for ours."""
    python: bool = True
    """True for a Python child: it gets the numbers of two pipes as its last arguments, so that it may print; it prints
    its stack at SIGUSR1. Any other program is asked on its standard input, answers on its standard output, prints to
    its standard error."""


class Process:
    """One child process, from its launch to its end."""

    def __init__(self, launch: Launch, limits: ChildLimits) -> None:
        """TargetUnavailableError if the command cannot be run."""
        self.limits = limits
        self.resident_at_start = sys.maxsize
        """Resident memory when it was ready, in bytes; before that, there is no limit."""
        self._spec = launch.spec
        self._prints_stack = launch.python
        self._input = bytearray()
        self._last_output = b""
        self._start(launch)

    def _start(self, launch: Launch) -> None:
        """Start the process, with two pipes for messages and one for what it prints. None of them ever blocks us."""
        child_reads, we_write = os.pipe()
        we_read, child_writes = os.pipe()
        self._requests = os.fdopen(we_write, "wb", buffering=0)
        self._answers = os.fdopen(we_read, "rb", buffering=0)
        own = launch.python
        try:
            self._child = subprocess.Popen(
                [*launch.command, *((str(child_reads), str(child_writes)) if own else ())],
                env=launch.environment,
                stdin=subprocess.DEVNULL if own else child_reads,
                stdout=subprocess.PIPE if own else child_writes,
                stderr=subprocess.STDOUT if own else subprocess.PIPE,
                pass_fds=(child_reads, child_writes) if own else (),
                start_new_session=True,
            )
        except OSError as error:
            self.end()
            raise TargetUnavailableError(f"{launch.spec}: cannot run {launch.command[0]}: {error.strerror}") from error
        finally:
            os.close(child_reads)
            os.close(child_writes)
        printed = self._child.stdout if own else self._child.stderr
        assert printed is not None
        self._printed, self._output = printed, printed.fileno()
        for descriptor in (we_write, we_read, self._output):
            os.set_blocking(descriptor, False)
        self._readable = select.poll()
        self._readable.register(we_read, select.POLLIN)
        self._readable.register(self._output, select.POLLIN)

    @property
    def resident(self) -> int:
        """Its resident memory in bytes; 0 on systems without /proc."""
        return _resident_bytes(self._child.pid)

    def first(self, read: Callable[[bytes], T]) -> T:
        """What its first line says, converted by `read`. TargetUnavailableError if it does not come, or is nonsense."""
        try:
            line = self._receive(self.limits.start_s, "the launch")
        except TargetLostError as lost:
            lines = lost.detail.splitlines()
            why = f"{lines[0]} {lines[-1]}" if len(lines) > 1 else lines[0]
            raise TargetUnavailableError(
                f"{self._spec}: the child process did not come up ({lost.kind}): {why}"
            ) from None
        try:
            return read(line)
        except (ValueError, RecursionError) as error:
            raise TargetUnavailableError(f"{self._spec}: its first line cannot be used: {error}") from None

    def exchange(self, line: bytes, about: object, deadline_s: float, read: Callable[[bytes], T]) -> T:
        """Send a line and wait for the answer, which `read` converts. `about`: what was asked, for messages.

        TargetLostError if there is no answer, or none that `read` understands: it raises ValueError then.
        """
        if self._input:
            raise self.lost("protocol", f"it wrote more than one line as an answer: {_short(self._input)}")
        self._send(line, deadline_s)
        answer = self._receive(deadline_s, about)
        try:
            return read(answer)
        except (ValueError, IndexError) as error:
            raise self.lost("protocol", f"no answer can be read: {error}") from None
        except RecursionError:
            raise self.lost("protocol", "no answer can be read: it is nested too deeply") from None

    def lost(self, kind: str, detail: str, cause: Cause | None = None) -> TargetLostError:
        """The error for a child that is lost in this way, with its last output."""
        text = self._last_output.decode("utf-8", "replace").strip()
        return TargetLostError(kind, f"{detail}{LAST_OUTPUT}{text}" if text else detail, cause)

    def check_memory(self, resident: int) -> None:
        """TargetLostError if the child's resident memory (bytes) has grown beyond its limit."""
        grown, limit = resident - self.resident_at_start, self.limits.growth_bytes
        if grown > limit:
            raise self.lost(
                "memory",
                f"resident memory grew by {grown // MEBIBYTE} MiB to {resident // MEBIBYTE} MiB; "
                f"allowed are {limit // MEBIBYTE} MiB more than at the start",
            )

    def end(self) -> None:
        """Kill the child and its children; close the pipes."""
        child = getattr(self, "_child", None)
        if child is not None:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                child.kill()
            child.wait()
        for name in ("_requests", "_answers", "_printed"):
            if hasattr(self, name):
                getattr(self, name).close()

    def _send(self, data: bytes, deadline_s: float) -> None:
        """Write a line. TargetLostError if the child has not read it within `deadline_s` seconds, or has ended."""
        end = time.monotonic() + deadline_s
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._requests.fileno(), view) :]
            except BlockingIOError:
                if time.monotonic() > end:
                    raise self._hang_error(deadline_s, "a request, which it does not read") from None
                self._drain_output()
                select.select([], [self._requests], [], _POLL_S)
            except BrokenPipeError:
                raise self._crash_error() from None

    def _receive(self, deadline_s: float, about: object) -> bytes:
        """The next line. TargetLostError if it does not arrive within `deadline_s` seconds."""
        end = time.monotonic() + deadline_s
        buffer = self._input
        answers = self._answers.fileno()
        searched = 0
        while True:
            if (length := buffer.find(b"\n", searched)) >= 0:
                line = bytes(buffer[:length])
                del buffer[: length + 1]
                return line
            searched = len(buffer)
            if searched > MAX_LINE:
                raise self.lost("protocol", f"a line of more than {MAX_LINE} bytes: {_short(buffer)}")
            ready = self._readable.poll(_POLL_S * 1000)
            for descriptor, _ in ready:
                if descriptor != answers:
                    self._drain_output()
                elif not self._read_answer(buffer):
                    raise self._crash_error()
            if not ready or time.monotonic() > end:
                self._check_health(end, deadline_s, about)

    def _read_answer(self, buffer: bytearray) -> bool:
        """Read what the child has sent so far into `buffer`. False if it has closed its pipe."""
        data = os.read(self._answers.fileno(), 1 << 18)
        buffer += data
        return bool(data)

    def _check_health(self, end: float, deadline_s: float, about: object) -> None:
        """TargetLostError if the child has ended, or is beyond its memory limit or its deadline."""
        if self._child.poll() is not None:
            raise self._crash_error()
        self.check_memory(self.resident)
        if time.monotonic() > end:
            raise self._hang_error(deadline_s, about)

    def _hang_error(self, deadline_s: float, about: object) -> TargetLostError:
        """The error for a child that does not answer, with the stack where it hangs if it can print one."""
        if self._prints_stack:
            self._child.send_signal(signal.SIGUSR1)
            end = time.monotonic() + _STACK_S
            while b"most recent call first" not in self._last_output and time.monotonic() < end:
                if self._child.poll() is not None:
                    break
                select.select([self._output], [], [], _POLL_S)
                self._drain_output()
            time.sleep(0.1)  # for the lines that follow
        self._drain_output()
        return self.lost("hang", f"no answer within {deadline_s:g} s to {str(about)[:200]}")

    def _crash_error(self) -> TargetLostError:
        """The error for a child that has ended or closed its pipe, with its exit status."""
        try:
            status = self._child.wait(1)
        except subprocess.TimeoutExpired:
            return self.lost("protocol", "the child closed its pipe but goes on running")
        self._drain_output()
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        return self.lost("crash", f"{how}, in the middle of a line" if self._input else how)

    def _drain_output(self) -> None:
        """Read what the target has printed, so that it never blocks on a full pipe; keep the end of it."""
        try:
            for _ in range(8):  # not without limit: it may print faster than we read
                data = os.read(self._output, 1 << 16)
                self._last_output = (self._last_output + data)[-_OUTPUT_KEPT:]
                if not data:
                    self._readable.unregister(self._output)
                    break
        except (BlockingIOError, KeyError):
            pass


def _short(line: bytes | bytearray) -> str:
    """The beginning of a line, for a message."""
    return repr(line[:80].decode("utf-8", "replace"))


def _resident_bytes(pid: int) -> int:
    """Resident memory of another process in bytes; 0 on systems without /proc."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0
