"""Runs about lookups that take several rounds: when they come, which cores they are about, and what they find."""

import pytest
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_engine
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.rounds import takes_rounds, with_rounds
from blockproof.fuzz.workload.shapes import ATTENTION, draw_shape
from blockproof.fuzz.workload.tuning import Tuning
from blockproof.model.attention import rules_for
from blockproof.model.core import Model
from blockproof.model.ops import Done

NAMES = [name for name, kinds in ATTENTION.items() if takes_rounds(kinds)]


def shapes(name: str, block_sizes: tuple[int, ...] = ()):
    for seed in range(150):
        draw = SeededDraw(f"{name} {seed}")
        yield with_rounds(draw, draw_shape(draw, ATTENTION[name], block_sizes))


def test_only_hybrids_of_two_groups_that_serve_hits_behind_holes_take_rounds():
    assert NAMES == ["sliding+sliding", "sliding+mamba", "full+sliding+sliding", "full+sliding+mamba"]


@pytest.mark.parametrize("block_sizes", [(), (16, 32)])
@pytest.mark.parametrize("name", NAMES)
def test_every_such_core_can_be_built_and_can_end_hits_at_many_places(name, block_sizes):
    target, seen = open_target("impl"), set()
    for shape in shapes(name, block_sizes):
        model = Model(shape)
        assert (model.construction, target.start(shape)) == (Done(), (Done(), model.snapshot())), shape
        assert shape.caching
        assert shape.retention_interval != 0
        assert shape.max_model_len == 8 * shape.scheduler_block_size + 1
        for rule in rules_for(shape):
            assert rule.behind == (rule.b if rule.windowed or rule.is_full else 0)
            assert not rule.windowed or 1 <= rule.w <= 2 * rule.b
        tables = [-(-shape.max_model_len // group.block_size) for group in shape.groups]
        assert max(tables) <= shape.num_blocks - 2 <= sum(tables)
        seen.add(shape.num_blocks - 2 == sum(tables))
    assert seen == {False, True}


def found_after(name: str, seed: int, rounds: int) -> int:
    """Operations until a fault of the second round is found."""
    target = open_target("fault:eagle-drop-never-renewed")
    plan = Plan(seed, None, 10_000, attention=(name,), tuning=Tuning(rounds=rounds))
    done = run_engine(target, plan, Summary(target.name, "random", seed))
    assert done.finding is not None
    return done.operations


def test_what_goes_wrong_in_a_second_round_is_found_in_less_than_half_of_the_operations():
    with_them, without = (
        sum(found_after(name, seed, rounds) for name in NAMES for seed in (1, 2)) for rounds in (9, 0)
    )
    assert 0 < 2 * with_them < without
