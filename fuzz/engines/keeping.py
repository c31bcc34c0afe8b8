"""Keeps a finding: its trace and a pytest file are written first as they are, then shrunk."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from ..adapters import families
from ..findings.words import trace_lines
from ..reports.summary import Summary
from ..targets.base import Target
from ..traces.replay import replay
from ..traces.reproduction import Reproduction, write_reproduction
from ..traces.shrink import NotReproducedError, Shrunk, shrink
from ..traces.trace_file import FoundBy, FoundWhat, TraceFile
from .plan import Plan

SHRINK_SECONDS = 60.0
"""How long the finding of a run is shrunk at most."""


@dataclass(frozen=True)
class Kept:
    """A finding that was written to files."""

    shrunk: Shrunk | None
    """None if the finding did not show again, so that nothing could be shrunk."""
    files: Reproduction

    def as_json(self) -> dict[str, object]:
        """Where the files are and how small the trace is, JSON-ready."""
        return {
            "trace": str(self.files.trace),
            "test": str(self.files.test),
            "command": self.files.command,
            "operations": len(self.shrunk.trace.operations) if self.shrunk else None,
            "complete": bool(self.shrunk and self.shrunk.complete),
        }

    def as_shrunk_json(self, before: TraceFile) -> dict[str, object]:
        """The same for a trace that was shrunk again, with what it shows and how long it was before."""
        assert self.shrunk is not None
        now = {"finding": str(self.shrunk.finding), "complete": self.shrunk.complete}
        counts = {"operations_before": len(before.trace.operations), "operations": len(self.shrunk.trace.operations)}
        return {**now, **counts, **self.as_json()}

    def lines(self) -> list[str]:
        """The shrunk trace, what it shows and where the files are, for a person; each part after an empty line."""
        lines = []
        if self.shrunk is not None:
            ended = "" if self.shrunk.complete else "; gave up early, it may get shorter"
            tries = f"{self.shrunk.candidates:,} tries, {self.shrunk.seconds:.1f} s{ended}"
            lines += ["", f"shrunk to {len(self.shrunk.trace.operations)} operations in {tries}"]
            lines += [*trace_lines(self.shrunk.trace.shape, self.shrunk.trace.operations), ""]
            lines.append(str(self.shrunk.finding))
        files = self.files
        return [*lines, "", f"trace:  {files.trace}", f"pytest: {files.test}", f"repeat the finding: {files.command}"]


def recorded_name(spec: str, target: Target) -> str:
    """What traces call a target: the name that the user wrote, with the release where that was left open."""
    return target.name if spec in families() else spec


def found_by(engine: str, seed: int) -> FoundBy:
    """Which run found something, by this version of blockproof."""
    return FoundBy(engine, seed, version("blockproof"))


def keep_finding(done: Summary, target: Target, plan: Plan, folder: Path, say: Callable[[str], None]) -> Kept | None:
    """Write what a run has found to a folder, shrink it and write it again; None if the run has found nothing.

    It is written before it is shrunk, so that nothing is lost if shrinking is interrupted. A trace that was shrunk as
    far as possible replaces the first one. `say` is told what happens, a line each.
    """
    if done.finding is None or done.trace is None:
        return None
    run = found_by(done.engine, done.finding_seed)
    whole = TraceFile(done.trace, done.target, FoundWhat.of(done.finding), run)
    first = write_reproduction(whole, folder, plan.tensors, plan.oracles)
    say(f"found after {done.operations:,} operations, saved in {first.trace}; shrinking ...")
    try:
        shrunk = shrink(done.trace, done.finding.kind, target, plan.judging(), max_seconds=SHRINK_SECONDS)
    except NotReproducedError as error:
        say(f"not shrunk: {error}; the target may not be deterministic")
        return Kept(None, first)
    small = TraceFile(shrunk.trace, done.target, FoundWhat.of(shrunk.finding), run)
    last = write_reproduction(small, folder, plan.tensors, plan.oracles)
    if shrunk.complete and last != first:
        first.trace.unlink()
        first.test.unlink()
    return Kept(shrunk, last)


def keep_smaller(
    file: TraceFile, spec: str, target: Target, plan: Plan, folder: Path, say: Callable[[str], None]
) -> Kept | None:
    """Shrink the trace of a file for at most `plan.seconds` and write the result to a folder.

    `spec` is the name of the opened target. `say` is told if the trace shows something else than it was written for.
    None if it shows nothing on this target.
    """
    judging = plan.judging()
    finding, applied = replay(file.trace, target, judging)
    if finding is None:
        return None
    stored = file.finding and (file.finding.observable, file.finding.operation)
    if stored and stored != finding.kind:
        say(f"note: the trace was written for {stored}, it now shows {finding.kind}")
    shrunk = shrink(applied, finding.kind, target, judging, max_seconds=plan.seconds)
    small = TraceFile(shrunk.trace, recorded_name(spec, target), FoundWhat.of(shrunk.finding), file.found_by)
    return Kept(shrunk, write_reproduction(small, folder, plan.tensors, plan.oracles))
