"""Theorems, and what a change to a core does, as documents: what `prove --json` and `verify --json` print."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from ..findings.words import plural
from .difference import Work, work_table
from .document import FoundCard, Lead, ReportDocument, ResultDocument, Table


class Settled(msgspec.Struct):
    """A theorem on one subject."""

    theorem: str
    subject: str = ""
    status: str = ""
    bounded: str = ""
    message: str = ""
    seconds: float = 0.0
    obligations: int = 0
    """How many the solver proved."""
    confirmed: int = 0
    """How many a second solver has confirmed."""
    controls: dict[str, str] = {}
    """What came of wrong variants, which are to be refuted."""
    disputed: list[str] = []
    outcome: str = ""
    witness: Any = None
    paths: int = 0
    questions: int = 0
    counterexample: dict[str, int] | None = None
    replayed: bool = False
    """True if the counterexample was run on the real code and the claim failed there."""
    covered: dict[str, str] = {}
    """Functions of the core that ran, with a hash of their source."""
    replays: int = 0
    largest: int = 0
    evidence: str = ""
    trusted_lines: int = 0
    """Lines of this program that the result rests on."""


class TrustedPart(msgspec.Struct):
    """A part of this program that proofs rest on."""

    what: str
    lines: int


class Trusted(msgspec.Struct):
    """What of this program proofs rest on."""

    lines: int = 0
    parts: list[TrustedPart] = []


class TheoremsDocument(ResultDocument, tag="theorems"):
    """All theorems that were asked for."""

    results: list[Settled]
    cross_checked: bool = False
    problems: list[str] = []
    trusted: Trusted = msgspec.field(default_factory=Trusted)

    def report(self, title: str, *, running: bool = False) -> ReportDocument:
        """See `ResultDocument`."""
        return super().report(f"proofs: {title}", running=running)

    def lead(self) -> Lead:
        """See `ResultDocument`."""
        counts = Counter(one.status for one in self.results)
        known = ("proved", "refuted", "undecided", "unavailable")
        names = [*(name for name in known if name in counts), *sorted(counts.keys() - {*known})]
        problems = f"; {plural(len(self.problems), 'problem')}" if self.problems else ""
        said = f"{counts['proved']} of {plural(len(self.results), 'theorem')} proved{problems}"
        asked = "each question asked of a second solver, too" if self.cross_checked else "asked of one solver"
        mood = "bad" if self.problems or counts["refuted"] else "good"
        return Lead(asked, said, mood, [(name, f"{counts[name]:,}") for name in names])

    def notes(self) -> list[str]:
        """See `ResultDocument`."""
        return self.problems

    def tables(self) -> Sequence[Table]:
        """What is not proved comes first."""
        return (_theorems(self.results),)


class ProofsChanged(msgspec.Struct):
    """The theorems over functions that differ between two sides."""

    text: str = ""
    functions: int = 0
    """Those that were compared."""
    changed: list[str] = []
    theorems: dict[str, dict[str, str]] = {}


class VerifyFound(msgspec.Struct):
    """A situation that changed, or a finding of one side."""

    what: str = ""
    operation: str = ""
    oracle: str = ""
    text: str = ""
    runs: int = 1
    operations: int = 0
    """Of its smallest trace."""
    trace: str = ""
    where: str = ""
    """What the change did: `introduced`, `fixed`, and so on (`releases.verify_effects.Where`)."""
    noticed: str = ""
    """What a user of the engine notices of it."""
    corrects: list[str] = []
    """Known deviations of the old side that the new one does right."""
    compared_by: str = ""
    """What a change was seen in."""
    other_side: str = ""
    """Why the other side does not have the finding."""


class ChangeDocument(ResultDocument, tag="verification"):
    """What a change to a core changes: what behaves otherwise, what was found, which theorems still hold."""

    old: str
    new: str
    verdict: str
    proofs: str | ProofsChanged
    code: int = 0
    """Exit code of the command."""
    seed: int = 0
    seconds: float = 0.0
    spent: dict[str, float] = {}
    """Seconds by what they were spent on."""
    bugs: list[dict[str, Any]] = []
    """Findings of which blockproof itself is the cause."""
    unfinished: list[str] = []
    operations: int = 0
    hidden: list[str] = []
    """What is not compared, as a side hides it."""
    changed: list[VerifyFound] = []
    findings: list[VerifyFound] = []
    intended: dict[str, int] = {}
    intended_not_seen: list[str] = []
    judged_operations: dict[str, int] = {}
    speed: str | dict[str, Any] = ""
    work: dict[str, Work] = {}
    """What two engines have done; empty for targets."""

    def report(self, title: str, *, running: bool = False) -> ReportDocument:
        """See `ResultDocument`."""
        return super().report(f"{self.old} → {self.new}: {title}", running=running)

    def lead(self) -> Lead:
        """See `ResultDocument`."""
        done = f"{plural(self.operations, 'operation')} on both sides in {self.seconds:.0f} s, seed {self.seed}"
        counts = (("operations", self.operations), ("changed", len(self.changed)), ("findings", len(self.findings)))
        mood = {0: "good", 1: "bad"}.get(self.code, "note")
        return Lead(done, self.verdict, mood, [(name, f"{count:,}") for name, count in counts])

    def cards(self) -> list[FoundCard]:
        """See `ResultDocument`."""
        return [_card(one, self.new) for one in (*self.changed, *self.findings)]

    def notes(self) -> list[str]:
        """See `ResultDocument`."""
        speed = self.speed if isinstance(self.speed, str) else str(self.speed.get("text", ""))
        proofs = self.proofs if isinstance(self.proofs, str) else self.proofs.text
        return [f"{name}: {text}" for name, text in (("speed", speed), ("proofs", proofs)) if text or name == "proofs"]

    def tables(self) -> Sequence[Table]:
        """See `ResultDocument`."""
        intended = [[name, f"{times:,}"] for name, times in sorted(self.intended.items())]
        work = (work_table(self.work),) if self.work else ()
        return *work, _sides(self.proofs), Table("Intended changes", ["id", "times"], intended)


def _card(one: VerifyFound, target: str) -> FoundCard:
    what = f"{one.what} at {one.operation}" if one.operation else one.what
    where = one.where or f"compared by {one.compared_by}"
    head = f"{one.oracle}: {what}, {where}, in {plural(one.runs, 'run')}"
    card = FoundCard(head, one.text, oracle=one.oracle, observable=one.what, target=target, times=one.runs)
    card.file = one.trace
    return card


def _sides(proofs: str | ProofsChanged) -> Table:
    """Theorems over functions that differ, those first that came out otherwise."""
    statuses = {} if isinstance(proofs, str) else proofs.theorems
    rows = [(name, sides.get("old", ""), sides.get("new", "")) for name, sides in statuses.items()]
    rows.sort(key=lambda row: (row[1] == row[2], row[0]))
    marks = ["" if old == new else "bad" if new != "proved" else "good" for _, old, new in rows]
    columns = ["theorem", "old side", "new side"]
    return Table("Theorems over functions that differ", columns, [list(row) for row in rows], marks=marks)


def _theorems(results: Sequence[Settled]) -> Table:
    ordered = sorted(results, key=lambda one: one.status == "proved")
    columns = ["theorem", "on", "status", "how", "wrong variants refuted", "seconds"]
    rows, marks = [], []
    for one in ordered:
        refuted = sum(status == "refuted" for status in one.controls.values())
        how = one.message or one.bounded
        controls = f"{refuted} of {len(one.controls)}" if one.controls else ""
        rows.append([one.theorem, one.subject, one.status, how, controls, f"{one.seconds:.1f}"])
        marks.append({"proved": "", "refuted": "bad"}.get(one.status, "note"))
    return Table("Theorems", columns, rows, marks=marks)
