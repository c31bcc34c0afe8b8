"""T14 by exhaustion: where the hit of several groups is the longest one they have in common, and where it is not."""

import pytest
from blockproof.fuzz.adapters.impl import bind_impl
from blockproof.fuzz.adapters.vllm.style import VllmStyleTarget
from blockproof.model.arith import cdiv
from blockproof.model.core import Model
from blockproof.model.ops import Allocate, Done, Evict, Lookup, Submit
from blockproof.proofs.hybrid_scopes import ASTRIDE, Scope, chunked, full, latent, mamba, scopes, sliding
from blockproof.proofs.hybrid_search import Answer, Ask, Definition, Flaw, Verdict, exhaust, needed_blocks, reads, story
from blockproof.proofs.hybrid_subjects import (
    WRONG,
    descent_search,
    exact_search,
    impl_search,
    model_search,
    named_search,
)

SUBJECTS = {"model": model_search, "impl": impl_search}
REFUTED = {
    # A chunk starts inside a block, and there is no second round that would put it right.
    "full(b=2) + chunked(b=2 k=3)": {Verdict.UNSOUND: 44},
    "full*(b=2) + chunked(b=2 k=3)": {Verdict.UNSOUND: 24},
    "full(b=2) + chunked(b=2 k=5)": {Verdict.UNSOUND: 40},
    "full*(b=2) + chunked(b=2 k=5)": {Verdict.UNSOUND: 16},
    "full(b=1) + chunked(b=2 k=5)": {Verdict.UNSOUND: 4},
    # An eagle window with smaller blocks than another group is cut twice if the hit is shorter than the window.
    "full(b=2) + sliding*(b=1 w=5)": {Verdict.SHORTER: 12},
    "full*(b=2) + sliding*(b=1 w=5)": {Verdict.SHORTER: 6},
    "full(b=4) + sliding*(b=2 w=6)": {Verdict.SHORTER: 17},
    "full*(b=4) + sliding*(b=2 w=6)": {Verdict.SHORTER: 8},
    # An eagle window of one token, asked again without eagle, needs another block than before.
    "sliding*(b=1 w=1) + mamba(b=1)": {Verdict.SHORTER: 72},
    "sliding*(b=1 w=1) + mamba*(b=1)": {Verdict.SHORTER: 72},
    # An eagle group gave its block up for a greater length than the one that another eagle group leaves.
    "sliding*(b=1 w=2) + sliding*(b=1 w=3)": {Verdict.UNBACKED: 18},
    "full*(b=1) + sliding*(b=1 w=2) + sliding*(b=1 w=3)": {Verdict.UNBACKED: 2},
}
"""Families in which the model and our core are not always right, and in how many searches."""


FEW = (
    *(family for family in REFUTED),
    *("full(b=1) + sliding(b=1 w=3)", "full(b=1) + mla(b=1)", "full*(b=1) + mamba*(b=1)"),
    "full(b=1) + sliding(b=1 w=3) + chunked(b=1 k=2)",
)
"""The families that show something, and some that do not."""


def few():
    return [scope for scope in scopes() if scope.family in FEW]


@pytest.fixture(
    scope="module",
    params=[
        *(pytest.param((name, few), id=f"{name}-few") for name in SUBJECTS),
        *(pytest.param((name, scopes), id=f"{name}-all") for name in SUBJECTS),
    ],
)
def tallies(request):
    name, which = request.param
    return {scope.family: exhaust(scope, SUBJECTS[name](scope)) for scope in which()}


def bad(tally):
    return {verdict: count for verdict, count in tally.verdicts.items() if verdict is not Verdict.LONGEST}


def test_the_hit_is_the_longest_common_one_in_all_families_but_those_known(tallies):
    assert {family: bad(tally) for family, tally in tallies.items() if bad(tally)} == REFUTED
    assert sum(tally.searches for tally in tallies.values()) > (100_000 if len(tallies) > len(FEW) else 10_000)


def test_no_step_of_a_search_grows_and_the_rows_show_what_the_hit_needs_and_nothing_else(tallies):
    assert [family for family, tally in tallies.items() if tally.growing or tally.untidy] == []
    assert all(tally.asks >= tally.searches for tally in tallies.values()), "some steps were not seen"


def test_full_attention_and_one_other_type_are_asked_once_and_no_search_takes_more_than_five_rounds(tallies):
    for family, tally in tallies.items():
        alone = len({group.spec for group in tally.scope.groups}) == 2 and family.startswith("full")
        assert tally.rounds == 1 if alone else 1 < tally.rounds <= 5, family


def test_each_type_answers_with_its_greatest_valid_length_but_short_eagle_windows_and_chunks_astride_blocks(tallies):
    for family, tally in tallies.items():
        expected = set()
        for i, group in enumerate(tally.scope.groups):
            if group.kind == "sliding" and tally.scope.gives_up(i) and tally.verdicts[Verdict.SHORTER]:
                expected |= {("sliding", Flaw.TOO_SHORT)} if group.window > 1 else set()
            if group.kind == "chunked" and group.chunk % group.block_size and group.block_size % group.chunk:
                expected |= {("chunked", Flaw.INVALID)}
        # An eagle full group keeps the limit below what a chunk within six tokens could get wrong.
        if family != "full*(b=1) + chunked(b=2 k=5)":
            assert set(tally.flaws) == expected, family


def test_a_window_that_is_cut_twice_loses_one_scheduler_block(tallies):
    lossy = [t for t in tallies.values() if t.verdicts[Verdict.SHORTER] and "mamba" not in t.scope.family]
    assert len(lossy) == 4
    assert all(tally.most_lost == tally.scope.alignment for tally in lossy)


def test_the_smallest_counterexamples_happen_through_the_public_interface(tallies):
    target, replayed = VllmStyleTarget("impl", bind_impl()), 0
    for tally in tallies.values():
        for example in tally.smallest.values():
            operations = story(tally.scope, example)
            assert operations is not None, example
            target.start(tally.scope.shape)
            model = Model(tally.scope.shape)
            for operation in operations:
                outcome, _ = target.step(operation)
                assert outcome == model.step(operation)[0]
            assert isinstance(outcome, Done)
            assert isinstance(outcome.value, tuple)
            assert outcome.value[0] == example.found
            replayed += 1
    assert replayed == len(REFUTED)


def test_a_search_without_memory_puts_all_right_but_the_window_that_is_cut_twice():
    tallies = [exhaust(scope, descent_search(scope)) for scope in scopes() if scope.family in REFUTED]
    left = {tally.scope.family for tally in tallies if not tally.holds}
    assert left == {family for family in REFUTED if "w=5" in family or "w=6" in family}


@pytest.mark.parametrize("which", [few, scopes])
def test_with_exact_answers_of_each_type_the_search_without_memory_is_right_everywhere(which):
    tallies = [exhaust(scope, exact_search(scope)) for scope in which()]
    assert [tally.scope.family for tally in tallies if not tally.holds or tally.flaws] == []


CAUGHT_IN = {
    "ends after one round": (Scope((full(1), sliding(1, 2), sliding(1, 3)), 3), "UNSOUND"),
    "gives up a block in every round": (Scope((full(1), sliding(1, 2)), 3, eagle=True), "SHORTER"),
    "gives up a block in the first round only": (Scope((sliding(1, 2), sliding(1, 3)), 4, eagle=True), "UNBACKED"),
    "does not cut to the common length": (Scope((full(1), sliding(1, 2)), 2), "untidy"),
    "looks for states beyond the candidate": (Scope((full(1), mamba(1)), 2, eagle=True), "UNSOUND"),
    "gives up no block": (Scope((full(1), mamba(1)), 2, eagle=True), "UNBACKED"),
    "leaves no token to compute": (Scope((full(1), mamba(1)), 2), "UNSOUND"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_search_with_a_fault_is_refuted_where_the_right_one_holds(name):
    scope, sign = CAUGHT_IN[name]
    assert exhaust(scope, exact_search(scope)).holds
    tally = exhaust(scope, WRONG[name](scope))
    assert not tally.holds
    assert tally.untidy if sign == "untidy" else tally.verdicts[Verdict[sign]]


def test_a_search_that_raises_is_counted_and_shown():
    def search(limit, registered):
        raise IndexError(limit)

    tally = exhaust(Scope((full(1), mamba(1)), 1), search)
    assert tally.verdicts == {Verdict.RAISED: 5}
    assert tally.smallest[Verdict.RAISED].found is None


def test_a_candidate_that_grows_is_noticed_though_the_answer_is_right():
    def search(limit, registered):
        answer = exact(limit, registered)
        return answer._replace(asks=(Ask(0, limit, False, 0), *answer.asks))

    scope = Scope((full(1), mamba(1)), 2)
    exact = exact_search(scope)
    tally = exhaust(scope, search)
    assert tally.verdicts[Verdict.LONGEST] == tally.searches
    assert tally.growing
    assert not tally.holds


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
    answer = Answer(2, rows, ())
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
    assert needed_blocks(sliding(1, 1), 6, gives_up=False) == {5}
    assert needed_blocks(sliding(1, 1), 6, gives_up=True) == {6}
    assert needed_blocks(sliding(2, 3), 0, gives_up=True) == set()


def test_a_hit_is_aligned_and_its_spare_block_lies_within_the_limit():
    definition = Definition(Scope((full(2), sliding(1, 2)), 4, eagle=True))
    everything = (0b11, 0b11111)
    assert definition.common(4, everything) == 0b101  # 0 and 2 tokens: 4 would need a block up to token 5
    assert definition.common(3, everything) == 0b1
    assert definition.common(4, (0b11, 0b01111)) == 0b101
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
    ("groups", "tokens", "found", "longest"),
    [
        ((full(32), sliding(16, 1024)), 500, 416, 448),
        ((full(32), sliding(16, 1024)), 1200, 1152, 1152),  # longer than the window: nothing is lost
        ((full(64), sliding(16, 512)), 200, 64, 128),
        ((full(16), sliding(16, 1024)), 500, 480, 480),  # blocks of one size: nothing is lost
    ],
)
def test_a_prompt_shorter_than_an_eagle_window_hits_one_scheduler_block_less_than_it_could(
    groups, tokens, found, longest
):
    """The same prompt twice, nothing evicted: found is what the model and our core find."""
    scope = Scope(groups, tokens - 1, eagle=True)
    prompt = tuple(range(2 * tokens))
    target, model = VllmStyleTarget("impl", bind_impl()), Model(scope.shape)
    target.start(scope.shape)
    for operation in (Submit("a", prompt), Allocate("a", len(prompt)), Submit("b", prompt[:tokens]), Lookup("b")):
        outcome, _ = target.step(operation)
        assert outcome == model.step(operation)[0]
    assert isinstance(outcome, Done)
    assert isinstance(outcome.value, tuple)
    assert outcome.value[0] == found
    everything = tuple((1 << cdiv(2 * tokens, group.block_size)) - 1 for group in groups)
    assert Definition(scope).common(tokens - 1, everything).bit_length() - 1 == longest


def test_a_story_evicts_what_is_not_wanted_and_a_block_that_is_never_registered_has_no_story():
    scope = Scope((full(1), sliding(1, 1)), 2)
    tally = exhaust(scope, WRONG["leaves no token to compute"](scope))
    assert story(scope, tally.smallest[Verdict.UNSOUND]) is None  # a window of one token registers nothing
    scope = Scope((full(1), mamba(1)), 2)
    example = exhaust(scope, WRONG["leaves no token to compute"](scope)).smallest[Verdict.UNSOUND]
    kinds = [type(operation) for operation in story(scope, example)]
    assert kinds == [Submit, Allocate, Evict, Submit, Lookup]
