"""`blockproof fuzz-config` without its command line: a run, what it keeps, and whether that is a failure."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..reports.floors import Floors
from ..reports.progress import progress
from ..targets.base import Calculator
from ..traces.files import TraceError
from .check import Judge, Limits, Oracle, run
from .findings import ConfigurationFinding, as_document, finding_text, write_finding
from .reach import Reach
from .shrink import NO_QUESTION, SmallerFinding, ask_again, shrink_finding

SHRINK_SECONDS = 60.0
"""How long each finding is shrunk at most."""


@dataclass(frozen=True)
class ConfigurationTask:
    """What is to be fuzzed, and how."""

    spec: str
    """Name of the target, as `--target` takes it."""
    seed: int
    limits: Limits
    oracle: Oracle = "all"
    isolate: bool = False
    """The target in a process of its own."""


@dataclass(frozen=True)
class KeptFinding:
    """A finding that was shrunk and written to a file."""

    smaller: SmallerFinding
    path: Path

    def as_json(self) -> dict[str, object]:
        """The finding, its file and whether it was shrunk as far as possible, JSON-ready."""
        return {**as_document(self.smaller.finding), "file": str(self.path), "complete": self.smaller.complete}

    def lines(self) -> list[str]:
        """The finding for a person, after an empty line."""
        smaller = self.smaller
        gave_up = "" if smaller.complete else "; gave up early, it may get smaller"
        return [
            "",
            f"shrunk in {smaller.candidates:,} tries, {smaller.seconds:.1f} s{gave_up}; from {smaller.finding.seed}",
            finding_text(smaller.finding),
            f"repeat the finding: {shlex.join(['blockproof', 'fuzz-config', '--replay', str(self.path)])}",
        ]


@dataclass(frozen=True)
class ConfigurationOutcome:
    """What came of a task."""

    reach: Reach
    kept: Sequence[KeptFinding]
    unmet: Sequence[str]
    """A line for each floor that was not reached."""
    repeat: str
    """The shell command that checks the same configurations again."""

    @property
    def failed(self) -> bool:
        """True if something was found or a floor was not reached."""
        return bool(self.reach.findings or self.unmet)

    def headline(self) -> str:
        """One line: what was run and how much of it."""
        reach = self.reach
        rate = reach.configurations / reach.seconds if reach.seconds else 0.0
        ended = ", ended by Ctrl-C" if reach.interrupted else ""
        counts = f"{reach.configurations:,} configurations, {reach.questions:,} questions in {reach.seconds:.1f} s"
        return f"{reach.target}, seed {reach.seed}: {counts} ({rate:,.0f} configurations/s){ended}"

    def verdict(self) -> str:
        """One line: what was found, or that nothing was."""
        found = len(self.reach.findings)
        return f"FOUND: {found}" if found else f"no difference in {self.reach.questions:,} answers"

    def lines(self) -> list[str]:
        """What a person is told below the tables of the report."""
        return [*(line for kept in self.kept for line in kept.lines()), *self.unmet, f"repeat this run: {self.repeat}"]

    def as_json(self) -> dict[str, Any]:
        """The report, JSON-ready."""
        ends = {"floors_unmet": [*self.unmet], "repeat": self.repeat, "found": [one.as_json() for one in self.kept]}
        return {**self.reach.as_json(), **ends}


def fuzz_configurations(
    task: ConfigurationTask, calculator: Calculator, out: Path, floors: Floors, say: Callable[[str], None]
) -> ConfigurationOutcome:
    """Check configurations on the opened target, and shrink and keep in the folder `out` what is found.

    Progress is shown on a terminal, and `say` is told each step in a line. Ctrl-C ends the run early; what was checked
    until then is reported.
    """
    reach = Reach(calculator.name, task.seed)
    say(f"fuzzing the configuration arithmetic of {calculator.name}, seed {task.seed}")
    _run(task, calculator, reach)
    kept = [_keep(finding, Judge(calculator, oracle=task.oracle), out, say) for finding in reach.findings]
    return ConfigurationOutcome(reach, kept, reach.unmet(floors), repeat_command(task, reach))


def _run(task: ConfigurationTask, calculator: Calculator, reach: Reach) -> None:
    """Fill in what is reached. Ctrl-C ends the run, not the program."""
    limits = task.limits
    with progress(limits.seconds, limits.configurations, ("question", "configuration")) as show:
        try:
            run(
                calculator,
                reach,
                limits,
                task.oracle,
                lambda so_far: show(so_far.questions, so_far.configurations, so_far.seconds),
            )
        except KeyboardInterrupt:
            reach.interrupted = True


def _keep(finding: ConfigurationFinding, judge: Judge, out: Path, say: Callable[[str], None]) -> KeptFinding:
    """Write the finding as it is, shrink it, write it again."""
    first = write_finding(finding, out)
    say(f"found by {finding.oracle} in {finding.op}, saved in {first}; shrinking ...")
    smaller = shrink_finding(finding, judge, SHRINK_SECONDS)
    kept = write_finding(smaller.finding, out)
    if smaller.complete and kept != first:
        first.unlink()
    return KeptFinding(smaller, kept)


def repeat_command(task: ConfigurationTask, reach: Reach) -> str:
    """The shell command that checks the same configurations again."""
    words = ["blockproof", "fuzz-config", "--target", task.spec, "--cases", str(max(1, reach.configurations))]
    words += ["--seed", str(reach.seed)]
    words += ["--oracle", task.oracle] if task.oracle != "all" else []
    words += ["--findings", str(task.limits.findings)] if task.limits.findings > 1 else []
    words += ["--isolate"] if task.isolate else []
    return shlex.join(words)


def ask_recorded(path: Path, recorded: ConfigurationFinding, calculator: Calculator) -> ConfigurationFinding | None:
    """What is found over the inputs of a file that was read from `path`; None if the target agrees now.

    TraceError if its inputs are no question of their op.
    """
    try:
        return ask_again(recorded, Judge(calculator))
    except NO_QUESTION as error:
        problem = f"no inputs of a question {recorded.op!r} ({type(error).__name__}: {error}); correct the file"
        raise TraceError(str(path), "inputs", problem) from None
