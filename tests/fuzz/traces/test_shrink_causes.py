"""One cause stays one cause: what a trace may not be shrunk to, although the oracle, property and operation are the
same. The targets are the model with two mistakes, of which the other one is easier to show."""

from collections.abc import Callable

import pytest
from blockproof.fuzz.findings.cause import failed
from blockproof.fuzz.findings.finding import Finding, Trace
from blockproof.fuzz.findings.oracle_names import CONTRACT, SHADOW
from blockproof.fuzz.runs.judging import USUAL, Judging
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.shrink import Shrunk, said_by_model, shrink
from blockproof.model.core import Model
from blockproof.model.ops import (
    Advance,
    Allocate,
    Done,
    Evict,
    Free,
    Group,
    Operation,
    Outcome,
    Refused,
    Shape,
    Submit,
    Take,
)
from blockproof.model.snapshot import Snapshot

SHAPE = Shape((Group("full", 4),), 12, 40, hash_block_size=4, scheduler_block_size=4, max_num_batched_tokens=40)
SHADOWED, JUDGED = Judging((SHADOW,)), Judging((SHADOW, CONTRACT))
Answer = tuple[Outcome, Snapshot]


class Wrong:
    """The model, with answers that are changed."""

    name = "wrong"

    def __init__(self, change: Callable[[Operation, Outcome, Snapshot], Answer], *lacks: str) -> None:
        self.change, self.lacks = change, frozenset(lacks)

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        self.model, self.asked = Model(shape), list[Operation]()
        built = isinstance(self.model.construction, Done)
        return self.model.construction, self.model.snapshot() if built else None

    def step(self, operation: Operation) -> Answer:
        self.asked.append(operation)
        return self.change(operation, *self.model.step(operation))

    def close(self) -> None:
        pass


def shrunk(target: Wrong, judging: Judging, *operations: Operation, shape: Shape = SHAPE) -> tuple[Finding, Shrunk]:
    """What the whole trace shows, and what it is shrunk to."""
    trace = Trace(shape, operations)
    finding, applied = replay(trace, target, judging)
    assert finding is not None
    assert applied == trace
    small = shrink(trace, finding.kind, target, judging)
    assert small.finding.key == finding.key
    return finding, small


def prompt_of(small: Shrunk) -> tuple[int, ...]:
    """Of the first request."""
    first = small.trace.operations[0]
    assert isinstance(first, Submit)
    return first.prompt


def tokens_of(small: Shrunk) -> int:
    """Of the step that the trace ends with."""
    last = small.trace.operations[-1]
    assert isinstance(last, Allocate)
    return last.new_tokens


def fewer_free(wrong: Callable[[Operation], bool]) -> Callable[[Operation, Outcome, Snapshot], Answer]:
    """Shows a free block less after operations of this kind."""

    def change(operation: Operation, outcome: Outcome, shown: Snapshot) -> Answer:
        return outcome, shown._replace(num_free=shown.num_free - 1) if wrong(operation) else shown

    return change


def wide(operation: Operation) -> bool:
    return isinstance(operation, Allocate) and operation.new_tokens >= 3


def test_drafts_are_not_drawn_for_a_target_that_lacks_them():
    steps = (Submit("a", (1, 2, 3, 4, 5)), Allocate("a", 5))
    _, small = shrunk(Wrong(fewer_free(wide)), USUAL, *steps)
    assert len(prompt_of(small)) == 1  # a step of one token and two drafts shows it, too
    _, small = shrunk(Wrong(fewer_free(wide), "drafts"), USUAL, *steps)
    assert len(prompt_of(small)) == tokens_of(small) == 3


@pytest.mark.parametrize("lacks", ["Group.kind=full", "hybrids"])
def test_groups_are_not_drawn_for_a_target_that_lacks_them(lacks):
    sliding = Group("sliding", 4, window=8)
    shape = Shape((sliding,), 12, 40, hash_block_size=4, scheduler_block_size=4, max_num_batched_tokens=40)
    _, small = shrunk(Wrong(fewer_free(wide), lacks), USUAL, Submit("a", (1,) * 5), Allocate("a", 5), shape=shape)
    assert [group.kind for group in small.trace.shape.groups] == ["sliding" if lacks != "hybrids" else "full"]


def test_a_legal_call_does_not_become_misuse():
    def refuses_both(operation: Operation, outcome: Outcome, shown: Snapshot) -> Answer:
        both = isinstance(operation, Allocate) and operation.new_tokens in (0, 7)
        return Refused() if both else outcome, target.model.snapshot()

    target = Wrong(refuses_both)
    finding, small = shrunk(target, USUAL, Submit("a", (1,) * 7), Allocate("a", 7))
    assert not finding.misuse
    assert tokens_of(small) == 7
    finding, small = shrunk(target, USUAL, Submit("a", (1,) * 7), Allocate("a", 0))
    assert finding.misuse
    assert tokens_of(small) == 0


def test_no_call_before_the_last_one_becomes_misuse():
    def evicted_five(operation: Operation) -> bool:
        evicts = [one for one in target.asked if isinstance(one, Evict)]
        return isinstance(operation, Free) and any(5 in one.blocks for one in evicts)

    target = Wrong(fewer_free(evicted_five))
    _, small = shrunk(target, USUAL, Submit("a", (1,)), Evict((5, 6)), Free("a"))
    (evict,) = [one for one in small.trace.operations if isinstance(one, Evict)]
    assert all(0 <= block < small.trace.shape.num_blocks for block in evict.blocks)


def test_a_target_lost_at_a_legal_call_does_not_become_one_lost_at_misuse_without_a_model():
    def raises(operation: Operation, outcome: Outcome, shown: Snapshot) -> Answer:
        if isinstance(operation, Allocate) and operation.new_tokens in (0, 7):
            raise LookupError("nothing here")
        return outcome, shown

    finding, small = shrunk(Wrong(raises), JUDGED, Submit("a", (1,) * 7), Allocate("a", 7))
    assert (finding.observable, finding.misuse) == ("protocol", False)
    assert tokens_of(small) == 7


def test_a_wrong_content_does_not_become_a_missing_block():
    def two_mistakes(operation: Operation, outcome: Outcome, shown: Snapshot) -> Answer:
        tables = shown.tables[0]
        if not isinstance(operation, Advance) or "a" not in tables:
            return outcome, shown
        if len(tables["a"]) > 1 and "b" in tables:  # somebody else's block stands in its table
            return outcome, shown._replace(tables=[{**tables, "a": [tables["b"][0], *tables["a"][1:]]}])
        return outcome, shown._replace(tables=[{**tables, "a": tables["a"][:-1]}])

    steps = (Submit("b", (9,) * 4), Allocate("b", 4), Submit("a", (1,) * 5), Allocate("a", 5), Advance("a"))
    finding, small = shrunk(Wrong(two_mistakes), SHADOWED, *steps)
    assert "another content" in finding.detail
    assert "another content" in small.finding.detail
    less = Trace(SHAPE, (Submit("a", (1,) * 2), Allocate("a", 2), Advance("a")))
    other, _ = replay(less, Wrong(two_mistakes), SHADOWED)
    assert other.identity == finding.identity  # the easier one, which it must not become
    assert "has no block" in other.detail


def test_what_the_model_says_of_the_call_stays_the_same_where_no_model_runs():
    def raises(operation: Operation, outcome: Outcome, shown: Snapshot) -> Answer:
        if isinstance(operation, Allocate) and (operation.new_tokens >= 7 or isinstance(outcome, Refused)):
            return failed(LookupError("nothing is left")), shown
        return outcome, shown

    finding, small = shrunk(Wrong(raises), Judging((CONTRACT,)), Submit("a", (1,) * 9), Allocate("a", 9))
    assert finding.observable == "S8"
    assert said_by_model(small.trace) == "value"
    assert tokens_of(small) == 7


def test_the_model_is_asked_of_the_last_call():
    def said(*operations: Operation) -> str | None:
        return said_by_model(Trace(SHAPE, operations))

    begun = (Submit("a", (1,) * 9), Allocate("a", 9))
    assert said(*begun) == "value"
    assert said(*begun, Submit("b", (2,) * 40), Allocate("b", 40)) == "refusal"
    assert said(*begun, Allocate("a", 0)) == "misuse"
    assert said(*begun, Take(40)) == "ValueError"
    assert said(Allocate("a", 9)) is None


def test_the_finding_that_is_shown_of_several_stays_the_shown_one():
    """A block that is free and held, and beside it another table than the model's."""

    def free_and_held(operation: Operation, outcome: Outcome, shown: Snapshot) -> Answer:
        held = [block for table in shown.tables[0].values() for block in table]
        if not isinstance(operation, Allocate) or not isinstance(outcome, Done) or len(held) < 2:
            return outcome, shown._replace(free=shown.free[::-1])  # the order is wrong, whatever happens
        free = [*shown.free[1:], held[0]]
        return outcome, shown._replace(free=free)

    everybody = Judging(("lockstep", SHADOW, CONTRACT))
    first = Trace(SHAPE, (Submit("a", (1,) * 8), Allocate("a", 8)))

    def late(operation: Operation, outcome: Outcome, shown: Snapshot) -> Answer:
        return free_and_held(operation, outcome, shown) if isinstance(operation, Allocate) else (outcome, shown)

    finding, _ = replay(first, Wrong(late), everybody)
    assert (finding.oracle, finding.observable, finding.said) == (CONTRACT, "S1", "free and held")
    assert [one.oracle for one in finding.also][-1] == "lockstep"
    small = shrink(first, finding.kind, Wrong(late), everybody)
    assert small.finding.key == finding.key
