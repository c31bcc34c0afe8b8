"""Processes of this machine: tasks go in, results come out, and one that dies costs its task."""

import os
import signal
import time
from multiprocessing import active_children

import pytest
from blockproof.fuzz.campaign.executor import LocalExecutor
from blockproof.fuzz.campaign.tasks import Task, encoded, result_of

from ..waiting import wait_until


def task(number, operations=20, spec="impl"):
    return encoded(Task(number, spec, "full", ("lockstep", "shadow"), "random", number, operations))


@pytest.fixture
def executor():
    made = LocalExecutor(1)
    yield made
    made.close()


def ended(executor, count):
    done = []
    while len(done) < count:
        done += executor.done(1.0)
    return done


def workers():
    return {process.pid for process in active_children()}


def test_every_task_is_told_once_and_processes_live_on(executor):
    for number in (1, 2, 3):
        executor.submit(number, task(number))
    done = ended(executor, 3)
    assert [one.number for one in done] == [1, 2, 3]
    assert all(result_of(one.result).operations >= 20 for one in done)
    before = workers()
    executor.submit(4, task(4))
    ended(executor, 1)
    assert workers() == before


def test_a_process_that_dies_costs_its_task_only(executor):
    before = workers()
    executor.submit(1, task(1, 10_000_000))
    executor.submit(2, task(2))
    (worker,) = wait_until(lambda: workers() - before)
    os.kill(worker, signal.SIGKILL)
    first, second = ended(executor, 2)
    assert (first.number, first.result) == (1, None)
    assert "ended with status" in first.problem
    assert second.number == 2
    assert result_of(second.result).problem == ""


def test_closing_ends_what_is_under_way_at_once(executor):
    executor.submit(1, task(1, 10_000_000))
    executor.submit(2, task(2))
    assert executor.done(0.1) == []
    begin = time.monotonic()
    executor.close()
    assert executor.done(0.0) == []
    assert time.monotonic() - begin < 30
