"""One run of the state machine: its target, the oracles, and how its steps are printed."""

import inspect
from collections.abc import Mapping
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import assume, event
from hypothesis.stateful import Rule as HypothesisRule
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition
from hypothesis.strategies import SearchStrategy

from ...model.ops import Operation, Shape
from ...model.state import Request
from ..engines.failing import Tested, failure
from ..findings.oracle_names import LIVENESS
from ..opening.given import Given, opened
from ..opening.oracles import memory_named, suited_to
from ..runs.judging import Judging
from ..runs.open_run import landings_awaited, open_run, usable
from ..runs.run import Run
from ..workload.landings import Landings
from ..workload.scene import Scene
from .stateful_strategies import buildable_shapes, of_machine


class Handle:
    """A request as steps name it, in the bundle of requests."""

    def __init__(self, name: str, machine: "MachineRun") -> None:
        self.name = name
        self._machine = machine

    def __repr__(self) -> str:
        return self.name

    @property
    def request(self) -> Request | None:
        """What the scheduler knows of it; None once it has ended."""
        return self.scene.requests.get(self.name)

    @property
    def scene(self) -> Scene:
        """The core that it runs on, as its scheduler knows it."""
        return self._machine.scene


class TargetSource:
    """Opens the target of a machine when it is first needed, and never again."""

    def __init__(self, given: Given, oracles: tuple[str, ...] | None, tensors: str | None, folder: Path | None) -> None:
        """`oracles`: None for those that suit the target."""
        self._given = given
        self._oracles = oracles
        self._tensors = tensors
        self._folder = folder

    @cached_property
    def tested(self) -> Tested:
        """The target with its judges. Errors as for `opened`, and from `memory_named`."""
        target = opened(self._given)
        name = self._given if isinstance(self._given, str) else target.name
        oracles = suited_to(name, target) if self._oracles is None else self._oracles
        judging = Judging([name for name in oracles if name != LIVENESS], new_memory=memory_named(self._tensors))
        return Tested(self._given, target, judging, self._tensors, self._folder)


class MachineRun(RuleBasedStateMachine):
    """What the rules need: to ask the core for something, and to know where it stands."""

    source: ClassVar[TargetSource]
    attention: ClassVar[tuple[str, ...]]
    """Names of `ATTENTION`: which groups the cores have that are built."""
    shapes: ClassVar[SearchStrategy[Shape] | None]
    """If given, which cores are built."""

    def __init__(self) -> None:
        super().__init__()
        self.tested = self.source.tested
        self.run: Run = open_run(self.tested.target, self.tested.judging)
        self.live: list[Handle] = []
        """Requests that have not ended, the oldest first."""
        self._names: list[str] = []
        self._asked: Operation | None = None
        self._landings: Landings | None = None

    @initialize(shape=of_machine(lambda machine: machine.buildable))
    def start(self, shape: Shape) -> None:
        """Build a core. A shape that the target is not made for is no example."""
        self.run.start(shape)
        waits = self.run.built and landings_awaited(self.run)
        loads, tells = self.has("Allocate.external"), self.has("Allocate.in_flight")
        self._landings = Landings(shape, loads=loads, tells=tells) if waits else None
        assume(self.run.built or self.run.found)

    @property
    def buildable(self) -> SearchStrategy[Shape]:
        """Shapes, without what the target has no equivalent of. ValueError if nothing is left of `attention`."""
        run = self.run
        return buildable_shapes(self.attention, run.lacks, run.block_sizes) if self.shapes is None else self.shapes

    @precondition(lambda self: self.run.found is not None)  # so it is printed only where it fails
    @invariant()
    def oracles_agree(self) -> None:
        """No oracle objects to anything that the core has done."""
        __tracebackhide__ = True
        assert self.run.found is not None
        raise failure(self.run.found, self.run.trace, self.tested)

    def teardown(self) -> None:
        """Count what was reached, for `--hypothesis-show-statistics`."""
        if self.run.built:
            event("groups: " + " + ".join(group.kind for group in self.run.shape.groups))
            for situation in self.run.reached():
                event(situation)

    @property
    def scene(self) -> Scene:
        """The core as its scheduler knows it."""
        return self.run.scene

    @property
    def is_over(self) -> bool:
        """True once no further operation means anything."""
        return self.run.dead or self.run.found is not None

    def has(self, *names: str) -> bool:
        """True if the target has all of this (names of `declarations.LACKS`)."""
        return self.run.lacks_here.isdisjoint(names)

    def ask(self, operation: Operation) -> bool:
        """Ask the core for an operation, as far as it has an equivalent. False if the run is over now."""
        wanted = usable(self.run, operation)
        if wanted is not None:
            self._asked = wanted
            self._step(wanted)
            self.live = [handle for handle in self.live if handle.request is not None]
        return not self.is_over

    def _step(self, operation: Operation) -> None:
        """Apply it, behind the landings that a scheduler waits for whose core does not."""
        if self._landings is None:
            self.run.step(operation)
            return
        first: Operation | None = self._landings.before(self.scene, operation)
        while first is not None and not self.is_over:
            self.run.step(first)
            first = self._landings.next()

    def next_name(self) -> str:
        """The name of the next request: a, b, ..., z, a1, ..."""
        turn, letter = divmod(len(self._names), 26)
        return "abcdefghijklmnopqrstuvwxyz"[letter] + (str(turn) if turn else "")

    def admitted(self, name: str) -> Handle | None:
        """The request of this name that was just submitted; None if the core has not taken it."""
        if name not in self.scene.requests:
            return None
        self._names.append(name)
        self.live.append(Handle(name, self))
        return self.live[-1]

    # What Hypothesis calls to print a step. Should it stop doing so, steps are longer and as right as before.

    def _new_name(self, target: str) -> str:
        """A request is printed by the name that the core knows it by."""
        name = self._names[-1]
        self.names_list.append(name)
        return name

    def _repr_step(self, rule: HypothesisRule, data: Mapping[str, Any], result: object) -> str:
        """The arguments in the order of the rule, those at their default left out, as they were asked of the core."""
        shown: dict[str, str] = {}
        asked = {} if self._asked is None else {field.name: field for field in fields(self._asked)}
        for name, parameter in inspect.signature(rule.function).parameters.items():
            if name in data:
                text = repr(getattr(self._asked, name)) if name in asked and name != "request" else data[name]
                shown |= {} if text == repr(parameter.default) else {name: text}
        self._asked = None
        return super()._repr_step(rule, shown, result)
