"""A target in a process of its own: whatever it does, the harness goes on and has a finding."""

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
_STDERR_KEPT = 4096
"""Bytes of the child's last words that go into a report."""
_SLICE_S = 0.25
"""How long to wait for an answer before looking after the child's health."""
_LAST_WORDS_S = 5.0
"""How long a child that hangs has to print where it stands, which takes milliseconds on an idle machine."""


@dataclass(frozen=True)
class Limits:
    """What a child may take before it counts as lost."""

    operation_s: float = 10.0
    start_s: float = 120.0
    """For the launch of the process, imports included, and for building a core."""
    growth_bytes: int = 2 << 30
    """Resident memory beyond what it had when it was ready."""


class Place(NamedTuple):
    """Where another Python environment is."""

    python: Path
    """Its interpreter."""
    layers: tuple[Path, ...] = ()
    """Folders with packages that stand in front of those of the interpreter."""


class _InChild:
    """What lives in a child process, which is launched when it is first needed and again after a loss."""

    def __init__(self, name: str, spec: str, place: Place | None = None, limits: Limits | None = None) -> None:
        self.name = name
        self._spec = spec
        self._place = place
        self._limits = limits or Limits()
        self._process: _Process | None = None

    @property
    def version(self) -> str:
        """Version of what the running child drives; empty before it is launched or if it does not say."""
        return self._process.version if self._process else ""

    def close(self) -> None:
        """Kill the child and all it started."""
        if self._process is not None:
            self._process.end()
            self._process = None


class ChildTarget(_InChild):
    """A `Target` that lives in a child process, which is launched at the first `start` and again after a loss.

    `spec` is what the child opens (`impl`, a family, `package.module:factory`), `place` the environment it lives in;
    None is this one, with the same import path. TargetUnavailableError from `start` if it cannot be opened there.
    """

    copies: tuple[tuple[int, int], ...] = ()
    """See `Target`."""

    @property
    def lacks(self) -> frozenset[str]:
        """See `Target`. The child says it, so it is launched if it does not run; errors as from `start`."""
        return self._greeting()[0]

    @property
    def hides(self) -> frozenset[str]:
        """See `Target`; as for `lacks`."""
        return self._greeting()[1]

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """Build a fresh core in the child. TargetLostError if the child is lost over it."""
        self._greeting()
        return self._ask(["start", to_json(shape)], self._limits.start_s)

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """Apply one operation in the child. TargetLostError if the child is lost over it."""
        outcome, snapshot = self._ask(["step", to_json(operation)], self._limits.operation_s)
        if snapshot is None:
            raise self._lose(TargetLostError("protocol", "the answer to an operation has no snapshot"))
        return outcome, snapshot

    def _greeting(self) -> tuple[frozenset[str], frozenset[str]]:
        if self._process is None:
            self._process = _Process(self._spec, self._place, self._limits)
        return self._process.lacks, self._process.hides

    def _ask(self, message: list[object], deadline_s: float) -> tuple[Outcome, Snapshot | None]:
        self.copies = ()
        if self._process is None:
            raise TargetLostError("crash", "the target is not running; call start first")
        try:
            outcome, snapshot, notes = self._process.ask(message, deadline_s)
        except TargetLostError as lost:
            raise self._lose(lost) from None
        except BaseException:
            self.close()  # the pipe may stand in the middle of a frame
            raise
        self.copies = cast(tuple[tuple[int, int], ...], notes.get("copies", ()))
        if "hides" in notes:
            self._process.hides = frozenset(cast(tuple[str, ...], notes["hides"]))
        return outcome, snapshot

    def _lose(self, lost: TargetLostError) -> TargetLostError:
        self.close()
        return lost


class ChildCalculator(_InChild):
    """A `Calculator` that lives in a child process, launched at the first question and again after a loss.

    `spec` and `place` as for `ChildTarget`.
    """

    def ask(self, op: str, inputs: Mapping[str, object]) -> dict[str, object]:
        """One answer. TargetLostError if the child is lost over it, TargetUnavailableError if it cannot be launched."""
        return self.ask_all([(op, inputs)])[0]

    def ask_all(self, questions: Sequence[tuple[str, Mapping[str, object]]]) -> list[dict[str, object]]:
        """The answers to all questions, on one journey. Errors as for `ask`; which of them is to blame is not known."""
        if self._process is None:
            self._process = _Process(self._spec, self._place, self._limits, "calculator")
        try:
            return self._process.answers(questions, self._limits.operation_s)
        except BaseException:
            self.close()  # lost, or the pipe may stand in the middle of a frame
            raise


class _Process:
    """One launched child. Its role, `target` or `calculator`, says what it opens."""

    def __init__(self, spec: str, place: Place | None, limits: Limits, role: str = "target") -> None:
        self._limits = limits
        self._role = role
        self._input = bytearray()
        self._last_words = b""
        self._modules = tempfile.TemporaryDirectory(prefix="blockproof-child-")
        try:
            self._launch(spec, place)
            self._greeting(spec)
        except BaseException:
            self.end()
            raise

    def _launch(self, spec: str, place: Place | None) -> None:
        child_reads, we_write = os.pipe()
        we_read, child_writes = os.pipe()
        self._requests = os.fdopen(we_write, "wb", buffering=0)
        self._answers = os.fdopen(we_read, "rb", buffering=0)
        # -P: nothing in the current directory may stand in for the environment's modules.
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

    def _greeting(self, spec: str) -> None:
        """Wait until the child has opened its target, and take in what it says of it."""
        self._resident_at_start = sys.maxsize
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
        """Send a request and wait for its outcome."""
        outcome, snapshot, resident, notes = self._exchange(message, deadline_s, answer_of)
        self._check_memory(resident)
        return outcome, snapshot, notes

    def answers(
        self, questions: Sequence[tuple[str, Mapping[str, object]]], deadline_s: float
    ) -> list[dict[str, object]]:
        """Ask all questions and wait for their answers."""
        message: list[object] = ["ask", [list(question) for question in questions]]
        answers, resident = self._exchange(message, deadline_s, lambda answer: answers_of(answer, len(questions)))
        self._check_memory(resident)
        return answers

    def _exchange(self, message: list[object], deadline_s: float, read: Callable[[list[object]], T]) -> T:
        """Send a request, wait for its answer and read it."""
        self._send(frame(message), deadline_s)
        payload = self._receive(deadline_s, message[1])
        try:
            answer = message_of(payload)
            if answer[0] == "lost":
                raise TargetLostError(str(answer[1]), self._with_last_words(str(answer[2])))
            return read(answer)
        except (ValueError, IndexError) as error:
            raise TargetLostError("protocol", self._with_last_words(f"no answer can be read: {error}")) from None

    def end(self) -> None:
        """Kill the child and its children, and let go of all that belongs to it."""
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
        end = time.monotonic() + deadline_s
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._requests.fileno(), view) :]
            except BlockingIOError:
                if time.monotonic() > end:
                    raise self._hang(deadline_s, "a request, which it does not read") from None
                self._drain_output()
                select.select([], [self._requests], [], _SLICE_S)
            except BrokenPipeError:
                raise self._crash() from None

    def _receive(self, deadline_s: float, about: object) -> bytes:
        """The payload of the next frame."""
        end = time.monotonic() + deadline_s
        buffer = self._input
        answers = self._answers.fileno()
        while True:
            if len(buffer) >= HEADER.size:
                length = HEADER.unpack_from(buffer)[0]
                if length > MAX_FRAME:
                    raise TargetLostError("protocol", self._with_last_words(f"a frame of {length} bytes is announced"))
                if len(buffer) >= HEADER.size + length:
                    payload = bytes(buffer[HEADER.size : HEADER.size + length])
                    del buffer[: HEADER.size + length]
                    return payload
            ready = self._readable.poll(_SLICE_S * 1000)
            for descriptor, _ in ready:
                if descriptor != answers:
                    self._drain_output()
                elif not self._read_answer(buffer):
                    raise self._crash()
            if not ready or time.monotonic() > end:
                self._look_after(end, deadline_s, about)

    def _read_answer(self, buffer: bytearray) -> bool:
        """Take in what the child has sent. False if it will send no more."""
        data = os.read(self._answers.fileno(), 1 << 18)
        buffer += data
        return bool(data)

    def _look_after(self, end: float, deadline_s: float, about: object) -> None:
        """The child takes its time: is it still alive, within its memory and its deadline?"""
        if self._child.poll() is not None:
            raise self._crash()
        self._check_memory(_resident_bytes(self._child.pid))
        if time.monotonic() > end:
            raise self._hang(deadline_s, about)

    def _check_memory(self, resident: int) -> None:
        grown, limit = resident - self._resident_at_start, self._limits.growth_bytes
        if grown > limit:
            raise TargetLostError(
                "memory",
                self._with_last_words(
                    f"resident memory grew by {grown // MEBIBYTE} MiB to {resident // MEBIBYTE} MiB; "
                    f"allowed are {limit // MEBIBYTE} MiB more than at the start"
                ),
            )

    def _hang(self, deadline_s: float, about: object) -> TargetLostError:
        self._child.send_signal(signal.SIGUSR1)  # makes it print where it stands
        end = time.monotonic() + _LAST_WORDS_S
        while b"most recent call first" not in self._last_words and time.monotonic() < end:
            if self._child.poll() is not None:
                break
            select.select([self._output], [], [], _SLICE_S)
            self._drain_output()
        time.sleep(0.1)  # for the lines below that
        self._drain_output()
        return TargetLostError(
            "hang", self._with_last_words(f"no answer within {deadline_s:g} s to {str(about)[:200]}")
        )

    def _crash(self) -> TargetLostError:
        try:
            status = self._child.wait(1)
        except subprocess.TimeoutExpired:
            return TargetLostError("protocol", self._with_last_words("the child closed its pipe but goes on running"))
        self._drain_output()
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        return TargetLostError("crash", self._with_last_words(how))

    def _drain_output(self) -> None:
        """Take in what the target prints, so that it never waits for us, and keep the end of it."""
        try:
            for _ in range(8):  # not for ever: it may print faster than we read
                data = os.read(self._output, 1 << 16)
                self._last_words = (self._last_words + data)[-_STDERR_KEPT:]
                if not data:
                    self._readable.unregister(self._output)
                    break
        except (BlockingIOError, KeyError):
            pass

    def _with_last_words(self, detail: str) -> str:
        text = self._last_words.decode("utf-8", "replace").strip()
        return f"{detail}; its last output:\n{text}" if text else detail


def environment_of(place: Place | None, modules: Path, packages: Iterable[str] = ("model", "fuzz")) -> dict[str, str]:
    """Environment variables of a child: it finds our modules, and its identities are the same in every run.

    An interpreter of another environment (`place`) finds only these packages of ours, by links made in `modules`.
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
    """Resident memory of another process in bytes, 0 where that cannot be seen from outside."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0
