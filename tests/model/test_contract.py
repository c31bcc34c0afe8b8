"""What holds of every run: refusals and errors change nothing, nothing leaks, the prediction is exact."""

from typing import Any

import pytest
from blockproof.fuzz.workload.shapes import ATTENTION
from blockproof.model.attention import Mamba, most_states
from blockproof.model.core import Model
from blockproof.model.legal import allows, misuse
from blockproof.model.ops import (
    NULL,
    Allocate,
    Done,
    Failed,
    Free,
    Group,
    Refused,
    Reset,
    Shape,
    Submit,
    Take,
)
from blockproof.model.snapshot import Snapshot
from blockproof.model.tables import Policy, predicted

from .running import core, done, runs, steps


def without(snapshot, *names):
    return [getattr(snapshot, name) for name in Snapshot._fields if name not in names]


def only_skipped(before, after):
    """True if the views differ in freed, skipped blocks only: entries that became null, and what follows."""
    for old, new in zip(before.tables, after.tables, strict=True):
        if old.keys() != new.keys():
            return False
        for name, table in old.items():
            pairs = list(zip(table, new[name], strict=True))
            if any(was != now and now != NULL for was, now in pairs):
                return False
    kept = without(after, "free", "num_free", "usage", "ref_cnt", "tables")
    fewer = all(now <= was for was, now in zip(before.ref_cnt, after.ref_cnt, strict=True))
    return fewer and kept == without(before, "free", "num_free", "usage", "ref_cnt", "tables")


def test_a_refusal_changes_nothing_but_skipped_blocks():
    refusals = nulled = 0
    for model, workload, where in runs(seeds=69):
        for _, before, outcome, after in steps(model, workload):
            if outcome == Refused():
                refusals += 1
                nulled += before != after
                assert only_skipped(before, after), where
    assert refusals > 100
    assert nulled


class TakesBeforeItRefuses(Model):
    """Hands the hit over before it knows whether the rest fits."""

    def predicted(self, plan, counts, *, capped=False):
        demand = super().predicted(plan, counts, capped=capped)
        if demand > self.state.num_free() > 0:
            self.state.take(1)
        return demand


def test_a_refusal_that_changes_more_is_noticed():
    assert not all(
        only_skipped(before, after)
        for model, workload, _ in runs(seeds=23, kind=TakesBeforeItRefuses)
        for _, before, outcome, after in steps(model, workload)
        if outcome == Refused()
    )


def test_an_error_changes_nothing():
    failures = 0
    for model, workload, where in runs(seeds=69, chaos=True):
        before = model.snapshot()
        for _ in range(120):
            operation = workload.next(model)
            outcome, after = model.step(operation)
            if isinstance(outcome, Failed):
                failures += 1
                assert after == before, (where, operation)
            before = after
    assert failures > 100


def test_only_misuse_and_taking_too_many_blocks_are_answered_with_an_error():
    for model, workload, where in runs(seeds=69, chaos=True):
        for _ in range(120):
            operation = workload.next(model)
            assert allows(model, operation), (where, operation)
            wrong = misuse(model, operation)
            outcome, _ = model.step(operation)
            too_many = isinstance(operation, Take) and operation.count > model.state.num_free()
            assert wrong or too_many or not isinstance(outcome, Failed), (where, operation, outcome)


@pytest.mark.parametrize("name", ATTENTION)
def test_after_the_drain_the_pool_is_whole(name):
    for model, workload, where in runs((name,), 4):
        for _ in steps(model, workload):
            pass
        for operation in workload.drain(model):
            _, last = model.step(operation)
            assert len(set(last.free)) == len(last.free), where
        after = model.snapshot()
        assert sorted(after.free + model.state.sinks) == list(range(1, model.shape.num_blocks)), where
        assert not any([*after.tables, *after.registered]), where


def test_a_run_is_the_same_every_time():
    def trail():
        return [
            (operation, outcome, after)
            for model, workload, _ in runs(seeds=23)
            for operation, _, outcome, after in steps(model, workload, 60)
        ]

    assert trail() == trail()


class Predicting(Model):
    """Keeps the last prediction, and what was free at that time."""

    def predicted(self, plan, counts, *, capped=False):
        self.prediction = super().predicted(plan, counts, capped=capped)
        self.free_then = frozenset(self.state.queue())
        return self.prediction


def inexact(kind):
    """Allocations whose prediction is not the number of blocks that leave the free queue (T7)."""
    for model, workload, where in runs(seeds=115, kind=kind):
        for operation, _, outcome, after in steps(model, workload):
            if isinstance(operation, Allocate) and isinstance(outcome, Done):
                assert isinstance(model, Predicting)
                taken = len(model.free_then.difference(after.free))  # others may enter it: states that are dropped
                if taken != model.prediction:
                    yield where, operation, model.prediction, taken


def test_the_prediction_is_the_number_of_blocks_that_leave_the_free_queue():
    assert list(inexact(Predicting)) == []


def forgets_candidates(shape):
    """A model that does not count eviction candidates among the hit."""

    def without(core, group, plan, counts, capped):
        return predicted(core, group, plan, [1] * len(counts), capped)

    return Predicting(shape, Policy(predicted=without))


def test_a_prediction_without_eviction_candidates_is_found_inexact():
    assert next(inexact(forgets_candidates), None) is not None


def test_freeing_twice_or_an_unknown_request_changes_nothing():
    model = core(Group("full", 2))
    done(model, Submit("a", (1, 2, 3)))
    done(model, Allocate("a", 3))
    done(model, Free("a"))
    before = model.snapshot()
    for name in ("a", "nobody"):
        assert model.step(Free(name)) == (Done(), before)


def test_a_reset_is_refused_while_a_block_is_in_use():
    model = core(Group("full", 2))
    done(model, Submit("a", (1, 2, 3)))
    done(model, Allocate("a", 3))
    before = model.snapshot()
    assert done(model, Reset()) is False
    assert model.snapshot() == before
    done(model, Free("a"))
    assert done(model, Reset()) is True
    assert model.snapshot().num_identities == 0


def test_an_align_mode_table_holds_the_running_states_and_one_more_at_most_or_those_that_drafts_reach_over():
    """T15."""
    most = dict.fromkeys(range(4), 0)
    for model, workload, where in runs(("mamba", "full+mamba", "full+mamba+mamba"), 120):
        for _, _, _, after in steps(model, workload):
            for rule, tables in zip(model.rules, after.tables, strict=True):
                if isinstance(rule, Mamba) and rule.align:
                    held = [sum(block != NULL for block in table) for table in tables.values()]
                    assert max(held, default=0) <= most_states(rule, model.shape.max_model_len), where
                    if rule.b > rule.p:
                        assert max(held, default=0) <= 2 + rule.p + (rule.b < 2 * rule.p - 1), where
                    most[rule.p] = max(most[rule.p], *held, 0)
    assert most[0] == 2
    assert all(held > 2 + p for p, held in most.items() if p > 0)


FULL = Group("full", 2)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"num_blocks": 0}, "AssertionError"),
        ({"groups": ()}, "AssertionError"),
        ({"groups": (FULL, FULL)}, "AssertionError"),
        ({"hash_block_size": 1}, "AssertionError"),
        ({"scheduler_block_size": 3}, "AssertionError"),
        ({"retention_interval": 2}, "ValueError"),
        ({"groups": (Group("sliding", 2, window=3),), "retention_interval": 3}, "ValueError"),
        ({"groups": (Group("sliding", 2, window=3),), "retention_interval": -2}, "ValueError"),
        ({"groups": (Group("sink", 2, sink_len=3),)}, "AssertionError"),
        ({"groups": (FULL, Group("sliding", 2, window=3)), "decode_parallel": 2}, "AssertionError"),
        ({"groups": (Group("sink", 2, sink_len=8),)}, "ValueError"),
    ],
)
def test_a_shape_that_no_core_can_have_fails_at_construction(changes, error):
    sound: dict[str, Any] = {
        "groups": (FULL,),
        "num_blocks": 4,
        "max_model_len": 8,
        "hash_block_size": 2,
        "scheduler_block_size": 2,
    }
    assert Model(Shape(**sound, max_num_batched_tokens=8)).construction == Done()
    assert Model(Shape(**(sound | changes), max_num_batched_tokens=8)).construction == Failed(error)
