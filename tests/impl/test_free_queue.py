"""The free queue against a plain list, and what it refuses."""

import random

import pytest
from blockproof.impl import BlockHashWithGroupId, FreeKVCacheBlockQueue, KVCacheBlock


def queue_of(n: int) -> tuple[list[KVCacheBlock], FreeKVCacheBlockQueue]:
    blocks = [KVCacheBlock(i) for i in range(n)]
    return blocks, FreeKVCacheBlockQueue(blocks)


def ids(blocks: list[KVCacheBlock]) -> list[int]:
    return [block.block_id for block in blocks]


def test_random_operations_behave_as_on_a_list() -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    for _ in range(100):
        blocks, queue = queue_of(rng.randint(0, 8))
        order = list(range(len(blocks)))
        for _ in range(50):
            outside = [i for i in range(len(blocks)) if i not in order]
            operation = rng.choice(["popleft_n", "remove", "append", "append_n", "prepend_n"])
            chosen = rng.sample(outside, rng.randint(0, len(outside)))
            if operation == "popleft_n":
                n = rng.randint(0, len(order))
                assert ids(queue.popleft_n(n)) == order[:n], f"seed {seed}"
                del order[:n]
            elif operation == "remove" and order:
                gone = rng.choice(order)
                queue.remove(blocks[gone])
                order.remove(gone)
            elif operation == "append" and outside:
                queue.append(blocks[outside[0]])
                order.append(outside[0])
            elif operation == "append_n":
                queue.append_n([blocks[i] for i in chosen])
                order += chosen
            elif operation == "prepend_n":
                queue.prepend_n([blocks[i] for i in chosen])
                order = chosen + order
            queue.check()
            assert ids(queue.get_all_free_blocks()) == order, f"seed {seed}"
            assert queue.num_free_blocks == len(order), f"seed {seed}"
            unlinked = {block.block_id for block in blocks if block.prev_free_block is block.next_free_block is None}
            assert unlinked == set(range(len(blocks))) - set(order), f"seed {seed}"


def test_popleft_takes_the_front_and_refuses_when_empty() -> None:
    _, queue = queue_of(1)
    assert queue.popleft().block_id == 0
    with pytest.raises(ValueError, match="No free blocks"):
        queue.popleft()


@pytest.mark.parametrize("n", [-1, 3])
def test_popleft_n_refuses_a_count_that_is_not_there(n: int) -> None:
    _, queue = queue_of(2)
    with pytest.raises(AssertionError, match=str(n)):
        queue.popleft_n(n)
    queue.check()
    assert queue.num_free_blocks == 2


def test_remove_refuses_a_block_that_is_not_linked() -> None:
    blocks, queue = queue_of(3)
    queue.remove(blocks[1])
    with pytest.raises(RuntimeError, match="block 1"):
        queue.remove(blocks[1])
    assert ids(queue.get_all_free_blocks()) == [0, 2]


def test_check_names_a_wrong_count() -> None:
    _, queue = queue_of(3)
    queue.num_free_blocks = 4
    with pytest.raises(AssertionError, match="num_free_blocks == sum of left: 4 != 3"):
        queue.check()


def test_check_finds_a_block_that_left_its_batch_untold() -> None:
    blocks, queue = queue_of(3)
    blocks[1].state = 0
    with pytest.raises(AssertionError, match=r"left == number of members: 3 != 2 in \[0, 2\]"):
        queue.check()


def test_check_finds_a_block_that_stands_twice() -> None:
    blocks, queue = queue_of(3)
    queue.append_n([blocks[1], KVCacheBlock(3), KVCacheBlock(4)])
    with pytest.raises(AssertionError, match="no block stands twice: block 1 comes again"):
        queue.check()


def test_check_finds_an_empty_batch_that_is_not_counted() -> None:
    blocks, queue = queue_of(20)
    queue.append_n([KVCacheBlock(100 + i) for i in range(20)])
    for block in blocks:
        block.state.lose(1)  # of the batch alone: the queue does not hear of it
        block.state = 0
    queue.num_free_blocks -= 20
    with pytest.raises(AssertionError, match="batches without blocks: 0 != 1"):
        queue.check()


def test_a_block_knows_its_neighbours_and_shows_none_of_them() -> None:
    blocks, queue = queue_of(3)
    assert blocks[1].prev_free_block is blocks[0]
    assert blocks[1].next_free_block is blocks[2]
    assert blocks[0].prev_free_block is queue.fake_free_list_head
    assert blocks[2].next_free_block is queue.fake_free_list_tail
    assert repr(blocks[1]) == "KVCacheBlock(block_id=1, ref_cnt=0, block_hash=None)"


@pytest.mark.parametrize("lost", [range(70), range(0, 70, 3), range(69, -1, -2), range(1, 69)])
def test_blocks_lost_from_the_middle_of_a_long_batch_leave_the_others_in_order(lost: range) -> None:
    blocks, queue = queue_of(70)
    for i in lost:
        queue.remove(blocks[i])
        queue.check()
    rest = [i for i in range(70) if i not in lost]
    assert ids(queue.get_all_free_blocks()) == rest
    assert ids(queue.popleft_n(len(rest))) == rest
    queue.check()


def test_a_block_that_comes_back_stands_where_it_was_put_last() -> None:
    blocks, queue = queue_of(70)
    for i in (5, 66, 0):
        queue.remove(blocks[i])
        queue.append(blocks[i])
        queue.check()
    rest = [i for i in range(70) if i not in (5, 66, 0)]
    assert ids(queue.popleft_n(70)) == [*rest, 5, 66, 0]


def test_many_empty_batches_are_swept_away() -> None:
    blocks, queue = queue_of(0)
    blocks = [KVCacheBlock(i) for i in range(20 * 200)]
    for first in range(0, len(blocks), 20):
        queue.append_n(blocks[first : first + 20])
    for block in blocks[20:-20]:
        queue.remove(block)
    queue.check()
    assert ids(queue.get_all_free_blocks()) == [*range(20), *range(20 * 199, 20 * 200)]
    assert ids(queue.popleft_n(21)) == [*range(20), 20 * 199]
    queue.check()


def test_blocks_are_made_when_they_are_taken() -> None:
    made: list[KVCacheBlock] = []

    def make(count: int) -> list[KVCacheBlock]:
        new = [KVCacheBlock(len(made) + i) for i in range(count)]
        made.extend(new)
        return new

    _, queue = queue_of(0)
    queue.reserve(5, make)
    assert (queue.num_free_blocks, made) == (5, [])
    assert ids(queue.popleft_n(2)) == [0, 1]
    assert ids(made) == [0, 1]
    queue.check()
    queue.append(made[0])
    assert ids(queue.get_all_free_blocks()) == [2, 3, 4, 0]
    queue.check()


def test_an_identity_is_not_overwritten() -> None:
    block = KVCacheBlock(7)
    block.block_hash = BlockHashWithGroupId(b"first")
    with pytest.raises(AssertionError, match="block 7"):
        block.block_hash = BlockHashWithGroupId(b"second")
    assert block.block_hash == b"first"
    block.reset_hash()
    block.block_hash = BlockHashWithGroupId(b"second")
    assert block.block_hash == b"second"


def test_a_block_has_no_dict() -> None:
    assert not hasattr(KVCacheBlock(0), "__dict__")
