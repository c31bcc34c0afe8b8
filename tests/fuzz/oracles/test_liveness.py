"""Liveness: a correct core never lets anybody starve; each planted fault is caught by its own property."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from blockproof.fuzz.adapters.impl import open_impl
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.findings.oracle_names import LIVENESS, STRICT
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.oracles.liveness import PROPERTIES, judge
from blockproof.fuzz.oracles.liveness.bounds import Bounds
from blockproof.fuzz.oracles.liveness.rules import Watch
from blockproof.fuzz.oracles.liveness.scheduler import Scheduler
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.lockstep import LockstepRun
from blockproof.fuzz.runs.model_free import ModelFreeRun
from blockproof.fuzz.runs.run import Run
from blockproof.fuzz.traces.trace_file import read_trace
from blockproof.model import ops
from blockproof.model.snapshot import Snapshot

from ..runs.test_model_free import Changed
from .liveness_stories import (
    FULL,
    LIVENESS_FAULTS,
    STATES,
    STORIES,
    Limited,
    judged,
    prompt_of,
    request_of,
    script_of,
    shape_of,
)

DEADLOCK = Path(__file__).parents[3] / "docs" / "evidence" / "findings" / "admission-deadlock.json"


def test_each_property_has_a_fault_of_its_own() -> None:
    assert {fault.observables[0] for fault in LIVENESS_FAULTS.values()} == set(PROPERTIES)
    assert STORIES.keys() == LIVENESS_FAULTS.keys()


@pytest.mark.parametrize("name", STORIES)
def test_a_planted_fault_is_caught_by_exactly_its_property(name: str) -> None:
    assert judged(open_impl(), STORIES[name])[0] is None
    finding, run = judged(open_target(f"fault:{name}"), STORIES[name])
    assert finding is not None
    assert (finding.observable, finding.oracle) == (LIVENESS_FAULTS[name].observables[0], LIVENESS)
    assert finding.operation == STORIES[name].operations[finding.step]
    assert isinstance(finding.operation, ops.Submit)
    assert finding.actual == run.outcomes[-1]


KNOWN = {"gate-counts-no-lookahead": "gate-lookahead", "gate-counts-first-states": "mamba-gate"}
"""Faults that releases have, and the names under which these declare them."""


@pytest.mark.parametrize("name", KNOWN)
def test_a_loss_is_counted_for_a_target_that_declares_it_and_a_finding_for_any_other(name: str) -> None:
    known = f"liveness: known loss {KNOWN[name]}"
    finding, run = judged(Limited(open_target(f"fault:{name}"), loses=(KNOWN[name],)), STORIES[name])
    assert finding is None
    assert run.seen[known]
    finding, run = judged(Limited(open_target(f"fault:{name}"), loses=("gate-behind-hit",)), STORIES[name])
    assert finding is not None
    assert not run.seen[known]
    strict = ModelFreeRun(Limited(open_target(f"fault:{name}"), loses=(KNOWN[name],)), Judging((STRICT,)))
    assert judge(strict, STORIES[name]) is not None


def test_a_state_registered_once_more_in_its_own_old_block_defers_who_hits_another() -> None:
    """The block that is taken, and registered as what it was before, counts as registered in this step."""
    shape = ops.Shape((ops.Group("mamba", 3),), 4, 5, 3, 3, max_num_batched_tokens=4)
    script = script_of(
        shape,
        *(
            request_of("a", 1, 3),
            request_of("b", 1, 1),
            request_of("c", 3, 2),
            request_of("d", 2, 2),
            request_of("e", 4, 1),
        ),
    )
    finding, run = judged(open_impl(), script)
    assert finding is None
    assert run.seen["liveness: deferred by a state of the same step"]


class _Failing:
    """Our core, except that its third allocation raises."""

    name = "failing"

    def __init__(self) -> None:
        self._core, self._allocations = open_impl(), 0

    def start(self, shape: ops.Shape) -> tuple[ops.Outcome, Snapshot | None]:
        return self._core.start(shape)

    def step(self, operation: ops.Operation) -> tuple[ops.Outcome, Snapshot]:
        outcome, shown = self._core.step(operation)
        self._allocations += isinstance(operation, ops.Allocate)
        return ops.Failed("ValueError") if self._allocations == 3 else outcome, shown

    def close(self) -> None:
        self._core.close()


def test_a_core_that_raises_in_the_middle_keeps_its_request_from_finishing() -> None:
    finding, _ = judged(_Failing(), script_of(shape_of(FULL, usable=8, budget=1), request_of("a", 4, 1)))
    assert finding is not None
    assert finding.observable == "L1"
    assert "Allocate raised ValueError" in finding.detail


def test_the_scheduler_preempts_the_most_recent_and_admits_in_the_order_of_arrival() -> None:
    _, run = judged(open_impl(), STORIES["preempted-keeps-blocks"])
    told = [
        (type(operation).__name__, operation.request)
        for operation in run.operations
        if isinstance(operation, ops.Lookup | ops.Preempt | ops.Free)
    ]
    first = [("Lookup", "first"), ("Lookup", "gives way"), ("Preempt", "gives way")]
    assert told[:3] == first
    assert told[-3:] == [("Free", "first"), ("Lookup", "gives way"), ("Free", "gives way")]


def test_who_waits_for_a_state_may_have_to_wait_again_while_new_ones_are_registered() -> None:
    """The rule of L3 as it holds of the model: one more step for each step that registers a longer state."""
    shape = shape_of(STATES, usable=8, budget=4)
    finding, run = judged(
        open_impl(), script_of(shape, request_of("ahead", 1, 5), [ops.StepStart()], request_of("behind", 4, 1))
    )
    assert finding is None
    assert run.seen["liveness: deferred by a state of the same step"] == 1
    assert run.seen["liveness: deferred again by a state of the same step"] == 1


def test_a_state_registered_once_more_in_this_step_may_defer_who_hits_the_older_block() -> None:
    shape = shape_of(STATES, usable=8, budget=4)
    again: list[ops.Operation] = [ops.Submit("again", (0, 0), skip_lookup=True), ops.Advance("again", (0,))]
    script = script_of(shape, request_of("first", 1, 1), [ops.StepStart()], again, request_of("hits", 2, 1))
    finding, run = judged(open_impl(), script)
    assert finding is None
    assert run.seen["liveness: deferred by a state of the same step"] == 1


def test_who_is_refused_with_an_older_state_is_asked_again_for_the_whole_prompt_without_it() -> None:
    script = script_of(shape_of(STATES, usable=4, budget=4), request_of("first", 1, 1), request_of("next", 3, 1))
    finding, run = judged(open_target("fault:same-step-rule-never-forgets"), script)
    assert finding is not None
    assert finding.observable == "L3"
    asked = [step for step in run.operations if isinstance(step, ops.Allocate) and step.request == "next"]
    assert [(step.new_tokens, step.hit) for step in asked[-2:]] == [(2, True), (3, False)]


def _steps(run: Run) -> Iterable[tuple[ops.Allocate, ops.Advance]]:
    """Each step that has run, in the order of their ends."""
    allocated: dict[str, ops.Allocate] = {}
    for operation in run.operations:
        if isinstance(operation, ops.Allocate):
            allocated[operation.request] = operation
        elif isinstance(operation, ops.Advance):
            yield allocated[operation.request], operation


def test_drafts_follow_the_last_sampled_token_alone_and_all_that_is_not_sampled_is_rejected() -> None:
    """The last sampled token is never computed, nor is a draft behind it kept."""
    shape = replace(shape_of(FULL, usable=16, budget=8, length=16), eagle=True)
    _, run = judged(open_impl(), script_of(shape, request_of("a", 1, 6)))
    assert [(step.new_tokens, len(end.sampled), end.rejected) for step, end in _steps(run)] == [
        (1, 1, 0),
        (3, 3, 0),
        (3, 2, 1),
    ]
    prompt, known = 2, 2
    _, run = judged(open_impl(), script_of(shape, request_of("a", prompt, 9)))
    for step, end in _steps(run):
        assert step.new_tokens == (prompt if known == prompt else 3)
        assert end.rejected == (0 if known == prompt else 3 - len(end.sampled))
        known += len(end.sampled)


def test_a_block_of_states_that_is_more_than_the_budget_does_not_keep_a_prompt_from_being_split() -> None:
    shape = shape_of(ops.Group("mamba", 4, mamba_mode="align"), usable=8, budget=3, length=16)
    assert (Bounds(shape).unit, Bounds(replace(shape, max_num_batched_tokens=4)).unit) == (1, 4)
    finding, run = judged(open_impl(), script_of(shape, request_of("a", 7, 1)))
    assert finding is None
    assert [step.new_tokens for step, _ in _steps(run)] == [3, 3, 1]


def test_who_cannot_reach_the_end_of_a_block_of_states_waits_for_a_larger_budget() -> None:
    """Each samples three tokens at once; the first leaves one token of the budget to the other."""
    shape = shape_of(ops.Group("mamba", 4, mamba_mode="align"), usable=12, budget=4, length=32)
    run = ModelFreeRun(open_impl(), Judging(()))
    assert run.start(shape) is None
    bounds = Bounds(shape)
    scheduler = Scheduler(run, bounds, Watch(bounds, run.seen), stride=3)
    for name in ("first", "other"):
        scheduler.arrive(ops.Submit(name, (0,) * 2), (0,) * 12)
    while scheduler.live:
        scheduler.step()
    counts = [operation.new_tokens for operation in run.operations if isinstance(operation, ops.Allocate)]
    assert counts[:4] == [2, 2, 2, 2]
    assert min(counts) > 0


def test_no_more_than_eight_requests_run_at_once() -> None:
    script = script_of(shape_of(FULL, usable=30, budget=30), *(request_of(f"r{i}", 1, 2, token=i) for i in range(10)))
    finding, run = judged(open_impl(), script)
    assert finding is None
    begins = [i for i, operation in enumerate(run.operations) if isinstance(operation, ops.StepStart)]
    allocated = [sum(isinstance(one, ops.Allocate) for one in run.operations[i:j]) for i, j in pairwise(begins)]
    assert max(allocated) == allocated[0] == 8


def test_what_only_tables_can_show_is_not_observed_where_they_are_hidden() -> None:
    name = "gate-counts-nothing"
    hidden, _ = judged(Limited(open_target(f"fault:{name}"), hides=("tables",)), STORIES[name])
    assert hidden is None
    name = "preempted-keeps-blocks"
    shown, _ = judged(Limited(open_target(f"fault:{name}")), STORIES[name])
    hidden, run = judged(Limited(open_target(f"fault:{name}"), hides=("tables",)), STORIES[name])
    assert shown is not None
    assert hidden is not None
    assert "only gives way held" in shown.detail
    assert "first runs alone" in hidden.detail, "seen a step later, by what comes of it"
    assert not run.seen["liveness: preempted one that shares all its blocks"]


def test_the_admission_deadlock_of_report_39734_starves_only_with_the_old_gate() -> None:
    """A window group counted with the whole prompt: 50 blocks of a pool of 40, though 33 are held at most."""
    script = read_trace(DEADLOCK).trace
    bounds = Bounds(script.shape)
    prompt = len(prompt_of(script, "long"))
    whole = sum(rule.required(prompt) for rule in bounds.rules)
    assert (whole, bounds.usable, bounds.most(prompt + 2), bounds.ahead(0, prompt)) == (50, 40, 33, 31)
    assert judge(LockstepRun(open_impl()), script) is None
    finding, run = judged(open_target("fault:gate-counts-whole-sequence"), script)
    assert finding is not None
    assert finding.observable == "L1"
    assert "long starves" in finding.detail
    assert not any(run.scene.state.tables), "usage is 0"
    assert run.scene.requests.keys() == {"long", "short"}, "who arrived later waits behind it"


def _told(run: Run) -> str:
    """What the scheduler asked for, in short; `|` begins a step."""
    said = []
    for operation, outcome in zip(run.operations, run.outcomes, strict=True):
        match operation:
            case ops.StepStart():
                said.append("|")
            case ops.Allocate(name, count, hit, lookahead):
                drafts = f" ahead {lookahead}" if lookahead else ""
                encoder = f" encoder {operation.encoder_tokens}" if operation.encoder_tokens else ""
                said.append(f"{name}+{count}{' hit' * hit}{drafts}{encoder}{' gate' * operation.gate}")
            case ops.Advance(name, sampled, rejected):
                said.append(f"{name}:{''.join(map(str, sampled))}{f' -{rejected}' if rejected else ''}")
            case ops.Lookup(name) | ops.Submit(name):
                said.append(f"{name}{'?' if isinstance(operation, ops.Lookup) else '!'}")
            case ops.Preempt(name) | ops.Free(name):
                said.append(f"{name} {'preempted' if isinstance(operation, ops.Preempt) else 'freed'}")
        if isinstance(outcome, ops.Refused):
            said[-1] += " no"
    return ", ".join(said)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (
            script_of(
                shape_of(FULL, usable=5, budget=3),
                *(request_of("a", 4, 2), request_of("b", 2, 3, token=1)),
                *([ops.StepStart(), ops.StepStart()], request_of("c", 2, 1, token=2)),
            ),
            "a!, b!, |, a?, a+3 gate, a:, |, a+1, b?, b+2 gate no, a:0, c!, |, a+1, b?, b+2 gate no, a:0, a freed, "
            "|, b?, b+2 gate, c?, c+1 gate, b:1, c:, |, b+1, c+1, b:1, c:2, c freed, |, b+1, b:1, b freed",
        ),
        (
            script_of(
                replace(shape_of(FULL, usable=12, budget=4, length=9), eagle=True),
                *(request_of("a", 3, 6), request_of("b", 3, 2, token=1)),
            ),
            "a!, b!, |, a?, a+3 ahead 2 gate, b?, b+1 ahead 2 gate, a:0, b:, |, a+3 ahead 2, b+1 ahead 2, a:000, b:, "
            "|, a+2 ahead 2 no, b preempted, a+2 ahead 2, a:0 -1, |, a+1 ahead 2, b?, b+2 hit ahead 2 gate no, "
            "a:0, a freed, |, b?, b+2 hit ahead 2 gate, b:1, |, b+3 ahead 2, b:1 -2, b freed",
        ),
        (
            script_of(
                shape_of(ops.Group("mamba", 2, mamba_mode="align"), usable=9, budget=3, length=12),
                *(request_of("a", 5, 1), request_of("b", 7, 1)),
            ),
            "a!, b!, |, a?, a+2 gate, b?, a:, |, a+2, b?, a:, |, a+1, b?, b+2 hit gate, a:0, a freed, b:, "
            "|, b+1, b:0, b freed",
        ),
        (
            script_of(
                ops.Shape((FULL, ops.Group("cross", 2)), 12, 8, 1, 2, 4, caching=False),
                *(request_of("a", 5, 2), request_of("b", 7, 1)),
            ),
            "a!, b!, |, a?, a+4 encoder 5 gate, a:, |, a+1, b?, b+3 encoder 5 gate no, a:0, "
            "|, a+1, b?, b+3 encoder 5 gate no, a:0, a freed, |, b?, b+4 encoder 5 gate, b:, |, b+3, b:0, b freed",
        ),
        (
            script_of(
                shape_of(FULL, usable=3, budget=4),
                *(request_of("never", 5, 1), request_of("perhaps", 2, 3), request_of("a", 3, 1)),
            ),
            "never!, a!, |, a?, a+3 gate, never+4 gate no, a:0, a freed, never+4 gate no, never freed",
        ),
        (
            script_of(
                shape_of(ops.Group("full", 2), usable=3, budget=8),
                *(request_of("a", 2, 2), request_of("b", 2, 2, token=1)),
            ),
            "a!, b!, |, a?, a+2 gate, b?, b+2 gate, a:0, b:1, |, a+1, b+1 no, b preempted, a:0, a freed, "
            "|, b?, b+1 hit gate, b:1, b freed",
        ),
    ],
    ids=["queue", "drafts", "states", "encoder", "hopeless", "itself"],
)
def test_what_the_scheduler_asks_for_step_by_step(script: Trace, told: str) -> None:
    finding, run = judged(open_impl(), script)
    assert finding is None
    assert _told(run) == told
    assert run.seen["liveness: script finished"] == 1
    hopeless = "never" in told
    assert run.seen["liveness: turned away, neither sure to fit nor sure not to"] == hopeless
    assert run.seen["liveness: request finished"] == told.count(" freed") - hopeless


def test_a_core_that_cannot_be_built_is_played_nothing() -> None:
    def unbuilt(operation: ops.Operation | None, outcome: ops.Outcome, shown: Snapshot) -> tuple[object, object]:
        assert operation is None, "it was not built"
        return ops.Failed("NotImplementedError"), None

    script = STORIES["running-step-wants-spare-block"]
    found = judge(LockstepRun(Changed(unbuilt)), script)
    assert found is not None, "the model can be built"
    assert found[1] == Trace(script.shape, ())
    assert judge(ModelFreeRun(Changed(unbuilt), Judging(())), script) is None


def _holding(extra: int, of: type[ops.Operation]) -> Changed:
    """Our core, whose tables show so many blocks more of each request after operations of this kind."""

    def change(operation: ops.Operation | None, outcome: ops.Outcome, shown: Snapshot) -> tuple[object, object]:
        if isinstance(operation, of) and isinstance(outcome, ops.Done):
            tables = [{name: [*row, *range(31 - extra, 31)] for name, row in rows.items()} for rows in shown.tables]
            shown = shown._replace(tables=tables)
        return outcome, shown

    return Changed(change)


@pytest.mark.parametrize(
    ("extra", "said"), [(0, None), (1, "a holds 4 blocks, and no request of its length needs more")]
)
def test_what_a_request_holds_is_counted_after_each_of_its_steps(extra: int, said: str | None) -> None:
    script = script_of(shape_of(FULL, usable=30, budget=2, length=40), request_of("a", 2, 2))
    finding, _ = judged(_holding(extra, ops.Allocate), script)
    assert (finding and finding.detail.partition(" than")[0]) == said
    assert finding is None or finding.observable == "L2"


def test_a_preemption_is_judged_by_the_blocks_that_nobody_else_holds() -> None:
    """Two blocks of the one who gives way are those of the other's prompt."""
    script = script_of(shape_of(FULL, usable=5, budget=8), request_of("a", 3, 3), request_of("b", 3, 2))
    assert judged(open_impl(), script)[0] is None
    finding, _ = judged(open_target("fault:preempted-keeps-blocks"), script)
    assert finding is not None
    assert finding.detail.startswith("b was preempted, but none of the 1 blocks that only b held is free")


@pytest.mark.parametrize(("free", "found"), [(3, False), (2, True)])
def test_the_gate_has_what_is_in_no_table_before_the_request_begins(free: int, found: bool) -> None:
    """Another request runs, whose blocks are in use; so are those that a wrong core shows in its table."""
    script = script_of(
        shape_of(FULL, usable=30, budget=30, length=40),
        *(request_of("first", 7, 3), [ops.StepStart()], request_of("next", 3, 1, token=1)),
    )
    finding, _ = judged(_holding(30 - 8 - free, ops.Lookup), script)
    assert (finding is not None) == found
    assert finding is None or (finding.observable, finding.operation) == ("L2", ops.Submit("next", (1, 1, 1)))
