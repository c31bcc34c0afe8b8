"""The pair run: two targets are given the same operations, and the situation in which they differ is the finding.

Operations are chosen from the answers of the first target (as in `model_free`). A difference ends the run, since the
two are no longer in the same state. `Strictness` says what counts as a difference. Two builds of one core must agree in
everything (`exact`). Two releases often differ in the order of eviction, after which the same request holds blocks with
other ids; `shape` ignores that.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ...model import ops
from ...model.legal import misuse
from ...model.ops import NULL, Done, Failed, Operation, Outcome, Refused, Shape
from ...model.snapshot import Snapshot
from ..findings.difference import difference
from ..findings.finding import Finding
from ..findings.oracle_names import DIFFERENCE
from ..targets.answers import hit_of, problem_with_answer
from ..targets.base import (
    Target,
    TargetLostError,
    block_sizes_of,
    close_target,
    hidden_fields,
    is_told,
    lacking,
    offering,
)
from ..targets.block_ids import stray_id, without_hidden
from .judging import Judging
from .model_free import ModelFreeRun
from .run import ask
from .scheduler_view import SchedulerView


class Strictness(StrEnum):
    """What counts as a difference."""

    EXACT = "exact"
    """Every outcome, and every field of the snapshot that both targets can show, block ids included."""
    SHAPE = "shape"
    """Outcomes and block tables, where only null or not null is compared of each block; counts and statistics."""


_NAMES_BLOCKS = frozenset({"Evict", "Touch", "Release", "Take"})
"""Operations that name block ids, so that they mean different things to cores that differ in ids."""
_OTHER_IDS: Mapping[type[Operation], Callable[[ops.Value], object]] = {
    ops.Lookup: lambda value: _pattern(value),
    ops.Allocate: lambda value: _pattern(value),
    ops.AllocateBatch: lambda value: _pattern(value),
    ops.ReadTable: lambda value: _pattern(value),
    ops.TakeNewBlockIds: lambda value: len(value) if isinstance(value, tuple) else value,
    ops.TakeEvents: lambda value: None,
}
"""By operation whose answer depends on block ids: what is compared of it if ids may differ."""


@dataclass
class Pair:
    """Two targets as one, for `PairRun`."""

    first: Target
    second: Target
    strictness: Strictness = Strictness.EXACT

    def __post_init__(self) -> None:
        self.name = f"{self.first.name} and {self.second.name}"

    @property
    def hides(self) -> frozenset[str]:
        """What either of them cannot show."""
        return hidden_fields(self.first) | hidden_fields(self.second)

    @property
    def lacks(self) -> frozenset[str]:
        """What either of them has no equivalent of; with `shape` also operations that name block ids."""
        own = _NAMES_BLOCKS if self.strictness is Strictness.SHAPE else frozenset()
        return lacking(self.first) | lacking(self.second) | own

    @property
    def offers(self) -> frozenset[str]:
        """What both of them have that few have."""
        return offering(self.first) & offering(self.second)

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """The only block sizes that both of them build; empty if neither is limited."""
        first, second = block_sizes_of(self.first), block_sizes_of(self.second)
        return tuple(size for size in first if size in second) if first and second else first or second

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """The first target's answer only; `PairRun` starts both."""
        return self.first.start(shape)

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """The first target's answer only; `PairRun` steps both."""
        return self.first.step(operation)

    def close(self) -> None:
        """Close both, even if closing the first fails."""
        close_target(self.first)
        close_target(self.second)


class PairRun(ModelFreeRun):
    """Runs two targets. A finding is a difference; its observable describes it in words."""

    def __init__(self, pair: Pair) -> None:
        super().__init__(pair, Judging(()))
        self.pair = pair
        self.fields = [name for name in Snapshot._fields if name not in pair.hides]

    def _start(self, shape: Shape) -> Finding | None:
        self.view = SchedulerView(shape)
        self._both: tuple[Snapshot, Snapshot] | None = None
        try:
            first, ours = self._ask(self.pair.first, self.pair.first.start, shape)
            second, theirs = self._ask(self.pair.second, self.pair.second.start, shape)
        except TargetLostError as lost:
            return self._lost(lost, None, None)
        self.fields = [name for name in Snapshot._fields if name not in self.pair.hides]  # known once both are built
        if strays := self._strays(None, (first, ours), (second, theirs)):
            return self._finding(STRAY, None, first, second, None, strays)
        if isinstance(first, Failed) or isinstance(second, Failed) or ours is None or theirs is None:
            if first == second:
                return None
            return self._finding("constructible for one only", None, first, second, None)
        self.built = True
        ours = without_hidden(ours, shape.num_blocks, hidden_fields(self.pair.first))
        self.view.start(ours, shows_free="free" in self.fields)
        self._both = (ours, theirs)
        return self._compare(None, first, second, ours, theirs)

    def _step(self, operation: Operation) -> Finding | None:
        both = self._both or (None, None)
        try:
            first, ours = self._answer(self.pair.first, operation, both[0])
            second, theirs = self._answer(self.pair.second, operation, both[1])
        except TargetLostError as lost:
            self.outcomes.append(Failed(lost.kind))
            return self._lost(lost, operation, None)
        self.outcomes.append(first)
        assert ours is not None
        assert theirs is not None
        if strays := self._strays(operation, (first, ours), (second, theirs)):  # nobody can go on from such a state
            if not misuse(self.view, operation):
                return self._finding(STRAY, operation, first, second, (ours, theirs), strays)
            self.view.dead = True
            return None
        finding = self._compare(operation, first, second, ours, theirs)
        self._both = (ours, theirs)
        self.view.follow(operation, first, without_hidden(ours, self.shape.num_blocks, hidden_fields(self.pair.first)))
        return finding

    def _strays(self, operation: Operation | None, *answers: tuple[Outcome, Snapshot | None]) -> str:
        """Which target names a block that is not in the pool, a line each; empty if neither does."""
        told = []
        for target, (outcome, shown) in zip((self.pair.first, self.pair.second), answers, strict=True):
            if shown is not None:
                stray = stray_id(operation, outcome, shown, self.shape.num_blocks, hidden_fields(target))
                told += [f"{target.name}: {stray}"] if stray else []
        return "\n".join(told)

    def _answer(self, target: Target, operation: Operation, last: Snapshot | None) -> tuple[Outcome, Snapshot | None]:
        """The answer of one target to an operation; as it was, if the operation is no call on it."""
        return self._ask(target, target.step, operation) if is_told(target, operation) else (Done(), last)

    def _ask(
        self, target: Target, call: Callable[..., tuple[Outcome, Snapshot | None]], about: Shape | Operation
    ) -> tuple[Outcome, Snapshot | None]:
        """The answer of one target. TargetLostError if it has the wrong form: such a target cannot be compared."""
        outcome, snapshot = ask(call, about)
        hidden, num_blocks = hidden_fields(target), self.shape.num_blocks
        problem = None
        if snapshot is not None:
            problem = problem_with_answer(outcome, snapshot, len(self.shape.groups), num_blocks, hidden)
        if problem:
            raise TargetLostError("protocol", f"{target.name}: {problem}")
        return outcome, snapshot

    def _compare(
        self, operation: Operation | None, first: Outcome, second: Outcome, ours: Snapshot, theirs: Snapshot
    ) -> Finding | None:
        """A finding if outcomes or snapshots differ, as strictly as the pair asks for."""
        exact = self.pair.strictness is Strictness.EXACT
        same_outcome = first == second if exact else coarse(operation, first) == coarse(operation, second)
        if not same_outcome and operation is not None:
            return self._finding(_situation(operation, first, second), operation, first, second, (ours, theirs))
        comparable = (lambda side: side) if exact else shape_of
        for name in self.fields:
            compared = exact or name in _COMPARED_BY_SHAPE
            if compared and getattr(comparable(ours), name) != getattr(comparable(theirs), name):
                return self._finding(_WORDS[name], operation, first, second, (ours, theirs))
        return None

    def _finding(
        self,
        situation: str,
        operation: Operation | None,
        first: Outcome,
        second: Outcome,
        shown: tuple[Snapshot, Snapshot] | None,
        detail: str = "",
    ) -> Finding:
        before = self._both or shown
        sides = zip(before or (), shown or (), strict=True) if shown else ()
        changes = [tuple(difference(old, new)) for old, new in sides] or [(), ()]
        names = (self.pair.first.name, self.pair.second.name)
        step = len(self.operations) - 1
        self.found = Finding(
            situation, operation, step, first, second, changes[0], changes[1], detail, DIFFERENCE, names
        )
        return self.found


STRAY = "names a block outside of the pool"
_WORDS = {
    "free": "eviction order",
    "num_free": "number of free blocks",
    "usage": "usage",
    "ref_cnt": "references",
    "tables": "blocks held",
    "registered": "entries counted as registered",
    "labels": "blocks registered",
    "earliest": "block that a hit yields",
    "num_identities": "contents that can be hit",
    "events": "events",
    "new_block_ids": "block ids reported as new",
    "stats": "statistics",
}
"""Description of a difference, by field of the snapshot."""
_COMPARED_BY_SHAPE = ("num_free", "tables", "registered", "num_identities", "stats")


def shape_of(snapshot: Snapshot) -> Snapshot:
    """The snapshot with 1 for every block in the tables that is not null."""
    tables = [
        {name: [int(block != NULL) for block in table] for name, table in rows.items()} for rows in snapshot.tables
    ]
    return snapshot._replace(tables=tables)


def _pattern(value: object) -> object:
    """The value with 1 for every block in a tuple of blocks that is not null; other numbers stay as they are."""
    if not isinstance(value, tuple):
        return value
    if all(isinstance(element, int) for element in value):
        return tuple(int(element != NULL) for element in value)
    return tuple(_pattern(element) for element in value)


def coarse(operation: Operation | None, outcome: Outcome) -> object:
    """What is compared of an outcome if block ids may differ."""
    if isinstance(outcome, Done) and operation is not None and type(operation) in _OTHER_IDS:
        return _OTHER_IDS[type(operation)](outcome.value)
    return outcome


def _situation(operation: Operation, first: Outcome, second: Outcome) -> str:
    """How the second outcome differs from the first, in words."""
    kinds = {type(first), type(second)}
    if Failed in kinds:
        if kinds == {Failed}:
            return "another error"
        return "raises" if isinstance(second, Failed) else "no longer raises"
    if kinds == {Done, Refused}:
        return "refused" if isinstance(second, Refused) else "no longer refused"
    if isinstance(operation, ops.Lookup) and isinstance(first, Done) and isinstance(second, Done):
        before, after = hit_of(first), hit_of(second)
        if before and after and before[0] != after[0]:
            return "longer hit" if before[0] < after[0] else "shorter hit"
        return "hit of other blocks"
    return "other answer"
