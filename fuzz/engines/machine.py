"""A Hypothesis state machine made of the workload's own actions.

Engineers who test a core with pytest use it directly; `make` returns any `Target`:

    from blockproof.fuzz import lockstep_machine
    TestMyCore = lockstep_machine("my_package.my_module:make").TestCase

What fails is reduced here, to a trace; Hypothesis' own shrinking, which takes minutes, is off in the settings of
`TestCase`. For more examples: `TestMyCore.settings = settings(TestMyCore.settings, max_examples=1000)`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from ...model.ops import Operation, Shape
from ..findings.finding import Finding, Trace
from ..findings.oracle_names import ORACLES
from ..opening.targets import open_target
from ..oracles.shadow import ListMemory, Memory
from ..runs.judging import USUAL, Judging
from ..runs.open_run import drawn_shape, open_run, usable, workload_of
from ..runs.run import Run
from ..targets.base import Target
from ..traces.reproduction import replay_command
from ..traces.shrink import NotReproducedError, shrink
from ..traces.trace_file import FoundWhat, TraceFile, dump_trace
from ..workload.draw import ByteDraw
from ..workload.shapes import ATTENTION
from .keeping import recorded_name

SHAPE_BYTES = st.binary(min_size=200, max_size=200)
STEP_BYTES = st.binary(min_size=40, max_size=40)
"""What one step decides from. One draw for a step, not one for each choice, is about twenty times faster."""
SHRINK_SECONDS = 30.0


class DifferenceError(AssertionError):
    """Model and target differ: the text says where, and holds the trace that leads there."""

    def __init__(self, finding: Finding, trace: Trace, target: str) -> None:
        text = dump_trace(TraceFile(trace, target, FoundWhat.of(finding)))
        command = replay_command(Path("t.json"), target)
        super().__init__(f"{finding}\nTo repeat it, save what follows as t.json and run: {command}\n{text}")
        self.finding = finding
        self.trace = trace


def _rule(name: str, action: str) -> Any:
    """A rule of this name: one operation of this action."""

    def apply(self: "LockstepMachine", data: bytes) -> None:
        self.apply(data, action)

    apply.__name__ = name
    return rule(data=STEP_BYTES)(apply)


class LockstepMachine(RuleBasedStateMachine):
    """One run: a shape, then actions of the workload, each compared. `lockstep_machine` makes one for a target."""

    target: Target
    called: str
    """The target as traces name it."""
    shrinks = True
    """Reduce a trace before it is shown."""
    attention: Sequence[str] = tuple(ATTENTION)
    chaos = False
    judging = USUAL

    @initialize(data=SHAPE_BYTES)
    def start(self, data: bytes) -> None:
        """Draw a shape and build both sides."""
        draw = ByteDraw(data)
        self.name = draw.choose(self.attention)
        self.run = open_run(self.target, self.judging)
        shape = drawn_shape(self.run, draw, self.name)
        self._fail_on(self.run.start(shape))
        self.workload = workload_of(self.run, draw, shape, chaos=self.chaos)

    def apply(self, data: bytes, action: str) -> None:
        """One operation of this action, if the model's state has a use for it."""
        if not self.run.built or self.run.dead:
            return
        self.workload.draw = ByteDraw(data)
        operation: Operation | None = getattr(self.workload, action)(self.run.scene)
        wanted = operation and usable(self.run, operation)
        if wanted is not None:
            self._fail_on(self.run.step(wanted))

    # What a scheduler does most is whatever comes next, requests first.
    advance_requests = _rule("advance_requests", "next")
    submit = _rule("submit", "submit")
    work = _rule("work", "work")
    finish = _rule("finish", "finish")
    observe = _rule("observe", "observe")

    def teardown(self) -> None:
        """Give everything back: the pool must be whole."""
        run = getattr(self, "run", None)
        if run is None or run.in_step:
            return  # Ctrl-C has broken off a step: the two sides do not stand at the same place
        try:
            if run.built and not run.dead and not run.found:
                for operation in self.workload.drain(run.scene):
                    self._fail_on(run.step(operation))
        finally:
            self.count(run)

    def count(self, run: Run) -> None:
        """A run is over. The engine counts it; under pytest nobody does."""

    def _fail_on(self, finding: Finding | None) -> None:
        if finding is not None:
            finding, trace = self._reduced(finding) if self.shrinks else (finding, self.run.trace)
            raise DifferenceError(finding, trace, self.called)

    def _reduced(self, finding: Finding) -> tuple[Finding, Trace]:
        """The smallest trace with this kind of finding, or this one if the target is not deterministic."""
        try:
            shrunk = shrink(self.run.trace, finding.kind, self.target, self.judging, max_seconds=SHRINK_SECONDS)
        except NotReproducedError:
            return finding, self.run.trace
        return shrunk.finding, shrunk.trace


def lockstep_machine(
    target: str | Target,
    *,
    attention: Sequence[str] = tuple(ATTENTION),
    chaos: bool = False,
    oracles: Sequence[str] = ORACLES,
    new_memory: Callable[[Shape], Memory] = ListMemory,
) -> type[LockstepMachine]:
    """A state machine that holds a target against the model; its `TestCase` is what pytest collects.

    `target` is a target or what `--target` takes; `attention` are names of `shapes.ATTENTION`; `chaos` breaks
    preconditions on purpose; `oracles` are names from `lockstep.ORACLES`; `new_memory` makes the shadow memory of a
    run. ValueError for a wrong name, TargetUnavailableError if the target cannot be started.
    """
    if unknown := [name for name in attention if name not in ATTENTION]:
        raise ValueError(f"unknown attention {unknown[0]!r}: choose from {', '.join(ATTENTION)}")
    opened = open_target(target) if isinstance(target, str) else target
    called = recorded_name(target, opened) if isinstance(target, str) else opened.name
    choices = {"target": opened, "called": called, "attention": tuple(attention), "chaos": chaos}
    choices["judging"] = Judging(oracles, new_memory=new_memory)
    machine: type[LockstepMachine] = type("LockstepMachine", (LockstepMachine,), choices)
    case = machine.TestCase
    case.settings = settings(case.settings, phases=[Phase.explicit, Phase.reuse, Phase.generate])
    return machine
