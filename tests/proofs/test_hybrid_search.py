"""T14 by exhaustion: the hit of several groups is the longest one they have in common, on every small cache."""

from typing import Any

import pytest
from blockproof import impl
from blockproof.fuzz.adapters.impl import bind_impl
from blockproof.fuzz.adapters.vllm.style import VllmStyleTarget
from blockproof.model.arith import cdiv
from blockproof.model.core import Model
from blockproof.model.ops import Allocate, Done, Evict, Lookup, Submit
from blockproof.proofs.hybrid_scopes import ASTRIDE, Scope, chunked, full, latent, mamba, scopes, sliding
from blockproof.proofs.hybrid_search import Answer, Definition, SearchEnd, exhaust, needed_blocks, reads, story
from blockproof.proofs.hybrid_subjects import (
    WRONG,
    AnyElement,
    impl_search,
    model_search,
    named_search,
    repaired_search,
)

SUBJECTS = {"model": model_search, "impl": impl_search, "rounds": repaired_search}
FEW = (
    # Where searches by rounds go wrong if they end early, cut twice, or ask an eagle type once only.
    "full(b=2) + chunked(b=2 k=3)",
    "full*(b=2) + chunked*(b=2 k=5)",
    "full(b=2) + sliding*(b=1 w=5)",
    "full(b=4) + sliding*(b=2 w=6)",
    "sliding*(b=1 w=1) + mamba(b=1)",
    "sliding*(b=1 w=2) + sliding*(b=1 w=3)",
    "full*(b=1) + sliding*(b=1 w=2) + sliding*(b=1 w=3)",
    "full(b=1) + sliding(b=1 w=3)",
    "full*(b=1) + mamba*(b=1)",
    "full(b=1) + sliding(b=1 w=3) + chunked(b=1 k=2)",
)


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_hit_is_the_longest_common_one_and_its_rows_show_what_it_needs(name):
    tallies = [exhaust(scope, SUBJECTS[name](scope)) for scope in scopes() if scope.family in FEW]
    assert [(tally.scope.family, tally.verdicts) for tally in tallies if not tally.holds] == []
    assert len(tallies) >= len(FEW)
    assert sum(tally.searches for tally in tallies) > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_so_it_is_in_all_scopes(name):
    tallies = [exhaust(scope, SUBJECTS[name](scope)) for scope in scopes()]
    assert [(tally.scope.family, tally.verdicts) for tally in tallies if not tally.holds] == []
    assert sum(tally.searches for tally in tallies) > 100_000


CAUGHT_IN = {
    "ends after one round": (Scope((full(1), sliding(1, 2), sliding(1, 3)), 3), "UNSOUND"),
    "gives up a block in the first round only": (Scope((sliding(1, 2), sliding(1, 3)), 4, eagle=True), "UNBACKED"),
    "does not cut to the common length": (Scope((full(1), sliding(1, 2)), 2), "untidy"),
    "looks for states beyond the candidate": (Scope((full(1), mamba(1)), 2, eagle=True), "UNSOUND"),
    "gives up no block": (Scope((full(1), mamba(1)), 2, eagle=True), "UNBACKED"),
    "leaves no token to compute": (Scope((full(1), mamba(1)), 2), "UNSOUND"),
    "forgets the first block that is read": (Scope((full(1), sliding(1, 3)), 3), "UNSOUND"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_search_with_a_fault_is_refuted_where_the_right_one_holds(name):
    scope, sign = CAUGHT_IN[name]
    assert exhaust(scope, repaired_search(scope)).holds
    tally = exhaust(scope, WRONG[name](scope))
    assert not tally.holds
    assert tally.untidy if sign == "untidy" else tally.verdicts[SearchEnd[sign]]


def test_a_search_that_raises_is_counted_and_shown():
    def search(limit, registered):
        raise IndexError(limit)

    tally = exhaust(Scope((full(1), mamba(1)), 1), search)
    assert tally.verdicts == {SearchEnd.RAISED: 5}
    assert tally.smallest[SearchEnd.RAISED].found is None


@pytest.mark.parametrize("subject", [*SUBJECTS.values(), *WRONG.values()], ids=[*SUBJECTS, *WRONG])
def test_one_run_for_all_caches_that_agree_in_what_was_asked_finds_what_a_run_for_each_finds(subject):
    for scope in scopes([((full(2), sliding(1, 2)), 4), ((full(1), chunked(1, 2), mamba(1)), 2)]):
        search, limits = subject(scope), []

        def blind(limit, registered, search=search, limits=limits):
            limits.append(limit)
            return search(limit, registered)._replace(asked=None)

        together, apart = exhaust(scope, search), exhaust(scope, blind)
        assert together == apart
        assert len(limits) == apart.searches


class LooksElsewhere(impl.KVCacheManager):
    """Its lookup reads what is registered in a way that nobody notes."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        pool, coordinator = self.block_pool, self.coordinator
        find = coordinator.find_longest_cache_hit

        def elsewhere(hashes: Any, length: int) -> Any:
            known = [pool.cached_block_hash_to_block.blocks_of(one) for one in hashes]
            return find(hashes, length if all(known) else 0)

        setattr(coordinator, "find_longest_cache_hit", elsewhere)  # noqa: B010  # a method of one object


def test_a_core_that_looks_at_what_is_registered_in_another_way_is_not_believed():
    names = {"KVCacheManager": LooksElsewhere}
    search = named_search(lambda name: names.get(name) or getattr(impl, name), AnyElement())
    tally = exhaust(Scope((full(1), sliding(1, 2)), 3), search(Scope((full(1), sliding(1, 2)), 3)))
    assert tally.verdicts == {SearchEnd.RAISED: 85}


@pytest.mark.parametrize(
    ("rows", "sound", "tidy"),
    [
        (((1, 2), (0, 6)), True, True),
        (((1, 2), (5, 6)), True, False),  # a block that the window does not reach
        (((1, 2), (0, 5)), False, False),  # another block of the same group
        (((1, 0), (0, 6)), False, True),  # full attention reads it all; nothing stands where it should not
        (((1, 2, 3), (0, 6)), True, False),  # longer than the hit
        (((1, 2), (0, 2)), False, False),  # the other group's block
    ],
)
def test_what_makes_rows_sound_and_tidy(rows, sound, tidy):
    definition = Definition(Scope((full(1), sliding(1, 2)), 3))
    answer = Answer(2, rows)
    assert definition.sound(answer, 3, (0b111, 0b111)) == sound
    assert definition.tidy(answer) == tidy


def test_what_a_hit_needs_follows_from_what_the_next_query_reads():
    assert reads(full(2), 4) == {0, 1}
    assert reads(latent(2), 4) == {0, 1}
    assert reads(sliding(2, 3), 6) == {2}  # tokens 4 and 5
    assert reads(sliding(2, 4), 6) == {1, 2}  # tokens 3 to 5
    assert reads(sliding(1, 1), 6) == set()
    assert reads(chunked(2, 5), 6) == {2}  # token 5
    assert reads(chunked(2, 4), 8) == set()
    assert reads(mamba(2), 6) == {2}
    assert needed_blocks(sliding(2, 3), 6, gives_up=True) == {2, 3}
    assert needed_blocks(sliding(1, 1), 6, gives_up=False) == set()
    assert needed_blocks(sliding(1, 1), 6, gives_up=True) == {6}
    assert needed_blocks(sliding(2, 3), 0, gives_up=True) == set()


def test_a_hit_is_aligned_and_the_block_behind_it_may_end_with_the_last_token():
    definition = Definition(Scope((full(2), sliding(1, 2)), 4, eagle=True))
    everything = (0b111, 0b11111)
    assert definition.common(4, everything) == 0b101  # 0 and 2 tokens: 4 would need a block up to token 5
    assert definition.common(3, everything) == 0b101  # the block behind 2 tokens ends with token 3, the last one
    assert definition.common(2, everything) == 0b1
    assert definition.common(4, (0b11, 0b01011)) == 0b1


def test_equal_groups_share_their_flag_and_a_flag_keeps_the_others_free():
    alike = Scope((full(1), sliding(1, 2), sliding(1, 2)), 1)
    assert [alike.gives_up(i) for i in range(3)] == [False] * 3
    flagged = [scope.family for scope in scopes([(alike.groups, 1)])]
    assert flagged == [
        "full(b=1) + sliding(b=1 w=2) + sliding(b=1 w=2)",
        "full*(b=1) + sliding(b=1 w=2) + sliding(b=1 w=2)",
        "full(b=1) + sliding*(b=1 w=2) + sliding*(b=1 w=2)",
        "full(b=1) + sliding*(b=1 w=2) + sliding*(b=1 w=2)",
        "full*(b=1) + sliding*(b=1 w=2) + sliding*(b=1 w=2)",
    ]


def test_a_core_is_found_by_the_names_of_its_classes_and_a_missing_name_is_an_error():
    scope = Scope((full(1), sliding(1, 2)), 3, eagle=True)
    names = bind_impl().names
    assert exhaust(scope, named_search(names, bind_impl().dtype)(scope)).holds
    with pytest.raises(AttributeError):
        named_search(lambda name: getattr(object, name), None)(scope)


def test_a_kind_without_a_scope_is_refused():
    groups = Scope(ASTRIDE[0][0], 3).groups
    cross = type(groups[0])("cross", 2)
    with pytest.raises(ValueError, match="cross"):
        impl_search(Scope((full(2), cross), 3))


@pytest.mark.parametrize(
    ("groups", "tokens", "found"),
    [
        ((full(32), sliding(16, 1024)), 500, 448),
        ((full(32), sliding(16, 1024)), 1200, 1152),
        ((full(64), sliding(16, 512)), 200, 128),
        ((full(16), sliding(16, 1024)), 500, 480),
        ((full(16), sliding(16, 1024)), 512, 496),
    ],
)
def test_a_prompt_that_drafts_follow_hits_all_but_its_last_block_again(groups, tokens, found):
    """The same prompt twice, nothing evicted."""
    scope = Scope(groups, tokens - 1, eagle=True)
    prompt = tuple(range(2 * tokens))
    target, model = VllmStyleTarget("impl", bind_impl()), Model(scope.shape)
    target.start(scope.shape)
    for operation in (Submit("a", prompt), Allocate("a", len(prompt)), Submit("b", prompt[:tokens]), Lookup("b")):
        outcome, _ = target.step(operation)
        assert outcome == model.step(operation)[0]
    assert isinstance(outcome, Done)
    assert isinstance(outcome.value, tuple)
    everything = tuple((1 << cdiv(2 * tokens, group.block_size)) - 1 for group in groups)
    assert outcome.value[0] == found == Definition(scope).common(tokens - 1, everything).bit_length() - 1


def test_a_story_evicts_what_is_not_wanted_and_a_block_that_is_never_registered_has_no_story():
    scope = Scope((full(1), sliding(1, 1)), 2)
    tally = exhaust(scope, WRONG["leaves no token to compute"](scope))
    assert story(scope, tally.smallest[SearchEnd.UNSOUND]) is None  # a window of one token registers nothing
    scope = Scope((full(1), mamba(1)), 2)
    example = exhaust(scope, WRONG["leaves no token to compute"](scope)).smallest[SearchEnd.UNSOUND]
    kinds = [type(operation) for operation in story(scope, example)]
    assert kinds == [Submit, Allocate, Evict, Submit, Lookup]
