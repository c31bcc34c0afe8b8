"""`blockproof targets check --engine`: an engine is asked everything once, in a process of its own, and each answer is
explained.

`python -m blockproof.fuzz.engines.engine_check TARGET` prints a JSON object for each check.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..findings.oracle_names import BLOCKPROOF
from ..findings.story_finding import StoryFinding
from ..findings.words import plural
from ..opening.commands import Printing
from ..opening.engine_process import begin_telling
from ..opening.engines import engine_spec, open_engine_here
from ..opening.targets import python_for
from ..simulation.checks import HINTS, EngineCheck, checks_for
from ..targets.base import TargetUnavailableError
from .deadlines import HANG, end_what_hangs
from .played import StartEndsError
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
    more: Sequence[str] = ()
    """The stack of a call that hangs, say."""
    hangs: bool = False
    """It has given no answer at all: no more is asked."""


@dataclass
class EngineReport:
    """What all of them came to."""

    target: str
    says: dict[str, Any] = field(default_factory=dict)
    """What the engine declares."""
    checks: list[Checked] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    """What it does not show, so that nobody judges it."""
    questions: int = 0
    """How many there are."""
    lost: str = ""
    """How its process ended before all were answered."""
    last_output: list[str] = field(default_factory=list)
    """Of that process."""

    @property
    def code(self) -> int:
        """0 if all questions were answered, and right, 1 if not, 3 if there is none."""
        if self.lost or any(one.judge for one in self.checks) or len(self.checks) < self.questions:
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
                lines += [f"    {one.judge}: {one.what}", *(f"      {line}" for line in one.more)]
                lines += [f"    in the engine, or in what shows it: {one.hint}"]
        lines += [f"  not shown, so not judged: {name}" for name in self.unseen]
        if self.lost:
            lines += [f"  the process was lost: {self.lost}", *(f"    {line}" for line in self.last_output)]
        return [*lines, self._sum()]

    def _sum(self) -> str:
        """All answers in one line."""
        wrong, many = sum(bool(one.judge) for one in self.checks), len(self.checks)
        said = f"{wrong} of {many} answers are wrong" if wrong else f"{many} answers are right"
        if many < self.questions:
            return f"{said}; {plural(self.questions - many, 'question')} of {self.questions} not answered"
        return said if wrong else f"all {said}" if many else "nothing was asked"


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
            report.questions = told.get("questions", report.questions)
        hung = bool(report.checks) and report.checks[-1].hangs
        if printing.status() or not report.questions or (len(report.checks) < report.questions and not hung):
            asks = begun or "its start"
            report.lost, report.last_output = f"{printing.how_ended()}, asked for: {asks}", printing.last_output()
    return report


def main(target: str) -> None:
    """See above."""
    say, stacks = begin_telling()
    end_what_hangs(stacks)
    try:
        family = SimulatedFamily(open_engine_here(target))
    except (ValueError, TargetUnavailableError) as wrong:
        say(refused=str(wrong), usage=isinstance(wrong, ValueError))
        return
    facts = family.facts
    asked = list(checks_for(facts))
    say(
        questions=len(asked),
        says={
            "depth": facts.depth,
            "offers": ", ".join(sorted(facts.offers)) or "nothing more",
            "has": ", ".join(sorted(facts.methods)) or "no optional method",
        },
    )
    _ask(family, asked, say)


def _ask(family: SimulatedFamily, asked: Sequence[EngineCheck], say: Callable[..., None]) -> None:
    """All questions, or those until one is not answered at all."""
    reached: dict[str, int] = {}
    for check in asked:
        say(begun=check.asks)
        done = Checked(check.asks)
        try:
            run = family.run_of(check.story)
        except StartEndsError as ends:
            _object(done, ends.finding)
        except Exception as error:  # an engine's start can fail in any way
            done.judge, done.what = "start", f"start() raises {type(error).__name__}: {error}"
            done.hint = "start(shape) builds an engine of the shape's groups, num_blocks and limits"
        else:
            found = run.run(ROUNDS)
            for name, many in run.reached.items():
                reached[name] = reached.get(name, 0) + many
            if found:
                _object(done, found[0])
        say(check=asdict(done))
        if done.hangs:
            return  # all others may take as long
    say(unseen=family.told(reached)["not_observed"])


def _object(done: Checked, found: StoryFinding) -> None:
    done.judge, done.what, done.more = found.judge, found.what, found.more
    done.hint = "" if done.judge == BLOCKPROOF else HINTS[done.judge]
    done.hangs = found.rule.startswith(HANG)


if __name__ == "__main__":
    main(*sys.argv[1:])
