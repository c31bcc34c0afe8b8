"""Keeps a finding: its trace and a pytest file are written first as they are, then shrunk."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from ..adapters import families
from ..findings.words import trace_lines
from ..reports.summary import Found, Summary
from ..targets.base import Target
from ..traces.replay import replay
from ..traces.reproduction import Reproduction, write_reproduction
from ..traces.shrink import NotReproducedError, Shrunk, shrink
from ..traces.trace_file import FoundBy, FoundWhat, TraceFile
from .knowing import judging_of
from .plan import Plan


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


def keep_found(
    found: Found, done: Summary, target: Target, plan: Plan, folder: Path, say: Callable[[str], None]
) -> Kept:
    """Write what the runs of a summary have found to a folder, shrink it for `plan.shrink_seconds` and write it again.

    It is written before it is shrunk, so that nothing is lost if shrinking is interrupted. A trace that was shrunk as
    far as possible replaces the first one. `say` is told what happens, a line each.
    """
    run, judging = found_by(done.engine, found.seed), judging_of(found, plan)
    whole = TraceFile(found.trace, done.target, FoundWhat.of(found.finding), run)
    first = write_reproduction(whole, folder, plan.tensors, tuple(judging.oracles))
    say(f"found after {done.operations:,} operations, saved in {first.trace}; shrinking ...")
    try:
        shrunk = shrink(found.trace, found.finding.kind, target, judging, max_seconds=plan.shrink_seconds)
    except NotReproducedError as error:
        say(f"not shrunk: {error}; the target may not be deterministic")
        return Kept(None, first)
    small = TraceFile(shrunk.trace, done.target, FoundWhat.of(shrunk.finding), run)
    last = write_reproduction(small, folder, plan.tensors, _needed_oracles(shrunk, found, target, plan))
    if shrunk.complete and last != first:
        first.trace.unlink()
        first.test.unlink()
    return Kept(shrunk, last)


def _needed_oracles(shrunk: Shrunk, found: Found, target: Target, plan: Plan) -> tuple[str, ...]:
    """The oracles that show the smallest trace's finding: those of the plan, without what they report before it."""
    if found.passed:
        shown, _ = replay(shrunk.trace, target, plan.judging())
        if shown is None or shown.kind != shrunk.finding.kind:
            return tuple(judging_of(found, plan).oracles)
    return plan.oracles


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
