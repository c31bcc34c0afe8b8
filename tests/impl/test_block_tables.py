"""Block tables in bulk, and the slots of tokens; without torch, but for the copy on a device."""

import re

import numpy as np
import pytest
from blockproof import impl
from blockproof.impl import BlockTables
from hypothesis import given
from hypothesis import strategies as st

MAX_BLOCKS = 6


def tables(*rows: list[int], block_size: int = 4, **options: int) -> BlockTables:
    """A row for each list, and two empty ones."""
    made = BlockTables(block_size, len(rows) + 2, MAX_BLOCKS, name="group 3", **options)
    made.append(range(len(rows)), rows)
    return made


def contents(made: BlockTables) -> list[list[int]]:
    """Every row up to its last entry; asserts that nothing stands behind it."""
    for row, count in zip(made.table, made.counts, strict=True):
        assert not row[count:].any()
    return [row[:count].tolist() for row, count in zip(made.table, made.counts, strict=True)]


def error(call) -> str:
    with pytest.raises(ValueError, match="group 3: ") as caught:
        call()
    return str(caught.value)


# Rows.


def test_new_blocks_are_appended_to_several_rows_at_once():
    made = tables([5], [], [7, 8])
    made.append([2, 0, 1], [[9], [6, 4, 3], []])
    assert contents(made) == [[5, 6, 4, 3], [], [7, 8, 9], [], []]


def test_a_row_can_be_replaced_by_a_shorter_one():
    made = tables([5, 6, 7], [8])
    made.replace([0, 1], [[9], [1, 2]])
    assert contents(made)[:2] == [[9], [1, 2]]


def test_skipped_entries_become_null_and_still_count():
    made = tables([5, 6, 7], [8, 9])
    made.null([0, 0, 1], [0, 1, 0])
    assert contents(made)[:2] == [[0, 0, 7], [0, 9]]


def test_rows_move_swap_and_become_empty():
    made = tables([5, 6], [7], [8, 9])
    made.move(0, 3)
    assert contents(made) == [[], [7], [8, 9], [5, 6], []]
    made.swap(1, 3)
    assert contents(made) == [[], [5, 6], [8, 9], [7], []]
    made.clear([1, 2])
    assert contents(made) == [[], [], [], [7], []]
    made.move(3, 3)
    assert contents(made) == [[], [], [], [7], []]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.append([0], [[1] * 5]), "row 0 would have 2 + 5 = 7 entries: it holds 6 at most"),
        (lambda t: t.append([1, 0], [[1], [99]]), "row 0: block 99 does not exist: blocks are 0 to 49"),
        (lambda t: t.replace([1], [[-1]]), "row 1: block -1 does not exist"),
        (lambda t: t.append([1, 1], [[1], [2]]), "row 1 is named twice"),
        (lambda t: t.append([1, 2], [[1]]), "2 rows but 1 lists of block ids"),
        (lambda t: t.append([4], [[1]]), "there is no row 4: rows are 0 to 3"),
        (lambda t: t.append([0.5], [[1]]), "float64 where whole numbers are meant"),
        (lambda t: t.clear([0, -1]), "there is no row -1"),
        (lambda t: t.null([0, 1], [0, 1]), "row 1 has no entry 1 to null: it has 1 entries"),
        (lambda t: t.null([0], [-1]), "row 0 has no entry -1"),
        (lambda t: t.null([0], [1, 2]), "1 rows but 2 entries"),
        (lambda t: t.null([7], [0]), "there is no row 7"),
        (lambda t: t.move(0, 9), "there is no row 9"),
        (lambda t: t.swap(-2, 0), "there is no row -2"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_as_a_whole(change, says):
    made = tables([5, 6], [7], num_blocks=50)
    before = contents(made)
    assert says in error(lambda: change(made))
    assert contents(made) == before


@pytest.mark.parametrize("sizes", [(0, 1, 1), (4, 0, 1), (4, 1, -3)])
def test_tables_without_room_are_refused(sizes):
    with pytest.raises(ValueError, match="give at least 1"):
        BlockTables(*sizes)


def test_what_is_shown_cannot_be_written_through():
    made = tables([5])
    for shown in (made.table, made.counts):
        with pytest.raises(ValueError, match="read-only"):
            shown[0] = 1


class Byte:
    itemsize = 1


def test_every_group_of_a_configuration_gets_tables_of_its_own():
    full = impl.FullAttentionSpec(16, num_kv_heads=1, head_size=1, dtype=Byte())
    mamba = impl.MambaSpec(8, ((1,),), (Byte(),), num_speculative_blocks=3)
    both = impl.UniformTypeKVCacheSpecs(8, {"b": mamba})
    groups = [impl.KVCacheGroupSpec([], spec) for spec in (full, mamba, both)]
    made = BlockTables.for_config(impl.KVCacheConfig(9, [], groups), max_requests=2, max_tokens=33)
    assert [(each.block_size, each.max_blocks, each.num_blocks) for each in made] == [(16, 3, 9), (8, 8, 9), (8, 8, 9)]
    assert [each.name for each in made] == ["group 0", "group 1", "group 2"]


# Slots.


@st.composite
def steps(draw):
    """Tables without null entries, and a step within them."""
    block_size = draw(st.integers(1, 9))
    rows = draw(st.lists(st.lists(st.integers(1, 1000), min_size=1, max_size=MAX_BLOCKS), min_size=1, max_size=5))
    made = tables(*rows, block_size=block_size)
    chosen = draw(st.lists(st.integers(0, len(rows) - 1), max_size=6))
    starts = [draw(st.integers(0, len(rows[row]) * block_size)) for row in chosen]
    most = st.integers(0, 1) if draw(st.booleans()) else st.integers(0, 60)
    lengths = [min(draw(most), len(rows[row]) * block_size - start) for row, start in zip(chosen, starts, strict=True)]
    return rows, made, chosen, lengths, starts


@given(steps())
def test_slots_are_those_of_the_definition(step):
    rows, made, chosen, lengths, starts = step
    tokens = [
        (row, position)
        for row, length, start in zip(chosen, lengths, starts, strict=True)
        for position in range(start, start + length)
    ]
    b = made.block_size
    wanted = [rows[row][t // b] * b + t % b for row, t in tokens]
    for slots in (
        made.slot_mapping([row for row, _ in tokens], [position for _, position in tokens]),
        made.step_slot_mapping(lengths, starts, chosen),
    ):
        assert slots.dtype == np.int64
        assert slots.tolist() == wanted


@given(steps(), st.randoms(use_true_random=False))
def test_a_null_entry_is_an_error_exactly_if_a_token_is_written_there(step, random):
    rows, made, chosen, lengths, starts = step
    row = random.randrange(len(rows))
    entry = random.randrange(len(rows[row]))
    made.null([row], [entry])
    written = any(
        which == row and max(start, entry * made.block_size) < min(start + length, (entry + 1) * made.block_size)
        for which, length, start in zip(chosen, lengths, starts, strict=True)
    )
    if written:
        assert f"entry {entry} is null" in error(lambda: made.step_slot_mapping(lengths, starts, chosen))
    else:
        assert len(made.step_slot_mapping(lengths, starts, chosen)) == sum(lengths)


def test_rows_are_those_of_the_batch_in_order_unless_given():
    made = tables([5, 6], [7])
    assert made.step_slot_mapping([1, 1], [4, 0]).tolist() == [24, 28]
    assert made.step_slot_mapping([2, 1], [3, 0]).tolist() == [23, 24, 28]
    assert made.step_slot_mapping([1, 1], [0, 4], rows=[1, 0]).tolist() == [28, 24]


def test_slots_do_not_overflow_32_bits():
    made = tables([2**31 - 1], block_size=1024)
    assert made.slot_mapping([0], [1023]).tolist() == [(2**31 - 1) * 1024 + 1023]
    assert made.step_slot_mapping([2], [1022]).tolist() == [(2**31 - 1) * 1024 + 1022, (2**31 - 1) * 1024 + 1023]


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
def test_a_token_without_a_slot_is_named(row, position, says):
    made = tables([5, 0], [7])
    assert re.search(says, error(lambda: made.slot_mapping([0, row], [1, position])))
    assert re.search(says, error(lambda: made.step_slot_mapping([1, 1], [1, position], [0, row])))
    assert re.search(says, error(lambda: made.step_slot_mapping([2, 3], [1, position], [0, row])))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda t: t.slot_mapping([0], [1, 2]), "1 rows but 2 positions"),
        (lambda t: t.step_slot_mapping([1, 1], [1]), "2 rows but 1 start positions"),
        (lambda t: t.step_slot_mapping([1], [1], [0, 1]), "1 numbers of tokens for 2 rows"),
        (lambda t: t.step_slot_mapping([1] * 9, [0] * 9), "9 numbers of tokens for 3 rows"),
        (lambda t: t.step_slot_mapping([-1], [0]), "row 0: -1 tokens cannot be scheduled"),
        (lambda t: t.step_slot_mapping([2**62], [2**62]), f"row 0, position {2**62}: its 2 blocks"),
        (lambda t: t.step_slot_mapping([2**62], [0]), "row 0, position 8: its 2 blocks"),
        (lambda t: t.slot_mapping([0], [0.5]), "float64 where whole numbers are meant"),
    ],
)
def test_a_step_that_makes_no_sense_is_refused(call, says):
    made = tables([5, 6])
    assert says in error(lambda: call(made))


def test_nothing_scheduled_gives_no_slots():
    made = tables([5])
    for slots in (made.slot_mapping([], []), made.step_slot_mapping([], []), made.step_slot_mapping([0], [4])):
        assert slots.dtype == np.int64
        assert slots.tolist() == []


# The device.


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def devices(torch) -> list[str]:
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def test_the_copy_on_the_device_changes_only_by_commit(torch):
    for device in devices(torch):
        made = tables([5, 6], [7])
        copied = made.commit(device)
        assert (copied.dtype, copied.device.type) == (torch.int32, device)
        assert copied.tolist() == made.table.tolist()
        made.null([0], [0])
        made.append([3], [[8]])
        assert copied[0].tolist()[:2] == [5, 6]
        assert made.commit(device).data_ptr() == copied.data_ptr()
        assert copied.tolist() == made.table.tolist()


CHANGES = st.one_of(
    st.tuples(st.just("replace"), st.integers(0, 4), st.lists(st.integers(0, 99), max_size=MAX_BLOCKS)),
    st.tuples(st.just("move"), st.integers(0, 4), st.integers(0, 4)),
    st.tuples(st.just("swap"), st.integers(0, 4), st.integers(0, 4)),
    st.tuples(st.just("clear"), st.integers(0, 4), st.none()),
    st.tuples(st.just("null"), st.integers(0, 4), st.none()),
    st.tuples(st.just("commit"), st.none(), st.none()),
)


@given(st.lists(CHANGES, max_size=12))
def test_after_any_changes_a_commit_brings_all_rows(changes):
    pytest.importorskip("torch")
    made = tables([5, 6], [7], [8, 9, 10])
    for name, row, detail in [*changes, ("commit", None, None)]:
        if name == "commit":
            assert made.commit("cpu").tolist() == made.table.tolist()
        elif name == "replace":
            made.replace([row], [detail])
        elif name == "clear":
            made.clear([row])
        elif name == "null":
            made.null([row] * int(made.counts[row]), range(made.counts[row]))
        else:
            getattr(made, name)(row, detail)
    contents(made)


def test_only_changed_rows_are_copied(torch):
    made = tables([5], [6], [7])
    copied = made.commit("cpu")
    copied.fill_(-1)
    made.append([1], [[8]])
    made.commit("cpu")
    assert copied[:, 0].tolist() == [-1, 6, -1, -1, -1]


def test_slots_arrive_on_the_device_as_a_copy(torch):
    for device in devices(torch):
        slots = tables([5, 6]).slot_mapping([0, 0], [0, 5])
        arrived = impl.to_device(slots, device)
        slots[0] = 0
        assert (arrived.dtype, arrived.device.type, arrived.tolist()) == (torch.int64, device, [20, 25])
