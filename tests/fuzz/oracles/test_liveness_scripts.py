"""Scripts of liveness: what is drawn reaches all that is judged, and what a script is and is reduced to."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest
from blockproof.fuzz.adapters.impl import open_impl
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.findings.oracle_names import SHADOW
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.oracles.liveness import is_script, judge, simpler_scripts
from blockproof.fuzz.oracles.liveness.bounds import Bounds
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.lockstep import LockstepRun
from blockproof.fuzz.runs.model_free import ModelFreeRun
from blockproof.fuzz.workload.shapes import ATTENTION
from blockproof.model import ops
from blockproof.model.attention import Mamba

from .liveness_stories import (
    FULL,
    LIVENESS_FAULTS,
    Limited,
    drawn,
    judged,
    names_of,
    prompt_of,
    request_of,
    script_of,
    shape_of,
)


def test_our_core_lets_nobody_starve_and_the_scripts_reach_what_is_judged() -> None:
    seen: Counter[str] = Counter()
    for script in drawn(460):
        finding, run = judged(open_impl(), script)
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
    for script in drawn(46):
        assert judge(run, script) is None
        assert run.scene is run.model


@pytest.mark.parametrize("name", LIVENESS_FAULTS)
def test_drawn_scripts_find_a_planted_fault_and_only_by_properties_it_breaks(name: str) -> None:
    target, found = open_target(f"fault:{name}"), Counter[str]()
    names = ["mamba"] if name == "registered-states-stay" else tuple(ATTENTION)  # it shows in a pool of just its size
    for script in drawn(460, names=names):
        finding, _ = judged(target, script)
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
    assert any(judged(open_impl(), script)[0] is not None for script in drawn(460))


def test_all_scheduled_tokens_of_a_step_are_within_the_budget() -> None:
    for script in drawn(69, seed="budget"):
        _, run = judged(open_impl(), script)
        hopeless = {name for name in names_of(script) if Bounds(script.shape).hopeless(len(prompt_of(script, name)))}
        in_step = 0
        for operation, outcome in zip(run.operations, run.outcomes, strict=True):
            if isinstance(operation, ops.StepStart):
                in_step = 0
            elif isinstance(operation, ops.Allocate) and type(outcome).__name__ == "Done":
                assert operation.request not in hopeless
                in_step += operation.new_tokens
                assert in_step <= script.shape.max_num_batched_tokens


def test_a_target_without_gate_and_drafts_is_not_asked_for_them() -> None:
    for script in drawn(115):
        finding, run = judged(Limited(open_impl(), lacks=("Allocate.gate", "Advance.rejected")), script)
        assert finding is None, f"{finding}\n{script}"
        assert not run.scene.requests
        assert not run.seen["liveness: refused what can never fit"]
        for operation in run.operations:
            assert not (isinstance(operation, ops.Allocate) and operation.gate)
            assert not (isinstance(operation, ops.Advance) and operation.rejected)


def test_what_another_oracle_finds_is_replayed_by_the_operations_of_the_run() -> None:
    run = ModelFreeRun(open_target("fault:skipped-off-by-one"), Judging((SHADOW,)))
    for script in drawn(230):
        found = judge(run, script)
        if found is not None and found[0].oracle == SHADOW:
            finding, trace = found
            assert trace.operations == tuple(run.operations)
            assert trace.operations[finding.step] == finding.operation
            return
    pytest.fail("no script brought the corruption to light")


def test_who_can_never_fit_comes_at_any_place_in_a_drawn_script() -> None:
    places = set()
    for script in drawn(230):
        names, bounds = names_of(script), Bounds(script.shape)
        for place, name in enumerate(names):
            if bounds.hopeless(len(prompt_of(script, name))):
                places |= {place, place - len(names)}
    assert {0, -1} <= places


def test_drawn_scripts_are_of_all_kinds_and_each_in_its_share() -> None:
    """Some requests look nothing up, some arrive steps apart, and a third of prompts are at most half as long."""
    skipping: list[bool] = []
    short: list[bool] = []
    apart: set[int] = set()
    for script in drawn(920, seed="kinds"):
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
    for script in drawn(8_000, seed="hopeless", names=["full"]):
        bounds = Bounds(script.shape)
        if bounds.hopeless(script.shape.max_model_len - 1):
            there.append(any(bounds.hopeless(len(prompt_of(script, name))) for name in names_of(script)))
    assert len(there) > 1_000
    assert 0.22 < sum(there) / len(there) < 0.28


def test_drawn_scripts_are_scripts_and_those_made_simpler_are_as_tight() -> None:
    def slack(script: Trace) -> int:
        pairs = zip(script.operations, script.operations[1:], strict=False)
        bounds = Bounds(script.shape)
        requests = [(s, a) for s, a in pairs if isinstance(s, ops.Submit) and isinstance(a, ops.Advance)]
        return bounds.shape.num_blocks - max(bounds.most(len(s.prompt) + len(a.sampled) - 1) for s, a in requests)

    for script in drawn(23, seed="simpler"):
        assert is_script(script)
        for simpler in simpler_scripts(script):
            assert is_script(simpler)
            assert simpler.shape.groups
            assert slack(simpler) == slack(script) or simpler.shape.num_blocks == 1


SHAPE = shape_of(FULL, usable=4, budget=4)


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


def test_a_script_becomes_simpler_by_a_group_a_prompt_or_what_is_sampled() -> None:
    shape = ops.Shape((ops.Group("full", 2), ops.Group("sliding", 2, window=3)), 9, 8, 2, 2, 8)
    made = list(simpler_scripts(script_of(shape, request_of("a", 4, 3))))
    groups = [trace.shape.groups for trace in made]
    assert groups[:2] == [shape.groups[1:], shape.groups[:1]]
    sizes = [(len(prompt_of(trace, "a")), len(trace.operations[1].sampled)) for trace in made[2:]]  # type: ignore[attr-defined]
    assert sizes == [(1, 3), (2, 3), (3, 3), (4, 1), (4, 2)]
