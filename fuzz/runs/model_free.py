"""A run that its target leads: no model says what must come out, so any release and any engine can be judged.

The contract, the shadow memory and the liveness oracle look on (properties.md §§2-4). Which operations make sense next
follows from what the target has answered (`scheduler_view`).
"""

from collections import Counter
from itertools import chain

from ...model.legal import misuse
from ...model.ops import NULL, Done, Failed, Operation, Shape
from ...model.snapshot import Snapshot
from ..findings.finding import Finding
from ..targets.answers import problem_with_answer
from ..targets.base import TargetLostError, hidden_fields
from .run import Run, ask
from .scheduler_view import SchedulerView


class ModelFreeRun(Run):
    """Runs one core without a model."""

    @property
    def scene(self) -> SchedulerView:
        """What the target's answers add up to."""
        return self.view

    @property
    def dead(self) -> bool:
        """True once an allocation has failed half-way; the run ends there."""
        return self.view.dead

    @property
    def situations(self) -> Counter[str]:
        """What came up besides."""
        return self.view.reached

    def _start(self, shape: Shape) -> Finding | None:
        self.view = SchedulerView(shape)
        self._shown: Snapshot | None = None
        try:
            outcome, shown = ask(self.target.start, shape)
            if isinstance(outcome, Failed):
                return None  # it refuses to be built so: nothing can be observed
            self._check_answer(outcome, shown)
        except TargetLostError as lost:
            return self._lost(lost, None, None)
        assert shown is not None
        self.view.start(shown, shows_free="free" not in hidden_fields(self.target))
        self.built, self._shown = True, self._completed(shown)
        self._watch(self._shown)
        return None

    def _step(self, operation: Operation) -> Finding | None:
        misused = misuse(self.view, operation)
        try:
            outcome, shown = ask(self.target.step, operation)
            self._check_answer(outcome, shown)
        except TargetLostError as lost:
            self.outcomes.append(Failed(lost.kind))
            return self._lost(lost, operation, None)
        assert shown is not None
        self.outcomes.append(outcome)
        self.view.follow(operation, outcome, shown)
        before, self._shown = self._shown, self._completed(shown)
        shown = self._shown
        if misused:  # no step of an engine, and no rule binds a target of which there is no model
            self.misuse[f"{type(operation).__name__}: {getattr(outcome, 'error', type(outcome).__name__)}"] += 1
            self.view.dead |= isinstance(outcome, Done) or shown != before
            return None
        self.found = self._objection(operation, outcome, before, shown)
        return self.found

    def _completed(self, shown: Snapshot) -> Snapshot:
        """With references counted from the tables, if the target does not show its own."""
        if "ref_cnt" not in hidden_fields(self.target):
            return shown
        counts = [0] * self.shape.num_blocks
        tables = (table for of_group in shown.tables for table in of_group.values())
        for block in chain(self.view.state.outside, *tables):
            counts[block] += block != NULL
        completed = shown._replace(ref_cnt=counts)
        self.view.look(completed)
        return completed

    def _check_answer(self, outcome: object, shown: object) -> None:
        problem = problem_with_answer(outcome, shown, len(self.shape.groups))
        if problem:
            raise TargetLostError("protocol", problem)
