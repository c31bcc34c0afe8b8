"""How bad a finding is: the one table by which findings are ranked (docs/guide/triage.md, "Several findings")."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from functools import total_ordering

from ...model.ops import Failed
from .finding import BUG, Finding
from .oracle_names import BLOCKPROOF, CONTRACT, DIFFERENCE, LIVENESS, LOCKSTEP, SHADOW, TARGET


@total_ordering
class Severity(Enum):
    """What a user of the engine would notice, the worst first. The values are what stores of campaigns keep."""

    WRONG_CONTENT = 0
    LEAK = 2
    CRASH = 1
    EFFICIENCY = 4
    OTHER_BEHAVIOUR = 3
    REPORTING = 5
    OUR_BUG = 6

    def __str__(self) -> str:
        return _WORDS[self]

    def __lt__(self, other: object) -> bool:
        return self.rank < other.rank if isinstance(other, Severity) else NotImplemented

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)

    @classmethod
    def stored_order(cls, column: str) -> str:
        """What a column of values is to be ordered by, in SQL: the worst first."""
        return f"CASE {column} " + " ".join(f"WHEN {one.value} THEN {one.rank}" for one in cls) + " END"


_WORDS: Mapping[Severity, str] = {
    Severity.WRONG_CONTENT: "wrong content",
    Severity.LEAK: "leak",
    Severity.CRASH: "crash or standstill",
    Severity.EFFICIENCY: "lost efficiency",
    Severity.OTHER_BEHAVIOUR: "other behaviour",
    Severity.REPORTING: "reporting",
    Severity.OUR_BUG: "a bug of blockproof",
}
_OF_JUDGES: Mapping[Severity, tuple[str, ...]] = {
    # A request reads, or will read, what was not written for it, or somebody else writes over what it reads.
    Severity.WRONG_CONTENT: ("corruption", "S2", "S4", "S5", "S6", "S7", "S13", "S15", "S16"),
    # Blocks or memory that nobody gets back.
    Severity.LEAK: ("S1", "S12", "memory"),
    # A call that makes sense fails, a request is never served, the target dies or answers what is no answer.
    Severity.CRASH: ("S8", "L1", "crash", "hang", "protocol"),
    # Computed again, evicted too early, preempted without need.
    Severity.EFFICIENCY: ("S9", "S10", "S14", "S17", "S18", "L2", "L3", "L4"),
    # Who listens is told something wrong; the requests themselves are served.
    Severity.REPORTING: ("S11", "S19"),
    # Our own code has failed: whatever else was found is about the target, and comes first.
    Severity.OUR_BUG: (BUG,),
}
"""Observables of the oracles that need no model, and of lost targets."""
OF_SENTENCES: Mapping[Severity, tuple[tuple[str, str], ...]] = {
    # A block that will be handed out although somebody reads it; or that is found although it holds something else.
    Severity.WRONG_CONTENT: (
        ("S1", "free and held"),
        ("S1", "free twice"),
        ("S1", "too few references"),
        ("S1", "too many"),
        ("S1", "outside of the pool"),
        ("S10", "too early"),
        ("S10", "old identity"),
        ("S10", "not forgotten"),
        ("S10", "found unregistered"),
    ),
    Severity.LEAK: (("S8", "took"),),
    # It is preempted and begins again, for ever.
    Severity.CRASH: (("L4", "refused alone"), ("L4", "let in for ever")),
}
"""Sentences (`Finding.said`) of these that are worse than the others of their property."""
_REPORTED = ("usage", "events", "new_block_ids", "stats")
"""What lockstep compares that is only told to somebody."""
_ORDER = (SHADOW, CONTRACT, LIVENESS, TARGET, LOCKSTEP, DIFFERENCE, BLOCKPROOF)
"""Of several that are equally bad, the one that says most comes first."""


def severity(finding: Finding) -> Severity:
    """How bad a finding is. A difference from the model, or between two targets, is other behaviour: whether it is a
    harmful one, it cannot say. But an exception where the model knows of none is a crash."""
    if finding.oracle == LOCKSTEP:
        if isinstance(finding.actual, Failed) and not isinstance(finding.expected, Failed):
            return Severity.CRASH
        return Severity.REPORTING if finding.observable in _REPORTED else Severity.OTHER_BEHAVIOUR
    sentence = finding.observable, finding.said
    exact = next((level for level, sentences in OF_SENTENCES.items() if sentence in sentences), None)
    names = ((level, names) for level, names in _OF_JUDGES.items() if finding.observable in names)
    return exact or next((level for level, _ in names), Severity.OTHER_BEHAVIOUR)


def worst_of(objections: Iterable[Finding]) -> Finding | None:
    """The worst of what is objected to at one operation, with the others in `Finding.also`; None if there are none."""
    ranked = sorted(objections, key=lambda one: (severity(one), _ORDER.index(one.oracle)))
    return replace(ranked[0], also=tuple(ranked[1:])) if ranked else None


def exception_of(finding: Finding) -> str:
    """Type of the exception that a finding is about; empty if it is not about one."""
    if finding.cause is not None:
        return finding.cause.type
    expected = finding.oracle == LOCKSTEP and finding.expected == finding.actual
    return finding.actual.error if isinstance(finding.actual, Failed) and not expected else ""
