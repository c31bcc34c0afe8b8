"""Scripts of liveness: what is drawn reaches all that is judged, and what a script is and is reduced to."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import pytest
from blockproof.fuzz.adapters.impl import open_impl
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.findings.oracle_names import SHADOW
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.oracles.liveness import draw_script, is_script, judge, simpler_scripts
from blockproof.fuzz.oracles.liveness.bounds import Bounds
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.lockstep import LockstepRun
from blockproof.fuzz.runs.model_free import ModelFreeRun
from blockproof.fuzz.workload.draw import SeededDraw
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


def test_a_target_that_looks_nothing_up_is_not_asked_to() -> None:
    seen = Counter[str]()
    for script in drawn(40, seed="no lookup"):
        finding, run = judged(Limited(open_impl(), lacks=("Lookup",)), script)
        assert finding is None, f"{finding}\n{script}"
        assert not run.scene.requests
        seen.update(type(operation).__name__ for operation in run.operations)
        assert not any(isinstance(operation, ops.Allocate) and operation.hit for operation in run.operations)
    assert seen["Allocate"]
    assert not seen["Lookup"]


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


class _Asked(NamedTuple):
    """What a drawn script asks for."""

    script: Trace
    bounds: Bounds
    requests: list[tuple[ops.Submit, ops.Advance]]
    never: list[int]
    """The places of those that can never fit."""

    @property
    def fitting(self) -> list[tuple[ops.Submit, ops.Advance]]:
        return [pair for place, pair in enumerate(self.requests) if place not in self.never]

    @property
    def largest(self) -> int:
        return max(self.bounds.most(len(submit.prompt) + len(end.sampled) - 1) for submit, end in self.fitting)


def _asked(script: Trace) -> _Asked:
    bounds, parts = Bounds(script.shape), iter(op for op in script.operations if not isinstance(op, ops.StepStart))
    requests = [(op, end) for op, end in zip(parts, parts, strict=True) if isinstance(op, ops.Submit)]
    ends = [(op, end) for op, end in requests if isinstance(end, ops.Advance)]
    return _Asked(script, bounds, ends, [i for i, (op, _) in enumerate(ends) if bounds.hopeless(len(op.prompt))])


@pytest.fixture(scope="module")
def many() -> list[_Asked]:
    return [_asked(script) for script in drawn(8_000, seed="hopeless", names=["full"])]


def _shares(values: Iterable[object]) -> dict[object, float]:
    counts = Counter(values)
    return {value: count / counts.total() for value, count in counts.items()}


def _evenly(**shares: float) -> dict[object, object]:
    """What `_shares` should be, in sixths; the names end in the values."""
    return {int(name.strip("_")): pytest.approx(share / 6, abs=0.02) for name, share in shares.items()}


def test_drawn_scripts_are_of_all_sizes_and_each_in_its_share(many: list[_Asked]) -> None:
    assert _shares(len(one.fitting) for one in many) == _evenly(_1=1, _2=2, _3=1, _4=1, _6=1)
    shapes = [one.script.shape for one in many]
    assert _shares(shape.max_num_batched_tokens == 2 * shape.max_model_len for shape in shapes) == _evenly(_0=4, _1=2)
    tokens = [token for one in many[:1000] for op, end in one.requests for token in (*op.prompt, *end.sampled)]
    assert _shares(tokens) == _evenly(_0=2, _1=2, _2=2)
    skipping = _shares(op.skip_lookup for one in many for op, _ in one.requests)
    assert skipping[True] == pytest.approx(0.1, abs=0.005), "one of ten looks nothing up"


def test_the_pool_of_a_drawn_script_has_room_for_little_more_than_its_largest_request(many: list[_Asked]) -> None:
    room = [(one.bounds.usable - one.largest, one.largest) for one in many if one.largest > 2]
    assert len(room) > 2_000
    told = [more if more <= 2 else 4 if more == most else 5 if more == 3 * most else 6 for more, most in room]
    assert _shares(told) == _evenly(_0=2, _1=1, _2=1, _4=1, _5=1)


def test_requests_of_a_drawn_script_come_at_once_or_steps_apart(many: list[_Asked]) -> None:
    apart = []
    for one in many[:2000]:
        places = [place for place, op in enumerate(one.script.operations) if isinstance(op, ops.Submit)]
        assert places[0] == 0
        assert len(one.script.operations) == places[-1] + 2
        apart += [later - earlier - 2 for earlier, later in pairwise(places)]
    assert _shares(apart) == _evenly(_0=3.6, _1=1.2, _3=1.2)


def test_requests_of_a_drawn_script_are_of_all_lengths_that_end_within_the_limit(many: list[_Asked]) -> None:
    short, room, sampled = [], set(), set()
    for one in many:
        longest = one.script.shape.max_model_len - 1
        for op, end in one.fitting:
            short.append(len(op.prompt) <= longest // 2)
            room.add(one.script.shape.max_model_len - len(op.prompt) - len(end.sampled))
            sampled.add(len(end.sampled))
            assert len(op.prompt) >= 1
    assert min(room) == 0
    assert sampled == set(range(1, 13))
    assert 0.6 < sum(short) / len(short) < 0.72, "all of the third, and half of the others"


def test_prompts_of_a_drawn_script_begin_as_one_of_two_families(many: list[_Asked]) -> None:
    """Half of them to their end, and a quarter in their first half. Two of them are of one family as often as not."""
    whole, half = [], []
    for one in many:
        if len(one.fitting) == 2:
            first, second = sorted((op.prompt for op, _ in one.fitting), key=len)
            if len(first) > 7:
                whole.append(second[: len(first)] == first)
                half.append(second[:4] == first[:4])
    assert len(whole) > 300
    assert 0.12 < sum(whole) / len(whole) < 0.16, "both of a family, and both its beginning"
    assert 0.27 < sum(half) / len(half) < 0.33


def test_a_quarter_of_drawn_scripts_has_a_request_that_can_never_fit_if_one_is_short_enough(many: list[_Asked]) -> None:
    possible = [one for one in many if one.bounds.hopeless(one.script.shape.max_model_len - 1)]
    assert len(possible) > 1_000
    assert 0.22 < sum(bool(one.never) for one in possible) / len(possible) < 0.28
    for one in possible:
        for place in one.never:
            op, end = one.requests[place]
            assert len(end.sampled) == 1
            assert not one.bounds.hopeless(len(op.prompt) - 1), "it is the shortest"


def test_who_can_never_fit_comes_at_any_place_in_a_drawn_script(many: list[_Asked]) -> None:
    for number in (2, 3):
        places = _shares(one.never[0] for one in many if one.never and len(one.requests) == number)
        assert places == {place: pytest.approx(1 / number, abs=0.1) for place in range(number)}


@pytest.mark.parametrize("losses", [(), ("room-ahead",), ("mamba-states-pile-up",)])
@pytest.mark.parametrize("name", ["mamba", "sink", "sliding"])
def test_the_pool_of_a_drawn_script_holds_each_request_that_can_fit(name: str, losses: Sequence[str]) -> None:
    slack = []
    for i in range(40):
        draw = SeededDraw(f"holds/{i}")
        one = _asked(draw_script(draw, ATTENTION[name], block_sizes=(2, 4), losses=frozenset(losses)))
        shape = one.script.shape
        assert {group.block_size for group in shape.groups} <= {2, 4}
        assert shape.max_num_batched_tokens >= max(
            (group.block_size for group in shape.groups if name == "mamba"), default=1
        )
        bounds = Bounds(shape, frozenset(losses))
        most = max(bounds.most(len(submit.prompt) + len(end.sampled) - 1) for submit, end in one.fitting)
        slack.append(bounds.usable - most)
    assert min(slack) == 0


@pytest.mark.parametrize(
    "parts",
    [
        [request_of("a", 1, 1)],
        [request_of("a", 7, 1), request_of("b", 1, 7)],
        [request_of("a", 1, 1), [ops.StepStart(), ops.StepStart()], request_of("b", 1, 1), [ops.StepStart()]],
        [[ops.StepStart()], request_of("a", 1, 1)],
    ],
)
def test_requests_and_steps_between_them_are_a_script(parts: Sequence[Sequence[ops.Operation]]) -> None:
    script = script_of(shape_of(FULL, usable=8, budget=4), *parts)
    assert is_script(script)
    finding, run = judged(open_impl(), script)
    assert finding is None
    assert run.seen["liveness: request finished"] == len(names_of(script))


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
    shape = ops.Shape((ops.Group("full", 2), ops.Group("sliding", 2, window=3)), 19, 18, 2, 2, 8)
    made = [_asked(trace) for trace in simpler_scripts(script_of(shape, request_of("a", 9, 6)))]
    assert [one.script.shape.groups for one in made[:2]] == [shape.groups[1:], shape.groups[:1]]
    sizes = [(len(op.prompt), len(end.sampled)) for one in made for op, end in one.requests]
    prompts, sampled = [1, 4, 7, 8], [1, 3, 4, 5]
    assert sizes == [(9, 6)] * 2 + [(count, 6) for count in prompts] + [(9, count) for count in sampled]
    slack = Bounds(shape).usable - Bounds(shape).most(14)
    assert [one.bounds.usable - one.largest for one in made] == [slack] * len(made)
    alone = script_of(
        replace(shape, groups=shape.groups[:1], num_blocks=2), request_of("a", 2, 1), request_of("b", 8, 1)
    )
    made = [_asked(trace) for trace in simpler_scripts(alone)]
    assert [[len(op.prompt) for op, _ in one.requests] for one in made] == [[1, 8], [2, 1], [2, 4], [2, 6], [2, 7]]
    assert [one.script.shape.num_blocks for one in made] == [2, 1, 1, 1, 2], (
        "as little as the largest, and the null block"
    )
