"""Whatever a user's target answers or does, the harness reports it and goes on."""

import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy
import pytest
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.formats import plain
from blockproof.fuzz.reports.run import RunDocument
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.lockstep import LockstepRun
from blockproof.fuzz.runs.model_free import ModelFreeRun
from blockproof.fuzz.targets.answers import kept, problem_with_answer, unchanged
from blockproof.fuzz.targets.base import offering
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.shapes import ATTENTION, draw_shape
from blockproof.model import ops
from blockproof.model.ops import Done, Group, Operation, Shape, StepStart
from blockproof.model.snapshot import Snapshot

SHAPE = Shape((Group("full", 1),), 4, 4, 1, 1, 4)


class Answering:
    """Our core, whose answers are replaced."""

    name = "answering"

    def __init__(self, start: Callable[..., Any] | None = None, step: Callable[..., Any] | None = None) -> None:
        self._core = open_target("impl")
        self._start, self._step = start, step

    def start(self, shape: Shape):
        answer = self._core.start(shape)
        return self._start(*answer) if self._start else answer

    def step(self, operation: Operation):
        answer = self._core.step(operation)
        return self._step(*answer) if self._step else answer

    def close(self) -> None:
        self._core.close()


def _raise(error: BaseException) -> None:
    raise error


def _with(**fields: object) -> Callable[..., Any]:
    return lambda outcome, snapshot: (outcome, snapshot._replace(**fields))


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda outcome, snapshot: None, "returned a NoneType alone; return a tuple"),
        (lambda outcome, snapshot: (outcome, None), "the state is a NoneType"),
        (lambda outcome, snapshot: (5, snapshot), "the outcome is a int"),
        (lambda outcome, snapshot: (outcome, Snapshot(*[None] * 12)), "Snapshot.free is None"),
        (_with(tables=[]), "Snapshot.tables has 0 entries"),
        (_with(tables=[{1: 2}]), "Snapshot.tables"),
        (_with(registered={"a": 1}), "Snapshot.registered"),
        (_with(ref_cnt=numpy.zeros(4)), "Snapshot.ref_cnt"),
        (lambda outcome, snapshot: _raise(RuntimeError("boom")), "raised RuntimeError: boom"),
    ],
)
def test_an_answer_that_is_none_is_a_finding_which_says_what_is_wrong(step, words):
    lockstep = LockstepRun(Answering(step=step))
    assert lockstep.start(SHAPE) is None
    found = lockstep.step(StepStart())
    assert found.kind == ("protocol", "StepStart")
    assert words in found.detail


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("labels", [None], "Snapshot.labels has 1 entries; expected one for each of the 4 blocks"),
        ("earliest", [None] * 5, "Snapshot.earliest has 5 entries"),
        ("events", ((),), "expected a tuple of events"),
        ("events", (("stored", ({},), None, (), 1, None, None, 0),), "expected a tuple of events"),
        ("events", (("removed", (1,)),), "expected a tuple of events"),
    ],
)
def test_without_a_model_an_answer_of_another_size_is_a_finding_too(field, value, words):
    run = ModelFreeRun(Answering(step=_with(**{field: value})), Judging(("contract",)))
    assert run.start(SHAPE) is None
    assert words in run.step(StepStart()).detail
    assert words in ModelFreeRun(Answering(start=_with(**{field: value}))).start(SHAPE).detail
    lockstep = LockstepRun(Answering(start=_with(**{field: value})), Judging(("lockstep", "contract")))
    assert words in lockstep.start(SHAPE).detail


def test_a_target_that_ends_the_process_is_a_finding():
    lockstep = LockstepRun(Answering(step=lambda *answer: sys.exit(0)))
    lockstep.start(SHAPE)
    assert lockstep.step(StepStart()).kind == ("crash", "StepStart")


def test_a_core_that_is_built_but_not_shown_is_a_finding():
    found = LockstepRun(Answering(start=lambda outcome, snapshot: (Done(), None))).start(SHAPE)
    assert found.kind == ("protocol", "start")


def test_runs_whose_core_cannot_be_built_end_and_are_told_apart():
    from blockproof.fuzz.opening import known_deviations

    class NotBuilt(Answering):
        name = "vllm==0.23.0"  # known to build no core with sinks

        def start(self, shape: Shape):
            return known_deviations.model_for(self.name, shape).construction, None

    summary = run_random(NotBuilt(), Plan(1, operations=5, attention=("sink",)), Summary("vllm==0.23.0", "random", 1))
    assert summary.finding is None
    assert (summary.runs, summary.unbuilt["sink"]) == (5, 5)
    assert "not built" in plain(RunDocument.of(summary))


MISFITS: dict[str, Callable[[Shape], Shape]] = {
    "retention no multiple": lambda s: replace(s, retention_interval=s.scheduler_block_size + 1),
    "retention negative": lambda s: replace(s, retention_interval=-s.scheduler_block_size),
    "retention without windows": lambda s: replace(s, retention_interval=s.scheduler_block_size),
    "hash blocks too large": lambda s: replace(s, hash_block_size=s.hash_block_size * 2),
    "hash blocks no divisor": lambda s: replace(s, hash_block_size=s.hash_block_size + 1),
    "scheduler blocks no multiple": lambda s: replace(s, scheduler_block_size=s.scheduler_block_size + 1),
    "no groups": lambda s: replace(s, groups=()),
    "one null block": lambda s: replace(s, num_blocks=1),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_shapes_that_do_not_fit_fail_alike_on_both_sides(misfit):
    lockstep = LockstepRun(open_target("impl"))
    failed = 0
    for i, kinds in enumerate(ATTENTION.values()):
        shape = MISFITS[misfit](draw_shape(SeededDraw(f"misfit/{i}"), kinds))
        assert lockstep.start(shape) is None, shape
        failed += not lockstep.built
    assert failed


class NoHash(type):
    """A kind of types of which none can be hashed."""

    __hash__ = None


@pytest.mark.parametrize("entry", [True, 1.0, "1", None, NoHash("Odd", (), {})()])
def test_lists_of_numbers_hold_nothing_but_numbers(entry):
    _, shown = open_target("impl").start(SHAPE)
    counts = shown._replace(ref_cnt=[0, 0, entry])
    assert "expected a list of counts" in problem_with_answer(Done(), counts, 1)
    allowed = shown._replace(labels=[None, 1, entry])
    assert (problem_with_answer(Done(), allowed, 1) is None) == (entry is None)


def test_what_is_kept_of_a_snapshot_does_not_change_with_what_the_target_has_shown():
    """A target may show the very lists that it works on."""
    target = open_target("impl")
    _, shown = target.start(SHAPE)
    for operation in (ops.Submit("a", (1, 2, 3)), ops.Allocate("a", 3), ops.Advance("a", (4,))):
        _, shown = target.step(operation)
    before = deepcopy(shown)
    known = kept(shown, None, unchanged(shown, None))
    assert known == shown == before
    assert kept(deepcopy(shown), known, unchanged(deepcopy(shown), known)) is known
    first: Callable[[Any], Any] = itemgetter(0)
    nested = {"tables": lambda tables: tables[0]["a"], "registered": first, "new_block_ids": first}
    for name in Snapshot._fields:
        lists = nested.get(name, lambda value: value)(getattr(shown, name))
        if isinstance(lists, dict):
            lists["b"] = 7
        elif isinstance(lists, list):
            lists.append(7)
        else:
            continue
        assert known == before, name
        same = unchanged(shown, known)
        assert [field for field, alike in zip(Snapshot._fields, same, strict=True) if not alike] == [name]
        known = kept(shown, known, same)
        before = deepcopy(shown)
    assert problem_with_answer(Done(), shown._replace(free=None), 1, same=unchanged(shown._replace(free=None), known))
    assert not any(unchanged(shown._replace(free=[NoHash("Odd", (), {"__eq__": None})()]), known)[:1])


class ShowsItsOwn:
    """A core that shows the same lists and dictionaries each time, changed in place."""

    def __init__(self, name):
        self.name, self._core = "impl", open_target(name)
        self.close, self.offers = self._core.close, offering(self._core)

    def start(self, shape):
        outcome, self._shown = self._core.start(shape)
        return outcome, self._shown

    def step(self, operation):
        outcome, now = self._core.step(operation)
        values = [_in_place(own, value) for own, value in zip(self._shown, now, strict=True)]
        self._shown = Snapshot._make(values)
        return outcome, self._shown


def _in_place(own, now):
    """The object, changed to hold what the other one holds."""
    if isinstance(own, list):
        own[:] = [_in_place(a, b) for a, b in zip(own, now, strict=True)] if _is_nested(now) else now
    elif isinstance(own, dict):
        for name in [*own]:
            own[name] = _in_place(own[name], now[name]) if name in now else None
            if name not in now:
                del own[name]
        own.update({name: value for name, value in now.items() if name not in own})
    else:
        return now
    return own


def _is_nested(value):
    return bool(value) and isinstance(value[0], list | dict)


@pytest.mark.parametrize("name", ["impl", "fault:touch-ignores-used-blocks", "fault:hit-in-wrong-order"])
def test_a_target_may_show_the_lists_that_it_works_on(name):
    found = []
    for target in (open_target(name), ShowsItsOwn(name)):
        summary = Summary("impl", "random", 2)
        run_random(
            target, Plan(2, operations=1_500, oracles=("shadow", "contract"), attention=("full", "mamba")), summary
        )
        found.append((summary.operations, summary.finding and (summary.finding.observable, summary.finding.detail)))
    assert found[0] == found[1]
    assert (found[0][1] is None) == (name == "impl")
