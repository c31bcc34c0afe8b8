"""What came of verifying a change, for a person, for a pull request, and for machines."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ..findings.finding import Finding, Trace
from ..findings.known import KnownFinding
from ..findings.severity import severity
from ..findings.words import plural, trace_lines
from ..reports.document import Table, counted
from ..reports.formats import markdown_tables, plain_text
from ..reports.theorems import ChangeDocument, ProofsChanged, VerifyFound
from ..traces.known_file import add_known
from ..traces.reproduction import base_name
from ..traces.trace_file import FoundWhat, TraceFile
from .diff import keep_trace
from .timing import Timing
from .verify import Changed, JudgedSide, Verification, Where

SHOWN = 5
"""So many traces are printed; all are written to files."""


def headline(done: Verification) -> str:
    """One line: the two sides and the verdict."""
    return f"{done.old.name} -> {done.new.name}: {verdict(done)}"


def verdict(done: Verification) -> str:
    """The answer, in a few words."""
    if done.vacuous:
        return f"the sides cannot be compared, on the old one {done.vacuous}"
    parts = []
    if done.changed:
        parts.append(f"behaviour changed in {plural(len(done.changed), 'situation')} not listed as intended")
    if done.broken:
        parts.append(f"{plural(len(done.broken), 'finding')} that the old side does not have")
    if refuted := getattr(done.proofs, "broken", ()):
        parts.append(f"{plural(len(refuted), 'theorem')} no longer true")
    if done.bugs:
        parts.append(f"{plural(len(done.bugs), 'bug')} of blockproof, so not all was tested")
    if done.unfinished:
        parts.append("not all was tested, a side could not be started again")
    if parts:
        return "; ".join(parts)
    if done.interrupted:
        return "interrupted"
    only = " but for what is intended" if done.intended else ""
    return f"same behaviour over {done.operations:,} operations{only}"


def sections(done: Verification) -> Iterator[Table]:
    """The tables of the page."""
    if done.changed:
        columns = ("new against old", "operation", "compared by", "runs", "smallest trace")
        rows = ((*one.finding.kind, one.compared, f"{one.times:,}", _steps(one.trace)) for one in done.changed)
        yield Table("Situations that changed", columns, tuple(rows))
    if done.judged:
        columns = ("finding", "operation", "how bad", "shows on", "smallest trace")
        judged = sorted(done.judged, key=lambda one: (list(Where).index(one.where), severity(one.finding)))
        rows = ((*one.finding.kind, str(severity(one.finding)), one.where, _steps(one.trace)) for one in judged)
        yield Table(f"Found by {', '.join(done.new.oracles)}", columns, tuple(rows))
    if done.intended:
        reasons = {entry.id: entry.reason for entry in done.known}
        counts = tuple((name, f"{times:,}", reasons[name]) for name, times in sorted(done.intended.items()))
        yield Table("Intended", ("id", "times", "reason"), counts)


def facts(done: Verification) -> Iterator[str]:
    """What was done, and how much of it, a line each."""
    runs = sum(comparison.summary.runs for comparison in done.compared.comparisons) if done.compared else 0
    yield f"compared: {plural(done.operations, 'operation')} on both sides in {plural(runs, 'run')}"
    if done.hidden:
        yield f"not compared, as a side hides it: {', '.join(done.hidden)}"
    for name, side in (("new", done.new), ("old", done.old)):
        if (summary := done.summaries.get(name)) is not None:
            count = plural(summary.operations, "operation")
            yield f"judged, {name} side: {count} by {', '.join(side.oracles)}"
    yield f"speed: {done.timing.text() if isinstance(done.timing, Timing) else done.timing}"
    yield f"proofs: {done.proofs if isinstance(done.proofs, str) else done.proofs.text()}"
    if done.stale and not done.vacuous:
        yield f"intended, but did not come up: {', '.join(done.stale)}"
    for one in done.unfinished:
        yield f"not finished: {one}"
    for bug in done.bugs:
        yield "; ".join(line.strip() for line in str(bug).splitlines())
    yield f"seed {done.seed}, {done.clock.text()}"


def situations(done: Verification) -> Iterator[Table]:
    """Which situations the runs have met."""
    reached = sum((summary.reached for summary in done.summaries.values()), Counter[str]())
    yield counted("Situations reached", ("situation", "times"), reached)


def _steps(trace: Trace) -> str:
    return plural(len(trace.operations), "operation")


def shown(done: Verification) -> list[Changed | JudgedSide]:
    """What is worth a look: what the oracles find on the new side only, what changed, and what may be fixed."""
    old = [one for one in done.judged if one.where in (Where.OLD, Where.OPEN)]
    return [*done.broken, *done.changed, *old]


def _title(one: Changed | JudgedSide) -> str:
    what, where = one.finding.kind
    if isinstance(one, Changed):
        return f"changed: {what} at {where}"
    return f"{one.where}: {what} at {where}" + (f" (the other side: {one.why})" if one.why else "")


def lines(done: Verification, verbose: bool = False) -> list[str]:
    """The page for a terminal; `verbose` also shows the situations that were reached, and all traces."""
    tables = [*sections(done), *(situations(done) if verbose else ())]
    found = shown(done)
    text = [*plain_text(headline(done), tables, "").splitlines(), *facts(done)]
    for one in found if verbose else found[:SHOWN]:
        text += ["", _title(one), *trace_lines(one.trace.shape, one.trace.operations), str(one.finding)]
    if len(found) > SHOWN and not verbose:
        text += ["", f"{len(found) - SHOWN} more are in the files; --verbose shows them here"]
    return [*text, "", f"verdict: {verdict(done)}"]


def comment(done: Verification) -> str:
    """The page as Markdown, for a pull request."""
    sign = {0: "✅", 1: "❌"}.get(done.code, "⚠️")
    text = [f"## {sign} blockproof verify: {verdict(done)}", "", f"`{done.old.name}` → `{done.new.name}`"]
    text += [*markdown_tables(sections(done)), ""]
    text += [f"* {fact}" for fact in facts(done)]
    for one in shown(done):
        told = [*trace_lines(one.trace.shape, one.trace.operations), "", str(one.finding)]
        text += ["", f"<details><summary>{_title(one)}</summary>", "", "```", *told, "```", "", "</details>"]
    reached = [
        "",
        "<details><summary>Situations reached</summary>",
        *markdown_tables(situations(done)),
        "",
        "</details>",
    ]
    return "\n".join([*text, *(reached if done.summaries else []), ""])


def document(done: Verification) -> ChangeDocument:
    """The same for machines, and for its page."""
    speed: str | dict[str, Any] = done.timing if isinstance(done.timing, str) else done.timing.as_json()
    proofs = done.proofs
    return ChangeDocument(
        done.old.name,
        done.new.name,
        verdict(done),
        proofs if isinstance(proofs, str) else msgspec.convert(proofs.as_json(), ProofsChanged),
        done.code,
        done.seed,
        round(done.clock.seconds, 1),
        {name: round(seconds, 1) for name, seconds in done.clock.spent.items()},
        [bug.as_json() for bug in done.bugs],
        list(done.unfinished),
        done.operations,
        list(done.hidden),
        [_row(one) for one in done.changed],
        [_row(one) for one in done.judged],
        dict(sorted(done.intended.items())),
        list(done.stale),
        {name: summary.operations for name, summary in done.summaries.items()},
        speed,
    )


def _row(one: Changed | JudgedSide) -> VerifyFound:
    trace = f"{base_name(TraceFile(one.trace, '', FoundWhat.of(one.finding)))}.json"
    row = VerifyFound(*one.finding.kind, one.finding.oracle, str(one.finding), one.times)
    row.operations, row.trace = len(one.trace.operations), trace
    if isinstance(one, Changed):
        row.compared_by = one.compared
    else:
        row.where, row.other_side = one.where.value, one.why
    return row


def keep(done: Verification, folder: Path) -> None:
    """Write the smallest trace of each change and of each finding that shows on one side to a folder."""
    for one in shown(done):
        spec = done.old.spec if isinstance(one, JudgedSide) and one.where is not Where.NEW else done.new.spec
        before = done.old.spec if isinstance(one, Changed) else None
        keep_trace(folder, one.finding, one.trace, spec, done.seed, compared_with=before)


def write_intended(done: Verification, path: Path) -> list[str]:
    """Add an entry for each change that is not listed yet to a file of intended changes. Returns their ids."""
    changed: list[tuple[Finding, Trace]] = [(one.finding, one.trace) for one in done.changed]
    changed += [(one.finding, one.trace) for one in done.broken]
    entries = []
    for finding, trace in changed:
        id = "-".join(finding.kind).lower().replace(" ", "-")
        entries.append((KnownFinding.of(finding, trace, id), f"{' at '.join(finding.kind)}: {_steps(trace)}"))
    return add_known(path, entries) if entries else []
