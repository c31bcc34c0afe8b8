"""What came of comparing two engines, for a person, for a pull request, and for machines: in the words of `verify`."""

from collections import Counter
from collections.abc import Iterator

from ..findings.words import plural
from ..reports.difference import CompareRow, DifferenceDocument, SituationRow, work_table
from ..reports.document import Table
from ..reports.formats import markdown_tables, plain_text
from ..reports.theorems import ChangeDocument, VerifyFound
from .verify_effects import Where
from .verify_engines import ComparedEngines, EngineChange

NO_PROOFS = "there are no theorems about an engine"
COMPARED = "what clients get, and what the judges say"


def verdict(done: ComparedEngines) -> str:
    """The answer, in a few words."""
    if done.vacuous:
        return f"the sides cannot be compared: {done.vacuous}"
    parts = []
    if done.told:
        counts = Counter(one.shown.where for one in done.told)
        told = ", ".join(f"{counts[where]} {where}" for where in Where if counts[where])
        parts.append(f"{plural(len(done.told), 'difference')}: {told}")
    if done.bugs:
        parts.append(f"{plural(len(done.bugs), 'bug')} of blockproof, so not all was tested")
    if parts:
        return "; ".join(parts)
    return "interrupted" if done.interrupted else f"same behaviour over {plural(done.steps, 'step')}"


def _headline(done: ComparedEngines) -> str:
    return f"{done.old.name} -> {done.new.name}: {verdict(done)}"


def _sections(done: ComparedEngines) -> Iterator[Table]:
    if done.told:
        columns = ("what the change did", "judge", "stories", "smallest story")
        rows = [
            (one.shown.where, one.shown.finding.judge, f"{one.times:,}", plural(len(one.story.happenings), "happening"))
            for one in done.told
        ]
        yield Table("Differences", columns, rows)
    yield work_table(done.figures)


def _facts(done: ComparedEngines) -> Iterator[str]:
    yield f"compared: {plural(done.stories, 'engine')}, {plural(done.steps, 'step')} on each side"
    if done.alike:
        told = ", ".join(sorted({one.shown.finding.judge for one in done.alike}))
        yield f"{Where.BOTH}, so it is no difference: {plural(len(done.alike), 'finding')} ({told})"
    for why, times in done.not_built.most_common(3):
        yield f"not built, {plural(times, 'time')}: {why}"
    for one in done.bugs:
        yield f"a bug of blockproof: {one.shown.finding.what}"
    yield f"seed {done.plan.seed}, {done.seconds:.0f} s in all"


def _shown(one: EngineChange) -> list[str]:
    finding = one.shown.finding
    lines = [f"{one.shown.where}: {finding.judge}: {finding.what}", *(f"    {line}" for line in finding.more)]
    lines += [one.shown.why] if one.shown.why else []
    return [*lines, f"story: {one.file}"] if one.file else lines


def lines(done: ComparedEngines) -> list[str]:
    """The page for a terminal."""
    text = [*plain_text(_headline(done), list(_sections(done)), "").splitlines(), *_facts(done)]
    for one in done.told:
        text += ["", *_shown(one)]
    return [*text, "", f"verdict: {verdict(done)}"]


def comment(done: ComparedEngines) -> str:
    """The page as Markdown, for a pull request."""
    sign = {0: "✅", 1: "❌"}.get(done.code, "⚠️")
    text = [f"## {sign} blockproof verify: {verdict(done)}", "", f"`{done.old.name}` → `{done.new.name}`"]
    text += [*markdown_tables(_sections(done)), "", *(f"* {fact}" for fact in _facts(done))]
    for one in done.told:
        text += ["", "```", *_shown(one), "```"]
    return "\n".join([*text, ""])


def document(done: ComparedEngines) -> ChangeDocument:
    """The same for machines, and for its page."""
    told = ChangeDocument(done.old.name, done.new.name, verdict(done), NO_PROOFS, done.code, done.plan.seed)
    told.seconds, told.operations, told.work = round(done.seconds, 1), done.steps, done.figures
    told.bugs = [{"text": one.shown.finding.what} for one in done.bugs]
    told.findings = [_row(one) for one in (*done.told, *done.alike)]
    return told


def _row(one: EngineChange) -> VerifyFound:
    finding = one.shown.finding
    row = VerifyFound(finding.rule, "", finding.judge, finding.what, one.times, len(one.story.happenings))
    row.where, row.other_side, row.trace = one.shown.where.value, one.shown.why, one.file
    return row


def difference_document(done: ComparedEngines) -> DifferenceDocument:
    """What `diff` says of the same."""
    rows = [_situation(one) for one in done.told]
    compared = CompareRow(COMPARED, done.stories, done.steps, round(done.seconds, 1), rows)
    hidden = sorted(done.not_built)
    return DifferenceDocument(done.old.name, done.new.name, hidden, [compared], done.interrupted, done.figures)


def _situation(one: EngineChange) -> SituationRow:
    finding, text = one.shown.finding, "\n".join(_shown(one))
    row = SituationRow(f"{one.shown.where}: {finding.judge}", finding.rule, one.times, len(one.story.happenings), text)
    row.trace = one.file
    return row
