"""Runs targets and calculators in child processes: if one crashes or hangs, that is a finding and the harness goes on.

The harness and the child exchange frames over two pipes (`wire`); the child runs `serve`. `ChildTarget` and
`ChildCalculator` are what the rest of the harness uses; `_Process` is one launched process.
"""

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

from ...model.ops import Operation, Outcome, Shape, to_json
from ...model.snapshot import Snapshot
from ..targets.base import TargetLostError, TargetUnavailableError
from .wire import HEADER, MAX_FRAME, Notes, answer_of, answers_of, frame, message_of

T = TypeVar("T")
MEBIBYTE = 1 << 20
_ROOT = __name__.split(".")[0]
_SERVER = f"{__package__}.serve"
"""The module that the child runs."""
_OUTPUT_KEPT = 4096
"""Bytes of the child's last output that go into a finding."""
_POLL_S = 0.25
"""Seconds to wait for an answer before checking whether the child is alive."""
_STACK_S = 5.0
"""Seconds that a child which hangs has to print its stack; on an idle machine it takes milliseconds."""


@dataclass(frozen=True)
class Limits:
    """Limits of a child; beyond them it counts as lost."""

    operation_s: float = 10.0
    """Seconds for one operation."""
    start_s: float = 120.0
    """Seconds for the launch of the process, imports included, and for building a core."""
    growth_bytes: int = 2 << 30
    """Growth of its resident memory since it was ready, in bytes."""


class Place(NamedTuple):
    """Another Python environment."""

    python: Path
    """Its interpreter."""
    layers: tuple[Path, ...] = ()
    """Folders with packages that take precedence over those of the interpreter."""


class _InChild:
    """Base of `ChildTarget` and `ChildCalculator`. The process is launched on first use, and again after a loss."""

    role = "target"
    """What the child opens."""

    def __init__(self, name: str, spec: str, place: Place | None = None, limits: Limits | None = None) -> None:
        self.name = name
        self._spec = spec
        self._place = place
        self._limits = limits or Limits()
        self._process: _Process | None = None

    @property
    def version(self) -> str:
        """Version of the core in the running child; empty before the launch, or if the child does not say."""
        return self._process.version if self._process else ""

    def close(self) -> None:
        """Kill the child and all processes that it started."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def _launched(self) -> "_Process":
        """The running child, launched if necessary. TargetUnavailableError if that fails."""
        if self._process is None:
            self._process = _Process(self._spec, self._place, self._limits, self.role)
        return self._process


class ChildTarget(_InChild):
    """A `Target` in a child process.

    `spec` is the name that the child opens (`impl`, a family, `package.module:factory`). `place` is the Python
    environment of the child; None for this one, with the same import path. `start` raises TargetUnavailableError if the
    target cannot be opened there.
    """

    copies: tuple[tuple[int, int], ...] = ()
    """See `targets.base.copies_of`."""

    @property
    def lacks(self) -> frozenset[str]:
        """See `targets.base.lacking`. Launches the child if it does not run; errors as for `start`."""
        return self._launched().lacks

    @property
    def hides(self) -> frozenset[str]:
        """See `targets.base.hidden_fields`. Launches the child if it does not run; errors as for `start`."""
        return self._launched().hides

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """Build a new core in the child. TargetLostError if the child is lost meanwhile."""
        self._launched()
        return self._ask(["start", to_json(shape)], self._limits.start_s)

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """Apply one operation in the child. TargetLostError if the child is lost meanwhile."""
        outcome, snapshot = self._ask(["step", to_json(operation)], self._limits.operation_s)
        if snapshot is None:
            self.close()
            raise TargetLostError("protocol", "the answer to an operation has no snapshot")
        return outcome, snapshot

    def _ask(self, message: list[object], deadline_s: float) -> tuple[Outcome, Snapshot | None]:
        """Send a message to the running child. Whatever goes wrong, the child is killed."""
        self.copies = ()
        if self._process is None:
            raise TargetLostError("crash", "the target is not running; call start first")
        try:
            outcome, snapshot, notes = self._process.ask(message, deadline_s)
        except BaseException:
            self.close()  # the child is lost, or a frame may have been read or written in part
            raise
        self.copies = cast(tuple[tuple[int, int], ...], notes.get("copies", ()))
        if "hides" in notes:
            self._process.hides = frozenset(cast(tuple[str, ...], notes["hides"]))
        return outcome, snapshot


class ChildCalculator(_InChild):
    """A `Calculator` in a child process; `spec` and `place` as for `ChildTarget`."""

    role = "calculator"

    def ask(self, op: str, inputs: Mapping[str, object]) -> dict[str, object]:
        """One answer. TargetLostError if the child is lost meanwhile, TargetUnavailableError if it cannot be
        launched."""
        return self.ask_all([(op, inputs)])[0]

    def ask_all(self, questions: Sequence[tuple[str, Mapping[str, object]]]) -> list[dict[str, object]]:
        """The answers to all questions, in one exchange. Errors as for `ask`; they do not say which question failed."""
        process = self._launched()
        try:
            return process.answers(questions, self._limits.operation_s)
        except BaseException:
            self.close()  # the child is lost, or a frame may have been read or written in part
            raise


class _Process:
    """One child process, from its launch to its end. `role` is what it opens: `target` or `calculator`."""

    version: str
    lacks: frozenset[str]
    hides: frozenset[str]

    def __init__(self, spec: str, place: Place | None, limits: Limits, role: str) -> None:
        self._limits = limits
        self._role = role
        self._input = bytearray()
        self._last_output = b""
        self._modules = tempfile.TemporaryDirectory(prefix="blockproof-child-")
        try:
            self._launch(spec, place)
            self._await_ready(spec)
        except BaseException:
            self.end()
            raise

    def _launch(self, spec: str, place: Place | None) -> None:
        """Start the process, with two pipes for frames and one for what it prints. None of them ever blocks us."""
        child_reads, we_write = os.pipe()
        we_read, child_writes = os.pipe()
        self._requests = os.fdopen(we_write, "wb", buffering=0)
        self._answers = os.fdopen(we_read, "rb", buffering=0)
        # -P: modules in the current directory must not hide those of the environment.
        command = [str(place.python if place else sys.executable), "-u", "-P", "-m", _SERVER, spec]
        command += [str(child_reads), str(child_writes), self._role]
        try:
            self._child = subprocess.Popen(
                command,
                env=environment_of(place, Path(self._modules.name)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(child_reads, child_writes),
                start_new_session=True,
            )
        except OSError as error:
            raise TargetUnavailableError(f"{spec}: cannot run {command[0]}: {error.strerror}") from error
        finally:
            os.close(child_reads)
            os.close(child_writes)
        assert self._child.stdout is not None
        self._output = self._child.stdout.fileno()
        for descriptor in (we_write, we_read, self._output):
            os.set_blocking(descriptor, False)
        self._readable = select.poll()
        self._readable.register(we_read, select.POLLIN)
        self._readable.register(self._output, select.POLLIN)

    def _await_ready(self, spec: str) -> None:
        """Wait until the child has opened its target; store the version, and what the target lacks and hides."""
        self._resident_at_start = sys.maxsize  # no limit until it is ready
        try:
            message = message_of(self._receive(self._limits.start_s, "the launch"))
        except TargetLostError as lost:
            lines = lost.detail.splitlines()
            why = f"{lines[0]} {lines[-1]}" if len(lines) > 1 else lines[0]
            raise TargetUnavailableError(f"{spec}: the child process did not come up ({lost.kind}): {why}") from None
        match message:
            case ["ready", str(version), int(resident), list(lacks), list(hides)]:
                self.version, self._resident_at_start = version, resident
                self.lacks, self.hides = frozenset(map(str, lacks)), frozenset(map(str, hides))
                return
            case ["unavailable", str(why)]:
                raise TargetUnavailableError(why)
        raise TargetUnavailableError(f"{spec}: the child process began with nonsense: {str(message)[:80]}")

    def ask(self, message: list[object], deadline_s: float) -> tuple[Outcome, Snapshot | None, Notes]:
        """Send an operation and wait for its outcome."""
        outcome, snapshot, resident, notes = self._exchange(message, deadline_s, answer_of)
        self._check_memory(resident)
        return outcome, snapshot, notes

    def answers(
        self, questions: Sequence[tuple[str, Mapping[str, object]]], deadline_s: float
    ) -> list[dict[str, object]]:
        """Send questions and wait for their answers."""
        message: list[object] = ["ask", [list(question) for question in questions]]
        answers, resident = self._exchange(message, deadline_s, lambda answer: answers_of(answer, len(questions)))
        self._check_memory(resident)
        return answers

    def _exchange(self, message: list[object], deadline_s: float, read: Callable[[list[object]], T]) -> T:
        """Send a message and wait for the answer, which `read` converts. TargetLostError if it cannot be read."""
        self._send(frame(message), deadline_s)
        payload = self._receive(deadline_s, message[1])
        try:
            answer = message_of(payload)
            if answer[0] == "lost":
                raise TargetLostError(str(answer[1]), self._with_output(str(answer[2])))
            return read(answer)
        except (ValueError, IndexError) as error:
            raise TargetLostError("protocol", self._with_output(f"no answer can be read: {error}")) from None

    def end(self) -> None:
        """Kill the child and its children; close the pipes and remove the temporary folder."""
        child = getattr(self, "_child", None)
        if child is not None:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                child.kill()
            child.wait()
            child.stdout.close()
        for name in ("_requests", "_answers"):
            if hasattr(self, name):
                getattr(self, name).close()
        self._modules.cleanup()

    def _send(self, data: bytes, deadline_s: float) -> None:
        """Write a frame. TargetLostError if the child has not read it within `deadline_s` seconds, or has ended."""
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
        """The payload of the next frame. TargetLostError if it does not arrive within `deadline_s` seconds."""
        end = time.monotonic() + deadline_s
        buffer = self._input
        answers = self._answers.fileno()
        while True:
            if len(buffer) >= HEADER.size:
                length = HEADER.unpack_from(buffer)[0]
                if length > MAX_FRAME:
                    raise TargetLostError("protocol", self._with_output(f"a frame of {length} bytes is announced"))
                if len(buffer) >= HEADER.size + length:
                    payload = bytes(buffer[HEADER.size : HEADER.size + length])
                    del buffer[: HEADER.size + length]
                    return payload
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
        self._check_memory(_resident_bytes(self._child.pid))
        if time.monotonic() > end:
            raise self._hang_error(deadline_s, about)

    def _check_memory(self, resident: int) -> None:
        """TargetLostError if the child's resident memory (bytes) has grown beyond its limit."""
        grown, limit = resident - self._resident_at_start, self._limits.growth_bytes
        if grown > limit:
            raise TargetLostError(
                "memory",
                self._with_output(
                    f"resident memory grew by {grown // MEBIBYTE} MiB to {resident // MEBIBYTE} MiB; "
                    f"allowed are {limit // MEBIBYTE} MiB more than at the start"
                ),
            )

    def _hang_error(self, deadline_s: float, about: object) -> TargetLostError:
        """The error for a child that does not answer, with the stack where it hangs."""
        self._child.send_signal(signal.SIGUSR1)  # makes it print its stack
        end = time.monotonic() + _STACK_S
        while b"most recent call first" not in self._last_output and time.monotonic() < end:
            if self._child.poll() is not None:
                break
            select.select([self._output], [], [], _POLL_S)
            self._drain_output()
        time.sleep(0.1)  # for the lines that follow
        self._drain_output()
        return TargetLostError("hang", self._with_output(f"no answer within {deadline_s:g} s to {str(about)[:200]}"))

    def _crash_error(self) -> TargetLostError:
        """The error for a child that has ended or closed its pipe, with its exit status."""
        try:
            status = self._child.wait(1)
        except subprocess.TimeoutExpired:
            return TargetLostError("protocol", self._with_output("the child closed its pipe but goes on running"))
        self._drain_output()
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        return TargetLostError("crash", self._with_output(how))

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

    def _with_output(self, detail: str) -> str:
        """The detail of an error, followed by the last output of the child."""
        text = self._last_output.decode("utf-8", "replace").strip()
        return f"{detail}; its last output:\n{text}" if text else detail


def environment_of(place: Place | None, modules: Path, packages: Iterable[str] = ("model", "fuzz")) -> dict[str, str]:
    """Environment variables of a child, with which it finds our modules and computes the same hashes in every run.

    For an interpreter of another environment (`place`) only `packages` of ours are made importable, by links in the
    folder `modules`.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    if place is None:
        path = [entry or os.getcwd() for entry in sys.path]
    else:
        path = [str(modules), *map(str, place.layers)]
        (modules / _ROOT).mkdir()
        for package in packages:
            folder = import_module(f"{_ROOT}.{package}").__path__[0]
            (modules / _ROOT / package).symlink_to(Path(folder).resolve(), target_is_directory=True)
    return environment | {"PYTHONPATH": os.pathsep.join(path), "PYTHONHASHSEED": "0"}


def _resident_bytes(pid: int) -> int:
    """Resident memory of another process in bytes; 0 on systems without /proc."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0
