"""`blockproof targets check --engine`: an engine is asked everything once, in a process of its own, and each answer is
explained.

`python -m blockproof.fuzz.engines.engine_check TARGET` prints a JSON object for each check.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from ..findings.oracle_names import BLOCKPROOF
from ..opening.commands import Printing
from ..opening.engines import engine_spec, open_engine_here
from ..opening.targets import python_for
from ..simulation.checks import HINTS, checks_for
from ..targets.base import TargetUnavailableError
from .simulated import SimulatedFamily

ROUNDS = 500
"""Of one check; each needs some twenty."""


@dataclass
class Checked:
    """What one question came to."""

    asks: str
    judge: str = ""
    """Who objects; empty if nobody does."""
    what: str = ""
    hint: str = ""
    """What its author may look at."""


@dataclass
class EngineReport:
    """What all of them came to."""

    target: str
    says: dict[str, Any] = field(default_factory=dict)
    """What the engine declares."""
    checks: list[Checked] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    """What it does not show, so that nobody judges it."""
    lost: str = ""

    @property
    def code(self) -> int:
        """0 if all answers are right, 1 if one is wrong or the process was lost, 3 if nothing was asked."""
        if self.lost or any(one.judge for one in self.checks):
            return 1
        return 0 if self.checks else 3

    def as_json(self) -> dict[str, object]:
        """JSON-ready."""
        return asdict(self)

    def lines(self) -> list[str]:
        """For people."""
        lines = [f"{self.target}: " + ", ".join(f"{name} {value}" for name, value in self.says.items())]
        for one in self.checks:
            lines.append(f"  {'wrong' if one.judge else 'right'}: {one.asks}")
            if one.judge:
                lines += [f"    {one.judge}: {one.what}", f"    in the engine, or in what shows it: {one.hint}"]
        lines += [f"  not shown, so not judged: {name}" for name in self.unseen]
        lines += [f"  the process was lost: {self.lost}"] if self.lost else []
        wrong = sum(bool(one.judge) for one in self.checks)
        right = f"all {len(self.checks)} answers are right" if self.checks else "nothing was asked"
        right = f"{len(self.checks)} answers are right, and no more was asked" if self.lost and self.checks else right
        lines.append(f"{wrong} of {len(self.checks)} answers are wrong" if wrong else right)
        return lines


def check_engine(target: str) -> EngineReport:
    """Ask it. ValueError for what cannot be meant, TargetUnavailableError for an engine that cannot be made."""
    report, spec = EngineReport(target), engine_spec(target)
    with python_for(target) as python, Printing(python.words(__name__, spec), python.environment) as printing:
        begun = ""
        for told in printing:
            begun = told.get("begun", begun)
            if "refused" in told:
                raise (ValueError if told["usage"] else TargetUnavailableError)(told["refused"])
            if "check" in told:
                report.checks.append(Checked(**told["check"]))
            report.says = told.get("says", report.says)
            report.unseen = told.get("unseen", report.unseen)
        if status := printing.status():
            asks = begun or "its start"
            report.lost = f"exit status {status}, asked for: {asks}"
    return report


def main(target: str) -> None:
    """See above."""
    lines, sys.stdout = sys.stdout, sys.stderr  # an engine may print

    def say(**told: object) -> None:
        print(json.dumps(told), file=lines, flush=True)

    try:
        family = SimulatedFamily(open_engine_here(target))
    except (ValueError, TargetUnavailableError) as wrong:
        say(refused=str(wrong), usage=isinstance(wrong, ValueError))
        return
    facts = family.facts
    say(
        says={
            "depth": facts.depth,
            "offers": ", ".join(sorted(facts.offers)) or "nothing more",
            "has": ", ".join(sorted(facts.methods)) or "no optional method",
        }
    )
    _ask(family, say)


def _ask(family: SimulatedFamily, say: Callable[..., None]) -> None:
    reached: dict[str, int] = {}
    for check in checks_for(family.facts):
        say(begun=check.asks)
        done = Checked(check.asks)
        try:
            run = family.run_of(check.story)
        except Exception as error:  # an engine's start can fail in any way
            done.judge, done.what = "start", f"start() raises {type(error).__name__}: {error}"
            done.hint = "start(shape) builds an engine of the shape's groups, num_blocks and limits"
        else:
            found = run.run(ROUNDS)
            for name, many in run.reached.items():
                reached[name] = reached.get(name, 0) + many
            if found:
                done.judge, done.what = found[0].judge, found[0].what
                done.hint = "" if done.judge == BLOCKPROOF else HINTS[done.judge]
        say(check=asdict(done))
    say(unseen=family.told(reached)["not_observed"])


if __name__ == "__main__":
    main(*sys.argv[1:])
