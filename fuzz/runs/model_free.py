"""The model-free run: nothing is compared with a model, so any release of any engine can be judged.

The contract, the shadow memory and the liveness oracle judge it (properties.md §§2-4). Which operations are allowed
next follows from the answers of the target (`scheduler_view`).
"""

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import chain

from ...model import ops
from ...model.arith import cdiv
from ...model.attention import rules_for
from ...model.legal import misuse
from ...model.ops import NULL, Done, Failed, Operation, Outcome, Shape
from ...model.snapshot import Snapshot
from ...model.state import Request
from ..findings.finding import Finding
from ..findings.oracle_names import SHADOW
from ..kinds.compressed import rules_with
from ..oracles.contract import Contract, unobserved
from ..targets.answers import kept, problem_with_answer, unchanged
from ..targets.base import TargetLostError, handed_of, is_told
from ..targets.block_ids import stray_id, without_hidden
from ..targets.declarations import EXCHANGES
from .run import Run, ask
from .scheduler_view import SchedulerView


class RebuiltTables:
    """Tables of full attention: the hit of the lookup that an allocation uses, and the new blocks of each."""

    def __init__(self, shape: Shape, designs: Collection[str] = ()) -> None:
        self.shape, self._rules = shape, rules_with(shape, designs)
        self._tables: list[dict[str, list[int]]] = [{} for _ in shape.groups]

    @staticmethod
    def follows(shape: Shape) -> bool:
        """True if the tables of such a core follow from answers: nothing is given up while a request goes on."""
        return all(rule.is_full and not rule.sinks for rule in rules_for(shape))

    def tables(self) -> list[dict[str, list[int]]]:
        """The tables, per group."""
        return [{name: list(table) for name, table in of_group.items()} for of_group in self._tables]

    def follow(self, operation: Operation, outcome: Outcome, requests: Mapping[str, Request]) -> bool:
        """Follow an answer; `requests` as they are after it. False if it does not name all blocks of a table."""
        if not isinstance(outcome, Done):
            return True
        match operation:
            case ops.Allocate(name) if name in requests:
                return self._allocated(operation, outcome, requests[name])
            case ops.Free(name) | ops.Preempt(name):
                for of_group in self._tables:
                    of_group.pop(name, None)
        return True

    def _allocated(self, operation: ops.Allocate, outcome: Done, request: Request) -> bool:
        value, count = outcome.value, len(self.shape.groups)
        if not isinstance(value, tuple) or len(value) != count:
            return False
        tokens, rows = request.hit if operation.hit and request.hit else (0, [[] for _ in range(count)])
        for group, (of_group, row, new) in enumerate(zip(self._tables, rows, value, strict=True)):
            if not isinstance(new, tuple) or not all(type(block) is int for block in new):
                return False
            rule = self._rules[group]
            table = of_group.setdefault(operation.request, [])
            table += [*row[: cdiv(tokens, rule.b)], *(block for block in new if isinstance(block, int))]
            if len(table) < rule.required(min(request.computed + request.scheduled, self.shape.max_model_len)):
                return False
            if tokens % rule.b:
                return False  # a hit that ends inside a block: it is copied, and nobody says where to
        return True


class ModelFreeRun(Run):
    """Runs one target without a model."""

    _rebuilt: RebuiltTables | None = None
    """Tables that are hidden, made up from answers; None if they are shown, or not all is known of them."""
    _spare: Contract | None = None
    """What goes on to judge if tables can no longer be made up."""
    _judged: frozenset[str] = frozenset()
    """What is hidden from the contract that judges."""

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
        self._known: Snapshot | None = None
        """What the target has shown last, its types and ids checked."""
        try:
            outcome, shown = self._ask_start(shape)
            if isinstance(outcome, Failed):
                return None  # the target has no core of this shape: there is nothing to judge
            shown, stray = self._checked(None, outcome, shown)
        except TargetLostError as lost:
            return self._lost(lost, None, None)
        if stray:
            return self._stray(stray, None, outcome)
        shown = without_hidden(shown, shape.num_blocks, self.hidden)
        self.view.start(shown, shows_free="free" not in self.hidden)
        self._rebuilt = RebuiltTables(shape, self.designs) if "tables" in self.hidden and self._may_rebuild() else None
        self.built, self._shown = True, self._completed(shown)
        self._start_contract(self._shown)
        return None

    def _may_rebuild(self) -> bool:
        """True if the tables that are hidden follow from the answers, as long as these name all blocks."""
        return EXCHANGES not in self.designs and RebuiltTables.follows(self.shape)

    def _sees_tables(self) -> bool:
        """Also where they are rebuilt."""
        return "tables" not in self.hidden or self._may_rebuild()

    def _start_contract(self, snapshot: Snapshot) -> None:
        """A second contract, which judges without tables, stands by where they are rebuilt."""
        super()._start_contract(snapshot)
        self._spare, self._judged = None, self.hidden
        if self.contract is not None and self._rebuilt is not None:
            self._spare, self._judged = self.contract, self.hidden - {"tables"}
            self.contract = self._contract_for(self._judged)
            self.contract.start(snapshot)

    @property
    def rebuilt_tables(self) -> list[dict[str, list[int]]] | None:
        """See `Run.rebuilt_tables`."""
        return self._rebuilt.tables() if self._rebuilt is not None else None

    def unobserved(self) -> dict[str, str]:
        """Properties that cannot be judged on this target, with the reasons."""
        found = {} if self.contract is None else unobserved(self._judged, self.designs)
        blind = SHADOW in self.oracles and self.built and self.shadow is None
        return {**found, "S3": "the block tables are not shown"} if blind else found

    def _rebuild(self, operation: Operation, outcome: Outcome) -> None:
        """Bring the tables up to date that are made up from answers; give them up if an answer does not name all."""
        if self._rebuilt is None:
            return
        if not self._rebuilt.follow(operation, outcome, self.view.requests):
            self._rebuilt, self.shadow = None, None
            if self._spare is not None:
                self.contract, self._spare, self._judged = self._spare, None, self.hidden

    def _step(self, operation: Operation) -> Finding | None:
        misused = self.misused = misuse(self.view, operation)
        try:
            told = self._shown is None or is_told(self.target, operation)
            outcome, shown = ask(self.target.step, operation) if told else (Done(), self._shown)
            shown, stray = self._checked(operation, outcome, shown)
        except TargetLostError as lost:
            self.outcomes.append(Failed(lost.kind))
            return self._lost(lost, operation, None)
        self.outcomes.append(outcome)
        if stray and misused:  # as below; and nobody can go on from such a state
            self.misuse[f"{type(operation).__name__}: {stray}"] += 1
            self.view.dead = True
            return None
        if stray:
            return self._stray(stray, operation, outcome)
        shown = without_hidden(shown, self.shape.num_blocks, self.hidden)
        self.view.follow(operation, outcome, shown, handed_of(self.target) if told else ())
        self._rebuild(operation, outcome)
        before, self._shown = self._shown, self._completed(shown)
        shown = self._shown
        if misused:  # engines do not do that, and without a model no rule says what must happen
            self.misuse[f"{type(operation).__name__}: {getattr(outcome, 'error', type(outcome).__name__)}"] += 1
            self.view.dead |= isinstance(outcome, Done) or shown != before
            return None
        if self._spare is not None and before is not None:  # what it finds, the other one finds as well
            self._spare.step(operation, outcome, before, shown, self.scene)
        self.found = self._judge(operation, outcome, before, shown)
        return self.found

    def _completed(self, shown: Snapshot) -> Snapshot:
        """The snapshot, with tables from answers, and reference counts from tables and outside holders, if the target
        does not show its own."""
        if self._rebuilt is not None:
            shown = shown._replace(tables=self._rebuilt.tables())
            self.view.look(shown)
        if "ref_cnt" not in self.hidden:
            return shown
        counts = [0] * self.shape.num_blocks
        tables = (table for of_group in shown.tables for table in of_group.values())
        for block in chain(self.view.state.outside, *tables):
            counts[block] += block != NULL
        completed = shown._replace(ref_cnt=counts)
        self.view.look(completed)
        return completed

    def _checked(
        self, operation: Operation | None, outcome: Outcome, shown: Snapshot | None
    ) -> tuple[Snapshot, str | None]:
        """The state in an answer, and what is wrong with the ids in the answer, if anything. TargetLostError if it has
        not the right types."""
        known, num_blocks = self._known, self.shape.num_blocks
        same = unchanged(shown, known)
        problem = problem_with_answer(outcome, shown, len(self.shape.groups), num_blocks, self.hidden, same)
        num_blocks = max(num_blocks, self.shape.host_blocks)
        if problem or shown is None:
            raise TargetLostError("protocol", problem or "there is no state")
        self._known = now = kept(shown, known, same)
        return now, stray_id(operation, outcome, now, num_blocks, self.hidden, known)
