"""A Hypothesis state machine made of the workload's own actions: fast, but Hypothesis sees nothing but bytes.

    from blockproof.fuzz import lockstep_machine
    TestMyCore = lockstep_machine("my_package.my_module:make").TestCase

What fails is reduced here, to a trace, and its steps are printed here: Hypothesis' own shrinking and its printing of
examples are off in the settings of `TestCase`. A test suite is mostly better served by `testing.stateful`, where each
operation is a rule. For more examples: `TestMyCore.settings = settings(TestMyCore.settings, max_examples=1000)`.
"""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import Phase, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from ...model.ops import Operation
from ..findings.finding import Finding, Trace
from ..findings.oracle_names import ORACLES
from ..opening.given import Given, examples_apart, opened
from ..opening.memories import memory_named
from ..runs.judging import Judging
from ..runs.open_run import drawn_shape, open_run, usable, workload_of
from ..runs.run import Run
from ..traces.shrink import NotReproducedError, shrink
from ..workload.draw import ByteDraw
from ..workload.shapes import ATTENTION
from .failing import FOLDER, Tested, failure

SHAPE_BYTES = st.binary(min_size=200, max_size=200)
STEP_BYTES = st.binary(min_size=40, max_size=40)
"""What one step decides from. One draw for a step, not one for each choice, is about twenty times faster."""
SHRINK_SECONDS = 30.0


def _rule(name: str, action: str) -> Any:
    """A rule of this name: one operation of this action."""

    def apply(self: "LockstepMachine", data: bytes) -> None:
        __tracebackhide__ = True
        self.apply(data, action)

    apply.__name__ = name
    return rule(data=STEP_BYTES)(apply)


class LockstepMachine(RuleBasedStateMachine):
    """One run: a shape, then actions of the workload, each compared. `lockstep_machine` makes one for a target."""

    tested: Tested
    shrinks = True
    """Reduce a trace before it is shown."""
    attention: Sequence[str] = tuple(ATTENTION)
    chaos = False
    _smallest: ClassVar[dict[Trace, tuple[Finding, Trace]]] = {}
    """What a trace was reduced to: Hypothesis runs what fails a second time."""

    @initialize(data=SHAPE_BYTES)
    def start(self, data: bytes) -> None:
        """Draw a shape and build both sides."""
        draw = ByteDraw(data)
        self.name = draw.choose(self.attention)
        self.run = open_run(self.tested.target, self.tested.judging)
        shape = drawn_shape(self.run, draw, self.name)
        self._fail_on(self.run.start(shape))
        self.workload = workload_of(self.run, draw, shape, chaos=self.chaos)

    def apply(self, data: bytes, action: str) -> None:
        """One operation of this action, if the model's state has a use for it."""
        __tracebackhide__ = True
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
        __tracebackhide__ = True
        if finding is not None:
            finding, trace = self._reduced(finding) if self.shrinks else (finding, self.run.trace)
            raise failure(finding, trace, self.tested, steps=True)

    def _reduced(self, finding: Finding) -> tuple[Finding, Trace]:
        """The smallest trace with this kind of finding, or this one if the target is not deterministic."""
        whole, tested = self.run.trace, self.tested
        if whole not in self._smallest:
            try:
                shrunk = shrink(whole, finding.kind, tested.target, tested.judging, max_seconds=SHRINK_SECONDS)
                self._smallest[whole] = shrunk.finding, shrunk.trace
            except NotReproducedError:
                self._smallest[whole] = finding, whole
        return self._smallest[whole]


def lockstep_machine(
    target: Given,
    *,
    attention: Sequence[str] = tuple(ATTENTION),
    chaos: bool = False,
    oracles: Sequence[str] = ORACLES,
    tensors: str | None = None,
    folder: str | PathLike[str] | None = FOLDER,
) -> type[LockstepMachine]:
    """A state machine that holds a target against the model; its `TestCase` is what pytest collects.

    `target` is what `--target` takes, a target, or a function without arguments that makes one; `attention` are names
    of `shapes.ATTENTION`; `chaos` breaks preconditions on purpose; `oracles` are names from `oracle_names`; `tensors`
    is what `--tensors` takes; the files of a finding are written to `folder`, None for none. ValueError for a wrong
    name, TargetUnavailableError if the target cannot be started.
    """
    if unknown := [name for name in attention if name not in ATTENTION]:
        raise ValueError(f"unknown attention {unknown[0]!r}: choose from {', '.join(ATTENTION)}")
    judging = Judging(oracles, new_memory=memory_named(tensors))
    tested = Tested(target, opened(target), judging, tensors, None if folder is None else Path(folder))
    choices = {"tested": tested, "attention": tuple(attention), "chaos": chaos, "_smallest": {}}
    choices |= examples_apart(target, tuple(attention), chaos, tuple(oracles))
    machine: type[LockstepMachine] = type("LockstepMachine", (LockstepMachine,), choices)
    case = machine.TestCase
    generated = [Phase.explicit, Phase.reuse, Phase.generate]
    case.settings = settings(case.settings, phases=generated, verbosity=Verbosity.quiet)
    return machine
