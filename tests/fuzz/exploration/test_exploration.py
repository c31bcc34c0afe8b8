"""Small scopes are explored wholly, and the exploration says what it did."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from blockproof.fuzz.adapters.impl_limits import is_short
from blockproof.fuzz.exploration import checkpoint, liveness
from blockproof.fuzz.exploration.planting import ALONE, CROWDED, SMALL, STATES, TINY, WINDOW
from blockproof.fuzz.exploration.scope import Scope, ScopeError, shape_of
from blockproof.fuzz.exploration.scopes import SCOPES, made_to_measure
from blockproof.fuzz.exploration.search import EXHAUSTED, Limits, Search
from blockproof.fuzz.exploration.situations import NAMED as SITUATIONS
from blockproof.fuzz.exploration.workers import Jobs
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.findings.writing import write_file
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.traces.replay import replay
from blockproof.model.core import Model
from blockproof.model.legal import allows
from blockproof.model.ops import Group

PINNED = Path(__file__).parent / "exploration_counts.json"
COUNTS = {name: tuple(counts) for name, counts in json.loads(PINNED.read_text(encoding="utf-8")).items()}
"""States, at rest, transitions, depth. Where a rule has changed: python benchmarks/exploration.py --pin"""
QUICK = [name for name in SCOPES if name in COUNTS and COUNTS[name][0] <= 3_000]
LONGER = [name for name in SCOPES if name in COUNTS and name not in QUICK]


def counts(done):
    return done.states, done.resting, done.transitions, done.depth


@pytest.mark.parametrize("scope", [TINY, SMALL, ALONE, CROWDED, WINDOW, STATES], ids=lambda scope: scope.name)
def test_a_small_scope_has_exactly_these_states(scope):
    done = Search(scope).run()
    assert done.ended == EXHAUSTED
    assert done.finding is None
    assert counts(done) == COUNTS[scope.name]


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in LONGER)])
def test_a_named_scope_has_exactly_these_states(name):
    done = Search(SCOPES[name]).run()
    assert done.passed, (done.finding, done.missing)
    assert counts(done) == COUNTS[name]


def test_every_scope_that_is_small_enough_is_pinned():
    unpinned = [name for name in SCOPES if name not in COUNTS]
    assert {"full", "sliding", "mamba"} <= set(unpinned)  # the page has their counts
    assert len(unpinned) < len(SCOPES) / 2


@pytest.mark.parametrize("attention", ["full", "sliding", "chunked", "sink"])
def test_a_scope_made_to_measure_is_exhausted(attention):
    scope = made_to_measure(attention, blocks=5 if attention == "sink" else 4, requests=2, block_size=1)
    done = Search(scope).run()
    assert done.passed
    assert counts(done) == COUNTS[f"made to measure: {attention}"]


@pytest.mark.parametrize("attention", ["mamba", "mla", "full+sliding", "full+mamba", "full+sliding+chunked"])
def test_other_types_can_be_made_to_measure(attention):
    scope = made_to_measure(attention, blocks=10, requests=2, block_size=2)
    assert Search(scope).run(Limits(states=1500)).finding is None


def test_every_state_of_a_scope_can_be_reached_by_the_operations_that_its_path_names():
    search = Search(TINY)
    search.run()
    for number in range(0, len(search.states), 97):
        path = search.path(number)
        model = Model(TINY.shape)
        for operation in path:
            assert allows(model, operation), (number, operation)
            model.step(operation)
        finding, applied = replay(Trace(TINY.shape, path), open_target("impl"))
        assert finding is None
        assert len(applied.operations) == len(path)
        # The path ends in the state it is a path to: up to renaming, as the canonical form is.
        assert sorted(len(request.tokens) for request in model.requests.values()) == sorted(
            len(search.expansion.pair.contents.sequences[search.states[number][1 + 3 * slot]][0])
            for slot in range(TINY.requests)
            if search.states[number][1 + 3 * slot]
        )


def test_paths_are_shortest():
    """Along the recorded parents no state is further from the start than its number's level says."""
    search = Search(CROWDED)
    done = search.run()
    depths = [len(search.path(number)) for number in range(len(search.states))]
    assert depths == sorted(depths)
    assert max(depths) == done.depth


def test_several_processes_find_the_same_states_in_the_same_order():
    one, two = Search(CROWDED), Search(CROWDED)
    assert counts(one.run()) == counts(two.run(jobs=Jobs(2)))
    assert (one.states, one.parents, one.moves) == (two.states, two.parents, two.moves)
    assert one.reached == two.reached


def test_a_scope_that_never_reaches_what_it_is_there_for_does_not_pass():
    done = Search(replace(TINY, must_reach=("hit", "eagle drop"))).run()
    assert done.missing == ("eagle drop",)
    assert not done.passed
    assert Search(replace(TINY, must_reach=("hit",))).run().passed


def test_a_state_limit_ends_the_search_and_is_no_success():
    done = Search(SMALL).run(Limits(states=500))
    assert done.ended == "state limit"
    assert 500 <= done.states < COUNTS["small"][0]
    assert not done.passed


def test_a_memory_limit_ends_the_search_and_is_no_success():
    done = Search(SMALL).run(Limits(memory=1))
    assert done.ended == "memory limit"
    assert not done.passed


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"requests": 0}, "0 requests"),
        ({"prompts": ()}, "no prompt"),
        ({"prompts": ((),)}, "empty one"),
        ({"outputs": 0}, "0 output"),
        ({"sampled": ()}, "no sampled"),
        ({"chunks": (0,)}, "positive"),
        ({"outputs": 9}, "raise it"),
        ({"reserved": (-1,)}, "0 or more"),
        ({"external": (0,)}, "positive"),
        ({"delay": True}, "delay without"),
    ],
)
def test_a_scope_that_cannot_be_says_why(fields, problem):
    with pytest.raises(ScopeError, match=problem):
        replace(SMALL, **fields)


def test_a_scope_with_more_contents_than_a_byte_can_number_says_so():
    shape = shape_of([Group("full", 1)], blocks=4, max_len=12, batched=12)
    scope = Scope("wide", shape, 1, ((0,),), outputs=9, sampled=(0, 1))
    with pytest.raises(ScopeError, match="at most 250"):
        Search(scope)


def test_the_named_scopes_cover_every_attention_type_with_two_token_values():
    kinds = {"+".join(group.kind for group in scope.shape.groups) for scope in SCOPES.values()}
    assert {"full", "sliding", "chunked", "mamba", "full+sliding", "full+mamba"} <= kinds
    for scope in SCOPES.values():
        assert {token for prompt in scope.prompts for token in prompt} == {0, 1}, scope.name
        assert len(scope.must_reach) >= 2, scope.name
        assert set(scope.must_reach) <= SITUATIONS, scope.name


def test_the_named_scopes_reach_every_situation_there_is():
    assert {name for scope in SCOPES.values() for name in scope.must_reach} == SITUATIONS


@pytest.mark.parametrize("name", [name for name in SCOPES if name not in QUICK])
def test_the_beginning_of_a_named_scope_shows_nothing(name):
    done = Search(SCOPES[name]).run(Limits(states=1500))
    assert done.finding is None


# Liveness.


def test_the_first_state_from_which_no_goal_can_be_reached_is_found():
    # 0 -> 1 -> 2 (goal), 0 -> 3, 3 -> 4 -> 3
    edges = [(0, 1), (1, 2), (0, 3), (3, 4), (4, 3)]
    sources, targets = zip(*edges, strict=True)
    assert liveness.first_stuck(5, sources, targets, [2]) == 3
    assert liveness.first_stuck(5, sources, targets, [2, 4]) is None
    assert liveness.first_stuck(1, [], [], []) == 0


# Checkpoints.


def test_a_search_goes_on_from_a_checkpoint_and_ends_with_the_same_counts(tmp_path):
    whole = Search(SMALL)
    expected = whole.run()
    path = tmp_path / "small.states"
    part = Search(SMALL)
    part.run(Limits(states=400))
    for limit in (1200, None):
        checkpoint.save(part, path, write_file)
        part = Search(SMALL)
        checkpoint.load(part, path)
        done = part.run(Limits(states=limit))
    assert counts(done) == counts(expected)
    assert (part.states, part.parents, part.moves) == (whole.states, whole.parents, whole.moves)
    assert done.reached == expected.reached


def test_a_damaged_checkpoint_is_named_and_changes_nothing(tmp_path):
    path = tmp_path / "tiny.states"
    search = Search(TINY)
    search.run(Limits(states=100))
    checkpoint.save(search, path, write_file)
    good = path.read_bytes()
    for bad, problem in (
        (good[:-1], "damaged"),
        (good[:-1] + bytes([good[-1] ^ 1]), "damaged"),
        (b"", "no checkpoint"),
        (b"{}\n", "no checkpoint"),
        (b"[" * 100_000, "no checkpoint"),
        (good.replace(b'"at": ', b'"at": 1'), "damaged"),
        (good.replace(b'"scope": "tiny"', b'"scope": "huge"'), "another scope"),
    ):
        path.write_bytes(bad)
        fresh = Search(TINY)
        with pytest.raises(checkpoint.CheckpointError, match=problem) as caught:
            checkpoint.load(fresh, path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert fresh.states == []


def test_a_checkpoint_of_another_scope_is_not_gone_on_with(tmp_path):
    path = tmp_path / "tiny.states"
    search = Search(TINY)
    search.run(Limits(states=100))
    checkpoint.save(search, path, write_file)
    for other in (Search(replace(TINY, chunks=(1,))), Search(TINY, "block-leaks")):
        with pytest.raises(checkpoint.CheckpointError, match="another scope or with other sources"):
            checkpoint.load(other, path)


def test_ctrl_c_is_noted_between_two_chunks(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(
        "import os, signal\n"
        "from blockproof.fuzz.exploration.search import Search\n"
        "from blockproof.fuzz.exploration.planting import SMALL\n"
        "done = Search(SMALL).run(on_progress=lambda search: os.kill(os.getpid(), signal.SIGINT))\n"
        "print(done.ended, done.states, done.passed)\n"
    )
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True)
    ended, states, passed = run.stdout.split()
    assert (ended, passed) == ("interrupted", "False")
    assert int(states) < COUNTS["small"][0]


def test_every_scope_is_so_small_that_our_core_runs_at_its_low_limits():
    """Where it would work in bulk only from eight blocks on, no scope would come to that."""
    measured = [made_to_measure(kinds, 9, 2, size) for kinds in ("full", "full+sliding", "mamba") for size in (1, 2, 8)]
    assert [scope.name for scope in (*SCOPES.values(), *measured) if not is_short(scope.shape)] == []
