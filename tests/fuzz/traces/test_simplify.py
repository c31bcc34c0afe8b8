"""What the reducer tries: each pass proposes what it promises, in this order, and nothing else.

Whether a proposal still shows the finding is asked elsewhere (`test_shrink`): a pass that proposes less only makes some
results larger, which no single result gives away.
"""

from dataclasses import replace

import pytest
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.traces import simplify, simplify_shape, simplify_story
from blockproof.model.ops import (
    Advance,
    Allocate,
    Evict,
    Free,
    Group,
    Item,
    Lookup,
    Preempt,
    Release,
    Reset,
    Shape,
    StepStart,
    Submit,
    Take,
    Touch,
)

SHAPE = Shape((Group("full", 2),), 3, 8, 2, 2, 8)


def proposed(simpler, *operations, shape=SHAPE):
    """The operations of all that a pass proposes with the same shape."""
    return [trace.operations for trace in simpler(Trace(shape, operations)) if trace.shape == shape]


def shapes(simpler, shape, *operations):
    """The shapes of all that a pass proposes with these operations."""
    return [trace.shape for trace in simpler(Trace(shape, operations)) if trace.operations == operations]


# Values.


@pytest.mark.parametrize(
    ("value", "weight"),
    [
        (0, 0),
        (5, 5),
        (-2, 3),
        ((1, 2), 5),
        ("text", 0),
        (True, 1),
        (Group("full", 1), 3),
        (Group("sliding", 2, window=3), 9),
        (Group("mamba", 1, mamba_mode="align"), 8),
        (Take(3), 4),
        (Submit("a", (0,), salt="x"), 4),
    ],
)
def test_a_value_weighs_what_there_is_to_read_in_it(value, weight):
    assert simplify.weight(value) == weight


@pytest.mark.parametrize(
    ("number", "tried"),
    [
        (0, []),
        (3, [0, 1, 2]),
        (12, [*range(12)]),
        (40, [0, 1, 2, 10, 20, 30, 35, 38, 39]),
        (-2, [2, -1, *range(-12, 0)]),
    ],
)
def test_smaller_numbers_come_the_boldest_first(number, tried):
    assert list(simplify.smaller(number)) == tried


def test_of_several_elements_ever_smaller_pieces_go_and_then_single_ones():
    pieces = ["", "ab", "cd", "abc", "bcd", "acd", "abd"]
    assert list(simplify.variants(tuple("abcd"))) == [tuple(piece) for piece in pieces]
    assert list(simplify.variants((True, 2))) == [(), (True,), (2,), (False, 2), (True, 0), (True, 1)]


def test_the_name_of_a_request_is_no_value_to_make_simpler():
    assert list(simplify.variants(Allocate("a", 1, hit=True, lookahead=2))) == [
        Allocate("a", 0, hit=True, lookahead=2),
        Allocate("a", 1, lookahead=2),
        Allocate("a", 1, lookahead=2),
        Allocate("a", 1, hit=True),
        Allocate("a", 1, hit=True),
        Allocate("a", 1, hit=True, lookahead=1),
    ]
    assert proposed(simplify.simpler_operations, Free("a"), Take(1)) == [(Free("a"), Take(0))]


def test_numbers_are_found_with_their_paths_and_put_back_there():
    trace = Trace(SHAPE, (Touch((4, 5)), Submit("a", (7,), skip_lookup=True)))
    found = {path: value for path, value in simplify.numbers(trace) if path[0] == "operations"}
    assert found == {
        ("operations", 0, "blocks", 0): 4,
        ("operations", 0, "blocks", 1): 5,
        ("operations", 1, "prompt", 0): 7,
    }
    assert ("shape", "num_blocks") in dict(simplify.numbers(trace))
    assert simplify.put(trace, ("operations", 0, "blocks", 1), 9).operations[0] == Touch((4, 9))


# Operations.


def test_a_field_gets_its_default_in_all_operations_of_a_kind():
    one, other, step = (
        Submit("a", (0,), salt="x"),
        Submit("b", (0,), adapter="y", salt="z"),
        Allocate("a", 1, gate=True),
    )
    assert proposed(simplify.plain_everywhere, one, other, step) == [
        (one, replace(other, adapter=None), step),
        (replace(one, salt=None), replace(other, salt=None), step),
        (one, other, Allocate("a", 1)),
    ]


def test_tokens_become_zero_or_are_numbered_and_rows_become_tokens():
    one, step, other = Submit("a", (5, 3)), Advance("a", (3, 9)), Submit("b", (0, 4), embeds=(7, None))
    assert proposed(simplify.plain_tokens, one, step, other) == [
        (Submit("a", (0, 0)), Advance("a", (0, 0)), Submit("b", (0, 0), embeds=(0, None))),
        (Submit("a", (0, 1)), Advance("a", (1, 2)), Submit("b", (0, 4), embeds=(3, None))),
        (Submit("a", (0, 0)), step, other),
        (one, step, Submit("b", (0, 0), embeds=(7, None))),
        (one, step, Submit("b", (7, 4))),
    ]


def test_requests_are_called_by_letters_in_the_order_in_which_they_come():
    story = (Submit("x", (0,)), Submit("r7", (0,)), StepStart(), Free("x"))
    assert proposed(simplify.plain_names, *story) == [(Submit("a", (0,)), Submit("b", (0,)), StepStart(), Free("a"))]
    names = [f"r{number}" for number in range(53)]
    ((*operations,),) = proposed(simplify.plain_names, *map(Free, names))
    assert [operations[place] for place in (0, 25, 26, 51, 52)] == [Free(name) for name in ("a", "z", "aa", "az", "ba")]


def test_prompts_lose_tokens_at_either_end_and_allocations_as_many():
    whole, other, step, small = Submit("a", (1, 2, 3)), Submit("b", (4,)), Allocate("a", 3), Allocate("b", 1)
    cuts = []
    for cut in (2, 1):
        for _ in (None, "a"):
            for kept in (slice(cut, None), slice(None, -cut)):
                cuts += [
                    (Submit("a", whole.prompt[kept]), other, Allocate("a", 3 - cut), small),
                    (Submit("a", whole.prompt[kept]), other, step, small),
                ]
        cuts += [(whole, other, step, small)] * 4  # of b there is nothing to cut
    assert proposed(simplify.shorter_prompts, whole, other, step, small) == cuts
    rows = Submit("a", (0, 0, 0), embeds=(1, 2, 3))
    assert (Submit("a", (0,), embeds=(3,)),) in proposed(simplify.shorter_prompts, rows)
    assert (Submit("a", (0,), embeds=(1,)),) in proposed(simplify.shorter_prompts, rows)


@pytest.mark.parametrize(
    ("length", "cuts"), [(40, [20, 10, 8, 4, 2, 1]), (9, [8, 4, 2, 1]), (8, [4, 2, 1]), (2, [1]), (1, [])]
)
def test_prompts_are_cut_by_parts_of_the_longest_and_by_blocks(length, cuts):
    made = proposed(simplify.shorter_prompts, Submit("a", (0,) * length))
    assert list(dict.fromkeys(length - len(operations[0].prompt) for operations in made)) == cuts


def test_two_quantities_become_lower_together():
    operations = (Submit("a", (0, 1, 2)), Allocate("a", 3), Take(3))
    made = list(simplify.lowered_together(Trace(SHAPE, operations)))
    for amount in (1, 2):
        assert Trace(SHAPE, (operations[0], Allocate("a", 3 - amount), Take(3 - amount))) in made
        shorter = Submit("a", operations[0].prompt[:-amount])
        assert Trace(SHAPE, (shorter, Allocate("a", 3 - amount), Take(3 - amount))) in made
        assert Trace(SHAPE, (shorter, Allocate("a", 3), Take(3 - amount))) in made
        assert Trace(replace(SHAPE, num_blocks=3 - amount), (*operations[:2], Take(3 - amount))) in made
    assert Trace(replace(SHAPE, num_blocks=2), (*operations[:2], Take(1))) in made, "a block less, and its tokens"
    assert {trace.operations[0] for trace in made} == {Submit("a", tokens) for tokens in ((0, 1, 2), (0, 1), (0,))}
    knobs = sum(value > 0 and "prompt" not in path for path, value in simplify.numbers(Trace(SHAPE, operations))) + 2
    assert len(made) == 2 * (knobs * (knobs - 1) // 2) + knobs
    by_token = replace(SHAPE, groups=(Group("full", 1),), hash_block_size=1, scheduler_block_size=1)
    assert len(list(simplify.lowered_together(Trace(by_token, operations)))) == knobs * (knobs - 1) // 2


# Whole operations.


def test_a_request_goes_with_all_that_is_done_to_it():
    a, b = Submit("a", (0,)), Submit("b", (1,))
    assert proposed(simplify_story.without_request, a, b, Free("a"), StepStart()) == [
        (b, StepStart()),
        (a, Free("a"), StepStart()),
    ]


def test_two_operations_go_or_one_goes_and_a_number_is_another():
    a, free, step = Submit("a", (0,)), Free("a"), StepStart()
    assert proposed(simplify_story.without_two, a, free, step) == [(step,), (free,), (a,)]
    assert proposed(simplify_story.without_one_adjusted, Take(2), Touch((1,))) == [
        (Touch((1,)),),
        (Take(0),),
        (Touch((1,)),),
        (Take(1),),
        *((Touch((0,)),), (Take(2),)),
        *((Touch((2,)),), (Take(2),)),
    ]
    assert proposed(simplify_story.without_one_adjusted, Advance("a", (5,))) == []
    for blocks, meant in ((24, 24), (25, 0)):
        large = replace(SHAPE, num_blocks=blocks)
        touched = proposed(simplify_story.without_one_adjusted, Touch((1,)), free, shape=large)
        assert len({trace for trace in touched if trace[0] != free}) == max(0, meant - 1)


def test_sampled_tokens_belong_to_the_prompt():
    a, step, news = Submit("a", (0,)), Allocate("a", 1), Advance("a", (7, 8), rejected=1)
    longer = Submit("a", (0, 7, 8))
    assert proposed(simplify_story.known_from_the_start, a, step, news, Advance("b", (1,)), Advance("a")) == [
        (longer, step, Advance("b", (1,)), Advance("a")),
        (longer, step, Advance("a", rejected=1), Advance("b", (1,)), Advance("a")),
    ]


def test_two_steps_become_one_in_either_place():
    first = Allocate("a", 1, hit=True, external=4, delay=True)
    second, longer = Allocate("a", 2, lookahead=3), Submit("a", (0, 5))
    story = (Submit("a", (0,)), first, StepStart(), Advance("a", (5,)), second)
    both = (
        Allocate("a", 7, hit=True),
        Allocate("a", 3, hit=True, external=4),
        Allocate("a", 7, hit=True, lookahead=3),
        Allocate("a", 3, hit=True, external=4, lookahead=3),
        Allocate("a", 2, hit=True, external=5, lookahead=3),
    )
    made = [pair for one in both for pair in ((longer, one, StepStart()), (longer, StepStart(), one))]
    assert proposed(simplify_story.merged_steps, *story) == made
    assert proposed(simplify_story.merged_steps, *story[:3], Lookup("a"), second)[0] == (story[0], both[0], StepStart())
    assert proposed(simplify_story.merged_steps, story[0], first, Advance("a"), Free("a")) == []


def test_tokens_are_computed_instead_of_found_loaded_or_expected():
    loads = Allocate("a", 1, external=2, delay=True)
    assert proposed(simplify_story.computed_instead, loads) == [(Allocate("a", 3),)]
    assert proposed(simplify_story.computed_instead, Allocate("a", 1, lookahead=3)) == [(Allocate("a", 4),)]
    a, hit = Submit("a", (0,)), Allocate("a", 1, hit=True)
    assert proposed(simplify_story.computed_instead, a, Lookup("a"), hit) == [
        (a, Allocate("a", 1 + tokens)) for tokens in range(1, 12)
    ]


def test_one_request_plays_the_part_of_two():
    story = (Submit("a", (0,)), Free("a"), Submit("b", (1, 2)), Allocate("b", 1), Free("a"))
    rest = (Allocate("a", 1), Free("a"))
    assert proposed(simplify_story.merged_requests, *story) == [
        (Submit("a", (0,)), Preempt("a"), *rest),
        (Submit("a", (1, 2)), Preempt("a"), *rest),
    ]


def test_a_request_that_starts_again_becomes_two():
    a, step, news = Submit("a", (0,)), Allocate("a", 1), Advance("a", (5,), rejected=1)
    later = (Lookup("a"), Free("b"), Advance("a", (6,)))
    assert proposed(simplify_story.split_requests, a, step, news, Advance("b", (9,)), Preempt("a"), *later) == [
        (a, step, Advance("b", (9,)), Submit("a'", (0, 5)), Lookup("a'"), Free("b"), Advance("a'", (6,)))
    ]
    assert proposed(simplify_story.split_requests, Preempt("a")) == []


def test_two_operations_of_somebody_outside_become_one():
    assert proposed(simplify_story.merged_holders, Take(1), StepStart(), Take(2)) == [
        (Take(3), StepStart()),
        (StepStart(), Take(3)),
    ]
    for kind in (Touch, Evict, Release):
        assert proposed(simplify_story.merged_holders, kind((1,)), kind((2,))) == [(kind((1, 2)),)] * 2
    assert proposed(simplify_story.merged_holders, Touch((1,)), Evict((1,)), Take(1)) == []


def test_somebody_outside_acts_instead_of_a_request():
    a, step, b = Submit("a", (0,)), Allocate("a", 1), Submit("b", (0,))
    actors = (Reset(), Take(1), Take(2), Touch((1,)), Touch((2,)))
    made = []
    for actor in actors:
        made += [(actor, b), (actor, b, Free("a")), (actor, b, Free("b"))]
    assert proposed(simplify_story.simpler_actors, a, step, b, Free("a")) == made
    assert proposed(simplify_story.simpler_actors, a, b, step) == [(b, actor) for actor in actors]
    large = replace(SHAPE, num_blocks=40)
    assert len(proposed(simplify_story.simpler_actors, step, shape=large)) == 1 + 11 + 11


# Shapes.


def test_a_simpler_shape_comes_as_it_is_and_with_the_sizes_that_fit():
    shape = Shape((Group("mamba", 4),), 2, 1, 4, 4, 1)
    made = shapes(simplify_shape.simpler_shapes, shape)
    for size in (1, 2, 3):
        fits = Shape((Group("mamba", size),), 2, 1, size, size, 1)
        assert made[made.index(fits) - 1] == replace(shape, groups=(Group("mamba", size),))
    assert made[-2] == made[-1] == replace(shape, groups=(Group("full", 4),))
    assert not [one for one in made if one.groups and one.groups[0].kind == "sliding"], "it would have no window"
    assert made[0] == replace(shape, groups=())
    assert replace(shape, num_blocks=1) in made
    assert replace(shape, num_blocks=0) not in made, "no file may say so"


def test_sizes_are_the_smallest_that_the_groups_allow_and_the_retention_is_in_proportion():
    two = Shape((Group("full", 4), Group("sliding", 6, window=5)), 9, 48, 1, 24, 48, retention_interval=72)
    assert simplify_shape.fitted(two) == replace(two, hash_block_size=2, scheduler_block_size=12, retention_interval=36)
    ranks = Shape((Group("full", 4),), 9, 48, 1, 24, 48, retention_interval=12, decode_parallel=2)
    assert simplify_shape.fitted(ranks) == replace(
        ranks, hash_block_size=8, scheduler_block_size=8, retention_interval=8
    )
    none = replace(ranks, retention_interval=0)
    assert simplify_shape.fitted(none).retention_interval == 0


def test_blocks_become_smaller_alone_or_with_all_that_is_counted_in_tokens():
    shape = Shape((Group("sliding", 4, window=5),), 9, 16, 4, 4, 12)
    story = (
        Submit("a", tuple(range(7)), embeds=(None,) * 7, items=(Item("x", 0, 1),)),
        *(Advance("a", (1, 2, 3, 4)), Allocate("a", 7, external=5, lookahead=6, encoder_tokens=2), Take(1)),
    )
    made = list(simplify_shape.smaller_blocks(Trace(shape, story)))
    sizes = [size for size in (1, 2, 3) for _ in range(6)]
    assert [trace.shape.groups[0].block_size for trace in made] == sizes
    alone, scaled, whole, _, _, rounded_up = made[6:12]
    halved = Shape((Group("sliding", 2, window=2),), 9, 8, 2, 2, 6)
    assert alone == Trace(
        replace(halved, groups=(Group("sliding", 2, window=5),), max_model_len=16, max_num_batched_tokens=12), story
    )
    assert scaled == Trace(halved, story)
    assert whole == Trace(
        halved,
        (
            Submit("a", (0, 1, 4), embeds=(None,) * 3),
            *(Advance("a", (1, 2)), Allocate("a", 3, external=2, lookahead=3, encoder_tokens=1), Take(1)),
        ),
    )
    assert rounded_up == Trace(
        replace(halved, groups=(Group("sliding", 2, window=3),)),
        (
            Submit("a", (0, 1, 4, 5), embeds=(None,) * 4),
            *(Advance("a", (1, 2)), Allocate("a", 4, external=3, lookahead=3, encoder_tokens=1), Take(1)),
        ),
    )


def test_a_token_beyond_whole_blocks_is_left_out_or_counts_as_one_of_the_smaller_blocks():
    for size in (2, 4):
        shape = Shape((Group("full", size),), 9, 16, size, size, 16)
        story = (Submit("a", (0,) * (size + 1)),)
        lengths = [
            len(operation.prompt)
            for trace in simplify_shape.smaller_blocks(Trace(shape, story))
            for operation in trace.operations
            if trace.shape.groups[0].block_size == 1 and operation != story[0] and isinstance(operation, Submit)
        ]
        assert lengths == [1, 2]


def test_what_is_counted_in_tokens_does_not_vanish_and_large_blocks_are_halved_as_well():
    tiny = Shape((Group("sliding", 4, window=1), Group("chunked", 4, chunk=2), Group("full", 4)), 9, 2, 4, 4, 3)
    least = list(simplify_shape.smaller_blocks(Trace(tiny, ())))[1].shape
    assert [(group.window, group.chunk) for group in least.groups] == [(1, 0), (0, 1), (0, 0)]
    assert (least.max_model_len, least.max_num_batched_tokens) == (1, 1)
    for size, tried in ((12, range(1, 12)), (13, [*range(1, 12), 6]), (40, [*range(1, 12), 20])):
        shape = Shape((Group("full", size),), 9, 40, size, size, 40)
        made = [trace.shape.groups[0].block_size for trace in simplify_shape.smaller_blocks(Trace(shape, ()))]
        assert made == [new for new in tried for _ in range(6)]
