"""Runs targets and calculators in child processes: if one crashes or hangs, that is a finding and the harness goes on.

The harness and the child exchange lines (`wire`) over two pipes; the child runs `serve`. `ChildTarget` and
`ChildCalculator` are what the rest of the harness uses. A target in another language is a `program.ProgramTarget`.
"""

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Generic, NamedTuple, TypeVar, cast

from ...model.ops import Operation, Outcome, Shape, Value
from ...model.snapshot import Snapshot
from ..findings.finding import Trace
from ..findings.ops_json import to_json
from ..targets.base import TargetLostError, TargetUnavailableError
from .names import is_own_code
from .patches import VARIABLE, PatchPlace
from .process import ChildLimits, Launch, Process
from .wire import Notes, answer_of, answers_of, line_of, lost_of, message_of

_ROOT = __name__.split(".")[0]
_SERVER = f"{__package__}.serve"
"""The module that the child runs."""


class PythonPlace(NamedTuple):
    """Another Python environment."""

    python: Path
    """Its interpreter."""
    layers: tuple[Path, ...] = ()
    """Folders with packages that take precedence over those of the interpreter."""
    patch: PatchPlace | None = None
    """What is put over the engine in it."""


class PythonChild(Process):
    """A child that runs a module of ours (`serve.answer_lines`), in this Python environment or in another one."""

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Sequence[str],
        place: PythonPlace | None,
        limits: ChildLimits | None = None,
    ) -> None:
        """`name`: what it is for, for messages. TargetUnavailableError if it does not come up."""
        self._modules = TemporaryDirectory(prefix="blockproof-child-")
        # -P: modules in the current directory must not hide those of the environment.
        command = [str(place.python if place else sys.executable), "-u", "-P", "-m", module, *arguments]
        try:
            environment = environment_of(place, Path(self._modules.name))
            self._lend(place, Path(self._modules.name))
            super().__init__(Launch(name, command, environment), limits or ChildLimits())
            self._await_ready(name)
        except BaseException:
            self.end()
            raise

    def _await_ready(self, name: str) -> None:
        match message := self.first(message_of):
            case ["ready", *said]:
                with suppress(ValueError):
                    return self._begin(said)
            case ["unavailable", str(why)]:
                raise TargetUnavailableError(why)
        raise TargetUnavailableError(f"{name}: the child process began with nonsense: {str(message)[:80]}")

    def _lend(self, place: PythonPlace | None, folder: Path) -> None:
        """Put more into the folder of modules that the child finds."""

    def _begin(self, ready: list[object]) -> None:
        """Take in what the child says when it is ready. ValueError if that makes no sense."""

    def end(self) -> None:
        """See `Process.end`; the temporary folder is removed as well."""
        super().end()
        self._modules.cleanup()


class ServedTarget(Process):
    """A process that has opened a target and says what it is."""

    version: str
    lacks: frozenset[str]
    hides: frozenset[str]
    designs: frozenset[str] = frozenset()
    loses: frozenset[str] = frozenset()
    offers: frozenset[str] = frozenset()
    block_sizes: tuple[int, ...] = ()
    like: str = ""

    def ask(
        self, about: Shape | Operation, deadline_s: float, looks: bool = True
    ) -> tuple[Outcome, Snapshot | None, Notes]:
        """Start a core of this shape or apply this operation. TargetLostError if there is no answer to read.

        With `looks` false the state need not be shown.
        """
        raise NotImplementedError


ServedT = TypeVar("ServedT", bound=Process)


class _InChild(ABC, Generic[ServedT]):
    """What runs in a child process, which is launched on first use, and again after a loss."""

    def __init__(self, name: str, limits: ChildLimits | None = None) -> None:
        self.name = name
        self._limits = limits or ChildLimits()
        self._process: ServedT | None = None

    @property
    def version(self) -> str:
        """Version of the core in the running child; empty before the launch, or if the child does not say."""
        return str(getattr(self._process, "version", ""))

    def close(self) -> None:
        """Kill the child and all processes that it started."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def _launched(self) -> ServedT:
        """The running child, launched if necessary. TargetUnavailableError if that fails."""
        if self._process is None:
            self._process = self._launch()
        return self._process

    @abstractmethod
    def _launch(self) -> ServedT:
        """A child that is ready. TargetUnavailableError if it does not come up."""


class TargetInChild(_InChild[ServedTarget]):
    """A `Target` in a child process. `start` raises TargetUnavailableError if the target cannot be opened there."""

    copies: tuple[tuple[int, int], ...] = ()
    """See `targets.base.copies_of`."""
    handed: tuple[Value, ...] = ()
    """See `targets.base.handed_of`."""

    @property
    def lacks(self) -> frozenset[str]:
        """See `targets.base.lacking`. Launches the child if it does not run; errors as for `start`."""
        return self._launched().lacks

    @property
    def hides(self) -> frozenset[str]:
        """See `targets.base.hidden_fields`. Launches the child if it does not run; errors as for `start`."""
        return self._launched().hides

    @property
    def designs(self) -> frozenset[str]:
        """See `targets.base.designs_of`. Launches the child if it does not run; errors as for `start`."""
        return self._launched().designs

    @property
    def loses(self) -> frozenset[str]:
        """See `targets.base.losing`. Launches the child if it does not run; errors as for `start`."""
        return self._launched().loses

    @property
    def offers(self) -> frozenset[str]:
        """See `targets.base.offering`. Launches the child if it does not run; errors as for `start`."""
        return self._launched().offers

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """See `targets.base.block_sizes_of`. Launches the child if it does not run; errors as for `start`."""
        return self._launched().block_sizes

    @property
    def like(self) -> str:
        """See `targets.base.likeness`. Launches the child if it does not run; errors as for `start`."""
        return self._launched().like

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """Build a new core in the child. TargetLostError if the child is lost meanwhile."""
        self._launched()
        return self._ask(shape, self._limits.start_s)

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """Apply one operation in the child. TargetLostError if the child is lost meanwhile."""
        outcome, snapshot = self._ask(operation, self._limits.operation_s)
        if snapshot is None:
            self.close()
            raise TargetLostError("protocol", "the answer to an operation has no snapshot")
        return outcome, snapshot

    def _ask(self, about: Shape | Operation, deadline_s: float, **how: bool) -> tuple[Outcome, Snapshot | None]:
        """Ask the running child, as `how` says. Whatever goes wrong, the child is killed."""
        self.copies = self.handed = ()
        if self._process is None:
            raise TargetLostError("crash", "the target is not running; call start first")
        try:
            outcome, snapshot, notes = self._process.ask(about, deadline_s, **how)
        except BaseException:
            self.close()  # the child is lost, or a line may have been read or written in part
            raise
        self.copies = cast(tuple[tuple[int, int], ...], notes.get("copies", ()))
        self.handed = cast(tuple[Value, ...], notes.get("handed", ()))
        if "hides" in notes:
            self._process.hides = frozenset(cast(tuple[str, ...], notes["hides"]))
        return outcome, snapshot


class ChildTarget(TargetInChild):
    """A target that is opened by a Python child.

    `spec` is the name that the child opens (`impl`, a family, `package.module:factory`). `place` is the Python
    environment of the child; None for this one, with the same import path. `fix` is a Python file with a function
    `fix()`, which the child calls before it opens the target.
    """

    def __init__(
        self,
        name: str,
        spec: str,
        place: PythonPlace | None = None,
        limits: ChildLimits | None = None,
        fix: Path | None = None,
    ) -> None:
        super().__init__(name, limits)
        self._spec = spec
        self._place = place
        self._fix = fix

    def answer(self, operation: Operation) -> Outcome:
        """Apply one operation in the child and do not look at the state. Errors as for `step`."""
        return self._ask(operation, self._limits.operation_s, looks=False)[0]

    def seconds_for(self, traces: Sequence[Trace]) -> float:
        """Processor seconds that the core takes for these traces. Errors as for `start` and `step`."""
        try:
            return cast(_Python, self._launched()).seconds_for(traces)
        except BaseException:
            self.close()
            raise

    def _launch(self) -> ServedTarget:
        launched = _Python(self._spec, self._place, self._limits, "target", self._fix)
        if is_own_code(self._spec):
            self.name = launched.named  # as in this process: known deviations are declared under a name
        return launched


class ChildCalculator(_InChild["_Python"]):
    """A `Calculator` in a Python child; `spec` and `place` as for `ChildTarget`."""

    def __init__(
        self, name: str, spec: str, place: PythonPlace | None = None, limits: ChildLimits | None = None
    ) -> None:
        super().__init__(name, limits)
        self._spec = spec
        self._place = place

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
            self.close()  # the child is lost, or a line may have been read or written in part
            raise

    def _launch(self) -> "_Python":
        return _Python(self._spec, self._place, self._limits, "calculator")


class _Python(PythonChild, ServedTarget):
    """A Python child. `role` is what it opens: `target` or `calculator`; `fix` as for `ChildTarget`."""

    named = ""
    """What its target calls itself."""

    def __init__(
        self, spec: str, place: PythonPlace | None, limits: ChildLimits, role: str, fix: Path | None = None
    ) -> None:
        fixes = [str(fix.resolve())] if fix else []
        super().__init__(spec, _SERVER, [spec, role, *fixes], place, limits)

    def _begin(self, ready: list[object]) -> None:
        """The version, and what the target says of itself."""
        match ready:
            case [str(version), int(resident), *said, str(named), str(like)] if len(said) == 6:
                names = [frozenset(map(str, cast(list[object], each))) for each in said[:5]]
                self.version, self.resident_at_start, self.named, self.like = version, resident, named, like
                self.lacks, self.hides, self.designs, self.offers, self.loses = names
                self.block_sizes = tuple(map(int, cast(list[int], said[5])))
            case _:
                raise ValueError

    def ask(
        self, about: Shape | Operation, deadline_s: float, looks: bool = True
    ) -> tuple[Outcome, Snapshot | None, Notes]:
        """See `ServedTarget.ask`. With `looks` false the state is not looked at after an operation."""
        document = to_json(about)
        line = line_of(["start" if isinstance(about, Shape) else "step" if looks else "answer", document])
        outcome, snapshot, resident, notes = self.exchange(
            line, document, deadline_s, lambda raw: answer_of(self._got(raw))
        )
        self.check_memory(resident)
        return outcome, snapshot, notes

    def answers(
        self, questions: Sequence[tuple[str, Mapping[str, object]]], deadline_s: float
    ) -> list[dict[str, object]]:
        """Send questions and wait for their answers."""
        asked = [list(question) for question in questions]
        line = line_of(["ask", asked])
        answers, resident = self.exchange(line, asked, deadline_s, lambda raw: answers_of(self._got(raw), len(asked)))
        self.check_memory(resident)
        return answers

    def _got(self, line: bytes) -> list[object]:
        """The message in a line. TargetLostError if the child says that its target is lost,
        TargetUnavailableError if it cannot be used."""
        message = message_of(line)
        if message[0] == "lost":
            raise self.lost(*lost_of(message))
        if message[0] == "unavailable":  # what it says of itself after a start cannot be used
            raise TargetUnavailableError(str(message[1]))
        return message

    def seconds_for(self, traces: Sequence[Trace]) -> float:
        """Processor seconds that the target takes for these traces, without the building of its cores."""
        line = line_of(["time", [[to_json(trace.shape), to_json(trace.operations)] for trace in traces]])
        return self.exchange(line, "traces to be timed", self.limits.operation_s, lambda raw: _seconds(self._got(raw)))


def _seconds(message: list[object]) -> float:
    match message:
        case ["seconds", float(seconds)]:
            return seconds
    raise ValueError("expected seconds")


def environment_of(
    place: PythonPlace | None, modules: Path, packages: Iterable[str] = ("model", "fuzz")
) -> dict[str, str]:
    """Environment variables of a child, with which it finds our modules and computes the same hashes in every run.

    For an interpreter of another environment (`place`) only `packages` of ours are made importable, by links in the
    folder `modules`.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    if place is None:
        path = [entry or os.getcwd() for entry in sys.path]
    else:
        path = [str(modules), *map(str, place.patch.folders if place.patch else ()), *map(str, place.layers)]
        (modules / _ROOT).mkdir()
        for package in packages:
            folder = import_module(f"{_ROOT}.{package}").__path__[0]
            (modules / _ROOT / package).symlink_to(Path(folder).resolve(), target_is_directory=True)
    if place is not None and place.patch is not None:
        # Every Python process imports a module of this name when it starts.
        (modules / "sitecustomize.py").symlink_to(Path(__file__).with_name("patch_hook.py").resolve())
        environment[VARIABLE] = place.patch.document
    return environment | {"PYTHONPATH": os.pathsep.join(path), "PYTHONHASHSEED": "0"}
