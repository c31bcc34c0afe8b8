"""What came of replaying a trace, for a person and for machines."""

from dataclasses import dataclass
from typing import Any

from ...model.ops import to_json
from ..findings.finding import Finding, Trace
from ..findings.words import shape_text
from .steps import step_lines, steps


@dataclass(frozen=True)
class Replayed:
    """A trace that was applied to a target, and what it showed."""

    wanted: Trace
    """The trace as it was given."""
    applied: Trace
    """The operations of it that made sense where they stood, up to the one that showed the finding."""
    target: str
    """What the target calls itself."""
    finding: Finding | None

    @property
    def left_out(self) -> int:
        """Operations that made no sense where they stood; not counted if a finding ended the trace early."""
        return len(self.wanted.operations) - len(self.applied.operations) if self.finding is None else 0

    def lines(self, show: bool) -> list[str]:
        """What it showed, for a person; with `show` first every step and what it changes."""
        lines = []
        if show:
            lines.append(shape_text(self.applied.shape))
            lines += [line for step in steps(self.applied, self.target) for line in step_lines(step)]
            lines.append("")
        if self.left_out:
            lines.append(f"operations left out, since they make no sense where they stand: {self.left_out}")
        agreed = f"no difference in {len(self.applied.operations)} operations on {self.target}"
        return [*lines, str(self.finding) if self.finding else agreed]

    def as_json(self, show: bool) -> dict[str, Any]:
        """The same as JSON-ready data."""
        count = len(self.applied.operations)
        document: dict[str, Any] = {"target": self.target, "operations": count, "left_out": self.left_out}
        document["finding"] = None
        if self.finding is not None:
            what, where = self.finding.kind
            text = str(self.finding)
            document["finding"] = {"observable": what, "operation": where, "step": self.finding.step, "text": text}
        if show:
            document["steps"] = [
                {"operation": to_json(step.operation), "outcome": to_json(step.outcome), "changes": step.changes}
                for step in steps(self.applied, self.target)
            ]
        return document
