"""The model-free run: nothing is compared with a model, so any release of any engine can be judged.

The contract, the shadow memory and the liveness oracle judge it (properties.md §§2-4). Which operations are allowed
next follows from the answers of the target (`scheduler_view`).
"""

from collections import Counter
from itertools import chain

from ...model.legal import misuse
from ...model.ops import NULL, Done, Failed, Operation, Outcome, Shape
from ...model.shown.snapshot import Snapshot
from ..findings.finding import Finding
from ..targets.answers import problem_with_answer
from ..targets.base import TargetLostError, is_told
from ..targets.block_ids import stray_id, without_hidden
from .run import Run, ask
from .scheduler_view import SchedulerView


class ModelFreeRun(Run):
    """Runs one target without a model."""

    @property
    def scene(self) -> SchedulerView:
        """The scheduler's view of the core, made of the target's answers."""
        return self.view

    @property
    def dead(self) -> bool:
        """True once an allocation has failed midway, or misuse has changed something; the run ends there."""
        return self.view.dead

    @property
    def situations(self) -> Counter[str]:
        """How often the scheduler's view met each interesting situation."""
        return self.view.reached

    def _start(self, shape: Shape) -> Finding | None:
        self.view = SchedulerView(shape)
        self._shown: Snapshot | None = None
        try:
            outcome, shown = self._ask_start(shape)
            if isinstance(outcome, Failed):
                return None  # the target has no core of this shape: there is nothing to judge
            stray = self._check_answer(None, outcome, shown)
        except TargetLostError as lost:
            return self._lost(lost, None, None)
        assert shown is not None
        if stray:
            return self._stray(stray, None, outcome)
        shown = without_hidden(shown, shape.num_blocks, self.hidden)
        self.view.start(shown, shows_free="free" not in self.hidden)
        self.built, self._shown = True, self._completed(shown)
        self._start_contract(self._shown)
        return None

    def _step(self, operation: Operation) -> Finding | None:
        misused = self.misused = misuse(self.view, operation)
        try:
            told = self._shown is None or is_told(self.target, operation)
            outcome, shown = ask(self.target.step, operation) if told else (Done(), self._shown)
            stray = self._check_answer(operation, outcome, shown)
        except TargetLostError as lost:
            self.outcomes.append(Failed(lost.kind))
            return self._lost(lost, operation, None)
        assert shown is not None
        self.outcomes.append(outcome)
        if stray and misused:  # as below; and nobody can go on from such a state
            self.misuse[f"{type(operation).__name__}: {stray}"] += 1
            self.view.dead = True
            return None
        if stray:
            return self._stray(stray, operation, outcome)
        shown = without_hidden(shown, self.shape.num_blocks, self.hidden)
        self.view.follow(operation, outcome, shown)
        before, self._shown = self._shown, self._completed(shown)
        shown = self._shown
        if misused:  # engines do not do that, and without a model no rule says what must happen
            self.misuse[f"{type(operation).__name__}: {getattr(outcome, 'error', type(outcome).__name__)}"] += 1
            self.view.dead |= isinstance(outcome, Done) or shown != before
            return None
        self.found = self._judge(operation, outcome, before, shown)
        return self.found

    def _completed(self, shown: Snapshot) -> Snapshot:
        """The snapshot, with reference counts from tables and outside holders if the target does not show its own."""
        if "ref_cnt" not in self.hidden:
            return shown
        counts = [0] * self.shape.num_blocks
        tables = (table for of_group in shown.tables for table in of_group.values())
        for block in chain(self.view.state.outside, *tables):
            counts[block] += block != NULL
        completed = shown._replace(ref_cnt=counts)
        self.view.look(completed)
        return completed

    def _check_answer(self, operation: Operation | None, outcome: Outcome, shown: Snapshot | None) -> str | None:
        """What is wrong with the ids in an answer, if anything. TargetLostError if it has not the right types."""
        num_blocks = self.shape.num_blocks
        problem = problem_with_answer(outcome, shown, len(self.shape.groups), num_blocks, self.hidden)
        if problem or shown is None:
            raise TargetLostError("protocol", problem or "there is no state")
        return stray_id(operation, outcome, shown, num_blocks, self.hidden)
