"""What may happen to block tables, and which entries a step must find there: S2, S5, S6, S12, S13 and S15 in tables."""

import pytest
from blockproof.model.ops import (
    Advance,
    Allocate,
    Done,
    Free,
    Group,
    Landed,
    Preempt,
    Refused,
    Reject,
    RemoveSkipped,
    Submit,
    Take,
)

from .test_contract import WINDOW, shape
from .test_contract_played import BUT_TABLES, Play

PAIRS = shape(Group("full", 2), num_blocks=8)
TWO_GROUPS = shape(Group("full", 2), Group("full", 2, num_heads=2), num_blocks=12)


# S2, S5 and S12: who holds what.


@pytest.mark.parametrize(
    ("operation", "tables", "id", "part"),
    [
        (Allocate("a", 1), {"a": [1, 2, 3], "b": [4]}, None, ""),
        (Allocate("a", 1), {"a": [1, 2], "b": [4]}, "S15", "the step writes 4 .. 4 and 0 ahead, but entry 2 of [1, 2]"),
        (Allocate("a", 1), {"a": [1], "b": [4]}, "S5", "the table of a went from [1, 2] to [1]: 1 < 2 entries"),
        (Allocate("a", 1), {"a": [1, 5, 3], "b": [4]}, "S5", "entry 1 was block 2 and is 5, not null"),
        (Allocate("a", 1), {"a": [0, 2, 3], "b": [4]}, "S6", "the query at 4 reads entry 0 (tokens 0 ..) of [0, 2, 3]"),
        (
            Allocate("a", 1),
            {"a": [1, 2, 3], "b": [5]},
            "S5",
            "of b, which the operation does not name: [4] -> [5]",
        ),
        (Allocate("a", 1), {"a": [1, 2, 3]}, "S5", "of b, which the operation does not name: [4] -> None"),
        (Allocate("a", 1), {"a": [1, 2, 4], "b": [4]}, "S2", "block 4 was handed out while b in group 0 still"),
        (Allocate("a", 1), {"a": [1, 2, 7], "b": [4]}, "S2", "7 was handed out while somebody outside still holds"),
        (Allocate("a", 4), {"a": [1, 2, 3, 3], "b": [4]}, "S2", "one block was handed out twice: [3, 3]"),
        (Allocate("a", 1), {"a": [1, 2, 2], "b": [4]}, "S2", "block 2 was handed out while a in group 0 still"),
        (Landed("a"), {"a": [1, 2, 3], "b": [4]}, "S5", "to [1, 2, 3], which Landed may not change"),
        (RemoveSkipped("a"), {"a": [1, 2], "b": [4]}, None, ""),
        (RemoveSkipped("a"), {"a": [1, 2, 3], "b": [4]}, "S5", "it grew without an allocation"),
        (RemoveSkipped("a"), {"a": [0, 2], "b": [4]}, "S6", "the query at 4 reads entry 0"),
        (Free("a"), {"b": [4]}, None, ""),
        (Free("a"), {"a": [1, 2], "b": [4]}, "S12", "a was given up, yet its table in group 0 is [1, 2]"),
        (Free("a"), {"a": [], "b": [4]}, "S12", "a was given up, yet its table in group 0 is []"),
        (Preempt("a"), {"b": [4]}, None, ""),
        (Preempt("a"), {"a": [1, 2], "b": [4]}, "S12", "a was given up, yet its table in group 0 is [1, 2]"),
        (Free("nobody"), {"a": [1, 2]}, "S12", "nobody is unknown, yet freeing it changed"),
        (Take(1), {"a": [1, 2, 7], "b": [4]}, "S5", "the table of a, which the operation does not name"),
    ],
)
def test_what_an_operation_may_do_to_tables(operation, tables, id, part):
    play = Play(PAIRS)
    assert play.step(Take(1), outcome=Done((7,))) is None
    play.compute("a", (0, 1, 2, 3), [1, 2], known=(9,))
    play.compute("b", (5,), [4])
    assert play.step(operation, tables) == id
    assert part in (play.what or "")
    changed = operation in (Allocate("a", 1), Free("a"), Preempt("a"))
    assert id or play.contract.reached["contract: S5 checked"] == 3 + changed


@pytest.mark.parametrize("left", [0, 1])
def test_all_groups_give_up_what_a_request_held(left):
    play = Play(TWO_GROUPS)
    play.compute("a", (0, 1, 2), [1, 2], [3, 4])
    tables = [{}, {}]
    tables[left] = dict(play.before.tables[left])
    assert play.step(Preempt("a"), *tables) == "S12"
    assert f"its table in group {left} is" in play.what


# S6, S13, S15: what a step needs.


@pytest.mark.parametrize(
    ("before", "step", "table", "id"),
    [
        (0, Allocate("a", 3), [1, 2], None),
        (0, Allocate("a", 3), [1], "S15"),
        (0, Allocate("a", 3), [0, 2], "S15"),
        (0, Allocate("a", 3, lookahead=1), [1, 2], None),
        (0, Allocate("a", 3, lookahead=2), [1, 2], "S15"),
        (0, Allocate("a", 3, lookahead=2), [1, 2, 3], None),
        (0, Allocate("a", 5, lookahead=9), [1, 2, 3, 4, 5, 6], "S15"),
        (0, Allocate("a", 5, lookahead=9), [1, 2, 3, 4, 5, 6, 7], None),
        (0, Allocate("a", 5, lookahead=10), [1, 2, 3, 4, 5, 6, 7], None),  # no request is longer
        (2, Allocate("a", 3), [1, 2, 3], None),
        (2, Allocate("a", 3), [1, 0, 3], "S15"),
        (2, Allocate("a", 3), [0, 2, 3], "S6"),
        (3, Allocate("a", 2), [1, 2, 3], None),
        (3, Allocate("a", 2), [1, 2], "S15"),
        (3, Allocate("a", 1), [1, 2], None),
    ],
)
def test_a_step_has_a_block_for_each_token_that_it_writes(before, step, table, id):
    play = Play(shape(Group("full", 2), num_blocks=12, max_model_len=14))
    play.step(Submit("a", (0, 1, 2, 3, 4)))
    if before:
        assert play.step(Allocate("a", before), {"a": [1, 2][: before - 1]}) is None
        assert play.step(Advance("a")) is None
    assert play.step(step, {"a": table}) == id
    assert play.contract.reached["contract: S15 checked"] == (before > 0) + (id != "S15")


@pytest.mark.parametrize(
    ("tokens", "row", "id"), [(3, [5, 6], None), (3, [5], "S15"), (4, [5, 6], None), (5, [5, 6], "S15"), (0, [], None)]
)
def test_a_step_has_a_block_for_each_token_of_the_encoder(tokens, row, id):
    play = Play(shape(Group("full", 2), Group("cross", 2), num_blocks=8))
    play.step(Submit("a", (0, 1, 2)))
    assert play.step(Allocate("a", 3, encoder_tokens=tokens), {"a": [1, 2]}, {"a": row}) == id


@pytest.mark.parametrize("mode", ["none", "all", "align"])
@pytest.mark.parametrize(("table", "id"), [([1, 2], None), ([0, 2], None), ([1, 0], "S15"), ([1], "S15")])
def test_a_step_has_a_block_for_the_state_behind_its_last_token(mode, table, id):
    play = Play(shape(Group("mamba", 2, mamba_mode=mode), num_blocks=8))
    play.step(Submit("a", (0, 1, 2, 3, 4)))
    assert play.step(Allocate("a", 3), {"a": table}) == id


@pytest.mark.parametrize(
    ("known", "states", "id"),
    [
        (1, [4, 5, 6], None),
        (1, [0, 5, 6], None),
        (1, [4, 0, 6], "S15"),
        (1, [4, 5, 0], "S15"),
        (1, [4, 5], "S15"),
        (2, [0, 5], None),
        (2, [4, 0], "S15"),
        (0, [4, 5, 6], None),
        (0, [4, 0, 6], "S15"),
    ],
)
def test_a_step_has_a_block_for_the_state_behind_each_draft(known, states, id):
    """It begins behind the three tokens of the prompt, so many are known behind these, and ends behind five: the entry
    of its last token is the first that it writes."""
    play = Play(shape(Group("mamba", 1, speculative_blocks=2), num_blocks=8))
    play.compute("a", (0, 1, 2), [1, 2, 3], known=(7, 8)[:known])
    assert play.step(Allocate("a", 2), {"a": [1, 2, 3, *states]}) == id


@pytest.mark.parametrize(
    ("group", "known", "table", "id"),
    [
        (WINDOW, True, [0, 0, 0, 4], None),
        (WINDOW, True, [0, 0, 0, 0], "S6"),
        (WINDOW, False, [0, 0, 3, 4], None),
        (WINDOW, False, [0, 0, 0, 4], "S13"),
        (Group("sliding", 2, window=2), True, [0, 2], None),
        (Group("sliding", 2, window=3), True, [0, 2], None),
        (Group("sliding", 2, window=4), True, [0, 2], "S6"),
        (Group("sliding", 2, window=3), False, [0, 2], "S13"),
        (Group("chunked", 1, chunk=2), True, [0, 0, 0, 0], None),
        (Group("chunked", 1, chunk=2), False, [0, 0, 3, 4], None),
        (Group("chunked", 1, chunk=2), False, [0, 0, 0, 4], "S13"),
        (Group("chunked", 1, chunk=3), True, [0, 0, 0, 4], None),
        (Group("chunked", 1, chunk=3), True, [0, 0, 0, 0], "S6"),
        (Group("chunked", 1, chunk=5), True, [0, 2, 3, 4], "S6"),
        (Group("mamba", 1, mamba_mode="all"), True, [0, 0, 0, 4], None),
        (Group("mamba", 1, mamba_mode="all"), True, [0, 0, 0, 0], "S6"),
        (Group("mamba", 1, mamba_mode="all"), False, [0, 0, 0, 4], None),  # the step has read the state where it began
    ],
)
def test_what_may_be_read_or_written_again_stays(group, known, table, id):
    """Four tokens are computed. The last one may be computed once more as long as the fifth is not known."""
    play = Play(shape(group, num_blocks=8))
    play.compute("a", (0, 1, 2, 3), [1, 2, 3, 4][: len(table)], known=(7,) * known)
    assert play.step(RemoveSkipped("a"), {"a": table}) == id
    if table == [0, 0, 0, 0] and id:
        assert "the query at 4 reads entry 3 (tokens 3 ..) of [0, 0, 0, 0]" in play.what
    if id == "S13":
        what = f"of {table} is null while the tokens 3 .. 3 are computed; 4 tokens count as computed"
        assert play.what.endswith(what)


def test_a_step_is_over_with_the_first_token_that_it_samples():
    """Of a step over a known token and a draft: both count as computed, and one token is known behind the first."""
    play = Play(shape(WINDOW, num_blocks=8))
    play.step(Submit("a", (0, 1, 2, 3)))
    assert play.step(Allocate("a", 3), {"a": [1, 2, 3]}) is None
    assert play.step(Advance("a")) is None
    assert play.step(Allocate("a", 2), {"a": [1, 2, 3, 4, 5]}) is None
    assert play.step(Advance("a", (7,))) is None
    assert play.step(RemoveSkipped("a"), {"a": [0, 0, 0, 0, 5]}) is None


@pytest.mark.parametrize(
    ("told", "table", "id"),
    [
        ([()], [0, 0, 3, 4, 5], None),
        ([()], [0, 0, 0, 4, 5], "S13"),
        ([(7,)], [0, 0, 0, 4, 5], None),
        ([(7,)], [0, 0, 0, 0, 5], "S13"),
        ([(), (7,)], [0, 0, 0, 0, 5], "S13"),
        ([(7,), (8,)], [0, 0, 0, 0, 5], None),
    ],
)
def test_a_step_ahead_of_the_known_tokens_waits_for_its_own(told, table, id):
    """Two steps behind one another: with one token that becomes known the first is over, with the next the second."""
    play = Play(shape(WINDOW, num_blocks=8))
    play.compute("a", (0, 1, 2, 3), [1, 2, 3, 4])
    assert play.step(Allocate("a", 1), {"a": [1, 2, 3, 4, 5]}) is None
    for tokens in told:
        assert play.step(Advance("a", tokens)) is None
    assert play.step(RemoveSkipped("a"), {"a": table}) == id


@pytest.mark.parametrize(("entry", "id"), [(5, None), (0, "S13")])
def test_a_step_that_began_behind_rejected_drafts_is_forgotten(entry, id):
    play = Play(shape(WINDOW, num_blocks=12))
    play.compute("a", (0, 1, 2), [1, 2, 3], known=(7,))
    assert play.step(Allocate("a", 3), {"a": [1, 2, 3, 4, 5, 6]}) is None
    assert play.step(Advance("a")) is None
    assert play.step(Allocate("a", 1), {"a": [1, 2, 3, 4, 5, 6, 7]}) is None
    assert play.step(Advance("a")) is None
    assert play.step(Advance("a", (8,))) is None
    assert play.step(Reject("a", 2)) is None
    assert play.step(Allocate("a", 3), {"a": [1, 2, 3, 4, 5, 6, 7, 8]}) is None
    assert play.step(Advance("a")) is None
    assert play.step(RemoveSkipped("a"), {"a": [0, 0, 0, 0, entry, 6, 7, 8]}) == id


STATES = Group("mamba", 4, mamba_mode="align")


@pytest.mark.parametrize(
    ("groups", "id"),
    [
        ((STATES, Group("full", 2)), None),
        ((STATES, Group("full", 4)), "S5"),
        ((Group("mamba", 4, mamba_mode="all"), Group("full", 2)), "S5"),
        ((Group("full", 4), Group("full", 2)), "S5"),
    ],
)
def test_only_a_running_state_may_move_where_parts_of_blocks_are_registered(groups, id):
    play = Play(shape(*groups, num_blocks=12))
    rows = [2, 3] if groups[1].block_size == 2 else [2]
    play.compute("a", (0, 1, 2), [1], rows, known=(9,))
    assert play.step(Allocate("a", 1), {"a": [7]}, {"a": rows}) == id


@pytest.mark.parametrize(("prompt", "id"), [((500, 1), None), ((501, 1), "S8")])
def test_a_block_is_exchanged_for_one_of_equal_content_however_much_came_before(prompt, id):
    play = Play(shape(Group("full", 2), num_blocks=8, max_model_len=400), BUT_TABLES | {"append_only"})
    play.step(Submit("long", tuple(range(300))))
    play.compute("a", (500, 1), [1])
    play.compute("b", prompt, [2], known=(9,))
    assert play.step(Allocate("b", 1), {"a": [1], "b": [1]}, outcome=Refused()) == id
    if id is None:
        assert play.step(Allocate("b", 1), {"a": [1], "b": [1, 3]}) is None
