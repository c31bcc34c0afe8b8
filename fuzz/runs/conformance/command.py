"""The check as a command runs it: a target by its name, with its version and what to do next."""

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass

from ...findings.words import plural
from ...opening.targets import open_target
from ...targets.base import Target, close_target
from .blame import WHICH
from .check import check_target
from .driving import ORACLES
from .lines import Conformance


@dataclass(frozen=True)
class CheckedTarget:
    """How a target answered, and how long that took."""

    target: str
    version: str
    seconds: float
    report: Conformance

    @property
    def code(self) -> int:
        """Exit code: as `Conformance.code`."""
        return self.report.code

    def lines(self) -> list[str]:
        """The report as text, the verdict last."""
        wrong, asked = len(self.report.of("wrong")), plural(self.report.asked, "operation")
        head = f"{self.target} (version {self.version or 'unknown'})"
        took = f"{asked} asked in {self.seconds} s"
        name = shlex.quote(self.target)
        if wrong:
            either = any(line.engine for line in self.report.of("wrong"))
            again = f"begin with the first, then: blockproof targets check {name}"
            end = [f"{head}: {plural(wrong, 'answer')} wrong, {took}", *([WHICH] if either else []), again]
        elif bugs := self.report.of("bug"):
            end = [
                f"{head}: {plural(len(bugs), 'bug')} of blockproof, so not all was asked; please report what is above"
            ]
        else:
            hints = len(self.report.of("hint"))
            more = f", {plural(hints, 'hint')} above" if hints else ""
            end = [
                f"{head}: all answers are right, {took}{more}",
                f"next: blockproof fuzz --target {name} --seconds 60",
            ]
        return [*self.report.lines(), "", *end]

    def as_json(self) -> dict[str, object]:
        """The report as a JSON document."""
        said = {"target": self.target, "version": self.version, "seconds": self.seconds, "exit": self.code}
        return said | self.report.as_json()


def check_named(
    spec: str, isolate: bool | None = None, chosen: Callable[[Target], Sequence[str]] = lambda _: ORACLES
) -> CheckedTarget:
    """Check the target of this name. What it prints goes to the standard error.

    With `isolate` in a process of its own; a release always is, if this interpreter cannot import it. `chosen` says
    which oracles judge the target, opened. ValueError and TargetUnavailableError as from opening a target.
    """
    begin = time.monotonic()
    with redirect_stdout(sys.stderr):
        target = open_target(spec, isolate=isolate)
        try:
            report = check_target(target, chosen(target))
            version = str(getattr(target, "version", ""))
        finally:
            close_target(target)
    return CheckedTarget(spec, version, round(time.monotonic() - begin, 1), report)
