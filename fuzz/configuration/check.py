"""Compares a calculator with the model on drawn configurations.

There are two oracles. `lockstep` asks target and model the same questions and wants equal answers. `invariants` looks
at the target's answers alone. A release with known deviations must answer exactly as a model with the same deviations;
where that model and the reference differ, the deviations are counted.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..findings.interruption import is_from_outside
from ..opening.known_deviations import known_of
from ..runs.case import loop
from ..targets.answers import raised_by_target
from ..targets.base import Calculator, TargetLostError, TargetUnavailableError
from ..targets.configuration_answers import answer as right_answer
from ..targets.deviations import DeviatingRules
from ..targets.unharmed import allow_recursion
from ..workload.draw import Draw, SeededDraw
from .draw import Answer, Configuration, configuration_of, draw_configuration
from .findings import LOCKSTEP, LOST, MODELS, ConfigurationFinding
from .invariants import INVARIANTS, Invariant
from .questions import Question, draw_questions
from .reach import Reach

Oracle: TypeAlias = Literal["lockstep", "invariants", "all"]
BOTH_MODELS_EVERY = 16
"""One configuration in this many is put to both models, even where the deviating one says that it did not deviate."""
OnProgress: TypeAlias = Callable[[Reach], None]


@dataclass(frozen=True)
class CheckLimits:
    """When a run ends, besides Ctrl-C."""

    configurations: int | None = None
    seconds: float | None = None
    findings: int | None = 1
    """Different kinds of findings; None: they end nothing."""

    def reached(self, reach: Reach) -> bool:
        """True once the run has come to one of its limits."""
        return (
            (self.findings is not None and len(reach.findings) >= self.findings)
            or (self.configurations is not None and reach.configurations >= self.configurations)
            or (self.seconds is not None and reach.seconds >= self.seconds)
        )


def run(
    target: Calculator,
    reach: Reach,
    limits: CheckLimits,
    oracle: Oracle = "all",
    on_progress: OnProgress | None = None,
) -> None:
    """Check configuration after configuration; `reach` is filled in as they come.

    Configuration `i` of a seed is the same whatever was checked before it. The clock starts after the first one, with
    which the target may have to be launched.
    """
    if not limits.reached(reach):
        loop(_Configurations(Judge(target, reach, oracle), limits, on_progress))


class _Configurations:
    """The `Case` of `run`."""

    def __init__(self, judge: "Judge", limits: CheckLimits, on_progress: OnProgress | None) -> None:
        self._judge, self._reach, self._limits, self._on_progress = judge, judge.reach, limits, on_progress
        self._kinds = {finding.kind for finding in judge.reach.findings}
        self._start: float | None = None

    def draw(self, number: int) -> str:
        """The seed of the configuration, of which it is drawn and asked."""
        return f"{self._reach.seed}/{self._reach.configurations}"

    def judge(self, drawn: str) -> Iterator[ConfigurationFinding]:
        """See `Case`."""
        finding = self._judge.check(*draw_case(SeededDraw(drawn), self._judge.reference), drawn)
        self._start = time.monotonic() if self._start is None else self._start
        self._reach.seconds = time.monotonic() - self._start
        return iter(() if finding is None else (finding,))

    def keep(self, drawn: str, found: ConfigurationFinding) -> None:
        """One of each kind."""
        if found.kind not in self._kinds:
            self._kinds.add(found.kind)
            self._reach.findings.append(found)

    def over(self) -> bool:
        """See `Case`."""
        if self._on_progress is not None:
            self._on_progress(self._reach)
        return self._limits.reached(self._reach)


def draw_case(draw: Draw, reference: DeviatingRules | None = None) -> tuple[Configuration, list[Question]]:
    """A configuration and what is asked about it. `reference`: the rules of a release, which may be other right ones
    than those of the chapter."""

    def right(op: str, inputs: Mapping[str, object]) -> Answer:
        if reference is None:
            return right_answer(op, inputs)
        asked, _ = reference.asked(op, inputs)
        return {} if asked is None else reference.right(op, asked)

    configuration = draw_configuration(draw, right, {} if reference is None else reference.drawn)
    return configuration, draw_questions(draw, configuration, () if reference is None else reference.asks)


class FoundError(Exception):
    """A disagreement, which ends the questions about a configuration."""

    def __init__(self, finding: ConfigurationFinding) -> None:
        super().__init__(finding.kind)
        self.finding = finding


class Judge:
    """Asks a target about configurations and judges its answers."""

    _excused: bool
    """True if one of the answers since the last reset was a known deviation."""
    _seen_output: bool
    """True if one of them was an output."""

    def __init__(self, target: Calculator, reach: Reach | None = None, oracle: Oracle = "all") -> None:
        self.target = target
        self.reach = reach or Reach(target.name)
        self.oracle = oracle
        known = known_of(target.name)
        self.reference = None if known is None or known.rules is None else known.rules()
        self.reach.declared = () if known is None else known.configuration_deviations
        self.reach.deviations.update({deviation.id: 0 for deviation in self.reach.declared})
        self._start()

    def check(
        self, configuration: Configuration, questions: Sequence[Question] = (), seed: str = ""
    ) -> ConfigurationFinding | None:
        """The first disagreement over these questions and what the invariants ask, None if there is none."""
        self._start(seed)
        self.reach.add_configuration(configuration)
        try:
            self._ask_ahead(questions)
            if self.oracle != "invariants":
                for op, inputs in questions:
                    self.ask(op, inputs)
            if self.oracle != "lockstep":
                for name, invariant in INVARIANTS.items():
                    self._hold(name, invariant, configuration)
        except FoundError as found:
            return found.finding
        return None

    def check_question(self, op: str, inputs: Mapping[str, object]) -> ConfigurationFinding | None:
        """The disagreement over one question, None if there is none."""
        self._start()
        try:
            self.ask(op, inputs)
        except FoundError as found:
            return found.finding
        return None

    def check_invariant(self, name: str, configuration: Configuration) -> ConfigurationFinding | None:
        """What breaks this invariant, or another disagreement over what it asks; None if there is neither."""
        self._start()
        try:
            self._hold(name, INVARIANTS[name], configuration)
        except FoundError as found:
            return found.finding
        return None

    def ask(self, op: str, inputs: Mapping[str, object]) -> Answer:
        """The target's answer, after it was compared; nothing if it lacks what the question is about. FoundError if it
        is wrong, or if the target is lost over it."""
        if (possible := self._possible(op, inputs)) is None:
            return {}
        inputs = possible
        key = repr((op, inputs))
        if key not in self._answers:
            self._answers[key] = self._asked(op, inputs)
        answer = self._answers[key]
        if key not in self._deviates:
            self.reach.add_question(op, answer)
            self._deviates[key] = self.oracle != "invariants" and self._compare(op, inputs, answer)
        self._excused = self._excused or self._deviates[key]
        self._seen_output = self._seen_output or "output" in answer
        return answer

    def _start(self, seed: str = "") -> None:
        self._seed = seed
        self._answers: dict[str, Answer] = {}
        self._deviates: dict[str, bool] = {}
        """By question that was judged: True if the answer is a known deviation."""
        self._excused = False
        self._seen_output = False

    def _possible(self, op: str, inputs: Mapping[str, object], count: bool = True) -> Mapping[str, object] | None:
        """The question as the target can be asked; None if it lacks what it is about."""
        if self.reference is None:
            return inputs
        asked, lacking = self.reference.asked(op, inputs)
        if count:
            way = "not asked" if asked is None else "asked without"
            self.reach.lacking.update(f"{way}: {what}" for what in lacking)
        return asked

    def _ask_ahead(self, questions: Sequence[Question]) -> None:
        """Fetch all answers at once, if the target can do that and survives it."""
        possible = [(op, self._possible(op, inputs, count=False)) for op, inputs in questions]
        asked = [Question(op, inputs) for op, inputs in possible if inputs is not None]
        ask_all = getattr(self.target, "ask_all", None)
        if ask_all is None:
            return
        try:
            answers = ask_all(asked)
        except TargetLostError:
            return  # asked one by one, it will show over which question
        self._answers = {repr((op, inputs)): answer for (op, inputs), answer in zip(asked, answers, strict=True)}

    def _asked(self, op: str, inputs: Mapping[str, object]) -> Answer:
        try:
            return self.target.ask(op, inputs)
        except (TargetLostError, TargetUnavailableError) as error:
            if isinstance(error, TargetUnavailableError):
                raise
            raise self._found(LOST, op, inputs, "an answer", str(error)) from None
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and is_from_outside():
                raise
            allow_recursion()
            raise self._found(LOST, op, inputs, "an answer", str(raised_by_target(error))) from None

    def _compare(self, op: str, inputs: Mapping[str, object], answer: Answer) -> bool:
        """False if the answer is right, True if it is a known deviation, FoundError if it is neither."""
        if self.reference is None:
            if (expected := right_answer(op, inputs)) != answer:
                raise self._found(LOCKSTEP, op, inputs, expected, answer)
            return False
        self.reference.fired.clear()
        deviating = self.reference.answer(op, inputs)
        if deviating != answer:
            raise self._found(LOCKSTEP, op, inputs, deviating, answer)
        if not self.reference.fired and self.reach.configurations % BOTH_MODELS_EVERY:
            return False
        expected = self.reference.right(op, inputs)
        if expected == deviating:
            return False
        if not self.reference.fired:
            raise self._found(MODELS, op, inputs, expected, deviating)
        self.reach.deviations.update(self.reference.fired)
        return True

    def _hold(self, name: str, invariant: Invariant, configuration: Configuration) -> None:
        """FoundError if the invariant does not hold and no known deviation was among the answers it looked at."""
        self._excused = self._seen_output = False
        asked = self._possible("configs", configuration.about_workers(), count=False)
        if asked is None:
            return
        configuration = configuration_of(asked)
        broken = list(invariant(configuration, self.ask))
        self.reach.invariants[name] += self._seen_output
        if broken and self._excused:
            self.reach.situations[f"{name} broken by a known deviation"] += 1
        elif broken:
            says = invariant.__doc__ or name  # `python -OO` leaves it out
            raise self._found(name, "configs", configuration.about_workers(), says, "; ".join(broken[:3]))

    def _found(
        self, oracle: str, op: str, inputs: Mapping[str, object], expected: object, actual: object
    ) -> FoundError:
        side = type(self.reference).__name__ if self.reference else "Rules"
        model = oracle if oracle in INVARIANTS else "Rules" if oracle == MODELS else side
        sides = (model, self.target.name)
        return FoundError(ConfigurationFinding(oracle, op, inputs, expected, actual, sides, self._seed))
