"""A hit is the longest length that the definition allows, by trying every length (core.md §7; S7, T13, T14).

The definition here asks attention about tokens, not blocks: a length is a hit if every token that the query behind it
reads lies in a registered block of this very content. Models get into many states by random workloads.
"""

from itertools import product
from typing import Any

import pytest
from blockproof.model import lookup
from blockproof.model.attention import Cross, Mamba, rules_for
from blockproof.model.core import Model
from blockproof.model.ops import NULL, Advance, Allocate, Evict, Free, Group, Kind, Lookup, Shape, Submit
from blockproof.model.tables import Policy, hit

from .running import core, done, runs, steps


def needed(rule, n):
    """Blocks that a hit of `n` tokens needs: those of tokens that are read, and the one behind for drafts."""
    return {t // rule.b for t in range(n) if rule.attends(n, t)} | ({n // rule.b} if rule.behind else set())


def longest(model, name):
    """Tokens of the longest hit, by trying every length from the longest on."""
    request = model.requests[name]
    if request.submit.skip_lookup or not model.shape.caching:
        return 0
    registered, size = set(model.state.identity.values()), model.shape.hash_block_size

    def there(group, i):
        last = (i + 1) * model.rules[group].b // size - 1
        return last < len(request.chain) and (group, request.chain[last]) in registered

    for n in range(len(request.tokens) - 1, 0, -1):
        if n % model.alignment == 0 and all(there(g, i) for g, rule in enumerate(model.rules) for i in needed(rule, n)):
            return n
    return 0


SINGLE = ("full", "mla", "tq", "sink", "sliding", "sliding_mla", "chunked", "mamba")
SEVERAL = ("full+sliding", "full+mamba", "full+chunked", "sliding+sliding", "full+sliding+mamba", "full+mla")


def lookups(name, kind=Model, seeds=40):
    """Lookups of random runs: the model before it, and its value."""
    for model, workload, where in runs((name,), seeds, kind=kind):
        for operation, _, outcome, _ in steps(model, workload, 150):
            if isinstance(operation, Lookup):
                yield model, operation.request, outcome.value, where


@pytest.mark.parametrize("name", [*SINGLE, *SEVERAL])
def test_a_hit_is_the_longest_length_that_the_definition_allows(name):
    lengths = []
    for model, request, (tokens, _), where in lookups(name):
        assert tokens == longest(model, request), where
        lengths.append(tokens)
    assert sum(tokens > 0 for tokens in lengths) >= 10, "too few hits to say anything"
    assert sum(tokens == 0 for tokens in lengths) >= 10, "too few misses to say anything"


def limited(more):
    """Models whose lookup looks at a request that is longer by so many tokens."""

    def other(core, request):
        tokens = request.tokens
        try:
            request.tokens = tokens[:more] if more < 0 else [*tokens, *range(more)]
            return hit(core, request)
        finally:
            request.tokens = tokens

    return lambda shape: Model(shape, Policy(hit=other))


@pytest.mark.parametrize("name", ["full", "sliding", "mamba"])
@pytest.mark.parametrize("more", [-2, 1])
def test_trying_every_length_finds_hits_that_are_too_short_or_too_long(name, more):
    assert any(tokens != longest(model, request) for model, request, (tokens, _), _ in lookups(name, limited(more)))


@pytest.mark.parametrize("name", [*SINGLE, *SEVERAL])
def test_what_the_next_query_reads_is_there_and_everything_else_is_null(name):
    """S7: each row covers the hit; a block is the first registered with the request's own content."""
    hits = 0
    for model, request, (tokens, rows), where in lookups(name):
        hits += tokens > 0
        for group, (row, rule) in enumerate(zip(rows, model.rules, strict=True)):
            assert len(row) * rule.b == tokens, where
            read = {t // rule.b for t in range(tokens) if rule.attends(tokens, t)}
            for i, block in enumerate(row):
                key = (group, model.identity(model.requests[request], group, i))
                assert (model.state.earliest()[key] if i in read else NULL) == block, where
    assert hits >= 10, "too few hits to say anything"


@pytest.mark.parametrize("name", [*SINGLE, *SEVERAL])
def test_a_hit_leaves_at_least_one_token_to_compute(name):
    for model, request, (tokens, _), where in lookups(name, seeds=20):
        assert tokens < len(model.requests[request].tokens), where


def replayed(kind):
    """A prompt of two whole blocks, computed, freed and asked for again."""
    model = core(Group("full", 2), kind=kind)
    done(model, Submit("a", (1, 2, 3, 4)))
    done(model, Allocate("a", 4))
    done(model, Advance("a", (5,)))
    done(model, Free("a"))
    done(model, Submit("b", (1, 2, 3, 4)))
    return done(model, Lookup("b"))


def test_a_replayed_prompt_hits_all_blocks_but_the_one_of_its_last_token():
    assert replayed(Model) == (2, ((1,),))
    assert replayed(limited(1)) == (4, ((1, 2),))  # what the rule of the last token prevents


def test_drafts_need_the_block_behind_a_hit_which_may_end_with_the_last_token():
    for eagle, expected in ((False, 4), (True, 2)):
        model = core(Group("full", 2), eagle=eagle)
        done(model, Submit("a", (1, 2, 3, 4, 5)))
        done(model, Allocate("a", 5))
        done(model, Submit("b", (1, 2, 3, 4, 5)))
        assert done(model, Lookup("b"))[0] == expected
        done(model, Submit("c", (1, 2, 3, 4)))
        assert done(model, Lookup("c"))[0] == 2
        done(model, Submit("d", (1, 2, 9)))
        assert done(model, Lookup("d"))[0] == (0 if eagle else 2)


def test_a_chunk_that_starts_inside_a_block_keeps_that_block_in_the_hit():
    """Nothing is registered: the query at 5 begins a chunk, but the table's third block begins before it."""
    model = core(Group("chunked", 2, chunk=5), max_num_batched_tokens=32)
    prompt = tuple(range(10))
    done(model, Submit("a", prompt))
    done(model, Allocate("a", 10))
    done(model, Evict(tuple(model.state.tables[0]["a"])))
    done(model, Submit("b", prompt))
    assert done(model, Lookup("b")) == (0, ((),))


def test_a_window_of_one_token_needs_nothing():
    model = core(Group("sliding", 2, window=1))
    done(model, Submit("a", (1, 2, 3, 4, 5)))
    assert done(model, Lookup("a")) == (4, ((NULL, NULL),))


def test_a_state_registered_in_this_step_is_refused_until_the_next():
    from blockproof.model.ops import StepStart

    model = core(Group("full", 2), Group("mamba", 2), num_blocks=20)
    for name in ("a", "b"):
        done(model, Submit(name, (1, 2, 3)))
    done(model, Allocate("a", 3))
    assert done(model, Lookup("b"))[0] == 2
    outcome, _ = model.step(Allocate("b", 1, hit=True))
    assert str(outcome) == "Refused()"
    done(model, StepStart())
    done(model, Lookup("b"))
    done(model, Allocate("b", 1, hit=True))


# What is worth registering.

KINDS: dict[Kind, tuple[dict[str, Any], ...]] = {
    "full": ({},),
    "sliding": tuple({"window": w} for w in (1, 2, 3, 5, 9)),
    "chunked": tuple({"chunk": k} for k in (1, 2, 3, 4, 6)),
    "mamba": ({"mamba_mode": "all"},),
}
BLOCKS = 12


def rules(kind, eagle):
    """Rules of one kind with blocks of 1 to 3 tokens."""
    for size, b in product(KINDS[kind], (1, 2, 3)):
        group = Group(kind, b, **size)
        yield rules_for(Shape((group,), 9, 99, b, b, 8, eagle=eagle))[0]


def kept_and_used(kind, kept):
    """Per rule and boundaries: the blocks that are kept, and those that a hit at some boundary needs (T10, T11)."""
    for eagle, per, interval_of, prompt in product((False, True), (1, 2, 4), (None, 0, 1, 2), (1, 7, 24)):
        for rule in rules(kind, eagle):
            unit = per * rule.b
            interval = unit if interval_of is None else interval_of * unit
            replay = 0 if interval_of is None else lookup.replay_boundary([rule], unit, prompt)
            boundaries = {
                *(range(interval, 40 * unit, interval) if interval else ()),
                *([replay] if replay > 0 else []),
            }
            used = {i for n in boundaries for i in needed(rule, n) if i < BLOCKS}
            yield {i for i in range(BLOCKS) if kept(rule, i, interval, replay)}, used


@pytest.mark.parametrize("kind", KINDS)
def test_exactly_the_blocks_that_a_hit_at_some_boundary_needs_are_worth_registering(kind):
    compared = 0
    for kept, used in kept_and_used(kind, lookup.worth_registering):
        assert kept == used
        compared += bool(used) and len(used) < BLOCKS
    assert compared >= 10


@pytest.mark.parametrize("kind", ["sliding", "chunked", "mamba"])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda rule, i, interval, replay: lookup.worth_registering(rule, i + 1, interval, replay),
        lambda rule, i, interval, replay: lookup.worth_registering(rule, i, interval, replay + rule.b),
        lambda rule, i, interval, replay: lookup.worth_registering(rule, i, 2 * interval, replay),
    ],
)
def test_a_slip_in_what_is_worth_registering_is_noticed(kind, wrong):
    assert any(kept != used for kept, used in kept_and_used(kind, wrong))


def all_before(count):
    """Of every group the first `count` blocks are found."""
    return lambda group, i: i < count


def test_the_replay_boundary_is_the_longest_hit_that_a_replay_can_have():
    for eagle, b, per, prompt in product((False, True), (1, 2, 3), (1, 2, 4), range(1, 30)):
        rule = rules_for(Shape((Group("full", b),), 9, 99, b, b, 8, eagle=eagle))[0]
        right = lookup.longest_hit([rule], per * b, prompt, all_before(prompt // b))
        assert max(0, lookup.replay_boundary([rule], per * b, prompt)) == right


def test_only_attention_that_is_cached_can_have_drafts_behind_it():
    groups = (Group("mamba", 2), Group("full", 2), Group("cross", 2))
    behind = {type(rule): rule.behind for rule in rules_for(Shape(groups, 9, 99, 2, 2, 8, eagle=True))}
    assert behind[Mamba] == behind[Cross] == 0
    assert 2 in behind.values()
