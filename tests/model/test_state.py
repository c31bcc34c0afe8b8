"""What the model derives: references, the free queue and its order, identities, and which block a lookup yields."""

from collections import Counter

import pytest
from blockproof.model.attention import CoreError
from blockproof.model.identity import Identities, extra_keys
from blockproof.model.ops import NULL, Allocate, Evict, Free, Group, Item, Release, Submit, Take, Touch
from blockproof.model.state import State

from .running import core, done, runs, steps


def pool(num_blocks=6):
    """A pool whose blocks 1 to n-1 one table holds."""
    state = State(num_blocks, 1)
    state.tables[0]["a"] = state.take(num_blocks - 1)
    return state


def give_back(state, blocks, front=False):
    """Those blocks leave the table, as one batch."""
    table = state.tables[0]["a"]
    for block in blocks:
        table.remove(block)
    state.let_go(blocks, front)


@pytest.mark.parametrize("name", ["full", "full+sliding", "sliding+mamba", "sink", "full+mamba+mamba"])
def test_references_are_table_entries_and_outside_holders(name):
    for model, workload, where in runs((name,), 6):
        for _, _, _, after in steps(model, workload):
            held = [block for tables in after.tables for table in tables.values() for block in table]
            counts = Counter(held + model.state.outside + model.state.sinks)
            counts[NULL] = 0
            assert after.ref_cnt == [counts[block] for block in range(model.shape.num_blocks)], where
            assert sorted(after.free) == [b for b in range(1, model.shape.num_blocks) if not counts[b]], where
            assert after.num_free == len(after.free), where


def test_a_fresh_pool_is_used_in_the_order_of_block_ids():
    assert State(5, 1).queue() == [1, 2, 3, 4]


def test_blocks_let_go_queue_up_at_the_back_in_the_given_order():
    state = pool()
    give_back(state, [3, 1])
    give_back(state, [5])
    assert state.queue() == [3, 1, 5]


def test_blocks_let_go_to_the_front_stand_there_in_the_given_order():
    state = pool()
    give_back(state, [3])
    give_back(state, [1, 4], front=True)
    give_back(state, [2, 5], front=True)
    assert state.queue() == [2, 5, 1, 4, 3]


def test_a_block_that_stands_twice_in_a_batch_queues_up_once_where_it_stands_last():
    for front in (False, True):
        state = pool()
        state.tables[0]["a"] += [2]
        give_back(state, [2, 3, 2], front)
        assert state.queue() == [3, 2]


def test_a_block_that_somebody_still_holds_and_the_null_block_do_not_queue_up():
    state = pool()
    state.tables[0]["a"] += [NULL, 2]
    give_back(state, [NULL, 2, 3])
    assert state.queue() == [3]


def test_taking_more_than_there_are_or_a_negative_number_is_an_error_that_changes_nothing():
    state = State(4, 1)
    for count in (4, -1):
        with pytest.raises(CoreError, match="ValueError"):
            state.take(count)
        assert state.queue() == [1, 2, 3]


def test_blocks_with_an_identity_go_to_the_back_and_others_to_the_front():
    state = pool()
    state.register(2, (0, Identities()(None, (1,), ())))
    give_back(state, [5])
    state.tables[0]["a"] = [1]
    state.let_go_by_identity([4, 2, 3])
    assert state.queue() == [4, 3, 5, 2]


def test_a_request_s_blocks_are_reused_from_its_end():
    model = core(Group("full", 2), num_blocks=5)
    done(model, Submit("a", (1, 2, 3, 4)))
    done(model, Allocate("a", 4))
    done(model, Free("a"))
    assert model.state.queue() == [3, 4, 2, 1]


def test_an_identity_is_its_content():
    named = Identities()
    first = named(None, [1, 2], ())
    variants = [
        (None, (1, 2), ()),
        (None, (2, 1), ()),
        (None, (1, 2, 3), ()),
        (None, (1, 2), (("salt", "x"),)),
        (None, (1, 2), (("adapter", "x"),)),
        (first, (1, 2), ()),
        (named(None, (2, 1), ()), (1, 2), ()),
        (named(first, (1, 2), ()), (1, 2), ()),
    ]
    for i, one in enumerate(variants):
        for j, other in enumerate(variants):
            assert (named(*one) is named(*other)) == (i == j)
    assert named(None, (1, 2), ()) is first


def test_extra_keys_are_tagged_and_ordered():
    submit = Submit("a", (0, 0, 0, 0), "x", salt="x", items=(Item("p", 1, 2),), embeds=(4, 5, 6, 7))
    assert extra_keys(submit, 0, 2) == (
        ("adapter", ("x", "")),
        ("item", ("p", 1, 2)),
        ("salt", "x"),
        ("embeds", ((0, 4), (1, 5))),
    )
    assert extra_keys(submit, 2, 4) == (("adapter", ("x", "")), ("item", ("p", -1, 2)), ("embeds", ((0, 6), (1, 7))))


def test_an_item_belongs_to_the_blocks_that_hold_one_of_its_tokens():
    submit = Submit("a", (0,) * 8, items=(Item("p", 2, 4),))
    assert [bool(extra_keys(submit, start, start + 2)) for start in (0, 2, 4, 6)] == [False, True, True, False]


def same_content_twice():
    """Two requests that computed one prompt side by side: blocks 1, 2 and 3, 4; 1 and 3 carry one identity."""
    model = core(Group("full", 2))
    for name in ("a", "b"):
        done(model, Submit(name, (1, 2, 3)))
        done(model, Allocate(name, 3))
    return model


def test_a_lookup_yields_the_block_that_was_registered_first_and_is_still_there():
    model = same_content_twice()
    assert model.snapshot().earliest[:5] == [None, 1, None, 1, None]
    done(model, Evict((1,)))
    assert model.snapshot().earliest[:5] == [None, None, None, 3, None]
    assert model.snapshot().num_identities == 1


def test_a_block_keeps_its_identity_until_it_is_handed_out_again():
    model = core(Group("full", 2), num_blocks=4)
    done(model, Submit("a", (1, 2, 3)))
    done(model, Allocate("a", 3))
    done(model, Free("a"))
    assert model.snapshot().labels == [None, 0, None, None]
    assert done(model, Take(2)) == (3, 2)
    assert model.snapshot().labels == [None, 0, None, None]
    assert done(model, Take(1)) == (1,)
    assert model.snapshot().labels == [None] * 4


def test_registering_over_an_identity_is_an_error():
    state, identity = pool(), Identities()(None, (1,), ())
    state.register(1, (0, identity))
    with pytest.raises(CoreError, match="AssertionError"):
        state.register(1, (0, identity))


def test_outside_holders_count_once_for_each_reference():
    model = core(Group("full", 2), num_blocks=4)
    done(model, Take(1))
    done(model, Touch((1, 1)))
    assert model.snapshot().ref_cnt == [0, 3, 0, 0]
    done(model, Release((1, 1)))
    assert model.state.queue() == [2, 3]
    done(model, Release((1,), prepend=True))
    assert model.state.queue() == [1, 2, 3]
