"""Block tables of all groups as the host knows them: rows, and which tokens have places; without torch."""

import re

import numpy as np
import pytest
from blockproof import impl
from blockproof.impl import BlockTables, GroupTable
from hypothesis import given
from hypothesis import strategies as st

MAX_BLOCKS = 6


def tables(*rows: list[int], block_size: int = 4, groups: int = 1, **options: int) -> BlockTables:
    """A row for each list, and two empty ones, the same in every group."""
    made = BlockTables([GroupTable(block_size, MAX_BLOCKS)] * groups, len(rows) + 2, **options)
    for group in range(groups):
        made.append(group, range(len(rows)), rows)
    return made


def contents(made: BlockTables, group: int = 0) -> list[list[int]]:
    """Every row up to its last entry; asserts that nothing stands behind it."""
    rows = list(zip(made.table(group), made.counts[group], strict=True))
    for row, count in rows:
        assert not row[count:].any()
    return [row[:count].tolist() for row, count in rows]


def error(call) -> str:
    with pytest.raises(ValueError, match=r"\w") as caught:
        call()
    return str(caught.value)


# Rows.


def test_new_blocks_are_appended_to_several_rows_at_once():
    made = tables([5], [], [7, 8])
    made.append(0, [2, 0, 1], [[9], [6, 4, 3], []])
    assert contents(made) == [[5, 6, 4, 3], [], [7, 8, 9], [], []]
    made.append(0, [0, 4], np.array([1, 2]))
    assert contents(made) == [[5, 6, 4, 3, 1], [], [7, 8, 9], [], [2]]
    made.append(0, [1, 2], [np.array([10, 11]), np.array([12])])
    assert contents(made)[1:3] == [[10, 11], [7, 8, 9, 12]]


def test_steps_of_more_sizes_than_views_are_kept_for():
    made = BlockTables([GroupTable(4, 700)], 300)
    for number in range(1, 301):
        made.append(0, range(number), np.full(number, 7))
        assert made.schedule([0] * number) == number
        if number < 300:
            assert f"row {number}, position 0: its 0 blocks" in error(lambda: made.schedule([0] * (number + 1)))  # noqa: B023
    made.append(0, [0], np.array([7]))
    assert made.schedule([4 * 301 - 1]) == 1
    assert "position 1204: its 301 blocks" in error(lambda: made.schedule([4 * 301]))
    assert made.counts[0].tolist() == [301, *range(299, 0, -1)]


def test_many_block_ids_come_in_one_array_with_lengths():
    made = tables([5], [6], [7, 8], groups=2)
    made.append(None, [2, 0], np.array([1, 2, 3, 4, 9], np.int32), [2, 1, 0, 2])
    assert [contents(made, group)[:3] for group in (0, 1)] == [[[5, 3], [6], [7, 8, 1, 2]], [[5, 4, 9], [6], [7, 8]]]
    made.replace(0, [1, 2], np.array([1, 2, 3, 4]), np.array([3, 1]))
    assert contents(made)[:3] == [[5, 3], [1, 2, 3], [4]]
    for row, blocks in enumerate([2, 1, 1]):  # of the group that has fewer
        assert made.schedule([blocks * 4 - 1], rows=[row]) == 1
        with pytest.raises(ValueError, match=f"position {blocks * 4}: its {blocks} blocks"):
            made.schedule([blocks * 4], rows=[row])


def test_a_long_row_is_copied_as_a_short_one_is():
    made = BlockTables([GroupTable(4, 500), GroupTable(4, 700)], 4)
    ids = np.arange(1, 1 + 4 * 200)
    made.append(None, [1, 3], ids, [200] * 4)
    made.replace(1, [3], np.arange(1, 101), [100])
    expected = [[ids[:200], ids[200:400]], [ids[400:600], ids[:100]]]
    for group, rows in enumerate(expected):
        assert contents(made, group) == [[], rows[0].tolist(), [], rows[1].tolist()]
    assert made.schedule([799, 399], rows=[1, 3]) == 2
    assert "position 400: its 100 blocks" in error(lambda: made.schedule([400], rows=[3]))


def test_all_groups_gain_blocks_in_one_call():
    made = tables([5], [6], groups=2)
    made.append(None, [0, 1], np.array([1, 2, 3, 4]))
    assert [contents(made, group)[:2] for group in (0, 1)] == [[[5, 1], [6, 2]], [[5, 3], [6, 4]]]
    made.replace(None, [1, 0], [[1], [2], [3, 4], []])
    assert [contents(made, group)[:2] for group in (0, 1)] == [[[2], [1]], [[], [3, 4]]]


def test_a_row_can_be_replaced_by_a_shorter_one():
    made = tables([5, 6, 7], [8])
    made.replace(0, [0, 1], [[9], [1, 2]])
    assert contents(made)[:2] == [[9], [1, 2]]


def test_skipped_entries_become_null_and_still_count():
    made = tables([5, 6, 7], [8, 9])
    made.null(0, [0, 0, 1], [0, 1, 0])
    assert contents(made)[:2] == [[0, 0, 7], [0, 9]]


def test_rows_move_swap_and_become_empty_in_every_group():
    made = tables([5, 6], [7], [8, 9], groups=2)
    made.move(0, 3)
    assert contents(made, 1) == [[], [7], [8, 9], [5, 6], []]
    made.swap(1, 3)
    assert contents(made) == [[], [5, 6], [8, 9], [7], []]
    made.clear([1, 2])
    for group in (0, 1):
        assert contents(made, group) == [[], [], [], [7], []]
    made.move(3, 3)
    assert contents(made) == [[], [], [], [7], []]
    made.clear([3, 3])
    assert contents(made, 1) == [[]] * 5


def test_rows_can_be_filled_to_the_last_entry_again_and_again():
    made = tables([1], [1])
    for _ in range(3):
        for _ in range(MAX_BLOCKS - 1):
            made.append(0, [0, 1], np.array([2, 3]))
        assert "would have 6 + 1 = 7 entries" in error(lambda: made.append(0, [1, 2], np.array([2, 3])))
        made.replace(0, [0, 1], [[1], [1]])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.append(0, [0], [[1] * 5]), "row 0 would have 2 + 5 = 7 entries: it holds 6 at most"),
        (lambda t: t.append(0, [1, 0], [[1], [99]]), "group 0, row 0: block 99 does not exist: blocks are 0 to 49"),
        (lambda t: t.append(0, [0, 1], np.array([1, 99])), "group 0, row 1: block 99 does not exist"),
        (lambda t: t.append(0, [0, 1], np.array([-3, 1])), "group 0, row 0: block -3 does not exist"),
        (lambda t: t.append(0, [0, 1], np.array([1])), "2 rows but 1 block ids"),
        (lambda t: t.replace(0, [1], [[-1]]), "row 1: block -1 does not exist"),
        (lambda t: t.append(0, [1, 1], [[1], [2]]), "row 1 is named twice"),
        (lambda t: t.append(0, [1, 2], [[1]]), "2 rows but 1 block ids"),
        (lambda t: t.append(0, [1, 2], [[1, 2]]), "2 rows but 1 lists of block ids"),
        (lambda t: t.append(0, [1, 2], np.array([1, 2, 3]), [1, 1]), "3 block ids, but lengths [1, 1]"),
        (lambda t: t.append(0, [1, 2], np.array([1, 2]), [3, -1]), "2 block ids, but lengths [3, -1]"),
        (lambda t: t.append(0, [1, 2], np.array([1, 2]), [2]), "2 rows but 1 lists of block ids"),
        (lambda t: t.append(0, [1, 2], [[1], [2]], [1, 1]), "lists of block ids have lengths of their own"),
        (lambda t: t.append(0, [1, 2], [[1], [2.5]]), "give a list of block ids, whole numbers, for each row"),
        (lambda t: t.append(0, [1, 2], [[1, 2], [2**70]]), "or one array: int too big"),
        (lambda t: t.append(0, [1, 2], [1, 2]), "give a list of block ids, whole"),
        (lambda t: t.append(0, [1, 2], [[1, 2], 3]), "give a list of block ids, whole"),
        (lambda t: t.append(0, [1, 2], [np.array([1, 2]), np.array([0.5])]), "float64 where whole numbers"),
        (lambda t: t.append(0, [4], [[1]]), "there is no row 4: rows are 0 to 3"),
        (lambda t: t.append(0, [4, -1], [[1], [1]]), "there is no row 4"),
        (lambda t: t.append(0, [0.5], [[1]]), "float64 where whole numbers are meant"),
        (lambda t: t.append(1, [0], [[1]]), "there is no group 1: groups are 0 to 0"),
        (lambda t: t.clear([0, -1]), "there is no row -1"),
        (lambda t: t.null(0, [0, 1], [0, 1]), "row 1 has no entry 1 to null: it has 1 entries"),
        (lambda t: t.null(0, [0], [-1]), "row 0 has no entry -1"),
        (lambda t: t.null(0, [0], [1, 2]), "1 rows but 2 entries"),
        (lambda t: t.null(0, [7], [0]), "there is no row 7"),
        (lambda t: t.null(-1, [0], [0]), "there is no group -1"),
        (lambda t: t.move(0, 9), "there is no row 9"),
        (lambda t: t.swap(-2, 0), "there is no row -2"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_as_a_whole(change, says):
    made = tables([5, 6], [7], num_blocks=50)
    before = contents(made)
    assert says in error(lambda: change(made))
    assert contents(made) == before


@pytest.mark.parametrize(
    ("group", "says"),
    [
        (GroupTable(0, 1), "block_size is 0: give at least 1"),
        (GroupTable(4, -3), "max_blocks is -3"),
        (GroupTable(4, 1, parallel=0), "parallel is 0"),
        (GroupTable(4, 1, kernel_block_size=3), "give a size that divides the 4 of a block"),
        (GroupTable(4, 1, parallel=2), "there is no rank 2: ranks are 0 to 1"),
        (GroupTable(4, 1, parallel=4), "interleave is 3: give a number that divides the 4 of a block"),
        (GroupTable(4, 1, kernel_block_size=2, state=True), "a state is neither split nor shared"),
        (GroupTable(1024, 2**21), "cannot be named by 32 bits"),
        (GroupTable(1024, 2**21 + 1), "2097153 blocks of 1024 tokens: positions have 31 bits"),
        (GroupTable(2**31, 1), "1 blocks of 2147483648 tokens: positions have 31 bits"),
        (GroupTable(2**29, 3, parallel=4, ring=True), "3 blocks of 2147483648 tokens: positions have 31 bits"),
    ],
)
def test_groups_that_make_no_table_are_refused(group, says):
    rank, interleave = (0, 1) if group.parallel < 2 else (2, 1) if group.parallel == 2 else (1, 3 - 2 * group.ring)
    assert says in error(lambda: BlockTables([GroupTable(4, 1), group], 1024, rank=rank, interleave=interleave))


def test_what_is_shown_cannot_be_written_through():
    with pytest.raises(ValueError, match="read-only"):
        tables([5]).table(0)[0] = 1
    assert "max_requests is 0" in error(lambda: BlockTables([GroupTable(4, 1)], 0))
    assert "num_blocks is 0: give at least 1" in error(lambda: BlockTables([GroupTable(4, 1)], 1, num_blocks=0))


def test_parts_of_a_split_block_have_numbers_of_32_bits():
    made = BlockTables([GroupTable(16, 2, kernel_block_size=4)], 1)
    made.append(0, [0], [[2**29 - 1]])
    assert f"block {2**29} does not exist: blocks are 0 to {2**29 - 1}" in error(lambda: made.append(0, [0], [[2**29]]))


def test_positions_are_checked_where_no_group_asks():
    made = tables([5, 6])
    for start, length in ((-1, 1), (2**31 - 1, 2), (2**31, 1)):
        says = f"row 0, {length} tokens from {start}: positions are 0 to {2**31 - 1}"
        assert says in error(lambda start=start, length=length: made.schedule([start], [length], [0], groups=[]))
    assert made.schedule([2**31 - 1], groups=[]) == 1


def test_without_groups_there_are_requests_all_the_same():
    made = BlockTables([], 3)
    made.append(None, [0, 2], np.zeros(0, np.int64), [])
    made.swap(0, 1)
    made.move(0, 2)
    made.clear([1])
    assert made.schedule([7, 8]) == 2


class Byte:
    itemsize = 1


def test_every_group_of_a_configuration_has_a_table():
    full = impl.FullAttentionSpec(16, num_kv_heads=1, head_size=1, dtype=Byte())
    mamba = impl.MambaSpec(8, ((1,),), (Byte(),), num_speculative_blocks=3)
    both = impl.UniformTypeKVCacheSpecs(8, {"b": mamba})
    groups = [impl.KVCacheGroupSpec([], spec) for spec in (full, mamba, both)]
    config = impl.KVCacheConfig(9, [], groups)
    states = [GroupTable(8, 8, state=True)] * 2
    assert impl.tables_of(config, max_tokens=33) == [GroupTable(16, 3), *states]
    assert impl.tables_of(config, max_tokens=33, parallel=2) == [GroupTable(16, 2, parallel=2), *states]


# Which tokens have places.


@st.composite
def steps(draw):
    """Tables without null entries, and a step within them."""
    block_size = draw(st.integers(1, 9))
    rows = draw(st.lists(st.lists(st.integers(1, 1000), min_size=1, max_size=MAX_BLOCKS), min_size=1, max_size=5))
    made = tables(*rows, block_size=block_size, groups=draw(st.integers(1, 2)))
    chosen = draw(st.lists(st.integers(0, len(rows) - 1), max_size=len(rows) + 2))
    starts = [draw(st.integers(0, len(rows[row]) * block_size)) for row in chosen]
    most = st.integers(0, 1) if draw(st.booleans()) else st.integers(0, 60)
    lengths = [min(draw(most), len(rows[row]) * block_size - start) for row, start in zip(chosen, starts, strict=True)]
    return rows, made, chosen, lengths, starts


@given(steps(), st.randoms(use_true_random=False))
def test_a_null_entry_is_an_error_exactly_if_a_token_is_written_there(step, random):
    rows, made, chosen, lengths, starts = step
    assert made.schedule(starts, lengths, chosen) == sum(lengths)
    row = random.randrange(len(rows))
    entry = random.randrange(len(rows[row]))
    size = made.groups[0].block_size
    made.null(len(made.groups) - 1, [row], [entry])
    written = any(
        which == row and max(start, entry * size) < min(start + length, (entry + 1) * size)
        for which, length, start in zip(chosen, lengths, starts, strict=True)
    )
    if written:
        assert f"entry {entry} is null" in error(lambda: made.schedule(starts, lengths, chosen))
        if len(made.groups) > 1:
            assert made.schedule(starts, lengths, chosen, groups=[0]) == sum(lengths)
    else:
        assert made.schedule(starts, lengths, chosen) == sum(lengths)


@pytest.mark.parametrize(
    ("row", "position", "says"),
    [
        (0, -1, "row 0, position -1: positions start at 0"),
        (0, 4, "row 0, position 4: entry 1 is null"),
        (0, 8, r"row 0, position 8: its 2 blocks of 4 tokens end before it \(2 \* 4 = 8\): append"),
        (2, 0, "row 2, position 0: its 0 blocks"),
        (0, 4 * MAX_BLOCKS, f"row 0, position {4 * MAX_BLOCKS}: its 2 blocks"),
        (0, 2**62, f"row 0, position {2**62}: its 2 blocks"),
        (4, 0, "there is no row 4: rows are 0 to 3"),
        (-1, 0, "there is no row -1"),
    ],
)
def test_a_token_without_a_place_is_named(row, position, says):
    made = tables([5, 0], [7])
    assert re.search(says, error(lambda: made.schedule([1, position], rows=[0, row])))
    assert re.search(says, error(lambda: made.schedule([1, position], [1, 1], [0, row])))
    assert re.search(says, error(lambda: made.schedule([1, position], [2, 3], [0, row])))
    assert made.num_tokens == 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda t: t.schedule([1], [1, 1]), "1 start positions but 2 lengths: give one of each"),
        (lambda t: t.schedule([1], [1], [0, 1]), "1 start positions but 2 rows"),
        (lambda t: t.schedule([0] * 9), "9 requests, but rows are 0 to 2"),
        (lambda t: t.schedule([0], [-1]), "row 0: -1 tokens cannot be scheduled"),
        (lambda t: t.schedule([2**62], [2**62]), f"row 0, position {2**62}: its 2 blocks"),
        (lambda t: t.schedule([0], [2**62]), "row 0, position 8: its 2 blocks"),
        (lambda t: t.schedule([0], groups=[1]), "there is no group 1"),
        (lambda t: t.schedule([0], groups=[-1]), "there is no group -1"),
        (lambda t: t.table(-1), "there is no group -1: groups are 0 to 0"),
        (lambda t: t.schedule([0.5]), "float64 where whole numbers are meant"),
    ],
)
def test_a_step_that_makes_no_sense_is_refused(call, says):
    made = tables([5, 6])
    assert says in error(lambda: call(made))


def test_a_state_may_be_null_and_a_ring_goes_round():
    made = BlockTables([GroupTable(4, 3, state=True), GroupTable(2, 2, ring=True)], 1)
    made.append(0, [0], [[0, 7, 0]])
    made.append(1, [0], [[5, 6]])
    assert made.schedule([0], [12]) == 12
    assert "group 0, row 0, position 12: its 3 blocks" in error(lambda: made.schedule([12]))
    made.null(1, [0], [1])
    assert "group 1, row 0, position 10: entry 1 is null" in error(lambda: made.schedule([8], [3]))
