"""What the rule of today adds: small stories, with the numbers that follow from docs/reference/today.md."""

from dataclasses import replace

import pytest
from blockproof.model.core import Model
from blockproof.model.features.names import NamedState
from blockproof.model.features.today import TODAY
from blockproof.model.identity import Identities
from blockproof.model.legal import allows
from blockproof.model.ops import (
    Advance,
    Allocate,
    Arrive,
    Done,
    Evict,
    Free,
    Group,
    Lookup,
    Preempt,
    ReadTable,
    Refused,
    Release,
    Reset,
    Shape,
    Submit,
    Take,
    TakeEvents,
    TakeNewBlockIds,
    TakeStats,
)
from blockproof.model.tables import Policy

from .told import told

FULL = Shape((Group("full", 2),), 12, 16, 2, 2, 16)
HYBRID = Shape((Group("full", 4), Group("mamba", 4, mamba_mode="align")), 16, 32, 2, 4, 32)
PROMPT = tuple(range(7))


def value(model, *operations):
    outcome = told(model, *operations)
    assert isinstance(outcome, Done), outcome
    return outcome.value


def with_named_end():
    """A model in which the end of a prompt of 7 tokens has a name, at 6, inside a block of 4."""
    model = Model(HYBRID, TODAY)
    assert value(model, Submit("a", PROMPT), Allocate("a", 6)) == ((1, 2), (0, 3))
    return model


# Names.


def test_a_block_has_several_names_and_loses_them_together():
    state, make = NamedState(4, 1), Identities()
    part, whole = make(None, (1,), ()), make(None, (1, 2), ())
    state.name(1, (0, part), 1)
    state.register(1, (0, whole), 2)
    assert (state.identity, state.also) == ({1: (0, whole)}, {})
    state.name(1, (0, part), 1)
    state.name(2, (0, part), 1)
    assert state.earliest() == {(0, whole): 1, (0, part): 1}
    state.move(1, 3)
    assert state.earliest() == {(0, whole): 3, (0, part): 2}, "moved names are the youngest"
    state.forget(3)
    assert (state.earliest(), state.also) == ({(0, part): 2}, {})
    assert [event.identity for event in state.events] == [part, whole, part]


def test_an_older_rule_has_one_name_for_a_block():
    model = Model(HYBRID, Policy())
    assert value(model, Submit("a", PROMPT), Allocate("a", 6)) == ((1, 2), (0, 3))
    assert value(model, Submit("b", PROMPT), Lookup("b")) == (0, ((), ()))


# Hits inside a block.


def test_a_hit_ends_inside_a_block_and_the_request_writes_on_in_a_copy():
    model = with_named_end()
    assert value(model, Submit("b", PROMPT), Lookup("b")) == (6, ((1, 2), (0, 3)))
    assert told(model, Allocate("b", 1, hit=True)) == Refused(), "the state was computed in this very step"
    told(model, Free("b"), Advance("a"))
    model.registered_this_step.clear()
    told(model, Submit("c", PROMPT), Lookup("c"))
    assert value(model, Allocate("c", 1, hit=True)) == ((4,), (5,))
    assert model.copied == ((2, 4), (3, 5))
    assert value(model, ReadTable("c")) == ((1, 4), (0, 5))
    assert model.state.references()[1:6] == [2, 1, 1, 1, 1], "source and copy are held for it no longer"


def test_who_has_named_a_state_keeps_the_block_and_the_names_move_to_the_copy():
    model = with_named_end()
    told(model, Advance("a"))
    assert value(model, Allocate("a", 1)) == ((), ())
    assert model.copied == ((3, 4),)
    assert ("a", 1, 4, 6) in model.offered, "a connector is offered the copy"
    assert 3 not in model.state.identity
    assert model.state.covers[4] == 6


def test_without_the_copy_the_name_would_lie():
    """The variant that writes on in the shared block: the next request reads tokens that it has not."""
    wrong = Model(HYBRID, replace(TODAY, copies=None))
    told(wrong, Submit("a", PROMPT), Allocate("a", 6), Advance("a"))
    wrong.registered_this_step.clear()
    told(wrong, Submit("b", PROMPT), Lookup("b"), Allocate("b", 1, hit=True))
    table = value(wrong, ReadTable("b"))
    assert table[0][1] == 2, "the block that a lookup finds is written to"


def test_external_tokens_begin_at_a_whole_block():
    model = with_named_end()
    told(model, Advance("a"))
    model.registered_this_step.clear()
    told(model, Submit("b", (*PROMPT, 9, 9)), Lookup("b"))
    assert not allows(model, Allocate("b", 1, hit=True, external=2)), "no more than the hit has"
    assert allows(model, operation := Allocate("b", 1, hit=True, external=3))
    assert value(model, operation, ReadTable("b")) == ((1, 4), (0, 5)), "the second block comes from outside"
    assert model.requests["b"].computed == 7
    assert model.copied == ()


# Lookups for a connector.


def forgetting_states(*, window=False, policy=TODAY):
    """A model in which a prompt of 9 tokens is computed, of which no state is known any more."""
    groups = (*HYBRID.groups, Group("sliding", 4, window=4)) if window else HYBRID.groups
    model = Model(replace(HYBRID, groups=groups, hash_block_size=4), policy)
    told(model, Submit("a", tuple(range(9))), Allocate("a", 8), Advance("a"), Free("a"))
    told(model, *[Evict((block,)) for block, (group, _) in [*model.state.identity.items()] if group])
    return model


def test_states_may_end_before_a_hit_for_a_connector():
    model = forgetting_states()
    told(model, Submit("b", tuple(range(10))))
    assert value(model, Lookup("b")) == (0, ((), ()))
    tokens, (full, _) = value(model, Lookup("b", for_connector=True))
    assert (tokens, len(full), model.offered) == (8, 2, (True,))
    assert not allows(model, Allocate("b", 2, hit=True)), "nobody brings the states"
    assert allows(model, Allocate("b", 1, hit=True, external=1))
    value(model, Allocate("b", 1, hit=True, external=1))
    assert model.requests["b"].computed == 9


def test_a_window_may_not_end_before_it():
    model = forgetting_states(window=True)
    told(model, Submit("b", tuple(range(10))))
    assert value(model, Lookup("b", for_connector=True))[0] == 0


def test_without_states_it_is_a_lookup_like_any_other():
    model = Model(FULL, TODAY)
    told(model, Submit("a", (1, 2, 3, 4, 5)), Allocate("a", 5), Submit("b", (1, 2, 3, 4, 5)))
    assert value(model, Lookup("b", for_connector=True)) == (4, ((1, 2),))
    assert model.offered == (False,)


@pytest.mark.parametrize(("limit", "tokens"), [(None, 4), (4, 4), (3, 2), (0, 0)])
def test_a_hit_is_no_longer_than_its_limit(limit, tokens):
    model = Model(FULL, TODAY)
    told(model, Submit("a", (1, 2, 3, 4, 5)), Allocate("a", 5), Submit("b", (1, 2, 3, 4, 5)))
    assert value(model, Lookup("b", limit=limit))[0] == tokens


# Blocks that are held, or read, beyond their request.


def test_blocks_that_are_kept_are_free_when_their_holder_gives_them_back():
    model = Model(FULL, TODAY)
    told(model, Submit("a", (1, 2, 3)), Allocate("a", 3))
    assert value(model, Free("a", keep=True)) == (1, 2)
    assert model.state.num_free() == 9
    told(model, Release((2, 1)))
    assert model.state.num_free() == 11


def test_who_reads_on_is_told_when_a_block_is_handed_out_again():
    model = Model(replace(FULL, num_blocks=4), TODAY)
    assert value(model, Take(1)) == (1,)
    told(model, Release((1,), watched=True))
    assert model.snapshot().free == [2, 3, 1], "it is reused last, though it has no name"
    told(model, Take(2))
    assert list(model.offered) == []
    told(model, Take(1))
    assert list(model.offered) == [1]
    told(model, Release((1,), watched=True), Release((2, 3)), Reset())
    assert list(model.offered) == [1], "with all names, too"


def test_blocks_that_a_load_writes_are_not_listed():
    model = Model(HYBRID, TODAY)
    told(model, Submit("a", tuple(range(9))), Allocate("a", 0, external=8, delay=True, unzeroed=(0,)))
    assert value(model, TakeNewBlockIds()) == ()


# Names that look ahead.


def test_where_drafts_are_made_the_next_token_is_part_of_a_name():
    shape = replace(FULL, eagle=True)
    model = Model(shape, TODAY)
    assert value(model, Submit("a", (1, 2, 3, 4))) == 1, "the second block is named once the token behind it is known"
    told(model, Allocate("a", 4))
    assert value(model, Submit("b", (1, 2, 9, 9)), Lookup("b")) == (0, ((),)), (
        "the same block, but another token behind it"
    )
    assert value(model, Submit("c", (1, 2, 3, 9)), Lookup("c")) == (2, ((1,),))
    older = Model(shape, Policy())
    told(older, Submit("a", (1, 2, 3, 4)), Allocate("a", 4))
    assert value(older, Submit("c", (1, 2, 3, 9)), Lookup("c")) == (0, ((),)), "a hit needs the block behind it there"


# Choices.


def test_what_has_no_name_is_reused_first():
    model = Model(FULL, TODAY)
    told(model, Submit("a", (1, 2, 3)), Allocate("a", 3), Free("a"))
    assert model.snapshot().free[0] == 2
    assert model.snapshot().free[-1] == 1
    older = Model(FULL, Policy())
    told(older, Submit("a", (1, 2, 3)), Allocate("a", 3), Free("a"))
    assert older.snapshot().free[-2:] == [2, 1]


def test_windows_are_cut_by_processed_tokens():
    model = Model(Shape((Group("sliding", 1, window=2),), 9, 8, 1, 1, 8), TODAY)
    told(model, Submit("a", (1, 2, 3)), Allocate("a", 3), Advance("a"))
    assert value(model, Allocate("a", 1), ReadTable("a")) == ((1, 2, 3, 4),), (
        "the step is in flight: its token is unknown"
    )
    told(model, Advance("a", (4,)), Advance("a", (5,)))
    assert value(model, Allocate("a", 1), ReadTable("a"))[0][:2] == (0, 0)


def test_a_watermark_stays_free_unless_the_request_runs_or_is_alone():
    model = Model(replace(FULL, num_blocks=4, watermark=2), TODAY)
    told(model, Submit("a", (1, 2, 3)))
    assert told(model, Allocate("a", 3)) == Refused()
    assert model.refusal == "refused by watermark"
    assert told(model, Allocate("a", 3, gate=True)) == Refused()
    assert value(model, Allocate("a", 3, alone=True)) == ((1, 2),)
    assert value(model, Advance("a", (4, 5)), Allocate("a", 2)) == ((3,),), "who runs may take the last one"
    told(model, Preempt("a"))
    assert told(model, Allocate("a", 3)) == Refused()


def test_a_lookup_counts_when_its_request_is_admitted():
    model = Model(replace(FULL, stats=True), TODAY)
    told(model, Submit("a", (1, 2, 3)), Lookup("a"))
    assert value(model, TakeStats())[1:4] == (0, 0, 0)
    told(model, Lookup("a"), Allocate("a", 3, hit=True))
    assert value(model, TakeStats())[1:4] == (1, 3, 0)


def test_blocks_are_listed_where_there_are_states_and_again_where_a_load_has_failed():
    model = Model(HYBRID, TODAY)
    told(model, Submit("a", tuple(range(9))), Allocate("a", 0, external=8, delay=True))
    assert value(model, TakeNewBlockIds()) == (1, 2)
    plain = Model(replace(HYBRID, groups=HYBRID.groups[:1], hash_block_size=4), TODAY)
    told(plain, Submit("a", tuple(range(9))), Allocate("a", 0, external=8, delay=True))
    assert value(plain, TakeNewBlockIds()) == ()
    rule = model.policy.zero_again
    assert rule is not None
    model.requests["a"].compute(4)
    rule(model, "a")
    assert value(model, TakeNewBlockIds()) == (2,)
    told(model, Arrive("a"))


# What is kept, and told.


def test_a_junction_is_kept_under_a_retention_interval():
    groups = (Group("full", 2), Group("sliding", 2, window=3))
    shape = Shape(groups, 40, 40, 2, 2, 40, retention_interval=0)
    model = Model(shape, TODAY)
    shared = tuple(range(8))
    told(model, Submit("a", (*shared, 50, 51, 52, 53)), Allocate("a", 12), Advance("a", (54,)))
    tokens, _ = value(model, Submit("b", (*shared, 60, 61, 62)), Lookup("b"))
    assert (tokens, model.requests["b"].junction) == (0, 8), "the window was kept behind the first prompt only"
    told(model, Allocate("b", 11, hit=True), Advance("b", (63,)))
    assert value(model, Submit("c", (*shared, 70, 71, 72)), Lookup("c"))[0] == 8, "where b found the prefix to end"


WINDOW, WIDER = Group("sliding", 2, window=3, eagle=True), Group("sliding", 2, window=5)


@pytest.mark.parametrize(
    ("groups", "junction", "hit"),
    [
        ((Group("full", 2), WINDOW), 8, 6),
        ((Group("full", 2), WINDOW, WIDER), 8, 6),
        ((Group("full", 2), WIDER, Group("mamba", 2, mamba_mode="align"), WINDOW), 8, 0),  # steps do not end at 6
        ((Group("full", 2, eagle=True), WINDOW), 6, 6),  # full attention that drafts read has a block behind
        ((Group("full", 2, eagle=True), replace(WINDOW, block_size=4)), 4, 4),
        ((Group("full", 2), replace(WIDER, block_size=4), replace(WINDOW, block_size=4)), 8, 4),
    ],
)
def test_what_drafts_need_is_kept_where_a_hit_ends_that_goes_on_otherwise_behind_a_junction(groups, junction, hit):
    unit = max(group.block_size for group in groups)
    model = Model(Shape(groups, 80, 40, 2, unit, 40, retention_interval=0, old_names=True), TODAY)
    shared = tuple(range(8))
    told(model, Submit("a", (*shared, *range(50, 60))), Allocate("a", 18), Advance("a", (90,)))
    assert value(model, Submit("b", (*shared, *range(60, 70))), Lookup("b"))[0] == 0
    assert model.requests["b"].junction == junction
    told(model, Allocate("b", 18, hit=True), Advance("b", (91,)))
    assert value(model, Submit("c", (*shared, *range(70, 80))), Lookup("c"))[0] == hit


@pytest.mark.parametrize(("reports", "events"), [(True, 1), (False, 0)])
def test_a_full_report_tells_of_the_blocks_that_were_found(reports, events):
    model = Model(replace(FULL, events=True), TODAY)
    told(model, Submit("a", (1, 2, 3, 4, 5)), Allocate("a", 5), TakeEvents())
    told(model, Submit("b", (1, 2, 3, 4, 5), reports_hits=reports), Lookup("b"))
    assert len(value(model, TakeEvents())) == events


def test_a_table_that_is_read_tells_what_is_computed_and_cached():
    model = Model(FULL, TODAY)
    told(model, Submit("a", (1, 2, 3, 4, 5)), Allocate("a", 5), ReadTable("a"))
    free = (*model.state.queue()[1:],)
    assert list(model.offered) == [free, (), 4], "computed is nothing before the step has run; named are two blocks"
    assert value(model, Advance("a", (6,)), ReadTable("a")) == ((1, 2, 3),)
    assert list(model.offered) == [free, (1, 2, 3), 4]


COARSE = Shape((Group("sliding", 2, window=2), Group("mamba", 2, mamba_mode="align")), 16, 32, 1, 2, 32)
"""Hits end at whole blocks, though hash blocks are smaller."""


@pytest.mark.parametrize(("first", "named"), [(8, True), (7, False)])
def test_a_state_is_named_where_it_stands_though_the_step_goes_on_behind_it(first, named):
    """A prompt of 9 tokens ends at 8 for a lookup. A step that begins at 7 leaves no state there."""
    model = Model(COARSE, TODAY)
    told(model, Submit("a", tuple(range(9))), Allocate("a", first), Advance("a"))
    block = model.state.tables[1]["a"][3]
    told(model, Evict((block,)), Allocate("a", 9 - first))
    assert model.state.tables[1]["a"][3] == block
    assert (block in model.state.identity) is named


def test_a_state_that_its_step_passed_without_writing_it_has_no_name():
    """A step that ends behind the last place where a hit can end leaves another state there."""
    states = Group("mamba", 2, mamba_mode="align")
    core = Model(Shape((Group("full", 2), states), 9, 8, 2, 2, 8), TODAY)
    core.apply(Submit("a", (0, 0, 0)))
    core.apply(Allocate("a", 3))
    assert [group for group, _ in core.state.identity.values()] == [0]


def test_a_checkpoint_at_the_end_of_a_prompt_is_named_where_a_replay_resumes_by_old_names():
    groups = (Group("full", 2), Group("mamba", 4, mamba_mode="align", checkpoint=1, eagle=True))
    model = Model(Shape(groups, 6, 5, 2, 4, 1, old_names=True), TODAY)
    model.apply(Submit("a", (0, 0, 0, 0, 0)))
    model.apply(Allocate("a", 5))
    (checkpoint, _) = model.state.tables[1]["a"]
    assert isinstance(model.state, NamedState)
    assert model.state.covers[checkpoint] == 2
