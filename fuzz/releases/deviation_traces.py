"""The traces of known deviations in a folder: found anew, or checked to show what they are there for."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..findings.finding import Finding
from ..planning.shipped import shipped
from ..targets.base import Target
from ..targets.deviations import Deviation, trace_names
from ..traces.trace_file import TraceFile, read_trace, write_trace
from .known_deviations import find_smallest, undeclared

Say = Callable[[str], None]


@dataclass
class Shown:
    """What the traces of deviations show."""

    traces: dict[str, tuple[TraceFile, Finding]] = field(default_factory=dict)
    """By the name of the trace; those that show what they should."""
    problems: list[str] = field(default_factory=list)
    """A line for each trace that is missing or shows something else."""

    def add(self, name: str, file: TraceFile, target: Target, say: Say) -> None:
        """Replay a trace and tell what it shows."""
        result = undeclared(name, file.trace, target)
        if isinstance(result, str):
            self.problems.append(result)
            return
        self.traces[name] = (file, result)
        say(f"{name:34} {len(file.trace.operations):3} operations, `{result.kind[0]}` at {result.kind[1]}")


def check_traces(declared: Sequence[Deviation], folder: Path, target: Target, say: Say) -> Shown:
    """Replay the trace of each deviation from this folder on the release. TraceError if a file cannot be read."""
    shown = Shown()
    for name, _ in _names(declared):
        shown.add(name, read_trace(shipped(folder / f"{name}.json")), target, say)
    return shown


def find_traces(declared: Sequence[Deviation], folder: Path, target: Target, seconds: float, say: Say) -> Shown:
    """Find the smallest trace of each deviation, each within so many seconds, and write it to this folder."""
    shown = Shown()
    for name, deviation in _names(declared):
        file = find_smallest(name, deviation, target, seconds)
        if file is None:
            shown.problems.append(f"{name}: did not occur in {seconds:g} s")
            continue
        folder.mkdir(parents=True, exist_ok=True)
        write_trace(file, folder / f"{name}.json")
        shown.add(name, file, target, say)
    return shown


def _names(declared: Sequence[Deviation]) -> Iterator[tuple[str, Deviation]]:
    return ((name, deviation) for deviation in declared for name in trace_names(deviation))
