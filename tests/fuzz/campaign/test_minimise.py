"""The corpus made small: nothing that was reached is lost."""

from random import Random

import pytest
from blockproof.fuzz.campaign.checking import problems
from blockproof.fuzz.campaign.database import Database
from blockproof.fuzz.campaign.minimise import SeedRun, cover, minimise, size

from .made import run, settings


def reached(runs):
    return frozenset[int]().union(*(one.keys for one in runs))


def test_one_run_that_reaches_all_is_enough():
    runs = {1: SeedRun(5, frozenset({1, 2})), 2: SeedRun(9, frozenset({1, 2, 3})), 3: SeedRun(1, frozenset({3}))}
    assert cover(runs) == {2}


def test_of_two_alike_the_shorter_one_is_kept():
    runs = {1: SeedRun(9, frozenset({1})), 2: SeedRun(5, frozenset({1})), 3: SeedRun(5, frozenset({1}))}
    assert cover(runs) == {2}


def test_runs_that_reach_nothing_are_not_needed():
    assert cover({1: SeedRun(5, frozenset())}) == set()
    assert cover({}) == set()


@pytest.mark.parametrize("seed", range(10))
def test_all_keys_are_kept_and_no_run_is_left_out_that_alone_has_one(seed):
    draw = Random(seed)
    runs = {id: SeedRun(draw.randrange(20), frozenset(draw.sample(range(40), draw.randrange(8)))) for id in range(30)}
    kept = cover(runs)
    assert reached(runs[id] for id in kept) == reached(runs.values())
    for id, one in runs.items():
        if not one.keys <= reached(other for key, other in runs.items() if key != id):
            assert id in kept


def test_a_store_has_the_same_keys_and_fewer_runs(tmp_path):
    run(tmp_path / "a.sqlite", settings(tmp_path), 6_000)
    database = Database(tmp_path / "a.sqlite", write=True)
    query = (
        "SELECT DISTINCT keys.target, keys.attention, keys.key FROM seed_keys JOIN keys ON keys.id = seed_keys.key"
        " ORDER BY 1, 2, 3"
    )
    keys = database.rows(query)
    before, after = minimise(database)
    assert database.rows(query) == keys
    assert before.keys == after.keys == len(keys)
    assert after.seeds < before.seeds
    assert after.operations < before.operations
    assert after == size(database)
    assert minimise(database) == (after, after)
    assert problems(database) == []
    database.close()
    run(tmp_path / "a.sqlite", None, 6_500)  # it goes on
