"""What is kept of a run that went on after findings: each of them once, the worst first, shrunk within one budget."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..findings.known import KnownFinding
from ..findings.severity import exception_of, headline, severity
from ..reports.summary import Found, Summary
from ..reports.told import Told
from ..targets.base import Target
from ..traces.known_file import add_known
from .keeping import Kept, keep_found
from .parting import parted
from .plan import Plan


@dataclass(frozen=True)
class KeptFound:
    """One of several findings, and what was kept of it."""

    found: Found
    kept: Kept

    def headline(self) -> str:
        """One line: how bad it is, what it is, and in how many runs it came up."""
        return headline(self.found.finding, self.found.times)

    def told(self) -> Told:
        """What reports tell of it."""
        finding = self.found.finding if self.kept.shrunk is None else self.kept.shrunk.finding
        attention = next(iter(self.found.attention), "")
        more, files = tuple(self.kept.more()), self.kept.files
        return Told(finding, self.headline(), attention, more, files.command, str(files.trace))

    def as_json(self) -> dict[str, object]:
        """Everything about it, JSON-ready."""
        finding = self.found.finding if self.kept.shrunk is None else self.kept.shrunk.finding
        what, where = finding.kind
        also = [{"severity": str(severity(one)), **one.as_json()} for one in finding.also]
        return {
            "severity": str(severity(finding)),
            "oracle": finding.oracle,
            "observable": what,
            "operation": where,
            "exception": exception_of(finding) or None,
            "times": self.found.times,
            "attention": dict(sorted(self.found.attention.items())),
            "text": str(finding),
            **({"also": also} if also else {}),
            "reproduction": self.kept.as_json(),
        }

    def entry(self) -> tuple[KnownFinding, str]:
        """The entry by which it would be known, and a comment."""
        small = self.kept.shrunk
        finding, trace = (self.found.finding, self.found.trace) if small is None else (small.finding, small.trace)
        id = "-".join(finding.kind).lower().replace(" ", "-")
        return KnownFinding.of(finding, trace, id), (finding.detail or str(finding)).partition("\n")[0]


def keep_all(done: Summary, target: Target, plan: Plan, folder: Path, say: Callable[[str], None]) -> list[KeptFound]:
    """Keep the worst finding as `keep_found` does; if the plan goes on after findings all of them, the worst first.

    All share `plan.shrink_seconds`; what one leaves of its part goes to those behind it, and what all leave to finding
    out which of them have two causes (`parting`). Ctrl-C ends the shrinking, and the others are kept as they are; all
    of them, if it has ended the runs already.
    """
    end, kept = time.monotonic() + (0.0 if done.interrupted else plan.shrink_seconds), list[KeptFound]()
    ranked = done.ranked()[: None if plan.keep_going else 1]
    for number, found in enumerate(ranked):
        share = max(0.0, end - time.monotonic()) / (len(ranked) - number)
        one = keep_found(found, done, target, replace(plan, shrink_seconds=share), folder, say)
        kept.append(KeptFound(found, one))
        end = 0.0 if one.interrupted else end
    for first in kept.copy() if plan.keep_going else ():
        small = first.kept.shrunk
        for other in parted(first.found, small.trace, target, plan, end) if small and small.complete else ():
            done.add_found(other)
            share = max(0.0, end - time.monotonic())
            again = keep_found(other, done, target, replace(plan, shrink_seconds=share), folder, say)
            kept.insert(kept.index(first) + 1, KeptFound(other, again))
    return kept


def write_known(path: Path, kept: Sequence[KeptFound]) -> list[str]:
    """Add entries for what was found to a file of known findings. Returns a line for a person. TraceError as from
    `add_known`."""
    if not kept:
        return []
    ids = add_known(path, [one.entry() for one in kept])
    return [f"added to {path}: {', '.join(ids)}; write a reason for each, then run with --known {path}"]
