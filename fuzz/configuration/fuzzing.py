"""`blockproof fuzz-config` without its command line: a run, what it keeps, and whether that is a failure."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..faults import Fault, Part, faults_in
from ..findings.interruption import interrupted_by
from ..findings.oracle_names import LOCKSTEP
from ..findings.words import plural
from ..opening.known_deviations import known_of
from ..opening.targets import isolate_words
from ..reports.floors import Floors
from ..reports.progress import progress
from ..runs.canary import Canary, check_plants
from ..targets.base import Calculator
from ..targets.configuration_answers import answer
from ..traces.files import TraceError
from .check import CheckLimits, Judge, Oracle, run
from .draw import configuration_of
from .findings import ConfigurationFinding, as_document, finding_text, write_finding
from .questions import Question
from .reach import Reach
from .shrink import NO_QUESTION, SmallerFinding, ask_again, shrink_finding

SHRINK_SECONDS = 60.0
"""How long each finding is shrunk at most."""
SLOW_CONFIGURATIONS = 12.0
"""A second; our own arithmetic does some fifty, a release in a process of its own about as many."""
SLOW_AFTER_S = 5.0
"""Shorter runs say nothing about how fast a target is."""


@dataclass(frozen=True)
class ConfigurationTask:
    """What is to be fuzzed, and how."""

    spec: str
    """Name of the target, as `--target` takes it."""
    seed: int
    limits: CheckLimits
    oracle: Oracle = "all"
    isolate: bool | None = None
    """The target in a process of its own."""


@dataclass(frozen=True)
class KeptQuestion:
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
        tries = f"{plural(smaller.candidates, 'try', 'tries')}, {smaller.seconds:.1f} s{gave_up}"
        return [
            "",
            f"shrunk in {tries}; from {smaller.finding.seed}",
            finding_text(smaller.finding),
            f"repeat the finding: {shlex.join(['blockproof', 'replay', str(self.path)])}",
        ]


@dataclass(frozen=True)
class ConfigurationOutcome:
    """What came of a task."""

    reach: Reach
    kept: Sequence[KeptQuestion]
    unmet: Sequence[str]
    """A line for each floor that was not reached."""
    repeat: str
    """The shell command that checks the same configurations again."""

    @property
    def failed(self) -> bool:
        """True if something was found or a floor was not reached."""
        return bool(self.reach.findings or self.unmet)

    @property
    def exit_code(self) -> int:
        """1 if it failed, 130 if Ctrl-C ended it before that, else 0."""
        return 1 if self.failed else 130 if self.reach.interrupted else 0

    def headline(self) -> str:
        """One line: what was run and how much of it."""
        reach = self.reach
        rate = reach.configurations / reach.seconds if reach.seconds else 0.0
        ended = f", ended by {interrupted_by()}" if reach.interrupted else ""
        counts = f"{plural(reach.configurations, 'configuration')}, {plural(reach.questions, 'question')}"
        speed = f"in {reach.seconds:.1f} s ({rate:,.0f} configurations/s)"
        tried = f"; {reach.canary.line()}" if reach.canary else ""
        return f"{reach.target}, seed {reach.seed}: {counts} {speed}{ended}{tried}"

    def verdict(self) -> str:
        """One line: what was found, or that nothing was."""
        found = len(self.reach.findings)
        return f"FOUND: {found}" if found else f"no difference in {plural(self.reach.questions, 'answer')}"

    def lines(self) -> list[str]:
        """What a person is told below the tables of the report."""
        found = (line for kept in self.kept for line in kept.lines())
        return [*found, *self._slow(), *self.unmet, f"repeat this run: {self.repeat}"]

    def _slow(self) -> list[str]:
        """A line for a target that is so slow that its runs reach little; else none."""
        reach = self.reach
        if reach.seconds < SLOW_AFTER_S or reach.configurations >= SLOW_CONFIGURATIONS * reach.seconds:
            return []
        rate = reach.configurations / reach.seconds
        return [f"slow: {rate:.1f} configurations a second reach little; give more --seconds, or --cases"]

    def as_json(self) -> dict[str, Any]:
        """The report, JSON-ready."""
        ends = {"floors_unmet": [*self.unmet], "repeat": self.repeat, "found": [one.as_json() for one in self.kept]}
        return {**self.reach.as_json(), **ends}


def fuzz_configurations(
    task: ConfigurationTask, calculator: Calculator, out: Path, floors: Floors, say: Callable[[str], None]
) -> ConfigurationOutcome:
    """Check configurations on the opened target, and shrink and keep in the folder `out` what is found.

    Progress is shown on a terminal, and `say` is told each step in a line. Ctrl-C ends the run early; what was checked
    until then is reported. BlindOracleError, before anything is asked, if a judge does not see what is planted for it.
    """
    reach = Reach(calculator.name, task.seed)
    say(f"fuzzing the configuration arithmetic of {calculator.name}, seed {task.seed}")
    reach.canary = check_oracle(calculator.name, task.oracle)
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


def _keep(finding: ConfigurationFinding, judge: Judge, out: Path, say: Callable[[str], None]) -> KeptQuestion:
    """Write the finding as it is, shrink it, write that into another file: the first was named, and stays."""
    first = write_finding(finding, out)
    say(f"found by {finding.oracle} in {finding.op}, saved in {first}; shrinking ...")
    smaller = shrink_finding(finding, judge, SHRINK_SECONDS)
    return KeptQuestion(smaller, write_finding(smaller.finding, out))


def repeat_command(task: ConfigurationTask, reach: Reach) -> str:
    """The shell command that checks the same configurations again."""
    words = ["blockproof", "fuzz-config", "--target", task.spec, "--cases", str(max(1, reach.configurations))]
    words += ["--seed", str(reach.seed)]
    words += ["--oracle", task.oracle] if task.oracle != "all" else []
    words += ["--keep-going"] if task.limits.findings is None else []
    words += isolate_words(task.spec, task.isolate)
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


_SPEC = {"type": "FullAttentionSpec", "block_size": 16, "num_kv_heads": 2, "head_size": 8, "dtype": {"itemsize": 2}}
_CONFIGURATION = configuration_of(
    {
        "specs": {"s": _SPEC},
        "workers": [[["first", "s"], ["second", "s"]]],
        "vllm_config": {"max_model_len": 64},
        "available_memory": [1 << 16],
    }
)
_QUESTIONS = [Question("needed", _CONFIGURATION.about_layers(vllm_config=dict(_CONFIGURATION.vllm_config)))]
_PLANTED: Mapping[Oracle, tuple[str, ...]] = {
    "lockstep": ("need-a-block-short",),
    "invariants": ("tensor-a-byte-short", "tensor-off-by-a-page", "layer-dropped"),
}


class _RightCalculator:
    """Answers as the model of the target does, with its known deviations."""

    def __init__(self, name: str) -> None:
        self.name, known = name, known_of(name)
        self._rules = None if known is None or known.rules is None else known.rules()

    def ask(self, op: str, inputs: Mapping[str, object]) -> dict[str, object]:
        return {**(answer(op, inputs) if self._rules is None else self._rules.answer(op, inputs))}

    def close(self) -> None:
        """Nothing is open."""


def check_oracle(name: str, oracle: Oracle) -> Canary | None:
    """Plant faults for what judges a calculator of this name. BlindOracleError if one of them is not seen."""
    faults = faults_in(Part.CONFIGURATION)
    return check_plants(
        (judge, partial(_is_seen, faults[fault], name, judge))
        for judge, planted in _PLANTED.items()
        for fault in planted
        if oracle in (judge, "all")
    )


def _is_seen(fault: Fault, name: str, oracle: Oracle) -> bool:
    calculator = _RightCalculator(name)
    fault.plant(calculator)
    found = Judge(calculator, oracle=oracle).check(_CONFIGURATION, _QUESTIONS)
    return found is not None and found.oracle in ((LOCKSTEP,) if oracle == LOCKSTEP else fault.observables)
