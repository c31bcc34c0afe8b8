"""One task, on real targets: what is sent back, and what a target that does wrong costs."""

import zlib

import msgspec
import pytest
from blockproof.fuzz.campaign import work
from blockproof.fuzz.campaign.tasks import (
    Options,
    Task,
    TaskResult,
    digest,
    encoded,
    packed,
    result_of,
    task_of,
    unpacked,
)
from blockproof.fuzz.campaign.work import checked_result, close_targets, processor_seconds, run_task
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.traces.trace_file import load_trace

ORACLES = ("lockstep", "shadow")


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Targets are opened in this process, which takes no time, unless a test wants a child."""
    monkeypatch.setattr(work, "open_target", lambda spec, **how: open_target(spec))
    yield
    close_targets()


def task(spec="impl", number=1, operations=600, **more):
    return Task(number, spec, "full", more.pop("oracles", ORACLES), "random", 3, operations, **more)


def did(wanted):
    return result_of(run_task(encoded(wanted)))


def test_a_task_and_its_result_are_the_same_as_bytes():
    wanted = task(options=Options(known_causes=(("a", "b"),), known_keys=b"12345678", traces=("x",)))
    assert task_of(encoded(wanted)) == wanted
    result = TaskResult(3, 4, 0.5, situations={"hit": 2}, keys=("k",))
    assert result_of(encoded(result)) == result


def test_the_same_task_comes_to_the_same():
    one, two = did(task()), did(task())
    assert one.operations >= 600
    assert one.runs > 2
    assert one.processor_seconds > 0
    assert one.problem == ""
    for name in ("operations", "runs", "situations", "keys", "seeds", "findings"):
        assert getattr(one, name) == getattr(two, name)


def test_seeds_reach_their_keys_again():
    result = did(task())
    assert {key for seed in result.seeds for key in seed.keys} == set(result.keys)
    traces = tuple(zlib.decompress(seed.data).decode() for seed in result.seeds)
    again = did(task(kind="replay", options=Options(traces=traces)))
    assert [replayed.keys for replayed in again.replayed] == [seed.keys for seed in result.seeds]
    assert all(replayed.identity == () for replayed in again.replayed)


def test_what_is_known_is_not_sent_again():
    first = did(task())
    known = Options(known_keys=packed(digest(key) for key in first.keys))
    again = did(task(options=known))
    assert again.seeds == ()
    assert again.keys == first.keys


def test_a_finding_comes_with_its_smallest_trace_and_a_known_one_without():
    result = did(task("fault:free-order-reversed"))
    (found, *_) = result.findings
    file = load_trace(found.trace)
    assert file.oracles == ORACLES
    assert file.target == "fault:free-order-reversed"
    assert len(file.trace.operations) == found.operations <= 4
    assert found.complete
    causes = tuple(one.cause for one in result.findings)
    again = did(task("fault:free-order-reversed", options=Options(known_causes=causes)))
    assert [(one.cause, one.times) for one in again.findings] == [(one.cause, one.times) for one in result.findings]
    assert all(one.trace == "" for one in again.findings)


def test_a_trace_that_is_replayed_shows_what_it_was_written_for_or_a_finding():
    (found, *_) = did(task("fault:free-order-reversed")).findings
    wanted = Options(traces=(found.trace, "no trace"))
    there = did(task("fault:free-order-reversed", kind="replay", options=wanted))
    assert there.replayed[0].identity == found.cause
    assert there.replayed[1].text.startswith("not replayed")
    assert there.findings == ()
    gone = did(task("impl", kind="replay", options=wanted))
    assert gone.replayed[0].identity == ()
    other = did(task("fault:touch-ignores-used-blocks", kind="replay", options=wanted))
    assert other.replayed[0].identity in ((), *(one.cause for one in other.findings))


def test_what_a_replay_shows_besides_has_the_same_cause_as_if_a_run_had_found_it():
    asked = Options(roots=())
    (found, *_) = did(task("fault:free-order-reversed", options=asked)).findings
    assert found.root == "new"
    bare = msgspec.json.decode(found.trace) | {"finding": None}
    wanted = Options(roots=(), traces=(msgspec.json.encode(bare).decode(),))
    judged_otherwise = task("fault:free-order-reversed", kind="replay", options=wanted, oracles=("shadow",))
    (again,) = did(judged_otherwise).findings
    assert again.cause == found.cause
    assert load_trace(again.trace).oracles == ORACLES


def test_a_target_that_cannot_be_started_is_a_problem_of_the_task():
    assert "is not installed" in did(task("vllm==0.0.1")).problem


def test_a_bug_of_ours_is_a_problem_of_the_task(monkeypatch):
    monkeypatch.setattr(work, "run_engine", lambda *given: 1 / 0)
    assert "ZeroDivisionError" in did(task()).problem


def test_attention_types_that_a_target_lacks_are_a_problem(monkeypatch):
    monkeypatch.setattr("blockproof.fuzz.engines.plan.left_out_for", lambda target: frozenset({"kind:full"}))
    monkeypatch.setattr("blockproof.fuzz.engines.plan.possible_attention", lambda names, lacks: ())
    assert "lacks what full is made of" in did(task()).problem


def test_targets_stay_open_and_the_oldest_is_closed(monkeypatch):
    opened, closed = [], []

    def opening(spec, **how):
        opened.append(spec)
        return open_target(spec)

    monkeypatch.setattr(work, "open_target", opening)
    monkeypatch.setattr(work, "close_target", lambda target: closed.append(target.name))
    monkeypatch.setattr(work, "KEPT_OPEN", 2)
    for spec in ("impl", "impl", "fault:free-order-reversed", "impl", "fault:touch-ignores-used-blocks"):
        did(task(spec, operations=10))
    assert opened == ["impl", "fault:free-order-reversed", "fault:touch-ignores-used-blocks"]
    assert len(closed) == 1


def test_scripts_of_the_liveness_oracle_bring_keys_and_no_seeds():
    result = did(task(oracles=("liveness",)))
    assert any(key.startswith("liveness: ") for key in result.keys)
    assert result.seeds == ()


def test_results_of_another_task_and_nonsense_are_refused_in_one_line():
    good = encoded(TaskResult(3))
    assert checked_result(good, 3).number == 3
    for data, number in ((good, 4), (b"", 3), (b"\xc1", 3), (encoded(task()), 1)):
        with pytest.raises(ValueError, match="what came back is") as refused:
            checked_result(data, number)
        assert "\n" not in str(refused.value)


def test_digests_can_be_packed():
    digests = {digest(str(number)) for number in range(20)}
    assert unpacked(packed(digests)) == digests
    assert unpacked(b"") == frozenset()


def test_processor_time_of_a_living_child_counts():
    import subprocess
    import sys

    begin = processor_seconds()
    words = "import sys, time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\nsys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", words], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline()
        living = processor_seconds() - begin
        child.stdin.close()
    assert living >= 0.25
    assert processor_seconds() - begin >= living - 0.02


def test_a_target_without_such_cores_fails_a_task_and_only_lacks_them_where_shares_are_equal():
    wanted = msgspec.structs.replace(task(), attention="ring")
    assert "impl lacks what ring is made of" in did(wanted).problem
    assert not did(wanted).lacks
    assert did(msgspec.structs.replace(wanted, options=Options(at_once=True))).lacks


def test_what_is_found_is_told_before_it_is_shrunk():
    told = []
    wanted = task("fault:free-order-reversed", options=Options(at_once=True, shrink_seconds=1.0))
    result = result_of(run_task(encoded(wanted), told.append))
    far = [result_of(one) for one in told]
    (first, *_) = [one for one in far if one.findings]
    assert not first.findings[0].complete
    assert first.operations <= result.operations
    causes = {one.cause for one in result.findings}
    assert {one.cause for one in far[-1].findings} == causes
    assert all(cause[-1] == "full" for cause in causes)
    assert all(one.page is not None for one in result.findings)
    assert [one.text for one in result.row.findings] == [one.text for one in result.findings]
    assert not result.keys
