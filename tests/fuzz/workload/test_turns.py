"""In which order the runs of a seed come."""

from collections import Counter
from itertools import islice

import pytest
from blockproof.fuzz.workload.shapes import ATTENTION
from blockproof.fuzz.workload.tuning import Tuning
from blockproof.fuzz.workload.turns import FIRST, in_turn

EVERY = tuple(ATTENTION)


def test_runs_about_rounds_come_once_every_type_has_had_its_turn():
    first, second = "full", "sliding+mamba"
    usual = [(first, ""), (second, "")]
    about = [(second, "rounds")] * 2
    got = list(islice(in_turn((first, second), 2), 10))
    assert [one[1:] for one in got] == [*usual, *usual, *about, *usual, *about]
    assert [one.number for one in got] == [0, 0, 1, 1, 1, 1, 2, 2, 2, 2]


@pytest.mark.parametrize(("names", "again"), [(("full", "sliding+mamba"), 0), (("full", "full+sliding"), 2)])
def test_without_them_the_types_come_in_turn(names, again):
    assert [one.attention for one in islice(in_turn(names, again), 10) if not one.about] == [*names] * 5


def test_the_first_runs_of_a_seed_are_as_they_were_before_there_were_runs_about_steps():
    usual = Tuning()
    before, now = in_turn(EVERY, usual.rounds), in_turn(EVERY, usual.rounds, usual.steps)
    assert list(islice(before, 54)) == list(islice(now, 54))
    assert next(now).about == "steps"


@pytest.mark.parametrize("names", [("mamba",), ("full", "mamba"), EVERY])
def test_runs_about_steps_wait_for_as_many_usual_ones(names):
    runs = list(islice(in_turn(names, 0, 1), 200))
    first = next(place for place, one in enumerate(runs) if one.about == "steps")
    assert len([one for one in runs[:first] if not one.about]) >= FIRST
    assert first <= 2 * FIRST


def test_types_with_states_have_two_in_every_turn_the_others_one_in_four_and_later_there_are_few():
    runs = list(islice(in_turn(EVERY, 0, 1), 1_200))
    stated = [name for name in EVERY if "mamba" in name]
    others = [name for name in EVERY if "mamba" not in name and "cross" not in name]
    for turns, in_all, rest in ((range(1, 4), 6, 12), (range(4, 36), 8, 32)):
        counts = Counter(one.attention for one in runs if one.about == "steps" and one.number in turns)
        assert {counts[name] for name in stated} == {in_all}
        assert sum(counts[name] for name in others) == rest
        assert not any(counts[name] for name in EVERY if "cross" in name)
