"""Two targets side by side: alike, or in which situations not."""

import json

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.releases.diff import compare
from blockproof.fuzz.runs.pair import Pair, PairRun, Strictness
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.trace_file import read_trace
from blockproof.model.ops import Allocate, Done, Failed, Free, Group, Lookup, Refused, Shape, Submit, Take

from .test_model_free import Changed

SHAPE = Shape((Group("full", 1),), 8, 8, 1, 1, 8)
HIT = (Submit("a", (0, 0, 0)), Allocate("a", 3), Free("a"), Submit("b", (0, 0, 0)), Lookup("b"))


def pair(second, strictness=Strictness.EXACT):
    other = open_target(second) if isinstance(second, str) else second
    return Pair(open_target("impl"), other, strictness)


def at(kind, change):
    """A target that answers operations of this kind otherwise."""
    return Changed(lambda op, outcome, shown: (change(outcome) if isinstance(op, kind) else outcome, shown))


@pytest.mark.parametrize("strictness", Strictness)
def test_equals_are_alike(strictness):
    comparison = compare(pair("impl"), strictness, Plan(1, operations=6_000))
    assert comparison.situations == []
    assert comparison.summary.operations >= 6_000


@pytest.mark.slow
def test_another_order_of_eviction_is_seen_exactly_and_its_consequences_by_shape():
    plan = Plan(1, operations=2_000, attention=("full",))
    exact = compare(pair("fault:free-order-reversed"), Strictness.EXACT, plan)
    assert ("eviction order", "Free") in {one.finding.kind for one in exact.situations}
    shape = compare(pair("fault:free-order-reversed"), Strictness.SHAPE, plan)
    assert "eviction order" not in {one.finding.observable for one in shape.situations}
    assert shape.situations
    for comparison in (exact, shape):
        for one in comparison.situations:
            both = pair("fault:free-order-reversed", comparison.strictness)
            assert replay(one.trace, both)[0].kind == one.finding.kind


@pytest.mark.parametrize(
    ("change", "situation"),
    [
        (lambda outcome: Done((1, ((1,),))), "shorter hit"),
        (lambda outcome: Done((3, ((1, 2, 3),))), "longer hit"),
        (lambda outcome: Done((2, ((2, 3),))), "hit of other blocks"),
        (lambda outcome: Failed("KeyError"), "raises"),
    ],
)
def test_a_difference_is_named_by_what_it_means(change, situation):
    finding, _ = replay(Trace(SHAPE, HIT), pair(at(Lookup, change)))
    assert finding.kind == (situation, "Lookup")
    assert "impl" in str(finding)
    assert "changed" in str(finding)


def test_a_refusal_of_one_only_is_named_from_the_second_ones_side():
    trace = Trace(SHAPE, HIT[:2])
    assert replay(trace, pair(at(Allocate, lambda outcome: Refused())))[0].kind == ("refused", "Allocate")
    turned = Pair(at(Allocate, lambda outcome: Refused()), open_target("impl"))
    assert replay(trace, turned)[0].kind == ("no longer refused", "Allocate")


def test_by_shape_block_ids_do_not_count_but_null_entries_and_counts_do():
    moved = at(Allocate, lambda outcome: Done(((5, 6, 7),)))
    assert replay(Trace(SHAPE, HIT[:2]), pair(moved, Strictness.SHAPE))[0] is None
    assert replay(Trace(SHAPE, HIT[:2]), pair(moved))[0].kind == ("other answer", "Allocate")
    nulled = at(Allocate, lambda outcome: Done(((0, 6, 7),)))
    assert replay(Trace(SHAPE, HIT[:2]), pair(nulled, Strictness.SHAPE))[0].kind == ("other answer", "Allocate")


def test_by_shape_operations_that_name_blocks_are_left_out():
    _, applied = replay(Trace(SHAPE, (Take(2), *HIT)), pair("impl", Strictness.SHAPE))
    assert applied.operations == HIT


def test_a_core_that_only_one_can_build_is_a_situation_and_one_that_neither_can_is_not():
    cannot = Changed(lambda operation, outcome, shown: (Failed("TypeError"), None))
    assert replay(Trace(SHAPE, ()), pair(cannot))[0].kind == ("constructible for one only", "start")
    assert replay(Trace(SHAPE, ()), Pair(cannot, cannot))[0] is None


@pytest.mark.parametrize(
    ("first", "second", "both"), [((), (), ()), ((4, 8), (), (4, 8)), ((), (4, 8), (4, 8)), ((4, 8, 16), (8, 2), (8,))]
)
def test_a_pair_builds_the_block_sizes_that_both_build_and_who_names_none_builds_all(first, second, both):
    assert Pair(Changed(block_sizes=first), Changed(block_sizes=second)).block_sizes == both


def test_a_difference_shows_what_the_operation_changed_on_either_side():
    keeps = Changed(lambda op, outcome, shown: (outcome, shown._replace(num_free=7) if op == HIT[1] else shown))
    finding, _ = replay(Trace(SHAPE, HIT[:2]), pair(keeps))
    assert finding.kind == ("number of free blocks", "Allocate")
    assert "num_free: 7 -> 4" in finding.expected_changes
    assert "tables: group 0, a: None -> [1, 2, 3]" in finding.expected_changes
    assert not any(change.startswith("num_free") for change in finding.actual_changes)
    assert "tables: group 0, a: None -> [1, 2, 3]" in finding.actual_changes


@pytest.mark.parametrize("turned", [False, True])
def test_a_core_of_which_one_target_shows_nothing_counts_as_not_built(turned):
    shows, blind = open_target("impl"), Changed(lambda operation, outcome, shown: (outcome, None))
    run = PairRun(Pair(blind, shows) if turned else Pair(shows, blind))
    assert run.start(SHAPE) is None
    assert not run.built


def test_what_one_side_hides_is_not_compared():
    hidden = frozenset({"events", "stats"})
    other = Changed(lambda op, outcome, shown: (outcome, shown._replace(events=(), stats=None)), hides=hidden)
    comparison = compare(pair(other), Strictness.EXACT, Plan(1, operations=3_000))
    assert [one.finding.kind for one in comparison.situations if one.finding.operation is None] == []
    assert not {"events", "statistics"} & {one.finding.observable for one in comparison.situations}


@pytest.mark.slow
def test_the_command_tells_the_situations_and_keeps_a_trace_of_each(tmp_path, capsys):
    words = ["diff", "--target", "impl", "--target", "fault:free-order-reversed", "--attention", "full", "--seed", "1"]
    words += ["--out", str(tmp_path)]
    assert main([*words, "--operations", "1200", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    situations = [one for part in document["comparisons"] for one in part["situations"]]
    assert len(list(tmp_path.glob("*.json"))) == len(situations) > 0
    assert all(read_trace(path).finding for path in tmp_path.glob("*.json"))
    assert main([*words, "--operations", "1200"]) == 1
    assert "eviction order" in capsys.readouterr().out


def test_the_command_says_that_equals_are_alike(tmp_path, capsys):
    assert main(["diff", "--target", "impl", "--target", "impl", "--operations", "800", "--out", str(tmp_path)]) == 0
    assert "they behave alike" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_the_command_wants_two_targets(capsys):
    assert main(["diff", "--target", "impl"]) == 2
    assert "two targets" in capsys.readouterr().err
