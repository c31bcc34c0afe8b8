"""An id that is no block of the pool, wherever it is named and whatever is hidden: a finding that says who named it."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.finding import BUG, Trace
from blockproof.fuzz.findings.oracle_names import CONTRACT, DIFFERENCE, LIVENESS, LOCKSTEP, SHADOW
from blockproof.fuzz.findings.severity import Severity, severity
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.pair import Pair, Strictness
from blockproof.fuzz.targets.block_ids import stray_copy, stray_id, without_hidden
from blockproof.fuzz.traces.replay import replay
from blockproof.model.ops import (
    Advance,
    Allocate,
    Done,
    Free,
    Group,
    Lookup,
    ReadTable,
    Shape,
    StepStart,
    Submit,
    Take,
    TakeNewBlockIds,
)

from ..broken_targets import Broken

SHAPE = Shape((Group("full", 2),), 8, 64, 2, 2, 64)
STORY = (
    Submit("a", (1, 2, 3, 4, 5)),
    Lookup("a"),
    Allocate("a", 5),
    ReadTable("a"),
    Advance("a", (6,)),
    Submit("b", (1, 2, 3, 4, 5)),
    Lookup("b"),
    Allocate("b", 1, hit=True),
    Advance("b", (6,)),
    Take(1),
    TakeNewBlockIds(),
    Free("a"),
    StepStart(),
)
BAD = (-1, 8, 2**40, True, "1", None, 1.0)
JUDGES = ((SHADOW,), (CONTRACT,), (LIVENESS,), (SHADOW, CONTRACT, LIVENESS))
HIDES = ((), ("ref_cnt",), ("free", "num_free", "usage"), ("labels", "earliest", "events", "new_block_ids"))


def answered(kind: type, path: Callable[[Any, Any], Any]) -> Callable[[Any], Callable[..., Any]]:
    """A target that names the bad id in the answer of this operation; `path` puts it into the value."""

    def lying(bad: Any) -> Callable[..., Any]:
        def lie(operation: Any, outcome: Any, shown: Any) -> Any:
            return (Done(path(outcome.value, bad)), shown) if type(operation) is kind else (outcome, shown)

        return lie

    return lying


def shown(field: str, path: Callable[[Any, Any], Any]) -> Callable[[Any], Callable[..., Any]]:
    """A target that names it in this field of its state, once something is allocated."""

    def lying(bad: Any) -> Callable[..., Any]:
        def lie(operation: Any, outcome: Any, snapshot: Any) -> Any:
            if not snapshot or not snapshot.tables[0]:
                return outcome, snapshot
            return outcome, snapshot._replace(**{field: path(getattr(snapshot, field), bad)})

        return lie

    return lying


def last_of_first(rows: Any, bad: Any) -> Any:
    return ((*rows[0][:-1], bad), *rows[1:])


WHO = {
    "free": (shown("free", lambda free, bad: [*free[:-1], bad]), "the free list"),
    "tables": (
        shown("tables", lambda rows, bad: [{name: [*row[:-1], bad] for name, row in rows[0].items()}]),
        "the table of a in group 0",
    ),
    "earliest": (shown("earliest", lambda ids, bad: [*ids[:-1], bad]), "`earliest`"),
    "new_block_ids": (shown("new_block_ids", lambda rows, bad: [[*rows[0], bad]]), "the pending list of new blocks"),
    "Lookup": (
        answered(Lookup, lambda value, bad: (2, ((bad,),))),
        "the hit of Lookup",
    ),
    "Allocate": (answered(Allocate, last_of_first), "the answer of Allocate"),
    "ReadTable": (answered(ReadTable, last_of_first), "the answer of ReadTable"),
    "Free": (answered(Free, lambda value, bad: (bad,)), "the answer of Free"),
    "Take": (answered(Take, lambda value, bad: (bad,)), "the answer of Take"),
    "TakeNewBlockIds": (answered(TakeNewBlockIds, lambda value, bad: (*value, bad)), "the answer of TakeNewBlockIds"),
}


@pytest.mark.parametrize("hides", HIDES, ids=lambda names: "+".join(names) or "nothing")
@pytest.mark.parametrize("where", WHO)
def test_whoever_names_a_block_that_is_not_there_is_named(where, hides):
    lying, who = WHO[where]
    for bad in BAD:
        target = Broken(lying(bad), hides=frozenset(hides))
        for oracles in JUDGES:
            finding, _ = replay(Trace(SHAPE, STORY), target, Judging(oracles))
            if (where in hides and type(bad) is int) or (where == "earliest" and bad is None):
                assert finding is None, (bad, oracles)
                continue
            assert finding is not None, (bad, oracles)
            if type(bad) is int or where[0].isupper():
                assert (finding.oracle, finding.observable) == (CONTRACT, "S4")
                assert finding.detail.startswith(who), finding.detail
                named = f"names block {bad}, the pool has 0 .. 7" if type(bad) is int else f"names {bad!r}, a "
                assert named in finding.detail
                assert severity(finding) is Severity.WRONG_CONTENT
            else:
                assert finding.observable == "protocol"
                assert f"Snapshot.{where} is " in finding.detail


def test_the_core_that_names_only_its_blocks_shows_nothing():
    for hides in HIDES:
        for oracles in JUDGES:
            finding, applied = replay(Trace(SHAPE, STORY), Broken(hides=frozenset(hides)), Judging(oracles))
            assert finding is None, f"{hides} {oracles}\n{finding}"
            assert applied.operations == STORY


@pytest.mark.parametrize("name", ["ref_cnt", "labels", "earliest"])
@pytest.mark.parametrize("length", [0, 7, 9])
def test_lists_by_block_have_one_entry_for_each(name, length):
    change = lambda operation, outcome, seen: (outcome, seen._replace(**{name: [0] * length}))  # noqa: E731
    for oracles in JUDGES:
        finding, _ = replay(Trace(SHAPE, STORY), Broken(change), Judging(oracles))
        assert finding.detail == f"Snapshot.{name} has {length} entries; expected one for each of the 8 blocks"
        finding, _ = replay(Trace(SHAPE, STORY), Broken(change, hides={name}), Judging(oracles))
        assert finding is None


@pytest.mark.parametrize("strictness", Strictness)
def test_of_two_targets_the_one_is_named_that_names_it(strictness):
    lying, who = WHO["free"]
    strange = Broken(lying(99), name="strange")
    for pair, told in (((Broken(), strange), 1), ((strange, Broken()), 1), ((strange, strange), 2)):
        finding, _ = replay(Trace(SHAPE, STORY), Pair(*pair, strictness))
        assert (finding.oracle, finding.observable) == (DIFFERENCE, "names a block outside of the pool")
        assert finding.detail.splitlines() == [f"strange: {who} names block 99, the pool has 0 .. 7"] * told


def test_in_lockstep_it_is_worse_than_the_difference_that_it_makes():
    for where, (lying, _) in WHO.items():
        finding, _ = replay(Trace(SHAPE, STORY), Broken(lying(99)), Judging((LOCKSTEP, SHADOW, CONTRACT)))
        assert (finding.oracle, finding.observable) == (CONTRACT, "S4"), where
        assert [one.oracle for one in finding.also] == [LOCKSTEP], where
        finding, _ = replay(Trace(SHAPE, STORY), Broken(lying(99)), Judging((LOCKSTEP,)))
        assert finding.oracle == LOCKSTEP, where


@pytest.mark.parametrize(
    ("copies", "told"),
    [
        (((1, 8),), "a copy from 1 to 8 names block 8, the pool has 0 .. 7"),
        (((-1, 1),), "a copy from -1 to 1 names block -1, the pool has 0 .. 7"),
        (((1, "2"),), "a copy from 1 to '2' names '2', a str, where the id of a block has to stand"),
        ((1,), "the copies hold 1; expected a pair of source and destination"),
        (None, "the copies hold None; expected a pair of source and destination"),
    ],
)
@pytest.mark.parametrize("oracles", [(SHADOW,), (LOCKSTEP, SHADOW)])
def test_copies_name_blocks_too(copies, told, oracles):
    finding, _ = replay(Trace(SHAPE, STORY), Broken(copies=copies), Judging(oracles))
    assert (finding.oracle, finding.observable, finding.detail) == (CONTRACT, "S4", told)
    assert stray_copy(((0, 7), [1, 1]), 8) is None


def test_what_is_hidden_is_read_by_nobody():
    _, seen = open_target("impl").start(SHAPE)
    blind = without_hidden(seen, 8, {"free", "labels", "events", "registered", "append_only"})
    assert (blind.free, blind.labels, blind.events, blind.registered) == ([], [None] * 8, (), [{}])
    assert blind._replace(free=seen.free) == seen._replace(registered=[{}])
    assert without_hidden(seen, 8, ()) is seen
    assert stray_id(None, Done(), seen, 8) is None


def test_a_target_that_answers_anything_never_breaks_an_oracle():
    """Every part of the answers of a run is replaced by nonsense now and then: what comes is about the target."""
    odd: list[Any] = [
        -1,
        0,
        1,
        7,
        10**9,
        True,
        None,
        "x",
        1.5,
        (),
        (1,),
        ((1,),),
        [],
        {},
        (2, ((3,),)),
        (10**9, ((), ())),
    ]

    def lie(operation: Any, outcome: Any, seen: Any) -> Any:
        if operation is None or draw.random() > 0.1:
            return outcome, seen
        if draw.random() < 0.4:
            return Done(draw.choice(odd)), seen
        field = draw.choice(seen._fields)
        value = getattr(seen, field)
        if isinstance(value, list) and value and draw.random() < 0.7:
            one = draw.choice(odd)
            at = draw.randrange(len(value))
            if isinstance(value[at], dict):
                return outcome, seen._replace(**{field: [{**value[at], "a": one, "r1": [one]}]})
            return outcome, seen._replace(**{field: [*value[:at], one, *value[at + 1 :]]})
        return outcome, seen._replace(**{field: draw.choice(odd)})

    for seed in range(40):
        draw = random.Random(seed)
        hides = frozenset(HIDES[seed % len(HIDES)])
        for oracles in JUDGES:
            plan = Plan(seed, operations=300, oracles=oracles, keep_going=True, attention=("full", "full+sliding"))
            summary = Summary("odd", "random", seed, oracles=oracles)
            run_random(Broken(lie, hides=hides), plan, summary)
            assert not [one for one in summary.found.values() if one.finding.observable == BUG], summary.finding
