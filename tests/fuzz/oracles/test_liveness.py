"""Liveness: a correct core never lets anybody starve; each planted fault is caught by its own property."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from blockproof.fuzz.adapters.impl import open_impl
from blockproof.fuzz.faults import MADE_UP
from blockproof.fuzz.findings.finding import Finding, Trace
from blockproof.fuzz.findings.oracle_names import LIVENESS, SHADOW, STRICT
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.oracles.liveness import PROPERTIES, draw_script, is_script, judge, simpler_scripts
from blockproof.fuzz.oracles.liveness.bounds import Bounds
from blockproof.fuzz.oracles.liveness.rules import Excused, Violated, Watch
from blockproof.fuzz.oracles.liveness.scheduler import Scheduler
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.lockstep import LockstepRun
from blockproof.fuzz.runs.model_free import ModelFreeRun
from blockproof.fuzz.runs.run import Run
from blockproof.fuzz.targets.base import Target
from blockproof.fuzz.traces.trace_file import read_trace
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.shapes import ATTENTION, draw_shape
from blockproof.model import ops
from blockproof.model.attention import Cross, Mamba, Rule
from blockproof.model.core import Model
from blockproof.model.shown.snapshot import Snapshot

DEADLOCK = Path(__file__).parents[3] / "docs" / "evidence" / "findings" / "admission-deadlock.json"


def _shape(group: ops.Group, usable: int, budget: int, length: int = 8) -> ops.Shape:
    unit = group.block_size
    return ops.Shape((group,), usable + 1, length, unit, unit, max_num_batched_tokens=budget)


def _request(name: str, prompt: int, outputs: int, token: int = 0) -> list[ops.Operation]:
    return [ops.Submit(name, (token,) * prompt), ops.Advance(name, (token,) * outputs)]


def _script(shape: ops.Shape, *parts: list[ops.Operation]) -> Trace:
    return Trace(shape, tuple(operation for part in parts for operation in part))


LIVENESS_FAULTS = {name: fault for name, fault in MADE_UP.items() if fault.oracles == (LIVENESS,)}
FULL, WINDOW, STATES = ops.Group("full", 1), ops.Group("sliding", 1, window=3), ops.Group("mamba", 1)
STORIES = {
    "gate-counts-whole-sequence": _script(
        _shape(ops.Group("sliding", 1, window=2), usable=3, budget=1), _request("long", 4, 1)
    ),
    "refusal-leaks-block": _script(
        _shape(FULL, usable=2, budget=4), _request("too long", 3, 1), [ops.StepStart()], _request("fits", 2, 1)
    ),
    "gate-counts-nothing": _script(
        _shape(FULL, usable=4, budget=4), _request("first", 3, 1), _request("next", 3, 1, token=1)
    ),
    "gate-counts-one-window-block": _script(
        _shape(WINDOW, usable=4, budget=4), _request("first", 3, 1), _request("next", 3, 1, token=1)
    ),
    "same-step-rule-never-forgets": _script(
        _shape(STATES, usable=2, budget=1), _request("first", 1, 1), _request("next", 2, 1)
    ),
    "gate-counts-null-block": _script(_shape(FULL, usable=2, budget=1), _request("too long", 3, 1)),
    "preempted-keeps-blocks": _script(
        _shape(FULL, usable=4, budget=4), _request("first", 2, 3), _request("gives way", 1, 2)
    ),
    "gate-counts-no-lookahead": _script(
        replace(_shape(FULL, usable=9, budget=3), eagle=True), _request("first", 2, 1), _request("next", 4, 1, token=1)
    ),
    "gate-counts-first-states": _script(
        _shape(ops.Group("mamba", 1, mamba_mode="align"), usable=2, budget=4),
        _request("first", 2, 1),
        _request("next", 2, 1, token=1),
    ),
    "registered-states-stay": _script(
        _shape(ops.Group("mamba", 1, mamba_mode="align", speculative_blocks=1), usable=3, budget=1),
        _request("alone", 1, 3),
    ),
    "running-step-wants-spare-block": _script(_shape(FULL, usable=3, budget=4), _request("alone", 2, 2)),
}
"""For each planted fault a script with which it is the only thing wrong."""


def _judge(target: Target, script: Trace) -> tuple[Finding | None, Run]:
    run = ModelFreeRun(target, Judging(()))
    found = judge(run, script)
    return None if found is None else found[0], run


def _drawn(count: int, seed: str = "drawn", names: Sequence[str] = tuple(ATTENTION)) -> Iterable[Trace]:
    return (draw_script(SeededDraw(f"{seed}/{i}"), ATTENTION[names[i % len(names)]]) for i in range(count))


@pytest.mark.unmeasured
def test_our_core_lets_nobody_starve_and_the_scripts_reach_what_is_judged() -> None:
    seen: Counter[str] = Counter()
    for script in _drawn(460):
        finding, run = _judge(open_impl(), script)
        assert finding is None, f"{finding}\n{script}"
        assert run.built
        assert not run.scene.requests, f"unfinished: {script}"
        seen += run.seen
        seen.update(type(operation).__name__ for operation in run.operations)
    assert seen["liveness: preempted, as T16.overcommit allows"]
    assert not [name for name in seen if "known loss" in name]
    assert seen["liveness: refused what can never fit"]
    assert seen["liveness: deferred by a state of the same step"]
    assert seen["Preempt"] > 20
    assert not seen["liveness: turned away, neither sure to fit nor sure not to"]


def test_model_and_core_agree_on_all_that_the_scheduler_does() -> None:
    run = LockstepRun(open_impl())
    for script in _drawn(46):
        assert judge(run, script) is None
        assert run.scene is run.model


def test_each_property_has_a_fault_of_its_own() -> None:
    assert {fault.observables[0] for fault in LIVENESS_FAULTS.values()} == set(PROPERTIES)
    assert STORIES.keys() == LIVENESS_FAULTS.keys()


@pytest.mark.parametrize("name", STORIES)
def test_a_planted_fault_is_caught_by_exactly_its_property(name: str) -> None:
    assert _judge(open_impl(), STORIES[name])[0] is None
    finding, run = _judge(open_target(f"fault:{name}"), STORIES[name])
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
    finding, run = _judge(_Limited(open_target(f"fault:{name}"), loses=(KNOWN[name],)), STORIES[name])
    assert finding is None
    assert run.seen[known]
    finding, run = _judge(_Limited(open_target(f"fault:{name}"), loses=("gate-behind-hit",)), STORIES[name])
    assert finding is not None
    assert not run.seen[known]
    strict = ModelFreeRun(_Limited(open_target(f"fault:{name}"), loses=(KNOWN[name],)), Judging((STRICT,)))
    assert judge(strict, STORIES[name]) is not None


def test_what_a_target_is_known_to_hold_widens_the_bounds() -> None:
    states = _shape(ops.Group("mamba", 4, mamba_mode="align", speculative_blocks=2), usable=20, budget=4, length=40)
    assert (Bounds(states).most(30), Bounds(states, frozenset({"mamba-states-pile-up"})).most(30)) == (4, 11)
    full = _shape(FULL, usable=20, budget=4)
    assert (Bounds(full).most(5), Bounds(full, frozenset({"room-ahead"})).most(5)) == (5, 11)


def test_a_state_registered_once_more_in_its_own_old_block_defers_who_hits_another() -> None:
    """The block that is taken, and registered as what it was before, counts as registered in this step."""
    shape = ops.Shape((ops.Group("mamba", 3),), 4, 5, 3, 3, max_num_batched_tokens=4)
    script = _script(
        shape,
        *(_request("a", 1, 3), _request("b", 1, 1), _request("c", 3, 2), _request("d", 2, 2), _request("e", 4, 1)),
    )
    finding, run = _judge(open_impl(), script)
    assert finding is None
    assert run.seen["liveness: deferred by a state of the same step"]


@pytest.mark.unmeasured
@pytest.mark.parametrize("name", LIVENESS_FAULTS)
def test_drawn_scripts_find_a_planted_fault_and_only_by_properties_it_breaks(name: str) -> None:
    target, found = open_target(f"fault:{name}"), Counter[str]()
    names = ["mamba"] if name == "registered-states-stay" else tuple(ATTENTION)  # it shows in a pool of just its size
    for script in _drawn(460, names=names):
        finding, _ = _judge(target, script)
        if finding is not None:
            found[finding.observable] += 1
        if found.total() == 5:
            break
    assert found
    assert found.keys() <= set(LIVENESS_FAULTS[name].observables)


WRONG_BOUNDS: dict[str, Callable[[type[Bounds]], tuple[str, object]]] = {
    "the null block counts as usable": lambda b: ("usable", property(lambda self: self.shape.num_blocks - 1 + 1)),
    "drafts need no blocks": lambda b: (
        "most",
        lambda self, tokens, most=b.most: most(self, tokens - 2 * self.drafts),
    ),
    "no state stays besides those that are written": lambda b: (
        "_most",
        lambda self, rule, end, most=b._most: most(self, rule, end) - (isinstance(rule, Mamba) and rule.align),
    ),
    "a window holds no more than the window": lambda b: (
        "_most",
        lambda self, rule, end, most=b._most: (
            min(most(self, rule, end), max(1, (rule.w - 1) // rule.b)) if rule.w else most(self, rule, end)
        ),
    ),
    "what is held at once is all that is computed": lambda b: (
        "_held",
        lambda self, rule, position, whole: rule.required(self._length(rule, whole)),
    ),
    "the gate counts a block more for lookahead": lambda b: (
        "ahead",
        lambda self, start, known, ahead=b.ahead: ahead(self, start, known) + (self.drafts > 0),
    ),
    "sampling takes no steps": lambda b: ("steps", lambda self, prompt, outputs, steps=b.steps: steps(self, prompt, 0)),
    "all tokens are read at once": lambda b: (
        "least",
        lambda self, tokens: sum(rule.required(tokens) for rule in self.rules),
    ),
}
"""Wrong bounds: with each of them the oracle accuses a core that is right."""


@pytest.mark.parametrize("wrong", WRONG_BOUNDS)
def test_a_wrong_bound_accuses_a_correct_core(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bounds, *WRONG_BOUNDS[wrong](Bounds))
    assert any(_judge(open_impl(), script)[0] is not None for script in _drawn(460))


def test_what_must_be_held_is_what_some_query_reads() -> None:
    def read(bounds: Bounds, rule: Rule, query: int) -> int:
        if isinstance(rule, Mamba | Cross):
            return 1 if isinstance(rule, Mamba) else rule.required(bounds.encoder_tokens)
        return len({token // rule.b for token in range(query + 1) if rule.attends(query, token)})

    for i, kinds in enumerate(ATTENTION.values()):
        bounds = Bounds(draw_shape(SeededDraw(f"least/{i}"), kinds))
        for tokens in range(1, bounds.shape.max_model_len):
            each = [sum(read(bounds, rule, query) for rule in bounds.rules) for query in range(tokens)]
            assert bounds.least(tokens) == max(each)
            assert bounds.least(tokens) <= bounds.ahead(0, tokens) <= bounds.most(tokens)


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
    finding, _ = _judge(_Failing(), _script(_shape(FULL, usable=8, budget=1), _request("a", 4, 1)))
    assert finding is not None
    assert finding.observable == "L1"
    assert "Allocate raised ValueError" in finding.detail


def test_the_scheduler_preempts_the_most_recent_and_admits_in_the_order_of_arrival() -> None:
    _, run = _judge(open_impl(), STORIES["preempted-keeps-blocks"])
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
    shape = _shape(STATES, usable=8, budget=4)
    finding, run = _judge(
        open_impl(), _script(shape, _request("ahead", 1, 5), [ops.StepStart()], _request("behind", 4, 1))
    )
    assert finding is None
    assert run.seen["liveness: deferred by a state of the same step"] == 1
    assert run.seen["liveness: deferred again by a state of the same step"] == 1


def test_a_state_registered_once_more_in_this_step_may_defer_who_hits_the_older_block() -> None:
    shape = _shape(STATES, usable=8, budget=4)
    again: list[ops.Operation] = [ops.Submit("again", (0, 0), skip_lookup=True), ops.Advance("again", (0,))]
    script = _script(shape, _request("first", 1, 1), [ops.StepStart()], again, _request("hits", 2, 1))
    finding, run = _judge(open_impl(), script)
    assert finding is None
    assert run.seen["liveness: deferred by a state of the same step"] == 1


def test_who_is_refused_with_an_older_state_is_asked_again_for_the_whole_prompt_without_it() -> None:
    script = _script(_shape(STATES, usable=4, budget=4), _request("first", 1, 1), _request("next", 3, 1))
    finding, run = _judge(open_target("fault:same-step-rule-never-forgets"), script)
    assert finding is not None
    assert finding.observable == "L3"
    asked = [step for step in run.operations if isinstance(step, ops.Allocate) and step.request == "next"]
    assert [(step.new_tokens, step.hit) for step in asked[-2:]] == [(2, True), (3, False)]


def test_all_scheduled_tokens_of_a_step_are_within_the_budget() -> None:
    for script in _drawn(69, seed="budget"):
        _, run = _judge(open_impl(), script)
        hopeless = {name for name in _names(script) if Bounds(script.shape).hopeless(len(_prompt(script, name)))}
        in_step = 0
        for operation, outcome in zip(run.operations, run.outcomes, strict=True):
            if isinstance(operation, ops.StepStart):
                in_step = 0
            elif isinstance(operation, ops.Allocate) and type(outcome).__name__ == "Done":
                assert operation.request not in hopeless
                in_step += operation.new_tokens
                assert in_step <= script.shape.max_num_batched_tokens


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
    shape = replace(_shape(FULL, usable=16, budget=8, length=16), eagle=True)
    _, run = _judge(open_impl(), _script(shape, _request("a", 1, 6)))
    assert [(step.new_tokens, len(end.sampled), end.rejected) for step, end in _steps(run)] == [
        (1, 1, 0),
        (3, 3, 0),
        (3, 2, 1),
    ]
    prompt, known = 2, 2
    _, run = _judge(open_impl(), _script(shape, _request("a", prompt, 9)))
    for step, end in _steps(run):
        assert step.new_tokens == (prompt if known == prompt else 3)
        assert end.rejected == (0 if known == prompt else 3 - len(end.sampled))
        known += len(end.sampled)


def test_a_block_of_states_that_is_more_than_the_budget_does_not_keep_a_prompt_from_being_split() -> None:
    shape = _shape(ops.Group("mamba", 4, mamba_mode="align"), usable=8, budget=3, length=16)
    assert (Bounds(shape).unit, Bounds(replace(shape, max_num_batched_tokens=4)).unit) == (1, 4)
    finding, run = _judge(open_impl(), _script(shape, _request("a", 7, 1)))
    assert finding is None
    assert [step.new_tokens for step, _ in _steps(run)] == [3, 3, 1]


def test_who_cannot_reach_the_end_of_a_block_of_states_waits_for_a_larger_budget() -> None:
    """Each samples three tokens at once; the first leaves one token of the budget to the other."""
    shape = _shape(ops.Group("mamba", 4, mamba_mode="align"), usable=12, budget=4, length=32)
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


def test_who_holds_more_than_its_bound_breaks_l2() -> None:
    watch = Watch(Bounds(_shape(FULL, usable=8, budget=4)), Counter())
    watch.arrives("a", 3, 2)
    watch.holds("a", 4)
    with pytest.raises(Violated) as caught:
        watch.holds("a", 5)
    assert (caught.value.observable, caught.value.request) == ("L2", "a")


def test_a_gate_that_is_known_to_count_too_little_behind_a_hit_is_excused_there_alone() -> None:
    watch = Watch(Bounds(_shape(WINDOW, usable=8, budget=4), frozenset({"gate-behind-hit"})), Counter())
    watch.admitted("a", 6, hit_tokens=3, free=1, shared=0)
    assert watch.seen == {"liveness: known loss gate-behind-hit": 1}
    with pytest.raises(Violated) as caught:
        watch.admitted("a", 6, hit_tokens=0, free=1, shared=0)
    assert caught.value.observable == "L2"


def test_a_hit_of_a_block_that_holds_no_state_is_no_older_state() -> None:
    """Such a hit is for the contract to judge."""
    shape = _shape(STATES, usable=8, budget=4)
    watch = Watch(Bounds(shape), Counter())
    watch.arrives("a", 3, 1)
    assert not watch.waiting_refused(Model(shape), "a", [[ops.NULL, 3]], free=8)


def test_no_more_than_eight_requests_run_at_once() -> None:
    script = _script(_shape(FULL, usable=30, budget=30), *(_request(f"r{i}", 1, 2, token=i) for i in range(10)))
    finding, run = _judge(open_impl(), script)
    assert finding is None
    begins = [i for i, operation in enumerate(run.operations) if isinstance(operation, ops.StepStart)]
    allocated = [sum(isinstance(one, ops.Allocate) for one in run.operations[i:j]) for i, j in pairwise(begins)]
    assert max(allocated) == allocated[0] == 8


@pytest.mark.parametrize(
    ("chunks", "call", "known"),
    [
        ((ops.Group("chunked", 2, chunk=4),), "Lookup", False),
        ((ops.Group("chunked", 2, chunk=4, eagle=True),), "Lookup", True),
        ((ops.Group("chunked", 2, chunk=4), ops.Group("full", 4)), "Lookup", True),
        ((ops.Group("chunked", 2, chunk=4), ops.Group("full", 4)), "Allocate", False),
        ((ops.Group("sliding", 2, window=4, eagle=True),), "Lookup", False),
    ],
)
def test_a_lookup_that_raises_is_known_where_chunks_are_hard_for_a_core(
    chunks: tuple[ops.Group, ...], call: str, known: bool
) -> None:
    size = max(group.block_size for group in chunks)
    shape = ops.Shape(chunks, 9, 8, 2, size, 8)
    watch = Watch(Bounds(shape, frozenset({"chunked-refuses"})), Counter())
    with pytest.raises(Excused if known else Violated):
        watch.fails("a", call, "ValueError")


def test_a_script_becomes_simpler_by_a_group_a_prompt_or_what_is_sampled() -> None:
    shape = ops.Shape((ops.Group("full", 2), ops.Group("sliding", 2, window=3)), 9, 8, 2, 2, 8)
    made = list(simpler_scripts(_script(shape, _request("a", 4, 3))))
    groups = [trace.shape.groups for trace in made]
    assert groups[:2] == [shape.groups[1:], shape.groups[:1]]
    sizes = [(len(_prompt(trace, "a")), len(trace.operations[1].sampled)) for trace in made[2:]]  # type: ignore[attr-defined]
    assert sizes == [(1, 3), (2, 3), (3, 3), (4, 1), (4, 2)]


def test_who_can_never_fit_comes_at_any_place_in_a_drawn_script() -> None:
    places = set()
    for script in _drawn(230):
        names, bounds = _names(script), Bounds(script.shape)
        for place, name in enumerate(names):
            if bounds.hopeless(len(_prompt(script, name))):
                places |= {place, place - len(names)}
    assert {0, -1} <= places


def test_drawn_scripts_are_of_all_kinds_and_each_in_its_share() -> None:
    """Some requests look nothing up, some arrive steps apart, and a third of prompts are at most half as long."""
    skipping: list[bool] = []
    short: list[bool] = []
    apart: set[int] = set()
    for script in _drawn(920, seed="kinds"):
        half = (script.shape.max_model_len - 1) // 2
        submits = [(i, one) for i, one in enumerate(script.operations) if isinstance(one, ops.Submit)]
        skipping += [submit.skip_lookup for _, submit in submits]
        short += [len(submit.prompt) <= half for _, submit in submits]
        apart |= {later - earlier - 2 for (earlier, _), (later, _) in pairwise(submits)}
    assert apart == {0, 1, 3}
    assert 0.07 < sum(skipping) / len(skipping) < 0.13
    assert 0.6 < sum(short) / len(short) < 0.7, "all of the third, and half of the others"


def test_a_quarter_of_drawn_scripts_has_a_request_that_can_never_fit_if_one_is_short_enough() -> None:
    there: list[bool] = []
    for script in _drawn(8_000, seed="hopeless", names=["full"]):
        bounds = Bounds(script.shape)
        if bounds.hopeless(script.shape.max_model_len - 1):
            there.append(any(bounds.hopeless(len(_prompt(script, name))) for name in _names(script)))
    assert len(there) > 1_000
    assert 0.22 < sum(there) / len(there) < 0.28


def _names(script: Trace) -> list[str]:
    return [operation.request for operation in script.operations if isinstance(operation, ops.Submit)]


def _prompt(script: Trace, name: str) -> tuple[int, ...]:
    return next(op.prompt for op in script.operations if isinstance(op, ops.Submit) and op.request == name)


class _Limited:
    """A target that says of itself what it has no equivalent of and what it cannot show."""

    def __init__(
        self, target: Target, lacks: Iterable[str] = (), hides: Iterable[str] = (), loses: Iterable[str] = ()
    ) -> None:
        self.name, self.start, self.step, self.close = target.name, target.start, target.step, target.close
        self.lacks, self.hides, self.loses = frozenset(lacks), frozenset(hides), frozenset(loses)


def test_a_target_without_gate_and_drafts_is_not_asked_for_them() -> None:
    for script in _drawn(115):
        finding, run = _judge(_Limited(open_impl(), lacks=("Allocate.gate", "Advance.rejected")), script)
        assert finding is None, f"{finding}\n{script}"
        assert not run.scene.requests
        assert not run.seen["liveness: refused what can never fit"]
        for operation in run.operations:
            assert not (isinstance(operation, ops.Allocate) and operation.gate)
            assert not (isinstance(operation, ops.Advance) and operation.rejected)


def test_what_only_tables_can_show_is_not_observed_where_they_are_hidden() -> None:
    name = "gate-counts-nothing"
    hidden, _ = _judge(_Limited(open_target(f"fault:{name}"), hides=("tables",)), STORIES[name])
    assert hidden is None
    name = "preempted-keeps-blocks"
    shown, _ = _judge(_Limited(open_target(f"fault:{name}")), STORIES[name])
    hidden, run = _judge(_Limited(open_target(f"fault:{name}"), hides=("tables",)), STORIES[name])
    assert shown is not None
    assert hidden is not None
    assert "only gives way held" in shown.detail
    assert "first runs alone" in hidden.detail, "seen a step later, by what comes of it"
    assert not run.seen["liveness: preempted one that shares all its blocks"]


def test_what_another_oracle_finds_is_replayed_by_the_operations_of_the_run() -> None:
    run = ModelFreeRun(open_target("fault:skipped-off-by-one"), Judging((SHADOW,)))
    for script in _drawn(230):
        found = judge(run, script)
        if found is not None and found[0].oracle == SHADOW:
            finding, trace = found
            assert trace.operations == tuple(run.operations)
            assert trace.operations[finding.step] == finding.operation
            return
    pytest.fail("no script brought the corruption to light")


SHAPE = _shape(FULL, usable=4, budget=4)


@pytest.mark.parametrize(
    "operations",
    [
        (),
        (ops.StepStart(),),
        (ops.Submit("a", (0,)),),
        (ops.Submit("a", (0,)), ops.Advance("b", (0,))),
        (ops.Submit("a", (0,)), ops.Advance("a")),
        (ops.Submit("a", (0,)), ops.Advance("a", (0,), rejected=1)),
        (ops.Submit("a", (0,) * 8), ops.Advance("a", (0,))),
        (ops.Submit("a", ()), ops.Advance("a", (0,))),
        (ops.Submit("a", (0,)), ops.Advance("a", (0,)), ops.Allocate("a", 1)),
        (ops.Submit("a", (0,)), ops.Advance("a", (0,)), ops.Submit("a", (0,)), ops.Advance("a", (0,))),
    ],
)
def test_a_trace_that_no_scheduler_can_play_is_no_script(operations: tuple[ops.Operation, ...]) -> None:
    trace = Trace(SHAPE, operations)
    assert not is_script(trace)
    with pytest.raises(ValueError, match="no liveness script"):
        judge(ModelFreeRun(open_impl(), Judging(())), trace)
    assert not list(simpler_scripts(trace))


def test_drawn_scripts_are_scripts_and_those_made_simpler_are_as_tight() -> None:
    def slack(script: Trace) -> int:
        pairs = zip(script.operations, script.operations[1:], strict=False)
        bounds = Bounds(script.shape)
        requests = [(s, a) for s, a in pairs if isinstance(s, ops.Submit) and isinstance(a, ops.Advance)]
        return bounds.shape.num_blocks - max(bounds.most(len(s.prompt) + len(a.sampled) - 1) for s, a in requests)

    for script in _drawn(23, seed="simpler"):
        assert is_script(script)
        for simpler in simpler_scripts(script):
            assert is_script(simpler)
            assert simpler.shape.groups
            assert slack(simpler) == slack(script) or simpler.shape.num_blocks == 1


def test_the_admission_deadlock_of_report_39734_starves_only_with_the_old_gate() -> None:
    """A window group counted with the whole prompt: 50 blocks of a pool of 40, though 33 are held at most."""
    script = read_trace(DEADLOCK).trace
    bounds = Bounds(script.shape)
    prompt = len(_prompt(script, "long"))
    whole = sum(rule.required(prompt) for rule in bounds.rules)
    assert (whole, bounds.usable, bounds.most(prompt + 2), bounds.ahead(0, prompt)) == (50, 40, 33, 31)
    assert judge(LockstepRun(open_impl()), script) is None
    finding, run = _judge(open_target("fault:gate-counts-whole-sequence"), script)
    assert finding is not None
    assert finding.observable == "L1"
    assert "long starves" in finding.detail
    assert not any(run.scene.state.tables), "usage is 0"
    assert run.scene.requests.keys() == {"long", "short"}, "who arrived later waits behind it"
