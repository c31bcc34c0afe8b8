"""One trace of a corpus, replayed: what it shows today, told so that somebody can fix it."""

from dataclasses import dataclass
from pathlib import Path

from ..findings.oracle_names import LOCKSTEP
from ..opening.names import runs_code
from ..opening.oracles import suited_to
from ..targets.base import Target
from ..traces.files import TraceError
from ..traces.judges import judges_for
from ..traces.replayed import Replayed, replayed
from ..traces.reproduction import replay_command
from ..traces.trace_file import TraceFile, read_trace


@dataclass(frozen=True)
class CorpusCase:
    """A trace file, and the target that it is to be replayed on."""

    path: Path
    file: TraceFile
    spec: str
    """Name of the target."""
    oracles: tuple[str, ...] = ()
    """What judges, if it is not what the file says."""
    for_any: bool = False
    """Whether it was made for whatever core there is: it says nothing of one that is not built like it, and is judged
    by what suits the target where that does not have to agree with the model."""

    @property
    def command(self) -> str:
        """The shell command that does the same."""
        return replay_command(self.path, self.spec, oracles=self.oracles)

    def run(self, target: Target) -> "Outcome":
        """Replay it on the opened target. TargetUnavailableError if that cannot be started."""
        suited, given = suited_to(self.spec, target), self.oracles
        if self.for_any and not given and LOCKSTEP not in suited:
            given = suited
        judges = judges_for(self.file, lambda: suited, given)
        return Outcome(self, replayed(self.file, target, judges))


@dataclass(frozen=True)
class Outcome:
    """What came of a case."""

    case: CorpusCase
    replayed: Replayed

    @property
    def operations(self) -> int:
        """How many operations of the trace were made."""
        return len(self.replayed.applied.operations)

    @property
    def says_nothing(self) -> bool:
        """True if the target took none of the operations, or built no such core."""
        return not self.replayed.built or bool(self.replayed.wanted.operations and not self.operations)

    @property
    def headline(self) -> str:
        """What is wrong, in one line: a finding, or that nothing was tested at all. Empty if nothing is wrong."""
        if self.replayed.finding is not None:
            return str(self.replayed.finding).partition("\n")[0]
        if self.replayed.wanted.operations and not self.operations:
            return f"{self.case.path.name} tests nothing: {self.replayed.target} takes none of its operations"
        return ""

    @property
    def text(self) -> str:
        """What is wrong, with all that is known of it."""
        return str(self.replayed.finding or self.headline)

    @property
    def failed(self) -> bool:
        """True if something is wrong."""
        return bool(self.headline)

    def lines(self) -> list[str]:
        """The headline, then numbered steps with what they change, the finding and the command that repeats it."""
        told = self.replayed.lines(show=self.replayed.finding is not None)
        return [self.headline, "", *told, "", f"repeat it: {self.case.command}"]


def read_case(
    path: Path, target: str | None = None, oracles: tuple[str, ...] = (), for_any: bool = False
) -> CorpusCase:
    """The case in a trace file, for this target, else for the one that the file names; judged by these oracles, else
    by those that the file names. `for_any` as in `CorpusCase`.

    TraceError if the file cannot be used; also if somebody's code is to be its target, since a file alone must not run
    code.
    """
    file = read_trace(path)
    if target is None and runs_code(file.target):
        problem = f"{file.target!r} is somebody's code; if you trust it, say so: --blockproof-target {file.target}"
        raise TraceError(str(path), "target", problem)
    return CorpusCase(path, file, target or file.target, oracles, for_any)
