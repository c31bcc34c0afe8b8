"""Keeps what is found: trace and pytest file are written first as they are, then shrunk; of a run that went on after
findings each once, the worst first, within one budget.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import msgspec

from ..adapters import families
from ..findings.known import KnownFinding
from ..findings.words import plural, trace_lines
from ..page.trace_page import KeptTrace, page_beside
from ..reports.progress import shrinking
from ..reports.run import Reproduced, RunFound
from ..reports.summary import Found, Summary
from ..targets.base import Target, TargetUnavailableError
from ..targets.unharmed import unharmed
from ..traces.judges import Judges
from ..traces.known_file import add_known
from ..traces.replay import replay
from ..traces.reproduction import WHOLE, Reproduction, keep_reproduction, shrink_command, write_reproduction
from ..traces.shrink import NotReproducedError, Shrunk, shrink
from ..traces.trace_file import FoundBy, FoundWhat, TraceFile
from .plan import Plan
from .smallest import judging_of, needed_oracles, with_other_causes


@dataclass(frozen=True)
class KeptFinding:
    """A finding that was written to files."""

    shrunk: Shrunk | None
    """None if the finding did not show again, so that nothing could be shrunk."""
    files: Reproduction
    """Those of the smallest trace."""
    whole: Path
    """The trace as it was before."""
    go_on: str = ""
    """The shell command that shrinks it further, if that may help."""
    interrupted: bool = False
    """True if Ctrl-C ended the shrinking."""
    page: Path | None = None
    """The page that shows the smallest trace step by step, if one could be made."""

    def reproduced(self) -> Reproduced:
        """Where the files are and how small the trace is."""
        files, small = self.files, self.shrunk
        size = len(small.trace.operations) if small else None
        named = (str(files.trace), str(files.test), files.command, size, bool(small and small.complete))
        return Reproduced(*named, str(self.whole), str(self.page) if self.page else None, self.go_on or None)

    def as_shrunk_json(self, before: TraceFile) -> dict[str, object]:
        """The same for a trace that was shrunk again, with what it shows and how long it was before."""
        assert self.shrunk is not None
        now = {"finding": str(self.shrunk.finding), "identity": list(self.shrunk.finding.identity)}
        now["manner"] = list(self.shrunk.finding.manner)
        return {**now, "operations_before": len(before.trace.operations), **msgspec.to_builtins(self.reproduced())}

    def lines(self, verbose: bool = False) -> list[str]:
        """What the shrunk trace shows, then `more`. `verbose` as for `Finding.text`."""
        return [*(["", self.shrunk.finding.text(verbose=verbose)] if self.shrunk else []), *self.more()]

    def more(self) -> list[str]:
        """The shrunk trace, and where the files are, for a person; each part after an empty line."""
        lines = []
        if self.shrunk is not None:
            tries = f"{plural(self.shrunk.candidates, 'try', 'tries')}, {self.shrunk.seconds:.1f} s"
            lines += ["", f"shrunk to {plural(len(self.shrunk.trace.operations), 'operation')} in {tries}"]
            lines += trace_lines(self.shrunk.trace.shape, self.shrunk.trace.operations)
        lines += [f"gave up early, it may get shorter; to go on: {self.go_on}"] if self.go_on else []
        if not self.files.is_written:
            return [*lines, "", f"not written: {self.files.trace} and what goes with it"]
        files = [f"trace:  {self.files.trace}", f"pytest: {self.files.test}"]
        files += [f"page:   {self.page}"] if self.page else []
        files += [f"before it was shrunk: {self.whole}"] if self.whole != self.files.trace else []
        return [*lines, "", *files, f"repeat the finding: {self.files.command}"]


def recorded_name(spec: str, target: Target) -> str:
    """What traces call a target: the name that the user wrote, with the release where that was left open."""
    return target.name if spec in families() else spec


def found_by(engine: str, seed: int) -> FoundBy:
    """Which run found something, by this version of blockproof."""
    return FoundBy(engine, seed, version("blockproof"))


def keep_found(
    found: Found, done: Summary, target: Target, plan: Plan, folder: Path, say: Callable[[str], None]
) -> KeptFinding:
    """Write what the runs of a summary have found to a folder, shrink it for `plan.shrink_seconds` and write it again.

    It is written before it is shrunk, so that nothing is lost if shrinking is interrupted or fails; these files stay,
    and end on `_whole`. Progress is shown on a terminal, and `say` is told what happens, a line each.
    """
    run, judging = found_by(done.engine, found.seed), judging_of(found, plan)
    whole = TraceFile(found.trace, done.target, FoundWhat.of(found.finding), run)
    first = keep_reproduction(whole, folder, plan.tensors, tuple(judging.oracles), WHOLE)
    after = plural(done.operations, "operation")
    try:
        saved = f"saved in {first.trace}" if first.is_written else "not saved"
        goes_on = f"; shrinking for at most {plan.shrink_seconds:.0f} s ..." if plan.shrink_seconds else ""
        say(f"found after {after}, {saved}{goes_on}")
        with shrinking(plan.shrink_seconds) as show, unharmed():
            kind, most = found.finding.kind, plan.shrink_seconds
            shrunk = shrink(found.trace, kind, target, judging, max_seconds=most, on_try=show)
        oracles = needed_oracles(shrunk, found, target, plan)
    except NotReproducedError as error:
        ours = found.finding.is_our_bug
        why = "what drew the operations may have failed" if ours else "the target may not be deterministic"
        say(f"not shrunk: {error}; {why}")
        return KeptFinding(None, first, first.trace, page=_page(whole, target, judging.oracles, plan, first, say))
    except TargetUnavailableError as error:
        say(f"not shrunk: {error}")
        return KeptFinding(None, first, first.trace)
    except Exception as error:  # what was found is saved already
        say(f"not shrunk, by a bug of blockproof; please report it with the trace: {type(error).__name__}: {error}")
        return KeptFinding(None, first, first.trace)
    except KeyboardInterrupt:  # outside of the search, which keeps its best
        return KeptFinding(None, first, first.trace, shrink_command(first.trace, done.target), interrupted=True)
    small = TraceFile(shrunk.trace, done.target, FoundWhat.of(shrunk.finding), run)
    last = keep_reproduction(small, folder, plan.tensors, oracles)
    page = None if shrunk.interrupted else _page(small, target, oracles, plan, last, say)
    return KeptFinding(
        shrunk, last, first.trace, _how_to_go_on(shrunk, last.trace, done.target), shrunk.interrupted, page
    )


def _page(
    file: TraceFile,
    target: Target,
    oracles: Collection[str],
    plan: Plan,
    files: Reproduction,
    say: Callable[[str], None],
) -> Path | None:
    judges = Judges(tuple(oracles), "as the trace says", plan.tensors)
    return page_beside(file, target, judges, KeptTrace(files.trace, files.command), say)


def _how_to_go_on(shrunk: Shrunk, trace: Path, target: str) -> str:
    return "" if shrunk.complete else shrink_command(trace, target)


def keep_smaller(
    file: TraceFile, spec: str, target: Target, plan: Plan, folder: Path, say: Callable[[str], None]
) -> KeptFinding | None:
    """Shrink the trace of a file for at most `plan.seconds` and write the result to a folder.

    `spec` is the name of the opened target. `say` is told if the trace shows something else than it was written for.
    Progress is shown on a terminal. None if it shows nothing on this target.
    """
    judging = plan.judging()
    finding, applied = replay(file.trace, target, judging)
    if finding is None:
        return None
    if file.finding is not None and not file.finding.is_shown_by(finding):
        stored = file.finding.identity or (file.finding.observable, file.finding.operation)
        say(f"note: the trace was written for {', '.join(stored)}; it now shows {', '.join(finding.identity)}")
    with shrinking(plan.seconds) as show:
        shrunk = shrink(applied, finding.kind, target, judging, max_seconds=plan.seconds, on_try=show)
    name = recorded_name(spec, target)
    small = TraceFile(shrunk.trace, name, FoundWhat.of(shrunk.finding), file.found_by)
    files = write_reproduction(small, folder, plan.tensors, plan.oracles)
    page = _page(small, target, plan.oracles, plan, files, say)
    return KeptFinding(shrunk, files, files.trace, _how_to_go_on(shrunk, files.trace, name), page=page)


@dataclass(frozen=True)
class KeptFound:
    """One of several findings, and what was kept of it."""

    found: Found
    kept: KeptFinding

    def told(self, verbose: bool = False) -> RunFound:
        """What documents say of it: its smallest form. `verbose` as for `Finding.text`."""
        small = self.kept.shrunk
        finding = self.found.finding if small is None else small.finding
        told = RunFound.of(replace(self.found, finding=finding))
        told.text, told.more = finding.text(verbose=verbose), self.kept.more()
        told.reproduction = self.kept.reproduced()
        return told

    def as_json(self) -> dict[str, object]:
        """The finding with all its parts, JSON-ready."""
        finding = self.found.finding if self.kept.shrunk is None else self.kept.shrunk.finding
        return {**finding.as_json(), "trace": str(self.kept.files.trace), "command": self.kept.files.command}

    def entry(self) -> tuple[KnownFinding, str]:
        """The entry by which it would be known, and a comment."""
        small = self.kept.shrunk
        finding, trace = (self.found.finding, self.found.trace) if small is None else (small.finding, small.trace)
        id = "-".join(finding.kind).lower().replace(" ", "-")
        return KnownFinding.of(finding, trace, id), (finding.detail or str(finding)).partition("\n")[0]


def keep_all(done: Summary, target: Target, plan: Plan, folder: Path, say: Callable[[str], None]) -> list[KeptFound]:
    """Keep the worst finding as `keep_found` does; if the plan goes on after findings all of them, the worst first.

    All share `plan.shrink_seconds`; what one leaves of its part goes to those behind it, and what all leave to finding
    out which of them have two causes (`with_other_causes`). Ctrl-C ends the shrinking, and the others are kept as they
    are; all of them, if it has ended the runs already.
    """
    end, kept = time.monotonic() + (0.0 if done.interrupted else plan.shrink_seconds), list[KeptFound]()
    ranked = done.ranked()[: None if plan.keep_going else 1]
    for number, found in enumerate(ranked):
        share = max(0.0, end - time.monotonic()) / (len(ranked) - number)
        one = keep_found(found, done, target, replace(plan, shrink_seconds=share), folder, say)
        kept.append(KeptFound(found, one))
        end = 0.0 if one.interrupted else end
    for first in kept.copy() if plan.keep_going else ():
        small = first.kept.shrunk
        for other in with_other_causes(first.found, small.trace, target, plan, end) if small and small.complete else ():
            done.add_found(other)
            share = max(0.0, end - time.monotonic())
            again = keep_found(other, done, target, replace(plan, shrink_seconds=share), folder, say)
            kept.insert(kept.index(first) + 1, KeptFound(other, again))
    return kept


def write_known(path: Path, kept: Sequence[KeptFound]) -> list[str]:
    """Add entries for what was found to a file of known findings. Returns a line for a person. TraceError as from
    `add_known`."""
    if not kept:
        return []
    ids = add_known(path, [one.entry() for one in kept])
    return [f"added to {path}: {', '.join(ids)}; write a reason for each, then run with --known {path}"]
