"""Known findings: what a user has decided to live with for now, by property, operation and the shape of the trace."""

from dataclasses import MISSING, dataclass, fields
from typing import TypeAlias

from .finding import Finding, Trace
from .severity import exception_of

Uses: TypeAlias = tuple[str, ...]
"""The shape of a trace: which kinds of operations it has (`Preempt`), and which of their fields are not at their
default somewhere (`Allocate.hit`); sorted, each once. Of a smallest trace these are what the finding cannot do without.
Numbers, names, the order and how often an operation comes vary between smallest traces of one mistake."""


@dataclass(frozen=True)
class KnownFinding:
    """One entry. Everything it says must be equal; messages are never compared."""

    id: str
    reason: str
    property: str
    """`Finding.observable`."""
    operation: str
    """Kind of the operation that shows it, or `start`."""
    oracle: str
    exception: str
    """Type of the exception; empty if there is none."""
    attention: tuple[str, ...]
    """Kinds of the groups of the shape, in their order."""
    uses: tuple[Uses, ...]
    """Shapes of smallest traces, one of which it must have."""
    sentence: str = ""
    """Which of the property's sentences it is (`Finding.said`); any of them if it is empty, as in files of old."""

    def concerns(self, finding: Finding, trace: Trace) -> bool:
        """True if everything is equal that can be said before the trace is shrunk."""
        mine = (self.property, self.operation, self.oracle, self.exception, self.attention)
        same = mine == (*finding.kind, finding.oracle, exception_of(finding), attention_of(trace))
        return same and self.sentence in ("", finding.said)

    def matches(self, finding: Finding, smallest: Trace) -> bool:
        """True if the finding with this smallest trace is the known one."""
        return self.concerns(finding, smallest) and uses_of(smallest) in self.uses

    @classmethod
    def of(cls, finding: Finding, smallest: Trace, id: str) -> "KnownFinding":
        """The entry for a finding, without a reason."""
        what, where = finding.kind
        exception, groups = exception_of(finding), attention_of(smallest)
        return cls(id, "", what, where, finding.oracle, exception, groups, (uses_of(smallest),), finding.said)


def attention_of(trace: Trace) -> tuple[str, ...]:
    """Kinds of the groups of a trace's shape."""
    return tuple(group.kind for group in trace.shape.groups)


def uses_of(trace: Trace) -> Uses:
    """The shape of a trace."""
    uses = set()
    for operation in trace.operations:
        kind = type(operation).__name__
        uses.add(kind)
        for field in fields(operation):
            if field.default is not MISSING and getattr(operation, field.name) != field.default:
                uses.add(f"{kind}.{field.name}")
    return tuple(sorted(uses))
