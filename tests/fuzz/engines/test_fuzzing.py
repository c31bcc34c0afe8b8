"""A run from its task to its outcome: what is kept of a finding, what counts as a failure, how it is repeated."""

import json
from dataclasses import replace

import pytest
from blockproof.fuzz.engines import reproductions
from blockproof.fuzz.engines.fuzzing import FuzzOutcome, FuzzTask, fuzz, repeat_command
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.reproductions import KeptFound, keep_all, keep_found, keep_smaller, recorded_name
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.oracle_names import MODEL_FREE
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.traces.shrink import NotReproducedError
from blockproof.fuzz.traces.trace_file import FoundWhat, TraceFile, read_trace

FAULT = "fault:free-order-reversed"
PLAN = Plan(2, operations=20_000, attention=("full",))


def silent(line):
    """Tells nobody."""


@pytest.fixture(scope="module")
def found():
    """The summary of a run that has found something."""
    return run_random(open_target(FAULT), PLAN, Summary(FAULT, "random", PLAN.seed))


def done(operations=700):
    return Summary("impl", "random", 3, runs=4, operations=operations)


@pytest.mark.parametrize(
    ("changes", "more", "says"),
    [
        ({}, {}, "--operations 700"),
        ({"seconds": 2.5}, {}, "--operations 700"),
        ({"seconds": 2.5}, {"jobs": 2}, "--seconds 2.5 --jobs 2"),
        ({}, {"jobs": 3, "isolate": True}, "--seconds 30 --jobs 3 --isolate"),
        ({"attention": ("full", "mamba")}, {}, "--operations 700 --attention full,mamba"),
        ({"oracles": ("shadow", "contract")}, {}, "--operations 700 --oracle shadow,contract"),
        ({"oracles": MODEL_FREE}, {"spec": "vllm==0.32.0"}, "--operations 700"),
        ({"tensors": "cpu", "chaos": True}, {}, "--operations 700 --tensors cpu --chaos"),
    ],
)
def test_the_command_that_repeats_a_run_has_what_is_not_usual(changes, more, says):
    task = FuzzTask(**{"spec": "impl", "engine": "random", "plan": replace(Plan(3), **changes), **more})
    assert repeat_command(task, done()) == f"blockproof fuzz --target {task.spec} --seed 3 {says}"


def test_a_run_without_operations_is_repeated_by_its_time():
    assert repeat_command(FuzzTask("impl", "random", Plan(3)), done(0)).endswith("--seed 3 --seconds 30")


def test_a_finding_or_a_floor_that_was_not_reached_is_a_failure(found):
    assert not FuzzOutcome(done(), [], "").failed
    assert FuzzOutcome(done(), ["a floor"], "").failed
    assert FuzzOutcome(found, [], "").failed


def digest(outcome):
    return f"digest of the operations: {outcome.document().digest}"


def test_a_task_is_run_kept_and_told(tmp_path):
    steps = []
    core = open_target(FAULT)
    floors = {"total": {"operations": 10**9}}
    outcome = fuzz(FuzzTask(FAULT, "random", PLAN), core, tmp_path, floors, steps.append)
    assert steps[0] == f"fuzzing {FAULT} under lockstep, shadow, engine random, seed 2"
    assert steps[1].endswith("_whole.json; shrinking for at most 60 s ...")
    assert outcome.unmet == [f"operations in all {outcome.done.operations} times, floor 1000000000"]
    assert outcome.lines() == [*outcome.unmet, digest(outcome), f"repeat this run: {outcome.repeat}"]
    lines = outcome.document().found_lines()
    assert lines[:2] == ["", "lockstep: model and target differ in `free` at operation 2: Free a"]
    assert any(line.startswith("shrunk to 3 operations in ") for line in lines)
    assert lines[-1] == f"repeat the finding: {outcome.kept.files.command}"
    document = outcome.document()
    assert document.finding["step"] == 2
    assert document.finding["command"] == outcome.kept.files.command
    assert document.finding["trace"] == str(outcome.kept.files.trace)
    assert document.finding["identity"] == ["lockstep", "free", "Free"]
    assert document.reproduction.operations == 3
    assert document.floors_unmet == outcome.unmet
    clean = fuzz(FuzzTask("impl", "random", replace(PLAN, operations=300)), open_target("impl"), tmp_path, {}, silent)
    assert clean.kept is None
    assert "reproduction" not in json.loads(clean.document().text())
    assert clean.lines() == [digest(clean), f"repeat this run: {clean.repeat}"]


def test_nothing_found_leaves_nothing(tmp_path):
    assert keep_all(done(), open_target("impl"), PLAN, tmp_path / "out", silent) == []
    assert not (tmp_path / "out").exists()


def test_the_trace_stays_as_it_was_found_beside_the_shrunk_one(found, tmp_path):
    kept = keep_found(found.ranked()[0], found, open_target(FAULT), PLAN, tmp_path, silent)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".html", ".json", ".json", ".py", ".py"]
    assert kept.page == kept.files.trace.with_suffix(".html")
    whole = read_trace(kept.whole)
    assert kept.whole.stem.endswith("_whole")
    assert (whole.trace, whole.target) == (found.trace, FAULT)
    file = read_trace(kept.files.trace)
    assert (len(file.trace.operations), file.target, file.found_by.seed) == (3, FAULT, PLAN.seed)
    assert file.oracles == whole.oracles == PLAN.oracles
    assert file.finding.identity == whole.finding.identity == ("lockstep", "free", "Free")
    assert (kept.reproduced().operations, kept.reproduced().complete) == (3, True)
    assert kept.go_on == ""


def test_who_gives_up_says_how_to_go_on(found, tmp_path):
    kept = keep_found(found.ranked()[0], found, open_target(FAULT), replace(PLAN, shrink_seconds=0.0), tmp_path, silent)
    lengths = {len(read_trace(path).trace.operations) for path in tmp_path.glob("*.json")}
    assert len(found.trace.operations) in lengths
    assert not kept.reproduced().complete
    assert kept.go_on == f"blockproof shrink {kept.files.trace} --target {FAULT}"
    assert f"gave up early, it may get shorter; to go on: {kept.go_on}" in kept.lines()
    file = read_trace(kept.files.trace)
    smaller = keep_smaller(file, FAULT, open_target(FAULT), Plan(0), tmp_path, silent)
    assert len(smaller.shrunk.trace.operations) == 3


def test_a_finding_that_does_not_show_again_is_kept_as_it_is(found, tmp_path, monkeypatch):
    def never(*arguments, **options):
        raise NotReproducedError("it did not")

    steps = []
    monkeypatch.setattr(reproductions, "shrink", never)
    kept = keep_found(found.ranked()[0], found, open_target(FAULT), PLAN, tmp_path, steps.append)
    assert steps[-1] == "not shrunk: it did not; the target may not be deterministic"
    assert kept.shrunk is None
    assert kept.reproduced().operations is None
    assert read_trace(kept.files.trace).trace == found.trace
    told = KeptFound(found.ranked()[0], kept).told()
    assert told.lines()[0] == str(found.finding).partition("\n")[0]


def test_a_trace_file_is_shrunk_and_says_if_it_shows_something_else_by_now(found, tmp_path):
    steps = []
    file = TraceFile(found.trace, FAULT, FoundWhat("outcome", "Free", "of old"))
    kept = keep_smaller(file, FAULT, open_target(FAULT), Plan(0), tmp_path, steps.append)
    assert steps == ["note: the trace was written for outcome, Free; it now shows lockstep, free, Free"]
    document = kept.as_shrunk_json(file)
    assert (document["operations_before"], document["operations"]) == (len(found.trace.operations), 3)
    assert keep_smaller(file, "impl", open_target("impl"), Plan(0), tmp_path / "none", steps.append) is None
    assert not (tmp_path / "none").exists()


def test_a_target_is_recorded_with_its_release():
    core = open_target("impl")
    core.name = "vllm==0.23.0"
    assert recorded_name("vllm", core) == "vllm==0.23.0"
    assert recorded_name("my.module:make", core) == "my.module:make"
