"""The file of a campaign: what is counted, what is refused, and what a check of it notices."""

import sqlite3

import msgspec
import pytest
from blockproof.fuzz.campaign.checking import problems
from blockproof.fuzz.campaign.conduct import opened
from blockproof.fuzz.campaign.database import Database, StoreError
from blockproof.fuzz.campaign.settings import joined
from blockproof.fuzz.campaign.store import Store
from blockproof.fuzz.campaign.tasks import ReplayShown, Task, TaskResult
from blockproof.fuzz.cli.main import main

from .made import found, identity_of, run, seed, settings


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "a.sqlite", settings(tmp_path))
    yield made
    made.close()


def given(store, number=1, **more):
    arm = store.arms[1]
    task = Task(*(number, arm.target, arm.attention, arm.oracles, arm.engine, 7, 100), **more)
    subject = {"findings": [1]} if more.get("kind") else None
    store.assign(task, None if subject else 1, subject)
    return task


RESULT = TaskResult(
    *(1, 100, 2.0, 3.0, 4),
    situations={"hit": 3},
    keys=("a", "b"),
    seeds=(seed("a", "b"),),
    findings=(found("tables", 2, 5),),
)


def test_a_result_is_counted_once(store):
    given(store)
    gain = store.finish(RESULT)
    assert (gain.new_causes, gain.situations, gain.keys, gain.news) == (1, 1, 2, 15)
    assert store.finish(RESULT) is None
    assert store.database.rows("SELECT times FROM findings") == [(2,)]
    assert store.database.rows("SELECT times FROM situations") == [(3,)]
    assert store.open_tasks() == []
    assert problems(store.database) == []


def test_findings_of_one_cause_are_one_with_the_shortest_trace(store):
    for number, length in enumerate((5, 9, 3), 1):
        given(store, number)
        gain = store.finish(msgspec.structs.replace(RESULT, number=number, findings=(found("tables", 2, length),)))
        assert bool(gain.causes) == (number != 2)
        assert gain.new_causes == (number == 1)
    assert store.database.rows("SELECT times, operations FROM findings") == [(6, 3)]
    assert problems(store.database) == []


def test_a_seed_is_kept_only_if_it_reaches_something_new(store):
    given(store, 1)
    store.finish(RESULT)
    given(store, 2)
    again = msgspec.structs.replace(RESULT, number=2, keys=("a", "b", "c"), seeds=(seed("a"), seed("b", "c")))
    assert store.finish(again).keys == 1
    assert store.database.rows("SELECT id, task FROM seeds") == [(1, 1), (2, 2)]
    assert len(store.known_keys("impl", "full")) == 3


def test_a_task_whose_process_dies_is_begun_again_once(store):
    given(store)
    assert store.lost(1, "status -9")
    assert [number for number, _, _ in store.open_tasks()] == [1]
    assert not store.lost(1, "status -9")
    assert store.database.rows("SELECT state, problem FROM tasks") == [("lost", "status -9")]
    assert problems(store.database) == []


@pytest.mark.parametrize(
    ("shown", "state"), [(identity_of("tables"), "there"), ((), "gone"), (identity_of("free"), "changed")]
)
def test_a_finding_that_is_replayed_is_there_or_gone_or_has_changed(store, shown, state):
    given(store)
    store.finish(RESULT)
    given(store, 2, kind="replay")
    store.finish(TaskResult(2, replayed=(ReplayShown(shown, "", (), 2),)))
    assert store.database.rows("SELECT state FROM findings") == [(state,)]
    given(store, 3)
    store.finish(msgspec.structs.replace(RESULT, number=3))
    assert store.database.rows("SELECT state FROM findings") == [("there",)]


def test_the_store_is_the_same_when_it_is_opened_again(tmp_path):
    wanted = settings(tmp_path)
    run(tmp_path / "a.sqlite", wanted, 500)
    again = Store(tmp_path / "a.sqlite")
    assert again.settings == wanted
    assert [*again.arms.values()] == [*wanted.arms()]
    assert again.next_number() == 6
    again.close()


def test_targets_can_be_added_and_other_things_not(tmp_path):
    old = settings(tmp_path)
    more = settings(tmp_path, targets={"impl": ("lockstep", "shadow"), "impl-compiled": ("shadow",)})
    assert [*joined(old, more).targets] == ["impl", "fault:free-order-reversed", "impl-compiled"]
    for other, words in (
        ({"seed": 2}, "seed 1, not 2"),
        ({"attention": ("full",)}, "attention full,sliding, not full"),
        ({"engines": ("hypothesis",)}, "engines random, not hypothesis"),
        ({"targets": {"impl": ("shadow",)}}, "judges impl by lockstep,shadow, not by shadow"),
    ):
        with pytest.raises(ValueError, match=words):
            joined(old, settings(tmp_path, **other))


# Files that are refused.


def test_a_second_writer_is_refused(tmp_path, store):
    with pytest.raises(StoreError, match="another campaign writes to it"):
        Store(tmp_path / "a.sqlite", settings(tmp_path))
    Database(tmp_path / "a.sqlite", write=False).close()  # whoever reads is not


def test_files_of_others_are_refused_in_one_line(tmp_path):
    (tmp_path / "text").write_text("no database")
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    other = sqlite3.connect(tmp_path / "other")
    other.execute("CREATE TABLE t (x)")
    other.close()
    for name, words in (
        ("text", "is no store"),
        ("empty", "is empty"),
        ("folder", "no such file"),
        ("other", "is no store"),
        ("missing", "no such file"),
    ):
        with pytest.raises(StoreError, match=words) as refused:
            Store(tmp_path / name)
        assert "\n" not in str(refused.value)
    assert (tmp_path / "text").read_text() == "no database"


def test_a_newer_file_and_a_damaged_one_are_refused(tmp_path):
    run(tmp_path / "a.sqlite", settings(tmp_path), 200)
    whole = (tmp_path / "a.sqlite").read_bytes()
    db = sqlite3.connect(tmp_path / "a.sqlite")
    db.execute("PRAGMA user_version = 2")
    db.close()
    with pytest.raises(StoreError, match="is of version 2, this blockproof reads 1"):
        Store(tmp_path / "a.sqlite")
    (tmp_path / "cut.sqlite").write_bytes(whole[:5_000])
    with pytest.raises(StoreError) as refused:
        Store(tmp_path / "cut.sqlite")
    assert "\n" not in str(refused.value)


# What a check of it notices.

LOSSES = {
    "finding": ("DELETE FROM findings WHERE id = 1",),
    "times": ("UPDATE findings SET times = times + 1 WHERE id = 1",),
    "link": ("DELETE FROM finding_tasks WHERE finding = 1",),
    "task": ("DELETE FROM tasks WHERE number = 2",),
    "key": ("DELETE FROM seed_keys", "DELETE FROM keys WHERE id = 1"),
    "situation": ("DELETE FROM situations WHERE task = 1",),
    "trace": ("UPDATE findings SET trace = '{}' WHERE id = 1",),
    "body": ("UPDATE tasks SET state = 'open', place = NULL WHERE number = (SELECT max(number) FROM tasks)",),
}


@pytest.mark.parametrize("what", LOSSES)
def test_a_store_that_has_lost_something_is_noticed(tmp_path, what):
    run(tmp_path / "a.sqlite", settings(tmp_path), 1_000)
    database = Database(tmp_path / "a.sqlite", write=True)
    assert problems(database) == []
    database.do("PRAGMA foreign_keys = OFF")
    with database.transaction():
        for statement in LOSSES[what]:
            assert database.do(statement).rowcount
    assert problems(database)
    database.close()


def test_a_transaction_that_fails_changes_nothing(store):
    given(store)
    broken = msgspec.structs.replace(RESULT, findings=(None,))
    with pytest.raises(AttributeError):
        store.finish(broken)
    assert store.database.rows("SELECT count(*) FROM keys") == [(0,)]
    assert store.finish(RESULT) is not None


def test_a_campaign_of_an_engine_that_has_gone_is_kept_and_not_gone_on_with(tmp_path):
    path = tmp_path / "a.sqlite"
    Store(path, settings(tmp_path, engines=("random", "hypothesis"))).close()
    with pytest.raises(StoreError, match="is of the engine hypothesis, which has gone; `blockproof campaign export`"):
        opened(path, None, None)
    assert main(["campaign", "status", str(path)]) == 3  # nothing was done: it is read all the same
