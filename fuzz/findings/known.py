"""Known findings: what a user has decided to live with for now, by property, operation and the shape of the trace."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...model.ops import Operation
from .finding import Finding, Trace
from .severity import exception_of

Lifelines: TypeAlias = tuple[str, ...]
"""The shape of a trace: for each request the kinds of its operations in order, as one text; then, as one more text,
those that name no request, if there are any. Sorted: names of requests, their order, and how they are interleaved do
not matter."""


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
    """Type of the exception; empty if the last call did not fail."""
    attention: tuple[str, ...]
    """Kinds of the groups of the shape, in their order."""
    traces: tuple[Lifelines, ...] | None
    """Shapes of smallest traces, one of which it must have; None for any."""

    def concerns(self, finding: Finding, trace: Trace) -> bool:
        """True if everything is equal that can be said before the trace is shrunk."""
        mine = (self.property, self.operation, self.oracle, self.exception, self.attention)
        return mine == (*finding.kind, finding.oracle, exception_of(finding), attention_of(trace))

    def matches(self, finding: Finding, smallest: Trace) -> bool:
        """True if the finding with this smallest trace is the known one."""
        return self.concerns(finding, smallest) and (self.traces is None or lifelines(smallest) in self.traces)

    @classmethod
    def of(cls, finding: Finding, smallest: Trace, id: str) -> "KnownFinding":
        """The entry for a finding, without a reason."""
        what, where = finding.kind
        exception, groups = exception_of(finding), attention_of(smallest)
        return cls(id, "", what, where, finding.oracle, exception, groups, (lifelines(smallest),))


def attention_of(trace: Trace) -> tuple[str, ...]:
    """Kinds of the groups of a trace's shape."""
    return tuple(group.kind for group in trace.shape.groups)


def lifelines(trace: Trace) -> Lifelines:
    """The shape of a trace."""
    lines: dict[str | None, list[Operation]] = {}
    for operation in trace.operations:
        lines.setdefault(getattr(operation, "request", None), []).append(operation)
    alone = lines.pop(None, [])
    of_requests = sorted(map(_kinds, lines.values()))
    return tuple([*of_requests, *([f"- {_kinds(alone)}"] if alone else [])])


def _kinds(operations: Sequence[Operation]) -> str:
    return " ".join(type(operation).__name__ for operation in operations)
