"""Neither renaming nor looking at one request at a time loses a state."""

from dataclasses import replace

import pytest
from blockproof.fuzz.exploration import reductions
from blockproof.fuzz.exploration.planting import ALONE, CROWDED, SMALL, STEPS, TINY
from blockproof.fuzz.exploration.scope import shape_of
from blockproof.fuzz.exploration.search import Limits
from blockproof.model.ops import Group

HYBRID = replace(
    CROWDED,
    name="hybrid",
    shape=shape_of([Group("full", 1), Group("sliding", 1, window=2)], blocks=5, max_len=3, batched=3),
    prompts=((0, 1), (0,)),
    chunks=(1,),
)
MAMBA = replace(
    CROWDED,
    name="states",
    shape=shape_of([Group("mamba", 1, mamba_mode="align")], blocks=4, max_len=3, batched=3),
    prompts=((0, 1), (0,)),
    chunks=(2,),
)
EVICTED = replace(TINY, name="evicted", evict=True, prompts=((0, 0, 0), (0, 1)))
LOADED = replace(CROWDED, name="loaded", prompts=((0, 0, 0), (0, 0)), external=(1, 2), delay=True, reserved=(0, 1))
SCOPES = [CROWDED, STEPS, HYBRID, MAMBA, EVICTED, LOADED]


@pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: scope.name)
def test_renaming_loses_and_adds_nothing(scope):
    broken, named, canonical = reductions.symmetry(scope)
    assert broken == []
    assert named > 2 * canonical  # or there was nothing to be renamed


@pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: scope.name)
def test_one_request_at_a_time_loses_and_adds_nothing(scope):
    broken, every, reduced = reductions.one_at_a_time(scope)
    assert broken == []
    assert every == reduced > 10


def test_a_scope_too_large_for_a_check_is_refused():
    with pytest.raises(ValueError, match="smaller scope"):
        reductions.symmetry(SMALL, limits=Limits(states=100))


def test_alone_there_is_no_other_request_to_be_in_between():
    assert reductions.one_at_a_time(replace(ALONE, abort=True))[0] == []


@pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: scope.name)
def test_each_operation_once_loses_and_adds_nothing(scope):
    broken, every, made = reductions.once(scope)
    assert broken == []
    assert every > 1.5 * made
