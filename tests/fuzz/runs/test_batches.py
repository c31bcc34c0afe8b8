"""Batches and tokens in flight: what the model says, who is asked for them, and that every tool can follow them."""

import operator
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

import pytest
from blockproof.fuzz.adapters import impl_limits
from blockproof.fuzz.adapters.impl import mutable_impl
from blockproof.fuzz.adapters.impl_limits import LIMITS, LowLimits, is_short
from blockproof.fuzz.adapters.vllm.style import VllmStyleTarget
from blockproof.fuzz.adapters.vllm.surroundings import BLOCKS_MOVE, NUMBERS_VARIABLE, Surroundings
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.findings.offered import OF_TODAY
from blockproof.fuzz.findings.ops_json import operation_from_json, to_json
from blockproof.fuzz.findings.words import operation_text
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.page.words import operation_words, outcomes_part
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.lockstep import LockstepRun
from blockproof.fuzz.targets.adapting import adapted
from blockproof.fuzz.targets.answers import answers_of
from blockproof.fuzz.targets.base import check_declarations, left_out_for
from blockproof.fuzz.targets.declarations import KINDS_OF_FEW, OFFERS, STARVED
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.shrink import shrink
from blockproof.impl.pool import block_pool, hash_map
from blockproof.impl.pool.block import KVCacheBlock
from blockproof.model.core import Model
from blockproof.model.ops import Advance, Allocate, AllocateBatch, Done, Free, Group, Lookup, Refused, Shape, Submit

SHAPE = Shape((Group("full", 2),), 6, 16, 2, 2, 16)
WINDOW = Shape((Group("sliding", 2, window=2),), 12, 16, 2, 2, 16)
BATCH = AllocateBatch(("a", "b", "c"))
THREE = (
    *(operation for name in "abc" for operation in (Submit(name, (1, 2)), Allocate(name, 2), Advance(name, (3,)))),
    BATCH,
)
"""Three requests of one full block each, of which two more are free."""


class Plain:
    """Our core, without what few cores have."""

    def __init__(self):
        self._core = open_target("impl")
        self.name, self.asked = "plain", []

    def start(self, shape):
        return self._core.start(shape)

    def step(self, operation):
        self.asked.append(operation)
        return self._core.step(operation)

    def close(self):
        self._core.close()


# What the model says.


def test_a_batch_is_one_allocation_after_the_other_and_a_refusal_holds_up_no_other():
    model = Model(SHAPE)
    outcomes = [model.apply(operation) for operation in THREE]
    assert outcomes[-1] == Done((((4,),), ((5,),), None))
    freed = Model(SHAPE)
    for operation in (*THREE[:-1], *BATCH.allocations):
        freed.apply(operation)
    assert freed.snapshot() == model.snapshot()
    assert answers_of(BATCH, outcomes[-1]) == [
        (Allocate("a", 1), Done(((4,),))), (Allocate("b", 1), Done(((5,),))), (Allocate("c", 1), Refused())
    ]  # fmt: skip


@pytest.mark.parametrize("outcome", [Refused(), Done(), Done((None,)), Done("ab")])
def test_an_answer_that_is_not_one_for_each_tells_nothing(outcome):
    assert answers_of(AllocateBatch(("a", "b")), outcome) == []


@pytest.mark.parametrize(("in_flight", "nulls"), [(0, 2), (1, 1), (2, 1), (3, 0), (4, 0)])
def test_windows_are_not_cut_by_tokens_in_flight(in_flight, nulls):
    """Five tokens are settled: a query of a window of two tokens reads the block of the fifth one alone."""
    model = Model(WINDOW)
    story = Submit("a", (1,) * 8), Allocate("a", 5), Advance("a"), Allocate("a", 1, in_flight=in_flight)
    for operation in story:
        assert isinstance(model.apply(operation), Done)
    assert model.state.tables[0]["a"].count(0) == nulls
    run = LockstepRun(open_target("impl"))
    assert run.start(WINDOW) is None
    assert all(run.step(operation) is None for operation in story)


# Who is asked.


def test_our_core_has_all_that_few_cores_have_and_others_are_not_asked():
    impl, plain = open_target("impl"), Plain()
    check_declarations(impl)
    assert left_out_for(impl) == {STARVED, *OF_TODAY, *KINDS_OF_FEW}  # of which nothing can be refused
    assert left_out_for(plain) == OFFERS.keys()
    plan = Plan(1, None, 10_000)
    assert run_random(plain, plan, Summary("plain", "random", 1)).finding is None
    assert not [op for op in plain.asked if isinstance(op, AllocateBatch) or getattr(op, "in_flight", False)]


def test_the_requests_of_a_batch_are_asked_one_by_one_where_there_is_no_such_call():
    plain = Plain()
    assert replay(Trace(SHAPE, THREE), plain) == (None, Trace(SHAPE, (*THREE[:-1], *BATCH.allocations)))
    assert replay(Trace(SHAPE, THREE), open_target("impl")) == (None, Trace(SHAPE, THREE))


def test_the_contract_judges_them_one_by_one():
    judging = Judging(("lockstep", "contract"))
    finding, applied = replay(Trace(SHAPE, THREE), open_target("impl"), judging)
    assert finding is None
    assert applied.operations[-3:] == tuple(BATCH.allocations)


@pytest.mark.parametrize("oracles", [("shadow",), ("lockstep", "shadow")])
def test_the_shadow_memory_follows_a_batch(oracles):
    more = (*THREE, Advance("a", (4,)), Advance("b", (4,)), AllocateBatch(("b", "a"), 1, 1))
    assert replay(Trace(SHAPE, more), open_target("impl"), Judging(oracles)) == (None, Trace(SHAPE, more))


def test_a_child_process_offers_what_the_target_offers():
    child = open_target("impl", isolate=True)
    try:
        assert left_out_for(child) == {STARVED, *OF_TODAY, *KINDS_OF_FEW}
        assert replay(Trace(SHAPE, THREE), child) == (None, Trace(SHAPE, THREE))
    finally:
        child.close()


def test_fields_of_a_batch_are_those_of_its_allocations():
    batch = AllocateBatch(("a",), 1, 2, 3)
    assert adapted(batch, {"Allocate.in_flight"}) == AllocateBatch(("a",), 1, 2)
    assert adapted(batch, {"Allocate.lookahead"}) == AllocateBatch(("a",), 1, 0, 3)


# What follows them.


def test_a_batch_survives_a_file_and_can_be_read():
    batch = AllocateBatch(("a", "b"), 1, lookahead=2, in_flight=3)
    assert operation_from_json(to_json(batch)) == batch
    assert operation_text(batch) == "AllocateBatch a, b, lookahead=2, in_flight=3"
    said = "In one call, requests a, b ask for room for 1 token, 2 tokens of lookahead, with 3 tokens in flight each."
    assert operation_words(batch) == said
    assert outcomes_part(("model", "target"), AllocateBatch(("a", "b")), Done((((1,),), None)), Done((None, None))) == (
        "The model for a hands out blocks 1; for b refuses: there is no room. "
        "The target for a refuses: there is no room; for b refuses: there is no room."
    ).replace("blocks 1", "block 1")


def test_a_finding_of_a_batch_is_reduced_to_a_few_operations():
    name = "fault:batch-ends-with-a-refusal"
    summary = run_random(open_target(name), Plan(1, None, 10_000), Summary(name, "random", 1))
    assert summary.finding is not None
    result = shrink(summary.trace, summary.finding.kind, open_target(name))
    batches = [op for op in result.trace.operations if isinstance(op, AllocateBatch)]
    assert len(batches) == 1
    assert len(result.trace.operations) <= 8
    assert result.finding.operation == batches[0]
    assert {"a", "b"} >= set(batches[0].requests)
    assert replay(result.trace, open_target(name)) == (result.finding, result.trace)


@pytest.mark.parametrize("alone", [True, False])
def test_what_is_not_about_batches_is_shown_without_one(alone):
    """Requests of a batch become allocations while a finding is reduced, if it shows all the same."""
    name = "fault:horizon-beyond-the-table"
    story = (*THREE[:-1], *(BATCH.allocations if alone else THREE[-1:]))
    finding, applied = replay(Trace(SHAPE, story), open_target(name))
    assert finding is not None
    result = shrink(applied, finding.kind, open_target(name))
    assert not alone or not [op for op in result.trace.operations if isinstance(op, AllocateBatch)]


# Limits.


@pytest.mark.parametrize(("length", "short"), [(15, True), (16, False), (400, False)])
def test_limits_are_low_where_tables_are_short_and_during_a_call_only(length, short, monkeypatch):
    shape = Shape((Group("full", 1),), 30, length - 1 if short else length, 1, 1, 9)
    assert is_short(shape) == short
    seen: list[tuple[int, int]] = []
    original = block_pool.BlockPool.touch

    def touch(pool: block_pool.BlockPool, blocks: Sequence[KVCacheBlock]) -> None:
        seen.append((block_pool._BULK, hash_map._WORTH_A_RUN))
        original(pool, blocks)

    monkeypatch.setattr(block_pool.BlockPool, "touch", touch)
    target = open_target("impl")
    target.start(shape)
    target.step(Submit("a", (1,) * 6))
    target.step(Allocate("a", 6))
    target.step(Submit("b", (1,) * 6))
    target.step(Lookup("b"))
    target.step(Allocate("b", 1, hit=True))
    assert seen == [(2, 2) if short else (8, 8)]
    assert (block_pool._BULK, hash_map._WORTH_A_RUN) == (8, 8)


def test_a_core_that_is_made_while_another_is_called_takes_its_limits_for_low_ones_only_during_its_calls():
    shape = Shape((Group("full", 1),), 30, 14, 1, 1, 9, sampling=1)
    usual = _surroundings()
    with LowLimits(shape, "blockproof.impl"):
        assert block_pool._BULK == 2
        made = LowLimits(shape, "blockproof.impl")
    with made:
        assert block_pool._BULK == 2
    assert _surroundings() == usual


def test_limits_are_low_in_a_module_that_was_read_again(monkeypatch):
    """Random mutants are: a hunt whose limits stayed as they were never came to what is done in bulk."""
    shape, name = Shape((Group("full", 1),), 30, 14, 1, 1, 9), "blockproof.impl.today.asleep"
    again = ModuleType(name)
    vars(again).update(vars(import_module(name)))
    LowLimits(shape, "blockproof.impl")
    mutable = mutable_impl("impl-today")
    monkeypatch.setitem(sys.modules, name, again)
    mutable.forget()
    with LowLimits(shape, "blockproof.impl"):
        assert vars(again)["AWAKE"] == LIMITS["today.asleep"]["AWAKE"]
    monkeypatch.undo()
    mutable.forget()


@pytest.mark.parametrize("digests", [False, True])
def test_ctrl_c_around_a_call_leaves_limits_clock_and_chance_as_they_were(digests):
    """At each line but the first in turn: a Ctrl-C right before what is done at the end nobody can answer."""
    shape = Shape((Group("full", 1),), 30, 14, 1, 1, 9, sampling=1, event_digests=digests)
    usual, interrupted = _surroundings(), 0
    while _interrupted_at_line(interrupted, LowLimits(shape, "blockproof.impl")):
        assert _surroundings() == usual, interrupted
        interrupted += 1
    assert interrupted > 12
    assert _surroundings() == usual


def _interrupted_at_line(number, limits):
    """Enter and leave, with one Ctrl-C before this line of all that are run; False if there are not so many."""
    left = number
    changing = {Surroundings.__enter__.__code__, Surroundings.__exit__.__code__}
    begin = {
        code: next(line for *_, line in code.co_lines() if line and line > code.co_firstlineno) for code in changing
    }

    def trace(frame, event, argument):
        nonlocal left
        if frame.f_code not in changing:
            return None
        if event == "line" and frame.f_lineno != begin[frame.f_code]:  # nothing is changed there yet
            left -= 1
            if left == -1:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with limits:
            pass
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def _surroundings():
    limits = [getattr(import_module(f"blockproof.impl.{module}"), name) for module in LIMITS for name in LIMITS[module]]
    return [*limits, time.monotonic_ns, random.random, os.environ.get(NUMBERS_VARIABLE)]


class Spied(int):
    """A limit that counts how often it is asked."""

    asked = 0

    def _compared(self, other, compare):
        Spied.asked += 1
        return compare(int(self), other)

    def __lt__(self, other):
        return self._compared(other, operator.lt)

    def __le__(self, other):
        return self._compared(other, operator.le)

    def __gt__(self, other):
        return self._compared(other, operator.gt)

    def __ge__(self, other):
        return self._compared(other, operator.ge)

    def __eq__(self, other):
        return self._compared(other, operator.eq)

    __hash__ = int.__hash__


def test_no_operation_comes_to_a_limit_but_those_around_which_they_are_low(monkeypatch):
    came = Counter()
    core, apply = open_target("impl"), VllmStyleTarget._apply

    def counted(target, operation):
        before = Spied.asked
        outcome = apply(target, operation)
        came[type(operation)] += Spied.asked - before
        return outcome

    monkeypatch.setattr(VllmStyleTarget, "_apply", counted)
    monkeypatch.setattr(impl_limits, "SHORT", 0)
    for module, low in LIMITS.items():
        for name, limit in low.items():
            monkeypatch.setattr(import_module(f"blockproof.impl.{module}"), name, Spied(limit))
    assert run_random(core, Plan(1, None, 15_000), Summary("impl", "random", 1)).finding is None
    assert {kind for kind, times in came.items() if times} <= BLOCKS_MOVE
    assert min(came[kind] for kind in (Allocate, Lookup, Free)) > 0
    assert came.keys() > BLOCKS_MOVE


def test_every_limit_is_there():
    for module, names in LIMITS.items():
        for name, low in names.items():
            assert getattr(import_module(f"blockproof.impl.{module}"), name) > low
