"""Runs in lockstep, and what all runs share: targets that get lost, looks that are left out, and what is noted once."""

from blockproof.fuzz.findings.oracle_names import CONTRACT, LOCKSTEP, TARGET
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.lockstep import LockstepRun
from blockproof.fuzz.runs.model_free import ModelFreeRun
from blockproof.model.ops import Allocate, Done, Evict, Failed, Free, Lookup, Submit, Take

from .test_model_free import FULL, Changed

STORED = (Submit("a", (0, 1, 2, 3)), Allocate("a", 4))
HIT = (*STORED, Free("a"), Submit("b", (0, 1, 2, 3)), Lookup("b"), Allocate("b", 2, hit=True))


def test_a_target_that_gets_lost_in_a_step_is_a_finding_at_this_step():
    def lost(operation, outcome, snapshot):
        if operation == HIT[3]:
            raise OSError("gone")
        return outcome, snapshot

    for run in (LockstepRun(Changed(lost)), ModelFreeRun(Changed(lost), Judging((CONTRACT,)))):
        assert run.start(FULL) is None
        *quiet, finding = [run.step(operation) for operation in HIT[:4]]
        assert quiet == [None] * 3
        assert finding is not None
        assert finding is run.found
        assert (finding.oracle, finding.step, finding.operation) == (TARGET, 3, HIT[3])
        assert "gone" in finding.detail


def test_a_run_that_looks_at_outcomes_alone_still_counts_what_the_model_meets():
    met = {}
    for looks_between in (True, False):
        run = LockstepRun(open_target("impl"), Judging((LOCKSTEP,), full_look_every=100, looks_between=looks_between))
        assert run.start(FULL) is None
        assert [run.step(operation) for operation in HIT] == [None] * len(HIT)
        assert run.finish() is None
        met[looks_between] = set(run.situations)
    assert met[False]
    assert met[False] <= met[True]


def test_a_property_that_is_passed_is_noted_once_though_it_is_violated_twice_at_once():
    """Both blocks of the hit have been evicted before."""

    def finds(operation, outcome, snapshot):
        return Done((4, ((1, 2),))) if operation == Lookup("b") else outcome, snapshot

    run = ModelFreeRun(Changed(finds), Judging((CONTRACT,), notes=True))
    assert run.start(FULL) is None
    prompt = (0, 1, 2, 3, 4)
    for operation in (*STORED, Evict((1, 2)), Submit("b", prompt), Lookup("b")):
        assert run.step(operation) is None
    assert [(finding.observable, finding.operation) for finding in run.noted] == [("S10", Lookup("b"))]


def test_no_oracle_judges_a_misuse_that_a_core_answers_as_it_must():
    """To the contract an error of a call that makes sense is a violation; this call makes none."""
    run = LockstepRun(open_target("impl"), Judging((LOCKSTEP, CONTRACT)))
    assert run.start(FULL) is None
    assert run.step(Take(-1)) is None
    assert run.outcomes == [Failed("ValueError")]
    assert not run.dead
