import os
import random
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from blockproof.fuzz.adapters.impl import bind_impl
from blockproof.fuzz.adapters.vllm.observe import Observer
from blockproof.fuzz.adapters.vllm.style import VllmStyleTarget
from blockproof.fuzz.adapters.vllm.surroundings import NUMBERS_VARIABLE
from blockproof.fuzz.targets.base import TargetLostError
from blockproof.model import ops
from blockproof.model.ops import Group, Operation, Outcome, Shape
from blockproof.model.snapshot import Snapshot

FULL = Group("full", 2)


def shape(*groups: Group, **changes: Any) -> Shape:
    fields: dict[str, Any] = {
        "groups": groups or (FULL,),
        "num_blocks": 8,
        "max_model_len": 16,
        "hash_block_size": 2,
        "scheduler_block_size": 2,
        "max_num_batched_tokens": 16,
    }
    return Shape(**(fields | changes))


@pytest.fixture
def target() -> VllmStyleTarget:
    return VllmStyleTarget("impl", bind_impl())


def run(target: VllmStyleTarget, *operations: Operation) -> tuple[Outcome, Snapshot]:
    """Outcome of the last operation, and the state after it."""
    results = [target.step(operation) for operation in operations]
    return results[-1]


def test_a_request_from_submission_to_its_end(target: VllmStyleTarget) -> None:
    assert target.start(shape())[0] == ops.Done()
    assert run(target, ops.Submit("a", (1, 2, 3, 4, 5)))[0] == ops.Done(2)
    assert run(target, ops.Lookup("a"))[0] == ops.Done((0, ((),)))
    outcome, state = run(target, ops.Allocate("a", 5, hit=True))
    assert outcome == ops.Done(((1, 2, 3),))
    assert (state.tables, state.registered) == ([{"a": [1, 2, 3]}], [{"a": 2}])
    assert state.ref_cnt == [0, 1, 1, 1, 0, 0, 0, 0]
    assert (state.free, state.num_free) == ([4, 5, 6, 7], 4)
    assert run(target, ops.Advance("a", (6,)))[0] == ops.Done(3)
    assert run(target, ops.ReadTable("a"))[0] == ops.Done(((1, 2, 3),))
    outcome, state = run(target, ops.Free("a"))
    assert outcome == ops.Done()
    assert state.free == [4, 5, 6, 7, 3, 2, 1]
    assert state.labels == [None, 0, 1, None, None, None, None, None]


def test_hit_is_found_and_used(target: VllmStyleTarget) -> None:
    target.start(shape(stats=True))
    run(target, ops.Submit("a", (1, 2, 3, 4, 5)), ops.Allocate("a", 5), ops.Submit("b", (1, 2, 3, 4, 9)))
    assert run(target, ops.Lookup("b"))[0] == ops.Done((4, ((1, 2),)))
    outcome, state = run(target, ops.Allocate("b", 1, hit=True))
    assert outcome == ops.Done(((4,),))
    assert state.tables == [{"a": [1, 2, 3], "b": [1, 2, 4]}]
    assert state.stats == (0, 1, 5, 4, 0, 0, 0)
    assert run(target, ops.CommonPrefix("a"))[0] == ops.Done((2,))
    assert run(target, ops.TakeStats())[0] == ops.Done((False, 1, 5, 4, 0, 0, 0))


def test_computed_tokens_follow_the_scheduler(target: VllmStyleTarget) -> None:
    target.start(shape(Group("sliding", 2, window=1)))
    run(target, ops.Submit("a", (1, 2, 3, 4, 5, 6)), ops.Allocate("a", 6), ops.Advance("a", rejected=2))
    assert run(target, ops.RemoveSkipped("a"))[1].tables == [{"a": [0, 0, 3]}]
    target.start(shape(Group("sliding", 2, window=1)))
    run(target, ops.Submit("a", (1, 2, 3, 4, 5, 6)), ops.Allocate("a", 6), ops.Advance("a"), ops.Reject("a", 4))
    assert run(target, ops.RemoveSkipped("a"))[1].tables == [{"a": [0, 2, 3]}]


def test_external_tokens_are_registered_when_they_arrive(target: VllmStyleTarget) -> None:
    target.start(shape())
    _, state = run(target, ops.Submit("a", (1, 2, 3, 4)), ops.Allocate("a", 0, external=4, delay=True))
    assert (state.tables, state.registered) == ([{"a": [1, 2]}], [{"a": 0}])
    assert run(target, ops.Arrive("a"))[1].registered == [{"a": 2}]
    outcome, state = run(target, ops.Allocate("a", 1))
    assert (outcome, state.tables) == (ops.Done(((),)), [{"a": [1, 2]}])


def test_what_a_load_does_not_bring_is_not_registered(target: VllmStyleTarget) -> None:
    target.start(shape())
    run(target, ops.Submit("a", (1, 2, 3, 4, 5)), ops.Allocate("a", 0, external=4, delay=True))
    _, state = run(target, ops.Arrive("a", 1))
    assert (state.tables, state.registered, state.num_identities) == ([{"a": [1, 2]}], [{"a": 1}], 1)
    outcome, state = run(target, ops.Allocate("a", 2))
    assert (outcome, state.tables, state.registered) == (ops.Done(((3,),)), [{"a": [1, 2, 3]}], [{"a": 2}])


def test_preempted_request_starts_again(target: VllmStyleTarget) -> None:
    target.start(shape(stats=True))
    run(target, ops.Submit("a", (1, 2, 3, 4, 5)), ops.Allocate("a", 5), ops.Advance("a", (6,)))
    assert run(target, ops.Preempt("a"))[1].tables == [{}]
    outcome, state = run(target, ops.Lookup("a"))
    assert outcome == ops.Done((4, ((1, 2),)))
    assert state.stats == (0, 0, 0, 0, 1, 6, 4)


def test_refusal_and_error_are_outcomes(target: VllmStyleTarget) -> None:
    target.start(shape())
    run(target, ops.Submit("a", tuple(range(16))))
    assert run(target, ops.Allocate("a", 16))[0] == ops.Refused()
    assert run(target, ops.Allocate("a", 4, reserved=6))[0] == ops.Refused()
    assert run(target, ops.Allocate("a", 4, gate=True))[0] == ops.Refused()
    assert run(target, ops.Allocate("a", 0))[0] == ops.Failed("ValueError")
    outcome, state = run(target, ops.Take(8))
    assert outcome == ops.Failed("ValueError")
    assert state.num_free == 7


def test_holders_outside_the_tables(target: VllmStyleTarget) -> None:
    target.start(shape())
    assert run(target, ops.Take(2))[0] == ops.Done((1, 2))
    assert run(target, ops.Touch((2, 2)))[1].ref_cnt == [0, 1, 3, 0, 0, 0, 0, 0]
    assert run(target, ops.Release((1,)))[1].free == [3, 4, 5, 6, 7, 1]
    assert run(target, ops.Release((2, 2, 2)))[1].ref_cnt[2] in (0, 3)  # one batch of many references may be refused
    target.start(shape())
    assert run(target, ops.Take(2), ops.Release((2, 1), prepend=True))[1].free == [2, 1, 3, 4, 5, 6, 7]


def test_evict_reset_and_step_start(target: VllmStyleTarget) -> None:
    target.start(shape())
    run(target, ops.Submit("a", (1, 2, 3, 4)), ops.Allocate("a", 4), ops.StepStart())
    assert run(target, ops.Evict((1,)))[1].labels[:3] == [None, None, 1]
    assert run(target, ops.Reset())[0] == ops.Done(False)
    outcome, state = run(target, ops.Free("a"), ops.Reset())
    assert outcome == ops.Done(True)
    assert state.num_identities == 0


def test_duplicates_share_a_label_and_yield_the_earliest(target: VllmStyleTarget) -> None:
    target.start(shape())
    for name in "ab":
        run(target, ops.Submit(name, (1, 2, 3)), ops.Allocate(name, 3))
    _, state = run(target, ops.StepStart())
    assert state.labels == [None, 0, None, 0, None, None, None, None]
    assert state.earliest == [None, 1, None, 1, None, None, None, None]
    assert state.num_identities == 1


def test_new_block_ids_are_drained_once(target: VllmStyleTarget) -> None:
    target.start(shape())
    _, state = run(target, ops.Submit("a", (1, 2, 3)), ops.Allocate("a", 3))
    assert state.new_block_ids == [[1, 2]]
    assert run(target, ops.TakeNewBlockIds())[0] == ops.Done((1, 2))
    assert run(target, ops.TakeNewBlockIds())[0] == ops.Done(())


def test_pending_events_are_shown_without_draining_them(target: VllmStyleTarget) -> None:
    target.start(shape(events=True))
    run(
        target,
        ops.Submit("a", (1, 2, 3, 4), adapter="ad", salt="s", items=(ops.Item("i", 1, 2),)),
        ops.Allocate("a", 4),
    )
    keys = ((("ad", ""), ("i", 1, 2), "s"), (("ad", ""), ("i", -1, 2)))
    pending = ("stored", (2, 3), None, (1, 2, 3, 4), 2, "ad", keys, 0, None, None)
    assert run(target, ops.StepStart())[1].events == (pending,)
    assert run(target, ops.Evict((1,)))[1].events == (pending, ("removed", (2,), 0))
    drained = (*pending[:8], "full_attention", None)
    outcome, state = run(target, ops.TakeEvents())
    assert outcome == ops.Done((drained, ("removed", (2,), 0)))
    assert state.events == ()
    assert run(target, ops.Free("a"), ops.Reset())[1].events == (("cleared",),)


def test_embeddings_tell_prompts_apart(target: VllmStyleTarget) -> None:
    target.start(shape(events=True))
    for name, content in (("a", (1, 2, 3)), ("b", (1, 5, 3))):
        run(target, ops.Submit(name, (0, 0, 0), embeds=content), ops.Allocate(name, 3))
    _, state = run(target, ops.StepStart())
    assert state.labels == [None, 0, None, 3, None, None, None, None]  # 1 and 2 went to the event between
    assert [event[6] for event in state.events] == [((("bytes", 2),),), ((("bytes", 5),),)]  # type: ignore[index]


def test_adapter_and_salt_of_one_name_are_two_identities(target: VllmStyleTarget) -> None:
    target.start(shape())
    run(target, ops.Submit("a", (1, 2), adapter="x"), ops.Allocate("a", 2), ops.Submit("b", (1, 2), salt="x"))
    assert run(target, ops.Allocate("b", 2))[1].labels[1:3] == [0, 1]


def test_skipped_lookup_finds_nothing(target: VllmStyleTarget) -> None:
    target.start(shape())
    run(target, ops.Submit("a", (1, 2, 3)), ops.Allocate("a", 3), ops.Submit("b", (1, 2, 3), skip_lookup=True))
    assert run(target, ops.Lookup("b"))[0] == ops.Done((0, ((),)))


def test_without_caching_nothing_is_hashed(target: VllmStyleTarget) -> None:
    target.start(shape(caching=False))
    assert run(target, ops.Submit("a", (1, 2, 3)))[0] == ops.Done(0)


def test_retention_interval_reaches_the_core(target: VllmStyleTarget) -> None:
    window = Group("sliding", 2, window=3)
    kept = {}
    for interval in (None, 4, 0):
        target.start(shape(window, retention_interval=interval))
        state = run(target, ops.Submit("a", tuple(range(9))), ops.Allocate("a", 9))[1]
        kept[interval] = [label is not None for label in state.labels[1:5]]
    assert kept == {None: [True] * 4, 4: [False, True, False, True], 0: [False, False, False, True]}
    assert target.start(shape(retention_interval=4)) == (ops.Failed("ValueError"), None)


def test_unknown_requests_are_taken_as_they_come(target: VllmStyleTarget) -> None:
    target.start(shape())
    assert run(target, ops.Free("nobody"))[0] == ops.Done()
    assert run(target, ops.RemoveSkipped("nobody"))[0] == ops.Done()
    assert run(target, ops.ReadTable("nobody"))[0] == ops.Done(((),))
    assert run(target, ops.Lookup("nobody"))[0] == ops.Done((0, ((),)))


@pytest.mark.parametrize("kind", ["full", "mla", "tq", "sliding", "sliding_mla", "chunked", "mamba", "cross", "sink"])
def test_every_kind_can_be_built_and_equal_groups_have_equal_specs(target: VllmStyleTarget, kind: ops.Kind) -> None:
    group = Group(kind, 2, window=4, chunk=4, sink_len=2)
    outcome, _ = target.start(shape(group, caching=False))
    assert outcome == ops.Done()
    spec = bind_impl().spec
    assert spec(group) == spec(Group(kind, 2, window=4, chunk=4, sink_len=2, eagle=True))
    assert spec(group) != spec(Group(kind, 2, window=4, chunk=4, sink_len=2, num_heads=2))


def test_core_that_cannot_be_built_is_an_outcome(target: VllmStyleTarget) -> None:
    assert target.start(shape(num_blocks=0)) == (ops.Failed("AssertionError"), None)
    assert target.start(shape())[0] == ops.Done()


def test_unreadable_state_is_a_loss(target: VllmStyleTarget) -> None:
    target.start(shape())
    target._pool.cached_block_hash_to_block = None
    with pytest.raises(TargetLostError, match="the state can no longer be read: AttributeError") as caught:
        run(target, ops.StepStart())
    assert caught.value.kind == "protocol"


def test_a_free_queue_of_links_that_runs_in_a_circle_is_not_read_for_ever() -> None:
    blocks = [SimpleNamespace(block_id=number, ref_cnt=0) for number in range(3)]
    end = SimpleNamespace(next_free_block=None)
    for block, behind in zip(blocks, (blocks[1], blocks[2], end), strict=True):
        block.next_free_block = behind
    queue = SimpleNamespace(fake_free_list_head=blocks[0], fake_free_list_tail=end)
    pool = SimpleNamespace(blocks=blocks, free_block_queue=queue, get_num_free_blocks=lambda: 2)
    groups = SimpleNamespace(single_type_managers=[])
    observer = Observer(SimpleNamespace(block_pool=pool, coordinator=groups, usage=0.0), {})
    assert observer.holders()[0] == [1, 2]
    blocks[2].next_free_block = blocks[1]
    with pytest.raises(RuntimeError, match=r"runs in a circle: \[1, 2, 1\]"):
        observer.holders()


@pytest.mark.parametrize(("told", "value"), [(None, ((),)), ([[3]], ((3,),)), ([[]], ("not None", ()))])
def test_new_block_ids_are_asked_for_as_a_scheduler_does(
    target: VllmStyleTarget, told: list[list[int]] | None, value: ops.Value, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.start(shape())
    target.step(ops.Submit("a", (0, 1)))
    asked: list[bool] = []

    def get_block_ids(allow_none: bool = False) -> list[list[int]] | None:
        asked.append(allow_none)
        return told

    blocks = SimpleNamespace(blocks=((),), get_block_ids=get_block_ids)
    monkeypatch.setattr(target._manager, "allocate_slots", lambda *given, **named: blocks)
    assert target.step(ops.Allocate("a", 1))[0] == ops.Done(value)
    assert asked == [True]


def test_metrics_count_operations_and_leave_the_clock_of_others_alone(target: VllmStyleTarget) -> None:
    clock, chance = time.monotonic_ns, random.random
    assert target.start(shape(sampling=2))[0] == ops.Done()
    prompt = (0, 1, 2, 3)
    run(target, ops.Submit("a", prompt), ops.Allocate("a", 4), ops.Advance("a", (0,)), ops.Free("a"))
    _, shown = run(target, ops.Submit("b", prompt), ops.Lookup("b"))
    assert shown.stats == (None, ((1, 2, 2, ()),), ())  # the first of two blocks, since the second operation
    outcome, shown = run(target, ops.Allocate("b", 2, hit=True), ops.Evict((1,)), ops.TakeStats())
    assert outcome == ops.Done((None, ((6.0, 1.0, ()),)))
    assert shown.stats == (None, ((3, 7, 7, ()),), ())
    assert (time.monotonic_ns, random.random) == (clock, chance)


def test_a_shape_without_metrics_has_no_collector(target: VllmStyleTarget) -> None:
    target.start(shape(stats=True))
    assert target._manager.block_pool.metrics_collector is None
    assert target.look().stats == (0,) * 7


@pytest.mark.parametrize("digests", [False, True])
def test_the_form_of_names_in_events_is_looked_at(
    target: VllmStyleTarget, digests: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two groups, one with larger blocks: a number is that of the last small block, a digest one of its own."""
    monkeypatch.setenv(NUMBERS_VARIABLE, "1")
    of_shape = shape(Group("full", 2), Group("sliding", 4, window=9), scheduler_block_size=4, events=True)
    of_shape = replace(of_shape, event_digests=digests)
    assert target.start(of_shape)[0] == ops.Done()
    _, shown = run(target, ops.Submit("a", (0, 1, 2, 3)), ops.Allocate("a", 4))
    small, large = (cast(tuple[Any, ...], event)[1] for event in shown.events)
    assert len(small) == 2
    assert (small[1] == large[0]) == (not digests)
    assert not [event for event in shown.events if "odd names" in str(event)]
    for event in target._pool.kv_event_queue:
        assert {type(name) for name in event.block_hashes} == {bytes if digests else int}
        event.block_hashes = [name[:-8] if digests else name + 1 for name in event.block_hashes]
    target._observer._seen_events.clear()
    target._observer._event_values = ()
    assert [cast(tuple[Any, ...], event)[-1] for event in target.look().events] == [("odd names", 2), ("odd names", 1)]
    assert os.environ[NUMBERS_VARIABLE] == "1"
