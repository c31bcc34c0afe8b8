"""A hit is the longest length that the definition allows, by trying every length (core.md §7; S7, T13, T14).

The definition asks attention, not the search: a length is a hit if every token that the query behind it reads lies in a
registered block of this very content. Models get into many states by random workloads.
"""

import pytest
from blockproof.model.attention import Chunked, Mamba
from blockproof.model.core import Model
from blockproof.model.lookup import Coordinator
from blockproof.model.ops import NULL, Advance, Allocate, Free, Group, Lookup, Submit

from .running import core, done, runs, steps


def needed(rule, n, limit, eagle):
    """Blocks that must be registered for a hit of `n` tokens."""
    if isinstance(rule, Mamba):
        return {n // rule.b - 1} if n else set()
    if isinstance(rule, Chunked):  # core.md §7: what the chunk of the last possible query does not reach counts as hit
        return set(range(rule.skipped(limit) // rule.b, n // rule.b))
    read = {t // rule.b for t in range(n) if rule.attends(n, t)} | ({n // rule.b} if eagle else set())
    return read or ({n // rule.b - 1} if n else set())  # a window of one token still asks for one block


def longest(model, name):
    """Tokens of the longest hit, by trying every length from the longest on."""
    request, rule = model.requests[name], model.rules[0]
    if request.submit.skip_lookup or not model.shape.caching:
        return 0
    limit, registered = len(request.tokens) - 1, set(model.state.identity.values())
    eagle = 0 in model.coordinator.eagle_groups and not isinstance(rule, Mamba)
    least = rule.skipped(limit) // rule.b * rule.b if isinstance(rule, Chunked) else 0
    for n in range(limit // rule.b * rule.b, least, -rule.b):
        blocks = needed(rule, n, limit, eagle)
        inside = all((i + 1) * rule.b <= limit for i in blocks)
        if inside and all((0, model.identities_of(request, i)) in registered for i in blocks):
            return n
    return least


class Observed(Model):
    """Keeps what a lookup has to be held against."""

    def identities_of(self, request, i):
        return self.coordinator.identity(request.chain, self.rules[0], i)


SINGLE = ("full", "mla", "tq", "sink", "sliding", "sliding_mla", "chunked", "mamba")


def lookups(name, kind=Observed, seeds=40):
    """Lookups of random runs: the model before it, and its value."""
    for model, workload, where in runs((name,), seeds, kind=kind):
        for operation, _, outcome, _ in steps(model, workload, 150):
            if isinstance(operation, Lookup):
                yield model, operation.request, outcome.value, where


@pytest.mark.parametrize("name", SINGLE)
def test_a_hit_is_the_longest_length_that_the_definition_allows(name):
    lengths = []
    for model, request, (tokens, _), where in lookups(name):
        assert tokens == longest(model, request), where
        lengths.append(tokens)
    assert sum(tokens > 0 for tokens in lengths) >= 15, "too few hits to say anything"
    assert sum(tokens == 0 for tokens in lengths) >= 15, "too few misses to say anything"


class Short(Coordinator):
    """Gives the last block of a hit away."""

    def longest_hit(self, query, reached):
        return super().longest_hit(query._replace(limit=max(0, query.limit - self.rules[0].b)), reached)


class Long(Coordinator):
    """Leaves no token to compute."""

    def longest_hit(self, query, reached):
        return super().longest_hit(query._replace(limit=query.limit + 1), reached)


class HitsShort(Observed):
    coordinator_type = Short


class HitsLong(Observed):
    coordinator_type = Long


@pytest.mark.parametrize("name", ["full", "sliding", "mamba"])
@pytest.mark.parametrize("kind", [HitsShort, HitsLong])
def test_trying_every_length_finds_hits_that_are_too_short_or_too_long(name, kind):
    assert any(tokens != longest(model, request) for model, request, (tokens, _), _ in lookups(name, kind))


@pytest.mark.parametrize("name", SINGLE)
def test_the_blocks_of_a_hit_hold_the_request_s_own_content_and_are_the_first_registered_with_it(name):
    for model, request, (tokens, (blocks,)), where in lookups(name):
        rule = model.rules[0]
        assert len(blocks) * rule.b == tokens, where
        for i, block in enumerate(blocks):
            key = (0, model.identities_of(model.requests[request], i))
            assert block == NULL or model.state.earliest()[key] == block, where


@pytest.mark.parametrize("name", ["full", "sliding", "full+sliding", "full+mamba", "full+sliding+mamba", "chunked"])
def test_a_hit_leaves_at_least_one_token_to_compute(name):
    for model, request, (tokens, _), where in lookups(name, Model, seeds=20):
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
    assert replayed(HitsLong) == (4, ((1, 2),))  # what the rule of the last token prevents


@pytest.mark.parametrize("name", ["full+sliding", "full+mamba", "sliding+sliding", "full+sliding+mamba", "full+mla"])
def test_a_common_hit_holds_for_every_group(name):
    """S7: aligned, and every block that the next query reads is real, in every group."""
    hits = 0
    for model, request, (tokens, rows), where in lookups(name, Model, seeds=60):
        hits += tokens > 0
        assert tokens % model.shape.scheduler_block_size == 0, where
        for group, (row, rule) in enumerate(zip(rows, model.rules, strict=True)):
            read = {t // rule.b for t in range(tokens) if rule.attends(tokens, t)}
            chain = model.requests[request].chain
            for i in read:
                key = (group, model.coordinator.identity(chain, rule, i))
                assert row[i] != NULL, where
                assert model.state.identity[row[i]] == key, where
    assert hits >= 10, "too few hits to say anything"


def test_eagle_gives_up_the_last_block_and_finds_nothing_in_a_single_one():
    for eagle, expected in ((False, 4), (True, 2)):
        model = core(Group("full", 2), eagle=eagle)
        done(model, Submit("a", (1, 2, 3, 4, 5)))
        done(model, Allocate("a", 5))
        done(model, Submit("b", (1, 2, 3, 4, 5)))
        assert done(model, Lookup("b"))[0] == expected
        done(model, Submit("c", (1, 2, 9)))
        assert done(model, Lookup("c"))[0] == (0 if eagle else 2)


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
