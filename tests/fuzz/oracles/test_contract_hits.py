"""S7 and S14 in tables: which answers are no hit, which hits are too short, and which losses explain that."""

import pytest
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.targets.declarations import LOSES
from blockproof.model.ops import Allocate, Done, Evict, Free, Group, Lookup, StepStart, Submit, Take

from .contract_stories import computed
from .test_contract import WINDOW, Story, shape
from .test_contract_played import BUT_TABLES, WIDE_AND_NARROW, Play

PAIRS = shape(Group("full", 2), num_blocks=8)
NARROW_WINDOW = shape(WINDOW, num_blocks=8)
TWICE = shape(Group("full", 2), Group("sliding", 2, window=2), num_blocks=8)
QUADS = shape(Group("full", 4), hash_block_size=2, num_blocks=8)
UNLIKE = shape(Group("full", 2), Group("full", 3), hash_block_size=1, scheduler_block_size=6, num_blocks=8)
ENCODED = shape(Group("full", 2), Group("cross", 2), num_blocks=8)


@pytest.mark.parametrize(
    ("in_shape", "prompt", "rows", "other", "hit", "said"),
    [
        (PAIRS, (0, 1, 2, 3, 4), ([1, 2, 3],), (0, 1, 2, 3, 9), (4, ((1, 2),)), ""),
        (PAIRS, (0, 1, 2, 3, 4), ([1, 2, 3],), (0, 1, 2, 3, 9), (2, ((1,),)), ""),
        (PAIRS, (0, 1, 2, 3, 4), ([1, 2, 3],), (0, 1, 2, 3, 9), (0, ((),)), ""),
        (
            PAIRS,
            (0, 1, 2, 3, 4),
            ([1, 2, 3],),
            (0, 1, 2, 3, 9),
            (3, ((1, 2),)),
            "3 <= 4 (num_tokens - 1) and 3 % 2 == 1",
        ),
        (PAIRS, (0, 1, 2, 3, 4), ([1, 2, 3],), (0, 1, 2, 3), (4, ((1, 2),)), "0 <= 4 <= 3 (num_tokens - 1)"),
        (PAIRS, (0, 1, 2, 3, 4), ([1, 2, 3],), (0, 1, 2, 3, 9), (4, ((1,),)), "1 entries of 2 tokens, not 2"),
        (PAIRS, (0, 1, 2, 3, 4), ([1, 2, 3],), (0, 1, 2, 3, 9), (4, ((1, 2, 3),)), "3 entries of 2 tokens, not 2"),
        (PAIRS, (0, 1, 2, 3, 4), ([1, 2, 3],), (0, 1, 2, 3, 9), (4, ((1, 2), (1, 2))), "is no length with a row"),
        (
            PAIRS,
            (0, 1, 2, 3, 4),
            ([1, 2, 3],),
            (0, 1, 2, 3, 9),
            4,
            "4 is no length with a row of blocks for each group",
        ),
        (
            PAIRS,
            (0, 1, 2, 3, 4),
            ([1, 2, 3],),
            (0, 1, 2, 3, 9),
            (4, ((0, 2),)),
            "the query at 4 reads entry 0, which is null",
        ),
        (
            PAIRS,
            (0, 1, 2, 3, 4),
            ([1, 2, 3],),
            (0, 1, 2, 3, 9),
            (4, ((2, 1),)),
            "block 2 does not hold the content of the prefix of 2",
        ),
        (
            PAIRS,
            (0, 1, 2, 3, 4),
            ([1, 2, 3],),
            (0, 1, 2, 3, 9),
            (4, ((1, 3),)),
            "block 3 does not hold the content of the prefix of 4",
        ),
        (PAIRS, (0, 1, 2, 3, 4), ([1, 2, 3],), (0, 1, 2, 3, 9), (4, ((1, 8),)), "block 8 does not hold"),
        (PAIRS, (0, 1, 2, 3, 4), ([1, 2, 3],), (0, 1, 2, 3, 9), (4, ((1, -6),)), "block -6 does not hold"),
        (PAIRS, (0, 1, 2, 3, 4), ([1, 2, 3],), (0, 1, 5, 3, 9), (4, ((1, 2),)), "block 2 does not hold"),
        (NARROW_WINDOW, (0, 1, 2, 3), ([1, 2, 3, 4],), (0, 1, 2, 9), (3, ((0, 0, 3),)), ""),
        (NARROW_WINDOW, (0, 1, 2, 3), ([1, 2, 3, 4],), (0, 1, 2, 9), (3, ((0, 2, 3),)), ""),
        (NARROW_WINDOW, (0, 1, 2, 3), ([1, 2, 3, 4],), (0, 1, 2, 9), (3, ((0, 0, 0),)), "the query at 3 reads entry 2"),
        (NARROW_WINDOW, (0, 1, 2, 3), ([1, 2, 3, 4],), (0, 1, 2, 9), (3, ((0, 4, 3),)), "block 4 does not hold"),
        (TWICE, (0, 1, 2, 3), ([1, 2], [3, 4]), (0, 1, 2, 3, 9), (4, ((1, 2), (0, 4))), ""),
        (
            TWICE,
            (0, 1, 2, 3),
            ([1, 2], [3, 4]),
            (0, 1, 2, 3, 9),
            (4, ((1, 2), (0, 2))),
            "group 1: hit [0, 2] of 4 tokens",
        ),
        (TWICE, (0, 1, 2, 3), ([1, 2], [3, 4]), (0, 1, 2, 3, 9), (4, ((1, 2),)), "is no length with a row"),
        (QUADS, (0, 1, 2, 3), ([1],), (0, 1, 2, 3, 9), (4, ((1,),)), ""),
        (QUADS, (0, 1, 2, 3), ([1],), (0, 1, 2, 3, 9), (2, ((1,),)), "2 % 4 == 2"),
        (WIDE_AND_NARROW, (0, 1, 2, 3), ([1], [2, 3]), (0, 1, 9), (2, ((1,), (2,))), ""),
        (WIDE_AND_NARROW, (0, 1, 2, 3), ([1], [2, 3]), (0, 1, 9), (2, ((2,), (2,))), "block 2 does not hold"),
        (WIDE_AND_NARROW, (0, 1, 2, 3), ([1], [2, 3]), (0, 1, 9), (1, ((1,), (2,))), "1 % 2 == 1"),
        (UNLIKE, (0, 1, 2, 3), ([1, 2], [3, 4]), (0, 9), (1, ((1,), (3,))), ""),
        (ENCODED, (0, 1, 2, 3), ([1, 2], []), (0, 1, 9), (2, ((1,), ())), ""),
        (ENCODED, (0, 1, 2, 3), ([1, 2], []), (0, 1, 9), (1, ((1,), ())), "1 % 2 == 1"),
    ],
)
def test_what_is_a_hit_and_what_is_none(in_shape, prompt, rows, other, hit, said):
    play = Play(in_shape)
    play.compute("a", prompt, *rows)
    id = play.look_up("b", other, hit)
    assert id == ((said and "S7") or None)
    assert said in (play.what or "")
    assert play.contract.reached["contract: S7 checked"] == (not said)
    assert play.contract.reached["contract: hit"] == (not said and hit[0] > 0)


@pytest.mark.parametrize(
    ("table", "id"), [([1, 2, 5], None), ([1, 5, 6], "S7"), ([5, 2, 6], "S7"), ([1], "S7"), ([1, 2], "S15")]
)
def test_the_table_of_who_uses_a_hit_begins_with_it(table, id):
    play = Play(PAIRS)
    play.compute("a", (0, 1, 2, 3, 4), [1, 2, 3])
    assert play.look_up("b", (0, 1, 2, 3, 9), (4, ((1, 2),))) is None
    assert play.step(Allocate("b", 1, hit=True), {"a": [1, 2, 3], "b": table}) == id


def test_what_is_found_is_registered():
    play = Play(PAIRS, BUT_TABLES - {"labels"})
    play.before = play.before._replace(labels=[None] * 8)
    play.compute("a", (0, 1, 2, 3, 4), [1, 2, 3])
    assert play.look_up("b", (0, 1, 9), (2, ((1,),))) == "S10"
    assert play.what == "b, group 0: hit [1] of 2 tokens: block 1 is not registered, yet it is found"


class Missing:
    """Our core, whose lookups find nothing."""

    name = "missing"

    def __init__(self):
        self._core = open_target("impl")

    def start(self, in_shape):
        self._nothing = Done((0, ((),) * len(in_shape.groups)))
        return self._core.start(in_shape)

    def step(self, operation):
        outcome, seen = self._core.step(operation)
        return (self._nothing if isinstance(operation, Lookup) else outcome), seen


ONE, TWO = Group("sliding", 1, window=1), Group("sliding", 1, window=2)
OTHER, LONG = Group("sliding", 1, window=2, num_heads=2), Group("sliding", 1, window=16)
BY_ONE, BY_TWO = Group("full", 1), Group("full", 2)
SHORT_HITS = [
    (shape(BY_ONE), 6, 5, "", 6, ""),
    (shape(BY_ONE, scheduler_block_size=2), 6, 5, "", 6, ""),
    (shape(BY_ONE, eagle=True), 6, 5, "eagle-last-block", 5, ""),
    (shape(BY_TWO, eagle=True), 6, 4, "eagle-last-block", 4, ""),
    (shape(BY_TWO, eagle=True), 5, 2, "", 2, ""),
    (shape(BY_ONE, Group("full", 1, num_heads=2), eagle=True), 6, 5, "eagle-last-block", 5, ""),
    (shape(ONE), 6, 5, "window-of-one", 6, "window-of-one"),
    (shape(BY_ONE, ONE), 6, 5, "window-of-one", 6, "window-of-one"),
    (shape(ONE, eagle=True), 6, 5, "eagle-last-block", 5, ""),
    (shape(TWO), 6, 5, "", 6, ""),
    (shape(TWO, eagle=True), 6, 5, "eagle-last-block", 5, ""),
    (shape(TWO, retention_interval=0), 6, 5, "", 5, ""),
    (shape(TWO, eagle=True, retention_interval=0), 6, 5, "eagle-last-block boundary-without-eagle", 5, ""),
    (shape(TWO, scheduler_block_size=2), 6, 5, "window-kept-for-scheduler", 6, ""),
    (shape(TWO, scheduler_block_size=2), 5, 4, "", 5, ""),
    (shape(TWO, OTHER, scheduler_block_size=2), 6, 4, "", 6, ""),
    (shape(BY_TWO, Group("sliding", 1, window=16, eagle=True)), 6, 4, "eagle-cut-twice", 4, "eagle-cut-twice"),
    (
        shape(BY_TWO, Group("sliding", 1, window=16, eagle=True)),
        *(5, 4, "eagle-cut-twice eagle-last-block", 4, "eagle-cut-twice"),
    ),
    (shape(BY_TWO, Group("sliding", 1, window=2, eagle=True)), 6, 4, "", 4, ""),
    (shape(BY_TWO, Group("sliding", 1, window=2, eagle=True)), 5, 4, "eagle-last-block", 4, ""),
    (shape(Group("full", 2, eagle=True), LONG), 6, 4, "eagle-last-block", 4, ""),
    (shape(TWO, OTHER, eagle=True), 6, 5, "eagle-asked-in-turn eagle-last-block", 5, "eagle-asked-in-turn"),
]
"""A prompt of so many tokens; how much of it a replay should hit, and which losses explain that it does not; the same
for a request that goes on behind the prompt, where it is seen what is registered."""


def _explaining(in_shape, hides, operations, told, limit):
    """The losses of S14 that each explain alone that the last lookup finds nothing."""
    explaining = []
    for loss in (name for name, text in LOSES.items() if text.startswith("S14")):
        *quiet, last = Story(Missing(), in_shape, hides, losses={loss}).tell(*operations)
        assert quiet == [None] * len(quiet)
        assert last is None or last.id == "S14"
        explaining += [] if last else [loss]
    *_, last = Story(Missing(), in_shape, hides).tell(*operations)
    assert last.what.startswith(f"b: hit of 0 tokens, but {told}")
    assert f" (limit {limit}, alignment " in last.what
    return explaining


@pytest.mark.parametrize(("in_shape", "tokens", "boundary", "of_replay", "longest", "of_longer"), SHORT_HITS)
def test_which_losses_explain_that_a_hit_is_too_short(in_shape, tokens, boundary, of_replay, longest, of_longer):
    prompt = tuple(range(tokens))
    replay = (*computed("a", *prompt), Free("a"), Submit("b", prompt), Lookup("b"))
    hides = {"labels", "earliest", "registered"}
    told = f"the same prompt was computed up to {tokens}, and the blocks up to the replay boundary {boundary} still"
    assert sorted(_explaining(in_shape, hides, replay, told, tokens - 1)) == sorted(of_replay.split())
    longer = (*computed("a", *prompt), Submit("b", (*prompt, 77)), Lookup("b"))
    told = f"{longest} are registered in every group"
    assert sorted(_explaining(in_shape, (), longer, told, tokens)) == sorted(of_longer.split())


FIVE = (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("between", "hit", "id"),
    [
        ((), (4, ((1, 2),)), None),
        ((), (2, ((1,),)), "S14"),
        ((), (0, ((),)), "S14"),
        ((Evict((3,)),), (2, ((1,),)), "S14"),
        ((Evict((2,)),), (2, ((1,),)), None),
        ((Evict((1,)),), (0, ((),)), None),
        ((Take(0),), (0, ((),)), None),
    ],
)
def test_a_replay_hits_what_is_still_there(between, hit, id):
    """Where labels are not shown, nothing is asked for once blocks were asked for, as these may have evicted others."""
    play = Play(PAIRS)
    play.compute("a", FIVE, [1, 2, 3])
    assert play.step(Free("a"), {}) is None
    for operation in between:
        assert play.step(operation) is None
    assert play.look_up("b", FIVE, hit) == id
    assert play.contract.reached["contract: S14 checked"] == (not between or between == (Evict((3,)),))


def test_a_prompt_of_one_token_has_nothing_to_hit():
    play = Play(PAIRS)
    play.compute("a", (0,), [1])
    assert play.step(Free("a"), {}) is None
    assert play.look_up("b", (0,), (0, ((),))) is None
    assert play.contract.reached["contract: replay of a prompt that is still there"] == 0


@pytest.mark.parametrize(("taken", "id"), [((5,), "S14"), ((2,), None)])
def test_what_was_handed_out_since_need_not_be_found(taken, id):
    play = Play(PAIRS, BUT_TABLES - {"labels"})
    play.before = play.before._replace(labels=[None] * 8)
    play.compute("a", FIVE, [1, 2, 3])
    assert play.step(Free("a"), {}) is None
    assert play.step(Take(1), outcome=Done(taken)) is None
    assert play.look_up("b", FIVE, (0, ((),))) == id


@pytest.mark.parametrize(
    ("labels", "prompt", "hit", "id"),
    [
        ((1, 2), (0, 1, 2, 3, 9), (4, ((1, 2),)), None),
        ((1, 2), (0, 1, 2, 3, 9), (2, ((1,),)), "S14"),
        ((1, None), (0, 1, 2, 3, 9), (2, ((1,),)), None),
        ((None, 2), (0, 1, 2, 3, 9), (0, ((),)), None),
        ((1, 2), (0, 1, 2, 3), (2, ((1,),)), None),
        ((1, 2), (0, 1, 2, 9), (2, ((1,),)), None),
        ((1, 2), (0, 1, 2, 9), (0, ((),)), "S14"),
        ((1, 2), (0, 1), (0, ((),)), None),
        ((1, 2), (5, 1, 2, 3, 9), (0, ((),)), None),
    ],
)
def test_a_hit_is_as_long_as_what_is_registered(labels, prompt, hit, id):
    play = Play(PAIRS, BUT_TABLES - {"labels"})
    play.before = play.before._replace(labels=[None] * 8)
    assert play.step(Submit("a", FIVE)) is None
    shown = [None, *labels, *[None] * 5]
    assert play.step(Allocate("a", 5), {"a": [1, 2, 3]}, labels=shown) is None
    assert play.look_up("b", prompt, hit) == id
    assert play.contract.reached["contract: S14 checked"] == (id is None)


@pytest.mark.parametrize(("more", "skip"), [({"caching": False}, False), ({}, True)])
def test_who_looks_nothing_up_misses_nothing(more, skip):
    play = Play(shape(Group("full", 2), num_blocks=8, **more))
    play.compute("a", FIVE, [1, 2, 3])
    assert play.step(Free("a"), {}) is None
    assert play.step(Submit("b", FIVE, skip_lookup=skip)) is None
    assert play.step(Lookup("b"), outcome=Done((0, ((),)))) is None
    assert play.contract.reached["contract: S14 checked"] == 0


@pytest.mark.parametrize(
    ("registered", "prompt", "id"),
    [
        ((1, 2), (0, 1, 2, 3, 9), "S14"),
        ((1, 2), (0, 1, 2, 3), "S14"),
        ((1, 2), (0, 1, 2), None),  # not all tokens of the block behind the hit are known
        ((1, 2), (0, 1, 7, 8, 9), None),
        ((1, 4, 5), (0, 1, 7, 8, 9), "S14"),
        ((4, 2), (0, 1, 2, 3, 9), None),  # block 4 is in front of another token
        ((6, 2), (0, 1, 2, 3, 9), None),  # what comes behind block 6 is not known
        ((1, 4, 6, 2), (0, 1, 2, 3, 9), "S14"),
        ((1,), (0, 1, 2, 3, 9), None),
    ],
)
def test_drafts_find_the_blocks_in_front_of_the_same_token_and_need_the_one_behind(registered, prompt, id):
    play = Play(shape(Group("full", 2), num_blocks=8, eagle=True), BUT_TABLES - {"labels"})
    play.before = play.before._replace(labels=[None] * 8)
    tables = {}
    for name, of, row in (("a", (0, 1, 2, 3, 4), [1, 2, 3]), ("c", (0, 1, 7, 8), [4, 5]), ("d", (0, 1), [6])):
        tables = tables | {name: row}
        labels = [block if block in registered and block <= row[-1] else None for block in range(8)]
        assert play.step(Submit(name, of)) is None
        assert play.step(Allocate(name, len(of)), tables, labels=labels) is None
    assert play.look_up("b", prompt, (0, ((),))) == id


@pytest.mark.parametrize(("steps", "id"), [(0, "S7"), (1, None)])
def test_a_state_of_this_very_step_is_not_continued_from(steps, id):
    play = Play(shape(Group("full", 1), Group("mamba", 1, mamba_mode="all"), num_blocks=12))
    tables = {"a": [1, 2]}, {"a": [3, 4]}
    assert play.step(Submit("a", (0, 1))) is None
    assert play.step(Allocate("a", 2), *tables) is None
    for _ in range(steps):
        assert play.step(StepStart()) is None
    assert play.look_up("b", (0, 1, 9), (2, ((1, 2), (0, 4)))) is None
    tables = {"a": [1, 2], "b": [1, 2, 5]}, {"a": [3, 4], "b": [0, 4, 6]}
    assert play.step(Allocate("b", 1, hit=True), *tables) == id
