"""The canary of `fuzz-scheduler` (`canary`): engines that only play a part, each with a mistake for one judge."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from ...model import ops
from ...model.core import Model
from ...model.ops import Done, Group, Operation, Outcome, Shape
from ...model.shown.snapshot import Snapshot
from ..findings.oracle_names import CONTRACT, LIVENESS, SHADOW
from .canary import Canary, check_plants
from .scheduler_story import RAISED, StoryRun

SHAPE = Shape((Group("full", 2),), 9, 12, 2, 2, 16)
_OPERATIONS: Sequence[Operation] = (
    ops.Submit("a", (1, 2, 3, 4, 5)),
    ops.Allocate("a", 5),
    ops.Advance("a", (6,)),
    ops.Submit("b", (8, 9, 10)),
    ops.Allocate("b", 3),
    ops.Advance("b", (11,)),
    ops.Free("b"),
    ops.Free("a"),
)


@dataclass
class _Observed:
    """What a `StoryRun` looks at."""

    steps: int = 0
    finished: list[str] = field(default_factory=list)
    corruption: list[str] = field(default_factory=list)
    starved: list[str] = field(default_factory=list)
    missing_blocks: int = 0


class _Player:
    """Plays the operations, one a step, on the model, with one mistake."""

    shape = SHAPE
    hides: frozenset[str] = frozenset()
    loses: frozenset[str] = frozenset()
    judge: Callable[[Operation, Outcome, Snapshot, Snapshot], None]

    def __init__(self, mistake: "Callable[[_Player, Operation, Outcome], Outcome]") -> None:
        self.model, self._mistake = Model(SHAPE), mistake
        self.observed, self.expected = _Observed(), {"a", "b"}
        self.shown = self.model.snapshot()

    @property
    def over(self) -> bool:
        return self.observed.steps == len(_OPERATIONS)

    def step(self) -> None:
        operation, before = _OPERATIONS[self.observed.steps], self.shown
        self.observed.steps += 1
        outcome = self._mistake(self, operation, self.model.apply(operation))
        self.shown = self.model.snapshot()
        if isinstance(operation, ops.Free):
            self.observed.finished.append(operation.request)
        self.judge(operation, outcome, before, self.shown)

    def finish(self) -> None:
        """Nothing is left."""

    def outside(self, shown: Snapshot) -> list[int]:
        return []

    def counts(self) -> Mapping[str, int]:
        return {}


def check_judges(wrong_reads: Callable[[], Sequence[str]]) -> Canary | None:
    """Plant a mistake for each judge of a story. `wrong_reads`: what the device of the engines says of reads that are
    wrong, a line each. BlindOracleError if a judge does not see its mistake."""

    def reads_wrong(player: _Player, operation: Operation, outcome: Outcome) -> Outcome:
        if operation == _OPERATIONS[1]:
            player.observed.corruption += wrong_reads()
        return outcome

    mistakes = {SHADOW: reads_wrong, CONTRACT: _hands_out_twice, LIVENESS: _forgets, RAISED: _raises}
    return check_plants((judge, partial(_is_seen, judge, mistake)) for judge, mistake in mistakes.items())


def _is_seen(judge: str, mistake: Callable[[_Player, Operation, Outcome], Outcome]) -> bool:
    found = StoryRun(_Player(mistake)).run(len(_OPERATIONS))
    return [one.judge for one in found] == [judge]


def _hands_out_twice(player: _Player, operation: Operation, outcome: Outcome) -> Outcome:
    """A block that somebody holds is handed out."""
    if operation != _OPERATIONS[4]:
        return outcome
    (tables,) = player.model.state.tables
    tables["b"][-1] = tables["a"][0]
    return Done((tuple(tables["b"]),))


def _forgets(player: _Player, operation: Operation, outcome: Outcome) -> Outcome:
    """A request arrives of which nothing is heard again."""
    player.expected.add("c")
    return outcome


def _raises(player: _Player, operation: Operation, outcome: Outcome) -> Outcome:
    raise RuntimeError("planted")
