"""The pool of processes of ours: each task comes to one end, whatever becomes of the process that does it."""

import os
import signal
import time

import pytest
from blockproof.fuzz.opening.workers import Desk, DiedError, Event, Pool, WorkerError
from blockproof.fuzz.targets.base import TargetUnavailableError


def work(given: str, desk: Desk) -> object:
    """What a process does for a test."""
    match given:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            raise ValueError("no such thing")
        case "unavailable":
            raise TargetUnavailableError("it is not here")
        case "until stopped":
            desk.tell("begun")
            while not desk.stopped:
                time.sleep(0.01)
            return "stopped"
    desk.tell(f"about to {given}")
    return os.getpid(), given


@pytest.fixture
def pool():
    with Pool(work, 1) as made:
        yield made


def all_events(pool: Pool) -> list[Event]:
    events = []
    while pool.busy:
        events += pool.events(60.0)
    return events


def test_a_process_does_one_task_after_the_other_and_tells_of_each(pool):
    for key in (1, 2):
        pool.submit(key, f"do {key}")
    events = all_events(pool)
    assert [(key, over) for key, _, over in events] == [(1, False), (1, True), (2, False), (2, True)]
    (process, first), (same, second) = (said for _, said, over in events if over)
    assert (first, second, process == same) == ("do 1", "do 2", True)
    assert [said for _, said, over in events if not over] == ["about to do 1", "about to do 2"]


def test_what_goes_wrong_is_told_and_the_next_task_is_done(pool):
    for key, given in enumerate(("die", "raise", "unavailable", "go on")):
        pool.submit(key, given)
    ends = {event.key: event.said for event in all_events(pool) if event.over}
    assert isinstance(ends[0], DiedError)
    assert (ends[0].status, str(ends[0])) == (-signal.SIGKILL, f"its process ended with status {-signal.SIGKILL}")
    assert isinstance(ends[1], WorkerError)
    assert "ValueError: no such thing" in str(ends[1])
    assert isinstance(ends[2], TargetUnavailableError)
    assert ends[3][1] == "go on"


def test_work_comes_to_its_end_when_it_is_told_to_and_what_waits_is_not_begun(pool):
    pool.submit(1, "until stopped")
    pool.submit(2, "never begun")
    assert pool.events(60.0) == [Event(1, "begun", False)]
    assert pool.pid(1) is not None
    pool.stop()
    assert all_events(pool) == [Event(1, "stopped", True)]


def test_leaving_the_block_ends_what_is_under_way_at_once():
    with Pool(work, 2) as pool:
        for key in (1, 2):
            pool.submit(key, "until stopped")
        assert pool.events(60.0)
        begin = time.monotonic()
    assert time.monotonic() - begin < 30
    assert not pool.busy
    assert pool.events(0.0) == []
