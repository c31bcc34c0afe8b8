"""How bad a finding is: the one table by which findings are ranked (docs/guide/triage.md, "Several findings")."""

from collections.abc import Mapping
from enum import IntEnum

from ...model.ops import Failed
from .finding import Finding
from .oracle_names import LOCKSTEP
from .words import plural


class Severity(IntEnum):
    """What a user of the engine would notice, the worst first."""

    WRONG_CONTENT = 0
    CRASH = 1
    LEAK = 2
    OTHER_BEHAVIOUR = 3
    EFFICIENCY = 4
    REPORTING = 5

    def __str__(self) -> str:
        return _WORDS[self]


_WORDS: Mapping[Severity, str] = {
    Severity.WRONG_CONTENT: "wrong content",
    Severity.CRASH: "crash or standstill",
    Severity.LEAK: "leak",
    Severity.OTHER_BEHAVIOUR: "other behaviour",
    Severity.EFFICIENCY: "lost efficiency",
    Severity.REPORTING: "reporting",
}
_OF_JUDGES: Mapping[Severity, tuple[str, ...]] = {
    # A request reads, or will read, what was not written for it, or somebody else writes over what it reads.
    Severity.WRONG_CONTENT: ("corruption", "S2", "S4", "S5", "S6", "S7", "S13", "S15", "S16"),
    # A call that makes sense fails, a request is never served, the target dies or answers what is no answer.
    Severity.CRASH: ("S8", "L1", "crash", "hang", "protocol"),
    # Blocks or memory that nobody gets back; what is free and held at once also shows as S2 when it is handed out.
    Severity.LEAK: ("S1", "S12", "memory"),
    # Computed again, evicted too early, preempted without need. Registered too early also shows as S7 when it is hit.
    Severity.EFFICIENCY: ("S9", "S10", "S14", "S17", "S18", "L2", "L3", "L4"),
    # Who listens is told something wrong; the requests themselves are served.
    Severity.REPORTING: ("S11", "S19"),
}
"""Observables of the oracles that need no model, and of lost targets."""
_OF_LOCKSTEP: Mapping[Severity, tuple[str, ...]] = {
    Severity.LEAK: ("num_free", "ref_cnt"),
    Severity.REPORTING: ("usage", "events", "new_block_ids", "stats"),
}
"""What lockstep compares. Whether another answer or another table is a harmful one, it cannot say."""


def severity(finding: Finding) -> Severity:
    """How bad a finding is. A difference from the model, or between two targets, is other behaviour if nothing more is
    known of it."""
    by_lockstep = finding.oracle == LOCKSTEP
    if by_lockstep and isinstance(finding.actual, Failed) and not isinstance(finding.expected, Failed):
        return Severity.CRASH
    table = _OF_LOCKSTEP if by_lockstep else _OF_JUDGES
    return next((level for level, names in table.items() if finding.observable in names), Severity.OTHER_BEHAVIOUR)


def exception_of(finding: Finding) -> str:
    """Type of the exception that a finding is about; empty if it is not about one."""
    if finding.cause is not None:
        return finding.cause.type
    expected = finding.oracle == LOCKSTEP and finding.expected == finding.actual
    return finding.actual.error if isinstance(finding.actual, Failed) and not expected else ""


def headline(finding: Finding, times: int) -> str:
    """One line: how bad a finding is, what it is, and in how many runs it came up."""
    what, where = finding.kind
    raised = f" ({exception_of(finding)})" if exception_of(finding) else ""
    return f"{severity(finding)}: {finding.oracle}, {what} at {where}{raised}, in {plural(times, 'run')}"
