"""What bisecting asks of a trace: the same sentence as it was written for, with what the trace leaves out left out."""

import json
from dataclasses import asdict

import pytest
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.opening.targets import open_here
from blockproof.fuzz.releases.bisect import State, observe, question_about
from blockproof.fuzz.releases.bisect_commit import CommitJob
from blockproof.fuzz.releases.commit_target import CommitPlace
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.trace_file import FoundWhat, TraceFile, dump_trace, load_trace
from blockproof.model.arith import usage
from blockproof.model.ops import Advance, Allocate, Free, Group, Shape, Submit

SHAPE = Shape((Group("full", 1),), 4, 3, hash_block_size=1, scheduler_block_size=1, max_num_batched_tokens=3)
TRACE = Trace(SHAPE, (Submit("a", (0,)), Allocate("a", 2), Free("a")))
FAULT = "fault:free-order-reversed"


class LeaksAndLosesItsTable:
    """Our core, which shows a free block less from the start on (S1), and once a step is over not all of its table."""

    name = "leaks"

    def __init__(self) -> None:
        self.core = open_here("impl")

    def start(self, shape):
        return self.core.start(shape)

    def step(self, operation):
        outcome, seen = self.core.step(operation)
        left = seen.num_free - 1
        seen = seen._replace(free=seen.free[1:], num_free=left, usage=usage(left, SHAPE.num_blocks))
        if isinstance(operation, Advance):
            seen = seen._replace(tables=[{name: table[:-1] for name, table in seen.tables[0].items()}])
        return outcome, seen

    def close(self) -> None:
        self.core.close()


def asked(oracles: tuple[str, ...], finding: FoundWhat) -> TraceFile:
    return TraceFile(TRACE, "impl", finding, oracles=oracles)


def test_what_a_trace_leaves_out_is_left_out_as_in_a_replay():
    manner = ("less than is registered", "", "value", "value")
    said = FoundWhat("S14", "Lookup", "", ("contract", "S14", "Lookup"), None, manner)
    file = asked(("shadow", "contract", "no-S1", "landed"), said)
    question = question_about(file, False, None, ("lockstep",))
    assert question.oracles == ("contract", "no-S1", "landed")
    assert question.manner == manner
    assert question_about(file, True, None, ("shadow",)).oracles == ("shadow", "no-S1", "landed")
    assert question_about(file, False, ("contract",), ("shadow",)).oracles == ("contract",)


def test_what_is_left_out_does_not_hide_the_finding_in_question():
    trace = Trace(SHAPE, (Submit("a", (0, 1)), Allocate("a", 2), Advance("a")))
    judged = ("contract", "no-S1")
    finding, _ = replay(trace, LeaksAndLosesItsTable(), Judging(judged))
    assert finding is not None
    assert finding.observable == "S5"
    file = TraceFile(trace, "impl", FoundWhat.of(finding), oracles=judged)
    assert observe(question_about(file, False, None, ()), LeaksAndLosesItsTable).state is State.FAILS
    hidden = observe(question_about(file, False, ("contract",), ()), LeaksAndLosesItsTable)
    assert hidden.state is State.OTHER  # S1 ends it three operations earlier
    assert hidden.operations == 1


@pytest.mark.parametrize(("said", "state"), [("order", State.FAILS), ("less", State.OTHER)])
def test_only_what_fails_in_the_same_manner_fails(said, state):
    finding, _ = replay(TRACE, open_here(FAULT), Judging(("lockstep",)))
    assert finding is not None
    assert finding.manner == ("order", "", "value", "value")
    manner = (said, "", "value", "value")
    question = question_about(asked(("lockstep",), FoundWhat("free", "Free", "", (), None, manner)), False, None, ())
    assert observe(question, lambda: open_here(FAULT)).state is state
    of_old = question_about(asked(("lockstep",), FoundWhat("free", "Free", "")), False, None, ())
    assert observe(of_old, lambda: open_here(FAULT)).state is State.FAILS


def test_a_file_keeps_the_manner_and_one_of_old_has_none():
    finding, _ = replay(TRACE, open_here(FAULT), Judging(("lockstep",)))
    assert finding is not None
    file = load_trace(dump_trace(TraceFile(TRACE, FAULT, FoundWhat.of(finding))))
    assert file.finding is not None
    assert file.finding.manner == finding.manner
    assert file.finding.is_shown_by(finding)
    old = FoundWhat("free", "Free", "", finding.identity)
    assert "manner" not in dump_trace(TraceFile(TRACE, FAULT, old))
    assert old.is_shown_by(finding)
    other = FoundWhat("free", "Free", "", finding.identity, None, ("less", "", "value", "value"))
    assert not other.is_shown_by(finding)


def test_the_job_of_a_commit_has_the_manner(tmp_path):
    place = CommitPlace("engine:make", "front", "tree", ".", "checkout", ("back",))
    job = CommitJob("scratch", "x", place, ("S1", "Free"), ("contract", "no-S9"), ("lost", "", "value", "value"))
    path = tmp_path / "job.json"
    path.write_text(json.dumps(asdict(job)))
    assert CommitJob.read(str(path)) == job
