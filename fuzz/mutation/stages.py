"""Hunts one mutant in this process: what is run, in which order and for how long, and what counts as found.

All limits are operations and configurations, so that the result is the same on every machine. What is found is what
the core as it stands does not show over the same seeds.
"""

import json
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from types import FrameType, TracebackType
from typing import Any, TypeAlias

from ..configuration.check import Judge, draw_case
from ..configuration.reach import Reach
from ..engines.plan import Plan
from ..engines.seeded import run_random
from ..findings.finding import Finding
from ..findings.oracle_names import MODEL_FREE, ORACLES
from ..reports.summary import Summary
from ..targets.base import Calculator, Target, TargetLostError, left_out_for
from ..workload.draw import SeededDraw
from ..workload.shapes import EVERY_ATTENTION, possible_attention

Kinds: TypeAlias = frozenset[tuple[str, ...]]
"""Oracle, observable and kind of operation of what a stage has found."""
OPERATION_S = 10.0
"""Processor time for one call of the core; it takes less than a thousandth of that."""
CONFIGURATIONS = "fuzz-config"
MISUSE = "lockstep, misuse"
FREE = "without a model"
FEW_TYPES = 8
"""Attention types in which a line runs that is that of a feature."""
CALLS = frozenset({"start", "step", "glance", "look", "ask"})
"""Those of a target and a calculator that run the core."""


@dataclass(frozen=True)
class Budget:
    """How much is tried on each mutant at most."""

    operations: int = 12_000
    """In lockstep, over all attention types."""
    cases: int = 600
    """Configurations."""

    def stages(self, target: Target) -> "Iterator[Stage]":
        """What is tried on this target, in order: a little of everything, which finds most, then the whole."""
        attention = possible_attention(tuple(EVERY_ATTENTION), left_out_for(target))
        yield Stage("lockstep", min(500, self.operations), attention)
        yield Stage(CONFIGURATIONS, min(20, self.cases))
        yield Stage("lockstep", self.operations, attention)
        yield Stage(CONFIGURATIONS, self.cases)
        for name in attention:
            yield Stage(f"lockstep, {name} alone", self.operations // 8, (name,), is_alone=True)
        yield Stage(MISUSE, self.operations // 4, attention, chaos=True)
        yield Stage(FREE, self.operations // 4, attention, oracles=MODEL_FREE)

    def further(self, stages: "Sequence[Stage]") -> "list[Stage]":
        """What is tried besides where these stages have not found a mutant: a line that runs in few attention types
        alone belongs to a feature of theirs, and its situations are rare: these types get more."""
        alone = [stage for stage in stages if stage.is_alone]
        more = [replace(one, name=f"{one.name}, longer", count=self.operations // 2) for one in alone]
        return more if len(more) <= FEW_TYPES else []


@dataclass(frozen=True)
class Stage:
    """One thing that is tried."""

    name: str
    count: int
    """Operations, or configurations."""
    attention: Sequence[str] = ()
    chaos: bool = False
    oracles: Sequence[str] = ORACLES
    is_alone: bool = False
    """True if it is one attention type that is tried."""


@dataclass
class Fate:
    """What became of a mutant."""

    by: str = ""
    """The stage that has found it; empty if none has."""
    finding: str = ""
    """What it has found, in a line."""
    operations: int = 0
    """Until it was found, over all stages."""
    cases: int = 0
    """The same of configurations."""
    kinds: dict[str, Kinds] = field(default_factory=dict)
    """By stage, all that it has found; of a mutant only up to the first that counts."""


class OverdueError(BaseException):
    """A call has taken too much processor time; no core that catches `Exception` goes on after it."""


class Bounded:
    """A target or a calculator whose calls are lost as a hang after `OPERATION_S`. All else is the core's own."""

    def __init__(self, core: Any, around: AbstractContextManager[object]) -> None:
        self._core, self._around = core, around

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._core, name)
        return partial(self._timed, value) if name in CALLS else value

    def _timed(self, call: Callable[..., Any], *arguments: Any) -> Any:
        with _Clock(), self._around:
            return call(*arguments)


class Apart:
    """A calculator that is asked as over a pipe: no part of a question is an object that it has seen before."""

    def __init__(self, core: Calculator) -> None:
        self.name = core.name
        self._core = core

    def ask(self, op: str, inputs: Mapping[str, object]) -> dict[str, object]:
        """See `Calculator.ask`."""
        return self._core.ask(op, json.loads(json.dumps(inputs)))

    def close(self) -> None:
        """See `Calculator.close`."""
        self._core.close()


class _Clock:
    """Context manager: TargetLostError once the block has taken `OPERATION_S` seconds of processor time."""

    def __enter__(self) -> None:
        signal.signal(signal.SIGVTALRM, _overdue)
        signal.setitimer(signal.ITIMER_VIRTUAL, OPERATION_S)

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if kind is OverdueError:
            raise TargetLostError("hang", f"no answer within {OPERATION_S:g} s of processor time") from None


def _overdue(number: int, frame: FrameType | None) -> None:
    raise OverdueError


class Answers:
    """The questions about drawn configurations, with the answers of the core as it stands, which were judged.

    A mutant that gives the same answers would be judged alike, so only what it answers otherwise is judged again: the
    model takes ten times as long to answer as a core does.
    """

    def __init__(self, calculator: Calculator, seed: int, cases: int) -> None:
        """Ask and judge them all. Configurations in which something is found already are left out (`left_out`)."""
        self.seed = seed
        self.left_out: list[str] = []
        """What was found in which configuration."""
        self._asked: list[list[tuple[str, Mapping[str, object], dict[str, object]]]] = []
        self.name = calculator.name
        self._core = Apart(calculator)
        judge = Judge(self, Reach(calculator.name, seed))
        for index in range(cases):
            self._asked.append([])
            finding = judge.check(*draw_case(self._draw(index), judge.reference), f"{seed}/{index}")
            if finding is not None:
                self._asked[-1] = []
                self.left_out.append(f"{finding.oracle} in {finding.op}, configuration {index} of seed {seed}")

    def ask(self, op: str, inputs: Mapping[str, object]) -> dict[str, object]:
        """See `Calculator.ask`."""
        answer = self._core.ask(op, inputs)
        self._asked[-1].append((op, inputs, answer))
        return answer

    def close(self) -> None:
        """See `Calculator.close`."""
        self._core.close()

    def hunt(self, calculator: Calculator, stage: Stage, fate: Fate) -> None:
        """Ask another core; `fate` says what was found."""
        for index, asked in enumerate(self._asked[: stage.count]):
            fate.cases += 1
            if all(_answer(calculator, op, inputs) == answer for op, inputs, answer in asked):
                continue
            judge = Judge(calculator, Reach(calculator.name, self.seed))
            finding = judge.check(*draw_case(self._draw(index), judge.reference), f"{self.seed}/{index}")
            if finding is not None:
                fate.by, fate.finding = stage.name, f"{finding.oracle} in {finding.op}"
                return

    def _draw(self, index: int) -> SeededDraw:
        return SeededDraw(f"{self.seed}/{index}")


def _answer(calculator: Calculator, op: str, inputs: Mapping[str, object]) -> dict[str, object] | None:
    """The answer, or None for none."""
    try:
        return calculator.ask(op, inputs)
    except TargetLostError:
        return None


def hunt(
    target: Target,
    calculator: Calculator,
    answers: Answers,
    stages: Iterable[Stage],
    before: Mapping[str, Kinds] | None,
    watched: AbstractContextManager[object] | None = None,
) -> Fate:
    """Run one stage after the other until something is found that is not in `before`, the kinds of the core as it
    stands. Without these, which is how they are learned, all that a stage without a model finds is noted. `watched` is
    entered around each call of the core."""
    fate = Fate()
    around = watched or nullcontext()
    bounded, asked = Bounded(target, around), Apart(Bounded(calculator, around))
    for stage in stages:
        if stage.name == CONFIGURATIONS:
            answers.hunt(asked, stage, fate)
        else:
            _run(bounded, answers.seed, stage, fate, None if before is None else before[stage.name])
        if fate.by:
            break
    return fate


def _run(target: Target, seed: int, stage: Stage, fate: Fate, before: Kinds | None) -> None:
    """One stage of operations. Where the core as it stands shows something, the runs go on after findings."""
    goes_on = bool(before) or (before is None and stage.name == FREE)
    plan = Plan(
        seed,
        operations=stage.count,
        attention=tuple(stage.attention),
        chaos=stage.chaos,
        oracles=tuple(stage.oracles),
        keep_going=goes_on,
    )
    summary = Summary(target.name, "random", seed, oracles=plan.oracles)
    run_random(target, plan, summary)
    fate.operations += summary.operations
    findings = [one.finding for one in summary.found.values()]
    fate.kinds[stage.name] = fate.kinds.get(stage.name, frozenset()) | {_kind(one) for one in findings}
    new = [one for one in findings if _kind(one) not in (before or ())]
    if new:
        fate.by, fate.finding = stage.name, _line(new[0])


def _kind(finding: Finding) -> tuple[str, ...]:
    return (finding.oracle, *finding.kind)


def _line(finding: Finding) -> str:
    return f"{finding.oracle}: {finding.kind[0]} at {finding.kind[1]}"
