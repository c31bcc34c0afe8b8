"""What came of verifying a change, for a person, for a pull request, and for machines."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ..findings.finding import Finding, Trace
from ..findings.known import KnownFinding
from ..findings.severity import severity
from ..findings.words import plural, trace_lines
from ..opening.names import ReleaseName, parsed_or_none
from ..reports.document import Table, counted
from ..reports.formats import markdown_tables, plain_text
from ..reports.theorems import ChangeDocument, ProofsChanged, VerifyFound
from ..traces.known_file import add_known
from ..traces.reproduction import base_name
from ..traces.trace_file import FoundWhat, TraceFile
from .diff import keep_trace
from .timing import Timing
from .verify import Changed, JudgedSide, Verification
from .verify_effects import Placement, Where, noticed

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
    if rows := differences(done):
        counts = Counter(one.where for one in rows)
        told = ", ".join(f"{counts[where]} {where}" for where in Where if counts[where])
        parts.append(f"{plural(len(rows), 'difference')} not listed as intended: {told}")
    if refuted := getattr(done.proofs, "broken", ()):
        parts.append(f"{plural(len(refuted), 'theorem')} no longer true")
    if done.bugs:
        parts.append(f"{plural(len(done.bugs), 'bug')} of blockproof, so not all was tested")
    if done.unfinished:
        late = all("the time was over" in one for one in done.unfinished)
        why = "the time was over" if late else "a side could not be started again"
        parts.append(f"not all was tested, {why}")
    if parts:
        return "; ".join(parts)
    if done.interrupted:
        return "interrupted"
    only = " but for what is intended" if done.intended else ""
    return f"same behaviour over {done.operations:,} operations{only}"


def sections(done: Verification) -> Iterator[Table]:
    """The tables of the page."""
    if rows := differences(done):
        columns = ("what the change did", "what a user notices", "finding", "runs", "smallest trace")
        cells = ((one.where, one.noticed, one.what, f"{one.times:,}", _steps(one.trace)) for one in rows)
        yield Table("Differences", columns, tuple(cells))
    if done.intended:
        reasons = {entry.id: entry.reason for entry in done.known}
        counts = tuple((name, f"{times:,}", reasons[name]) for name, times in sorted(done.intended.items()))
        yield Table("Intended", ("id", "times", "reason"), counts)


@dataclass(frozen=True)
class SideDifference:
    """A difference between the sides, once, wherever it came up."""

    where: Where
    noticed: str
    what: str
    """What was found, at which operation, and which known deviation is corrected by it."""
    times: int
    trace: Trace
    source: Changed | JudgedSide


def differences(done: Verification) -> list[SideDifference]:
    """All of them, the worst first; what both sides do alike is none."""
    judged = [one for one in done.judged if one.where is not Where.BOTH]
    rows = [_judged_row(one) for one in judged]
    rows += [_changed_row(one) for one in done.changed if not any(_is_told(one, by) for by in judged)]
    order = list(Where)
    return sorted(
        rows, key=lambda one: (order.index(one.where), severity(_wrong(one.source)), len(one.trace.operations))
    )


def _is_told(one: Changed, by: JudgedSide) -> bool:
    """True if what the oracles have found says all of a situation that changed. That the old side is wrong as well, in
    the trace of the one, does not matter where another trace shows the same without that."""
    placed = one.placed
    if placed is None or (placed.where is not by.where and not (one.is_mixed and by.where is Where.NEW)):
        return False
    return bool({*placed.corrects} & {*by.corrects}) or one.wrong.key == by.finding.key


def _wrong(one: Changed | JudgedSide) -> Finding:
    return one.wrong if isinstance(one, Changed) else one.finding


def _judged_row(one: JudgedSide) -> SideDifference:
    placed = Placement(one.where, one.finding, one.corrects)
    return SideDifference(one.where, noticed(placed, one.situation), _what(one), one.times, one.trace, one)


def _changed_row(one: Changed) -> SideDifference:
    placed = one.placed or Placement(Where.UNJUDGED)
    return SideDifference(placed.where, noticed(placed, one.finding.observable), _what(one), one.times, one.trace, one)


def _what(one: Changed | JudgedSide) -> str:
    observable, operation = one.finding.kind
    corrects = one.corrects if isinstance(one, JudgedSide) else one.placed.corrects if one.placed else ()
    judge = "" if isinstance(one, Changed) else f"{one.finding.oracle}: "
    return f"{judge}{observable} at {operation}" + (f" ({', '.join(corrects)})" if corrects else "")


def facts(done: Verification) -> Iterator[str]:
    """What was done, and how much of it, a line each."""
    runs = sum(comparison.summary.runs for comparison in done.compared.comparisons) if done.compared else 0
    yield f"compared: {plural(done.operations, 'operation')} on both sides in {plural(runs, 'run')}"
    if patch := patch_of_side(done):
        yield patch
    alike = [one for one in done.judged if one.where is Where.BOTH]
    if alike:
        kinds = Counter(" at ".join(one.finding.kind) for one in alike)
        told = ", ".join(f"{kind}" for kind in kinds)
        yield f"the old side does it, too, so it is no difference: {plural(len(alike), 'finding')} ({told})"
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


def patch_of_side(done: Verification) -> str:
    """What is put over the release of the new side, and what is stood in for; empty if it has no patch."""
    named = parsed_or_none(done.new.spec)
    if not isinstance(named, ReleaseName) or named.patch is None:
        return ""
    patch = named.patch
    stood = f"; stood in for: {', '.join(patch.without)}" if patch.without else ""
    over = ", ".join((*patch.packages, *patch.paths, *patch.sources))
    return f"the new side is {named.release} with {over or 'nothing'}{stood}"


def shown(done: Verification) -> list[Changed | JudgedSide]:
    """What is worth a look, the worst first: every difference once."""
    return [one.source for one in differences(done)]


def _title(one: Changed | JudgedSide) -> str:
    if isinstance(one, Changed):
        placed = one.placed
        where = placed.where if placed else Where.UNJUDGED
        return f"{where}: {_what(one)}" + (f" (the other side: {placed.why})" if placed and placed.why else "")
    return f"{one.where}: {_what(one)}" + (f" (the other side: {one.why})" if one.why else "")


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
    told = _changed_row(one) if isinstance(one, Changed) else _judged_row(one)
    row.where, row.noticed = told.where.value, told.noticed
    if isinstance(one, Changed):
        row.compared_by = one.compared
        row.other_side, row.corrects = (one.placed.why, list(one.placed.corrects)) if one.placed else ("", [])
    else:
        row.other_side, row.corrects = one.why, list(one.corrects)
    return row


def keep(done: Verification, folder: Path) -> None:
    """Write the smallest trace of each change, and of each finding that both sides do not share, to a folder."""
    kept: list[Changed | JudgedSide] = [*done.changed, *(one for one in done.judged if one.where is not Where.BOTH)]
    for one in kept:
        fixed = isinstance(one, JudgedSide) and one.where in (Where.OLD, Where.OPEN)
        spec = done.old.spec if fixed else done.new.spec
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
