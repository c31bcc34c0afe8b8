"""What `verify --json` and `prove --json` print, as documents of pages: theorems, and what a change to a core does."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..findings.words import plural
from .document import VERSION, FoundCard, ReportDocument, Table


class Settled(msgspec.Struct):
    """A theorem on one subject."""

    theorem: str
    subject: str = ""
    status: str = ""
    bounded: str = ""
    message: str = ""
    seconds: float = 0.0
    obligations: int = 0
    confirmed: int = 0
    controls: dict[str, str] = {}


class ProveFile(msgspec.Struct):
    """All theorems that were asked for."""

    results: list[Settled]
    cross_checked: bool = False
    problems: list[str] = []


class ProofsChanged(msgspec.Struct):
    """The theorems over functions that differ between two sides."""

    text: str = ""
    changed: list[str] = []
    theorems: dict[str, dict[str, str]] = {}


class VerifyFound(msgspec.Struct):
    """A situation that changed, or a finding of one side."""

    what: str = ""
    operation: str = ""
    oracle: str = ""
    text: str = ""
    runs: int = 1
    trace: str = ""
    where: str = ""
    compared_by: str = ""


class VerifyFile(msgspec.Struct):
    """What a change to a core changes."""

    old: str
    new: str
    verdict: str
    proofs: str | ProofsChanged
    code: int = 0
    seed: int = 0
    seconds: float = 0.0
    operations: int = 0
    changed: list[VerifyFound] = []
    findings: list[VerifyFound] = []
    intended: dict[str, int] = {}
    speed: str | dict[str, Any] = ""

    def traces(self) -> list[str]:
        """The trace file of each card."""
        return [one.trace for one in (*self.changed, *self.findings)]


def verify_document(done: VerifyFile, title: str) -> ReportDocument:
    """The page of a change: what behaves otherwise, what was found, which theorems still hold."""
    mood = "good" if done.code == 0 else "bad" if done.code == 1 else "note"
    head = f"{plural(done.operations, 'operation')} on both sides in {done.seconds:.0f} s, seed {done.seed}"
    document = ReportDocument(VERSION, f"{done.old} → {done.new}: {title}", head, done.verdict, mood, [])
    document.figures = [["operations", f"{done.operations:,}"], ["changed", f"{len(done.changed):,}"]]
    document.figures += [["findings", f"{len(done.findings):,}"]]
    document.cards = [_card(one, done.new) for one in (*done.changed, *done.findings)]
    speed = done.speed if isinstance(done.speed, str) else str(done.speed.get("text", ""))
    document.notes = [line for line in (f"speed: {speed}" if speed else "", f"proofs: {_text(done.proofs)}") if line]
    tables = [_sides(done.proofs), _counted(done.intended)]
    document.tables = [table for table in tables if table.rows]
    return document


def _text(proofs: str | ProofsChanged) -> str:
    return proofs if isinstance(proofs, str) else proofs.text


def _card(one: VerifyFound, target: str) -> FoundCard:
    what = f"{one.what} at {one.operation}" if one.operation else one.what
    where = one.where or f"compared by {one.compared_by}"
    head = f"{one.oracle}: {what}, {where}, in {plural(one.runs, 'run')}"
    return FoundCard(head, one.text, oracle=one.oracle, observable=one.what, target=target, times=one.runs)


def _sides(proofs: str | ProofsChanged) -> Table:
    """Theorems over functions that differ, those first that came out otherwise."""
    statuses = {} if isinstance(proofs, str) else proofs.theorems
    rows = [(name, sides.get("old", ""), sides.get("new", "")) for name, sides in statuses.items()]
    rows.sort(key=lambda row: (row[1] == row[2], row[0]))
    marks = ["" if old == new else "bad" if new != "proved" else "good" for _, old, new in rows]
    columns = ["theorem", "old side", "new side"]
    return Table("Theorems over functions that differ", columns, [list(row) for row in rows], marks=marks)


def _counted(intended: Mapping[str, int]) -> Table:
    rows = [[name, f"{times:,}"] for name, times in sorted(intended.items())]
    return Table("Intended changes", ["id", "times"], rows)


def prove_document(done: ProveFile, title: str) -> ReportDocument:
    """The page of a run of the provers: what is not proved comes first."""
    proved = sum(one.status == "proved" for one in done.results)
    verdict = f"{proved} of {plural(len(done.results), 'theorem')} proved"
    verdict += f"; {plural(len(done.problems), 'problem')}" if done.problems else ""
    mood = "bad" if done.problems or any(one.status == "refuted" for one in done.results) else "good"
    head = "each question asked of a second solver, too" if done.cross_checked else "asked of one solver"
    document = ReportDocument(VERSION, f"proofs: {title}", head, verdict, mood, [])
    counts = {status: sum(one.status == status for one in done.results) for status in _statuses(done.results)}
    document.figures = [[status, f"{count:,}"] for status, count in counts.items()]
    document.notes = done.problems
    document.tables = [_theorems(done.results)]
    return document


def _statuses(results: Sequence[Settled]) -> list[str]:
    known = ["proved", "refuted", "undecided", "unavailable"]
    found = {one.status for one in results}
    return [status for status in known if status in found] + sorted(found.difference(known))


def _theorems(results: Sequence[Settled]) -> Table:
    ordered = sorted(results, key=lambda one: one.status == "proved")
    columns = ["theorem", "on", "status", "how", "wrong variants refuted", "seconds"]
    table = Table("Theorems", columns, [])
    for one in ordered:
        refuted = sum(status == "refuted" for status in one.controls.values())
        how = one.message or one.bounded
        controls = f"{refuted} of {len(one.controls)}" if one.controls else ""
        table.rows.append([one.theorem, one.subject, one.status, how, controls, f"{one.seconds:.1f}"])
        table.marks.append({"proved": "", "refuted": "bad"}.get(one.status, "note"))
    return table
