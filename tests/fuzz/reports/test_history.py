"""The history of a run: bounded whatever the run lasts, and the same however many processes share the work."""

from itertools import pairwise
from typing import Any

import pytest
from blockproof.fuzz.reports.history import MOST_SAMPLES, NOTHING, TOLD, History, Sample


def history(*samples, **first):
    made = History(first=dict(first))
    for sample in samples:
        made.see(Sample(*sample))
    return made


@pytest.mark.parametrize("runs", [3, 1_000, 100_000])
def test_it_is_bounded_and_tells_of_the_whole_run(runs):
    done = history(*((number / 8, 200 * number, 9 * number, number) for number in range(1, runs + 1)))
    assert len(done.samples) < MOST_SAMPLES
    end = Sample(runs / 8, 200 * runs, 9 * runs, runs)
    told = done.as_json(end, [2.0, 1.0])
    assert len(told["seconds"]) <= TOLD
    assert len(told["seconds"]) >= min(runs + 1, TOLD // 2)
    assert (told["seconds"][0], told["seconds"][-1]) == (0, runs / 8)
    assert (told["operations"][-1], told["lookups"][-1], told["hits"][-1]) == end[1:]
    assert told["findings"] == [1.0, 2.0]
    assert told["operations"] == [1600 * seconds for seconds in told["seconds"]]
    gaps = [after - before for before, after in pairwise(told["seconds"])]
    assert max(gaps) <= max(1 / 8, 4 * runs / 8 / TOLD)


def test_two_processes_at_the_same_time_add_up():
    one, two = history((1, 10, 0, 0), (3, 30, 4, 2), a=1.0, b=3.0), history((2, 40, 10, 10), b=2.0)
    one.join(Sample(4, 40, 4, 2), two, Sample(2, 40, 10, 10))
    told = one.as_json(Sample(4, 80, 14, 12), [])
    assert told["seconds"] == [0, 1, 2, 3, 4]
    assert told["operations"] == [0, 10 + 20, 20 + 40, 30 + 40, 80]
    assert told["lookups"] == [0, 0 + 5, 2 + 10, 4 + 10, 14]
    assert told["situations"] == {"a": 1.0, "b": 2.0}


def test_what_was_done_later_comes_later():
    one, two = history((1, 10, 0, 0), a=1.0), history((1, 5, 1, 1), a=0.5, b=1.0)
    one.join(Sample(2, 12, 0, 0), two, Sample(1, 5, 1, 1), shift=2.0)
    told = one.as_json(Sample(3, 17, 1, 1), [])
    assert told["seconds"] == [0, 1, 2, 3]
    assert told["operations"] == [0, 10, 12, 17]
    assert told["situations"] == {"a": 1.0, "b": 3.0}


def test_many_processes_stay_bounded():
    whole, ended = History(), NOTHING
    for number in range(1, 9):
        part = history(*((at * number / 7, at, 0, 0) for at in range(1, 350)))
        theirs = Sample(349 * number / 7, 349, 0, 0)
        whole.join(ended, part, theirs)
        ended = Sample(theirs.seconds, ended.operations + 349, 0, 0)
    assert len(whole.samples) < MOST_SAMPLES
    operations: Any = whole.as_json(ended, [])["operations"]
    assert operations[-1] == 8 * 349
    assert sorted(operations) == operations


def test_a_run_in_which_nothing_was_done_has_a_start_only():
    assert History().as_json(NOTHING, []) == {
        "seconds": [0.0],
        "operations": [0],
        "lookups": [0],
        "hits": [0],
        "situations": {},
        "findings": [],
    }
