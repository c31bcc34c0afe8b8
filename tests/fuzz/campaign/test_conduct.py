"""A campaign while it goes on: its limits, what comes first, and what a kill leaves."""

import itertools
import os
from collections import Counter
from random import Random
from typing import Any, cast

import msgspec
import pytest
from blockproof.fuzz.campaign.arms import GIVEN_UP_AFTER
from blockproof.fuzz.campaign.checking import problems
from blockproof.fuzz.campaign.conduct import Session, conduct
from blockproof.fuzz.campaign.database import Database
from blockproof.fuzz.campaign.executor import Done, ExecutorLostError
from blockproof.fuzz.campaign.rows import document
from blockproof.fuzz.campaign.settings import CampaignLimits
from blockproof.fuzz.campaign.store import Ended, Store
from blockproof.fuzz.campaign.tasks import Options, ReplayShown, Task, TaskResult, encoded
from blockproof.fuzz.reports.campaign import CampaignFound, CampaignRow

from .made import TARGETS, Serial, drawn_result, found, identity_of, run, settings

COUNTED = (
    "SELECT number, arm, seed, state, operations, causes FROM tasks WHERE kind = 'fuzz'",
    "SELECT target, attention, name, times FROM situations",
    "SELECT target, attention, key FROM keys ORDER BY 1, 2, 3",
)


def counted(path):
    database = Database(path, write=False)
    try:
        assert problems(database) == []
        findings = database.rows("SELECT target, cause, times FROM findings")
        times = {(target, cause): times for target, cause, times in findings}
        return [*(database.rows(query) for query in COUNTED), times]
    finally:
        database.close()


def expected_findings(path):
    """What the tasks of a store must have found, done again."""
    database, times = Database(path, write=False), Counter()
    query = "SELECT target, attention, seed FROM tasks JOIN arms ON arm = arms.id WHERE kind = 'fuzz'"
    for row in database.rows(query):
        target, attention, seed = cast(tuple[str, str, int], row)
        for one in drawn_result(Task(0, target, attention, (), "random", seed, 100)).findings:
            times[target, stored(one.cause)] += one.times
    database.close()
    return times


def stored(cause):
    return msgspec.json.encode(cause).decode()


def test_so_many_operations_are_drawn_and_no_more(tmp_path):
    assert run(tmp_path / "a.sqlite", settings(tmp_path), 950) is Ended.LIMIT
    assert len(counted(tmp_path / "a.sqlite")[0]) == 10
    assert run(tmp_path / "a.sqlite", None, 950) is Ended.LIMIT
    assert len(counted(tmp_path / "a.sqlite")[0]) == 10


def test_a_limit_of_no_time_ends_it_at_once(tmp_path):
    store = Store(tmp_path / "a.sqlite", settings(tmp_path))
    assert conduct(store, Serial(), Session(CampaignLimits(seconds=0.0))) is Ended.LIMIT
    store.close()
    assert counted(tmp_path / "a.sqlite")[0] == []


def test_findings_are_written_as_they_come(tmp_path):
    told = []
    run(tmp_path / "a.sqlite", settings(tmp_path), 2_000, say=told.append)
    named = [line.rpartition(": ")[2] for line in told]
    assert named
    assert all(os.path.exists(name) for name in named)
    assert {*(tmp_path / "found").rglob("test_*.py")}
    for path in (tmp_path / "found").rglob("*.*"):
        path.unlink()
    run(tmp_path / "a.sqlite", None, 2_000)  # a kill may have come between
    assert len([*(tmp_path / "found").rglob("test_*.py")]) == len(counted(tmp_path / "a.sqlite")[3])


def killed_at(path, wanted, operations, step):
    """Go on with the campaign in a process that is killed at this step. True if it came to its end before."""
    child = os.fork()
    if child == 0:
        try:
            run(path, wanted, operations, Serial(kill_at=step))
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFEXITED(status)


@pytest.mark.parametrize("seed", range(3))
def test_a_campaign_that_is_killed_comes_to_what_one_comes_to_that_is_not(tmp_path, seed):
    whole, killed = tmp_path / "whole.sqlite", tmp_path / "killed.sqlite"
    run(whole, settings(tmp_path), 3_000)
    draw, kills = Random(seed), 0
    while not killed_at(killed, settings(tmp_path), 3_000, draw.randrange(25)):
        assert kills < 100
        kills += 1
    assert kills > 3
    tasks, _, _, found = counted(killed)
    assert len(tasks) == 30
    assert {state for _, _, _, state, _, _ in tasks} == {"done"}
    assert found == expected_findings(killed)
    assert counted(whole)[3] == expected_findings(whole)


def test_a_finding_that_is_lost_with_all_that_says_so_is_noticed_by_doing_its_tasks_again(tmp_path):
    run(tmp_path / "a.sqlite", settings(tmp_path), 3_000)
    database = Database(tmp_path / "a.sqlite", write=True)
    with database.transaction():
        database.do(
            "UPDATE tasks SET causes = causes - 1 WHERE number IN (SELECT task FROM finding_tasks WHERE finding = 1)"
        )
        database.do(
            "UPDATE tasks SET new_causes = new_causes - 1 WHERE number = (SELECT task FROM findings WHERE id = 1)"
        )
        database.do("DELETE FROM finding_tasks WHERE finding = 1")
        database.do("DELETE FROM findings WHERE id = 1")
    database.close()
    found = counted(tmp_path / "a.sqlite")[3]
    assert len(found) == len(expected_findings(tmp_path / "a.sqlite")) - 1


def test_tasks_under_way_come_first_and_are_the_same(tmp_path):
    path = tmp_path / "a.sqlite"
    assert not killed_at(path, settings(tmp_path), 3_000, 7)
    store = Store(path)
    left = [number for number, _, _ in store.open_tasks()]
    store.close()
    assert len(left) == 2
    executor = Serial()
    run(path, None, 3_000, executor)
    assert executor.told[:2] == left


def test_old_findings_are_replayed_first(tmp_path):
    run(tmp_path / "a.sqlite", settings(tmp_path), 2_000)
    seen = []

    def shown(task):
        seen.append(task.kind)
        if task.kind == "replay":
            assert task.options.traces
            return TaskResult(task.number, replayed=tuple(ReplayShown((), "", (), 2) for _ in task.options.traces))
        return TaskResult(task.number, task.operations)

    run(tmp_path / "a.sqlite", None, 2_300, Serial(shown))
    assert seen == ["replay"] * len(TARGETS) + ["fuzz"] * 3
    store = Store(tmp_path / "a.sqlite")
    assert store.database.rows("SELECT DISTINCT state FROM findings") == [("gone",)]
    store.close()


def test_a_new_release_is_shown_the_findings_of_the_others(tmp_path):
    one, two = {"vllm==0.23.0": ("shadow",)}, {"vllm==0.33.0": ("shadow",)}
    run(tmp_path / "a.sqlite", settings(tmp_path, targets=one), 2_000)
    store = Store(tmp_path / "a.sqlite")
    store.change(settings(tmp_path, targets=one | two))
    store.close()
    replays = []

    def shown(task):
        replays.extend([(task.target, len(task.options.traces))] if task.kind == "replay" else [])
        return drawn_result(task)

    run(tmp_path / "a.sqlite", None, 2_000, Serial(shown))
    assert [target for target, _ in replays] == ["vllm==0.23.0", "vllm==0.33.0"]
    assert replays[0][1] == replays[1][1] > 0
    replays.clear()
    run(tmp_path / "a.sqlite", None, 2_000, Serial(shown))
    assert [target for target, _ in replays] == ["vllm==0.23.0"]  # the new one has been shown them


def test_the_corpus_is_replayed_if_asked_for(tmp_path):
    run(tmp_path / "a.sqlite", settings(tmp_path), 2_000)
    store = Store(tmp_path / "a.sqlite")
    (kept,) = cast(tuple[int], store.database.one("SELECT count(*) FROM seeds"))
    store.close()
    replayed = []

    def shown(task):
        traces = task.options.traces
        replayed.extend(traces)
        return TaskResult(task.number, replayed=tuple(ReplayShown((), "", ("key",), 2) for _ in traces))

    run(tmp_path / "a.sqlite", None, 2_000, Serial(shown), recheck=False, corpus=True)
    assert len(replayed) == kept > 0
    store = Store(tmp_path / "a.sqlite")
    assert store.database.rows("SELECT DISTINCT stable FROM seeds") == [(0,)]
    store.close()


def test_what_a_replay_shows_besides_is_a_finding(tmp_path):
    run(tmp_path / "a.sqlite", settings(tmp_path), 1_000)

    def shown(task):
        traces = tuple(ReplayShown(identity_of("usage"), "", (), 2) for _ in task.options.traces)
        return TaskResult(task.number, findings=(found("usage"),), replayed=traces)

    run(tmp_path / "a.sqlite", None, 1_000, Serial(shown))
    assert ("impl", stored(identity_of("usage"))) in counted(tmp_path / "a.sqlite")[3]


def test_a_process_that_dies_over_a_task_ends_no_campaign(tmp_path):
    told = []

    def dies(task):
        return Done(task.number, None, "its process ended with status -9") if task.number == 2 else drawn_result(task)

    assert run(tmp_path / "a.sqlite", settings(tmp_path), 1_000, Serial(dies), say=told.append) is Ended.LIMIT
    assert [row[3] for row in counted(tmp_path / "a.sqlite")[0]].count("lost") == 1
    assert any("begun again" in line for line in told)
    assert any("task 2 failed: its process ended with status -9" in line for line in told)


@pytest.mark.parametrize("answer", [b"", b"nonsense", b"\x80"])
def test_an_answer_that_is_none_is_a_task_that_is_lost(tmp_path, answer):
    run(tmp_path / "a.sqlite", settings(tmp_path), 200, Serial(lambda task: Done(task.number, answer)))
    assert {row[3] for row in counted(tmp_path / "a.sqlite")[0]} == {"lost"}


def test_a_campaign_none_of_whose_targets_can_be_run_ends(tmp_path):
    def fails(task):
        return TaskResult(task.number, problem="it is not installed")

    wanted = settings(tmp_path)
    assert run(tmp_path / "a.sqlite", wanted, 100_000, Serial(fails)) is Ended.GIVEN_UP
    assert len(counted(tmp_path / "a.sqlite")[0]) <= (GIVEN_UP_AFTER + 1) * len([*wanted.arms()])


def test_an_executor_that_has_gone_leaves_a_store_that_can_be_resumed(tmp_path):
    def gone(task):
        if task.number == 5:
            raise ExecutorLostError("the cluster has gone")
        return drawn_result(task)

    with pytest.raises(ExecutorLostError):
        run(tmp_path / "a.sqlite", settings(tmp_path), 3_000, Serial(gone))
    run(tmp_path / "a.sqlite", None, 3_000)
    tasks, *_ = counted(tmp_path / "a.sqlite")
    assert len(tasks) == 30
    assert {row[3] for row in tasks} == {"done"}


def test_ctrl_c_keeps_what_was_done(tmp_path):
    def interrupted(task):
        if task.number == 5:
            raise KeyboardInterrupt
        return drawn_result(task)

    assert run(tmp_path / "a.sqlite", settings(tmp_path), 3_000, Serial(interrupted)) is Ended.INTERRUPTED
    assert [row[3] for row in counted(tmp_path / "a.sqlite")[0]].count("done") == 4


class Interrupted:
    """A connection that Ctrl-C reaches while it does one of its statements: Python raises it behind that."""

    def __init__(self, connection, left):
        self._connection, self.left = connection, left

    def execute(self, *words):
        rows = self._connection.execute(*words)
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return rows

    def __getattr__(self, name):
        return getattr(self._connection, name)


def interrupted_after(path, statements):
    """A session that Ctrl-C reaches behind so many of its statements. Returns how it ended, and how many were left."""
    store: Any = Store(path, settings(path.parent))
    begin_session = store.begin_session

    def begin():
        begin_session()
        store.database._db = Interrupted(store.database._db, statements)

    store.begin_session = begin
    try:
        ended = conduct(store, Serial(), Session(CampaignLimits(operations=300)))
        return ended, store.database._db.left
    finally:
        store.close()


def test_ctrl_c_at_any_statement_ends_a_campaign_as_it_should(tmp_path):
    for statements in itertools.count(1):
        path = tmp_path / f"{statements}.sqlite"
        ended, left = interrupted_after(path, statements)
        counted(path)
        database = Database(path, write=False)
        assert database.rows("SELECT ended IS NULL FROM sessions") == [(0,)], statements
        database.close()
        assert (ended is Ended.INTERRUPTED) == (left <= 0), statements
        if left > 0:
            break
    assert statements > 20


def test_the_same_seed_and_results_lead_to_the_same_tasks(tmp_path):
    for name in ("a", "b"):
        run(tmp_path / f"{name}.sqlite", settings(tmp_path), 4_000)
    assert counted(tmp_path / "a.sqlite") == counted(tmp_path / "b.sqlite")


class Telling(Serial):
    """An executor that tells what a task has come to so far, and then its end."""

    def __init__(self, end):
        super().__init__()
        self._end = end

    def done(self, timeout_s):
        number, _ = self._waiting[0]
        if number in self.told:
            self._waiting.popleft()
            return [self._end(number)]
        self.told.append(number)
        row = CampaignRow("impl", findings=[CampaignFound(observable="free")])
        return [Done(number, encoded(TaskResult(number, 50, findings=(found("free"),), row=row)), over=False)]


@pytest.mark.parametrize("how", ["the process dies", "blockproof has a bug", "Ctrl-C"])
def test_what_a_task_has_told_is_kept_whatever_ends_it(tmp_path, how):
    def end(number):
        if how == "Ctrl-C":
            raise KeyboardInterrupt
        bug = encoded(TaskResult(number, problem="a bug"))
        return (
            Done(number, None, "its process ended with status -9") if how == "the process dies" else Done(number, bug)
        )

    one = {"impl": ("lockstep", "shadow")}
    more = {"targets": one, "attention": ("full",), "shares": CampaignLimits(operations=100)}
    store = Store(tmp_path / "a.sqlite", settings(tmp_path, options=Options(at_once=True), **more))
    try:
        ended = conduct(store, Telling(end), Session(CampaignLimits()))
        (row,) = document(store, ended=ended).targets
    finally:
        store.close()
    assert [found.observable for found in row.findings] == ["free"]
    assert row.findings[0].trace.endswith("_whole.json")
    assert [path.name for path in (tmp_path / "found").rglob("test_*_whole.py")]
    assert (row.interrupted, bool(row.problem), row.done) == (how == "Ctrl-C", how != "Ctrl-C", False)
