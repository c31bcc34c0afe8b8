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
    with pytest.raises(ValueError, match="no free block"):
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
    with pytest.raises(AssertionError, match=r"num_free_blocks == len\(walk\): 4 != 3; walk = \[0, 1, 2\]"):
        queue.check()


def test_check_finds_a_link_that_is_not_symmetric() -> None:
    blocks, queue = queue_of(3)
    blocks[2].prev_free_block = blocks[0]
    with pytest.raises(AssertionError, match="backward walk"):
        queue.check()


def test_check_finds_a_cycle() -> None:
    blocks, queue = queue_of(3)
    blocks[2].next_free_block = blocks[0]
    with pytest.raises(AssertionError, match="block 0 comes again"):
        queue.check()


def test_check_finds_a_broken_chain() -> None:
    blocks, queue = queue_of(3)
    blocks[1].next_free_block = None
    with pytest.raises(AssertionError, match="broke off"):
        queue.check()


def test_a_block_shows_its_neighbours_by_id_only() -> None:
    blocks, _ = queue_of(3)
    assert "prev=0, next=2" in repr(blocks[1])


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
