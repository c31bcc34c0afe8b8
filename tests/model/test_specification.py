"""The numbered rules and examples of the specification (core.md §10 and its known deviations), one test each."""

import pytest
from blockproof.model.ops import (
    NULL,
    Advance,
    Allocate,
    Arrive,
    CommonPrefix,
    Done,
    Evict,
    Failed,
    Free,
    Group,
    Lookup,
    Preempt,
    ReadTable,
    Refused,
    Release,
    RemoveSkipped,
    Submit,
    Take,
    TakeNewBlockIds,
    TakeStats,
    Touch,
)

from .running import core, done, refused


def running(*groups, prompt=(1, 2, 3, 4, 5, 6), new=6, **switches):
    model = core(*groups, **switches)
    done(model, Submit("a", prompt))
    done(model, Allocate("a", new))
    return model


# Allocation, step by step.


def test_step_1_neither_new_nor_external_tokens_is_an_error():
    model = core(Group("full", 2))
    done(model, Submit("a", (1, 2)))
    assert model.step(Allocate("a", 0))[0] == Failed("ValueError")


def test_step_3_the_gate_asks_for_the_whole_sequence():
    model = core(Group("full", 2), num_blocks=4)
    done(model, Submit("a", tuple(range(8))))
    assert refused(model, Allocate("a", 2, gate=True))
    done(model, Allocate("a", 2))


def test_step_3_the_gate_asks_a_sliding_window_for_its_cap_only():
    model = core(Group("sliding", 2, window=3), num_blocks=5, max_num_batched_tokens=2)
    done(model, Submit("a", tuple(range(20))))
    done(model, Allocate("a", 2, gate=True))


def test_step_4_lookahead_is_cut_at_the_model_length():
    model = core(Group("full", 2), max_model_len=6)
    done(model, Submit("a", (1, 2, 3)))
    assert done(model, Allocate("a", 3, lookahead=100)) == ((1, 2, 3),)


def test_step_5_skipped_blocks_are_given_back_even_if_step_6_refuses():
    model = running(Group("sliding", 2, window=3), num_blocks=5, max_model_len=64)
    done(model, Advance("a", tuple(range(20))))
    before = model.snapshot()
    assert refused(model, Allocate("a", 20))
    after = model.snapshot()
    assert before.tables == [{"a": [1, 2, 3]}]
    assert after.tables == [{"a": [NULL, NULL, 3]}]
    assert after.labels == before.labels


def test_step_6_reserved_blocks_are_not_for_this_request():
    model = core(Group("full", 2), num_blocks=4)
    done(model, Submit("a", (1, 2, 3, 4)))
    assert refused(model, Allocate("a", 4, reserved=2))
    done(model, Allocate("a", 4, reserved=1))


def test_step_8_registers_no_draft():
    model = running(Group("full", 2), prompt=(1, 2, 3), new=6)
    assert model.snapshot().registered == [{"a": 1}]


def test_step_8_delayed_tokens_are_registered_when_they_arrive():
    model = core(Group("full", 2))
    done(model, Submit("a", (1, 2, 3, 4)))
    assert done(model, Allocate("a", 0, external=4, delay=True)) == ((),)
    assert model.snapshot().num_identities == 0
    done(model, Arrive("a"))
    assert model.snapshot().num_identities == 2
    assert model.requests["a"].computed == 3  # the last token of a fully loaded prompt is computed again


@pytest.mark.parametrize(("missing", "registered"), [(0, 2), (1, 1), (2, 1), (3, 0)])
def test_what_is_missing_of_a_load_is_not_registered_and_is_computed_in_the_blocks_that_are_there(missing, registered):
    model = core(Group("full", 2))
    done(model, Submit("a", (1, 2, 3, 4, 5)))
    done(model, Allocate("a", 0, external=4, delay=True))
    done(model, Arrive("a", missing))
    assert (model.requests["a"].computed, model.snapshot().registered) == (4 - missing, [{"a": registered}])
    assert model.snapshot().tables == [{"a": [1, 2]}]
    assert done(model, Allocate("a", 1 + missing)) == ((3,),)
    assert model.snapshot().registered == [{"a": 2}]


def test_step_9_returns_the_blocks_of_the_extension_only():
    model = running(Group("full", 2))
    done(model, Submit("b", (1, 2, 3, 4, 9, 9)))
    assert done(model, Lookup("b")) == (4, ((1, 2),))
    assert done(model, Allocate("b", 2, hit=True)) == ((4,),)
    assert done(model, ReadTable("b")) == ((1, 2, 4),)


def test_a_refused_request_may_come_again_when_there_is_room():
    model = running(Group("full", 2), num_blocks=4)
    done(model, Submit("b", (9, 9)))
    assert model.step(Allocate("b", 2))[0] == Refused()
    done(model, Free("a"))
    done(model, Allocate("b", 2))


# Per type.


def test_a_window_nulls_what_no_later_query_reads():
    model = running(Group("sliding", 2, window=3))
    done(model, Advance("a", (7,)))
    done(model, RemoveSkipped("a"))
    assert done(model, ReadTable("a")) == ((NULL, NULL, 3),)


def test_align_mode_keeps_the_running_state_and_the_drafts():
    model = running(Group("mamba", 2, mamba_mode="align", speculative_blocks=1), new=2)
    assert done(model, ReadTable("a")) == ((1, 2),)
    done(model, Advance("a"))
    done(model, Allocate("a", 4))
    assert done(model, ReadTable("a")) == ((1, NULL, 2, 3),)


def test_cross_attention_is_sized_by_the_encoder_s_tokens():
    model = core(Group("cross", 2), caching=False)
    done(model, Submit("a", (1, 2, 3, 4, 5, 6)))
    assert done(model, Allocate("a", 6, encoder_tokens=3)) == ((1, 2),)


def test_sinks_are_set_aside_for_good():
    model = core(Group("sink", 2, sink_len=4), num_blocks=6)
    assert model.snapshot().free == [3, 4, 5]
    done(model, Submit("a", (1, 2, 3)))
    done(model, Allocate("a", 3))
    done(model, Free("a"))
    assert 1 not in model.snapshot().free


def test_new_block_ids_are_collected_for_full_attention_only():
    model = running(Group("full", 2), Group("sliding", 2, window=3))
    assert done(model, TakeNewBlockIds()) == (1, 2, 3)
    assert done(model, TakeNewBlockIds()) == ()


def test_statistics_count_requests_preempted_before_apart():
    model = core(Group("full", 2), stats=True)
    done(model, Submit("a", (1, 2, 3)))
    done(model, Lookup("a"))
    done(model, Allocate("a", 3))
    done(model, Preempt("a"))
    done(model, Lookup("a"))
    assert done(model, TakeStats()) == (False, 1, 3, 0, 1, 3, 2)
    assert done(model, TakeStats()) == (False, 0, 0, 0, 0, 0, 0)


# Known deviations of the reference: what the model does.


def test_deviation_2_an_adapter_and_a_salt_of_one_name_do_not_share_blocks():
    model = core(Group("full", 2))
    for name, adapter, salt in (("a", "x", None), ("b", None, "x"), ("c", "x", None)):
        done(model, Submit(name, (1, 2, 3), adapter, salt))
        hit = done(model, Lookup(name))[0]
        assert hit == (2 if name == "c" else 0)
        done(model, Allocate(name, 3))


def test_deviation_3_the_chunked_cap_counts_the_block_that_a_chunk_drags_along():
    model = core(Group("chunked", 5, chunk=2), max_num_batched_tokens=7, max_model_len=64)
    assert model.rules[0].cap() == 3


def test_deviation_5_asking_for_the_common_prefix_of_an_unknown_request_changes_nothing():
    model = running(Group("full", 2))
    assert done(model, CommonPrefix("a")) == (3,)
    before = model.snapshot()
    assert model.step(CommonPrefix("nobody")) == (Done((0,)), before)
    assert done(model, CommonPrefix("a")) == (3,)


def test_deviation_6_misuse_of_the_pool_is_an_error_that_changes_nothing():
    model = running(Group("full", 2))
    done(model, Take(1))
    done(model, Touch((1,)))
    before = model.snapshot()
    for operation in (Release((5,)), Release((4, 4)), Release((1, 1, 4)), Take(-1), Evict((99,)), Evict((-1,))):
        outcome, after = model.step(operation)
        assert isinstance(outcome, Failed)
        assert after == before
    done(model, Release((4, 1)))
    assert model.snapshot().free[-1] == 4
