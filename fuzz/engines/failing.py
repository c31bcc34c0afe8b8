"""What a test raises when a target is found to be wrong: the finding, the files that it leaves, and how to repeat it.

A command is printed only after it has been run and has shown the finding. A target that no shell can name, or that is
wrong in this process alone, is repeated in Python.
"""

import shlex
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..findings.finding import Finding, Trace
from ..opening.commands import run
from ..opening.given import Given, is_factory, is_owned, opened
from ..page.trace_page import KeptTrace, page_beside
from ..runs.judging import Judging
from ..targets.base import Target, TargetUnavailableError, close_target
from ..traces.judges import Judges
from ..traces.reproduction import base_name, write_reproduction
from ..traces.trace_file import FoundWhat, TraceFile, write_trace
from .reproductions import recorded_name

FOLDER = Path("findings")
"""Where files of findings are written, below the current folder."""
COMMAND_SECONDS = 120.0
"""How long the command may take that is tried before it is printed."""


@dataclass(frozen=True)
class Tested:
    """What is tested, and where its findings go."""

    given: Given
    target: Target
    judging: Judging
    tensors: str | None = None
    """Where the shadow memory keeps its tags, as `memory_named` takes it."""
    folder: Path | None = FOLDER
    """None: no files are written."""

    @property
    def name(self) -> str:
        """The target as traces name it."""
        return recorded_name(self.given, self.target) if isinstance(self.given, str) else self.target.name

    def trace_file(self, finding: Finding, trace: Trace) -> TraceFile:
        """What is written of a finding."""
        oracles = tuple(self.judging.oracles)
        return TraceFile(trace, self.name, FoundWhat.of(finding), oracles=oracles, tensors=self.tensors)

    def how_to_repeat(self, file: TraceFile) -> list[str]:
        """Lines that say where the finding was written and how to see it again. Never fails."""
        if self.folder is None:
            return ["no files were asked for"]
        try:
            if not isinstance(self.given, str):
                trace = self.folder / f"{base_name(file)}.json"
                write_trace(file, trace)
                page = self._page(file, KeptTrace(trace))
                given = f"the function {_name_of(self.given)}" if is_factory(self.given) else "an object"
                return self._in_python(trace, page, f"the target was given as {given}")
            files = write_reproduction(file, self.folder, self.tensors, file.oracles or ())
        except OSError as error:
            return [f"nothing was written to {self.folder}: {error}"]
        if problem := _problem_with(files.command):
            return self._in_python(files.trace, self._page(file, KeptTrace(files.trace)), problem)
        page = self._page(file, KeptTrace(files.trace, files.command))
        return [f"trace:  {files.trace}", f"pytest: {files.test}", *page, f"repeat the finding: {files.command}"]

    def _page(self, file: TraceFile, kept: KeptTrace) -> list[str]:
        """Write the page of the trace. Returns the line that names it; none if there is no page."""
        try:
            core = opened(self.given, file.lost_its_target)
        except (TargetUnavailableError, TypeError, ValueError):
            return []
        try:
            page = page_beside(file, core, Judges(tuple(file.oracles or ()), "as in the test", self.tensors), kept)
        finally:
            if is_owned(self.given):
                close_target(core)
        return [f"page:   {page}"] if page else []

    def _in_python(self, trace: Path, page: list[str], why: str) -> list[str]:
        """A test that fails as long as the finding is there, for the module that has the target."""
        target = repr(self.given) if isinstance(self.given, str) else _name_of(self.given)
        return [
            f"trace:  {trace}",
            *page,
            f"no shell command repeats it: {why}. In Python:",
            "",
            "    from pathlib import Path",
            "    from blockproof.fuzz import replay_text",
            "",
            f"    def test_{trace.stem}():",
            f"        finding = replay_text(Path({str(trace)!r}).read_text(), {target})",
            '        assert finding is None, f"\\n{finding}"',
        ]


class FindingError(AssertionError):
    """An oracle objects to the target. The text says where and why, and how to see it again.

    Files are written, and the command is tried, when the text is first asked for: Hypothesis raises the error hundreds
    of times while it shrinks, and shows one.
    """

    def __init__(self, finding: Finding, trace: Trace, tested: Tested) -> None:
        super().__init__(finding, trace)
        self.finding = finding
        self.trace = trace
        self._tested = tested
        self._text = ""

    def __str__(self) -> str:
        if not self._text:
            how = self._tested.how_to_repeat(self._tested.trace_file(self.finding, self.trace))
            self._text = "\n".join([str(self.finding), "", *how])
        return self._text


def failure(finding: Finding, trace: Trace, tested: Tested) -> FindingError:
    """The error to be raised, of a class of its own for each cause (`Finding.key`).

    Hypothesis tells failures apart by class and line: so it shrinks no finding to one of another cause.
    """
    return _class_for(finding.kind, finding.key)(finding, trace, tested)


@cache
def _class_for(kind: tuple[str, str], key: tuple[str, ...]) -> type[FindingError]:
    words = ["".join(c if c.isalnum() else "_" for c in word) for word in kind]
    return type("_at_".join(words), (FindingError,), {"__doc__": FindingError.__doc__, "__module__": __name__})


def _problem_with(command: str) -> str:
    """Why a command that is to repeat a finding does not do so; empty if it does.

    It is run as a shell would run it in the current folder, with this interpreter in place of the script.
    """
    words = [sys.executable, "-P", "-m", f"{__name__.split('.')[0]}.fuzz.cli", *shlex.split(command)[1:]]
    try:
        ran = run(words, seconds=COMMAND_SECONDS)
    except OSError as error:
        return f"{type(error).__name__} when it was tried"
    if ran.status is None:
        return f"no end within {COMMAND_SECONDS:g} s when it was tried"
    if ran.status == 0:
        return "a new process shows nothing, so something has changed the target in this one, as a monkeypatch does"
    return "" if ran.status == 1 else (ran.errors.strip().splitlines() or [f"exit status {ran.status}"])[-1]


def _name_of(given: Given) -> str:
    """What a test may call the target that it gave."""
    return str(getattr(given, "__name__", "target"))
