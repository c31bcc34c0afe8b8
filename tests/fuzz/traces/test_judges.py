"""Who judges a trace that is replayed, and what is told of traces that have no model."""

import pytest
from blockproof.fuzz.findings.cause import failed
from blockproof.fuzz.findings.finding import Finding, Trace
from blockproof.fuzz.findings.oracle_names import CONTRACT, DIFFERENCE, LOCKSTEP, MODEL_FREE, ORACLES, SHADOW
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.traces.judges import judges_for
from blockproof.fuzz.traces.replayed import replayed
from blockproof.fuzz.traces.trace_file import FoundWhat, TraceFile
from blockproof.model.core import Model
from blockproof.model.ops import Advance, Allocate, Done, Failed, Free, Group, Shape, StepStart, Submit

SHAPE = Shape((Group("full", 2),), 9, 8, hash_block_size=2, scheduler_block_size=2, max_num_batched_tokens=8)
WITHOUT_CORE = Shape((Group("full", 2),), 9, 8, hash_block_size=1, scheduler_block_size=2, max_num_batched_tokens=8)
STEPS = (Submit("a", (0, 1)), Allocate("a", 2), Free("a"))


def suited():
    return ORACLES


def old(text, shape=SHAPE, operation="Free", steps=STEPS):
    """A file of the time when oracles were not stored."""
    return TraceFile(Trace(shape, steps), "impl", FoundWhat("what", operation, text))


@pytest.mark.parametrize(
    ("file", "oracles", "origin"),
    [
        (old("lockstep: model and target differ"), ORACLES, "which suit the target"),
        (old("contract: S14 is violated at operation 2"), MODEL_FREE, "written for a finding of contract"),
        (old("liveness: L1 is violated at operation 0"), MODEL_FREE, "written for a finding of liveness"),
        (old("shadow memory: wrong content"), ORACLES, "which suit the target"),
        (old("shadow memory: wrong content", WITHOUT_CORE), MODEL_FREE, "the model has no core of this shape"),
        (old("lockstep: model and target differ", WITHOUT_CORE, "start"), ORACLES, "which suit the target"),
        (TraceFile(Trace(SHAPE, STEPS)), ORACLES, "which suit the target"),
        (TraceFile(Trace(SHAPE, STEPS), oracles=(CONTRACT,)), (CONTRACT,), "as the trace says"),
    ],
)
def test_the_trace_says_who_judges_or_else_its_finding_and_shape(file, oracles, origin):
    judges = judges_for(file, suited)
    assert judges.oracles == oracles
    assert origin in judges.origin


def test_who_is_asked_for_judges_whatever_the_trace_says():
    file = TraceFile(Trace(SHAPE, STEPS), oracles=(CONTRACT,), tensors="cuda")
    judges = judges_for(file, suited, (LOCKSTEP,), "cpu")
    assert (judges.oracles, judges.tensors) == ((LOCKSTEP,), "cpu")
    assert str(judges) == "judged by lockstep (as asked for)"
    assert judges_for(file, suited).tensors == "cuda"


def told(file, target, given=()):
    return replayed(file, target, judges_for(file, suited, given)).lines(show=True)


class Anything(Model):
    """Has a core of every shape; `Failing` has none."""

    name = "anything"

    def __init__(self):
        super().__init__(SHAPE)

    def start(self, shape):
        super().__init__(SHAPE)
        return Done(), self.snapshot()

    def close(self):
        pass


class Failing(Anything):
    def start(self, shape):
        return failed(NotImplementedError("not of this size")), None


def test_without_a_model_the_changes_of_the_target_are_shown():
    file = TraceFile(Trace(SHAPE, STEPS), oracles=(SHADOW, CONTRACT))
    lines = told(file, open_target("impl"))
    assert "   1  Allocate a, new_tokens=2  ->  ((1,),)" in lines
    assert "        tables: group 0, a: None -> [1]" in lines
    assert lines[-1] == "judged by shadow, contract (as the trace says)"
    assert "(changes of the state that the target shows)" in lines


def test_a_shape_without_a_core_is_said_to_be_one_and_the_target_is_shown():
    lines = told(old("contract: S1 is violated", WITHOUT_CORE), Anything())
    assert "        tables: group 0, a: None -> [1]" in lines
    assert "no difference in 3 operations on anything" in lines
    lines = told(old("contract: S1 is violated", WITHOUT_CORE), Anything(), ORACLES)
    why = "the model has no core of this shape, it fails with AssertionError: there is nothing to compare a core with"
    assert why in lines


def test_a_target_without_such_a_core_is_said_to_have_none():
    file = TraceFile(Trace(SHAPE, STEPS), oracles=(CONTRACT,))
    result = replayed(file, Failing(), judges_for(file, suited))
    assert not result.built
    lines = result.lines(show=False)
    assert "anything builds no core of this shape: it fails with NotImplementedError: not of this size" in lines
    assert "nothing judged" in lines


def test_a_script_is_said_to_be_one_and_its_steps_are_those_of_the_scheduler():
    script = (Submit("a", (0, 1, 2)), Advance("a", (3, 4)), StepStart(), Submit("b", (5,)), Advance("b", (6,)))
    lines = told(TraceFile(Trace(SHAPE, script), oracles=MODEL_FREE), open_target("impl"))
    assert any("Allocate a" in line for line in lines)
    assert any(line.startswith("the trace is a script of requests") for line in lines)


def test_a_difference_between_two_targets_is_said_to_be_one():
    finding = Finding("refused", Free("a"), 2, Done(), Failed("ValueError"), oracle=DIFFERENCE, sides=("one", "two"))
    for found in (FoundWhat.of(finding), FoundWhat("refused", "Free", str(finding))):
        lines = told(TraceFile(Trace(SHAPE, STEPS), "impl", found), open_target("impl"))
        assert any("how two targets differ" in line for line in lines)
