"""Tasks on a Ray cluster: what becomes of them when processes, machines or the cluster are lost."""

import importlib
import importlib.util
import socket
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from blockproof.fuzz.campaign import ray_executor
from blockproof.fuzz.campaign.executor import Done, ExecutorLostError
from blockproof.fuzz.campaign.ray_executor import (
    MOST_DEATHS,
    MOST_LOSSES,
    PER_CORE,
    RayExecutor,
    RayTasks,
    check_address,
)
from blockproof.fuzz.targets.base import TargetUnavailableError


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


class WorkerCrashedError(RayError):
    pass


class OutOfMemoryError(RayError):
    pass


class NodeDiedError(RayError):
    pass


class FakeRay:
    """Does a task when somebody waits for it; `does` says what becomes of it, by the bytes and how often."""

    exceptions = SimpleNamespace(
        RayError=RayError,
        RayTaskError=RayTaskError,
        WorkerCrashedError=WorkerCrashedError,
        OutOfMemoryError=OutOfMemoryError,
    )

    def __init__(self, does, cores=(2, 2)):
        self.does, self.cores, self.tried = does, cores, Counter()
        self.given, self.most, self.under_way = [], 0, 0

    def nodes(self):
        return [{"Alive": count > 0, "Resources": {"CPU": abs(count)}} for count in self.cores] + [
            {"Alive": True, "Resources": {}}
        ]

    def remote(self, **options):
        assert options == {"num_cpus": 1, "max_retries": 0}

        def submit(task):
            self.given.append(task)
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            return (len(self.given), task)

        return lambda function: SimpleNamespace(remote=submit)

    def wait(self, references, num_returns, timeout):
        assert 0 < num_returns <= len(references)
        return references[:num_returns], references[num_returns:]

    def get(self, reference):
        self.under_way -= 1
        task = reference[1]
        self.tried[task] += 1
        result = self.does(task, self.tried[task])
        if isinstance(result, Exception):
            raise result
        return result


def all_done(ray, count):
    tasks = RayTasks(ray)
    for number in range(count):
        tasks.submit(number, b"%d" % number)
    told = []
    while len(told) < count:
        told += tasks.done(0.0)
    assert tasks.done(0.0) == []
    return {done.number: done for done in told}, [done.number for done in told]


def test_each_task_is_told_once_and_only_a_few_for_each_core_are_with_ray():
    ray = FakeRay(lambda task, times: task * 2)
    told, order = all_done(ray, 50)
    assert sorted(order) == list(range(50))
    assert told[7] == Done(7, b"77")
    assert ray.most == PER_CORE * 4


def test_a_machine_that_has_died_counts_no_more():
    ray = FakeRay(lambda task, times: task)
    tasks = RayTasks(ray)
    assert tasks.capacity == PER_CORE * 4
    ray.cores = (2, -2)
    tasks.look()
    assert tasks.capacity == PER_CORE * 2
    ray.cores = (-2, -2)
    tasks.look()
    assert tasks.capacity == 1


def test_what_a_lost_machine_was_doing_is_done_again_and_told_once():
    ray = FakeRay(lambda task, times: NodeDiedError() if times < 3 and task in (b"3", b"4") else task)
    told, order = all_done(ray, 9)
    assert sorted(order) == list(range(9))
    assert told[3] == Done(3, b"3")
    assert ray.tried[b"3"] == 3


@pytest.mark.parametrize(
    ("error", "times"),
    [(WorkerCrashedError, MOST_DEATHS), (OutOfMemoryError, MOST_DEATHS), (NodeDiedError, MOST_LOSSES)],
)
def test_a_task_that_kills_whatever_does_it_is_its_own_problem(error, times):
    ray = FakeRay(lambda task, tried: error() if task == b"5" else task)
    told, order = all_done(ray, 9)
    assert sorted(order) == list(range(9))
    assert told[5].result is None
    assert told[5].problem == f"lost {times} times on the cluster, at last: {error.__name__}"
    assert ray.tried[b"5"] == times
    assert all(told[n].result == b"%d" % n for n in told if n != 5)


def test_an_exception_of_a_task_is_its_problem_at_once():
    ray = FakeRay(lambda task, tried: RayTaskError("traceback\nValueError: no") if task == b"1" else task)
    told, _ = all_done(ray, 3)
    assert (told[1].problem, ray.tried[b"1"]) == ("ValueError: no", 1)


@pytest.mark.parametrize("address", ["", "ray://head:10001", "head", "http://head:6379", "head:", ":6379", "head:x"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ValueError, match="no address of a Ray cluster"):
        check_address(address)


def test_a_cluster_that_does_not_answer_is_refused_within_seconds(monkeypatch):
    monkeypatch.setattr(ray_executor, "find_spec", lambda name: True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    begin = time.monotonic()
    with pytest.raises(TargetUnavailableError, match=f"^no Ray cluster at 127.0.0.1:{port}: "):
        RayExecutor(f"127.0.0.1:{port}")
    assert time.monotonic() - begin < 10


def test_without_ray_the_command_says_what_to_install(monkeypatch):
    monkeypatch.setattr(ray_executor, "find_spec", lambda name: None)
    with pytest.raises(TargetUnavailableError, match="pip install"):
        RayExecutor("auto")


def talks(connection, address):
    """A driver that plays a part: it echoes tasks, ends itself at b"die", and says nothing more at b"hang"."""
    connection.send(4)
    while True:
        number, task = connection.recv()
        if task == b"die":
            raise SystemExit(1)
        if task == b"hang":
            time.sleep(60)
        connection.send("no such cluster: one line" if task == b"lost" else Done(number, task))


@pytest.fixture
def executor(monkeypatch):
    monkeypatch.setattr(ray_executor, "find_spec", lambda name: True)
    monkeypatch.setattr(ray_executor, "serve", talks)
    executor = RayExecutor("auto")
    yield executor
    executor.close()


def next_done(executor):
    for _ in range(300):
        if told := executor.done(0.1):
            return told
    raise AssertionError("nothing came")


def test_tasks_go_to_the_driver_and_come_back(executor):
    assert executor.capacity == 4
    assert executor.done(0.0) == []
    executor.submit(3, b"some")
    assert next_done(executor) == [Done(3, b"some")]


@pytest.mark.parametrize(
    ("task", "why"), [(b"die", "Ray has ended its driver"), (b"lost", "no such cluster: one line")]
)
def test_a_cluster_that_disappears_is_told_in_one_line(executor, task, why):
    executor.submit(1, task)
    with pytest.raises(ExecutorLostError, match=f"^the Ray cluster at auto has gone: {why}$"):
        next_done(executor)


def test_a_cluster_that_falls_silent_has_gone(executor, monkeypatch):
    monkeypatch.setattr(ray_executor, "SILENT_S", 0.3)
    executor.submit(1, b"hang")
    with pytest.raises(ExecutorLostError, match="nothing was heard of it"):
        next_done(executor)


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra `cluster`")
def test_a_node_that_is_killed_loses_no_task_and_no_finding(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    ray_cluster = importlib.import_module("ray_cluster")
    _, wrong = ray_cluster.measured(ray_cluster.real_tasks(12, 200))
    assert wrong == []
    assert "ray" not in sys.modules or not sys.modules["ray"].is_initialized()
